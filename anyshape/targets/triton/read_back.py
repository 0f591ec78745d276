"""What a phase over fibers reads back of what phases before it have written.

In: a kernel, its phases, and what a phase needs and knows. Out: the elements that it loads from
where they were stored, instead of making them again, where that takes away two loads or more: a
norm of a sum that is a result too reads the sum, unless the phase reads what is added anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from anyshape.ir.loops import Kernel, Load, Store
from anyshape.symbolic import Dim, Expr
from anyshape.targets.reduction_phases import Phases

LEAST_LOADS = 2


def read_back(
    kernel: Kernel, phases: Phases, level: int, roots: Sequence[int], known: Set[int]
) -> Mapping[int, Load]:
    """Element -> the load that gives it; in the phase ``level``, which needs ``roots``."""
    before = [store for n in range(level) for store in phases.stores(n, "cell")]
    written = [store.pointer for store in kernel.stores]
    whole = {
        store.value: store
        for store in before
        if written.count(store.pointer) == 1 and _is_whole(kernel, store)
    }
    found: dict[int, Load] = {}
    for number in sorted(whole, reverse=True):  # what is made of others comes before these
        loads = _loads(kernel, phases, roots, known | found.keys())
        left = _loads(kernel, phases, roots, known | found.keys() | {number})
        if loads - left >= LEAST_LOADS:
            found[number] = _load(kernel, whole[number])
    return found


def _load(kernel: Kernel, store: Store) -> Load:
    return Load(store.pointer, store.index, kernel.pointer(store.pointer).dtype)


def _is_whole(kernel: Kernel, store: Store) -> bool:
    """Does each cell write one element of its own, as it is?"""
    pointer, index = kernel.pointer(store.pointer), store.index
    if store.mask is not None or store.mode != "set" or not isinstance(index, Expr):
        return False
    alike = kernel.elements[store.value].dtype is pointer.dtype and pointer.access == "write"
    return alike and index == _row_major(kernel, index)


def _row_major(kernel: Kernel, index: Expr) -> Dim | None:
    """The position of a cell among all; None where the index does not have all axes."""
    symbols = {symbol.name: symbol for symbol in index.symbols}
    position: Dim = 0
    for axis in (*kernel.axes, *kernel.reduction_axes):
        if axis.name not in symbols:
            return None
        position = position * axis.extent + symbols[axis.name].expr
    return position


def _loads(kernel: Kernel, phases: Phases, roots: Sequence[int], known: Set[int]) -> int:
    """How many elements of a fiber are loaded for these."""
    made_of = (kernel.elements[n] for n in phases.closure(roots, known) if phases.in_fiber(n))
    return sum(isinstance(element, Load) for element in made_of)
