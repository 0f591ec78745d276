"""Operators: one row, one operator, everything about it. See docs/architecture.md.

``table.py`` says what a row is, ``context.py`` what a type rule may ask, ``build.py`` how rows make
nodes; the other modules hold the rows by family. Importing this package fills the table.
"""

from anyshape.ops import (
    activation,
    binary,
    conv,
    convert,
    copies,
    create,
    dynamic,
    index,
    inplace,
    join,
    linear,
    losses,
    nn,
    norm,
    permute,
    pointwise,
    random,
    reduce,
    regions,
    reshape,
    scatter,
    shorthand,
    sort,
    special,
    split,
    view,
)
from anyshape.ops.gradients import backward, recorded
from anyshape.ops.table import OPS, SPELLINGS

__all__ = [
    "OPS",
    "SPELLINGS",
    "activation",
    "backward",
    "binary",
    "conv",
    "convert",
    "copies",
    "create",
    "dynamic",
    "index",
    "inplace",
    "join",
    "linear",
    "losses",
    "nn",
    "norm",
    "permute",
    "pointwise",
    "random",
    "recorded",
    "reduce",
    "regions",
    "reshape",
    "scatter",
    "shorthand",
    "sort",
    "special",
    "split",
    "view",
]
