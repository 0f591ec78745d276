"""Operators without a row: typed by torch's own meta kernels, run eagerly inside the graph.

In: any torch callable with proxies among its arguments. Out: proxies of its results, and a node of a row made on the fly. First version:
the meta kernel runs at the example sizes, and once more at other sizes; each size of the result must be a size of an argument, a
product of such, or the same number both times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyshape.capture.breaks import broken

if TYPE_CHECKING:
    from anyshape.capture.symbolic_domain import SymbolicDomain


def eager_call(domain: SymbolicDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Records `fn(*args, **kwargs)` as an eager node."""
    name = getattr(fn, "__qualname__", getattr(fn, "__name__", str(fn)))
    raise broken("operator-unknown", what=name, why="it has no row")
