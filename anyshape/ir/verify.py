"""What must hold of any graph and kernel, whoever made it; of programs, see ``verify_program.py``.

``verify_graph`` and its like return nothing and raise ``Malformed`` with the first thing that is
wrong. Run between passes in the tests and under ``options={"verify": True}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anyshape.ir.graph import Arg, Graph, Node, ScalarType, TensorType, Value, values_in
from anyshape.ir.known_sizes import sizes_of
from anyshape.ir.loops import (
    COMBINES,
    SCALAR_OPS,
    Kernel,
    Load,
    Moment,
    Op,
    PointerParam,
    Read,
    Reduce,
    ScalarParam,
    Scan,
    operands,
)
from anyshape.ir.nesting import head_symbols, made_in
from anyshape.symbolic import Expr, Space


class Malformed(ValueError):
    """A graph, kernel or program breaks a rule that all of them keep."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Malformed(message)


# --- graphs ---


def verify_graph(graph: Graph) -> None:
    """Values are defined once, before use; names are unique in a graph; sizes are of one space. A
    region reads its own inputs alone, and none of its symbols is seen outside."""
    defined: set[Value] = set()
    names: set[str] = set()
    for entry in graph.inputs:
        _define(entry.value, defined, names, graph.space)
    for node in graph.nodes:
        for value in node.inputs():
            _require(value in defined, f"{node.op} reads {value.name} before it is defined")
        _verify_args(node, graph.space)
        for region in node.regions:
            _require(region.space is graph.space, f"{node.op} mixes spaces")
            verify_graph(region)
            inside = head_symbols(node, region) | made_in(region)
            seen = {symbol for value in node.outputs for symbol in sizes_of(value)}
            _require(inside.isdisjoint(seen), f"a size of a region of {node.op} leaves it")
        for value in node.outputs:
            _define(value, defined, names, graph.space)
    for value in values_in(graph.outputs):
        _require(value in defined, f"the output {value.name} is not defined")


def _define(value: Value, defined: set[Value], names: set[str], space: Space) -> None:
    _require(value.name not in names, f"two values are named {value.name}")
    names.add(value.name)
    defined.add(value)
    if isinstance(value.type, TensorType):
        t = value.type
        _require(
            len(t.shape) == len(t.strides),
            f"{value.name} has {len(t.strides)} strides for {t.shape}",
        )
        _verify_dims((*t.shape, *t.strides), space, value.name)
    else:
        _require(isinstance(value.type, ScalarType), f"{value.name} has no type")


def _verify_dims(dims: Iterable[object], space: Space, owner: str) -> None:
    for dim in dims:
        _require(
            isinstance(dim, Expr) or (isinstance(dim, int) and not isinstance(dim, bool)),
            f"{owner} has {dim!r} for a size",
        )
        _require(not isinstance(dim, Expr) or dim.space is space, f"{owner} mixes spaces")


def _verify_args(node: Node, space: Space) -> None:
    for arg in _leaves((*node.args, *node.kwargs.values())):
        if isinstance(arg, Expr):
            _require(arg.space is space, f"{node.op} mixes spaces")
        _require(
            not isinstance(arg, (list, dict, set)), f"{node.op} has a {type(arg).__name__} argument"
        )


def _leaves(arg: Arg) -> Iterator[Arg]:
    if isinstance(arg, tuple):
        for item in arg:
            yield from _leaves(item)
    else:
        yield arg


# --- kernels ---


def verify_kernel(kernel: Kernel) -> None:
    """Elements read earlier elements and declared parameters, as many as their operators take."""
    pointers = {p.name for p in kernel.params if isinstance(p, PointerParam)}
    scalars = {p.name for p in kernel.params if isinstance(p, ScalarParam)}
    names = [p.name for p in kernel.params] + [
        a.name for a in (*kernel.axes, *kernel.reduction_axes)
    ]
    _require(len(set(names)) == len(names), "two parameters or axes have one name")
    for number, element in enumerate(kernel.elements):
        for read in operands(element):
            _require(0 <= read < number, f"v{number} reads v{read} before it is made")
        match element:
            case Load(pointer=pointer):
                _require(
                    pointer in pointers, f"v{number} loads from {pointer}, which is no parameter"
                )
            case Read(param=param):
                _require(param in scalars, f"v{number} reads {param}, which is no scalar parameter")
            case Op(op=op, args=args):
                _require(op in SCALAR_OPS, f"v{number}: no scalar operator {op}")
                _require(
                    len(args) == SCALAR_OPS[op].arity, f"v{number}: {op} of {len(args)} operands"
                )
            case Reduce(combine=combine) | Scan(combine=combine):
                _require(combine in COMBINES, f"v{number}: no combine {combine}")
                _require(bool(kernel.reduction_axes), f"v{number} reduces in a kernel without rows")
            case Moment(part=part, given=given):
                _require(bool(kernel.reduction_axes), f"v{number} reduces in a kernel without rows")
                least = 1 if part == "mean" else 2
                _require(least <= len(given) <= 2, f"v{number}: {part} near {len(given)} numbers")
    for store in kernel.stores:
        _require(store.pointer in pointers, f"a store into {store.pointer}, which is no parameter")
        for read in operands(store):
            _require(0 <= read < len(kernel.elements), f"a store of v{read}, which does not exist")
