"""The verifier of kernels' bounds: none rests on what is tested only later.

In: a program and what is known about its sizes. Out: nothing, or ``Malformed`` with the step. Where
the facts say that an element that a kernel reads or writes lies in its buffer, those that have been
tested before the kernel runs must say so too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anyshape.ir.established import established_in
from anyshape.ir.loops import Load, SizeParam, Store
from anyshape.ir.program import Buffer, BufferRef, Launch, NativeRegion, Program, Step
from anyshape.ir.verify import Malformed
from anyshape.symbolic import (
    Condition,
    Contradiction,
    Dim,
    Expr,
    Facts,
    Symbol,
    all_of,
    ge,
    le,
    substitute,
)


def verify_bounds(program: Program, facts: Facts) -> None:
    """Raises ``Malformed`` for a kernel that stays in its buffers only if a later check holds."""
    tested = established_in(program, facts)
    for number, step in enumerate(program.steps):
        known = tested.at(number)
        if known is facts:
            return
        for launch in _launches(step):
            for name, runs, inside in _accesses(launch, program.buffers):
                if _says(facts, runs, inside) and not _says(known, runs, inside):
                    raise Malformed(
                        f"step {number}: a kernel stays in {name} only if {inside}, which follows "
                        "from what is tested later"
                    )


def _launches(step: Step) -> Iterator[Launch]:
    for inner in step.steps if isinstance(step, NativeRegion) else (step,):
        if isinstance(inner, Launch):
            yield inner


def _says(facts: Facts, runs: Condition | bool, inside: Condition | bool) -> bool:
    try:
        return facts.under(runs).known(inside) is True
    except Contradiction:
        return True


def _accesses(
    launch: Launch, buffers: Mapping[str, Buffer]
) -> Iterator[tuple[str, Condition | bool, Condition | bool]]:
    """(buffer, when the loops turn, that an element lies in it), for the elements of the first and
    of the last turn of all loops; not of what is read or written under a condition."""
    kernel, accesses = launch.kernel, (*launch.kernel.elements, *launch.kernel.stores)
    given: dict[str, Dim] = {}
    names: dict[str, str] = {}
    for param, arg in zip(kernel.params, launch.args, strict=True):
        if isinstance(arg, BufferRef):
            names[param.name] = arg.name
        elif isinstance(param, SizeParam) and isinstance(arg, (int, Expr)):
            given[param.name] = arg
    axes = (*kernel.axes, *kernel.reduction_axes)
    extents = {axis.name: _at(axis.extent, given) for axis in axes}
    if any(extent is None for extent in extents.values()):
        return
    runs = all_of(*(ge(extent, 1) for extent in extents.values() if extent is not None))
    first: dict[str, Dim] = dict.fromkeys(extents, 0)
    last = {name: extent - 1 for name, extent in extents.items() if extent is not None}
    for access in accesses:
        if not isinstance(access, (Load, Store)) or access.mask is not None:
            continue
        buffer = buffers[names[access.pointer]]
        for turn in (first, last):
            place = _at(access.index, {**given, **turn})
            if place is not None:
                place = place + launch.offsets.get(access.pointer, 0)
                yield buffer.name, runs, all_of(ge(place, 0), le(place, _last_of(buffer)))


def _at(dim: Dim, values: Mapping[str, Dim]) -> Dim | None:
    """The kernel's number in the program's sizes; None where data decides it."""
    if isinstance(dim, int):
        return dim
    symbols: dict[Symbol, Dim] = {s: values[s.name] for s in dim.symbols if s.name in values}
    return substitute(dim, symbols) if len(symbols) == len(dim.symbols) else None


def _last_of(buffer: Buffer) -> Dim:
    """Where the last element of the buffer lies."""
    place: Dim = 0
    for size, stride in zip(buffer.shape, buffer.strides, strict=True):
        place = place + (size - 1) * stride
    return place
