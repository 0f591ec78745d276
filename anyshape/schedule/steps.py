"""Facts about steps of a program: which buffers and symbols they use, and when memory is dead.

In: steps in order. Out: the same with a ``Free`` after the last use of each temporary or result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anyshape.ir.program import (
    Allocate,
    BindItem,
    BindSize,
    Buffer,
    BufferRef,
    BumpVersion,
    Call,
    CheckStep,
    Free,
    Launch,
    Step,
    StepArg,
)
from anyshape.ir.scalars import Scalar
from anyshape.symbolic import AllOf, AnyOf, Expr, Relation, Symbol


def buffers_of(step: Step) -> Iterator[str]:
    """The buffers that a step reads or makes."""
    match step:
        case Allocate() | BindSize() | BindItem() | BumpVersion():
            yield step.buffer
        case Launch(args=args):
            yield from (arg.name for arg in args if isinstance(arg, BufferRef))
        case Call(args=args, kwargs=kwargs, outputs=outputs):
            for arg in (*args, *kwargs.values()):
                yield from buffers_of_arg(arg)
            yield from (name for name in outputs if name)


def buffers_of_arg(arg: StepArg) -> Iterator[str]:
    if isinstance(arg, BufferRef):
        yield arg.name
    elif isinstance(arg, tuple):
        for item in arg:
            yield from buffers_of_arg(item)


def symbols_of_arg(arg: StepArg) -> Iterator[Symbol]:
    """The symbols in an argument, those inside scalars included."""
    if isinstance(arg, (Expr, Relation, AllOf, AnyOf)):
        yield from sorted(arg.symbols, key=lambda s: s.index)
    elif isinstance(arg, Scalar):
        for item in arg.args:
            yield from symbols_of_arg(item)
    elif isinstance(arg, tuple):
        for item in arg:
            yield from symbols_of_arg(item)
    elif isinstance(arg, slice):
        yield from symbols_of_arg((arg.start, arg.stop, arg.step))


def symbols_of_step(step: Step, buffers: Mapping[str, Buffer]) -> Iterator[Symbol]:
    """The symbols whose values the step needs."""
    match step:
        case Allocate(buffer=name):
            buffer = buffers[name]
            yield from symbols_of_arg((*buffer.shape, *buffer.strides))
        case Launch(args=args, offsets=offsets):
            yield from symbols_of_arg(tuple(args))
            yield from symbols_of_arg(tuple(offsets.values()))
        case Call(args=args, kwargs=kwargs, outputs=outputs):
            yield from symbols_of_arg((*args, *kwargs.values()))
            for buffer in (buffers[name] for name in outputs if name in buffers):
                yield from symbols_of_arg(buffer.strides if step.restride else ())
                yield from symbols_of_arg(buffer.shape if step.guessed else ())
        case CheckStep(condition=condition):
            yield from symbols_of_arg(condition)


def insert_frees(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], outputs: tuple[StepArg, ...]
) -> tuple[Step, ...]:
    """Frees temporaries and results after their last use."""
    kept = {name for output in outputs for name in buffers_of_arg(output)}
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        for name in buffers_of(step):
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
