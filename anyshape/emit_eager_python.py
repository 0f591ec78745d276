"""A graph as one Python function on eager torch: what runs graphs that are run again and again.

In: a graph, and which of its values tell sizes (`reference.teachers`). Out: a function of its
inputs that gives what `reference.run(..., worlds=True)` gives, a line a node, or None where the
graph needs more than lines: numbers that floats make, or nodes in other modes than the first.
A value is let go where it is last read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyshape.eager import CheckFailed
from anyshape.ir.dtypes import DType
from anyshape.ir.graph import Arg, Graph, Node, ScalarType, Value, values_in
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.ops.table import OPS
from anyshape.reference import MEMORY_FORMATS, NUMBER_FIRST, decided_by, resolve, torch_dtype
from anyshape.symbolic import Expr, Symbol, to_python

Run = Callable[..., Any]


class NotStraight(Exception):
    """The graph needs more than a line a node."""


def only(result: Any) -> Any:
    """The one result of a function that gives them in a tuple."""
    return result[0] if isinstance(result, (tuple, list)) else result


def straight(graph: Graph, teachers: frozenset[Value]) -> Run | None:
    """The function; all of it runs in the grad mode that the caller is in."""
    if grad_mode(graph) is None:
        return None
    try:
        return _Writer(graph, teachers).function()
    except NotStraight:
        return None


def grad_mode(graph: Graph) -> bool | None:
    """The one that the program ran all nodes in; None where there were two, or none is known."""
    modes = {node.world.grad for node in graph.nodes if node.world is not None}
    return modes.pop() if len(modes) == 1 else None


class _Writer:
    """Writes the lines; constants have names of their own."""

    def __init__(self, graph: Graph, teachers: frozenset[Value]) -> None:
        self.graph = graph
        self.teachers = teachers
        self.scope: dict[str, Any] = {"Tensor": torch.Tensor, "only": only, "Failed": CheckFailed}
        self.names: dict[Value, str] = {}
        self.sizes: dict[Symbol, str] = {}
        self.lines: list[str] = []

    def function(self) -> Run:
        given = [self._named(entry.value) for entry in self.graph.inputs]
        for entry in self.graph.inputs:
            self._learn(entry.value)
        last = self._last_reads()
        for number, node in enumerate(self.graph.nodes):
            self._checks(number)
            self._node(node)
            done = [self.names[v] for v in last.get(number, ())]
            if done:
                self.lines.append(f"del {', '.join(done)}")
        self._checks(len(self.graph.nodes))
        self.lines.append(f"return {self._text(self.graph.outputs)}")
        body = "\n    ".join(self.lines)
        text = f"def run({', '.join(given)}):\n    {body}\n"
        exec(compile(text, "<anyshape graph>", "exec"), self.scope)
        made: Run = self.scope["run"]
        return made

    def _last_reads(self) -> Mapping[int, list[Value]]:
        """By the number of a node: what is made by nodes, and read by none after it."""
        kept = set(values_in(self.graph.outputs))
        last = {
            v: n for n, node in enumerate(self.graph.nodes) for v in (*node.outputs, *node.read)
        }
        inputs = {entry.value for entry in self.graph.inputs}
        found: dict[int, list[Value]] = {}
        for value, number in last.items():
            if value not in kept and value not in inputs:
                found.setdefault(number, []).append(value)
        return found

    def _named(self, value: Value) -> str:
        return self.names.setdefault(value, f"v{len(self.names)}")

    def _constant(self, what: Any) -> str:
        name = f"c{len(self.scope)}"
        self.scope[name] = what
        return name

    def _node(self, node: Node) -> None:
        args, kwargs = node.args, dict(node.kwargs)
        number_first = bool(args) and node.op in NUMBER_FIRST and _is_number(args[0])
        function = resolve(NUMBER_FIRST[node.op] if number_first else OPS[node.op].torch)
        if kwargs.get("memory_format", "") is None:  # torch wants it left out
            del kwargs["memory_format"]
        if number_first:  # Python's operators take no options
            kwargs = {name: value for name, value in kwargs.items() if value is not None}
        given = [*map(self._text, args), *(f"{k}={self._text(v)}" for k, v in kwargs.items())]
        made = [self._named(value) for value in node.outputs]
        call = f"{self._constant(function)}({', '.join(given)})"
        if len(made) == 1:
            self.lines.append(f"{made[0]} = {call}")
            if isinstance(node.outputs[0].type, ScalarType):
                self._learn(node.outputs[0])
                return
            self.lines.append(f"if {made[0]}.__class__ is not Tensor: {made[0]} = only({made[0]})")
        else:
            self.lines.append(f"{', '.join(made) or '_'} = {call}")
        for value in node.outputs:
            self._learn(value)

    def _learn(self, value: Value) -> None:
        """Lines for the sizes that the value is the first to tell."""
        if value not in self.teachers:
            return
        name, kind = self.names[value], value.type
        if isinstance(kind, ScalarType):
            if not isinstance(kind.expr, Expr):
                raise NotStraight
            self._size(kind.expr, f"int({name})")
            return
        for what, dims in (("shape[{}]", kind.shape), ("stride({})", kind.strides)):
            for place, dim in enumerate(dims):
                self._size(dim, f"{name}.{what.format(place)}")

    def _size(self, dim: Any, text: str) -> None:
        symbol = decided_by(dim)
        if symbol is None or symbol in self.sizes:
            return
        (scale,) = dim.terms.values()
        name = self.sizes[symbol] = f"n{len(self.sizes)}"
        plain = scale == 1 and dim.constant == 0
        self.lines.append(f"{name} = {text if plain else f'({text} - {dim.constant}) // {scale}'}")

    def _checks(self, after: int) -> None:
        for check in self.graph.checks:
            if check.after == after:
                condition = to_python(check.condition, self._size_name)
                self.lines.append(f"if not ({condition}): raise Failed({check.message!r})")

    def _size_name(self, symbol: Symbol) -> str:
        try:
            return self.sizes[symbol]
        except KeyError:
            raise NotStraight from None

    def _text(self, arg: Arg) -> str:
        match arg:
            case Value():
                return self.names[arg]
            case Expr():
                return f"({to_python(arg, self._size_name)})"
            case Scalar() | ScalarInput():
                raise NotStraight
            case None | bool() | int():
                return repr(arg)
            case tuple():
                return f"({''.join(f'{self._text(item)}, ' for item in arg)})"
            case slice():
                return f"slice({', '.join(map(self._text, (arg.start, arg.stop, arg.step)))})"
            case DType():
                return self._constant(torch_dtype(arg))
            case str() if arg in MEMORY_FORMATS:
                return self._constant(getattr(torch, arg))
            case str() | float() | complex():
                return self._constant(arg)
        raise NotStraight


def _is_number(arg: Arg) -> bool:
    return isinstance(arg, (int, float, Expr)) or (
        isinstance(arg, Value) and isinstance(arg.type, ScalarType)
    )
