"""What eager's own gradient formulas read of a row though the rules here do not.

Eager keeps it for them, and refuses to go on where it was written since; so does what is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping

Kept = Mapping[str, tuple[str, ...]]
"""Parameters, or ``result``, and of which parameters the formula is that reads each: () of any."""

INPUT: Kept = {"input": ()}
BOTH: Kept = {"input": (), "target": ()}
SOURCE: Kept = {"source": ("source",)}
CROSS: Kept = {"input": ("other",), "other": ("input",)}

KEPT: Mapping[str, Kept] = {
    "angle": INPUT,
    "batch_norm": INPUT,
    "batch_norm_moved": INPUT,
    "binary_cross_entropy_with_logits": BOTH,
    "cross": CROSS,
    "dist": {"input": (), "other": (), "result": ()},
    "div": {"input": ("other",), "other": ()},
    "float_power": {"input": (), "exponent": ()},
    "gather": {"input": ("input",)},
    "group_norm": INPUT,
    "huber_loss": BOTH,
    "index_add": SOURCE,
    "index_copy": SOURCE,
    "layer_norm": {"bias": ()},
    "linalg_cross": CROSS,
    "max_pool1d": INPUT,
    "max_pool2d": INPUT,
    "max_pool3d": INPUT,
    "mse_loss": BOTH,
    "nll_loss": INPUT,
    "prelu": INPUT,
    "sgn": {"input": (), "result": ()},
    "smooth_l1_loss": BOTH,
    "soft_margin_loss": BOTH,
    "take": INPUT,
    "take_along_dim": INPUT,
}
