"""The ways to run one kernel, of which each launch takes the first that fits.

Made by a target; the scheduler hands them on and reads none. A predicate chooses a variant and
never a specialization, and no result depends on it but by the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from anyshape.ir.loops import Kernel
from anyshape.nouns import frozen
from anyshape.symbolic import Condition

Schedule = TypeVar("Schedule", covariant=True)
"""How a target walks a kernel: a noun of the target's own."""


@frozen
class Variant(Generic[Schedule]):
    """``predicate`` is a condition on the kernel's size parameters; True of the last variant."""

    predicate: Condition | bool
    schedule: Schedule


Variants: TypeAlias = tuple[Variant[Any], ...]
"""In the order in which they are tried."""
ChooseVariants: TypeAlias = Callable[[Kernel, str], Variants]
"""Those of a kernel on a device."""


def no_variants(kernel: Kernel, device: str) -> Variants:
    """Of launches that no target will print."""
    return ()
