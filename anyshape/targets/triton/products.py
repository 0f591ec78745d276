"""Matrix products that are a kernel with what follows them, where the summed axis is short.

    %p = torch.nn.functional.linear(%x, %w, %b); launch gelu(%p, %y)
    ->
    launch gelu_of_product(%x, %w, %b, %y)

The product is a kernel like any other: cells are rows and columns, the summed axis is its fiber. A
schedule with ``columns`` walks it in tiles, by tensor cores (``product_kernel.py``); what follows
reads the product as eager torch rounds it. A library's product and a kernel take 1.2 to 1.6 times
as long where the summed axis has 256 elements or fewer, and less above it (docs/gpu.md): longer
products stay the library's, unless both ways are measured (``library_product.py``). Nothing is
moved past a step that touches what it reads, and no cell is written before others have read it.

In: the steps of a program. Out: the same, fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from anyshape.ir.buffers import Buffer, BufferRef
from anyshape.ir.dtypes import DType, bfloat16, float16, float32
from anyshape.ir.loops import (
    Axis,
    Element,
    Kernel,
    Load,
    Op,
    Param,
    PointerParam,
    Position,
    Reduce,
    SizeParam,
    index_elements,
)
from anyshape.ir.program import (
    Allocate,
    ExternCall,
    Free,
    Launch,
    Program,
    Step,
    references,
)
from anyshape.ir.variants import Variants
from anyshape.nouns import frozen, mutable, replace
from anyshape.symbolic import Dim, Expr, Space, Symbol, substitute
from anyshape.targets.cpu.library import LINEAR, is_row_major
from anyshape.targets.reduction_phases import coefficient

LONGEST_SUM = 256
"""Elements of a summed axis below which a library's product and a kernel are slower."""
DTYPES: frozenset[DType] = frozenset({bfloat16, float16})
"""Those that tensor cores multiply exactly and add in 32 bits."""
FUNCTIONS = frozenset({"torch.mm", "torch.addmm", LINEAR})
"""Those that are products."""


@frozen
class Matrix:
    """A matrix in memory: the strides of its two dimensions, in elements."""

    buffer: str
    strides: tuple[Dim, Dim]


@frozen
class Product:
    """``left`` times ``right``, and a vector that is added to each row: [rows, columns] in
    ``dtype``."""

    left: Matrix
    right: Matrix
    bias: str | None
    rows: Dim
    columns: int
    summed: int
    dtype: DType

    def operands(self) -> tuple[str, ...]:
        """The buffers that it reads."""
        return (self.left.buffer, self.right.buffer, *([self.bias] if self.bias else []))


def with_products(
    program: Program,
    variants: Callable[[Kernel], Variants],
    kind: str = "cuda",
    *,
    measured: bool = False,
) -> Program:
    """See the module; of the programs inside it, too. ``measured``: a launch is made in the faster
    way, so that every product may be a kernel."""
    longest = None if measured else LONGEST_SUM
    inner = program.with_bodies(
        lambda body: replace(
            body, program=with_products(body.program, variants, kind, measured=measured)
        )
    )
    if not any(type(s) is ExternCall and s.function in FUNCTIONS for s in inner.steps):
        return inner
    steps, buffers = [*inner.steps], dict(inner.buffers)
    outputs = {*references(inner.outputs)}
    for call in inner.steps:
        if not isinstance(call, ExternCall) or call.function not in FUNCTIONS:
            continue
        product = product_of(call, buffers, kind)
        if product is not None and longest is not None and product.summed > longest:
            continue
        launch = None if product is None else _only_reader(steps, call, outputs)
        if product is None or launch is None or not _may_move(steps, call, launch, product):
            continue
        made = fused(launch, call.outputs[0], product, variants)
        if made is not None:
            steps = [*_without(steps, call, launch, product, made)]
            del buffers[call.outputs[0]]
    return replace(inner, steps=tuple(steps), buffers=buffers)


