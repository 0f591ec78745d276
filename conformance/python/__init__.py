"""CPython's own tests (Lib/test of the Python at hand) beside CPython: each test method is called
by a compiled function between two tensor operations. `python -m conformance.python` runs them and
writes docs/python.md; read on in `modules.py`, `exam.py`, `forks.py`, `rows.py`, `report.py`.
"""
