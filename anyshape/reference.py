"""Runs a graph node by node on eager torch: the oracle of every test and of ``verify``.

In: a graph, at any stage between capture and lowering, and a tensor (or number) for each of its
inputs. Out: its outputs. Each node calls the dotted function that its row names; core rows that
torch does not have under such parameters have their meaning here, as small functions with the row's
own parameters.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import torch
import torch.nn.functional as F

from anyshape.ir.dtypes import DType
from anyshape.ir.graph import Arg, Graph, Node, ScalarType, TensorType, Value
from anyshape.ir.scalars import Scalar, ScalarInput, evaluate_scalar
from anyshape.ops.table import OPS, OpDef
from anyshape.symbolic import AllOf, AnyOf, Expr, Relation, Symbol, evaluate

Tensor = torch.Tensor

MEMORY_FORMATS = frozenset(
    {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"}
)
NUMBER_FIRST: Mapping[str, str] = MappingProxyType(
    {
        "sub": "operator.sub",
        "div": "operator.truediv",
        "true_divide": "operator.truediv",
        "floor_divide": "operator.floordiv",
        "remainder": "operator.mod",
        "lt": "operator.lt",
        "le": "operator.le",
        "gt": "operator.gt",
        "ge": "operator.ge",
    }
)
"""What computes ``2 - x``: torch's own functions want a tensor first."""


class TypeMismatch(AssertionError):
    """A node's result has not the dtype, shape or strides that its type rule predicted."""


class CheckFailed(RuntimeError):
    """A check of the graph does not hold for these inputs."""


