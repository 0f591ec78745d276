"""Kernel IR: what one generated kernel computes, for any target.

A ``Kernel`` runs its *cells*: the product of parallel ``axes`` and ``reduction_axes`` (those that
reductions and scans run over; together they are a *row* of cells). Its ``elements`` are a pure,
topologically ordered DAG of scalars; an element lives at the axes it depends on, a ``Reduce`` takes
its argument over a whole row, so that reduce -> pointwise -> reduce over one row is one kernel,
whose phases a target derives from the DAG.
Indices are polynomials of ``anyshape.symbolic`` over axes, sizes and *loaded integers* (the symbol
``v3`` is element 3). Names are canonical: kernels that are equal up to renaming are equal. Made by
``anyshape.schedule``, printed by ``anyshape.targets``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from anyshape.ir.dtypes import DType
from anyshape.nouns import frozen
from anyshape.symbolic import Dim, Expr, Symbol

Access = Literal["read", "write", "update"]
Result = Literal["same", "bool", "given"]


@frozen
class ScalarOp:
    """One scalar operator: how many operands, whether its result is of their dtype, and what it
    costs beside an addition."""

    arity: int
    result: Result = "same"
    cost: int = 1


def _table() -> dict[str, ScalarOp]:
    unary = (
        "neg abs sign reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos "
        "tan asin acos atan "
        "sinh cosh tanh asinh acosh atanh erf erfp1 erfc erfinv lgamma digamma sigmoid gelu_tanh "
        "floor ceil trunc round "
        "logical_not bit_not isnan isinf isfinite signbit"
    )
    binary = (
        "add sub mul div floordiv truncdiv mod fmod pow atan2 minimum maximum fmin fmax "
        "eq ne lt le gt ge "
        "logical_and logical_or logical_xor bit_and bit_or bit_xor shl shr copysign hypot nextafter"
    )
    to_bool = {
        *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit"),
        *("logical_and", "logical_or", "logical_xor", "logical_not"),
    }
    costs = dict.fromkeys(
        "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh "
        "acosh atanh erf erfp1 erfc erfinv lgamma digamma sigmoid gelu_tanh pow fmod mod floordiv "
        "hypot nextafter".split(),
        8,
    ) | {"div": 3, "sqrt": 3, "rsqrt": 4, "reciprocal": 3}
    table = {
        name: ScalarOp(arity, "bool" if name in to_bool else "same", costs.get(name, 1))
        for arity, names in ((1, unary), (2, binary))
        for name in names.split()
    }
    table["where"] = ScalarOp(3, "given")
    table["cast"] = ScalarOp(1, "given")
    return table


SCALAR_OPS: Mapping[str, ScalarOp] = MappingProxyType(_table())
"""Every scalar operator, with torch's exact semantics (``anyshape.targets.scalar`` has the
texts); ``erfp1`` is 1 + erf, as exact where erf is near -1 as elsewhere, and ``gelu_tanh`` the GELU
by ``tanh``.
"""

COMBINES = ("sum", "prod", "max", "min", "any", "all")
"""How a reduction or a scan combines two of its elements; max and min propagate NaN."""


@frozen
class PointerParam:
    """The first element of a buffer; ``update`` is both read and written."""

    name: str
    dtype: DType
    access: Access


@frozen
class SizeParam:
    """An int64 made of sizes, an extent, a stride or an offset: the host computes it, or the kernel
    is handed where it is ``in_memory``. One that is not ``signed`` is at least 0, and one that is
    ``at_least`` another parameter never below that one: where the second of some parts begins."""

    name: str
    in_memory: bool = False
    signed: bool = False
    at_least: str = ""


@frozen
class ScalarParam:
    """A host number: ``dtype`` is float64, int64 or bool."""

    name: str
    dtype: DType


Param: TypeAlias = PointerParam | SizeParam | ScalarParam


@frozen
class Axis:
    """A loop variable, ``0 <= name < extent``."""

    name: str
    extent: Dim


@frozen(eq=False)
class Const:
    """A number of the source program; 0.0 and -0.0 are two."""

    value: int | float | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._written() == other._written()

    def __hash__(self) -> int:
        return hash(self._written())

    def _written(self) -> tuple[str, DType]:
        return repr(self.value), self.dtype


@frozen
class Read:
    """A scalar parameter, as ``dtype``."""

    param: str
    dtype: DType


@frozen
class Position:
    """The value of an index expression, as int64."""

    index: Dim
    dtype: DType


@frozen
class Load:
    """One element of a buffer. Where ``mask`` (an element) is false nothing is read; the value is
    0.
    """

    pointer: str
    index: Dim
    dtype: DType
    mask: int | None = None


@frozen
class Op:
    """A scalar operator on earlier elements."""

    op: str
    args: tuple[int, ...]
    dtype: DType


@frozen
class Reduce:
    """The combination of ``arg`` over all rows: one value for each index of the parallel axes."""

    combine: str
    arg: int
    dtype: DType


@frozen
class Scan:
    """The inclusive running combination of ``arg`` along the last row axis."""

    combine: str
    arg: int
    dtype: DType


Order: TypeAlias = Literal["joined", "joined_halves", "raw", "double", "single"]
"""How kernels of ATen add up a row: moments of vectors of it joined two by two; the same where each
vector of bfloat16 is two of float32; a sum and one of squares, in vectors; or one number after the
other, in float64 or in float32."""


@frozen
class Moment:
    """The mean of ``arg`` over all rows, or the sum of the squares of what is left of it without
    the mean: what ``given`` has (the mean, that sum), unless squares overflow near them. Then it is
    what ATen's kernel makes of them in its ``order``, NaN and infinities included."""

    order: Order
    part: Literal["mean", "squares"]
    arg: int
    given: tuple[int, ...]
    dtype: DType

    @property
    def usual(self) -> int:
        """The element whose value it has where no square overflows."""
        return self.given[0 if self.part == "mean" else 1]


