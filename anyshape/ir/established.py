"""Which facts hold at which node of a graph: those that have been tested by then.

In: a graph, or who gives sizes their values. Out: the facts at each position. A check that names a
size which data decides is made where that size gets its value; what it says of other sizes does not
hold before. Where no fact ties such a size to another one, the same facts hold everywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from dataclasses import field

from anyshape.ir.graph import CHECK, Arg, Graph, Node, TensorType, Value, checked
from anyshape.ir.program import CheckStep, Program
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.nouns import frozen, mutable, replace
from anyshape.symbolic import (
    AllOf,
    AnyOf,
    Expr,
    Facts,
    Relation,
    Symbol,
    SymbolsSeen,
    age,
    nothing_cancelled,
)


@frozen(eq=False)
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


def established(graph: Graph, around: Set[Symbol] = frozenset()) -> Established:
    """What is known at each node, by its position; ``around`` a region sizes have values."""
    if not graph.facts.tie_midrun():
        return Established((graph.facts,), ())
    binders = binders_of(graph, around)
    return established_by(graph.facts, {s: n for s, n in binders.items() if isinstance(s, Symbol)})


def hoist_checks(graph: Graph, around: Set[Symbol] = frozenset()) -> Graph:
    """Each check directly behind what gives the last of its sizes its value, or at the beginning.

    n = nonzero(x); y = x + 1; check(n >= 2)   ->   n = nonzero(x); check(n >= 2); y = x + 1
    """
    checks: dict[int, list[Node]] = {}
    nodes = [node for node in graph.nodes if node.op != CHECK]
    if len(nodes) == len(graph.nodes):
        return graph
    last = Last(binders_of(replace(graph, nodes=tuple(nodes)), around))
    for check in (node for node in graph.nodes if node.op == CHECK):
        checks.setdefault(last.of(checked(check)[0]), []).append(check)
    ordered = [*checks.get(-1, ())]
    for position, node in enumerate(nodes):
        ordered += [node, *checks.get(position, ())]
    return replace(graph, nodes=tuple(ordered))


def established_in(program: Program, facts: Facts) -> Established:
    """What is known at each step: a fact holds behind the last check of the size in it that is the
    last to have a value."""
    positions: dict[Symbol, int] = {}
    behind: dict[int, Symbol] = {}  # the size that a check was the last one of, by the check
    if not facts.tie_midrun():
        return Established((facts,), ())
    for number, step in enumerate(program.steps):
        for symbol in step.binds():
            positions.setdefault(symbol, number)
        if isinstance(step, CheckStep) and not isinstance(step.condition, bool):
            bound = step.condition.symbols & positions.keys()
            if bound:
                latest = max(map(positions.__getitem__, bound))
                together = (symbol for symbol in bound if positions[symbol] == latest)
                newest = behind.get(latest) or max(together, key=age)
                positions[newest] = number
                behind[number] = newest
    return established_by(facts, positions)


def binders_of(graph: Graph, around: Set[Symbol]) -> dict[Symbol | ScalarInput, int]:
    """The position of the node that gives each size and number its value that only the run decides;
    what partial sums share is looked at once. Those of the inputs, as of a backward half, and
    those ``around`` a region have theirs from the beginning."""
    found: dict[Symbol | ScalarInput, int] = {}
    given = {number for entry in graph.inputs for number in midrun_numbers(shown(entry.value))}
    given |= around
    sizes = SymbolsSeen()
    shapes: set[tuple[Arg, ...]] = set()
    for position, node in enumerate(graph.nodes):
        for output in node.outputs:
            seen = shown(output)
            if isinstance(seen, tuple):
                if seen in shapes:
                    continue
                shapes.add(seen)
            for part in seen if isinstance(seen, tuple) else (seen,):
                numbers = sizes.add(part) if isinstance(part, Expr) else midrun_numbers(part)
                for number in numbers:
                    midrun = isinstance(number, ScalarInput) or number.knowledge == "midrun"
                    if midrun and number not in given:
                        found.setdefault(number, position)
    return found


@mutable(eq=False)
class Last:
    """Which of the sizes and numbers in an argument is the last to have a value: its position, -1
    where all have theirs from the beginning. Of partial sums only what was added is looked at."""

    binders: Mapping[Symbol | ScalarInput, int]
    known: dict[Expr, int] = field(default_factory=dict)

    def of(self, arg: Arg) -> int:
        """The position for an argument; numbers may be nested as deep as a program is long."""
        last = -1
        seen: set[int] = set()
        waiting = [arg] if self.binders else []
        while waiting:
            match part := waiting.pop():
                case Expr():
                    last = max(last, self._of_size(part))
                case Relation():
                    last = max(last, self._of_size(part.form))
                case ScalarInput():
                    last = max(last, self.binders.get(part, -1))
                case AllOf() | AnyOf():
                    waiting.extend(part.parts)
                case Scalar() if id(part) not in seen:
                    seen.add(id(part))
                    waiting.extend(part.args)
                case tuple():
                    waiting.extend(part)
        return last

    def _of_size(self, size: Expr) -> int:
        made: list[tuple[Expr, Expr]] = []
        while (last := self.known.get(size)) is None and size.parts is not None:
            if not nothing_cancelled(size):
                break
            made.append((size, size.parts[1]))
            size = size.parts[0]
        if last is None:
            bound = map(self.binders.__getitem__, size.symbols & self.binders.keys())
            last = self.known[size] = max(bound, default=-1)
        for later, added in reversed(made):
            last = self.known[later] = max(last, self._of_size(added))
        return last


def shown(value: Value) -> Arg:
    """What a value's type says of it: its sizes, or its number."""
    return value.type.shape if isinstance(value.type, TensorType) else value.type.expr


def midrun_numbers(arg: Arg) -> Sequence[Symbol | ScalarInput]:
    """The sizes and numbers in an argument that only the run decides; numbers may be nested as
    deep as a program is long."""
    found: list[Symbol | ScalarInput] = []
    seen: set[int] = set()
    waiting = [arg]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += [each for each in reversed(part) if each.__class__ not in OF_NO_NUMBERS]
        elif isinstance(part, OF_SIZES):
            found += [symbol for symbol in part.symbols if symbol.knowledge == "midrun"]
        elif isinstance(part, ScalarInput):
            found.append(part)
        elif isinstance(part, Scalar) and id(part) not in seen:
            seen.add(id(part))
            waiting.extend(reversed(part.args))
    return found


OF_NO_NUMBERS = frozenset({int, float, bool, str, type(None), Value})
OF_SIZES = Expr, Relation, AllOf, AnyOf
