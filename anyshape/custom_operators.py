"""Custom operators that write arguments, as ones that do not: what a graph calls in their place.

Nodes name them by ``anyshape.custom_operators.functional.namespace.name.overload``.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from anyshape.nouns import frozen


@frozen
class Functional:
    """A custom operator that writes arguments, as one that gives their new values after its other
    results: `functional.namespace.name.overload(*args)`."""

    path: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Functional:
        if name.startswith("__") or len(self.path) == 3:
            raise AttributeError(name)
        return Functional((*self.path, name))

    def __str__(self) -> str:
        return ".".join(("anyshape.custom_operators.functional", *self.path))

    @property
    def operator(self) -> Any:
        """The operator itself."""
        return functools.reduce(getattr, self.path, torch.ops)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        operator = self.operator
        given = dict(zip((p.name for p in operator._schema.arguments), args)) | kwargs
        new = {
            name: _copied(given[name])
            for name in written_names(operator)
            if given.get(name) is not None
        }
        positional = tuple(new.get(name, value) for name, value in zip(given, args))
        made = operator(*positional, **{name: new.get(name, kwargs[name]) for name in kwargs})
        made = () if made is None else made if isinstance(made, tuple) else (made,)
        own = (m for m, r in zip(made, operator._schema.returns, strict=True) if not is_written(r))
        return (*own, *new.values())


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same in new memory, with the strides that the program may have handed on as numbers."""
    copied = tensor.clone()
    if copied.stride() == tensor.stride() or 0 in tensor.stride():
        return copied
    laid = tensor.new_empty_strided(tensor.shape, tensor.stride())
    return laid.copy_(tensor)


functional = Functional()


def written_names(operator: Any) -> tuple[str, ...]:
    """The parameters that an operator writes, by its schema."""
    return tuple(p.name for p in operator._schema.arguments if is_written(p))


def is_written(part: Any) -> bool:
    """Whether a parameter or a result of a schema is written memory."""
    return part.alias_info is not None and bool(part.alias_info.is_write)
