"""The nouns that the stages meet in: graphs, kernels (``loops.py``), programs and code.

Each prints (``text.py``), is read back (``parse.py``) and can be verified (``verify.py``).
``effects.py`` and ``program.py`` are one recursive definition: a program is steps, and a step may
hold programs.
"""
