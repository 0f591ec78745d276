"""What one specialization relies on, as text: `fast.guards()` and the end of `explain`.

In: the guards of a specialization, its graph with the facts, and where its symbols came from. Out:
lines, section by section: symbols with their bounds and every fact about them, what is declared,
guards (tested before running; they choose the specialization), predicates (tested at a launch;
they choose a kernel), checks (tested while running; where one fails, the segment runs natively).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anyshape.capture.guards.guard_code import GuardSet
from anyshape.declare import BoundDeclaration
from anyshape.ir.graph import CHECK, Graph, checked
from anyshape.ir.nesting import nodes_in
from anyshape.ir.origins import made_by, origins
from anyshape.symbolic import Expr, Facts, Symbol


def describe_guards(
    guards: GuardSet, graph: Graph, names: Mapping[Symbol, str], declared: BoundDeclaration | None
) -> Iterator[str]:
    """The lines of one specialization."""
    sections = (
        ("symbols", [*_symbols(graph, names)]),
        ("declared", [*_declared(declared)]),
        ("guards", [_line(text, at) for text, at in guards.lines()]),
        ("predicates", ["none: each launch has one kernel"]),
        ("checks", [*_checks(graph)]),
    )
    for title, lines in sections:
        if lines:
            yield f"  {title}"
            yield from (f"    {line}" for line in lines)


def _line(text: str, why: object) -> str:
    return f"{text}  # {why}" if why is not None else text


def _symbols(graph: Graph, names: Mapping[Symbol, str]) -> Iterator[str]:
    facts = graph.facts.all()
    made = {s: f"a size of {made_by(n)}" for s, n in origins(nodes_in(graph))}
    for expr in graph.space:
        symbol = expr.symbol
        assert symbol is not None
        origin = names.get(symbol) or made.get(symbol)
        if origin is None:
            continue
        about = [(c, why) for c, why in facts if symbol in c.symbols]
        yield f"{symbol.name} = {origin}: {symbol.policy}, {_bounds(graph.facts, expr)}"
        yield from (f"  {_line(str(condition), why)}" for condition, why in about)


def _bounds(facts: Facts, expr: Expr) -> str:
    low, high = facts.bounds(expr)
    if low is not None and low == high:
        return f"always {low}"
    least = "" if low is None else f"{low} <= "
    most = "" if high is None else f" <= {high}"
    return f"{least}{expr}{most}" if least or most else "any integer"


def _declared(declared: BoundDeclaration | None) -> Iterator[str]:
    if declared is not None:
        for _, pattern in declared.patterns:
            yield f"{pattern.path.text}: {pattern.rule}"
        for assumption in declared.declaration.assumptions:
            yield f"assumed: {assumption.rule}"


def _checks(graph: Graph) -> Iterator[str]:
    for node in nodes_in(graph):
        if node.op == CHECK:
            yield _line("{}: {}".format(*checked(node)), node.location)
        if node.op == "check_false":
            yield _line("the data is as the program asserts", node.location)
