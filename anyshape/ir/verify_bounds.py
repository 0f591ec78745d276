"""The verifier of kernels' bounds: none rests on what is tested only later.

In: a program and what is known about its sizes. Out: nothing, or ``Malformed`` with the step. Where
the facts say that an element that a kernel reads or writes lies in its buffer, those that have been
tested before the kernel runs must say so too, or hold for no sizes for which it is false: the facts
do not find every proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anyshape.ir.buffers import Buffer, BufferRef, SizeInMemory
from anyshape.ir.established import Established
from anyshape.ir.loops import Load, SizeParam, Store
from anyshape.ir.program import CheckStep, Launch, NativeRegion, Program, Step
from anyshape.ir.verify import Malformed
from anyshape.symbolic import (
    Condition,
    Dim,
    Expr,
    Facts,
    Symbol,
    all_of,
    evaluate,
    ge,
    le,
    restate,
    substitute,
)

EXAMPLES = (0, 1, 2, 3, 7, 100)
MOST_EXAMPLES = 6**5
SPREAD = 1_000_003
"""A prime that does not divide the number of combinations."""


def verify_bounds(program: Program, facts: Facts, tested: Established) -> None:
    """Raises ``Malformed`` for a kernel that stays in its buffers only if a later check holds;
    ``tested``: what is known at each step."""
    checked: list[Condition] = []
    for number, step in enumerate(program.steps):
        known = tested.at(number)
        if known is facts:
            return
        if isinstance(step, CheckStep) and not isinstance(step.condition, bool):
            checked.append(step.condition)
        for launch in _launches(step):
            for name, runs, inside in _accesses(launch, program.buffers):
                if not _says(facts, runs, inside) or _says(known, runs, inside):
                    continue
                if _fails_somewhere(known, checked, runs, inside):
                    raise Malformed(
                        f"step {number}: a kernel stays in {name} only if {inside}, which follows "
                        "from what is tested later"
                    )


def _launches(step: Step) -> Iterator[Launch]:
    for inner in step.steps if isinstance(step, NativeRegion) else (step,):
        for launch in inner.launched():
            yield from launch.parts()


def _says(facts: Facts, runs: Condition | bool, inside: Condition | bool) -> bool:
    turning = facts.under(runs)
    return turning is None or turning.known(inside) is True


def _fails_somewhere(
    known: Facts, checked: Sequence[Condition], runs: Condition | bool, inside: Condition | bool
) -> bool:
    """Is there an example of sizes that fulfil the facts and what was ``checked``, for which the
    loops turn and leave their buffer? Sizes that are known to be equal are one; what is known of
    other symbols is left out."""
    runs, inside = _in_known_sizes(runs, known), _in_known_sizes(inside, known)
    conditions = [c for c in (runs, inside) if not isinstance(c, bool)]
    symbols = sorted({s for c in conditions for s in c.symbols}, key=lambda s: s.name)
    if inside is False:
        return True
    said = [_in_known_sizes(c, known) for c in (*(c for c, _ in known.all()), *checked)]
    stated = [c for c in said if not isinstance(c, bool) and c.symbols <= set(symbols)]
    required = [*stated, *([] if isinstance(runs, bool) else [runs])]
    for sizes in _examples(len(symbols)):
        example = dict(zip(symbols, sizes, strict=True))
        if all(evaluate(c, example) for c in required) and not _holds(inside, example):
            return True
    return False


def _in_known_sizes(condition: Condition | bool, known: Facts) -> Condition | bool:
    """The condition, each symbol written as what it is known to equal."""
    if isinstance(condition, bool):
        return condition
    equal = {s: known.simplify(s.expr) for s in condition.symbols}
    return restate(condition, equal)


def _examples(count: int) -> Iterator[tuple[int, ...]]:
    """All combinations of sizes, or as many as are tried, spread over all of them."""
    total = len(EXAMPLES) ** count
    for number in range(min(total, MOST_EXAMPLES)):
        left = number if total <= MOST_EXAMPLES else number * SPREAD % total
        sizes = []
        for _ in range(count):
            left, at = divmod(left, len(EXAMPLES))
            sizes.append(EXAMPLES[at])
        yield tuple(sizes)


def _holds(condition: Condition | bool, example: Mapping[Symbol, int]) -> bool:
    return condition if isinstance(condition, bool) else bool(evaluate(condition, example))


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
        elif isinstance(arg, SizeInMemory):
            given[param.name] = arg.size
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
            element = _at(access.index, {**given, **turn})
            if element is not None:
                element = element + launch.offsets.get(access.pointer, 0)
                yield buffer.name, runs, all_of(ge(element, 0), le(element, _last_of(buffer)))


def _at(dim: Dim, values: Mapping[str, Dim]) -> Dim | None:
    """The kernel's number in the program's sizes; None where data decides it."""
    if isinstance(dim, int):
        return dim
    symbols: dict[Symbol, Dim] = {s: values[s.name] for s in dim.symbols if s.name in values}
    return substitute(dim, symbols) if len(symbols) == len(dim.symbols) else None


def _last_of(buffer: Buffer) -> Dim:
    """Where the last element of the buffer lies."""
    element: Dim = 0
    for size, stride in zip(buffer.shape, buffer.strides, strict=True):
        element = element + (size - 1) * stride
    return element
