"""Which facts hold at which node of a graph: those that have been tested by then.

In: a graph, or who gives sizes their values. Out: the facts at each position. A check that names a
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
    """``facts[0]`` hold from the beginning, ``facts[n]`` behind the position ``ends[n - 1]``."""

    facts: tuple[Facts, ...]
    ends: tuple[int, ...]

    def at(self, position: int) -> Facts:
        """What is known where what comes before the position has been done."""
        return self.facts[bisect_left(self.ends, position)]

    def tested_by(self, position: int) -> int:
        """The last position before this one that adds facts, -1 where there is none."""
        number = bisect_left(self.ends, position)
        return self.ends[number - 1] if number else -1


def established_by(facts: Facts, positions: Mapping[Symbol, int]) -> Established:
    """``positions``: where the sizes that have no values at the beginning get theirs."""
    if not positions:
        return Established((facts,), ())
    order = sorted(set(positions.values()))
    rank = {position: number for number, position in enumerate(order)}
    stages = facts.in_order({symbol: rank[position] for symbol, position in positions.items()})
    return Established(
        tuple(known for _, known in stages), tuple(order[number] for number, _ in stages[1:])
    )


def established(graph: Graph) -> Established:
    """What is known at each node, by its position."""
    positions: dict[Symbol, int] = {}
    if not graph.facts.tie_midrun():
        return Established((graph.facts,), ())
    for position, node in enumerate(graph.nodes):
        for output in node.outputs:
            for number in midrun_numbers(shown(output)):
                if isinstance(number, Symbol):
                    positions.setdefault(number, position)
    return established_by(graph.facts, positions)


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
    ordered = [*checks.get(-1, ())]
    for position, node in enumerate(nodes):
        ordered += [node, *checks.get(position, ())]
    return replace(graph, nodes=tuple(ordered))


def established_in(program: Program, facts: Facts) -> Established:
    """What is known at each step: a fact holds behind the last check of the size in it that is the
    last to have a value."""
    positions: dict[Symbol, int] = {}
    if not facts.tie_midrun():
        return Established((facts,), ())
    for number, step in enumerate(program.steps):
        for symbol in step.binds():
            positions.setdefault(symbol, number)
        if isinstance(step, CheckStep):
            bound = [symbol for symbol in midrun_numbers(step.condition) if symbol in positions]
            if bound:
                positions[max(bound, key=positions.__getitem__)] = number
    return established_by(facts, positions)


def shown(value: Value) -> Arg:
    """What a value's type says of it: its sizes, or its number."""
    return value.type.shape if isinstance(value.type, TensorType) else value.type.expr


def midrun_numbers(arg: Arg) -> Iterator[Symbol | ScalarInput]:
    """The sizes and numbers in an argument that only the run decides; numbers may be nested as
    deep as a program is long."""
    seen: set[int] = set()
    waiting = [arg]
    while waiting:
        match part := waiting.pop():
            case Expr() | Relation() | AllOf() | AnyOf():
                yield from (s for s in part.symbols if s.knowledge == "midrun")
            case ScalarInput():
                yield part
            case Scalar() if id(part) not in seen:
                seen.add(id(part))
                waiting.extend(reversed(part.args))
            case tuple():
                waiting.extend(reversed(part))
