"""Sums of exponentials of what lies below a maximum, in the pass that finds the maximum.

    m = max(x); s = sum(exp(x - m))   ->   one pass over the row: (m, s) = online(x)

A softmax reads a long row once less, and where rows are cut into shares it is a launch less. While
the maximum rises, what was summed is made smaller (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018). A thread does so once for all its elements of a tile: for each
element it took 16 instructions, and was slower than a second pass that finds much of the row in the
cache. A row in registers is read once anyway.

In: a kernel. Out: the kernel whose sums go over x itself, and which maximum is each of theirs.
Maxima begin at the lowest finite number instead of at -inf, so that no difference of infinities is
taken before the end; a sum of 0 says that nothing lay above -inf. ``prelude.py`` has the functions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field

from anyshape.ir.dtypes import float32, float64
from anyshape.ir.loops import Kernel, Op, Reduce, Scan
from anyshape.nouns import frozen, replace
from anyshape.targets.reduction_phases import analyse

LOWEST = {"float32": "-3.4028234663852886e38", "float64": "-1.7976931348623157e308"}


@frozen
class Online:
    """``sums``: the maximum of each sum that is done with it."""

    kernel: Kernel
    sums: Mapping[int, int] = field(default_factory=dict)


@functools.lru_cache(maxsize=1024)
def online(kernel: Kernel) -> Online:
    """See the module; the kernel itself where it has no such sums."""
    if kernel.ordered or any(isinstance(element, Scan) for element in kernel.elements):
        return Online(kernel)
    phases, elements = analyse(kernel), [*kernel.elements]
    sums: dict[int, int] = {}
    for number, element in enumerate(kernel.elements):
        highest = _highest_of(kernel, element)
        if highest is None or highest in sums.values():
            continue
        argument = kernel.elements[highest]
        assert isinstance(argument, Reduce) and isinstance(element, Reduce)
        if phases.in_row(argument.arg):
            sums[number] = highest
            elements[number] = replace(element, arg=argument.arg)
    return Online(replace(kernel, elements=tuple(elements)), sums) if sums else Online(kernel)


def _highest_of(kernel: Kernel, element: object) -> int | None:
    """m of sum(exp(x - m)), where m is the maximum of x; all of them of one dtype."""
    elements = kernel.elements
    if not isinstance(element, Reduce) or element.combine != "sum":
        return None
    powers = elements[element.arg]
    if not isinstance(powers, Op) or powers.op != "exp":
        return None
    below = elements[powers.args[0]]
    if not isinstance(below, Op) or below.op != "sub":
        return None
    x, highest = below.args
    found = elements[highest]
    if not isinstance(found, Reduce) or found.combine != "max" or found.arg != x:
        return None
    dtypes = {e.dtype for e in (element, powers, below, found, elements[x])}
    return highest if len(dtypes) == 1 and dtypes <= {float32, float64} else None
