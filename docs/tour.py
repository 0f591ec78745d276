"""anyshape in small: one file that captures, fuses, compiles and guards, for every shape at once.

Read it from top to bottom; each part names the package that does the same for real. It handles
functions of contiguous float32 tensors made of ``+ - *``, ``.relu()``, ``.exp()`` and
``x.shape[i]``, which is enough to show why a compiler for unknown shapes is built this way. Run
it: ``python docs/tour.py``.
"""

from __future__ import annotations

import ctypes
import dis
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

# --- 1. Sizes (anyshape.symbolic) -----------------------------------------------------------------
# A size nobody knows yet is a polynomial over named symbols, in a normal form: a sum of
# coefficients times sorted products. Two expressions are equal for all integers exactly when their
# normal forms are.

Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Size:
    terms: tuple[tuple[Monomial, int], ...]

    @classmethod
    def of(cls, value: Size | int | str) -> Size:
        if isinstance(value, Size):
            return value
        return (
            cls((((value,), 1),))
            if isinstance(value, str)
            else cls((((), value),) if value else ())
        )

    @classmethod
    def collect(cls, pairs: Iterator[tuple[Monomial, int]]) -> Size:
        total: dict[Monomial, int] = {}
        for monomial, coefficient in pairs:
            total[monomial] = total.get(monomial, 0) + coefficient
        return cls(tuple(sorted((m, c) for m, c in total.items() if c)))

    def __add__(self, other: Size | int) -> Size:
        return Size.collect(iter((*self.terms, *Size.of(other).terms)))

    def __mul__(self, other: Size | int) -> Size:
        pairs = ((a, x, b, y) for a, x in self.terms for b, y in Size.of(other).terms)
        return Size.collect((tuple(sorted(a + b)), x * y) for a, x, b, y in pairs)

    def __str__(self) -> str:
        parts = ["*".join([str(c), *m]) if c != 1 or not m else "*".join(m) for m, c in self.terms]
        return " + ".join(parts) or "0"


# --- 2. The graph (anyshape.ir) -------------------------------------------------------------------
# Values with types, nodes in order. It prints as Python that runs.


@dataclass(frozen=True, eq=False)
class Value:
    name: str
    shape: tuple[Size, ...]


@dataclass(frozen=True, eq=False)
class Node:
    op: str
    args: tuple[Value | float, ...]
    output: Value


@dataclass
class Graph:
    inputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    guards: list[tuple[Size, Size]] = field(default_factory=list)

    def call(self, op: str, *args: Value | float) -> Value:
        """The typed builder: a node cannot exist without the shape of its result."""
        shapes = [arg.shape for arg in args if isinstance(arg, Value)]
        for other in shapes[1:]:
            # Two sizes that are not known to be equal: rely on it, and say so. This is a guard.
            self.guards += [(a, b) for a, b in zip(shapes[0], other) if a != b]
        output = Value(f"t{len(self.nodes)}", shapes[0])
        self.nodes.append(Node(op, args, output))
        return output

    def __str__(self) -> str:
        lines = [f"def graph({', '.join(v.name for v in self.inputs)}):"]
        for node in self.nodes:
            args = ", ".join(arg.name if isinstance(arg, Value) else repr(arg) for arg in node.args)
            shape = ", ".join(map(str, node.output.shape))
            lines.append(f"    {node.output.name} = torch.{node.op}({args})  # [{shape}]")
        return "\n".join([*lines, f"    return {self.nodes[-1].output.name}"])


# --- 3. Capture (anyshape.capture) ----------------------------------------------------------------
# Run the user's bytecode with proxies for tensors and sizes; everything else is a real Python
# object, and simply happens. Nothing of CPython is patched, and the sizes of the example decide
# nothing.

BINARY = {"+": "add", "-": "sub", "*": "mul"}


def capture(fn: Callable[..., object], ranks: list[int]) -> Graph:
    graph = Graph()
    for position, rank in enumerate(ranks):
        shape = tuple(Size.of(f"s{position}{d}") for d in range(rank))
        graph.inputs.append(Value(f"x{position}", shape))
    names = fn.__code__.co_varnames
    local: dict[str, object] = dict(zip(names, graph.inputs))
    stack: list[object] = []
    for step in dis.get_instructions(fn):
        match step.opname:
            case "RESUME" | "PRECALL" | "CACHE" | "PUSH_NULL" | "NOP":
                pass
            case "LOAD_FAST":
                stack.append(local[step.argval])
            case "STORE_FAST":
                local[step.argval] = stack.pop()
            case "LOAD_CONST":
                stack.append(step.argval)
            case "LOAD_ATTR" | "LOAD_METHOD":
                owner = stack.pop()
                stack.append(owner.shape if step.argval == "shape" else (owner, step.argval))
            case "BINARY_SUBSCR":
                index = stack.pop()
                stack.append(stack.pop()[index])
            case "BINARY_OP":
                right, left = stack.pop(), stack.pop()
                if isinstance(left, Value) or isinstance(right, Value):
                    stack.append(graph.call(BINARY[step.argrepr], left, right))
                else:  # sizes and constants: Python does it
                    stack.append(left * right if step.argrepr == "*" else left + right)
            case "CALL":
                owner, method = stack.pop()
                stack.append(graph.call(method, owner))
            case "RETURN_VALUE":
                return graph
            case other:
                raise NotImplementedError(f"graph break: {other}")
    raise AssertionError("a function returns")


