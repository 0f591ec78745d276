"""The graph becomes kernels and a program; start at ``plan.py``."""

from anyshape.schedule.plan import schedule

__all__ = ["schedule"]
