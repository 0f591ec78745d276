"""What is made of a fiber and its maximum, in the pass that finds the maximum.

    m = max(x); s = sum(exp(x - m))                  ->   one pass over the cells: (m, s) =
    online(x) m = max(x); i = min(where(x == m or nan, at, no))   ->   (m, i) = first(x, at), and of
    a minimum

A softmax reads a long fiber once less, and where fibers are cut into shares it is a launch less.
While the maximum rises, what was summed is made smaller (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018). A thread does so once for all its elements of a tile: for each
element it took 16 instructions, and was slower than a second pass that finds much of the fiber in
the cache. A fiber in registers is read once anyway.

Where the maximum lies, a thread keeps for each of its elements of a tile: the position of the first
one above all before it.

In: a kernel. Out: the kernel whose sums and positions do not wait for a maximum, and which maximum,
or minimum, is each of theirs. Of sums, maxima begin at the lowest finite number instead of at -inf,
so that no difference of infinities is taken before the end; a sum of 0 says that nothing lay above
-inf. ``prelude.py`` has the functions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field

from anyshape.ir.dtypes import float32, float64
from anyshape.ir.loops import Const, Element, Kernel, Op, Position, Reduce, Scan, operands
from anyshape.nouns import frozen, replace
from anyshape.symbolic import Expr
from anyshape.targets.reduction_phases import analyse
from anyshape.targets.triton.narrow import HIGHEST

LOWEST = {"float32": "-3.4028234663852886e38", "float64": "-1.7976931348623157e308"}


@frozen
class Online:
    """``sums``, ``firsts``: the maximum of each sum, and the maximum or minimum of each position,
    that is done with it."""

    kernel: Kernel
    sums: Mapping[int, int] = field(default_factory=dict)
    firsts: Mapping[int, int] = field(default_factory=dict)


@functools.lru_cache(maxsize=1024)
def online(kernel: Kernel) -> Online:
    """See the module; the kernel itself where it has nothing such."""
    if kernel.ordered or any(isinstance(element, Scan) for element in kernel.elements):
        return Online(kernel)
    phases, elements = analyse(kernel), [*kernel.elements]
    sums: dict[int, int] = {}
    firsts: dict[int, int] = {}
    for number, element in enumerate(kernel.elements):
        sum_of, first_of = _highest_of(kernel, element), _extreme_of(kernel, element)
        found = first_of if sum_of is None else sum_of
        if found is None or found in (*sums.values(), *firsts.values()):
            continue
        extreme = kernel.elements[found]
        assert isinstance(extreme, Reduce) and isinstance(element, Reduce)
        if not phases.in_fiber(extreme.arg):
            continue
        if sum_of is None:
            firsts[number] = found
            elements[number] = replace(element, arg=operands(kernel.elements[element.arg])[1])
        else:
            sums[number] = found
            elements[number] = replace(element, arg=extreme.arg)
    if not sums and not firsts:
        return Online(kernel)
    return Online(replace(kernel, elements=tuple(elements)), sums, firsts)


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


def _extreme_of(kernel: Kernel, element: object) -> int | None:
    """m of min(where(x == m or isnan(x), position in the fiber, highest)), where m is the maximum
    or the minimum of x, a float."""
    elements = kernel.elements
    if not isinstance(element, Reduce) or element.combine != "min":
        return None
    chosen = elements[element.arg]
    if not isinstance(chosen, Op) or chosen.op != "where":
        return None
    either, position, none = (elements[n] for n in chosen.args)
    if not isinstance(none, Const) or none.value != HIGHEST or not _is_in_fiber(kernel, position):
        return None
    if not isinstance(either, Op) or either.op != "logical_or":
        return None
    same, nan = (elements[n] for n in either.args)
    if not isinstance(same, Op) or not isinstance(nan, Op) or (same.op, nan.op) != ("eq", "isnan"):
        return None
    x, extreme = same.args
    found = elements[extreme]
    if not isinstance(found, Reduce) or found.combine not in ("max", "min"):
        return None
    return extreme if found.arg == x == nan.args[0] and found.dtype.is_floating else None


def _is_in_fiber(kernel: Kernel, position: Element) -> bool:
    """Whether it is where in the fiber an element lies: 0 for the first."""
    if not isinstance(position, Position) or len(kernel.reduction_axes) != 1:
        return False
    symbol = position.index.symbol if isinstance(position.index, Expr) else None
    return symbol is not None and symbol.name == kernel.reduction_axes[0].name
