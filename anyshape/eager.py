"""What core rows mean, on eager torch, where torch has them under other parameters or not at all.

Rows name these functions by their dotted names; generated graphs call them, and so do the
reference interpreter and the steps that run eagerly.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from anyshape.ir.scalars import applied

Tensor = torch.Tensor


class DeviceError(IndexError):
    """A device found an index out of range in an earlier call, after the host had gone on."""


class CheckFailed(Exception):
    """A condition that the segment relied on is false: the segment has not happened."""


def number(function: str, operands: Any) -> int | float:
    """A row of ``SCALAR_FUNCTIONS``; raises ``CheckFailed`` where Python raises."""
    made = applied(function, operands)
    if made is None:
        raise CheckFailed("a number that data decides is out of range")
    return made


def gradients(
    of: Any,
    cotangents: Any,
    wanted: Any,
    retain: bool,
    more: bool,
    again: bool,
    orders: tuple[tuple[int, ...] | None, ...] | None = None,
) -> tuple[Tensor, ...]:
    """What ``backward()`` adds to the ``.grad`` of each of ``wanted``, in memory of its own.
    ``more``: others of the same ``backward()`` follow; ``again``: they are recorded; ``orders``:
    of dimensions in memory, innermost first, where it does not lie as the tensor does."""
    made = torch.autograd.grad(
        of, wanted, cotangents, retain_graph=retain or more, create_graph=again, allow_unused=True
    )
    if any(gradient is None for gradient in made):
        raise CheckFailed("a tensor that requires gradients gets none")
    orders = orders or (None,) * len(made)
    return tuple([_laid_as(g, x, order) for g, x, order in zip(made, wanted, orders)])


def _laid_as(gradient: Tensor, x: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """A copy of the gradient that has never been written."""
    made = torch.empty_like(x.detach())
    if order is not None:
        made = torch.empty_permuted(x.shape, order[::-1], dtype=x.dtype, device=x.device)
    elif made.stride() != x.stride():  # which has holes
        made = torch.empty_like(x.detach(), memory_format=torch.contiguous_format)
    made.copy_(gradient)
    torch._C._autograd._unsafe_set_version_counter((made,), (0,))
    return made


def strided_part(x: Tensor, size: Any, stride: Any, offset: int) -> Tensor:
    """Positions in the elements of a row, counted from its first one."""
    return x.as_strided(size, stride, x.storage_offset() + offset)


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
    made: Tensor = torch.ops.aten.alias(input)  # unlike `view_as`, with every stride as it is
    return made


def unsafe_alias(input: Tensor) -> Tensor:
    """The same memory, of which autograd does not know that it is: what ``unsafe_split`` gives."""
    return torch.unsafe_split(input, input.shape[0] or 1)[0]


def floor_divided(input: Tensor, other: Any) -> Tensor:
    """``other // input``."""
    made: Tensor = other // input
    return made


def data(input: Tensor) -> Tensor:
    return input.data


def slice_(input: Tensor, dim: int, start: int, length: int, step: int = 1) -> Tensor:
    """``length`` elements of ``dim``, from ``start`` in steps; a view, of all of them too."""
    if step == 1:
        return input.narrow(dim, start, length)
    stop = start + (length - 1) * step + 1 if length else start
    return input[(builtins.slice(None),) * dim + (builtins.slice(start, stop, step),)]


def slice_read(input: Tensor, dim: int, start: int, length: int, step: int = 1) -> Tensor:
    """``slice_``, where autograd sees no slice of what is everything: ``x[:n, ...]``."""
    return (
        alias(input)
        if _is_everything(input, dim, start, length, step)
        else slice_(input, dim, start, length, step)
    )


def slice_set(input: Tensor, dim: int, start: int, length: int, step: int = 1) -> Tensor:
    """``slice_``, or the tensor itself where that is everything: ``x[:n] = 1`` writes to ``x``."""
    return (
        input
        if _is_everything(input, dim, start, length, step)
        else slice_(input, dim, start, length, step)
    )


def _is_everything(input: Tensor, dim: int, start: int, length: int, step: int) -> bool:
    return start == 0 and step == 1 and length == input.shape[dim]


