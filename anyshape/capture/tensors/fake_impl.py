"""Operators of the program's own, by what the program says of them (`torch.library.register_fake`).

In: an operator and meta tensors. Out: what its description makes of them, where it may ask for
sizes that data decides, which torch's own meta kernel of such an operator refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._library import fake_impl, simple_registry


class DataDecides:
    """What `torch.library.get_ctx()` gives to the program's description of an operator: numbers in
    place of the sizes that data decides, others for each assignment, so that no expression of known
    sizes explains them."""

    def __init__(self, assignment: int) -> None:
        self.last = 1009 + 97 * assignment
        self.is_asked = False

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """A number of its own; bounds of a size that stands for any are not looked at."""
        self.is_asked = True
        self.last += 2
        return self.last

    create_unbacked_symint = new_dynamic_size


def made_by_description(
    fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], data: DataDecides
) -> Any:
    """What the program's own description of its operator makes, None where there is none: torch's
    meta kernel of it refuses where data decides a size."""
    operator = getattr(fn, "default", fn)
    if not isinstance(operator, torch._ops.OpOverload):
        return None
    entry = simple_registry.singleton.find(operator._schema.name)  # torch 2.11 has no `get`
    description = entry.fake_impl.kernel
    if description is None:
        return None
    parameters = operator._schema.arguments
    given = {p.name: p.default_value for p in parameters}
    given |= dict(zip((p.name for p in parameters), args)) | kwargs
    named = {p.name: given.pop(p.name) for p in parameters if p.kwarg_only}
    with fake_impl.set_ctx_getter(lambda: data):
        return description(*given.values(), **named)
