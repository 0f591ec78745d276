"""What eager's own gradient formulas read otherwise than eager says.

What they keep, eager is asked: ``runtime/saved_by_eager.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

Kept = Mapping[str, tuple[str, ...]]
"""Parameters, or ``result`` (the first of several: ``result 0``), and of which parameters the
formula is that reads each: () of any."""

CROSS: Kept = {"input": ("other",), "other": ("input",)}
STATISTICS: Mapping[str, Kept] = {"batch_norm_moved": {"running_mean": (), "running_var": ()}}
"""What a formula keeps of what the operator itself has written, unseen by version counters."""
UNCHECKED: Mapping[str, Kept] = {"kron": CROSS}
"""Rows whose formulas read the memory of their arguments by views of it that count no writes
(``_unsafe_view``): what was written since is read."""
MAY_COPY = frozenset(
    "bilinear einsum embedding_bag group_norm inner instance_norm linear matmul tensordot".split()
)
"""Rows that may begin with a copy of an argument that does not lie in rows; formulas keep that."""


TURNED_FIRST: Mapping[str, str] = dict.fromkeys(("linear", "bilinear", "instance_norm"), "weight")
"""The operand that ATen turns or repeats before the operator: by a node of autograd of its own."""
