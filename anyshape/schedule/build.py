"""A group becomes a draft: every stored value's element at its index, operands inlined or loaded.

In: a ``Group``. Out: ``Drafted``: elements and stores whose indices are still over the graph's
symbols, and the loop variables with their extents. ``tile.py`` makes the canonical kernel of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import field
from functools import partial
from typing import TypeVar

from anyshape.ir.graph import Node, Value
from anyshape.ir.loops import Store
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops.table import Reduce, Scan
from anyshape.schedule.analysis import Analysis
from anyshape.schedule.draft import Cell, Draft
from anyshape.schedule.groups import Group, Stored
from anyshape.schedule.indices import Index, dot
from anyshape.schedule.lower import Lowering, rule_of, view_index
from anyshape.schedule.scatter import copied, write_of
from anyshape.symbolic import Dim, Expr, Symbol


@frozen
class Drafted:
    """Elements and stores of a kernel; pointers are named in order of first use, and ``buffers``
    says which value each is."""

    draft: Draft
    stores: tuple[Store, ...]
    extents: Mapping[Symbol, Dim]
    reduction_axes: tuple[Expr, ...]
    buffers: Mapping[str, Value]
    ordered: bool = False

    @property
    def form(self) -> Hashable:
        """All of it but which values the buffers are: the same for the same work elsewhere."""
        draft = self.draft
        return (
            *(tuple(draft.elements), tuple(draft.scalars), tuple(draft.integers.items())),
            *(self.stores, tuple(self.extents.items()), self.reduction_axes, self.ordered),
            tuple(value.dtype for value in self.buffers.values()),
        )


Made = TypeVar("Made")
DEEPEST = 16
"""Operands inside operands that are read by recursion."""


class _TooDeep(Exception):
    def __init__(self, value: Value, index: Index, mask: Cell | None) -> None:
        super().__init__(value.name)
        self.value, self.index, self.mask = value, index, mask


@mutable(eq=False)
class _Build:
    found: Analysis
    inlined: frozenset[Value]
    lowering: Lowering = field(init=False)
    memo: dict[tuple[Value, Index, int], Cell] = field(default_factory=dict)
    pointers: dict[Value, str] = field(default_factory=dict)
    depth: int = 0
    zeros: Set[Value] = frozenset()

    def read(self, value: Value, index: Index, *, whole: bool = False) -> Cell:
        mask = self.lowering.mask
        key = (value, index, -1 if mask is None else mask.number)
        cell = self.memo.get(key)
        if cell is None:
            if self.depth > DEEPEST:
                raise _TooDeep(value, index, mask)
            self.depth += 1
            cell = self.memo[key] = self._element(value, index)
            self.depth -= 1
        return cell

    def _element(self, value: Value, index: Index) -> Cell:
        found = self.found
        position = found.producer.get(value)
        while position is not None and found.kinds[position] == "view":
            value, index = view_index(self.lowering, found.nodes[position], index)
            position = found.producer.get(value)
        if value in self.zeros:
            return self.lowering.draft.const(0, value.dtype)
        if value in self.inlined:
            assert position is not None
            return self.expand(found.nodes[position], index)
        return self.load(value, index)

    def finish(self, make: Callable[[], Made]) -> Made:
        """What ``make`` returns. Where operands nest too deep for the stack, the deepest are made
        first, and remembered.
        """
        waiting: list[_TooDeep] = []
        while True:
            self.depth = 0
            try:
                if not waiting:
                    self.lowering.mask = None
                    return make()
                self.lowering.mask = waiting[-1].mask
                self.read(waiting[-1].value, waiting[-1].index)
                waiting.pop()
            except _TooDeep as deep:
                waiting.append(deep)

    def expand(self, node: Node, index: Index) -> Cell:
        rule = rule_of(self.found.ops[node.op])
        assert rule is not None
        return rule(self.lowering, node, index)

    def load(self, value: Value, index: Index) -> Cell:
        value = self.found.memory_of(value)
        element = dot(index, self.found.sizes.shape(value.tensor.strides))
        return self.lowering.draft.load(
            self.pointer(value), element, value.dtype, self.lowering.mask
        )

    def pointer(self, value: Value) -> str:
        """The name by which the draft reads and writes the value's memory."""
        return self.pointers.setdefault(value, f"p{len(self.pointers)}")

    def drafted(self, stores: tuple[Store, ...], group: Group, *, ordered: bool = False) -> Drafted:
        """What has been made, with these stores."""
        buffers = {name: value for value, name in self.pointers.items()}
        return Drafted(
            self.drawn(), stores, group.extents, group.reduction_axes, buffers, ordered=ordered
        )

    def drawn(self) -> Draft:
        """The draft, at the end."""
        draft = self.lowering.draft
        del self.lowering  # it reads by this object: no cycle is left for the collector
        return draft