Element: TypeAlias = Const | Read | Position | Load | Op | Reduce | Scan | Moment


@frozen
class Store:
    """Writes ``value`` once for each ``cell``, or once for each ``fiber`` (position of the parallel
    axes).

    ``mode`` other than ``set`` combines with what is there; ``atomic`` where elements may meet.
    """

    pointer: str
    index: Dim
    value: int
    per: Literal["cell", "fiber"]
    mask: int | None = None
    mode: Literal["set", "sum", "prod", "max", "min"] = "set"


@frozen(eq=False)
class Kernel:
    """See the module. ``ordered`` says that cells must run in order (scatters whose elements may
    meet). ``parts``: so many kernels at once, whose pointers come one after the other; elements
    name those of the first.

    Equal, and equally hashed, if the same up to names; ``text`` is the canonical print.
    """

    params: tuple[Param, ...]
    axes: tuple[Axis, ...]
    reduction_axes: tuple[Axis, ...]
    elements: tuple[Element, ...]
    stores: tuple[Store, ...]
    ordered: bool = False
    parts: int = 1
    text: str = field(default="", init=False)
    pointers: tuple[PointerParam, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        pointers = tuple([p for p in self.params if isinstance(p, PointerParam)])
        object.__setattr__(self, "pointers", pointers)
        object.__setattr__(self, "text", print_kernel(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def pointer(self, name: str) -> PointerParam:
        """The pointer parameter of that name."""
        return next(p for p in self.pointers if p.name == name)

    def part_of(self, name: str) -> tuple[int, str]:
        """To which of its parts a pointer belongs, and what elements call it there."""
        own = len(self.pointers) // self.parts
        number = next(n for n, p in enumerate(self.pointers) if p.name == name)
        return number // own, self.pointers[number % own].name

    def first_part(self) -> Kernel:
        """One of the kernels that are done at once."""
        if self.parts == 1:
            return self
        count = len(self.pointers)
        params = (*self.pointers[: count // self.parts], *self.params[count:])
        return Kernel(params, self.axes, (), self.elements, self.stores)


def element_of(symbol: Symbol) -> int | None:
    """The number of the element that a symbol of an index stands for, if it stands for one."""
    return int(symbol.name[1:]) if symbol.name[0] == "v" else None


def index_elements(index: Dim) -> Sequence[int]:
    """The elements (loaded integers) that an index reads, in order of number."""
    if not isinstance(index, Expr):
        return []
    found = [int(symbol.name[1:]) for symbol in index.symbols if symbol.name[0] == "v"]
    return sorted(found) if len(found) > 1 else found


def operands(element: Element | Store) -> tuple[int, ...]:
    """The numbers of the elements that this one reads, loaded integers of its index included."""
    if isinstance(element, Op):  # the most by far
        return element.args
    own = index_elements(element.index) if isinstance(element, INDEXED) else ()
    return (*own, *beside_index(element)) if own else beside_index(element)


INDEXED = Position, Load, Store


def beside_index(element: Element | Store) -> tuple[int, ...]:
    """As ``operands``, without the loaded integers of its index."""
    read = _BESIDE_INDEX.get(element.__class__)
    return () if read is None else read(element)


_BESIDE_INDEX: Mapping[type, Callable[[Any], tuple[int, ...]]] = {
    Op: lambda op: op.args,
    Load: lambda load: () if load.mask is None else (load.mask,),
    Reduce: lambda reduce: (reduce.arg,),
    Scan: lambda scan: (scan.arg,),
    Moment: lambda moment: (moment.arg, *moment.given),
    Store: lambda store: (store.value,) if store.mask is None else (store.value, store.mask),
}


def index_names(element: Element | Store) -> frozenset[str]:
    """The names of all symbols in the element's own index."""
    index = getattr(element, "index", None)
    return frozenset(s.name for s in index.symbols) if isinstance(index, Expr) else frozenset()


SILENT = frozenset({"cast", "where", "logical_and", "logical_or", "logical_not"})
"""Operators that say little about what a kernel is for."""
MOST_WORDS = 6


def fused_words(kernel: Kernel) -> tuple[str, ...]:
    """What the kernel computes, in order: ``("sub", "exp", "sum", "div")`` of a softmax; each
    operator once, and the first few of many."""
    words: dict[str, None] = {}
    for element in kernel.elements:
        match element:
            case Op(op=op) if op not in SILENT:
                words[op] = None
            case Reduce(combine=combine):
                words[combine] = None
            case Scan(combine=combine):
                words[f"running_{combine}"] = None
    words |= {f"scatter_{store.mode}": None for store in kernel.stores if store.mode != "set"}
    return tuple(words)[:MOST_WORDS] or ("copy",)


def print_kernel(kernel: Kernel) -> str:
    """The kernel as text, one line for each part.

    >>> print_kernel(twice)  # doctest: +SKIP
    kernel(p0: *float32 read, p1: *float32 write, n0: size)
    for i0 < n0
      v0 = load p0[i0]
      v1 = mul v0, v0 : float32
      store p1[i0] = v1 per cell
    """
    lines = [f"kernel({', '.join(_print_param(p) for p in kernel.params)})"]
    lines += [f"for {axis.name} < {axis.extent}" for axis in kernel.axes]
    lines += [f"row {axis.name} < {axis.extent}" for axis in kernel.reduction_axes]
    lines += ["ordered"] if kernel.ordered else []
    lines += [f"parts {kernel.parts}"] if kernel.parts > 1 else []
    lines += [f"  v{n} = {_print_element(e)}" for n, e in enumerate(kernel.elements)]
    lines += [f"  {_print_store(store)}" for store in kernel.stores]
    return "\n".join(lines)


def _print_param(param: Param) -> str:
    match param:
        case PointerParam():
            return f"{param.name}: *{param.dtype} {param.access}"
        case SizeParam():
            kind = "signed size" if param.signed else "size"
            least = f" >= {param.at_least}" if param.at_least else ""
            return f"{param.name}: {kind}{' in memory' if param.in_memory else ''}{least}"
        case ScalarParam():
            return f"{param.name}: {param.dtype}"


def _print_mask(mask: int | None) -> str:
    return "" if mask is None else f" if v{mask}"


def _print_element(element: Element) -> str:
    match element:
        case Const(value=value, dtype=dtype):
            return f"const {value!r} : {dtype}"
        case Read(param=param, dtype=dtype):
            return f"read {param} : {dtype}"
        case Position(index=index, dtype=dtype):
            return f"position {index} : {dtype}"
        case Load(pointer=pointer, index=index, mask=mask):
            return f"load {pointer}[{index}]{_print_mask(mask)}"
        case Op(op=op, args=args, dtype=dtype):
            return f"{op} {', '.join(f'v{a}' for a in args)} : {dtype}"
        case Reduce(combine=combine, arg=arg, dtype=dtype):
            return f"reduce {combine} v{arg} : {dtype}"
        case Scan(combine=combine, arg=arg, dtype=dtype):
            return f"scan {combine} v{arg} : {dtype}"
        case Moment(order=order, part=part, arg=arg, given=given, dtype=dtype):
            near = ", ".join(f"v{n}" for n in given)
            return f"moment {order} {part} v{arg} near {near} : {dtype}"


def _print_store(store: Store) -> str:
    mode = "" if store.mode == "set" else f"{store.mode} "
    where = f"store {store.pointer}[{store.index}] {mode}= v{store.value}"
    return f"{where} per {store.per}{_print_mask(store.mask)}"