def select_written(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    made = input.clone()
    made.select(dim, index).copy_(src)
    return made


def slice_written(
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
    return _unwritten(index_put_(input.clone(), indices, values, accumulate))


def _unwritten(made: Tensor) -> Tensor:
    """A new tensor that has been written while it was made, and not since."""
    torch._C._autograd._unsafe_set_version_counter((made,), (0,))
    return made


def index_put_(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """``input.index_put_`` with a tensor or nothing for each dimension."""
    positions = tuple(builtins.slice(None) if i is None else i for i in indices)
    if not accumulate:
        input[positions] = values
        return input
    full_positions = [
        torch.arange(n).view(-1, *(1,) * 0) if i is None else i
        for i, n in zip(indices, input.shape)
    ]
    return input.index_put_(tuple(_outer(indices, full_positions, input)), values, accumulate=True)


def _outer(indices: Any, positions: list[Tensor], x: Tensor) -> list[Tensor]:
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


def scatter_(input: Tensor, dim: int, index: Tensor, src: Any, *, reduce: Any = None) -> Tensor:
    kwargs = {} if reduce is None else {"reduce": reduce}
    return input.scatter_(dim, index, src, **kwargs)


def round_(input: Tensor, *, decimals: int | None = None) -> Tensor:
    if decimals is None:
        return input.clone() if input.dtype is torch.bool else torch.round(input)
    return torch.round(input, decimals=decimals)


def masked_elements(input: Tensor, mask: Tensor, positions: Any) -> Tensor:
    return torch.masked_select(input, mask)


def masked_index(input: Tensor, indices: Any) -> Tensor:
    return index(input, indices)


def masked_index_put(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    return _unwritten(input.clone().index_put_(indices, values, accumulate))


def masked_index_put_(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """``index_put_`` with masks among the indices."""
    return input.index_put_(indices, values, accumulate)


def put_at_mask(input: Tensor, mask: Tensor, number: Any) -> Tensor:
    return _unwritten(put_at_mask_(input.clone(), mask, number))


def put_at_mask_(input: Tensor, mask: Tensor, number: Any) -> Tensor:
    """``masked_fill_`` as ``index_put_`` does it, so that gradients lie as that's."""
    value = number if isinstance(number, Tensor) else torch.tensor(number, dtype=input.dtype)
    return input.index_put_((mask.expand(input.shape),), value.to(input.dtype))


def nan_to_num_core(input: Tensor, nan: float, posinf: float, neginf: float) -> Tensor:
    return torch.nan_to_num(input, nan, posinf, neginf)


def assign(input: Tensor, value: Tensor) -> tuple[()]:
    """Copies ``value`` into ``input``."""
    input.copy_(value)
    return ()


def assign_data(input: Tensor, value: Tensor) -> tuple[()]:
    """As ``assign``, unseen by autograd."""
    return assign(input.data, value)


def check(condition: bool, message: str) -> tuple[()]:
    """Raises ``CheckFailed`` where the condition on sizes does not hold."""
    if not condition:
        raise CheckFailed(message)
    return ()


def loop(trips: Any, carried: Any, captured: Any, body: Callable[..., Any]) -> Any:
    """``body(turn, *carried, *captured)`` again and again; what it returns is carried on. Where
    ``trips`` is a vector, there is a turn for each of its elements, which is its number."""
    is_list = isinstance(trips, Tensor) and trips.dim() > 0
    for turn in trips.tolist() if is_list else range(int(trips)):
        carried = body(turn, *carried, *captured)
    return tuple(carried)


def branch(
    predicate: Any, captured: Any, then: Callable[..., Any], otherwise: Callable[..., Any]
) -> Any:
    """What one of the two functions returns."""
    return (then if predicate else otherwise)(*captured)


def check_false(condition: Tensor) -> tuple[()]:
    """Raises ``CheckFailed`` where the condition holds."""
    if bool(condition):
        raise CheckFailed("an index is out of range")
    return ()


def trap_if(condition: Tensor) -> tuple[()]:
    """As ``check_false``: eager torch finds out where it stands."""
    return check_false(condition)


def overwrite(input: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return torch.empty_like(input).copy_(src)


def zeroed(input: Tensor) -> Tensor:
    return torch.zeros_like(input)


def meshgrid(tensors: Any, *, indexing: str = "ij") -> Any:
    return torch.meshgrid(*tensors, indexing=indexing)


def histogram(input: Tensor, bins: Any, *, range: Any, weight: Any, density: bool) -> Any:
    """``torch.histogram``, which wants no range beside a tensor of edges."""
    options = {"weight": weight, "density": density}
    return torch.histogram(input, bins, **options if range is None else {**options, "range": range})


def histogramdd(input: Tensor, bins: Any, range: Any, weight: Any, density: bool) -> Any:
    """``torch.histogramdd`` with the edges beside the counts, not in a tuple of their own."""
    found = torch.histogramdd(input, bins, range, weight, density)
    return found.hist, *found.bin_edges


def view_dtype(input: Tensor, dtype: torch.dtype) -> Tensor:
    """The same bytes, dense as was tested; but libraries lay out nothing as they like."""
    if not input.numel() and input.dim():
        rows = torch.empty(input.shape, device="meta").stride()
        input = input.as_strided(input.shape, rows)
    return input.view(dtype)


def linear_recurrence(factors: Tensor, terms: Tensor) -> Tensor:
    """``y[i] = factors[i] * y[i - 1] + terms[i]`` along the first dimension, from ``terms[0]``."""
    made = [terms[:1]]
    for i in range(1, len(terms)):
        made.append(factors[i : i + 1] * made[-1] + terms[i : i + 1])
    return torch.cat(made)


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
    ones = [1 if d in dims else n for d, n in enumerate(x.shape)]
    shape = ones if keepdim else [x.shape[d] for d in kept]
    joined = math.prod(x.shape[d] for d in dims)
    return function(x.permute((*kept, *sorted(dims))).reshape((*shape, joined)), -1)


def prod_(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    if input.numel() == 0:
        return _over_empty(torch.prod, input, dim, keepdim, dtype=dtype)
    return _over_one_dim(lambda x, d: torch.prod(x, d, dtype=dtype), input, dim, keepdim)


def prod_of_all(input: Tensor, *, dtype: Any = None) -> Tensor:
    return torch.prod(input, dtype=dtype)


def _over_empty(function: Any, x: Tensor, dims: Any, keepdim: bool, **kwargs: Any) -> Tensor:
    for d in sorted(dims, reverse=True):
        x = function(x, d, keepdim, **kwargs)
    return x if dims else function(x, **kwargs)


def _truth(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, dim=None, keepdim=False: function(x, dim, keepdim) if dim else function(x)


def _positions_of(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def positions(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        x = x.byte() if x.dtype is torch.bool else x
        if len(dim) == 1:
            return function(x, dim[0], keepdim)
        # No gradient passes a position: eager takes it even of a view that autograd refuses.
        return _over_one_dim(function, x.detach(), dim, keepdim)

    return positions


any_, all_ = _truth(torch.any), _truth(torch.all)
argmax_, argmin_ = _positions_of(torch.argmax), _positions_of(torch.argmin)


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
        return getattr(torch, name)(
            input, dim=None if dim == () else dim, correction=correction, keepdim=keepdim
        )

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


def cumsum_of_scalar(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    return torch.cumsum(input, dim, dtype=dtype)


def cumprod_of_scalar(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    return torch.cumprod(input, dim, dtype=dtype)


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


def dropout_kept(input: Tensor, p: float) -> Tensor:
    """Which elements dropout keeps, drawn as ATen draws them."""
    if input.device.type != "cpu":
        return torch.native_dropout(input, p, True)[1]
    if p == 1:
        return torch.zeros_like(input, dtype=torch.bool)
    return torch.empty_like(input, dtype=torch.bool).bernoulli_(1 - p)


def explicit_attention(*args: Any, **kwargs: Any) -> Tensor:
    return F.scaled_dot_product_attention(*args, **kwargs).contiguous()


def _written(name: str) -> Callable[..., Tensor]:
    """The activation that writes its input."""
    return lambda x: getattr(F, name)(x, inplace=True)


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


def gather_nothing(*args: Any, **kwargs: Any) -> Tensor:
    return torch.gather(*args, **kwargs)
