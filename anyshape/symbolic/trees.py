"""Which symbols facts tie together, and whether they do so without a circle.

    u1 <= u0, u2 <= u1, v <= n   ->   two trees: {u0, u1, u2} and {v, n}

A fact that shares one symbol at most with all the others, as a plain term, decides that symbol's
range all it knows when it was learned (``decide.py: core_of``). In a tree of facts one can be left
out after the other until none is left, so a question about one of its symbols needs none of them,
and need not look for them either. Sets are joined as in Galler and Fischer's algorithm, by size.
"""

from __future__ import annotations

from collections.abc import Iterable

from anyshape.symbolic.atoms import Symbol
from anyshape.symbolic.layered import Layered


class Trees:
    """Sets of symbols that facts tie; a fork shares what was there."""

    __slots__ = ("circular", "sizes", "upward")

    def __init__(self) -> None:
        self.upward: Layered[Symbol, Symbol] = Layered()
        self.sizes: Layered[Symbol, int] = Layered()
        self.circular: Layered[Symbol, bool] = Layered()

    def fork(self) -> Trees:
        """The same sets; later changes to either stay there."""
        made = Trees()
        made.upward, made.sizes = self.upward.fork(), self.sizes.fork()
        made.circular = self.circular.fork()
        return made

    def tie(self, symbols: Iterable[Symbol], *, plain: bool) -> None:
        """A fact ties these; ``plain``: each stands in it once, as a term of its own."""
        roots: dict[Symbol, None] = {}
        circular = not plain
        for symbol in symbols:
            root = self._root(symbol)
            circular = circular or root in roots or bool(self.circular.get(root))
            roots[root] = None
        largest = max(roots, key=self._size)
        self.sizes[largest] = sum(map(self._size, roots))
        for root in roots:
            if root is not largest:
                self.upward[root] = largest
        if circular:
            self.circular[largest] = True

    def independent(self, symbols: Iterable[Symbol]) -> bool:
        """Does each of the symbols lie in a tree of its own?"""
        roots: set[Symbol] = set()
        for symbol in symbols:
            root = self._root(symbol)
            if root in roots or self.circular.get(root):
                return False
            roots.add(root)
        return True

    def _root(self, symbol: Symbol) -> Symbol:
        above = self.upward.get(symbol)
        while above is not None:
            symbol, above = above, self.upward.get(above)
        return symbol

    def _size(self, root: Symbol) -> int:
        return self.sizes.get(root) or 1
