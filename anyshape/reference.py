"""Runs a graph node by node on eager torch: the oracle of every test and of ``verify``.

In: a graph, at any stage between capture and lowering, and a tensor (or number) for each of its
inputs. Out: its outputs. Each node calls the dotted function that its row names: torch's own, or
one of ``eager.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch

from anyshape.eager import CheckFailed
from anyshape.ir.dtypes import DType
from anyshape.ir.graph import Arg, Graph, Node, ScalarType, TensorType, Value
from anyshape.ir.known_sizes import symbol_given_by, symbol_value
from anyshape.ir.scalars import Scalar, ScalarInput, evaluate_scalar
from anyshape.ops.table import OPS, OpDef
from anyshape.symbolic import AllOf, AnyOf, Expr, Relation, Symbol, evaluate
from anyshape.torch_names import MEMORY_FORMATS, resolve, torch_dtype

Tensor = torch.Tensor


class TypeMismatch(AssertionError):
    """A node's result has not the dtype, shape or strides that its type rule predicted."""


def strides_that_matter(tensor: Tensor) -> tuple[int, ...]:
    """Strides of dimensions of two elements and more, none for an empty tensor."""
    if tensor.numel() == 0:
        return ()
    return tuple(st for size, st in zip(tensor.shape, tensor.stride()) if size > 1)


class Environment:
    """What is known while a graph runs: tensors by value, sizes by symbol, numbers by input."""

    def __init__(self, region: Callable[..., Any] | None = None) -> None:
        self.region = region
        self.values: dict[Value, Any] = {}
        self.sizes: dict[Symbol, int] = {}
        self.numbers: dict[ScalarInput, int | float | bool] = {}

    def read(self, arg: Arg) -> Any:
        """The argument as torch wants it."""
        match arg:
            case Value():
                return self.values[arg]
            case Expr() | Relation() | AllOf() | AnyOf():
                return evaluate(arg, self.sizes)
            case Scalar() | ScalarInput():
                return evaluate_scalar(arg, self.sizes, self.numbers)
            case DType():
                return torch_dtype(arg)
            case str() if arg in MEMORY_FORMATS:
                return getattr(torch, arg)
            case tuple():
                return tuple(self.read(item) for item in arg)
            case slice():
                return slice(self.read(arg.start), self.read(arg.stop), self.read(arg.step))
        return arg

    def write(self, value: Value, result: Any) -> None:
        """Keeps a result, and the sizes and numbers that it decides."""
        self.values[value] = result
        if isinstance(value.type, ScalarType):
            self._learn_number(value.type, result)
        elif isinstance(result, Tensor):
            for dim, size in zip(value.type.shape, result.shape, strict=True):
                self._learn_size(dim, size)
            for dim, size in zip(value.type.strides, result.stride(), strict=True):
                self._learn_size(dim, size)

    def _learn_number(self, t: ScalarType, number: Any) -> None:
        if isinstance(t.expr, Expr):
            self._learn_size(t.expr, int(number))
        elif isinstance(t.expr, ScalarInput):
            self.numbers[t.expr] = number

    def _learn_size(self, dim: Any, size: int) -> None:
        symbol = symbol_given_by(dim)
        if symbol is not None:
            self.sizes.setdefault(symbol, symbol_value(dim, size))


