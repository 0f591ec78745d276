"""Tensor.to and its relatives: dtype and device changes that may return their input."""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops.context import TypeContext
from anyshape.ops.layout import formatted_strides, is_channels_last
from anyshape.ops.rules import tensor
from anyshape.ops.table import Extern, op


def _to_type(
    cx: TypeContext,
    x: Any,
    dtype: Any = None,
    device: Any = None,
    non_blocking: Arg = False,
    copy: Arg = False,
    memory_format: Arg = None,
) -> TensorType:
    t = tensor(x)
    same = (dtype is None or dtype is t.dtype) and (device is None or device == t.device)
    plain = (
        (None, "preserve_format")
        if is_channels_last(cx, t)
        else (None, "preserve_format", "contiguous_format")
    )
    if same and not copy and memory_format in plain:
        return t
    strides = formatted_strides(cx, t, memory_format)
    return TensorType(dtype or t.dtype, device or t.device, t.shape, strides)


def _to_expand(
    b: Any,
    x: Any,
    dtype: Any = None,
    device: Any = None,
    non_blocking: Arg = False,
    copy: Arg = False,
    memory_format: Arg = None,
) -> Any:
    made = x
    if device is not None and device != x.type.device:
        made = b.to_device(made, device)
    if dtype is not None and dtype is not x.dtype:
        made = b.to_dtype(made, dtype)
    if memory_format not in (None, "preserve_format", "contiguous_format"):
        return b.clone(made, memory_format=memory_format)
    return b.clone(made) if made is x and copy else made


op(
    "to",
    "input, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None",
    torch="anyshape.eager.to",
    type=_to_type,
    expand=_to_expand,
    alias="maybe",
)
op(
    "to_device",
    "input, device",
    torch="anyshape.eager.to_device",
    type=lambda cx, x, device: _to_type(cx, x, None, device),
    lower=Extern("anyshape.eager.to_device"),
    alias="maybe",
)

_METHODS: dict[str, DType] = {
    "float": float32,
    "double": float64,
    "half": float16,
    "bfloat16": bfloat16,
    "long": int64,
    "int": int32,
    "short": int16,
    "char": int8,
    "byte": uint8,
    "bool": bool_,
}
for _name, _dtype in _METHODS.items():
    op(
        f"as_{_name}",
        "input, *, memory_format=None",
        torch=f"torch.Tensor.{_name}",
        alias="maybe",
        normalize=lambda cx, x, *, memory_format=None: (
            (x,),
            {"memory_format": memory_format or "preserve_format"},
        ),
        type=lambda cx, x, *, memory_format, dtype=_dtype: _to_type(
            cx, x, dtype, None, False, False, memory_format
        ),
        expand=lambda b, x, *, memory_format, dtype=_dtype: _to_expand(
            b, x, dtype, memory_format=memory_format
        ),
    )
op(
    "type",
    "input, dtype, non_blocking=False",
    torch="torch.Tensor.type",
    alias="maybe",
    type=lambda cx, x, dtype, non_blocking=False: _to_type(cx, x, dtype),
    expand=lambda b, x, dtype, non_blocking=False: _to_expand(b, x, dtype),
)
op(
    "type_as",
    "input, other",
    torch="torch.Tensor.type_as",
    alias="maybe",
    type=lambda cx, x, y: _to_type(cx, x, tensor(y).dtype, tensor(y).device),
    expand=lambda b, x, y: _to_expand(b, x, y.dtype, y.type.device),
)
