"""Text from kernels and programs: ``c.py``, ``triton.py`` (kernels) and ``host.py`` (programs)."""