def run(
    graph: Graph,
    inputs: Sequence[Any],
    sizes: Mapping[Symbol, int] | None = None,
    *,
    check_types: bool | Literal["shapes"] = False,
    ops: Mapping[str, OpDef] = OPS,
    modes: bool = False,
    laid_out: bool = False,
    numbers: Mapping[ScalarInput, int | float | bool] | None = None,
) -> Any:
    """The outputs of the graph for these inputs.

    ``sizes`` and ``numbers`` give what no input decides. ``check_types`` compares every result
    with its type (``"shapes"``: strides left out) and raises ``TypeMismatch``. Raises
    ``CheckFailed`` where a check of the graph does not hold. ``modes``: gradients are recorded
    for the nodes that the program ran in grad mode, and for no others. ``laid_out``: what a node
    makes anew gets the strides of its type, which passes keep where eager's own would differ.
    """
    env = Environment(partial(_region, check_types=check_types, ops=ops, laid_out=laid_out))
    env.sizes.update(sizes or {})
    env.numbers.update(numbers or {})
    for declared, given in zip(graph.inputs, inputs, strict=True):
        env.write(declared.value, given)
    for node in graph.nodes:
        if modes and node.modes is not None and node.modes.grad is not torch.is_grad_enabled():
            with torch.set_grad_enabled(node.modes.grad):
                _run_node(node, env, ops, check_types)
        else:
            _run_node(node, env, ops, check_types)
        if laid_out and ops[node.op].alias == "none":
            _lay_out(node, env)
    return env.read(graph.outputs)


def _region(region: Graph, env: Environment, **options: Any) -> Callable[..., Any]:
    """A region as the function that the rows of ``ops/regions`` want."""
    return lambda *given: run(region, given, env.sizes, numbers=env.numbers, **options)


def _run_node(
    node: Node, env: Environment, ops: Mapping[str, OpDef], check_types: bool | str
) -> None:
    args = env.read(node.args)
    row = ops[node.op]
    number_first = row.number_first if args and isinstance(args[0], (int, float)) else None
    function = resolve(number_first or row.torch)
    kwargs = {name: env.read(arg) for name, arg in node.kwargs.items()}
    if kwargs.get("memory_format", "") is None:  # torch wants it left out
        del kwargs["memory_format"]
    if number_first:  # Python's operators take no options
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
    regions = (env.region(region, env) for region in node.regions) if env.region else ()
    result = function(*args, *regions, **kwargs)
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    for value, made in zip(node.outputs, results, strict=True):
        env.write(value, made)
        if ops[node.op].guessed and not _is_as_guessed(value, made, env.sizes):
            raise CheckFailed(f"{node.op} did not as its meta kernel")
        if check_types and isinstance(value.type, TensorType):
            problem = type_problem(value.type, made, env.sizes, strides=check_types is True)
            if problem and ops[node.op].alias == "maybe":  # a view where a copy was predicted
                problem = type_problem(value.type, made.contiguous(), env.sizes)
            if problem:
                raise TypeMismatch(f"{node.op}: {problem}")


def _is_as_guessed(value: Value, made: Any, sizes: Mapping[Symbol, int]) -> bool:
    return not isinstance(value.type, TensorType) or type_problem(value.type, made, sizes) is None


def _lay_out(node: Node, env: Environment) -> None:
    for value in node.outputs:
        made = env.values[value]
        if isinstance(value.type, TensorType) and isinstance(made, Tensor):
            strides = tuple(_number(dim, env.sizes) for dim in value.type.strides)
            copy = torch.empty_strided(made.shape, strides, dtype=made.dtype, device=made.device)
            if strides_that_matter(copy) != strides_that_matter(made):
                env.values[value] = copy.copy_(made)


def type_problem(
    t: TensorType, made: Tensor, sizes: Mapping[Symbol, int], *, strides: bool = True
) -> str | None:
    """How a tensor differs from its type, or None; strides count where a size is above 1."""
    shape = tuple(_number(dim, sizes) for dim in t.shape)
    steps = tuple(_number(dim, sizes) for dim in t.strides) if strides else ()
    if torch_dtype(t.dtype) is not made.dtype:
        return f"dtype {made.dtype}, predicted {t.dtype}"
    if tuple(made.shape) != shape:
        return f"shape {tuple(made.shape)}, predicted {shape} = {t.shape}"
    if made.numel() > 0 and strides:
        pairs = zip(made.shape, made.stride(), steps, strict=True)
        if any(have != want for size, have, want in pairs if size > 1):
            return f"strides {made.stride()}, predicted {steps} = {t.strides} for shape {shape}"
    return None


def _number(dim: Any, sizes: Mapping[Symbol, int]) -> int:
    return dim if isinstance(dim, int) else int(evaluate(dim, sizes))
