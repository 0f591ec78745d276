"""A graph as Python that runs, and back: ``parse_graph(print_graph(g))`` prints the same text.

In: a graph and the dotted torch function of each row (the ``spell`` of the caller, since this layer
knows no rows). Out: a module with one function, which takes the graph's inputs as tensors and
returns its outputs. Comments carry what Python has no words for: each value's type, each symbol's
knowledge, the user's lines. ``parse.py`` reads the text back without torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from anyshape.ir.dtypes import DType
from anyshape.ir.graph import (
    CHECK,
    HOST,
    Arg,
    Graph,
    Location,
    Modes,
    Node,
    ScalarType,
    Type,
    Value,
    row_major,
)
from anyshape.ir.scalars import Operand, Scalar, ScalarInput, render_scalar
from anyshape.symbolic import AllOf, AnyOf, Expr, Facts, Relation, Symbol
from anyshape.symbolic import to_python as dim_text

Spell = Callable[[str], str]

MEMORY_FORMATS = frozenset(
    {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"}
)


def print_graph(graph: Graph, spell: Spell, name: str = "graph") -> str:
    """The graph as the text of a Python module that defines ``name``.

    >>> print(print_graph(doubled, spell))                                            # doctest:
    +SKIP import torch
    # s0: backed entry = 7
    def graph(
        x_0,  # argument 'x' : float32[s0]
    ):
        s0 = x_0.shape[0]
        # model.py:3, in forward
        add_0 = torch.add(x_0, x_0, alpha=1)  # add : float32[s0]
        return (add_0,)
    """
    body = _Body(graph, spell)
    lines = [*_parameters(graph), "):", *(f"    {line}" for line in body.lines())]
    facts = [*_facts(graph.facts)]
    used = set(_WORD.findall("\n".join((*lines, *facts))))
    roots = sorted({"torch", "math", *body.roots})
    head = [*(f"import {root}" for root in roots), "", *_symbols(graph, used), *facts, ""]
    return "\n".join([*head, f"def {name}(", *lines, ""])


_WORD = re.compile(r"[A-Za-z_]\w*")


def _symbols(graph: Graph, used: set[str]) -> Iterator[str]:
    for expr in graph.space:
        symbol = expr.symbol
        assert symbol is not None
        if symbol.name not in used:
            continue
        hint = f" = {graph.hints[symbol]}" if symbol in graph.hints else ""
        sign = " signed" if symbol.signed else ""
        yield f"# symbol {symbol.name}: {symbol.policy} {symbol.knowledge}{sign}{hint}"


def _facts(facts: Facts, around: Facts | None = None) -> Iterator[str]:
    """Those that do not hold around."""
    known = 0 if around is None else len(around.all())
    for condition, _ in facts.all()[known:]:
        yield f"# fact {dim_text(condition)}"


def _parameters(graph: Graph) -> Iterator[str]:
    for entry in graph.inputs:
        kind = type_text(entry.value.type)
        yield f"    {entry.value.name},  # {entry.kind} {entry.source!r} : {kind}"


# --- types and arguments ---


def type_text(t: Type) -> str:
    """``float32[s0, 64]``, with strides, device and flags where they are not the usual ones."""
    if isinstance(t, ScalarType):
        return f"{t.kind} {_number(t.expr)}"
    text = f"{t.dtype}[{', '.join(dim_text(d) for d in t.shape)}]"
    if t.strides != row_major(t.shape):
        text += f" strides ({', '.join(dim_text(d) for d in t.strides)})"
    if t.device != HOST:
        text += f" on {t.device}"
    return text + " grad" * t.requires_grad + " wrapped" * t.wrapped_number


def _number(expr: Operand) -> str:
    return render_scalar(expr, lambda s: s.name, lambda n: n.name)


def arg_text(arg: Arg) -> str:
    """An argument as Python text; sizes and scalars by the names of their symbols."""
    match arg:
        case Value():
            return arg.name
        case bool() | None:
            return repr(arg)
        case DType():
            return f"torch.{arg.name}"
        case float() | int() | Expr() | Scalar() | ScalarInput() | Relation() | AllOf() | AnyOf():
            return _number(arg)
        case str() if arg in MEMORY_FORMATS:
            return f"torch.{arg}"
        case tuple():
            items = [arg_text(item) for item in arg]
            return f"({', '.join(items)}{',' * (len(items) == 1)})"
        case slice():
            return f"slice({arg_text(arg.start)}, {arg_text(arg.stop)}, {arg_text(arg.step)})"
    return repr(arg)


class _Body:
    """The lines of the function, and the modules that they need."""

    def __init__(self, graph: Graph, spell: Spell) -> None:
        self.graph = graph
        self.spell = spell
        self.roots: set[str] = set()
        self.known: set[Symbol] = set()
        self.location: Location | None = None
        self.modes: Modes | None = None
        self.types: dict[Type, str] = {}  # of equal layers they are equal

    def type(self, value: Value) -> str:
        """The text of the value's type."""
        text = self.types.get(value.type)
        if text is None:
            text = self.types[value.type] = type_text(value.type)
        return text

    def lines(self) -> Iterator[str]:
        graph = self.graph
        for entry in graph.inputs:
            yield from self.bindings(entry.value)
        for number, node in enumerate(graph.nodes):
            yield from self.check(node) if node.op == CHECK else self.node(number, node)
        yield f"return {arg_text(graph.outputs)}"

    def bindings(self, value: Value) -> Iterator[str]:
        """Lines that name the sizes and numbers which this value decides."""
        if isinstance(value.type, ScalarType):
            expr = value.type.expr
            if isinstance(expr, ScalarInput) or (isinstance(expr, Expr) and self.is_new(expr)):
                yield f"{_number(expr)} = {value.name}"
            return
        for what, dims in (("shape[{}]", value.type.shape), ("stride({})", value.type.strides)):
            for d, dim in enumerate(dims):
                if isinstance(dim, Expr) and self.is_new(dim):
                    yield f"{dim_text(dim)} = {value.name}.{what.format(d)}"

    def is_new(self, expr: Expr) -> bool:
        if expr.symbol is None or expr.symbol in self.known:
            return False
        self.known.add(expr.symbol)
        return True

    def check(self, node: Node) -> Iterator[str]:
        condition, message = map(arg_text, node.args)
        yield f"assert {condition}, {message}{_at(node.location)}"

    def node(self, number: int, node: Node) -> Iterator[str]:
        if node.modes != self.modes:
            self.modes = node.modes
            yield f"# modes {modes_text(node.modes)}"
        if node.location is not None and node.location != self.location:
            self.location = node.location
            yield f"# {location_text(node.location)}"
        owner = node.outputs[0].name if node.outputs else f"{node.op}_at_{number}"
        regions = [f"{owner}_{n}" for n in range(len(node.regions))]
        for name, region in zip(regions, node.regions, strict=True):
            yield from self.region(name, region)
        function = self.spell(node.op)
        root, *rest = function.split(".")
        self.roots.add(root if root != "anyshape" else f"anyshape.{rest[0]}")
        args = [arg_text(a) for a in node.args]
        args += [
            f"{name}={arg_text(a)}" for name, a in node.kwargs.items()
            if not (name == "memory_format" and a is None)
        ]  # fmt: skip
        args += regions
        types = " : " + " ; ".join(map(self.type, node.outputs)) if node.outputs else ""
        names = ", ".join(v.name for v in node.outputs)
        comma = "," if node.regions and len(node.outputs) == 1 else ""  # they return tuples
        target = f"{names}{comma} = " if node.outputs else ""
        yield f"{target}{function}({', '.join(args)})  # {node.op}{types}"
        for value in node.outputs:
            yield from self.bindings(value)

    def region(self, name: str, region: Graph) -> Iterator[str]:
        """A function inside the function, with the facts that hold in it alone."""
        body = _Body(region, self.spell)
        body.roots, body.known, body.types = self.roots, set(self.known), self.types
        body.location, body.modes = self.location, self.modes
        lines = [*_facts(region.facts, self.graph.facts), *body.lines()]
        yield from (f"def {name}(", *_parameters(region), "):", *(f"    {line}" for line in lines))


def location_text(location: Location) -> str:
    """``at model.py:12:4-20 in forward``: columns are counted from 0."""
    columns = f":{location.column}-{location.end_column}"
    return f"at {location.file}:{location.line}{columns} in {location.function or '?'}"


def _at(location: Location | None) -> str:
    return "" if location is None else f"  # {location_text(location)}"


def modes_text(modes: Modes | None) -> str:
    """Only what is not the default."""
    if modes is None:
        return "none"
    default = Modes()
    found = []
    for name in Modes.__dataclass_fields__:
        value = getattr(modes, name)
        if value != getattr(default, name):
            found.append(f"{name}={arg_text(value)}")
    return ", ".join(found) or "default"


def equal(a: Graph, b: Graph, ops: Mapping[str, str] | None = None) -> bool:
    """Are the graphs the same but for the objects: names, types, arguments, all in order?"""
    spell = (lambda name: name) if ops is None else ops.__getitem__
    return print_graph(a, spell) == print_graph(b, spell)
