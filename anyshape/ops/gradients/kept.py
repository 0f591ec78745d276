"""What eager's own gradient formulas read of a row though the rules here do not.

Eager keeps it for them, and refuses to go on where it was written since; so does what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anyshape.ir.graph import Arg, Value

Kept = Mapping[str, tuple[str, ...]]
"""Parameters, or ``result`` (the first of several: ``result 0``), and of which parameters the
formula is that reads each: () of any."""

Given = Mapping[str, Arg]
"""The arguments of a node and its results, by the same names."""

INPUT: Kept = {"input": ()}
BOTH: Kept = {"input": (), "target": ()}
SOURCE: Kept = {"source": ("source",)}
CROSS: Kept = {"input": ("other",), "other": ("input",)}


def _unless_converted(given: Given) -> Kept:
    """Of an argument that is converted to the result's dtype first, what that made is kept."""
    result = given["result 0"]
    assert isinstance(result, Value)
    arguments = {name: given.get(name) for name in ("input", "exponent")}
    return {n: () for n, v in arguments.items() if isinstance(v, Value) and v.dtype is result.dtype}


def _where_edges_are_repeated(given: Given) -> Kept:
    return INPUT if given.get("mode") in ("reflect", "replicate") else {}


KEPT: Mapping[str, Kept | Callable[[Given], Kept]] = {
    "angle": INPUT,
    "batch_norm": INPUT,
    "batch_norm_moved": INPUT,
    "binary_cross_entropy_with_logits": BOTH,
    "cross": CROSS,
    "dist": {"input": (), "other": (), "result": ()},
    "div": {"input": ("other",), "other": ()},
    "embedding_bag": {"weight": ("per_sample_weights",)},
    "float_power": _unless_converted,
    "gather": {"input": ("input",)},
    "group_norm": INPUT,
    "huber_loss": BOTH,
    "index_add": SOURCE,
    "index_at_masks": {"masks": ("input",)},
    "index_copy": SOURCE,
    "layer_norm": {"bias": ()},
    "linalg_cross": CROSS,
    "masked_elements": {"input": (), "mask": ()},
    "max_pool1d": INPUT,
    "max_pool2d": INPUT,
    "max_pool3d": INPUT,
    "mse_loss": BOTH,
    "nll_loss": INPUT,
    "prelu": INPUT,
    "put_at_masks": {"masks": ("input", "values")},
    "sgn": {"input": (), "result": ()},
    "smooth_l1_loss": BOTH,
    "soft_margin_loss": BOTH,
    "std_mean": {"input": (), "result 0": ()},
    "take": INPUT,
    "take_along_dim": INPUT,
    "torch_pad": _where_edges_are_repeated,
    "var_mean": INPUT,
}
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
