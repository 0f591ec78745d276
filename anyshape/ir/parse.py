"""Reads what ``text.print_graph`` wrote, without torch.

In: the text of a graph. Out: a ``Graph`` in a space of its own that prints the same. Line by line:
comments give symbols, facts, modes and the user's lines; an assignment with a type comment is a
node; lines that only name sizes are skipped. Any other line is an error.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable
from typing import Any

from anyshape.ir.dtypes import DTYPES
from anyshape.ir.graph import (
    CHECK,
    HOST,
    Graph,
    Input,
    Location,
    Modes,
    Node,
    ScalarType,
    TensorType,
    Type,
    Value,
    row_major,
)
from anyshape.ir.scalars import Kind, Scalar, ScalarInput
from anyshape.ir.text import MEMORY_FORMATS
from anyshape.symbolic import (
    Condition,
    Dim,
    Expr,
    Facts,
    Space,
    Symbol,
    all_of,
    any_of,
    broadcast,
    eq,
    floordiv,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    mod,
    ne,
)

_SYMBOL = re.compile(r"# symbol (\w+): (\w+) (\w+)( signed)?(?: = (-?\d+))?$")
_INPUT = re.compile(r"    (\w+),  # (argument|parameter|constant) (.+) : (.+)$")
_NODE = re.compile(r"    (?:([\w, ]+) = )?(.+?)  # (\w+)(?: : (.*))?$")
_SKIPPED = re.compile(
    r"(import [\w.]+|def \w+\(|\):|    \w+ = \w+|    \w+ = \w+\.(shape\[\d+\]|stride\(\d+\)))?$"
)
_REGION = re.compile(r"    def (\w+)\($")
_LOCATION = re.compile(r"at (.+):(\d+):(\d+)-(\d+) in (.+)$")
_TENSOR = re.compile(r"(\w+)\[(.*?)\](?: strides \((.*?)\))?(?: on (\S+))?( grad)?( wrapped)?$")

_RELATIONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: eq, ast.NotEq: ne, ast.Lt: lt, ast.LtE: le, ast.Gt: gt, ast.GtE: ge,
}  # fmt: skip
_COMPARISONS = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_SIZES: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv, ast.Mod: mod, ast.Pow: lambda a, b: a**b, ast.Div: lambda a, b: a / b,
}  # fmt: skip
_SCALARS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow",
}  # fmt: skip


class ParseError(ValueError):
    """The text is not what ``print_graph`` writes."""


def parse_graph(text: str) -> Graph:
    """The graph that prints as ``text``."""
    return _Reader(text.splitlines()).graph()


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.space = Space()
        self.facts = Facts(self.space)
        self.hints: dict[Symbol, int] = {}
        self.values: dict[str, Value] = {}
        self.numbers: dict[str, ScalarInput] = {}
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.regions: dict[str, Graph] = {}
        self.outputs: tuple[Any, ...] = ()
        self.location: Location | None = None
        self.modes: Modes | None = None

    def graph(self) -> Graph:
        lines = deque(self.lines)
        while lines:
            line = lines.popleft()
            if found := _REGION.match(line):
                self.regions[found[1]] = self.region(lines)
            else:
                self.read(line)
        return Graph(
            self.space,
            self.facts,
            tuple(self.inputs),
            tuple(self.nodes),
            self.outputs,
            self.hints,
        )

    def region(self, lines: deque[str]) -> Graph:
        """A function inside the function: its lines are taken off."""
        inner = _Reader([])
        inner.space, inner.facts, inner.hints = self.space, self.facts.fork(), self.hints
        inner.numbers = self.numbers
        inner.location, inner.modes = self.location, self.modes
        while lines and (lines[0].startswith("        ") or lines[0] == "    ):"):
            inner.lines.append(lines.popleft()[4:])
        return inner.graph()

    def read(self, line: str) -> None:
        stripped = line.strip()
        if found := _SYMBOL.match(line):
            self.symbol(*found.groups())
        elif stripped.startswith("# fact "):
            condition = self.value_of(stripped.removeprefix("# fact "))
            if not isinstance(condition, bool):
                self.facts.assume(condition)
        elif stripped.startswith("# modes "):
            self.modes = self.modes_of(stripped.removeprefix("# modes "))
        elif stripped.startswith("# at "):
            self.location = _location(stripped.removeprefix("# "))
        elif stripped.startswith("assert "):
            self.check(stripped)
        elif stripped.startswith("return "):
            self.outputs = self.value_of(stripped.removeprefix("return "))
        elif found := _INPUT.match(line):
            self.input(*found.groups())
        elif line.startswith("    ") and (found := _NODE.match(line)):
            self.node(*found.groups())
        elif not _SKIPPED.match(line.rstrip()):
            raise ParseError(f"not a line of a graph: {line}")

    def symbol(
        self, name: str, policy: Any, knowledge: Any, signed: str | None, hint: str | None
    ) -> None:
        made = self.space.symbol(name, policy=policy, knowledge=knowledge, signed=bool(signed))
        if hint is not None and made.symbol is not None:
            self.hints[made.symbol] = int(hint)

    def input(self, name: str, kind: Any, source: str, type_text: str) -> None:
        value = self.define(name, type_text)
        self.inputs.append(Input(value, kind, ast.literal_eval(source)))

    def define(self, name: str, text: str) -> Value:
        value = Value(name, self.type_of(text))
        self.values[name] = value
        return value

    def node(self, targets: str | None, call: str, op: str, types: str | None) -> None:
        tree = ast.parse(call, mode="eval").body
        if not isinstance(tree, ast.Call):
            raise ParseError(f"not a call: {call}")
        args = tuple(self.evaluate(a) for a in tree.args)
        kwargs = {k.arg: self.evaluate(k.value) for k in tree.keywords if k.arg}
        names = [name.strip() for name in targets.split(",") if name.strip()] if targets else []
        texts = types.split(" ; ") if types else []
        outputs = tuple(self.define(n, t) for n, t in zip(names, texts, strict=True))
        regions = tuple(arg for arg in args if isinstance(arg, Graph))
        args = args[: len(args) - len(regions)]
        self.nodes.append(Node(op, args, kwargs, outputs, self.location, self.modes, regions))

    def check(self, line: str) -> None:
        code, _, comment = line.partition("  # ")
        statement = ast.parse(code).body[0]
        assert isinstance(statement, ast.Assert) and statement.msg is not None
        condition, message = self.evaluate(statement.test), self.evaluate(statement.msg)
        location = _location(comment) if comment else None
        self.nodes.append(Node(CHECK, (condition, message), {}, (), location, self.modes))

    def modes_of(self, text: str) -> Modes | None:
        if text == "none":
            return None
        if text == "default":
            return Modes()
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        return Modes(**{k.arg: self.evaluate(k.value) for k in call.keywords if k.arg})

    def type_of(self, text: str) -> Type:
        word, _, rest = text.partition(" ")
        kind = _KINDS.get(word)
        if kind is not None:
            return ScalarType(kind, self.number(kind, rest))
        found = _TENSOR.match(text)
        if found is None:
            raise ParseError(f"not a type: {text}")
        dtype, shape, strides, device, grad, wrapped = found.groups()
        sizes = self.dims(shape)
        steps = row_major(sizes) if strides is None else self.dims(strides)
        return TensorType(DTYPES[dtype], device or HOST, sizes, steps, bool(grad), bool(wrapped))

    def number(self, kind: Kind, text: str) -> Any:
        if text.isidentifier() and self.space.named(text) is None:
            self.numbers.setdefault(text, ScalarInput(text, kind))
        return self.value_of(text)

    def dims(self, text: str) -> tuple[Dim, ...]:
        found = self.value_of(f"({text},)") if text else ()
        return tuple(found)

    def value_of(self, text: str) -> Any:
        return self.evaluate(ast.parse(text, mode="eval").body)

    def evaluate(self, node: ast.expr) -> Any:
        """The argument that an expression of the printed text stands for."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute(attr=name):
                return name if name in MEMORY_FORMATS else DTYPES[name]
            case ast.Tuple(elts=items):
                return tuple(self.evaluate(item) for item in items)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, self.evaluate(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(type(op), self.evaluate(left), self.evaluate(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _compare(type(op), self.evaluate(left), self.evaluate(right))
            case ast.BoolOp(op=op, values=values):
                return _junction(type(op), [self.evaluate(v) for v in values])
            case ast.IfExp():
                return self.choice(node)
            case ast.Call(func=func, args=args):
                return _apply(ast.unparse(func), [self.evaluate(a) for a in args])
        raise ParseError(f"cannot read {ast.unparse(node)}")

    def name(self, name: str) -> Any:
        found = self.space.named(name)
        if found is not None and name in self.values:  # a number that is handed in, by its symbol
            return found
        for table in (self.numbers, self.values, self.regions):
            if name in table:
                return table[name]
        if found is None:
            raise ParseError(f"unknown name {name}")
        return found

    def unary(self, op: ast.unaryop, value: Any) -> Any:
        if isinstance(op, ast.Not):
            return Scalar("bool", "not", (value,))
        if isinstance(op, ast.UAdd):
            return Scalar("float", "pos", (value,))
        if isinstance(value, (Scalar, ScalarInput)):
            return Scalar(_kind(value), "neg", (value,))
        return -value

    def choice(self, node: ast.IfExp) -> Any:
        """``(a if a != 1 else b)`` is the broadcast of two sizes; else a scalar chooses."""
        chosen, other = self.evaluate(node.body), self.evaluate(node.orelse)
        test = node.test
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq):
            same = ast.dump(test.left) == ast.dump(node.body)
            if same and ast.unparse(test.comparators[0]) == "1" and not _is_scalar(chosen):
                return broadcast(chosen, other)
        return Scalar(_kind(chosen), "select", (self.evaluate(test), chosen, other))


def _location(text: str) -> Location:
    found = _LOCATION.match(text)
    if found is None:
        raise ParseError(f"not a location: {text}")
    file, line, column, end, function = found.groups()
    return Location(file, int(line), int(column), int(end), "" if function == "?" else function)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (Scalar, ScalarInput, float))


def _kind(value: Any) -> Any:
    if isinstance(value, (Scalar, ScalarInput)):
        return value.kind
    return "float" if isinstance(value, float) else "int"


def _binary(op: type[ast.operator], a: Any, b: Any) -> Any:
    symbolic = isinstance(a, (Expr, Scalar, ScalarInput)) or isinstance(
        b, (Expr, Scalar, ScalarInput)
    )
    negative_power = op is ast.Pow and not (isinstance(b, int) and b >= 0)
    if symbolic and (_is_scalar(a) or _is_scalar(b) or op is ast.Div or negative_power):
        return Scalar("float", _SCALARS[op], (a, b))
    return _SIZES[op](a, b)


def _compare(op: type[ast.cmpop], a: Any, b: Any) -> Any:
    if _is_scalar(a) or _is_scalar(b):
        return Scalar("bool", _COMPARISONS[op], (a, b))
    return _RELATIONS[op](a, b)


def _junction(op: type[ast.boolop], parts: list[Any]) -> Condition | Scalar | bool:
    if any(_is_scalar(p) for p in parts):
        return Scalar("bool", "and" if op is ast.And else "or", tuple(parts))
    return all_of(*parts) if op is ast.And else any_of(*parts)


_KINDS: dict[str, Kind] = {"int": "int", "float": "float", "bool": "bool"}
_RESULTS: dict[str, Kind] = {  # of functions of scalars; the others make floats
    **dict.fromkeys(("int", "round", "floor", "ceil", "trunc"), "int"),
    **dict.fromkeys(("bool", "isnan", "isinf", "isfinite"), "bool"),
}


def _apply(function: str, args: list[Any]) -> Any:
    """min, max, slice, float('inf') and the functions of scalars."""
    if function == "slice":
        return slice(*args)
    if function == "float" and isinstance(args[0], str):
        return float(args[0])
    name = function.removeprefix("math.")
    if name in ("min", "max") and not any(_is_scalar(a) for a in args):
        return (minimum if name == "min" else maximum)(*args)
    if name == "round" and len(args) == 2:
        name = "round_to"
    if function == "math.pow":
        name = "pow_of_floats"
    return Scalar(_RESULTS.get(name, "float"), name, tuple(args))
