"""The fused kernels that are measured: what each computes, its inputs, and the sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional as F

Size = tuple[int, int]

SIZES: tuple[Size, ...] = ((16, 256), (128, 1000), (512, 4096), (2048, 1024))


@dataclass(frozen=True, slots=True)
class Program:
    """One fused expression: what to compute and on what, for (rows, columns) and a dtype."""

    run: Callable[..., Tensor]
    inputs: Callable[[int, int, torch.dtype], tuple[Tensor, ...]]


def matrices(count: int, extra: int = 0) -> Callable[[int, int, torch.dtype], tuple[Tensor, ...]]:
    """`count` matrices (rows, columns), then `extra` vectors (columns,)."""

    def make(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(rows * 7919 + columns)
        shapes = [(rows, columns)] * count + [(columns,)] * extra
        return tuple(torch.randn(s, generator=generator).to(dtype) for s in shapes)

    return make


def layer_norm_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, x.shape[-1:], weight, bias), approximate="tanh")


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(x.masked_fill(~mask, -1e4), -1)


def add_mul_tanh(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return torch.tanh((x + y) * z)


def transposed_add(x: Tensor, y: Tensor) -> Tensor:
    return x + y.t()


def argmax(x: Tensor) -> Tensor:
    return x.argmax(-1)


def embedding_add(ids: Tensor, table: Tensor, position: Tensor) -> Tensor:
    return F.embedding(ids, table) + position


def sum_over_rows(x: Tensor) -> Tensor:
    return x.sum(0)


def cat_relu(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return torch.relu(torch.cat([x, y, z], -1))


def with_targets(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    (x,) = matrices(1)(rows, columns, dtype)
    return x, torch.randint(0, columns, (rows,), generator=generator)


def with_mask(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(2)
    (x,) = matrices(1)(rows, columns, dtype)
    return x, torch.rand(rows, columns, generator=generator) < 0.7


def with_transposed(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    (x,), (y,) = matrices(1)(rows, columns, dtype), matrices(1)(columns, rows, dtype)
    return x, y


def with_table(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    table, position = matrices(2)(rows, columns, dtype)
    return torch.randint(0, rows, (rows,), generator=generator), table, position


PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {
        "layer norm + gelu": Program(layer_norm_gelu, matrices(1, 2)),
        "softmax": Program(softmax, matrices(1)),
        "rms norm": Program(rms_norm, matrices(1, 1)),
        "swiglu": Program(swiglu, matrices(2)),
        "cross entropy": Program(cross_entropy, with_targets),
        "masked softmax": Program(masked_softmax, with_mask),
        "add mul tanh": Program(add_mul_tanh, matrices(3)),
        "transposed add": Program(transposed_add, with_transposed),
        "argmax": Program(argmax, matrices(1)),
        "embedding + add": Program(embedding_add, with_table),
        "sum over rows": Program(sum_over_rows, matrices(1)),
        "cat + relu": Program(cat_relu, matrices(3)),
    }
)
