"""Benchmarks: scripts that print a table against eager and torch.compile in the same process.

`python -m benchmarks` runs all of them; `python -m benchmarks.kernels` one. Each writes
benchmarks/results/NAME.json, and from those docs/benchmarks.md and the README's table are written.
"""
