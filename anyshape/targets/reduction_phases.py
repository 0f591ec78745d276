"""How a kernel runs over its fibers: which phases it needs and what each computes.

In: a ``Kernel``. Out: for each element the axes it depends on and the *phase* in which it can be
known: an element needs phase 0 unless it depends on a ``Reduce``, which is known after the phase of
its argument. Both targets print phases in order; nothing here is of one target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from anyshape.ir.dtypes import bool_
from anyshape.ir.loops import (
    Axis,
    Const,
    Element,
    Kernel,
    Load,
    Moment,
    Op,
    Position,
    Reduce,
    Scan,
    SizeParam,
    Store,
    index_elements,
    index_names,
    operands,
)
from anyshape.nouns import frozen, replace
from anyshape.symbolic import Atom, Dim, Expr, Symbol


@frozen(eq=False)
class Phases:
    """``axes_of[n]``: names of the axes that element ``n`` varies over; ``level[n]``: its phase.

    ``stored`` are the stores by their phase and what they are done for, ``read`` is what
    ``read_by`` says of each element, ``steps`` what was found by ``step_of``, ``closures`` what by
    ``closure``.
    ``after_reductions`` are the elements that a store per fiber reads, other than through a
    reduction: they are needed of an empty fiber, too.
    """

    kernel: Kernel
    axes_of: tuple[frozenset[str], ...]
    level: tuple[int, ...]
    reduction_names: frozenset[str]
    stored: Mapping[tuple[int, str], list[Store]]
    after_reductions: frozenset[int] = frozenset()
    read: Sequence[tuple[int, ...]] = ()
    steps: dict[tuple[Dim, str], Dim | None] = field(default_factory=dict)
    closures: dict[tuple[frozenset[int], frozenset[int]], tuple[int, ...]] = field(
        default_factory=dict
    )

    @property
    def count(self) -> int:
        """The number of phases."""
        ends = [self.level[s.value] for s in self.kernel.stores]
        ends += [self.level[e.arg] for e in self.kernel.elements if isinstance(e, Reduce)]
        return max(ends, default=0) + 1

    def in_fiber(self, number: int) -> bool:
        """Does the element vary along the fiber?"""
        return not self.reduction_names.isdisjoint(self.axes_of[number])

    def needed_in(self, number: int) -> tuple[Axis, ...]:
        """The axes none of which is empty where anything needs the element. A load that is printed
        outside of one of their loops, because it does not vary along it, may run only if that loop
        turns."""
        axes = self.kernel.axes
        return axes if number in self.after_reductions else (*axes, *self.kernel.reduction_axes)

    def reduces(self, level: int) -> list[int]:
        """The reductions that phase ``level`` does."""
        elements = self.kernel.elements
        return [
            n
            for n, e in enumerate(elements)
            if isinstance(e, Reduce) and self.level[e.arg] == level
        ]

    def stores(self, level: int, per: str) -> list[Store]:
        """The stores of phase ``level``."""
        return [*self.stored.get((level, per), ())]

    def reduced_by(self, reduces: Iterable[int]) -> list[int]:
        """What these reductions and scans go over."""
        elements = (self.kernel.elements[n] for n in reduces)
        return [element.arg for element in elements if isinstance(element, (Reduce, Scan))]

    def read_by(self, element: Element) -> tuple[int, ...]:
        """What has to be known for the element: of a reduction nothing, as its pass is a loop of
        its own, nor of a moment what is summed again, but what that is made of outside of
        fibers."""
        if isinstance(element, Reduce):
            return ()
        if isinstance(element, Moment):
            return tuple(dict.fromkeys((*element.given, *self.totals_below(element))))
        return operands(element)

    def totals_below(self, moment: Moment) -> tuple[int, ...]:
        """The reductions and moments that the cells are made of which the moment sums."""
        elements = self.kernel.elements
        below = self.closure((moment.arg,), ())
        return tuple(n for n in below if isinstance(elements[n], (Reduce, Moment)))

    def closure(
        self,
        roots: Iterable[int],
        stop: Iterable[int],
        elements: Sequence[Element] = (),
    ) -> tuple[int, ...]:
        """Everything that the roots need, operands first, without what is in ``stop``.

        ``elements`` stand in for the kernel's own, see ``specialize``.
        """
        wanted, known = frozenset(roots), frozenset(stop)
        if elements and elements is not self.kernel.elements:
            return self._closure(wanted, known, elements)
        found = self.closures.get((wanted, known))  # printers ask the same a few times
        if found is None:
            found = self._closure(wanted, known, self.kernel.elements)
            self.closures[wanted, known] = found
        return found

    def _closure(
        self, roots: frozenset[int], stop: frozenset[int], elements: Sequence[Element]
    ) -> tuple[int, ...]:
        found: dict[int, None] = {}
        own, read = self.kernel.elements, self.read
        stack = sorted(roots, reverse=True)
        while stack:
            number = stack.pop()
            if number < 0:  # what the element reads is there
                found[~number] = None
            elif number not in found and number not in stop:
                element = elements[number]
                reads = read[number] if element is own[number] else self.read_by(element)
                waiting = [n for n in reads if n not in found and n not in stop]
                if waiting:
                    stack.append(~number)
                    stack += waiting[::-1]
                else:
                    found[number] = None
        return tuple(found)


def analyse(kernel: Kernel) -> Phases:
    """Axes and phases of every element."""
    fibers = frozenset(axis.name for axis in kernel.reduction_axes)
    names = fibers | {axis.name for axis in kernel.axes}
    axes_of: list[frozenset[str]] = []
    level: list[int] = []
    read: list[tuple[int, ...]] = []
    for element in kernel.elements:
        own = operands(element)
        axes, above = index_names(element) & names, 0
        for number in own:
            axes, above = axes | axes_of[number], max(above, level[number])
        if isinstance(element, OVER_FIBERS):
            if isinstance(element, Scan):
                axes = axes | {kernel.reduction_axes[-1].name}
            else:
                axes = axes - fibers
            if isinstance(element, Reduce):
                above, own = above + 1, ()
        axes_of.append(axes)
        level.append(above)
        read.append(own)
    stored: dict[tuple[int, str], list[Store]] = {}
    for store in kernel.stores:
        phase = max([level[n] for n in operands(store)])
        stored.setdefault((phase, store.per), []).append(store)
    phases = Phases(kernel, tuple(axes_of), tuple(level), fibers, stored, read=read)
    for number, element in enumerate(kernel.elements):
        if isinstance(element, Moment):  # what is below it has smaller numbers
            read[number] = phases.read_by(element)
    after = [n for store in kernel.stores if store.per == "fiber" for n in operands(store)]
    if not after or not fibers:
        return phases
    return replace(phases, after_reductions=frozenset(phases.closure(after, ())))


OVER_FIBERS = Reduce, Moment, Scan


def coefficient(index: Dim, axis: str) -> Dim | None:
    """The step of an index along an axis, None where it is not affine in it."""
    if not isinstance(index, Expr):
        return 0
    result: Dim = 0
    for monomial, scale in index.terms.items():
        others: list[Atom] = []
        for atom in monomial:
            if not isinstance(atom, Symbol):
                if any(s.name == axis for s in atom.symbols):
                    return None
                others.append(atom)
            elif atom.name != axis:
                others.append(atom)
        if len(others) == len(monomial):
            continue
        if len(others) < len(monomial) - 1:
            return None
        step: Dim = scale
        for atom in others:
            step = step * atom.expr
        result = result + step
    return result


def step_of(phases: Phases, item: Element | Store, axis: str) -> Dim | None:
    """The step of a load or store along an axis; None where data decides."""
    assert isinstance(item, (Load, Position, Store))
    key = item.index, axis
    if key not in phases.steps:
        by_data = any(axis in phases.axes_of[n] for n in index_elements(item.index))
        phases.steps[key] = None if by_data else coefficient(item.index, axis)
    return phases.steps[key]


def accesses(kernel: Kernel) -> list[Load | Store]:
    """Every index at which the kernel touches memory."""
    return [*(e for e in kernel.elements if isinstance(e, Load)), *kernel.stores]


def lane(kernel: Kernel, phases: Phases) -> str | None:
    """The axis to vectorise: where most of what is done for each cell steps by one or stays; of two
    alike the one where more steps. None for one cell.
    """
    candidates = [a.name for a in kernel.reduction_axes[-1:]] + [a.name for a in kernel.axes[-1:]]
    if not candidates:
        return None
    if not kernel.reduction_axes:
        return candidates[0]
    inner = [item for item in accesses(kernel) if _in_fiber(phases, item)]

    def steps(axis: str) -> tuple[int, int]:
        found = [step_of(phases, item, axis) for item in inner]
        return found.count(0) + found.count(1), found.count(1)

    return max(candidates, key=steps)


def _in_fiber(phases: Phases, item: Load | Store) -> bool:
    names = index_names(item).union(*(phases.axes_of[n] for n in index_elements(item.index)))
    return not phases.reduction_names.isdisjoint(names)


def turned(phases: Phases, axis: str) -> tuple[str, list[int]] | None:
    """The outer axis along which loads step by one while they leap along ``axis``, and those
    loads.
    """
    best: tuple[str, list[int]] | None = None
    for outer in phases.kernel.axes:
        loads = [
            n
            for n, e in enumerate(phases.kernel.elements)
            if isinstance(e, Load)
            and e.mask is None
            and outer.name != axis
            and step_of(phases, e, outer.name) == 1
            and step_of(phases, e, axis) not in (0, 1, None)
            and not index_elements(e.index)
        ]
        if loads and (best is None or len(loads) > len(best[1])):
            best = (outer.name, loads)
    return best


MOST_SPLITS = 4


def thresholds(phases: Phases, axis: str) -> dict[Dim, dict[int, bool]]:
    """Where along an axis conditions change: ``i < n0`` is true below ``n0``.

    Ordered, with the conditions and whether they hold below; empty where the order is not known.
    """
    found: dict[Dim, dict[int, bool]] = {}
    elements = phases.kernel.elements
    for number, element in enumerate(elements):
        if isinstance(element, Op) and element.op in ("lt", "ge", "le", "gt"):
            threshold = _threshold(elements, element, axis)
            if threshold is not None:
                found.setdefault(threshold[0], {})[number] = threshold[1]
    params = phases.kernel.params
    least = {p.name: p.at_least for p in params if isinstance(p, SizeParam) and p.at_least}
    ordered: list[Dim] = []
    for position in found:
        at = sum(_is_ordered(other, position, least) for other in ordered)
        ordered.insert(at, position)
    known = all(_is_ordered(a, b, least) for a, b in zip(ordered, ordered[1:], strict=False))
    if not known or len(ordered) > MOST_SPLITS:
        return {}
    return {position: found[position] for position in ordered}


def _threshold(elements: Sequence[Element], op: Op, axis: str) -> tuple[Dim, bool] | None:
    """(position, truth below it) of a comparison that is affine in the axis with step 1 or -1."""
    sides = [_integer(elements[n]) for n in op.args]
    if sides[0] is None or sides[1] is None:
        return None
    difference = sides[0] - sides[1]  # a < b  is  a - b < 0
    step = coefficient(difference, axis)
    if step not in (1, -1) or not isinstance(difference, Expr):
        return None
    if any(s.name[0] == "v" for s in difference.symbols):
        return None
    symbol = next(s for s in difference.symbols if s.name == axis)
    rest = difference - step * symbol.expr
    strict = op.op in ("lt", "ge")  # lt: axis * step < -rest
    holds = op.op in ("lt", "le")
    if step == 1:
        return (-rest if strict else 1 - rest), holds
    return (rest + 1 if strict else rest), not holds


def _is_ordered(below: Dim, above: Dim, least: Mapping[str, str]) -> bool:
    """Is ``below <= above``? By their forms, and by which parameter is never below which."""
    difference = above - below
    while isinstance(difference, Expr) and not _nonnegative(difference):
        added = [m[0] for m, scale in difference.terms.items() if len(m) == 1 and scale > 0]
        larger = next((a for a in added if isinstance(a, Symbol) and a.name in least), None)
        smaller = None if larger is None else difference.space.named(least[larger.name])
        if larger is None or smaller is None:
            return False
        difference = difference + difference.terms[(larger,)] * (smaller - larger.expr)
    return _nonnegative(difference)


def _nonnegative(dim: Dim) -> bool:
    """True where the form alone shows it: axes and sizes with positive coefficients."""
    if not isinstance(dim, Expr):
        return dim >= 0
    atoms = (atom for monomial in dim.terms for atom in monomial)
    return (
        dim.constant >= 0
        and all(c > 0 for c in dim.terms.values())
        and all(isinstance(atom, Symbol) and not atom.signed for atom in atoms)
    )


def _integer(element: Element) -> Dim | None:
    if isinstance(element, Position):
        return element.index
    if isinstance(element, Const) and isinstance(element.value, int):
        return element.value
    return None


def specialize(elements: Sequence[Element], truths: Mapping[int, bool]) -> list[Element]:
    """The elements where these conditions are known: choices are made, masks dropped.

    A choice becomes ``Op("same", (chosen,))``; a load whose mask is false becomes 0.
    """
    known: dict[int, bool] = dict(truths)
    result: list[Element] = []
    for number, element in enumerate(elements):
        if number in known:
            result.append(Const(known[number], bool_))
            continue
        made = _simplified(element, known)
        if isinstance(made, Const) and made.dtype is bool_:
            known[number] = bool(made.value)
        result.append(made)
    return result


def _simplified(element: Element, known: Mapping[int, bool]) -> Element:
    match element:
        case Load(mask=int(mask)) if mask in known:
            if known[mask]:
                return Load(element.pointer, element.index, element.dtype)
            return Const(0, element.dtype)
        case Op(op="where", args=(condition, a, b)) if condition in known:
            return Op("same", (a if known[condition] else b,), element.dtype)
        case Op(op="logical_not", args=(a,)) if a in known:
            return Const(not known[a], bool_)
        case Op(op="logical_and" | "logical_or" as op, args=(a, b)):
            absorbing = op == "logical_or"
            for one, other in ((a, b), (b, a)):
                if one in known:
                    if known[one] is absorbing:
                        return Const(absorbing, bool_)
                    return Op("same", (other,), bool_)
    return element
