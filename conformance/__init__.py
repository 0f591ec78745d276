"""Every operator of torch's own database against eager: compiled once for each call structure, with
no size known, and called at many sizes. `python -m conformance` runs it and writes
docs/operators.md; read on in `cases.py`, `check.py`, `report.py`.
"""
