"""Casts and copies of tensors, which may return what they are given.

In: a tensor and arguments as they lie on the virtual stack. Out: a proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyshape.capture.guards.tensor_specs import DTYPE_OF_TORCH, TORCH_OF_DTYPE
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import (
    TensorValue,
)
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors import storage, torchmap
from anyshape.capture.tensors.tensor_ops import (
    attribute,
    call_row,
    named_device,
)
from anyshape.ir.graph import TensorType
from anyshape.ops.layout import channels_last_strides, is_contiguous
from anyshape.ops.rules import is_empty
from anyshape.symbolic import Dim, all_of, any_of, eq, lt, ne

Handler = Callable[["RecordingDomain", tuple[Any, ...], dict[str, Any]], Any]


def cast(domain: RecordingDomain, x: TensorValue, dtype: torch.dtype) -> Any:
    """`x.to(dtype)`: the very tensor where it has that dtype."""
    if x.value.dtype is DTYPE_OF_TORCH[dtype]:
        return x
    return call_row(domain, "to_dtype", x, dtype)


TO_FORMS: Mapping[str, tuple[str, ...]] = {
    "dtype": ("dtype", "non_blocking", "copy"),
    "other": ("other", "non_blocking", "copy"),
    "device": ("device", "dtype", "non_blocking", "copy"),
}
"""The parameters of `x.to` by position, by what the first one is."""


def _form_of(first: Any) -> str:
    if isinstance(first, torch.dtype):
        return "dtype"
    return "other" if isinstance(first, (TensorValue, torch.Tensor)) else "device"


def to_method(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.to(dtype)`, `x.to(device)`, `x.to(other)`, with copy= and memory_format=."""
    x, *rest = args
    names = TO_FORMS[_form_of(rest[0])] if rest else ()
    if len(rest) > len(names):
        raise broken("operator-raises", what="to", why="too many arguments")
    given = dict(zip(names, rest)) | kwargs
    dtype, device, other = map(given.get, ("dtype", "device", "other"))
    if other is not None:
        dtype, device = torch_dtype(other), torch_device(other)
    memory_format = given.get("memory_format") or torch.preserve_format
    result = x
    target = None if device is None else torch.device(*(device,))  # unpacked: as in `make_tensor`
    if target is not None and named_device(target) != x.value.tensor.device:
        result = call_row(domain, "to_device", result, target)
    if dtype is not None and result.value.dtype is not DTYPE_OF_TORCH[dtype]:
        result = call_row(domain, "to_dtype", result, dtype)
    if result is x:
        copied = given.get("copy") or _is_in_another_format(domain, x, memory_format)
    else:
        copied = memory_format is not torch.preserve_format
    return call_row(domain, "clone", result, memory_format=memory_format) if copied else result


