"""Loop order, fewer loops, and canonical names: a draft becomes a ``Kernel``.

Axes are ordered as memory is (the stores count most), neighbours that every index steps through as
one are joined, and all symbols are renamed in order of first use. A coefficient or extent that is
not a constant becomes a size parameter, computed by the host, so that one kernel serves every
position with the same loops.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from operator import add

from anyshape.ir.buffers import BufferRef
from anyshape.ir.loops import (
    Access,
    Axis,
    Element,
    Kernel,
    Load,
    Moment,
    Op,
    Param,
    PointerParam,
    Position,
    Read,
    Reduce,
    ScalarParam,
    Scan,
    SizeParam,
    Store,
    beside_index,
)
from anyshape.ir.program import Launch
from anyshape.ir.scalars import Operand
from anyshape.nouns import mutable, replace
from anyshape.schedule.build import Drafted
from anyshape.schedule.draft import scalar_dtype
from anyshape.schedule.indices import Sizes, terms_of
from anyshape.symbolic import (
    Atom,
    Dim,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Monomial,
    Space,
    Symbol,
    age,
    floordiv,
    maximum,
    minimum,
    mod,
    not_negative,
    split_since,
)

Coefficients = Mapping[Symbol, Dim]


def finish(drafted: Drafted, sizes: Sizes) -> Launch:
    """The canonical kernel of a draft and the launch that runs it on what the draft calls p0, p1
    and so on."""
    needed = _needed(drafted)
    indices = _indices(drafted, needed)
    reduced = {axis.symbol for axis in drafted.reduction_axes}
    ones = [a for a in drafted.extents if drafted.extents[a] == 1]
    parallel = [a for a in drafted.extents if a not in reduced and a not in ones]
    along = [a for a in drafted.extents if a in reduced and a not in ones]
    maps: list[Coefficients | None]
    maps = [terms_of(index, drafted.extents) for index, _ in indices]
    weights = [weight for _, weight in indices]
    last_stays = drafted.ordered and any(store.mode == "set" for store in drafted.stores)
    order = parallel if last_stays else _ordered(parallel, maps, weights, drafted.extents)
    reduced_order = (
        along if _has_scan(drafted, needed) else _ordered(along, maps, weights, drafted.extents)
    )
    joined: dict[Symbol, Dim] = dict(drafted.extents)
    order, merged = _merge_axes(order, maps, joined, sizes)
    if not _has_scan(drafted, needed):
        reduced_order, merged_reduced = _merge_axes(reduced_order, maps, joined, sizes)
        merged |= merged_reduced
    zero = dict.fromkeys(ones, 0) | dict.fromkeys(merged, 0)
    return _Renaming(drafted, needed, joined, zero, sizes).run(order, reduced_order)


def _needed(drafted: Drafted) -> list[int]:
    """The elements that stores read, in canonical order: operands first, stores in order."""
    order: dict[int, None] = {}
    elements = drafted.draft.elements
    stack: list[tuple[int, bool]] = []
    for store in reversed(drafted.stores):
        stack.extend([(n, False) for n in reversed(_operands(drafted, store))])
    while stack:
        number, ready = stack.pop()
        if number in order:
            continue
        if ready:
            order[number] = None
            continue
        stack.append((number, True))
        stack.extend([(n, False) for n in reversed(_operands(drafted, elements[number]))])
    return list(order)


def _operands(drafted: Drafted, element: Element | Store) -> list[int]:
    """Elements read, with loaded integers found by the draft's own symbols."""
    integers = drafted.draft.integers
    index = getattr(element, "index", None)
    if not isinstance(index, Expr) or not integers:
        return [*beside_index(element)]
    found = sorted(integers[s] for s in _recent(index, integers) if s in integers)
    return [*found, *beside_index(element)]


def _recent(index: Expr, wanted: Iterable[Symbol]) -> set[Symbol]:
    """The symbols of the index that are not older than all of those wanted."""
    oldest = min(map(age, wanted), default=None)
    if oldest is None:
        return set()
    recent, _ = split_since(index, oldest)
    return {symbol for monomial in recent for atom in monomial for symbol in atom.symbols}


