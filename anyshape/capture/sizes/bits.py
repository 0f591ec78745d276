"""`a & c`, `a | c` and `a ^ c` of a size and a constant, as arithmetic on sizes.

Each run of ones in `c` picks bits of `a`: `a // 2**low % 2**many * 2**low`, for negative numbers
too, as Python's have infinitely many bits. The other operators follow from `&`:

    a & 7    =>  a % 8
    a & ~7   =>  a - a % 8
    a | 1    =>  a + 1 - a % 2
    a ^ 1    =>  a + 1 - 2 * (a % 2)
"""

from __future__ import annotations

from collections.abc import Iterator

from anyshape.symbolic import Dim, floordiv, mod

RUNS = 4
"""Of a constant with more runs of ones, what is left is a number that each call works out."""


def with_constant(op: str, a: Dim, c: int) -> Dim | None:
    """`a op c`, where `op` is `&`, `|` or `^`; None where `c` has too many runs or bits."""
    common = _picked(a, c)
    if common is None or op == "&":
        return common
    return a + c - (common if op == "|" else 2 * common)


def _picked(a: Dim, c: int) -> Dim | None:
    if c < 0:
        others = _picked(a, ~c)
        return None if others is None else a - others
    runs = list(_runs_of_ones(c))
    if len(runs) > RUNS or c >= 2**62:
        return None
    made: Dim = 0
    for low, many in runs:
        made = made + mod(floordiv(a, 2**low), 2**many) * 2**low
    return made


def _runs_of_ones(c: int) -> Iterator[tuple[int, int]]:
    """The lowest bit and the number of bits of each run."""
    low = 0
    while c >> low:
        if c >> low & 1:
            rest = c >> low
            many = (~rest & (rest + 1)).bit_length() - 1
            yield low, many
            low += many
        else:
            low += 1
