"""What a kernel for a GPU may do in a narrower or better aligned way, for its form alone.

In: a kernel and its phases. Out: which 64-bit integers 32 bits hold (positions in a fiber, as of
``argmax``), and where in memory a fiber begins, if most of what is done for its cells begins there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from anyshape.ir.dtypes import int64
from anyshape.ir.loops import (
    Const,
    Kernel,
    Op,
    Position,
    Reduce,
    Scan,
    element_of,
    operands,
)
from anyshape.symbolic import Dim, Expr, substitute
from anyshape.targets.reduction_phases import Phases, accesses, coefficient

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
"""Of 64 bits; at 32 the ends of 32 bits stand for them, which no index reaches."""
INSIDE = (1 << 31) - 1


def narrow_elements(kernel: Kernel) -> frozenset[int]:
    """Least or largest positions, and what they are made of: `where`, positions along an axis, and
    numbers that 32 bits hold or that are the ends of 64. Right where an axis fits 32 bits."""
    users: list[set[int]] = [set() for _ in kernel.elements]
    for n, element in enumerate(kernel.elements):
        for read in operands(element):
            users[read].add(n)
    for store in kernel.stores:
        for read in operands(store):
            users[read].add(-1)
    found: set[int] = set()
    for n, element in enumerate(kernel.elements):
        if isinstance(element, Reduce) and element.combine in ("max", "min"):
            tree = set(_positions(kernel, element.arg))
            if tree and not any(users[part] - tree - {n} for part in tree):
                found |= tree | {n}
    return frozenset(found)


def _positions(kernel: Kernel, number: int) -> Iterator[int]:
    """The element and all of its tree; nothing where one of them may be wider."""
    found, stack = [], [number]
    while stack:
        found.append(stack.pop())
        element = kernel.elements[found[-1]]
        match element:
            case Op(op="where", args=(_, a, b)) if element.dtype is int64:
                stack += [a, b]
            case Const(value=value) if element.dtype is int64 and _fits(value):
                pass
            case Position(index=index) if element.dtype is int64 and _is_axis(kernel, index):
                pass
            case _:
                return
    yield from found


def _fits(value: float) -> bool:
    return value in (LOWEST, HIGHEST) or abs(value) < INSIDE


def _is_axis(kernel: Kernel, index: Dim) -> bool:
    names = (axis.name for axis in (*kernel.axes, *kernel.reduction_axes))
    return isinstance(index, Expr) and index.symbol is not None and index.symbol.name in names


def fiber_start(kernel: Kernel, phases: Phases) -> Dim | None:
    """The index at which a fiber of most accesses begins, None where they have none in common that
    follows from axes and sizes, or where cells are walked in order."""
    if len(kernel.reduction_axes) != 1 or kernel.ordered:
        return None
    if any(isinstance(element, Scan) for element in kernel.elements):
        return None
    starts = Counter(
        start for item in accesses(kernel) if (start := start_of(phases, item.index)) is not None
    )
    starts.pop(0, None)
    return starts.most_common(1)[0][0] if starts else None


def start_of(phases: Phases, index: Dim) -> Dim | None:
    """``index`` without the offset in the fiber, None where neighbours in the fiber are not
    neighbours in memory, or where data says where they are."""
    (fiber,) = phases.reduction_names
    if not isinstance(index, Expr) or coefficient(index, fiber) != 1:
        return None
    if any(element_of(symbol) is not None for symbol in index.symbols):
        return None
    (symbol,) = (s for s in index.symbols if s.name == fiber)
    return substitute(index, {symbol: 0})
