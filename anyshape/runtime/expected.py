"""Programs whose kernels are built when they are launched say before a call what it will launch.

In: a running program and where its sizes stand among its arguments. Out: the same, which at the
first call of each combination of sizes hands them on; kernels are then built side by side, and not
one after the other as they are launched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anyshape.ir.buffers import Buffer
from anyshape.symbolic import Expr, Symbol

MOST_SEEN = 4096
"""Combinations of sizes that are remembered."""
SizeReader = tuple[int, int | None]
"""The number of an argument, and the dimension that is the size; None of a number."""


def entry_sizes(
    parameters: Sequence[str], buffers: Mapping[str, Buffer]
) -> dict[Symbol, SizeReader]:
    """Where each symbol is first a whole size of an argument, or an argument."""
    found: dict[Symbol, SizeReader] = {}
    names: dict[str, int] = {}
    for number, name in enumerate(parameters):
        if name not in buffers:
            names[name] = number
            continue
        for dim, size in enumerate(buffers[name].shape):
            symbol = size.symbol if isinstance(size, Expr) else None
            if symbol is not None:
                found.setdefault(symbol, (number, dim))
    used = (s for b in buffers.values() for d in b.shape if isinstance(d, Expr) for s in d.symbols)
    found |= {symbol: (names[symbol.name], None) for symbol in used if symbol.name in names}
    return found


def expecting(
    run: Callable[..., tuple[Any, ...]],
    readers: Mapping[Symbol, SizeReader],
    expect: Callable[[Mapping[Symbol, int]], None],
) -> Callable[..., tuple[Any, ...]]:
    """``run``, which first hands sizes that are new to ``expect``."""
    seen: set[tuple[int, ...]] = set()
    order = tuple(readers.values())

    def running(*arguments: Any) -> tuple[Any, ...]:
        key = tuple([arguments[n] if d is None else arguments[n].shape[d] for n, d in order])
        if key not in seen:
            if len(seen) >= MOST_SEEN:
                seen.clear()
            seen.add(key)
            expect(dict(zip(readers, key, strict=True)))
        return run(*arguments)

    return running
