"""The other way to make a product and what follows it: a library's product, then a kernel.

In: a kernel of ``products.py``. Out: what a library multiplies, as addresses say at a launch, and
the kernel that reads what it made. ``launch.py`` measures both ways where schedules are measured;
the library's is launched from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from anyshape.ir.loops import Element, Kernel, Load, Op, PointerParam, operands
from anyshape.nouns import frozen, replace
from anyshape.symbolic import Dim, Expr, Symbol, substitute, to_python
from anyshape.targets.reduction_phases import analyse, coefficient
from anyshape.targets.triton.products import tiled_product

MADE = "product"
"""The parameter of the kernel that follows with what the library made."""
Number = Callable[..., int]


@frozen
class Factor:
    """An operand of a product: which argument is its address, its strides from the arguments."""

    address: int
    strides: tuple[Number, Number]


@frozen
class ByLibrary:
    """``after`` is the kernel that follows, whose last argument is where the product lies."""

    after: Kernel
    left: Factor
    right: Factor
    bias: int | None
    extents: tuple[Number, Number, Number]
    dtype: torch.dtype

    def product(self, arguments: Sequence[int], device: torch.device) -> Tensor:
        """What the library makes, on the current stream."""
        rows, columns, summed = (extent(*arguments) for extent in self.extents)
        made = torch.empty(rows, columns, dtype=self.dtype, device=device)
        a = self._matrix(self.left, (rows, summed), arguments, device)
        b = self._matrix(self.right, (summed, columns), arguments, device)
        if self.bias is None:
            return torch.mm(a, b, out=made)
        bias = seen_at(arguments[self.bias], (columns,), (1,), self.dtype, device)
        return torch.addmm(bias, a, b, out=made)

    def _matrix(
        self, of: Factor, shape: tuple[int, int], arguments: Sequence[int], device: torch.device
    ) -> Tensor:
        strides = (of.strides[0](*arguments), of.strides[1](*arguments))
        return seen_at(arguments[of.address], shape, strides, self.dtype, device)


def seen_at(
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Memory that lives as long as the call, as a tensor."""
    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    made = torch.empty(0, dtype=dtype, device=device)
    if 0 in shape:
        return made.as_strided(shape, strides)
    size = (last + 1) * made.element_size()
    storage = torch._C._construct_storage_from_data_pointer(address, device, size)
    return made.set_(storage, 0, shape, strides)


def by_library(kernel: Kernel) -> ByLibrary | None:
    """None where the kernel is no product, or rounds it otherwise than a library."""
    found = tiled_product(kernel)
    if found is None:
        return None
    left, right, total = found
    result, bias = _rounded(kernel, total)
    names = [param.name for param in kernel.params]
    rows, columns = (axis.name for axis in kernel.axes)
    (summed,) = (axis.name for axis in kernel.reduction_axes)
    factors = _factor(kernel, left, (rows, summed)), _factor(kernel, right, (summed, columns))
    if result is None or factors[0] is None or factors[1] is None:
        return None
    extents = (*kernel.axes, *kernel.reduction_axes)
    numbers = tuple(_number(names, axis.extent) for axis in extents)
    load = kernel.elements[left]
    assert isinstance(load, Load)
    return ByLibrary(
        _after(kernel, result, left, right),
        factors[0],
        factors[1],
        None if bias is None else names.index(bias),
        (numbers[0], numbers[1], numbers[2]),
        getattr(torch, load.dtype.name),
    )


def _rounded(kernel: Kernel, total: int) -> tuple[int | None, str | None]:
    """The element that is the product as a library rounds it, and the pointer of the vector that
    was added before; None where there is no such element."""
    elements, bias = kernel.elements, None
    (user, *others) = _users(kernel, total) or (None,)
    if user is None or others:
        return None, None
    element = elements[user]
    if isinstance(element, Op) and element.op == "add" and element.args[0] == total:
        bias = _vector(kernel, element.args[1])
        total, (user, *others) = user, _users(kernel, user) or (None,)
        if bias is None or user is None or others:
            return None, None
        element = elements[user]
    factor = elements[tiled_product(kernel)[0]]  # type: ignore[index]
    rounds = isinstance(element, Op) and element.op == "cast" and element.dtype is factor.dtype
    return (user, bias) if rounds else (None, None)


def _users(kernel: Kernel, number: int) -> tuple[int, ...]:
    """The elements that read one; that a store reads it says that none is the only one."""
    users = [n for n, e in enumerate(kernel.elements) if number in operands(e)]
    stored = any(number in operands(store) for store in kernel.stores)
    return (*users, *([-1, -1] if stored else []))


def _vector(kernel: Kernel, number: int) -> str | None:
    """The pointer of a vector over the columns, which the element casts."""
    cast = kernel.elements[number]
    if not isinstance(cast, Op) or cast.op != "cast":
        return None
    load, index = kernel.elements[cast.args[0]], getattr(kernel.elements[cast.args[0]], "index", 0)
    if not isinstance(load, Load) or load.mask is not None or not isinstance(index, Expr):
        return None
    column = index.symbol is not None and index.symbol.name == kernel.axes[1].name
    return load.pointer if column else None


def _factor(kernel: Kernel, number: int, axes: tuple[str, str]) -> Factor | None:
    load = kernel.elements[number]
    assert isinstance(load, Load) and isinstance(load.index, Expr)
    names = [param.name for param in kernel.params]
    own = {s: 0 for s in load.index.symbols if s.name in axes}
    first, second = (coefficient(load.index, axis) for axis in axes)
    if substitute(load.index, own) != 0 or first is None or second is None:
        return None
    strides = _number(names, first), _number(names, second)
    return Factor(names.index(load.pointer), strides)


def _number(names: Sequence[str], dim: Dim) -> Number:
    made: Number = eval(f"lambda {', '.join(names)}: {to_python(dim)}")
    return made


def _after(kernel: Kernel, result: int, left: int, right: int) -> Kernel:
    """The kernel that reads the product, without what made it."""
    dtype, columns = kernel.elements[result].dtype, kernel.axes[1].extent
    row, column = (
        _symbol(kernel, number, axis.name).expr
        for number, axis in zip((left, right), kernel.axes, strict=True)
    )
    elements: list[Element] = [*kernel.elements]
    elements[result] = Load(MADE, row * columns + column, dtype)
    params = (*kernel.params, PointerParam(MADE, dtype, "read"))
    stores = tuple(replace(store, per="cell") for store in kernel.stores)
    whole = Kernel(params, kernel.axes, (), tuple(elements), stores)
    roots = [n for store in stores for n in operands(store)]
    kept = analyse(whole).closure(roots, set())
    new_number = {n: at for at, n in enumerate(kept)}
    return Kernel(
        params,
        kernel.axes,
        (),
        tuple(_renumbered(elements[n], new_number) for n in kept),
        tuple(
            replace(
                s, value=new_number[s.value], mask=None if s.mask is None else new_number[s.mask]
            )
            for s in stores
        ),
    )


def _symbol(kernel: Kernel, number: int, name: str) -> Symbol:
    load = kernel.elements[number]
    assert isinstance(load, Load) and isinstance(load.index, Expr)
    return next(s for s in load.index.symbols if s.name == name)


def _renumbered(element: Element, new_number: dict[int, int]) -> Element:
    if isinstance(element, Op):
        return replace(element, args=tuple(new_number[n] for n in element.args))
    if isinstance(element, Load) and element.mask is not None:
        return replace(element, mask=new_number[element.mask])
    return element