def product_of(call: ExternCall, buffers: dict[str, Buffer], kind: str) -> Product | None:
    """The product that a library is asked for, if it is one that a kernel may make."""
    names = [arg.name for arg in call.args if isinstance(arg, BufferRef)]
    used = [buffers[name] for name in (*names, *call.outputs)]
    given = [arg for arg in call.args if arg is not None]  # a bias that there is not
    factors = {call.kwargs.get(name, 1) for name in ("alpha", "beta")}
    if call.kwargs.keys() - {"alpha", "beta"} or factors != {1}:
        return None
    if len(names) != len(given) or call.guessed:
        return None
    if any(b.device.partition(":")[0] != kind or b.capacity is not None for b in used):
        return None
    *operands, result = used
    if result.dtype not in DTYPES or any(b.dtype is not result.dtype for b in operands):
        return None
    if not is_row_major(result):
        return None
    if call.function == "torch.addmm":
        bias, left, right = operands
        return _product(left, right.shape, right.name, right.strides, bias, result)
    left, right, *rest = operands
    if call.function == LINEAR:
        bias = rest[0] if rest else None  # type: ignore[assignment]
        return _product(left, right.shape[::-1], right.name, right.strides[::-1], bias, result)
    return None if rest else _product(left, right.shape, right.name, right.strides, None, result)


def _product(
    left: Buffer,
    shape: tuple[Dim, ...],
    right: str,
    strides: tuple[Dim, ...],
    bias: Buffer | None,
    result: Buffer,
) -> Product | None:
    if len(shape) != 2 or len(left.shape) < 2:
        return None
    summed, columns = shape
    if not isinstance(summed, int) or not isinstance(columns, int):
        return None
    left = replace(left, shape=(*left.shape[:-1], summed))  # both are one size, by another name
    if len(left.shape) > 2 and not is_row_major(left):
        return None
    if bias is not None and (bias.shape != (columns,) or bias.strides != (1,)):
        return None
    rows = math.prod(left.shape[:-1], start=1)
    own = left.strides if len(left.shape) == 2 else (summed, 1)
    matrices = Matrix(left.name, (own[0], own[1])), Matrix(right, (strides[0], strides[1]))
    return Product(
        *matrices, None if bias is None else bias.name, rows, columns, summed, result.dtype
    )


def _only_reader(steps: list[Step], call: ExternCall, outputs: set[str]) -> Launch | None:
    """The launch that reads the product, if nothing else does."""
    name = call.outputs[0]
    if name in outputs:
        return None
    about = [step for step in steps if name in step.mentions() and step is not call]
    about = [step for step in about if not isinstance(step, (Allocate, Free))]
    first = about[0] if len(about) == 1 else None
    return first if isinstance(first, Launch) else None


def _may_move(steps: list[Step], call: ExternCall, launch: Launch, product: Product) -> bool:
    """Does the launch find what the product reads, and write nothing of it? Memory that was
    allocated here is nobody else's; what is freed in between is freed later."""
    start, end = (next(n for n, s in enumerate(steps) if s is each) for each in (call, launch))
    own = _memory(steps, product)
    new = {s.buffer for s in steps[:end] if isinstance(s, Allocate)} - own
    for step in steps[start + 1 : end]:
        if not isinstance(step, (Allocate, Free, Launch)) or not {*step.writes()} <= new:
            return False
        if isinstance(step, Allocate) and step.over in own:
            return False
    return {*launch.writes()} <= new


def _memory(steps: list[Step], product: Product) -> set[str]:
    """The buffers that lie, or may lie, where what the product reads does."""
    own = {*product.operands()}
    pairs = [({*step.defines()}, {*step.may_lie_in()}) for step in steps]
    pairs += [({s.buffer}, {s.over}) for s in steps if isinstance(s, Allocate) and s.over]
    found = True
    while found:
        more = set[str]().union(*(a | b for a, b in pairs if b and (a | b) & own))
        found = not more <= own
        own |= more
    return own


def _without(
    steps: list[Step], call: ExternCall, launch: Launch, product: Product, made: Launch
) -> Iterator[Step]:
    """The steps without the product, and with the launch that makes it, behind which that is freed
    which the product was the last to read."""
    name, own = call.outputs[0], _memory(steps, product)
    called = late = False
    waiting: list[str] = []
    for step in steps:
        called, late = called or step is call, late or step is launch
        if step is launch:
            yield made
            if waiting:
                yield Free(tuple(waiting))
        elif isinstance(step, Allocate) and step.over == name:
            yield replace(step, over=None)
        elif isinstance(step, Free):
            kept = own if called and not late else set[str]()
            waiting += (n for n in step.buffers if n in kept)
            rest = tuple(n for n in step.buffers if n != name and n not in kept)
            if rest:
                yield replace(step, buffers=rest)
        elif step is not call:
            yield step


