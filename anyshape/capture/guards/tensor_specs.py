"""Real tensors and what capture knows of them: dtypes and devices in both directions, types, and
the guard of one tensor.

In: a `torch.Tensor`. Out: its `TensorType` with given dims, and a `TensorSpec` that tests
whether another tensor fits the same specialization: class, dtype, device, rank, layout,
requires_grad, conj and neg bits. Sizes are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Literal

import torch
from torch._C._dynamo.guards import TensorGuards

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.ir.dtypes import DTYPES, DType
from anyshape.nouns import frozen, replace
from anyshape.symbolic import Dim

TORCH_OF_DTYPE: dict[DType, torch.dtype] = {
    dtype: getattr(torch, name) for name, dtype in DTYPES.items() if hasattr(torch, name)
}
DTYPE_OF_TORCH: dict[torch.dtype, DType] = {value: key for key, value in TORCH_OF_DTYPE.items()}

_EXACT = (torch.Tensor, torch.nn.Parameter)
_LIKE: Any = TensorGuards  # torch's stub knows of no tensors that it is given

Layout = Literal["contiguous", "permuted", "strided"]
CHANNELS_INNERMOST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""Dimensions of images and volumes in `torch.channels_last`, outermost first, by rank."""


def device_text(device: torch.device) -> str:
    """`cpu`, `cuda:0`: with an index wherever the device type has more than one. Raises what torch
    does where there is no such device."""
    if device.type in ("cpu", "meta"):
        return device.type
    if device.index is not None:
        return str(device)
    if device.type == "cuda":
        return f"cuda:{torch.cuda.current_device()}"
    return str(torch.empty(0, device=device).device)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether capture understands the tensor: no subclass, strided, not nested or quantized, no
    lazy conjugation or negation, no zeros without memory."""
    return (
        type(tensor) in _EXACT
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and tensor.dtype in DTYPE_OF_TORCH
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
        and not _is_of_a_transform(tensor)
    )


def is_handed_on(tensor: torch.Tensor) -> bool:
    """Whether native code reads the tensor, a sparse one say, while what does not read it is
    compiled. Under a transform of functions, all runs natively."""
    return not (is_plain(tensor) or _is_of_a_transform(tensor))


def _is_of_a_transform(tensor: torch.Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def refuse_unless_plain(tensor: torch.Tensor) -> None:
    """Ends the segment at a tensor that capture does not understand."""
    if not is_plain(tensor):
        raise broken("tensor-subclass", what=in_words(tensor))


def in_words(tensor: torch.Tensor) -> str:
    """What a tensor that is not plain is: "tensor of layout torch.sparse_coo"."""
    if type(tensor) not in _EXACT:
        return f"tensor of class {bare_name(type(tensor))}"
    if tensor.layout is not torch.strided:
        return f"tensor of layout {tensor.layout}"
    kinds = {"nested": tensor.is_nested, "quantized": tensor.is_quantized}
    views = {"conjugated": tensor.is_conj(), "negated": tensor.is_neg()}
    zeros = {"zero": tensor._is_zerotensor()}
    found = [kind for kind, holds in {**kinds, **views, **zeros}.items() if holds]
    return f"{found[0]} tensor" if found else f"tensor of {tensor.dtype}"


def contiguous_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Row-major strides; torch counts a size of zero as one there."""
    strides: list[Dim] = []
    step: Dim = 1
    for dim in reversed(shape):
        strides.append(step)
        step = step * dim if dim != 0 else step
    return tuple(reversed(strides))


