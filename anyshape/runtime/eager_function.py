"""A graph as one Python function on eager torch, a line a node: what runs graphs without kernels.

    %y = mul(%x, 3*n0); %z = exp(%y); return %z
    ->
    n0 = v0.shape[0]; v1 = c5(v0, (3*n0)); v2 = c6(v1); del v1; return (v2,)

In: a graph. Out: a function of its inputs that gives what ``reference.run(..., modes=True)`` gives.
A node runs in the grad mode that the program ran it in; a value is let go where it is last read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.profiler import record_function

from anyshape.eager import CheckFailed
from anyshape.ir.dtypes import DType
from anyshape.ir.graph import Arg, Graph, Location, Node, ScalarType, Value, values_in
from anyshape.ir.known_sizes import size_defining_values, symbol_given_by
from anyshape.ir.scalars import Scalar, ScalarInput, evaluate_scalar, names_of
from anyshape.known_builtins import generated
from anyshape.ops.table import OPS
from anyshape.symbolic import AllOf, AnyOf, Expr, Relation, Symbol, to_python
from anyshape.torch_names import MEMORY_FORMATS, resolve, torch_dtype

Run = Callable[..., Any]
Label = Callable[[str, Location | None], str]
CALLERS_MODE = "mode"
"""The name of the grad mode that the function was called in, which it leaves behind."""


def only(result: Any) -> Any:
    """The one result of a function that gives them in a tuple."""
    return result[0] if isinstance(result, (tuple, list)) else result


def viewed(x: torch.Tensor, *size: Any) -> torch.Tensor:
    """The tensor viewed; copied where a library laid it out otherwise than its type says: then the
    program has copied it before, by a ``contiguous`` that the type takes for the tensor itself."""
    try:
        return x.view(*size)
    except RuntimeError:
        return x.reshape(*size)


def eager_function(graph: Graph, label: Label | None = None, *, strict: bool = False) -> Run:
    """The function. It raises ``CheckFailed`` where a check of the graph does not hold. With a
    ``label``, profilers see each node by the name that it gives. ``strict``: nothing is copied in
    the place of a view that torch refuses."""
    return _Writer(graph, label, strict).function()


class _Writer:
    """Writes the lines; constants have names of their own."""

    def __init__(self, graph: Graph, label: Label | None, strict: bool) -> None:
        self.graph = graph
        self.label = label
        self.strict = strict
        self.defining = size_defining_values(graph)
        self.scope: dict[str, Any] = {
            "Tensor": torch.Tensor,
            "only": only,
            "Failed": CheckFailed,
            "scalar": evaluate_scalar,
            "is_grad_enabled": torch.is_grad_enabled,
            "set_grad": torch._C._set_grad_enabled,
            "record": record_function,
        }
        self.names: dict[Value, str] = {}
        self.sizes: dict[Symbol, str] = {}
        self.numbers: dict[ScalarInput, str] = {}
        self.lines: list[str] = []
        self.grad = CALLERS_MODE

    def function(self) -> Run:
        head, lines = self._function("run")
        made: Run = generated("\n".join([head, *lines]), "<anyshape graph>", self.scope, "run")
        return made

    def _function(self, name: str) -> tuple[str, list[str]]:
        """The first line of the function, and its body."""
        given = [self._named(entry.value) for entry in self.graph.inputs]
        for entry in self.graph.inputs:
            self._learn(entry.value)
        last = self._last_reads()
        for number, node in enumerate(self.graph.nodes):
            self._mode(node)
            self._node(node)
            done = [self.names[v] for v in last.get(number, ())]
            if done:
                self.lines.append(f"del {', '.join(done)}")
        self.lines.append(f"return {self._text(self.graph.outputs)}")
        return f"def {name}({', '.join(given)}):", self._body()

    def _region(self, region: Graph) -> str:
        """A function inside this one, which sees the sizes and numbers that are known here."""
        inner = _Writer(region, self.label, self.strict)
        inner.scope, inner.names, inner.grad = self.scope, self.names, self.grad
        inner.sizes, inner.numbers = dict(self.sizes), dict(self.numbers)
        name = f"region{sum(line.startswith('def ') for line in self.lines)}"
        head, lines = inner._function(name)
        self.lines += [head, *lines]
        return name

    def _body(self) -> list[str]:
        if not any(line.startswith("set_grad(") for line in self.lines):
            return [f"    {line}" for line in self.lines]
        inner = [f"        {line}" for line in self.lines]
        first = f"    {CALLERS_MODE} = is_grad_enabled()"
        return [first, "    try:", *inner, "    finally:", f"        set_grad({CALLERS_MODE})"]

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

    def _mode(self, node: Node) -> None:
        """The grad mode of the node; of one that says nothing, the caller's."""
        wanted = CALLERS_MODE if node.modes is None else repr(node.modes.grad)
        if wanted != self.grad:
            self.lines.append(f"set_grad({wanted})")
            self.grad = wanted

    def _node(self, node: Node) -> None:
        args, kwargs = node.args, dict(node.kwargs)
        row = OPS[node.op]
        number_first = row.number_first if args and _is_number(args[0]) else None
        is_viewed = node.op == "view" and not self.strict
        function = viewed if is_viewed else resolve(number_first or row.torch)
        if kwargs.get("memory_format", "") is None:  # torch wants it left out
            del kwargs["memory_format"]
        if number_first:  # Python's operators take no options
            kwargs = {name: value for name, value in kwargs.items() if value is not None}
        given = [*map(self._text, args), *(f"{k}={self._text(v)}" for k, v in kwargs.items())]
        given += map(self._region, node.regions)
        made = [self._named(value) for value in node.outputs]
        call = f"{self._constant(function)}({', '.join(given)})"
        recorded = (
            "" if self.label is None else f"with record({self.label(row.torch, node.location)!r}): "
        )
        if node.regions:
            self.lines.append(f"{recorded}{''.join(f'{name}, ' for name in made) or '_ '}= {call}")
        elif len(made) == 1:
            self.lines.append(f"{recorded}{made[0]} = {call}")
            if isinstance(node.outputs[0].type, ScalarType):
                self._learn(node.outputs[0])
                return
            self.lines.append(f"if {made[0]}.__class__ is not Tensor: {made[0]} = only({made[0]})")
        else:
            self.lines.append(f"{recorded}{', '.join(made) or '_'} = {call}")
        for value in node.outputs:
            self._learn(value)

    def _learn(self, value: Value) -> None:
        """Lines for the sizes and numbers that the value is the first to give."""
        if value not in self.defining:
            return
        name, kind = self.names[value], value.type
        if isinstance(kind, ScalarType):
            if isinstance(kind.expr, ScalarInput):
                number = self.numbers[kind.expr] = f"f{len(self.numbers)}"
                self.lines.append(f"{number} = {name}")
            else:
                self._size(kind.expr, f"int({name})")
            return
        for what, dims in (("shape[{}]", kind.shape), ("stride({})", kind.strides)):
            for position, dim in enumerate(dims):
                self._size(dim, f"{name}.{what.format(position)}")

    def _size(self, dim: Any, text: str) -> None:
        symbol = symbol_given_by(dim)
        if symbol is None or symbol in self.sizes:
            return
        (scale,) = dim.terms.values()
        name = self.sizes[symbol] = f"n{len(self.sizes)}"
        plain = scale == 1 and dim.constant == 0
        self.lines.append(f"{name} = {text if plain else f'({text} - {dim.constant}) // {scale}'}")

    def _text(self, arg: Any) -> str:
        match arg:
            case Value():
                return self.names[arg]
            case Expr() | Relation() | AllOf() | AnyOf():
                return f"({to_python(arg, self.sizes.__getitem__)})"
            case Scalar() | ScalarInput():
                return self._scalar(arg)
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
        return repr(arg)

    def _scalar(self, arg: Scalar | ScalarInput) -> str:
        """A number that Python's own functions make of sizes and numbers."""
        if isinstance(arg, ScalarInput):
            return self.numbers[arg]
        names = names_of(arg)
        sizes = {s: self.sizes[s] for s in names if isinstance(s, Symbol)}
        numbers = {n: self.numbers[n] for n in names if isinstance(n, ScalarInput)}
        given = f"{self._table(sizes)}, {self._table(numbers)}"
        return f"scalar({self._constant(arg)}, {given})"

    def _table(self, names: Mapping[Any, str]) -> str:
        return f"{{{', '.join(f'{self._constant(key)}: {name}' for key, name in names.items())}}}"


def _is_number(arg: Arg) -> bool:
    return isinstance(arg, (int, float, Expr, Scalar, ScalarInput)) or (
        isinstance(arg, Value) and isinstance(arg.type, ScalarType)
    )


def without_autocast(run: Run, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Casts are nodes of the graph already."""
    if not torch._C._is_any_autocast_enabled():
        return run(*given)
    with torch._C._DisableAutocast():
        return run(*given)