def fused(
    launch: Launch, name: str, product: Product, variants: Callable[[Kernel], Variants]
) -> Launch | None:
    """The launch that makes the product itself; None where it is not one cell for each of the
    product's, in order."""
    kernel = launch.kernel
    pointers = [p.name for p, a in zip(kernel.params, launch.args) if a == BufferRef(name)]
    if len(pointers) != 1 or pointers[0] in launch.offsets or not _is_plain(kernel):
        return None
    maker = _Maker.of(launch, product, pointers[0])
    made = None if maker is None else maker.launch(variants)
    return made if made is not None and tiled_product(made.kernel) else None


def _is_plain(kernel: Kernel) -> bool:
    """Is each cell made from elements at indices that follow from its own?"""
    if kernel.reduction_axes or kernel.ordered or kernel.parts != 1:
        return False
    numbered = any([*index_elements(getattr(e, "index", 0))] for e in kernel.elements)
    return not numbered and all(
        s.mode == "set" and isinstance(s.index, Expr) for s in kernel.stores
    )


@mutable
class _Maker:
    """Makes the kernel of a product and of what follows it. ``substitutes``: what axes and sizes of
    the old kernel are in the new one."""

    old: Launch
    product: Product
    pointer: str
    space: Space
    substitutes: dict[Symbol, Dim]
    row: Dim
    column: Dim
    params: list[Param]
    args: list[object]

    @classmethod
    def of(cls, launch: Launch, product: Product, pointer: str) -> _Maker | None:
        """None where the axes of the launch are not the product's."""
        kernel, space = launch.kernel, Space()
        given = dict(zip((p.name for p in kernel.params), launch.args, strict=True))
        row, column = space.symbol("i0"), space.symbol("i1")
        extents = [_value(axis.extent, given) for axis in kernel.axes]
        loads = [e for e in kernel.elements if isinstance(e, Load) and e.pointer == pointer]
        if any(load.mask is not None for load in loads):
            return None
        columns = product.columns
        if extents == [product.rows * columns]:
            axes = {"i0": row * columns + column}
            right = all(isinstance(e.index, Expr) and e.index.symbol is not None for e in loads)
        elif extents == [product.rows, columns]:
            axes = {"i0": row, "i1": column}
            steps = [(coefficient(e.index, "i0"), coefficient(e.index, "i1")) for e in loads]
            right = all((_value(a, given), b) == (columns, 1) for a, b in steps)
            right = right and all(_rest(e.index) == 0 for e in loads)
        else:
            return None
        if not right:
            return None
        symbols = {s for dim in _dims(kernel) if isinstance(dim, Expr) for s in dim.symbols}
        substitutes: dict[Symbol, Dim] = {
            s: axes[s.name] if s.name in axes else space.symbol(s.name, signed=s.signed)
            for s in symbols
        }
        own = (launch, product, pointer, space, substitutes, row, column)
        return cls(*own, [*kernel.params], [*launch.args])

    def launch(self, variants: Callable[[Kernel], Variants]) -> Launch:
        product, old = self.product, self.old.kernel
        term = self.space.symbol("r0")
        at = self.params.index(old.pointer(self.pointer))
        del self.params[at], self.args[at]
        rows = self._size(product.rows)
        left, right = product.left, product.right
        a, b = self.row, self.column
        made: list[Element] = [
            self._load(
                left.buffer, a * self._size(left.strides[0]) + term * self._size(left.strides[1])
            ),
            Op("cast", (0,), float32),
            self._load(
                right.buffer, term * self._size(right.strides[0]) + b * self._size(right.strides[1])
            ),
            Op("cast", (2,), float32),
            Op("mul", (1, 3), float32),
            Reduce("sum", 4, float32),
        ]
        if product.bias is not None:
            made += [self._load(product.bias, b), Op("cast", (6,), float32)]
            made += [Op("add", (5, 7), float32)]
        count = len(made)
        made += [self._moved(element, count) for element in old.elements]
        stores = (
            replace(s, index=self._moved_index(s.index), value=s.value + count, per="fiber",
                    mask=None if s.mask is None else s.mask + count)
            for s in old.stores
        )  # fmt: skip
        kernel = Kernel(
            (*(p for p in self.params if isinstance(p, PointerParam)),
             *(p for p in self.params if not isinstance(p, PointerParam))),
            (Axis("i0", rows), Axis("i1", product.columns)),
            (Axis("r0", product.summed),),
            tuple(made),
            tuple(stores),
        )  # fmt: skip
        args = dict(zip((p.name for p in self.params), self.args, strict=True))
        ordered = tuple(args[p.name] for p in kernel.params)
        return replace(self.old, kernel=kernel, args=ordered, variants=variants(kernel))  # type: ignore[arg-type]

    def _load(self, buffer: str, index: Dim) -> Load:
        name = (
            f"p{sum(isinstance(p, PointerParam) for p in self.old.kernel.params) + len(self.args)}"
        )
        self.params.append(PointerParam(name, self.product.dtype, "read"))
        self.args.append(BufferRef(buffer))
        return Load(name, index, self.product.dtype)

    def _size(self, dim: Dim) -> Dim:
        """The size in the kernel."""
        if isinstance(dim, int):
            return dim
        name = f"n{len(self.params)}_"
        self.params.append(SizeParam(name))
        self.args.append(dim)
        return self.space.symbol(name)

    def _moved(self, element: Element, count: int) -> Element:
        """The element of the old kernel in the new one, where ``count`` others come first."""
        if isinstance(element, Load) and element.pointer == self.pointer:
            return Op("cast", (count - 1,), self.product.dtype)
        if isinstance(element, Op):
            return replace(element, args=tuple(n + count for n in element.args))
        if isinstance(element, Load):
            mask = None if element.mask is None else element.mask + count
            return replace(element, index=self._moved_index(element.index), mask=mask)
        if isinstance(element, Position):
            return replace(element, index=self._moved_index(element.index))
        return element

    def _moved_index(self, index: Dim) -> Dim:
        return substitute(index, self.substitutes)


