"""What one operation on symbolic sizes costs: `python -m benchmarks.sizes`.

CPU time of this process, the best of several rounds; "first" is the first time for each of 5,120
symbols, "again" the same once more.
"""

from __future__ import annotations

import gc
import timeit
from collections.abc import Callable
from time import process_time

from anyshape.symbolic import (
    Dim,
    Expr,
    Facts,
    Space,
    broadcast,
    eq,
    ge,
    le,
    minimum,
    total,
)

SYMBOLS = 5120
PARTIAL_SUMS = 1024
ROUNDS = 4

Work = Callable[[Facts, Expr, Expr], object]

OPERATIONS: dict[str, Work] = {
    "u + 1": lambda facts, u, v: u + 1,
    "u + v": lambda facts, u, v: u + v,
    "u * 64": lambda facts, u, v: u * 64,
    "u * v": lambda facts, u, v: u * v,
    "u // 4": lambda facts, u, v: u // 4,
    "min(u, 2048)": lambda facts, u, v: minimum(u, 2048),
    "broadcast(u, v)": lambda facts, u, v: broadcast(u, v),
    "u >= 5": lambda facts, u, v: ge(u, 5),
    "known(u >= 6)": lambda facts, u, v: facts.known(ge(u, 6)),
    "known(u == 0)": lambda facts, u, v: facts.known(eq(u, 0)),
    "known(u == v)": lambda facts, u, v: facts.known(eq(u, v)),
    "known(u * 64 == 0)": lambda facts, u, v: facts.known(eq(u * 64, 0)),
    "simplify(u * 64 + v)": lambda facts, u, v: facts.simplify(u * 64 + v),
    "bounds(u * 64 + v)": lambda facts, u, v: facts.bounds(u * 64 + v),
    "assume(u <= 100)": lambda facts, u, v: facts.assume(le(u, 100)),
    "fork()": lambda facts, u, v: facts.fork(),
}


def each(work: Work, facts: Facts, symbols: list[Expr]) -> float:
    """Microseconds a call, once for each symbol and its neighbour."""
    pairs = list(zip(symbols, [*symbols[1:], symbols[0]], strict=True))
    start = process_time()
    for u, v in pairs:
        work(facts, u, v)
    return (process_time() - start) / len(pairs) * 1e6


def operations() -> dict[str, tuple[float, float]]:
    """For each operation the microseconds of the first and of a later call."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(ROUNDS):
        space = Space()
        symbols = [space.fresh("u", policy="unbacked") for _ in range(SYMBOLS)]
        facts = Facts(space)
        for name, work in OPERATIONS.items():
            times = each(work, facts, symbols), each(work, facts, symbols)
            old = best.get(name, times)
            best[name] = min(old[0], times[0]), min(old[1], times[1])
    return best


def partial_sums() -> None:
    """Every partial sum of the symbols, kept."""
    symbols = made_symbols(PARTIAL_SUMS)
    kept: list[Dim] = []
    running: Dim = 0
    for symbol in symbols:
        running = running + symbol
        kept.append(running)


def made_symbols(count: int) -> list[Expr]:
    """New symbols of a new space."""
    space = Space()
    return [space.fresh("u") for _ in range(count)]


def milliseconds(work: Callable[[], object]) -> float:
    """The best of five."""
    return min(timeit.repeat(work, number=1, repeat=5, timer=process_time)) * 1e3


def main() -> None:
    gc.disable()
    print(f"{'operation':24} {'first':>8} {'again':>8}   us")
    for name, (first, again) in operations().items():
        print(f"{name:24} {first:8.2f} {again:8.2f}")
    making = milliseconds(lambda: made_symbols(PARTIAL_SUMS))
    print(f"\n{PARTIAL_SUMS} partial sums, kept: {milliseconds(partial_sums) - making:.1f} ms")
    symbols = made_symbols(SYMBOLS)
    print(f"sum of {SYMBOLS} symbols: {milliseconds(lambda: total(symbols)):.1f} ms")


if __name__ == "__main__":
    main()