# --- 4. One fused kernel (anyshape.schedule, anyshape.targets) ------------------------------------
# All nodes have the domain of the result, so they become one loop whose extent is the product of
# symbolic sizes: the very same expressions are guards, allocations and loop bounds.

C_OPS = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "relu": "({0} > 0 ? {0} : ({0} == {0} ? 0 : {0}))",  # NaN stays NaN
    "exp": "expf({})",
}


def emit_c(graph: Graph) -> str:
    extent = Size.of(1)
    for size in graph.nodes[-1].output.shape:
        extent = extent * size
    symbols = sorted({s for m, _ in extent.terms for s in m})
    lines = []
    for node in graph.nodes:
        args = [_element(graph, arg) for arg in node.args]
        lines.append(f"        float {node.output.name} = {C_OPS[node.op].format(*args)};")
    pointers = ", ".join(f"const float *{v.name}" for v in graph.inputs)
    sizes = "".join(f", long {symbol}" for symbol in symbols)
    return "\n".join(
        [
            "#include <math.h>",
            f"void kernel({pointers}, float *out{sizes}) {{",
            f"    for (long i = 0; i < {extent}; i++) {{",
            *lines,
            f"        out[i] = {graph.nodes[-1].output.name};",
            "    }",
            "}",
        ]
    )


def _element(graph: Graph, arg: Value | float) -> str:
    if not isinstance(arg, Value):
        return f"{float(arg)}f"
    return f"{arg.name}[i]" if arg in graph.inputs else arg.name


def build(text: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as directory:
        target = str(Path(directory) / "kernel.so")
        command = [
            "cc",
            "-O3",
            "-march=native",
            "-shared",
            "-fPIC",
            "-x",
            "c",
            "-",
            "-o",
            target,
            "-lm",
        ]
        subprocess.run(command, input=text.encode(), check=True)
        return ctypes.CDLL(target)


# --- 5. Guards and dispatch (anyshape.dispatch) ---------------------------------------------------
# A specialization is used when what capture relied on holds. Sizes are bound from the arguments;
# only the equalities that the program itself needed are tested, so one compile serves every shape.


@dataclass
class Compiled:
    fn: Callable[..., object]
    graph: Graph | None = None
    compiles: int = 0

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        if self.graph is None:
            self.graph = capture(self.fn, [t.dim() for t in tensors])
            self.kernel = build(emit_c(self.graph)).kernel
            self.compiles += 1
        sizes = {
            symbol.terms[0][0][0]: size
            for value, tensor in zip(self.graph.inputs, tensors)
            for symbol, size in zip(value.shape, tensor.shape)
        }
        if not all(
            eval(str(a), {}, sizes) == eval(str(b), {}, sizes) for a, b in self.graph.guards
        ):
            return self.fn(*tensors)  # another specialization, for real
        shape = [eval(str(size), {}, sizes) for size in self.graph.nodes[-1].output.shape]
        out = torch.empty(shape)
        used = sorted(
            {s for size in self.graph.nodes[-1].output.shape for m, _ in size.terms for s in m}
        )
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (*tensors, out)]
        self.kernel(*pointers, *(ctypes.c_long(sizes[symbol]) for symbol in used))
        return out


# --- The tour -------------------------------------------------------------------------------------


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    h = x * y + 1.0
    return h.relu() - x.exp()


def main() -> None:
    n, m = Size.of("n"), Size.of("m")
    assert (n + m) * (n + m) == n * n + m * m + n * m * 2, (
        "equal for all integers: equal normal forms"
    )
    fast = Compiled(program)
    for shape in [(3, 5), (1, 1), (0, 4), (100, 33)]:
        x, y = torch.randn(shape), torch.randn(shape)
        torch.testing.assert_close(fast(x, y), program(x, y))
    print(fast.graph)
    print("guards:", ", ".join(f"{a} == {b}" for a, b in fast.graph.guards))
    print(emit_c(fast.graph))
    print(f"{fast.compiles} compile served 4 shapes")


if __name__ == "__main__":
    main()
