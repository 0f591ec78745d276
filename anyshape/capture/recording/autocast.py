"""What autocast does to the arguments of an operator: casts, as nodes of their own.

In: a row's name, its arguments, and the modes. Out: the arguments as autocast hands them on. On
the CPU the lists below say what becomes of a row, by its name; on GPUs the rows themselves do.
Copied from torch's own lists (ATen/autocast_mode.cpp, the CPU section): `lower` runs in
autocast's dtype, `float32` in float32, `promote` in the widest floating dtype among its
arguments. What is in no list runs in the dtypes that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from anyshape.capture.guards.execution_modes import AUTOCAST_DEVICES
from anyshape.capture.guards.tensor_specs import DTYPE_OF_TORCH
from anyshape.ir.dtypes import DType, float32, float64
from anyshape.ir.graph import TensorType, Value, map_values, values_in
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.table import AutocastClass

_LOWER = """
conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d bmm mm
baddbmm addmm addbmm linear matmul conv_tbc prelu scaled_dot_product_attention
chain_matmul linalg_vecdot
"""
_FLOAT32 = """
avg_pool3d binary_cross_entropy grid_sampler grid_sample polar prod quantile nanquantile stft
cdist trace view_as_complex cholesky cholesky_inverse cholesky_solve inverse lu_solve orgqr
ormqr pinverse max_pool3d adaptive_avg_pool3d mse_loss cosine_embedding_loss nll_loss
hinge_embedding_loss poisson_nll_loss smooth_l1_loss cross_entropy l1_loss huber_loss
margin_ranking_loss soft_margin_loss triplet_margin_loss multi_margin_loss ctc_loss kl_div
multilabel_margin_loss binary_cross_entropy_with_logits
"""
_PROMOTE = "stack cat concat concatenate index_copy"

COMPOSED = frozenset("einsum inner tensordot multi_dot matrix_power cov corrcoef".split())
"""Functions in no list that ATen computes by others, which are: they are taken apart at once."""

CPU_AUTOCAST: Mapping[str, AutocastClass] = MappingProxyType(
    {
        **dict.fromkeys(_LOWER.split(), "lower"),
        **dict.fromkeys(_FLOAT32.split(), "float32"),
        **dict.fromkeys(_PROMOTE.split(), "promote"),
    }
)


@dataclass(frozen=True, slots=True)
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
        target = self._target(name, device, found)
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

    def _target(self, name: str, device: str, found: list[Value]) -> DType | None:
        """The dtype that floats are cast to; None where autocast leaves them alone."""
        row = OPS[name]
        known = row.torch.rpartition(".")[2] if row.guessed else name
        kind = CPU_AUTOCAST.get(known) if device == "cpu" else row.autocast
        on, lower = dict(zip(AUTOCAST_DEVICES, self.modes)).get(device, (False, None))
        if kind is None or lower is None or not on:
            return None
        if kind != "promote":
            return DTYPE_OF_TORCH[lower] if kind == "lower" else float32
        eligible = [v.dtype for v in found if v.dtype.is_floating and v.dtype is not float64]
        return float32 if float32 in eligible else eligible[0] if eligible else None


def _device(value: Value) -> str:
    return value.tensor.device.partition(":")[0]