def _has_scan(drafted: Drafted, needed: Sequence[int]) -> bool:
    return any([isinstance(drafted.draft.elements[n], Scan) for n in needed])


def _indices(drafted: Drafted, needed: Sequence[int]) -> list[tuple[Dim, int]]:
    """Every index of the kernel with its say in the loop order."""
    found: list[tuple[Dim, int]] = [(store.index, 2) for store in drafted.stores]
    for number in needed:
        element = drafted.draft.elements[number]
        if isinstance(element, Load):
            found.append((element.index, 1))
        elif isinstance(element, Position):
            found.append((element.index, 0))
    return found


def _ordered(
    axes: list[Symbol],
    maps: list[Coefficients | None],
    weights: list[int],
    extents: Mapping[Symbol, Dim],
) -> list[Symbol]:
    """Axes, the one with the smallest steps last; a stable sort, so what does not matter stays."""

    def step(axis: Symbol) -> tuple[int, ...]:
        votes = 0
        for coefficients, weight in zip(maps, weights, strict=True):
            if coefficients and weight and axis in coefficients:
                votes += weight * _closeness(axis, coefficients, extents)
        return (votes,)

    return sorted(axes, key=step)


def _closeness(axis: Symbol, coefficients: Coefficients, extents: Mapping[Symbol, Dim]) -> int:
    """How far in an axis lies in one index: 8 for a unit stride, less for each axis inside it."""
    own = coefficients[axis]
    if own == 1:
        return 8
    inside = sum(_smaller(other, own) for a, other in coefficients.items() if a is not axis)
    return -inside


def _smaller(a: Dim, b: Dim) -> bool:
    """A guess, for the order of loops only: sizes are taken to be above 1."""
    if isinstance(a, int) and isinstance(b, int):
        return 0 < a < b
    return _magnitude(a) < _magnitude(b)


def _magnitude(dim: Dim) -> tuple[int, int]:
    """(degree, coefficient) of the largest term."""
    if isinstance(dim, int):
        return (0, dim)
    return max((len(monomial), coefficient) for monomial, coefficient in dim.terms.items())


def _merge_axes(
    order: list[Symbol], maps: list[Coefficients | None], extents: dict[Symbol, Dim], sizes: Sizes
) -> tuple[list[Symbol], set[Symbol]]:
    """Joins an axis into the next one inside it where each index steps through both as through
    one.
    """
    result: list[Symbol] = []
    gone: set[Symbol] = set()
    for axis in order:
        while result and _one_step(result[-1], axis, maps, extents, sizes):
            outer = result.pop()
            gone.add(outer)
            extents[axis] = sizes.simplify(extents[outer] * extents[axis])
        result.append(axis)
    return result, gone


def _one_step(
    outer: Symbol,
    inner: Symbol,
    maps: list[Coefficients | None],
    extents: Mapping[Symbol, Dim],
    sizes: Sizes,
) -> bool:
    for coefficients in maps:
        if coefficients is None:
            return False
        wanted = sizes.simplify(coefficients.get(inner, 0) * extents[inner])
        if not sizes.same(sizes.simplify(coefficients.get(outer, 0)), wanted):
            return False
    return True


def _begins(drafted: Drafted, needed: Sequence[int]) -> dict[str, int]:
    """The least constant in the indices of what is only read: `x[3]` and `x[4]` are one kernel,
    which is handed pointers to different elements."""
    least: dict[str, int] = {}
    for number in needed:
        element = drafted.draft.elements[number]
        if isinstance(element, Load):
            index = element.index
            constant = index if isinstance(index, int) else index.constant
            least[element.pointer] = min(constant, least.get(element.pointer, constant))
    written = {store.pointer for store in drafted.stores}
    return {name: first for name, first in least.items() if first > 0 and name not in written}