def dense_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions from the outermost to the innermost in memory, if they fill it without
    gaps."""
    strides, shape = tensor.stride(), tensor.shape
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], -shape[d], d))
    innermost = CHANNELS_INNERMOST.get(tensor.dim())
    if innermost is not None and _fills(tensor, innermost):
        order = list(innermost)  # as ATen sees it where a size of 1 leaves a choice
    return tuple(order) if _lies_in(tensor, tuple(order)) else None


def _fills(tensor: torch.Tensor, order: tuple[int, ...]) -> bool:
    """Whether the dimensions, in this order, are row-major. No view is made: autograd refuses one
    of a part of a tensor that was written since it was split."""
    shape, strides, step = tensor.shape, tensor.stride(), 1
    for d in reversed(order):
        if shape[d] != 1:
            if strides[d] != step:
                return not tensor.numel()
            step *= shape[d]
    return True


def _lies_in(tensor: torch.Tensor, order: tuple[int, ...]) -> bool:
    """Whether the dimensions fill memory in this order, with channels innermost to ATen too: it
    reads the strides of sizes of 1, where it chooses how results lie."""
    if not _fills(tensor, order):
        return False
    if order != CHANNELS_INNERMOST.get(len(order)):
        return True
    shape, strides = tensor.shape, tensor.stride()
    return all(strides[a] >= strides[b] * shape[b] for a, b in zip(order, order[1:]))


def permuted_strides(shape: Sequence[Dim], order: Sequence[int]) -> tuple[Dim, ...]:
    """Strides of a dense tensor whose dimensions lie in memory in the given order."""
    inner = contiguous_strides([shape[d] for d in order])
    strides: list[Dim] = [1] * len(shape)
    for dim, stride in zip(order, inner):
        strides[dim] = stride
    return tuple(strides)


@frozen
class TensorSpec:
    """What must be the same in every tensor that one specialization takes from one source."""

    python: type[torch.Tensor]
    dtype: torch.dtype
    device: torch.device
    rank: int
    layout: Layout
    order: tuple[int, ...]
    requires_grad: bool
    is_alike: Callable[[Any], bool] | None = field(default=None, compare=False, repr=False)
    """Where true, the class, dtype, device, rank, keys of dispatch (negation, conjugation, zeros
    without memory) and `requires_grad` are those of the example: torch's own guard, one question
    for seven. It may be false of what fits (a tensor of inference mode), and ends the process where
    a tensor has no strides: what is nested is not asked."""

    @classmethod
    def guarding(cls, tensor: torch.Tensor) -> TensorSpec:
        """``of``, for a guard that each call asks."""
        unknown = [[None] * tensor.dim()]
        alike = _LIKE(tensor, dynamic_dims_sizes=unknown, dynamic_dims_strides=unknown)
        return replace(cls.of(tensor), is_alike=alike.check)

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        """The spec that `tensor` itself fits."""
        if tensor.is_contiguous():
            layout: tuple[Layout, tuple[int, ...]] = ("contiguous", tuple(range(tensor.dim())))
        else:
            order = dense_order(tensor)
            strides = tensor.stride()
            by_stride = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
            layout = ("permuted", order) if order else ("strided", tuple(by_stride))
        return cls(
            type(tensor), tensor.dtype, tensor.device, tensor.dim(), *layout, tensor.requires_grad
        )

    def holds(self, tensor: Any) -> bool:
        """Whether `tensor` fits."""
        if type(tensor) is not self.python or not is_plain(tensor):
            return False
        if (tensor.dtype, tensor.device, tensor.dim()) != (self.dtype, self.device, self.rank):
            return False
        if tensor.requires_grad is not self.requires_grad:
            return False
        if self.layout == "strided":
            return not tensor.is_contiguous() and self._ordered(tensor.stride())
        return tensor.is_contiguous() or self.layout == "permuted" and _lies_in(tensor, self.order)

    def _ordered(self, strides: Sequence[int]) -> bool:
        found = [strides[d] for d in self.order]
        return all(a >= b for a, b in zip(found, found[1:]))

    def fails(self, path: str, name: Callable[[Any, str], str]) -> str:
        """Python text that is true where the tensor at `path` does not fit."""
        tests = [
            f"type(t := {path}) is not {name(self.python, 'class')}",
            f"t.layout is not {name(torch.strided, 'layout')}",
            "t.is_nested",
        ]
        if self.is_alike is None:
            tests += self._questions_fail(name)
        else:
            one_by_one = " or ".join(self._questions_fail(name))
            tests.append(f"not {name(self.is_alike, 'is_alike')}(t) and ({one_by_one})")
        return " or ".join(tests + self._layout_fails(name))

    def _questions_fail(self, name: Callable[[Any, str], str]) -> list[str]:
        is_cpu = self.device.type == "cpu"
        tests = [
            f"t.dtype is not {name(self.dtype, 'dtype')}",
            "not t.is_cpu" if is_cpu else f"t.device != {name(self.device, 'device')}",
            f"t.dim() != {self.rank}",
            "not t.requires_grad" if self.requires_grad else "t.requires_grad",
            "t.is_neg()",
        ]
        if self.dtype.is_complex:
            tests.append("t.is_conj()")
        if self.dtype.is_complex or self.dtype.is_floating_point:  # a gradient that autograd made
            tests.append("t._is_zerotensor()")
        return tests

    def _layout_fails(self, name: Callable[[Any, str], str]) -> list[str]:
        if self.layout == "contiguous":
            return ["not t.is_contiguous()"] if self.rank else []
        if self.layout == "permuted":
            return [f"t.is_contiguous() or not {name(_lies_in, 'lies_in')}(t, {self.order!r})"]
        return [f"t.is_contiguous() or not {name(self._ordered, 'ordered')}(t.stride())"]

    def __str__(self) -> str:
        text = f"{self.dtype} on {self.device} of rank {self.rank}, {self.layout}".replace(
            "torch.", ""
        )
        if self.layout == "permuted":
            text += f" {self.order}"
        return text + (", requires grad" if self.requires_grad else "")


def parameter_state(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What generated code relies on of a pinned tensor: `p.data = ...` and `.half()` keep the
    object and change this."""
    return (
        tensor.data_ptr(),
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.requires_grad,
        tensor.device,
    )
