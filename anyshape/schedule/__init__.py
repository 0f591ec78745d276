"""The graph becomes kernels and a program; start at ``plan.py``."""

from anyshape.schedule.plan import refusals, schedule

__all__ = ["refusals", "schedule"]
