"""Rows without a gradient rule, for which torch's autograd records the one call.

    %y = cdist(%a, %b)
    ->
    %y, %h = recorded("torch.cdist", (%a, %b), ...); %ga, %gb = recorded_gradients(%h, (%g,))

``autograd/recorded.py`` writes the first node where a gradient is wanted; the second one is its
gradient. What autograd keeps lies behind the handle ``%h`` (``eager_recorded.py``), which is saved
as any other tensor is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from anyshape.ir.dtypes import uint8
from anyshape.ir.graph import HOST, Arg, TensorType, Value, row_major, values_in
from anyshape.nouns import frozen, replace
from anyshape.ops.context import NoRow, TypeContext
from anyshape.ops.table import Extern, Resource, op

HANDLE = TensorType(uint8, HOST, (), ())
"""Of what autograd keeps of one call."""

RECORDED: Mapping[Resource | None, str] = {
    None: "recorded",
    "generator": "recorded_draw",
    "unknown": "recorded_guess",
}
"""The row that records a row, by what that touches besides values."""

RECORDING = frozenset(f"anyshape.eager_recorded.{name}" for name in RECORDED.values())
"""The functions that do so."""

SEVERAL = frozenset(
    "torch.linalg.qr torch.qr torch.Tensor.qr torch.linalg.eigh torch.linalg.slogdet torch.slogdet "
    "torch.Tensor.slogdet torch.linalg.svd torch.svd torch.Tensor.svd "
    "anyshape.eager.var_mean_ anyshape.eager.std_mean_ torch.lstm torch.gru torch.rnn_tanh "
    "torch.rnn_relu torch.lstm_cell".split()
)
"""Functions of several results of floats, all of which have gradients; of others that is not
known."""

GRADIENTS = "recorded_gradients"


@frozen
class Constant:
    """The argument at ``position`` does not move the results, where the option passes the test."""

    position: int
    option: str
    option_position: int | None  # None: by name alone
    test: Callable[[Arg], bool]
    default: Arg

    def holds(self, args: tuple[Arg, ...], options: Mapping[str, Arg]) -> bool:
        at = self.option_position
        given = at is not None and len(args) > at
        return self.test(
            args[at] if given and at is not None else options.get(self.option, self.default)
        )


_QUANTILE = Constant(1, "interpolation", None, lambda how: how != "linear", "linear")
_ORDER = Constant(0, "ord", 1, lambda order: order == 0, 2)
CONSTANT: Mapping[str, Constant] = {
    "torch.quantile": _QUANTILE,  # others lie at whole positions, or half way between two
    "torch.nanquantile": _QUANTILE,
    "torch.linalg.vector_norm": _ORDER,  # a count
    "torch.linalg.norm": _ORDER,
    "torch.norm": replace(_ORDER, option="p"),
    "torch.functional.norm": replace(_ORDER, option="p"),
    "torch.Tensor.norm": replace(_ORDER, option="p"),
}
"""Of which eager's gradient is None, and no zeros. What has a rule says so there."""


def is_tensor(arg: Arg) -> bool:
    """Whether the argument is a tensor at run time."""
    return isinstance(arg, Value) and isinstance(arg.type, TensorType)


def tensors_in(arg: Arg) -> list[Value]:
    """The tensors inside an argument, in the order in which they are counted."""
    return [value for value in values_in(arg) if is_tensor(value)]


def _gradient_type(kind: TensorType) -> TensorType:
    return TensorType(kind.dtype, kind.device, kind.shape, row_major(kind.shape))


def _type(cx: TypeContext, *args: Any) -> TensorType:
    """Who writes the nodes knows the types."""
    raise NoRow("differentiation alone writes these nodes")


def _gradients_of(part: str) -> Any:
    """The rule of the positional arguments, or of the others: both are those of one node."""

    def rule(
        b: Any, g: Any, y: Any, function: Any, args: Any, names: Any, options: Any,
        wanted: Any, callers: Any,
    ) -> Any:  # fmt: skip
        tensors = tensors_in((args, options))
        kinds = tuple(_gradient_type(tensors[position].tensor) for position in wanted)
        made = b.append(GRADIENTS, (y[-1], tuple(g[:-1])), {}, kinds, single=False)
        by_position = dict(zip(wanted, made, strict=True))
        position = count()

        def by_argument(arg: Arg) -> Any:
            if isinstance(arg, tuple):
                return tuple(map(by_argument, arg))
            return by_position.get(next(position)) if is_tensor(arg) else None

        gradients = {"args": by_argument(args), "options": by_argument(options)}
        return gradients[part]

    return rule


for _resource, _name in RECORDED.items():
    op(
        _name,
        "function, args, names, options, wanted, callers",
        torch=f"anyshape.eager_recorded.{_name}",
        type=_type,
        lower=Extern(f"anyshape.eager_recorded.{_name}"),
        random=_resource == "generator",
        guessed=_resource == "unknown",
        raises=True,
        vjp={part: _gradients_of(part) for part in ("args", "options")},
    )
op(
    GRADIENTS,
    "handle, cotangents",
    torch=f"anyshape.eager_recorded.{GRADIENTS}",
    type=_type,
    lower=Extern(f"anyshape.eager_recorded.{GRADIENTS}"),
    differentiable=False,
)
