"""Rows that run graphs: loops and branches that data may decide, and how they are built."""

from anyshape.ops.regions import rows
from anyshape.ops.regions.build import branch, loop
from anyshape.ops.regions.carried import RegionRefused

__all__ = ["RegionRefused", "branch", "loop", "rows"]
