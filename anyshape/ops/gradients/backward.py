"""``backward()`` inside a graph: the gradients of some tensors, with respect to others.

A pass (``autograd/inlined.py``) replaces the node by what computes the gradients; where that is not
covered, eager torch runs the graph, this node included.
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.graph import TensorType, Value, row_major
from anyshape.ops.context import TypeContext
from anyshape.ops.layout import dense_order
from anyshape.ops.table import op

GRADIENTS = "gradients"


def gradient_type(kind: TensorType) -> TensorType:
    """What autograd keeps as ``.grad``: laid out as the tensor is where that has no holes."""
    dense = dense_order(kind.shape, kind.strides) is not None
    strides = kind.strides if dense else row_major(kind.shape)
    return TensorType(kind.dtype, kind.device, kind.shape, strides)


def _type(
    cx: TypeContext, of: Any, cotangents: Any, wanted: tuple[Value, ...], retain: bool
) -> tuple[TensorType, ...]:
    return tuple(gradient_type(value.tensor) for value in wanted)


op(
    GRADIENTS,
    "of, cotangents, wanted, retain",
    torch="anyshape.eager.gradients",
    type=_type,
    differentiable=False,
)
