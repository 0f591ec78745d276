"""Passes that are skipped where there is nothing for them to do.

    @only_where(anything_is_written)
    def functionalize(graph, ops): ...

A question that is asked in front of a pass must not forget a case that the pass does. It is
declared here and not written into the pass, so that tests can do both and compare
(``tests/passes/test_shortcuts.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from anyshape.nouns import frozen

P = ParamSpec("P")
R = TypeVar("R")


@frozen
class Shortcut(Generic[P, R]):
    """``long_way`` where it ``concerns`` what is given, else ``nothing``, which gives the same."""

    long_way: Callable[P, R]
    concerns: Callable[P, bool]
    nothing: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        chosen = self.long_way if self.concerns(*args, **kwargs) else self.nothing
        return chosen(*args, **kwargs)


def only_where(
    concerns: Callable[P, bool], nothing: Callable[..., Any] = lambda graph, *rest: graph
) -> Callable[[Callable[P, R]], Shortcut[P, R]]:
    """A pass that is done where it ``concerns`` the graph; another one it leaves as it is, or gives
    what ``nothing`` gives."""
    return lambda long_way: Shortcut(long_way, concerns, nothing)