def _start(
    found: Analysis,
    inlined: frozenset[Value],
    extents: Mapping[Symbol, Dim],
    reduction_axes: tuple[Expr, ...],
) -> _Build:
    build = _Build(found, inlined)
    settled = replace(found.sizes, refines=False)
    build.lowering = Lowering(
        found.ops, found.cx, settled, Draft(found.symbols), extents, build.read, reduction_axes
    )
    return build


def draft_element(
    found: Analysis, value: Value, index: Index, zeros: Set[Value]
) -> tuple[Draft, int]:
    """A draft, and the number of the value's element in it. What elementwise work lies above it is
    inlined; ``zeros`` are known to be 0 everywhere."""
    inlined = frozenset(v for v, n in found.producer.items() if _is_elementwise(found, n))
    build = _start(found, inlined, {}, ())
    build.zeros = zeros
    cell = build.finish(lambda: build.read(value, index))
    return build.drawn(), cell.number


def _is_elementwise(found: Analysis, position: int) -> bool:
    row = found.ops[found.nodes[position].op]
    return found.kinds[position] == "kernel" and not isinstance(row.lower, (Reduce, Scan))


def draft_group(found: Analysis, group: Group) -> Drafted:
    """The elements of all values that the group stores."""
    build = _start(found, group.inlined, group.extents, group.reduction_axes)
    draft = build.lowering.draft
    if group.part == "update":
        return _draft_update(found, group, build)
    stores = []
    for stored in group.stored:
        node = found.nodes[found.producer[stored.value]]
        cell = build.finish(partial(_stored_cell, found, group, build, node, stored))
        cell = draft.cast(cell, stored.value.dtype)
        element = dot(stored.index, found.sizes.shape(stored.value.tensor.strides))
        stores.append(Store(build.pointer(stored.value), element, cell.number, stored.per))
    return build.drafted(tuple(stores), group)


def _stored_cell(found: Analysis, group: Group, build: _Build, node: Node, stored: Stored) -> Cell:
    if group.part == "copy":
        return copied(build.lowering, node, stored.index)
    if found.kinds[found.producer[stored.value]] == "view":
        return build.read(*view_index(build.lowering, node, stored.index))
    key = (stored.value, stored.index, -1)
    cell = build.memo.get(key)
    if cell is None:
        cell = build.memo[key] = build.expand(node, stored.index)
    return cell


def _draft_update(found: Analysis, group: Group, build: _Build) -> Drafted:
    """The writes of a scatter, in order, into the copy that its first group has made."""
    (stored,) = group.stored
    draft, value = build.lowering.draft, found.memory_of(stored.value)
    node = found.nodes[found.producer[stored.value]]
    write = build.finish(partial(write_of, build.lowering, node, stored.index))
    element = dot(write.index, found.sizes.shape(value.tensor.strides))
    cell = draft.cast(write.cell, value.dtype)
    mask = None if write.mask is None else write.mask.number
    store = Store(build.pointer(value), element, cell.number, "cell", mask, write.mode)
    return build.drafted((store,), group, ordered=True)