def strides_that_matter(tensor: Tensor) -> tuple[int, ...]:
    """Strides of dimensions of two elements and more, none for an empty tensor."""
    if tensor.numel() == 0:
        return ()
    return tuple(st for size, st in zip(tensor.shape, tensor.stride()) if size > 1)


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch constant of a dtype."""
    return getattr(torch, dtype.name)  # type: ignore[no-any-return]


@functools.cache
def resolve(dotted: str) -> Callable[..., Any]:
    """The callable that a dotted name means, such as ``torch.Tensor.T.__get__``."""
    head, *rest = dotted.split(".")
    found: Any = importlib.import_module("anyshape.reference" if head == "anyshape" else head)
    for name in rest[1:] if head == "anyshape" else rest:
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]


class Environment:
    """What is known while a graph runs: tensors by value, sizes by symbol, numbers by input."""

    def __init__(self, teachers: frozenset[Value] | None = None) -> None:
        self.teachers = teachers
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
        if self.teachers is not None and value not in self.teachers:
            return
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
        """Solves ``scale * symbol + offset == size`` for a symbol not known yet."""
        symbol = _told(dim)
        if symbol is not None:
            (scale,) = dim.terms.values()
            self.sizes.setdefault(symbol, (size - dim.constant) // scale)


def teachers(graph: Graph) -> frozenset[Value]:
    """The values whose sizes, strides or numbers tell something that no earlier value told."""
    found: set[Value] = set()
    known: set[Symbol] = set()
    made = (value for node in graph.nodes for value in node.outputs)
    for value in (*(entry.value for entry in graph.inputs), *made):
        kind = value.type
        if isinstance(kind, ScalarType):
            found.add(value)
            continue
        told = {symbol for dim in (*kind.shape, *kind.strides) if (symbol := _told(dim))}
        if not told <= known:
            found.add(value)
            known |= told
    return frozenset(found)


def _told(dim: Any) -> Symbol | None:
    """The symbol that the value of this size decides, given nothing else."""
    if not isinstance(dim, Expr) or len(dim.terms) != 1:
        return None
    (factors,) = dim.terms
    return factors[0] if len(factors) == 1 and isinstance(factors[0], Symbol) else None


def run(
    graph: Graph,
    inputs: Sequence[Any],
    sizes: Mapping[Symbol, int] | None = None,
    *,
    check_types: bool | Literal["shapes"] = False,
    ops: Mapping[str, OpDef] = OPS,
    worlds: bool = False,
    teachers: frozenset[Value] | None = None,
) -> Any:
    """The outputs of the graph for these inputs.

    ``sizes`` gives symbols that no input's shape decides. ``check_types`` compares every result
    with its type (``"shapes"``: strides left out) and raises ``TypeMismatch``. Raises
    ``CheckFailed`` where a check of the graph does not hold. ``worlds``: gradients are recorded
    for the nodes that the program ran in grad mode, and for no others. ``teachers``: those of the
    graph, worked out once for many runs.
    """
    env = Environment(teachers)
    env.sizes.update(sizes or {})
    for declared, given in zip(graph.inputs, inputs, strict=True):
        env.write(declared.value, given)
    checks = {
        after: [c for c in graph.checks if c.after == after]
        for after in {c.after for c in graph.checks}
    }
    for number, node in enumerate(graph.nodes):
        _run_checks(checks.get(number, ()), env)
        if worlds and node.world is not None and node.world.grad is not torch.is_grad_enabled():
            with torch.set_grad_enabled(node.world.grad):
                _run_node(node, env, ops, check_types)
        else:
            _run_node(node, env, ops, check_types)
    _run_checks(checks.get(len(graph.nodes), ()), env)
    return env.read(graph.outputs)


def _run_checks(checks: Sequence[Any], env: Environment) -> None:
    for check in checks:
        if not env.read(check.condition):
            raise CheckFailed(check.message)


def _run_node(
    node: Node, env: Environment, ops: Mapping[str, OpDef], check_types: bool | str
) -> None:
    args = env.read(node.args)
    number_first = bool(args) and isinstance(args[0], (int, float)) and node.op in NUMBER_FIRST
    function = resolve(NUMBER_FIRST[node.op] if number_first else ops[node.op].torch)
    kwargs = {name: env.read(arg) for name, arg in node.kwargs.items()}
    if kwargs.get("memory_format", "") is None:  # torch wants it left out
        del kwargs["memory_format"]
    if number_first:  # Python's operators take no options
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
    result = function(*args, **kwargs)
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    for value, made in zip(node.outputs, results, strict=True):
        env.write(value, made)
        if check_types and isinstance(value.type, TensorType):
            problem = type_problem(value.type, made, env.sizes, strides=check_types is True)
            if problem and ops[node.op].alias == "maybe":  # a view where a copy was predicted
                problem = type_problem(value.type, made.contiguous(), env.sizes)
            if problem:
                raise TypeMismatch(f"{node.op}: {problem}")


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


# --- the meaning of core rows that torch has under other parameters ---


def full(size: Any, fill_value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return torch.full(size, fill_value, dtype=dtype, device=device)


def zeros(size: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return torch.zeros(size, dtype=dtype, device=device)


def ones(size: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return torch.ones(size, dtype=dtype, device=device)


def empty(size: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return torch.empty(size, dtype=dtype, device=device)


def arange(length: int, start: Any, step: Any, dtype: torch.dtype, device: str) -> Tensor:
    """``start + i * step`` for ``i < length``, in torch's own arithmetic."""
    if length == 0:
        return torch.empty(0, dtype=dtype, device=device)
    if dtype.is_floating_point or isinstance(start, float) or isinstance(step, float):
        end = start + step * (length - 0.5)
        return torch.arange(start, end, step, dtype=dtype, device=device)
    return torch.arange(start, start + step * length, step, dtype=dtype, device=device)


def to_dtype(input: Tensor, dtype: torch.dtype) -> Tensor:
    return input.to(dtype, copy=True)


def to(
    input: Tensor,
    dtype: Any = None,
    device: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    form = memory_format or torch.preserve_format
    return input.to(device=device, dtype=dtype or input.dtype, copy=copy, memory_format=form)


def to_device(input: Tensor, device: str) -> Tensor:
    return input.to(device)


def alias(input: Tensor) -> Tensor:
    return input.view_as(input)


def slice_(input: Tensor, dim: int, start: int, length: int, step: int = 1) -> Tensor:
    """``length`` elements of ``dim``, from ``start`` in steps."""
    stop = start + (length - 1) * step + 1 if length else start
    return input[(builtins.slice(None),) * dim + (builtins.slice(start, stop, step),)]


def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int,
    start: int,
    length: int,
    step: int = 1,
) -> Tensor:
    made = input.clone()
    slice_(made, dim, start, length, step).copy_(src)
    return made


