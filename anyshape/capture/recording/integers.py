"""Tensors where an operator wants integers: ``torch.zeros(mask.sum(), 4)``, ``x.narrow(0, 0, n)``;
and numbers where it wants a tensor: ``torch.div(x.shape[0], 2)``.

In: a row's arguments. Out: the same, where an integer tensor without dimensions that stands for a
size, a dimension or a count is its number, as torch's own argument parser reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.recording.scalar_contents import Held
from anyshape.ir.graph import Arg, ScalarType, TensorType, Value
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.ops.build import Builder
from anyshape.ops.table import OPS
from anyshape.symbolic import Expr

INTEGERS = frozenset(
    "chunks diagonal dilation dim dim0 dim1 dim2 dimension dims end end_dim groups high"
    " k kernel_size length low m minlength n normalized_shape num_classes num_samples offset"
    " output_padding output_size pad padding repeats sections shape shifts size sizes"
    " split_size_or_sections start start_dim step steps storage_offset stride".split()
)
"""Parameters that take integers, in every row that has one of the name but those below."""
DIMENSIONS = frozenset("dim dim0 dim1 dim2 dimension dims end_dim start_dim".split())
"""Those of them whose very value decides what a row means."""
TENSORS = frozenset({("repeat_interleave", "repeats"), ("lerp", "end")})
NUMBERED = frozenset({("select", "index")})


def with_integers(
    builder: Builder,
    held: Held,
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    known: Callable[[Expr, str], int],
    known_scalar: Callable[[Any, str], Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of row ``name`` with numbers where it takes no tensors; ``known(size, why)``
    and ``known_scalar`` rely on the value of a size and of another number.
    """
    row = OPS.get(name)
    if row is None:
        return args, dict(kwargs)
    if row.of_numbers and len(args) > 1 and not isinstance(args[0], Value):
        if not isinstance(args[1], Value):
            args = (builder.call("full", (), args[0]), *args[1:])
    names = row.signature.names

    def number(parameter: str, arg: Arg) -> Arg:
        made = _number(builder, held, arg) if _counts(name, parameter) else arg
        if isinstance(made, (Scalar, ScalarInput)) and parameter in row.by_value:
            return known_scalar(made, parameter)
        told = parameter in DIMENSIONS or parameter in row.by_value
        return _dimension(made, known) if told else made

    positional = [number(*pair) for pair in zip(names, args)]
    named = {parameter: number(parameter, arg) for parameter, arg in kwargs.items()}
    return (*positional, *args[len(names) :]), named


def _dimension(arg: Arg, known: Callable[[Expr, str], int]) -> Arg:
    if isinstance(arg, tuple):
        return tuple([_dimension(part, known) for part in arg])
    return known(arg, "a dimension") if isinstance(arg, Expr) else arg


def _counts(row: str, parameter: str) -> bool:
    if parameter in INTEGERS:
        return (row.rstrip("_"), parameter) not in TENSORS
    return (row, parameter) in NUMBERED


def _number(builder: Builder, held: Held, arg: Arg) -> Arg:
    if isinstance(arg, tuple):
        return tuple([_number(builder, held, part) for part in arg])
    if not isinstance(arg, Value) or not isinstance(arg.type, TensorType):
        return arg
    if arg.type.rank or not arg.dtype.is_integral or arg.dtype.category == "bool":
        return arg
    known = held.content(arg)
    if known is not None:
        return known
    made = builder.call("item", arg).type
    assert isinstance(made, ScalarType)
    return made.expr