@mutable(eq=False)
class _Renaming:
    """Rewrites a draft into a space of its own, with names in order of first use."""

    drafted: Drafted
    needed: list[int]
    extents: Mapping[Symbol, Dim]
    gone: Mapping[Symbol, int]
    sizes: Sizes
    space: Space = field(default_factory=Space)
    names: dict[Symbol, Expr] = field(default_factory=dict)
    size_args: list[Dim] = field(default_factory=list)
    size_params: list[SizeParam] = field(default_factory=list)
    size_names: dict[Dim, Expr] = field(default_factory=dict)
    size_numbers: dict[Symbol | None, int] = field(default_factory=dict)
    compared: list[int] = field(default_factory=list)  # the size parameters that are values
    pointers: dict[str, str] = field(default_factory=dict)
    access: dict[str, Access] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    scalars: dict[str, tuple[str, Operand]] = field(default_factory=dict)
    begins: Mapping[str, int] = field(init=False)  # where in a buffer, by the draft's pointers
    oldest: int = field(init=False)  # the age of the oldest loop variable or loaded integer

    def __post_init__(self) -> None:
        moving = (*self.drafted.extents, *self.drafted.draft.integers)
        self.oldest = min(map(age, moving), default=sys.maxsize)
        self.begins = _begins(self.drafted, self.needed)

    def run(self, order: list[Symbol], reduced: list[Symbol]) -> Launch:
        axes = tuple([self._axis(a, f"i{n}") for n, a in enumerate(order)])
        along = tuple([self._axis(a, f"r{n}") for n, a in enumerate(reduced)])
        if self.drafted.reduction_axes and not along:
            along = (Axis("r0", 1),)  # a reduction over one element
        elements = tuple([self._element(n) for n in self.needed])
        stores = tuple([self._store(store) for store in self.drafted.stores])
        kernel = Kernel(self._params(), axes, along, elements, stores, self.drafted.ordered)
        buffers: list[BufferRef | Operand] = [BufferRef(name) for name in self.pointers]
        args = (*buffers, *self.size_args, *(s for _, s in self.scalars.values()))
        return Launch(kernel, args, {self.pointers[p]: self.begins[p] for p in self.begins})

    def _params(self) -> tuple[Param, ...]:
        buffers = self.drafted.buffers
        return (
            *(
                PointerParam(name, buffers[value].dtype, self.access[value])
                for value, name in self.pointers.items()
            ),
            *self._ordered_params(),
            *(ScalarParam(name, scalar_dtype(operand)) for name, operand in self.scalars.values()),
        )

    def _ordered_params(self) -> list[SizeParam]:
        """The size parameters. Of those that positions are compared with it is kept which is never
        below which, so that a loop can be cut at them."""
        params = list(self.size_params)
        for below, number in itertools.pairwise(self.compared):
            if not_negative(self.size_args[number] - self.size_args[below]):
                params[number] = replace(params[number], at_least=params[below].name)
        return params

    def _axis(self, axis: Symbol, name: str) -> Axis:
        extent = self._size(self.extents[axis])
        self.names[axis] = self.space.symbol(name)
        return Axis(name, extent)

    def _size(self, dim: Dim) -> Dim:
        """A dim without axes: constants stay, what is made of sizes becomes one parameter. So the
        second of some parts, which begins behind two others, has the kernel of the first, and work
        on as many elements, in whatever dims, is the same."""
        dim = self.sizes.simplify(dim)
        if isinstance(dim, int):
            return dim
        return dim.constant + self._size_param(dim - dim.constant)

    def _size_param(self, value: Dim) -> Expr:
        """What whoever launches computes."""
        made = self.size_names.get(value)
        if made is None:
            param = SizeParam(f"n{len(self.size_args)}", signed=not not_negative(value))
            made = self.size_names[value] = self.space.symbol(param.name, signed=param.signed)
            self.size_numbers[made.symbol] = len(self.size_args)
            self.size_params.append(param)
            self.size_args.append(value)
        return made

    def _index(self, dim: Dim) -> Dim:
        """An index: axes keep their names, coefficients become constants or size parameters."""
        if isinstance(dim, int):
            return dim
        moving, offset = self._moving(dim)
        if not moving:
            return self._size(dim)
        parts: dict[tuple[Atom, ...], Dim] = {}
        for monomial, coefficient in moving.items():
            inner = tuple(a for a in monomial if self._bound(a.symbols))
            outer: Dim = coefficient
            for atom in monomial:
                if atom not in inner:
                    outer = outer * atom.expr
            parts[inner] = parts.get(inner, 0) + outer
        result: Dim = self._size(offset)
        for inner in sorted(parts, key=self._rank):
            if not any(atom in self.gone for atom in inner):
                result = result + self._product(inner) * self._size(parts[inner])
        return result

    def _position(self, dim: Dim) -> Dim:
        """As a value: a position, or a size that one is compared with."""
        made = self._index(dim)
        if isinstance(made, Expr) and len(made.symbols) == 1:
            (symbol,) = made.symbols
            number = self.size_numbers.get(symbol)
            if number is not None and number not in self.compared:
                self.compared.append(number)
        return made

    def _moving(self, dim: Expr) -> tuple[dict[Monomial, int], Dim]:
        """The terms with loop variables or loaded integers in them: few of a long sum; the rest."""
        recent, rest = split_since(dim, self.oldest)
        still = [m for m in recent if not any(self._bound(atom.symbols) for atom in m)]
        rest += (dim.space.term(monomial, recent.pop(monomial)) for monomial in still)
        return recent, reduce(add, rest)

    def _bound(self, symbols: frozenset[Symbol]) -> bool:
        """Do these include loop variables or loaded integers?"""
        moving = (self.extents, self.drafted.draft.integers)
        return any([symbol in symbols for group in moving for symbol in group])

    def _rank(self, inner: Monomial) -> tuple[int, ...]:
        """Known atoms in order of their new names, so that sizes are named alike in like
        kernels.
        """
        known = [self.names[a].index if a in self.names else 1 << 30 for a in inner]
        return (len(inner), *known)

    def _product(self, atoms: Monomial) -> Dim:
        result: Dim = 1
        for atom in atoms:
            result = result * self._atom(atom)
        return result

    def _atom(self, atom: Atom) -> Dim:
        if isinstance(atom, Symbol):
            if atom in self.names:
                return self.names[atom]
            number = self.drafted.draft.integers[atom]
            name = f"v{self.numbers[number]}"
            made = self.space.named(name)
            made = self.space.symbol(name) if made is None else made
            self.names[atom] = made
            return made
        return OPERATIONS[type(atom)](*(self._index(arg) for arg in atom.args))

    def _element(self, number: int) -> Element:
        element = self.drafted.draft.elements[number]
        made = self._renamed(element)
        self.numbers[number] = len(self.numbers)
        return made

    def _renamed(self, element: Element) -> Element:
        numbers = self.numbers
        match element:
            case Load(pointer=pointer, index=index, dtype=dtype, mask=mask):
                own = None if mask is None else numbers[mask]
                index -= self.begins.get(pointer, 0)
                return Load(self._pointer(pointer, "read"), self._index(index), dtype, own)
            case Position(index=index, dtype=dtype):
                return Position(self._position(index), dtype)
            case Op(op=op, args=args, dtype=dtype):
                return Op(op, tuple([numbers[a] for a in args]), dtype)
            case Reduce(combine=combine, arg=arg, dtype=dtype):
                return Reduce(combine, numbers[arg], dtype)
            case Scan(combine=combine, arg=arg, dtype=dtype):
                return Scan(combine, numbers[arg], dtype)
            case Moment(arg=arg, given=given):
                near = tuple([numbers[n] for n in given])
                return replace(element, arg=numbers[arg], given=near)
            case Read(param=param, dtype=dtype):
                return Read(self._scalar(param), dtype)
        return element

    def _store(self, store: Store) -> Store:
        access: Access = "write" if store.mode == "set" else "update"
        return replace(
            store,
            pointer=self._pointer(store.pointer, access),
            index=self._index(store.index),
            value=self.numbers[store.value],
            mask=None if store.mask is None else self.numbers[store.mask],
        )

    def _pointer(self, value: str, access: Access) -> str:
        name = self.pointers.setdefault(value, f"p{len(self.pointers)}")
        before = self.access.setdefault(value, access)
        if before != access:
            self.access[value] = "update"
        return name

    def _scalar(self, param: str) -> str:
        if param not in self.scalars:
            operand = self.drafted.draft.scalars[int(param[1:])]
            self.scalars[param] = (f"x{len(self.scalars)}", operand)
        return self.scalars[param][0]


OPERATIONS: Mapping[type[Atom], Callable[..., Dim]] = {
    FloorDiv: floordiv,
    Mod: mod,
    Min: minimum,
    Max: maximum,
}