def _dims(kernel: Kernel) -> list[Dim]:
    items = (*kernel.elements, *kernel.stores)
    return [getattr(item, "index", 0) for item in items]


def _value(dim: Dim | None, given: Mapping[str, object]) -> object:
    """A size of the kernel as the program knows it."""
    if isinstance(dim, Expr) and dim.symbol is not None:
        return given.get(dim.symbol.name)
    return dim


def _rest(index: Dim) -> Dim:
    """The index of the first cell."""
    if not isinstance(index, Expr):
        return index
    return substitute(index, {s: 0 for s in index.symbols if s.name in ("i0", "i1")})


def tiled_product(kernel: Kernel) -> tuple[int, int, int] | None:
    """The numbers of the two loads of a matrix product, and of its sum, if the kernel is one and
    what follows it: one sum of products of 16-bit elements, whose indices are a row's and a
    column's."""
    match kernel.axes, kernel.reduction_axes:
        case (_, _), (_,):
            pass
        case _:
            return None
    reduces = [n for n, e in enumerate(kernel.elements) if isinstance(e, Reduce)]
    if len(reduces) != 1 or kernel.ordered or any(s.per != "fiber" for s in kernel.stores):
        return None
    found = _factors(kernel, reduces[0])
    if found is None:
        return None
    left, right = found
    names = [_axes_of(kernel, n) for n in (left, right)]
    rows, columns = (axis.name for axis in kernel.axes)
    (summed,) = (axis.name for axis in kernel.reduction_axes)
    return (left, right, reduces[0]) if names == [{rows, summed}, {columns, summed}] else None


def _factors(kernel: Kernel, number: int) -> tuple[int, int] | None:
    """The loads of which the sum adds products."""
    elements, total = kernel.elements, kernel.elements[number]
    assert isinstance(total, Reduce)
    product = elements[total.arg]
    if total.combine != "sum" or total.dtype is not float32 or not isinstance(product, Op):
        return None
    if product.op != "mul" or product.dtype is not float32:
        return None
    loads = []
    for n in product.args:
        cast = elements[n]
        if not isinstance(cast, Op) or cast.op != "cast":
            return None
        load = elements[cast.args[0]]
        if not isinstance(load, Load) or load.mask is not None or load.dtype not in DTYPES:
            return None
        if [*index_elements(load.index)]:  # the index is data's
            return None
        loads.append(cast.args[0])
    a, b = loads
    return (a, b) if elements[a].dtype is elements[b].dtype else None


def _axes_of(kernel: Kernel, number: int) -> set[str]:
    load = kernel.elements[number]
    assert isinstance(load, Load)
    names = {axis.name for axis in (*kernel.axes, *kernel.reduction_axes)}
    symbols = load.index.symbols if isinstance(load.index, Expr) else ()
    return {s.name for s in symbols} & names
