"""Integers that the program computes from sizes must fit where they are used: in 64 bits.

    %y = mul(%x, 3*n0)
    ->
    check(n0 <= 3074457345618258602); %y = mul(%x, 3*n0)

Python's integers have no largest one, and eager raises where one is too large for an operator;
machine integers would wrap. Most need no test: sizes are counts of what lies in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import chain
from math import prod

from anyshape.ir.established import established
from anyshape.ir.graph import CHECK, Arg, Graph, Node
from anyshape.nouns import frozen, replace
from anyshape.ops.table import OpDef
from anyshape.symbolic import (
    AllOf,
    AnyOf,
    Atom,
    Condition,
    Expr,
    Facts,
    Relation,
    Symbol,
    all_of,
    ge,
    le,
)

LEAST, GREATEST = -(2**63), 2**63 - 1
COUNT = 2**56
"""No tensor has so many elements of its own: addresses are shorter."""


def check_integers(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The graph with a check for each integer among the arguments that may not fit; each is looked
    at where it is met first, as later on no less is known of it."""
    seen: set[Expr] = set()
    nodes: list[Node] = []
    known = established(graph)
    magnitudes: dict[int, Magnitudes] = {}
    for position, node in enumerate(graph.nodes):
        facts = known.at(position)
        if (magnitude := magnitudes.get(id(facts))) is None:
            magnitude = magnitudes[id(facts)] = Magnitudes(facts)
        for number in _numbers_of(node, ops.get(node.op), seen):
            if magnitude(number) > GREATEST:
                fits = all_of(ge(number, LEAST), le(number, GREATEST))
                if not isinstance(fits, bool) and facts.known(fits) is not True:
                    args = fits, "int too big to convert"
                    nodes.append(Node(CHECK, args, {}, (), node.location, node.modes))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes)) if len(nodes) > len(graph.nodes) else graph


def _numbers_of(node: Node, row: OpDef | None, seen: set[Expr]) -> Iterator[Expr]:
    """Integers of which elements are made: shapes and offsets of views are tested by their rows,
    and checks compare Python's own integers."""
    if row is None or row.alias != "none" or node.op == CHECK:
        return
    for arg in (*node.args, *node.kwargs.values()):
        yield from _forms(arg, seen)


def _forms(arg: Arg, seen: set[Expr]) -> Iterator[Expr]:
    """The integers that kernels compute on the way: what is divided must fit as well."""
    waiting: list[Arg | Condition | bool] = [arg]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Expr) and part not in seen:
            seen.add(part)
            yield part
            atoms = dict.fromkeys(chain.from_iterable(part.terms))
            waiting += (operand for atom in reversed(atoms) for operand in reversed(atom.args))
        elif isinstance(part, Relation):
            waiting.append(part.form)
        elif isinstance(part, (AllOf, AnyOf)):
            waiting += reversed(part.parts)


@frozen
class Magnitudes:
    """How large numbers may be; of partial sums only what was added is looked at."""

    facts: Facts
    found: dict[Expr, int] = field(default_factory=dict)

    def __call__(self, number: Expr) -> int:
        """No value of the number is further from 0."""
        made: list[Expr] = []
        part = number
        while part not in self.found and part.parts is not None:
            made.append(part)
            part = part.parts[0]
        if part not in self.found:
            self.found[part] = self._of_terms(part)
        for later in reversed(made):
            assert later.parts is not None
            long, short, _ = later.parts
            rest = abs(later.constant) - abs(long.constant) - abs(short.constant)
            self.found[later] = self.found[long] + self._of_terms(short) + rest
        return self.found[number]

    def _of_terms(self, number: Expr) -> int:
        parts = (abs(c) * prod(map(self._largest, m)) for m, c in number.terms.items())
        return sum(parts, abs(number.constant))

    def _largest(self, atom: Atom) -> int:
        low, high = self.facts.bounds(atom.expr)
        if low is not None and high is not None:
            return max(-low, high)
        if isinstance(atom, Symbol):
            return 2**63 if atom.signed else COUNT
        inside = (abs(a) if isinstance(a, int) else self(a) for a in atom.args)
        return max(inside, default=COUNT)
