"""A write that a segment makes to an outside object, as the log holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.nouns import frozen


@frozen
class Effect:
    """A write to an outside object: `fn(target, *args, **kwargs)` does it. Arguments may be proxies
    or created objects.
    """

    fn: Callable[..., Any]
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
