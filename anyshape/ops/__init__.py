"""Operators: one row, one operator, everything about it. See docs/architecture.md.

``table.py`` says what a row is, ``context.py`` what a type rule may ask, ``build.py`` how rows make
nodes; the other modules hold the rows by family. Importing this package fills the table.
"""

from anyshape.ops import (
    activation,
    algebra,
    binary,
    conv,
    convert,
    copies,
    create,
    dynamic,
    einsum,
    factor,
    index,
    inplace,
    join,
    loss,
    matmul,
    nn,
    norm,
    pointwise,
    random,
    reduce,
    reshape,
    sort,
    special,
    view,
)
from anyshape.ops.table import OPS, SPELLINGS

__all__ = [
    "OPS",
    "SPELLINGS",
    "activation",
    "algebra",
    "binary",
    "conv",
    "convert",
    "copies",
    "create",
    "dynamic",
    "einsum",
    "factor",
    "index",
    "inplace",
    "join",
    "loss",
    "matmul",
    "nn",
    "norm",
    "pointwise",
    "random",
    "reduce",
    "reshape",
    "sort",
    "special",
    "view",
]
