"""Tensors where an operator wants numbers: ``torch.zeros(mask.sum(), 4)``, ``x.narrow(0, 0, n)``,
``x.new_full((2,), x.min())``; and numbers where it wants a tensor: ``torch.div(x.shape[0], 2)``.

In: a row's arguments. Out: the same, where a tensor without dimensions that stands for a number, an
integer one for a size, a dimension or a count, is its number, as torch's own argument parser reads
it; and flags that follow from sizes (``training=step < n``) are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.recording.scalar_contents import ScalarContents
from anyshape.ir.graph import Arg, ScalarType, TensorType, Value
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.ops.build import Builder
from anyshape.ops.refusals import ANY_INSIDE, LIMITS
from anyshape.ops.table import OPS, Ratio
from anyshape.symbolic import AllOf, AnyOf, Condition, Expr, Relation

INTEGERS = frozenset(
    "chunks diagonal dilation dim dim0 dim1 dim2 dimension dims end end_dim groups high"
    " k kernel_size length low m minlength n normalized_shape num_classes num_samples offset"
    " output_padding output_size pad padding repeats sections shape shifts size sizes"
    " split_size_or_sections start start_dim step steps storage_offset stride".split()
)
"""Parameters that take integers, in every row that has one of the name but those below."""
DIMENSIONS = frozenset("dim dim0 dim1 dim2 dimension dims end_dim start_dim".split())
"""Those of them whose very value decides what a row means."""
NUMBERS = frozenset("correction delta fill_value p".split())
"""Parameters that take numbers, of any kind, in every row that has one of the name."""
TENSORS = frozenset({("repeat_interleave", "repeats"), ("lerp", "end")})
OF_TWO = frozenset({"max", "min"})
"""Rows of which an argument behind the first is another tensor, if it is the only one."""
NUMBERED = frozenset({("select", "index")})
ZERO_OR_NOT = frozenset({"dropout_p"})
"""Parameters of which a row asks whether they are 0: what it is then is decided while capturing."""
SYMBOLIC_FLAGS = frozenset(
    "descending hard is_causal largest replacement right sorted stable upper".split()
)
"""Flags that may be conditions on sizes: rows, or the functions behind them, take these."""
OTHER_FLAGS = frozenset(
    "align_corners dim onesided recompute_scale_factor reduce size_average train unbiased".split()
)
FLAGS = (
    frozenset(
        parameter.name
        for row in OPS.values()
        for parameter in row.signature.parameters
        if isinstance(parameter.default, bool)
    ).union(OTHER_FLAGS)
    - SYMBOLIC_FLAGS
)
"""Parameters of which rows ask whether they are true, where they are handed a truth."""
FILLED = frozenset({("torch_pad", "value"), ("constant_pad_nd", "value")})


def with_integers(
    builder: Builder,
    contents: ScalarContents,
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    known: Callable[[Expr, str], int],
    known_scalar: Callable[[Any, str], Any],
    decide: Callable[[Condition], bool],
    decide_scalar: Callable[[Scalar | ScalarInput], bool],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of row ``name`` with numbers where it takes no tensors; ``known(size, why)``
    and ``known_scalar`` rely on the value of a size and of another number, ``decide`` on a
    condition on sizes, and ``decide_scalar`` on another one.
    """
    row = OPS.get(name)
    if row is None:
        return args, dict(kwargs)
    if row.of_numbers and len(args) > 1 and not isinstance(args[0], Value):
        if not isinstance(args[1], Value):
            args = (builder.call("full", (), args[0]), *args[1:])
    limited = LIMITS[name].keys() - ANY_INSIDE if name in LIMITS else ()
    by_value = (*row.by_value, *limited)
    alone = name in OF_TWO and len(args) == 2 and not kwargs
    names = row.signature.names[:1] if alone else row.signature.names

    def number(parameter: str, arg: Arg) -> Arg:
        if _counts(name, parameter):
            made = _number(builder, contents, arg, integral=True)
        elif parameter in NUMBERS.union(by_value, ZERO_OR_NOT) or (name, parameter) in FILLED:
            made = _number(builder, contents, arg, integral=False)
        else:
            made = arg
        if isinstance(made, (Scalar, ScalarInput)) and parameter in by_value:
            return known_scalar(made, parameter)
        if isinstance(made, (Scalar, ScalarInput)) and parameter in ZERO_OR_NOT:
            return 0.0 if decide_scalar(Scalar("bool", "eq", (made, 0.0))) else made
        if isinstance(made, (Scalar, ScalarInput)) and made.kind == "bool" and parameter in FLAGS:
            of_sizes = _condition(made)
            return decide_scalar(made) if of_sizes is None else decide(of_sizes)
        is_dimension = parameter in DIMENSIONS.union(row.by_value, ZERO_OR_NOT)
        return _dimension(made, known) if is_dimension else made

    positional = [number(*pair) for pair in zip(names, args)]
    named = {parameter: number(parameter, arg) for parameter, arg in kwargs.items()}
    return (*positional, *args[len(names) :]), named


def _condition(flag: Scalar | ScalarInput) -> Condition | None:
    """What the truth is of, where that is a condition on sizes."""
    part = flag.args[0] if isinstance(flag, Scalar) and flag.op == "value" else None
    return part if isinstance(part, Relation | AllOf | AnyOf) else None


def _dimension(arg: Arg, known: Callable[[Expr, str], int]) -> Arg:
    if isinstance(arg, tuple):
        return tuple([_dimension(part, known) for part in arg])
    return known(arg, "a dimension") if isinstance(arg, Expr) else arg


def _counts(row: str, parameter: str) -> bool:
    if parameter in INTEGERS:
        return (row.rstrip("_"), parameter) not in TENSORS
    return (row, parameter) in NUMBERED


def _number(builder: Builder, contents: ScalarContents, arg: Arg, integral: bool) -> Arg:
    if isinstance(arg, tuple):
        return tuple([_number(builder, contents, part, integral) for part in arg])
    if not isinstance(arg, Value) or not isinstance(arg.type, TensorType) or arg.type.rank:
        return arg
    is_integer = arg.dtype.is_integral and arg.dtype.category != "bool"
    if integral and not is_integer:
        return arg
    known = contents.needed(builder, arg) if is_integer else None
    if known is not None and not isinstance(known, Ratio):
        return known
    made = builder.call("item", arg).type
    assert isinstance(made, ScalarType)
    return made.expr
