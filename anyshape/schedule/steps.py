"""Facts about steps of a program: which buffers and symbols they use, and when memory is dead.

In: steps in order. Out: the same with a ``Free`` after the last use of each temporary or result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from anyshape.ir.buffers import Buffer, StepArg, references
from anyshape.ir.program import (
    Free,
    Step,
)
from anyshape.ir.scalars import Scalar
from anyshape.symbolic import AllOf, AnyOf, Expr, Relation, Symbol, symbols_of_all

Number = Expr | Relation | AllOf | AnyOf


def numbers_in(arg: StepArg) -> Iterator[Number]:
    """The expressions and conditions in an argument, those inside scalars included."""
    if isinstance(arg, Number):
        yield arg
    elif isinstance(arg, Scalar):
        yield from numbers_in(arg.args)
    elif isinstance(arg, tuple):
        for item in arg:
            yield from numbers_in(item)
    elif isinstance(arg, slice):
        yield from numbers_in((arg.start, arg.stop, arg.step))


def symbols_used(numbers: Iterable[Number], bound: Set[Symbol]) -> tuple[Symbol, ...]:
    """The symbols of the numbers in order of first use, without those that are bound."""
    return tuple(symbol for symbol in symbols_of_all(numbers) if symbol not in bound)


def insert_frees(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], outputs: tuple[StepArg, ...]
) -> tuple[Step, ...]:
    """Frees temporaries and results after their last use."""
    kept = {name for output in outputs for name in references(output)}
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        for name in step.mentions():
            if name in buffers and buffers[name].role in ("temp", "result", "output"):
                last[name] = number
    dying: dict[int, list[str]] = {}
    for name, number in last.items():
        if name not in kept:
            dying.setdefault(number, []).append(name)
    result: list[Step] = []
    for number, step in enumerate(steps):
        result.append(step)
        if number in dying:
            result.append(Free(tuple(dying[number])))
    return tuple(result)