def pad(input: Tensor, pads: Any, value: Any) -> Tensor:
    """Constant padding, one (low, high) pair for each dimension."""
    flat = [n for pair in reversed(pads) for n in pair]
    return F.pad(input, flat, value=value) if flat else input.clone()


def index(input: Tensor, indices: Any) -> Tensor:
    """``input[indices]`` with a tensor or nothing for each dimension."""
    return input[tuple(builtins.slice(None) if i is None else i for i in indices)]


def index_put(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    return index_put_(input.clone(), indices, values, accumulate)


def index_put_(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    places = tuple(builtins.slice(None) if i is None else i for i in indices)
    if not accumulate:
        input[places] = values
        return input
    full_places = [
        torch.arange(n).view(-1, *(1,) * 0) if i is None else i
        for i, n in zip(indices, input.shape)
    ]
    return input.index_put_(tuple(_outer(indices, full_places, input)), values, accumulate=True)


def _outer(indices: Any, places: list[Tensor], x: Tensor) -> list[Tensor]:
    """Index tensors that spell out the dimensions without one, in the layout of ``x[indices]``."""
    numbers = torch.arange(x.numel(), device=x.device).view(x.shape)
    flat = numbers[tuple(builtins.slice(None) if i is None else i for i in indices)]
    made = []
    for size in reversed(x.shape):
        made.append(flat % size)
        flat = flat // size
    return made[::-1]


def scatter(input: Tensor, dim: int, index: Tensor, src: Any, *, reduce: Any = None) -> Tensor:
    kwargs = {} if reduce is None else {"reduce": reduce}
    return torch.scatter(input, dim, index, src, **kwargs)


def round_(input: Tensor, *, decimals: int = 0) -> Tensor:
    if not input.dtype.is_floating_point:
        return input.clone()
    return torch.round(input, decimals=decimals) if decimals else torch.round(input)


def masked_index(input: Tensor, indices: Any) -> Tensor:
    return index(input, indices)


def masked_index_put(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    return input.clone().index_put_(indices, values, accumulate)


def masked_index_put_(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """``index_put_`` with masks among the indices."""
    return input.index_put_(indices, values, accumulate)


def nan_to_num_core(input: Tensor, nan: float, posinf: float, neginf: float) -> Tensor:
    return torch.nan_to_num(input, nan, posinf, neginf)


def assign(input: Tensor, value: Tensor) -> tuple[()]:
    """Copies ``value`` into ``input``."""
    input.copy_(value)
    return ()


def check_false(condition: Tensor) -> tuple[()]:
    """Raises ``CheckFailed`` where the condition holds."""
    if bool(condition):
        raise CheckFailed("an index is out of range")
    return ()


def overwrite(input: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return torch.empty_like(input).copy_(src)


def filled(input: Tensor, value: Any) -> Tensor:
    return torch.empty_like(input).fill_(value)


def zeroed(input: Tensor) -> Tensor:
    return torch.zeros_like(input)


def meshgrid(tensors: Any, *, indexing: str = "ij") -> Any:
    return torch.meshgrid(*tensors, indexing=indexing)


def histogram(input: Tensor, bins: Any, *, range: Any, weight: Any, density: bool) -> Any:
    """``torch.histogram``, which wants no range beside a tensor of edges."""
    options = {"weight": weight, "density": density}
    return torch.histogram(input, bins, **options if range is None else {**options, "range": range})


def view_dtype(input: Tensor, dtype: torch.dtype) -> Tensor:
    return input.view(dtype)


def cartesian_prod(tensors: Any) -> Tensor:
    return torch.cartesian_prod(*tensors)


def same_elements(input: Tensor, other: Tensor) -> Tensor:
    """``torch.equal`` as a tensor of one element."""
    return torch.tensor(torch.equal(input, other), device=input.device)


def broadcast_tensors(tensors: Any) -> Any:
    return torch.broadcast_tensors(*tensors)


def tensordot(input: Tensor, other: Tensor, dims: Any = 2) -> Tensor:
    return torch.tensordot(input, other, dims)


def roll_(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    return torch.roll(input, shifts, dims)


# --- reductions over several dims that torch takes over one or all ---


def _over_one_dim(function: Callable[..., Tensor], x: Tensor, dims: Any, keepdim: bool) -> Tensor:
    """Joins ``dims`` into one last dimension, in row-major order, and reduces that."""
    kept = [d for d in range(x.dim()) if d not in dims]
    flat = (
        x.permute(*kept, *sorted(dims)).reshape(*(x.shape[d] for d in kept), -1)
        if x.dim()
        else x.view(1)
    )
    made = function(flat, -1)
    return made.view([1 if d in dims else n for d, n in enumerate(x.shape)]) if keepdim else made


def prod_(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    if input.numel() == 0:
        return _over_empty(torch.prod, input, dim, keepdim, dtype=dtype)
    return _over_one_dim(lambda x, d: torch.prod(x, d, dtype=dtype), input, dim, keepdim)


def _over_empty(function: Any, x: Tensor, dims: Any, keepdim: bool, **kwargs: Any) -> Tensor:
    for d in sorted(dims, reverse=True):
        x = function(x, d, keepdim, **kwargs)
    return x if dims else function(x, **kwargs)


def _truth(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, dim=None, keepdim=False: function(x, dim, keepdim) if dim else function(x)


def _place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def place(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        x = x.byte() if x.dtype is torch.bool else x
        if len(dim) == 1:
            return function(x, dim[0], keepdim)
        return _over_one_dim(function, x, dim, keepdim)

    return place


any_, all_ = _truth(torch.any), _truth(torch.all)
argmax_, argmin_ = _place(torch.argmax), _place(torch.argmin)


def amax_or_empty(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The maximum, ``-inf`` over nothing."""
    if input.numel():
        return torch.amax(input, dim, keepdim)
    shape = [1 if d in dim else n for d, n in enumerate(input.shape)]
    made = torch.full(shape, float("-inf"), dtype=input.dtype, device=input.device)
    return made if keepdim else made.reshape([n for d, n in enumerate(input.shape) if d not in dim])


def max_(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    return _extremum(torch.max, input, dim, keepdim, other)


def min_(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    return _extremum(torch.min, input, dim, keepdim, other)


def _extremum(function: Any, x: Tensor, dim: Any, keepdim: bool, other: Any) -> Any:
    if other is not None or isinstance(dim, Tensor):
        return function(x, dim if other is None else other)
    return function(x) if dim is None else function(x, dim, keepdim)


def _spread(name: str) -> Callable[..., Any]:
    def function(
        input: Tensor,
        dim: Any = None,
        unbiased: None = None,
        keepdim: bool = False,
        *,
        correction: Any = 1,
    ) -> Any:
        return getattr(torch, name)(input, dim=dim or None, correction=correction, keepdim=keepdim)

    return function


var_, std_ = _spread("var"), _spread("std")
var_mean_, std_mean_ = _spread("var_mean"), _spread("std_mean")


def nonzero_tuple(input: Tensor, *, as_tuple: bool = True) -> Any:
    return torch.nonzero(input, as_tuple=True)


def unique_(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Any = None,
) -> Any:
    return torch.unique(input, sorted, return_inverse, return_counts, dim)


def unique_consecutive_(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Any = None,
) -> Any:
    return torch.unique_consecutive(
        input, return_inverse=return_inverse, return_counts=return_counts, dim=dim
    )


def repeat_each(
    input: Tensor, repeats: Any = None, dim: Any = None, *, output_size: Any = None
) -> Tensor:
    if repeats is None:
        return torch.repeat_interleave(input, output_size=output_size)
    return torch.repeat_interleave(input, repeats, dim, output_size=output_size)


def one_hot_of_data(input: Tensor, num_classes: int = -1) -> Tensor:
    return F.one_hot(input, num_classes)


def scan_of_scalar(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    return torch.cumsum(input, dim, dtype=dtype)


def _median(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dim=None, keepdim=False: (
        function(x) if dim is None else function(x, dim, keepdim)
    )


median_, nanmedian_ = _median(torch.median), _median(torch.nanmedian)


def sort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    return torch.sort(input, dim=dim, descending=descending, stable=stable)


def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False
) -> Tensor:
    return torch.argsort(input, dim=dim, descending=descending, stable=stable)


# --- torch.nn.functional ---


def random_dropout(input: Tensor, p: float) -> Tensor:
    return F.dropout(input, p, training=True)


def explicit_attention(*args: Any, **kwargs: Any) -> Tensor:
    return F.scaled_dot_product_attention(*args, **kwargs).contiguous()


def _written(name: str) -> Callable[..., Tensor]:
    """The activation that writes its input."""
    return lambda x, inplace=False: getattr(F, name)(x, inplace=True)


relu6_, silu_, mish_ = _written("relu6"), _written("silu"), _written("mish")
hardswish_, hardsigmoid_ = _written("hardswish"), _written("hardsigmoid")


def _pool(name: str) -> Callable[..., Any]:
    """A pooling function that takes an empty stride for none."""

    def function(x: Tensor, kernel: Any, stride: Any = None, *rest: Any) -> Any:
        return getattr(F, name)(x, kernel, kernel if stride in (None, ()) else stride, *rest)

    return function


max_pool1d, max_pool2d, max_pool3d = _pool("max_pool1d"), _pool("max_pool2d"), _pool("max_pool3d")
avg_pool1d, avg_pool2d, avg_pool3d = _pool("avg_pool1d"), _pool("avg_pool2d"), _pool("avg_pool3d")


def einsum(equation: str, operands: Any) -> Tensor:
    return torch.einsum(equation, *operands)


def einsum_of_one(equation: str, operands: Any) -> Tensor:
    return torch.einsum(equation, *operands)


def block_diag(tensors: Any) -> Tensor:
    return torch.block_diag(*tensors)


def batch_norm_training(*args: Any, **kwargs: Any) -> Tensor:
    return F.batch_norm(*args, **kwargs)


def instance_norm_training(*args: Any, **kwargs: Any) -> Tensor:
    return F.instance_norm(*args, **kwargs)


# --- random ---


def randint_like(
    input: Tensor, low: int, high: Any = None, *, dtype: Any = None, device: Any = None
) -> Tensor:
    ends = (low,) if high is None else (low, high)
    return torch.randint_like(input, *ends, dtype=dtype, device=device)


def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None) -> Tensor:
    return torch.bernoulli(input) if p is None else torch.bernoulli(input, p)


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
    layout: Any = None,
) -> Tensor:
    return (
        torch.normal(mean, std)
        if size is None
        else torch.normal(mean, std, size, dtype=dtype, device=device)
    )


def rrelu_random(input: Tensor, lower: float, upper: float) -> Tensor:
    return F.rrelu(input, lower, upper, training=True)


random_dropout1d, random_dropout2d, random_dropout3d = F.dropout1d, F.dropout2d, F.dropout3d
random_alpha_dropout, random_feature_alpha_dropout = F.alpha_dropout, F.feature_alpha_dropout


def _drawn(name: str) -> Callable[..., Tensor]:
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given = (arg for arg in args if arg is not None)
        return getattr(torch.empty_like(input), name)(*given, **kwargs)

    return function


drawn_normal, drawn_uniform, drawn_bernoulli = (
    _drawn("normal_"),
    _drawn("uniform_"),
    _drawn("bernoulli_"),
)
drawn_exponential, drawn_random = _drawn("exponential_"), _drawn("random_")
