"""What autocast does to the arguments of an operator: casts, as nodes of their own.

In: a row's name, its arguments, and the modes. Out: the arguments as autocast hands them on. What
becomes of a row stands in `ops/autocast.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from anyshape.capture.guards.execution_modes import AUTOCAST_DEVICES, TorchModes
from anyshape.capture.guards.tensor_specs import DTYPE_OF_TORCH
from anyshape.ir.dtypes import DType, float32, float64
from anyshape.ir.graph import TensorType, Value, map_values, values_in
from anyshape.nouns import frozen, replace
from anyshape.ops import OPS
from anyshape.ops.autocast import ON_ACCELERATOR, ON_HOST, AutocastClass
from anyshape.ops.build import Builder
from anyshape.ops.table import OpDef

FALLBACK = "_grid_sampler_2d_cpu_fallback"  # in torch's list, and of one device by its name
CLASSES: Mapping[str, Mapping[str, AutocastClass]] = {
    "cpu": {**ON_HOST, FALLBACK: "float32"},
    "cuda": ON_ACCELERATOR,
}


@functools.cache
def left_alone_on_gpus() -> frozenset[str]:
    """Operators that this version of torch does not cast on GPUs; later ones cast more."""
    every, cast = set[str](), set[str]()
    for overload in torch._C._dispatch_get_all_op_names():
        namespace, _, name = overload.partition("::")
        if namespace == "aten":
            every.add(name.partition(".")[0])
            if torch._C._dispatch_has_kernel_for_dispatch_key(overload, "AutocastCUDA"):
                cast.add(name.partition(".")[0])
    return frozenset(every - cast)


class HasModes(Protocol):
    """What is being recorded."""

    modes: TorchModes


@contextmanager
def without_autocast(recorder: HasModes) -> Iterator[None]:
    """Nothing is cast meanwhile: of what writes its result into a tensor that it is handed."""
    before = recorder.modes
    recorder.modes = replace(before, autocast=tuple((False, dtype) for _, dtype in before.autocast))
    try:
        yield
    finally:
        recorder.modes = before


@frozen
class Casting:
    """Casts arguments under `modes`: whether autocast is on, and its dtype, device by device."""

    builder: Builder
    modes: tuple[tuple[bool, torch.dtype], ...]

    def arguments(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as autocast hands them to the operator."""
        found = [
            value
            for value in (*values_in(args), *values_in(tuple(kwargs.values())))
            if isinstance(value.type, TensorType)
        ]
        if not found:
            return args, kwargs
        device = _device(found[0])
        target = self._target(_aten_name(OPS[name], args, kwargs), device, found)
        if target is None:
            return args, kwargs

        def cast(value: Value) -> Value:
            if not isinstance(value.type, TensorType) or _device(value) != device:
                return value
            if not value.dtype.is_floating or value.dtype in (float64, target):
                return value
            made: Value = self.builder.call("to_dtype", value, target)
            return made

        named = {key: map_values(value, cast) for key, value in kwargs.items()}
        return tuple(map_values(arg, cast) for arg in args), named

    def _target(self, known: str, device: str, found: list[Value]) -> DType | None:
        """The dtype that floats are cast to; None where autocast leaves them alone."""
        kind = CLASSES.get(device, {}).get(known)
        on, lower = dict(zip(AUTOCAST_DEVICES, self.modes)).get(device, (False, None))
        if kind is None or lower is None or not on:
            return None
        if device == "cuda" and known in left_alone_on_gpus():
            return None
        if kind != "promote":
            return DTYPE_OF_TORCH[lower] if kind == "lower" else float32
        eligible = [v.dtype for v in found if v.dtype.is_floating and v.dtype is not float64]
        return float32 if float32 in eligible else eligible[0] if eligible else None


def _aten_name(row: OpDef, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The name under which autocast knows an operator: ``torch.linalg.qr`` is ``linalg_qr``."""
    if callable(row.aten):
        return row.aten(*args, **kwargs)
    if row.aten is not None:
        return row.aten
    return _name_of_function(row.torch) if row.guessed else row.name


@functools.cache
def _name_of_function(dotted: str) -> str:
    *_, space, name = ("", *dotted.removesuffix(".default").split("."))
    return f"{space}_{name}" if hasattr(torch.ops.aten, f"{space}_{name}") else name


def _device(value: Value) -> str:
    return value.tensor.device.partition(":")[0]
