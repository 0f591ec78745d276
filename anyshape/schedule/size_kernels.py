"""A size that data decides, computed where the data is: a kernel of one cell.

In: an expression, and the buffers that have the values of some of its symbols. Out: the kernel and
its arguments but the last, which is the buffer of one int64 that it writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.ir.buffers import BufferRef
from anyshape.ir.dtypes import int64
from anyshape.ir.loops import Element, Kernel, Load, PointerParam, Position, SizeParam, Store
from anyshape.symbolic import Dim, Expr, Space, Symbol, substitute


def size_kernel(
    size: Expr, memory: Mapping[Symbol, str]
) -> tuple[Kernel, tuple[Dim | BufferRef, ...]]:
    """``memory``: where the symbols are whose values the host does not have."""
    space = Space()
    ordered = sorted(size.symbols, key=lambda symbol: symbol.name)
    loaded = [symbol for symbol in ordered if symbol in memory]
    given = [symbol for symbol in ordered if symbol not in memory]
    values: dict[Symbol, Dim] = {
        symbol: space.symbol(f"{letter}{n}", signed=symbol.signed)
        for letter, symbols in (("v", loaded), ("n", given))
        for n, symbol in enumerate(symbols)
    }
    count = len(loaded)
    pointers = tuple(PointerParam(f"p{n}", int64, "read") for n in range(count))
    made = PointerParam(f"p{count}", int64, "write")
    elements: tuple[Element, ...] = (
        *(Load(pointer.name, 0, int64) for pointer in pointers),
        Position(substitute(size, values), int64),
    )
    kernel = Kernel(
        (*pointers, *(SizeParam(f"n{n}", signed=s.signed) for n, s in enumerate(given)), made),
        (),
        (),
        elements,
        (Store(made.name, 0, count, "cell"),),
    )
    return kernel, (*(BufferRef(memory[s]) for s in loaded), *(s.expr for s in given))
