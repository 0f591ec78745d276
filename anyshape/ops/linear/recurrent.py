"""Types of recurrent layers over padded batches: ``torch.lstm``, ``gru`` and both ``rnn``.

In: the arguments of such a call. Out: the types of its results. Torch's meta kernel of these takes
every step of the sequence, so to ask it is work in proportion to the length. What it alone knows is
left to it (``NoRow``): packed sequences, whose second argument is no state, and wrong arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyshape.ir.graph import TensorType
from anyshape.nouns import replace
from anyshape.ops.context import NoRow, TypeContext
from anyshape.ops.rules import is_tensor, new
from anyshape.symbolic import eq

Types = tuple[TensorType, ...]


def _layers(
    cx: TypeContext, input: Any, states: tuple[Any, ...], params: Any, *options: Any
) -> Types:
    """The output ``(steps, batch, width)``, and the last states, each like the first."""
    if len(options) != 6 or not isinstance(params, (tuple, list)):
        raise NoRow("a recurrent layer over a packed sequence")
    has_biases, layers, _, _, bidirectional, batch_first = options
    given = [input, *states, *params]
    if not all(map(is_tensor, given)):
        raise NoRow("a recurrent layer without a tensor")
    kinds = [value.tensor for value in given]
    x, first = kinds[0], kinds[1 : 1 + len(states)]
    if len({(t.dtype, t.device) for t in kinds}) > 1 or any(t.rank != 3 for t in (x, *first)):
        raise NoRow("a recurrent layer of several dtypes, or of another rank")
    runs = layers * (2 if bidirectional else 1)
    batch, steps = x.shape[:2] if batch_first else (x.shape[1], x.shape[0])
    alike = (eq(t.shape[i], n) for t in first for i, n in enumerate((runs, batch)))
    if len(params) not in _counts(runs, has_biases) or not all(map(cx.known, alike)):
        raise NoRow("a recurrent layer of other weights or states")
    width = first[0].shape[2] * (2 if bidirectional else 1)
    output = new(cx, x, (steps, batch, width))
    if batch_first:  # computed as the other, and turned
        (_, *shape), (of_steps, *strides) = output.shape, output.strides
        output = replace(
            output,
            shape=(shape[0], steps, shape[1]),
            strides=(strides[0], of_steps, strides[1]),
        )
    return output, *(new(cx, x, t.shape) for t in first)


def _counts(runs: int, has_biases: bool) -> tuple[int, int]:
    """How many weights there are, without a projection of the states and with one."""
    biases = 2 if has_biases else 0
    return runs * (2 + biases), runs * (3 + biases)


def _lstm(cx: TypeContext, input: Any, states: Any, params: Any, *options: Any) -> Types:
    if not isinstance(states, (tuple, list)):
        raise NoRow("a recurrent layer over a packed sequence")
    return _layers(cx, input, tuple(states), params, *options)


def _of_one_state(cx: TypeContext, input: Any, state: Any, params: Any, *options: Any) -> Types:
    return _layers(cx, input, (state,), params, *options)


RECURRENT: Mapping[str, Callable[..., Types]] = {
    "torch.lstm": _lstm,
    "torch.gru": _of_one_state,
    "torch.rnn_tanh": _of_one_state,
    "torch.rnn_relu": _of_one_state,
}
"""The rule of each function, by its dotted name."""
