"""Kernels that differ in whole numbers alone become one kernel, which is handed these numbers.

In: the launches of a program. Out: the same, where many kernels alike have become one. A loop that
Python unrolls (``for i in range(1, 64): x[i, :i] = ...``) has in each turn the same loops with
other extents, offsets and steps: each would be compiled alone. Constants make loops faster, so few
kernels alike stay as they are. A step of 1 stays a constant always, and what stands in operands of
divisions, of powers and of their like.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from anyshape.costs import COSTS
from anyshape.ir.buffers import Buffer, BufferRef
from anyshape.ir.dtypes import int64
from anyshape.ir.loops import (
    Axis,
    Const,
    Element,
    Kernel,
    Load,
    Op,
    PointerParam,
    Position,
    SizeParam,
    Store,
    operands,
)
from anyshape.ir.program import Launch, Step
from anyshape.ir.variants import ChooseVariants, Variants
from anyshape.nouns import mutable, replace
from anyshape.symbolic import Dim, Expr, Monomial, Space

LINEAR = frozenset("eq ne lt le gt ge add sub".split())
"""What reads a constant as it reads any number: there is no shorter text for some of them."""
Numbers = tuple[int, ...]


def one_for_many(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], variants: ChooseVariants
) -> list[Step]:
    """The steps; of kernels that differ in numbers alone, where there are many, one is left."""
    kernels = dict.fromkeys(step.kernel for step in steps if isinstance(step, Launch))
    made = _one_each(kernels) if len(kernels) >= COSTS.kernels_alike else {}
    if not made:
        return [*steps]
    result, chosen = list[Step](), dict[tuple[Kernel, str], Variants]()
    for step in steps:
        if isinstance(step, Launch) and step.kernel in made:
            kernel, numbers = made[step.kernel]
            at = _after_sizes(step.kernel)
            args = (*step.args[:at], *numbers, *step.args[at:])
            device = next(buffers[arg.name].device for arg in args if isinstance(arg, BufferRef))
            if (kernel, device) not in chosen:
                chosen[kernel, device] = variants(kernel, device)
            step = replace(step, kernel=kernel, args=args, variants=chosen[kernel, device])
        result.append(step)
    return result


def _one_each(kernels: Iterable[Kernel]) -> dict[Kernel, tuple[Kernel, Numbers]]:
    """For each kernel that has many alike: the one that all of them become, and its numbers."""
    families: dict[Hashable, dict[Kernel, Numbers]] = {}
    for kernel in kernels:
        form, numbers = _Taken(kernel).form_and_numbers()
        families.setdefault(form, {})[kernel] = numbers
    many = (family for family in families.values() if len(family) >= COSTS.kernels_alike)
    return {old: made for family in many for old, made in _merged(family).items()}


def _after_sizes(kernel: Kernel) -> int:
    """How many parameters stand before those that are numbers of the program."""
    return sum(isinstance(param, (PointerParam, SizeParam)) for param in kernel.params)


def _merged(family: Mapping[Kernel, Numbers]) -> dict[Kernel, tuple[Kernel, Numbers]]:
    """For each kernel the one that all of them become, and what that is handed for it."""
    columns = [*zip(*family.values(), strict=True)]
    given = [*dict.fromkeys(column for column in columns if len({*column}) > 1)]
    first = next(iter(family))
    kernel = _Taken(first, columns, given).put_together()
    return {old: (kernel, tuple([column[n] for column in given])) for n, old in enumerate(family)}


@mutable(eq=False)
class _Taken:
    """Goes through the numbers of a kernel, always in one order: takes them out, or puts parameters
    in the place of those ``columns`` (the numbers of all kernels alike) that are ``given``."""

    kernel: Kernel
    columns: Sequence[Numbers] = ()
    given: Sequence[Numbers] = ()
    numbers: list[int] = field(default_factory=list)
    names: dict[Numbers, Expr] = field(default_factory=dict)
    compared: dict[Numbers, None] = field(default_factory=dict)
    linear: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.linear = _read_as_any(self.kernel)

    def form_and_numbers(self) -> tuple[Hashable, Numbers]:
        """What is left of the kernel without its numbers, and these."""
        kernel = self.kernel
        axes = [self._form(axis.extent) for axis in (*kernel.axes, *kernel.reduction_axes)]
        elements = [self._form_of(n, e) for n, e in enumerate(kernel.elements)]
        stores = [self._form_of(-1, store) for store in kernel.stores]
        rest = (kernel.params, len(kernel.axes), kernel.ordered, kernel.parts)
        return (rest, *axes, *elements, *stores), tuple(self.numbers)

    def put_together(self) -> Kernel:
        """The kernel with parameters for its numbers."""
        kernel, at = self.kernel, _after_sizes(self.kernel)
        before = sum(isinstance(param, SizeParam) for param in kernel.params)
        space = _space(kernel)
        params = []
        for n, column in enumerate(self.given):
            params.append(SizeParam(f"n{before + n}", signed=min(column) < 0))
            self.names[column] = space.symbol(params[-1].name, signed=params[-1].signed)
        axes = [Axis(a.name, self._put(a.extent)) for a in kernel.axes]
        along = [Axis(a.name, self._put(a.extent)) for a in kernel.reduction_axes]
        elements = [self._put_in(n, element) for n, element in enumerate(kernel.elements)]
        stores = [replace(store, index=self._put(store.index)) for store in kernel.stores]
        self._order(params)
        return replace(
            kernel,
            params=(*kernel.params[:at], *params, *kernel.params[at:]),
            axes=tuple(axes),
            reduction_axes=tuple(along),
            elements=tuple(elements),
            stores=tuple(stores),
        )

    def _order(self, params: list[SizeParam]) -> None:
        """Of the numbers that positions are compared with: which is never below which."""
        for below, column in itertools.pairwise(self.compared):
            if all(a <= b for a, b in zip(below, column, strict=True)):
                number = self.given.index(column)
                least = params[self.given.index(below)].name
                params[number] = replace(params[number], at_least=least)

    # ---- taking out ------------------------------------------------------------------------------
    def _form(self, dim: Dim) -> Hashable:
        """A dim without its numbers, which are noted."""
        if not isinstance(dim, Expr):
            self.numbers.append(dim)
            return None
        form: list[Hashable] = []
        for name, monomial in _monomials(dim):
            coefficient = dim.terms[monomial]
            is_step = abs(coefficient) == 1
            form.append((name, coefficient if is_step else None))
            if not is_step:
                self.numbers.append(coefficient)
        self.numbers.append(dim.constant)
        return tuple(form)

    def _form_of(self, number: int, element: Element | Store) -> Hashable:
        match element:
            case Const(value=value) if number in self.linear:
                self.numbers.append(int(value))
                return Const, element.dtype
            case Load(index=index) | Position(index=index) | Store(index=index):
                return self._form(index), replace(element, index=0)
        return element

    # ---- putting in ------------------------------------------------------------------------------
    def _next(self, number: int) -> Dim:
        """A parameter for the number, where kernels differ in it."""
        column = self.columns[len(self.numbers)]
        self.numbers.append(number)
        return self.names.get(column, number)

    def _put(self, dim: Dim) -> Dim:
        if not isinstance(dim, Expr):
            return self._next(dim)
        result: Dim = 0
        for _, monomial in _monomials(dim):
            coefficient = dim.terms[monomial]
            factor = coefficient if abs(coefficient) == 1 else self._next(coefficient)
            result = result + dim.space.term(monomial) * factor
        return result + self._next(dim.constant)

    def _put_in(self, number: int, element: Element) -> Element:
        match element:
            case Const(value=value) if number in self.linear:
                self._compare()
                put = self._next(int(value))
                return Position(put, int64) if isinstance(put, Expr) else element
            case Position(index=index):
                if not isinstance(index, Expr):
                    self._compare()
                return replace(element, index=self._put(index))
            case Load(index=index):
                return replace(element, index=self._put(index))
        return element

    def _compare(self) -> None:
        """The next number is a value."""
        column = self.columns[len(self.numbers)]
        if column in self.names:
            self.compared[column] = None


def _read_as_any(kernel: Kernel) -> frozenset[int]:
    """The constants of integers that may as well be parameters."""
    found = {
        n
        for n, element in enumerate(kernel.elements)
        if isinstance(element, Const) and element.dtype is int64
    }
    if found:
        for reader in (*kernel.elements, *kernel.stores):
            if not (isinstance(reader, Op) and reader.op in LINEAR):
                found.difference_update(operands(reader))
    return frozenset(found)


def _monomials(dim: Expr) -> list[tuple[tuple[str, ...], Monomial]]:
    """In an order that does not depend on how the expression was made."""
    named = [(tuple(sorted([str(atom.expr) for atom in m])), m) for m in dim.terms]
    return sorted(named, key=lambda each: each[0])


def _space(kernel: Kernel) -> Space:
    """Where its indices are interned."""
    return next((dim.space for dim in _dims(kernel) if isinstance(dim, Expr)), None) or Space()


def _dims(kernel: Kernel) -> Iterator[Dim]:
    yield from (axis.extent for axis in (*kernel.axes, *kernel.reduction_axes))
    for item in (*kernel.elements, *kernel.stores):
        if isinstance(item, (Load, Position, Store)):
            yield item.index
