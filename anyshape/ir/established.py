"""Which facts hold at which node of a graph: those that have been tested by then.

In: a graph, or who gives sizes their values. Out: the facts at each place. A check that names a
size which data decides is made where that size gets its value; what it says of other sizes does not
hold before. Where no fact ties such a size to another one, the same facts hold everywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from anyshape.ir.graph import CHECK, Arg, Graph, Node, TensorType, Value, checked
from anyshape.ir.program import CheckStep, Program
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.symbolic import AllOf, AnyOf, Expr, Facts, Relation, Symbol


@dataclass(frozen=True, slots=True, eq=False)
class Established:
    """``facts[0]`` hold from the beginning, ``facts[n]`` behind the place ``ends[n - 1]``."""

    facts: tuple[Facts, ...]
    ends: tuple[int, ...]

    def at(self, place: int) -> Facts:
        """What is known where what comes before the place has been done."""
        return self.facts[bisect_left(self.ends, place)]

    def tested_by(self, place: int) -> int:
        """The last place before this one that adds facts, -1 where there is none."""
        number = bisect_left(self.ends, place)
        return self.ends[number - 1] if number else -1


def established_by(facts: Facts, places: Mapping[Symbol, int]) -> Established:
    """``places``: where the sizes that have no values at the beginning get theirs."""
    if not places:
        return Established((facts,), ())
    order = sorted(set(places.values()))
    rank = {place: number for number, place in enumerate(order)}
    stages = facts.in_order({symbol: rank[place] for symbol, place in places.items()})
    return Established(
        tuple(known for _, known in stages), tuple(order[number] for number, _ in stages[1:])
    )


def established(graph: Graph) -> Established:
    """What is known at each node, by its position."""
    places: dict[Symbol, int] = {}
    if not graph.facts.tie_midrun():
        return Established((graph.facts,), ())
    for position, node in enumerate(graph.nodes):
        for output in node.outputs:
            for number in midrun_numbers(shown(output)):
                if isinstance(number, Symbol):
                    places.setdefault(number, position)
    return established_by(graph.facts, places)


def hoist_checks(graph: Graph) -> Graph:
    """Each check directly behind what gives the last of its sizes its value, or at the beginning.

    n = nonzero(x); y = x + 1; check(n >= 2)   ->   n = nonzero(x); check(n >= 2); y = x + 1
    """
    binders: dict[Symbol | ScalarInput, int] = {}
    checks: dict[int, list[Node]] = {}
    nodes = [node for node in graph.nodes if node.op != CHECK]
    if len(nodes) == len(graph.nodes):
        return graph
    for position, node in enumerate(nodes):
        for output in node.outputs:
            for number in midrun_numbers(shown(output)):
                binders.setdefault(number, position)
    for check in (node for node in graph.nodes if node.op == CHECK):
        bound = (binders[size] for size in midrun_numbers(checked(check)[0]) if size in binders)
        checks.setdefault(max(bound, default=-1), []).append(check)
    placed = [*checks.get(-1, ())]
    for position, node in enumerate(nodes):
        placed += [node, *checks.get(position, ())]
    return replace(graph, nodes=tuple(placed))


def established_in(program: Program, facts: Facts) -> Established:
    """What is known at each step: a fact holds behind the last check of the size in it that is the
    last to have a value."""
    places: dict[Symbol, int] = {}
    if not facts.tie_midrun():
        return Established((facts,), ())
    for number, step in enumerate(program.steps):
        places.update(dict.fromkeys(step.binds(), number))
        if isinstance(step, CheckStep):
            bound = [symbol for symbol in midrun_numbers(step.condition) if symbol in places]
            if bound:
                places[max(bound, key=places.__getitem__)] = number
    return established_by(facts, places)


def shown(value: Value) -> Arg:
    """What a value's type says of it: its sizes, or its number."""
    return value.type.shape if isinstance(value.type, TensorType) else value.type.expr


def midrun_numbers(arg: Arg) -> Iterator[Symbol | ScalarInput]:
    """The sizes and numbers in an argument that only the run decides."""
    match arg:
        case Expr() | Relation() | AllOf() | AnyOf():
            yield from (s for s in arg.symbols if s.knowledge == "midrun")
        case ScalarInput():
            yield arg
        case Scalar():
            yield from midrun_numbers(arg.args)
        case tuple():
            for item in arg:
                yield from midrun_numbers(item)