def moved(device: str, parameters: str) -> Handler:
    """`x.cpu()`, `x.cuda()`."""
    names = parameters.split()
    known = {*names, "memory_format"}

    def handle(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, *rest = args
        given = dict(zip(names, rest)) | kwargs
        if len(rest) > len(names) or not given.keys() <= known:
            raise broken("operator-raises", what=device, why="arguments that it does not take")
        target = given.get("device")
        return to_method(domain, (x,), given | {"device": device if target is None else target})

    return handle


def _is_in_another_format(
    domain: RecordingDomain, x: TensorValue, wanted: torch.memory_format
) -> bool:
    """Does eager see ``x`` in another memory format than the one that is wanted? It tells formats
    by the order of the strides, whether or not there are holes."""
    if wanted is torch.preserve_format:
        return False
    kind = x.value.tensor
    format_of_rank = next((f for f, rank in RANKS.items() if rank == kind.rank), None)
    if format_of_rank is not None and _suggests_channels_last(domain, x):
        return wanted is not format_of_rank
    return wanted is not torch.contiguous_format


def _suggests_channels_last(domain: RecordingDomain, x: TensorValue) -> bool:
    """``c10::is_channels_last_strides_2d``, which reads the strides of dimensions of one element,
    too. What is row-major has its channels innermost by those alone."""
    kind, cx, decide = x.value.tensor, domain.recorder.cx, domain.recorder.decide
    if is_contiguous(cx, kind) and not _has_channels_innermost(domain, kind):
        return False
    if _has_channels_outside(domain, x):
        return False
    strides, shape = storage.strides_as_eager(domain, x), x.value.shape
    inside: Dim = 0
    for d in (1, *range(kind.rank - 1, 1, -1), 0):
        if decide(eq(shape[d], 0)) or decide(eq(strides[1], 0)) or decide(lt(strides[d], inside)):
            return False
        if d == 0 and decide(eq(inside, strides[1])):
            return False
        inside = strides[d] * shape[d]
    return True


def _has_channels_outside(domain: RecordingDomain, x: TensorValue) -> bool:
    """Whether two dimensions, neither of one element, lie in another order than channels-last has
    them: then it tells at all sizes, and strides of other dimensions need not be asked for. Nor
    need sizes of 0: what is empty has no such layout."""
    kind, recorder = x.value.tensor, domain.recorder
    order = (1, *range(kind.rank - 1, 1, -1), 0)
    for inner, outer in zip(order, order[1:]):
        several = all(recorder.cx.known(ne(kind.shape[d], 1)) for d in (inner, outer))
        inside = kind.strides[inner] * kind.shape[inner]
        if several and recorder.cx.known(lt(kind.strides[outer], inside)):
            recorder.layouts_read |= bool(recorder.taken)
            recorder.laid[x.value] = None
            return True
    return False


def torch_dtype(value: Any) -> torch.dtype:
    return TORCH_OF_DTYPE[value.value.dtype] if isinstance(value, TensorValue) else value.dtype


def torch_device(value: Any) -> torch.device:
    return (
        torch.device(value.value.tensor.device) if isinstance(value, TensorValue) else value.device
    )


def type_method(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    dtype = kwargs.get("dtype", rest[0] if rest else None)
    if dtype is None:
        return _class_name(x)
    if isinstance(dtype, str):
        dtype = torchmap.LEGACY_NAMES.get(dtype)
    elif type(dtype) is torchmap.LEGACY_METACLASS:
        dtype = torchmap.LEGACY_CLASSES[dtype]
    if isinstance(dtype, torchmap.LegacyClass) and dtype.is_on(x.value.tensor.device):
        dtype = dtype.dtype
    if not isinstance(dtype, torch.dtype):
        raise broken("tensor-attribute", "type()")
    return cast(domain, x, dtype)


def _class_name(x: Any) -> str:
    """`torch.FloatTensor`, where a class of that name holds such tensors."""
    for name, cls in torchmap.LEGACY_NAMES.items():
        if cls.holds(x.value.tensor):
            return name
    raise broken("tensor-attribute", "type()")


def type_as(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, other = args
    return to_method(domain, (x,), {"other": other})


def if_complex(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`real`, `conj` and their like are the very tensor where it holds no complex numbers."""
    x = args[0] if args else kwargs["input"]
    if isinstance(x, TensorValue) and not x.value.dtype.is_complex:
        return x
    return NotImplemented


def adjoint(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.mH`."""
    return attribute(domain, args[0] if args else kwargs["input"], "mH")


RANKS = {torch.channels_last: 4, torch.channels_last_3d: 5}
"""The dimensions of what a memory format is for."""


def contiguous(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The very tensor where its layout is known to be that already."""
    x, *rest = args
    memory_format = kwargs.get("memory_format", rest[0] if rest else torch.contiguous_format)
    if memory_format is torch.preserve_format:
        raise broken("operator-raises", what="contiguous", why="preserve_format is unsupported")
    kind: TensorType = x.value.tensor
    if memory_format is not torch.contiguous_format:
        cx = domain.recorder.cx
        if kind.rank == RANKS.get(memory_format) and is_empty(cx, kind):
            as_wanted = _fills_channels_last(domain, x)
        else:
            as_wanted = _has_channels_innermost(domain, kind)
        if as_wanted:
            return x
        return call_row(domain, "contiguous", x, memory_format=memory_format)
    made = call_row(domain, "contiguous", x)
    return x if made.value.tensor.strides == kind.strides else made


def _fills_channels_last(domain: RecordingDomain, x: TensorValue) -> bool:
    """Does eager see an empty tensor as channels-last: are these its strides, but for those of
    dimensions of one element?"""
    decide = domain.recorder.decide
    expected: Dim = 1
    strides, shape = storage.strides_as_eager(domain, x), x.value.shape
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if decide(eq(shape[d], 1)):
            continue
        if not decide(eq(strides[d], expected)):
            return False
        expected = expected * shape[d]
    return True


def _has_channels_innermost(domain: RecordingDomain, kind: TensorType) -> bool:
    """Are these the strides of an image with its channels innermost, but for those of dimensions of
    one element?"""
    cx = domain.recorder.cx
    if kind.rank not in RANKS.values():
        return False
    expected = channels_last_strides(kind.shape)
    lies = zip(kind.shape, kind.strides, expected, strict=True)
    same = all_of(*(any_of(eq(n, 1), eq(stride, wanted)) for n, stride, wanted in lies))
    known = cx.known(same)
    if known is not None or isinstance(same, bool):
        return known is True
    return cx.hint(same) is not None and domain.recorder.decide(same)


def dropped_cast(dtype: torch.dtype) -> Handler:
    def handle(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return to_method(domain, args, {**kwargs, "dtype": dtype})

    return handle
