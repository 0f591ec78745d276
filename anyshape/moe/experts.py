"""The routed experts' weights, and the two grouped products that use them.

In: rows sorted by expert and the number of rows of each expert, on the device. Out: one row for
each row, or sums scattered into tokens. `Experts` keeps the weights as they came, `Fp8Experts` in
float8; both have `gather` (tokens to rows) and `forward` (rows to results), so that a layer need
not know which it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from anyshape.kernels import checks
from anyshape.moe.activation import silu_mul_quantize
from anyshape.moe.gather import gather_mul, gather_mul_quantize
from anyshape.moe.grouped_gemm import (
    grouped_gemm,
    grouped_gemm_fp8_rowwise,
    grouped_gemm_gated,
)
from anyshape.moe.routed import FUSED_GATHER_ROWS

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0

Kind = Literal["silu", "gelu", "gelu_tanh", "gpt_oss"]


class ActivationKeywords(TypedDict):
    kind: Kind
    alpha: float
    limit: float
    interleaved: bool


@dataclass(frozen=True, slots=True)
class Activation:
    """What lies between the products: act(gate) * up, or gpt-oss's form with `alpha`, `limit`.

    `interleaved`: gate and up alternate in the columns, instead of gate's half and then up's.
    """

    kind: Kind = "silu"
    alpha: float = 1.702
    limit: float = 7.0
    interleaved: bool = False

    def keywords(self) -> ActivationKeywords:
        """The keyword arguments of `silu_mul` and `silu_mul_quantize`."""
        return {
            "kind": self.kind,
            "alpha": self.alpha,
            "limit": self.limit,
            "interleaved": self.interleaved,
        }


class Fp8Rows(NamedTuple):
    """Rows [M, D] in float8 and their scales [M] float32: a row is about values * scale."""

    values: Tensor
    scales: Tensor


class TokenRows(NamedTuple):
    """Rows that are still tokens: row i is tokens[indices[i]], times its token's of the `factors`
    [T, E] for its expert. The product gathers and multiplies them itself.
    """

    tokens: Tensor
    indices: Tensor
    factors: Tensor | None


class ScatterKeywords(TypedDict, total=False):
    row_weights: Tensor | None
    scatter_indices: Tensor
    scatter_out: Tensor


class Scatter(NamedTuple):
    """Result row i of expert e, times weights[indices[i], e], is added to out[indices[i]].

    weights [T, E] has a column for each of these experts; None is all ones.
    """

    out: Tensor
    indices: Tensor
    weights: Tensor | None


class Experts(nn.Module):
    """gate_up [E, 2F, D] and down [E, D, F], optional biases [E, 2F] and [E, D].

    `transposed` says that they are kept as [E, D, 2F] and [E, F, D] (Llama 4, gpt-oss).
    """

    gate_up: Tensor
    down: Tensor
    gate_up_bias: Tensor | None
    down_bias: Tensor | None

    def __init__(
        self,
        gate_up: Tensor,
        down: Tensor,
        gate_up_bias: Tensor | None = None,
        down_bias: Tensor | None = None,
        *,
        activation: Activation,
        transposed: bool = False,
    ) -> None:
        super().__init__()
        hold(
            self,
            gate_up=gate_up,
            down=down,
            gate_up_bias=gate_up_bias,
            down_bias=down_bias,
        )
        self.activation, self.transposed = activation, transposed
        self.fused_gather_rows = FUSED_GATHER_ROWS
        self._check_shapes()

    def _check_shapes(self) -> None:
        gate_up, down = self.weights()
        checks.check_tensor("gate_up", gate_up, 3, checks.FLOAT_DTYPES)
        checks.check_tensor("down", down, 3, checks.FLOAT_DTYPES)
        checks.check_size("down", down, 0, gate_up.shape[0], "the experts of gate_up")
        checks.check_size("down", down, 1, gate_up.shape[2], "the hidden size of gate_up")
        checks.check_size("gate_up", gate_up, 1, 2 * down.shape[2], "twice the expert size of down")

    @property
    def dtype(self) -> torch.dtype:
        """What tokens come in and results go out in."""
        return self.gate_up.dtype

    @property
    def num_experts(self) -> int:
        return self.gate_up.shape[0]

    @property
    def sizes(self) -> tuple[int, int]:
        """(hidden size D, expert size F)."""
        down = self.weights()[1]
        return down.shape[1], down.shape[2]

    def weights(self) -> tuple[Tensor, Tensor]:
        """gate_up [E, 2F, D] and down [E, D, F], as views of what is kept."""
        if self.transposed:
            return self.gate_up.transpose(1, 2), self.down.transpose(1, 2)
        return self.gate_up, self.down

    def scales(self) -> tuple[None, None]:
        """What rows of the weights are multiplied with: nothing."""
        return None, None

    def straighten(self) -> None:
        """Rewrites transposed weights in the order that the fastest kernels read, in place.

        Parameters stay the same objects of the same shape and values; only their strides change.
        Needs room for one more copy of the larger weight while it runs.
        """
        for weight in (self.gate_up, self.down) if self.transposed else ():
            weight.data = weight.data.transpose(1, 2).contiguous().transpose(1, 2)

    def gather(
        self,
        tokens: Tensor,
        token_indices: Tensor,
        expert_indices: Tensor | None = None,
        scales: Tensor | None = None,
        valid: Tensor | None = None,
        *,
        fuse: bool = False,
    ) -> Tensor | TokenRows:
        """tokens [T, D] -> rows [M, D], each multiplied with scales[token, expert] if given.

        With `fuse`, few rows stay tokens, for `forward` to gather.
        """
        if fuse and self._few(token_indices.shape[0], self.fused_gather_rows):
            return TokenRows(tokens, token_indices, scales)
        return gather_mul(tokens, token_indices, expert_indices, scales, valid, init_tail=False)

    def forward(
        self,
        rows: Tensor | TokenRows,
        counts: Tensor,
        valid: Tensor | None,
        scatter: Callable[[], Scatter] | None = None,
    ) -> Tensor:
        """rows [M, D] sorted by expert, counts [E] -> results [M, D], or added into the `out` of
        scatter(), which is asked for as late as possible, and returned.
        """
        down = self.weights()[1]
        hidden = self._first_half(rows, counts)
        where = scatter_keywords(scatter)
        return grouped_gemm(hidden, down, counts, bias=self.down_bias, **where)

    def _first_half(self, rows: Tensor | TokenRows, counts: Tensor) -> Tensor:
        """rows [M, D] -> act(gate) * up [M, F]."""
        gate_up, keywords = self.weights()[0], self.activation.keywords()
        source, indices, factors = rows if isinstance(rows, TokenRows) else (rows, None, None)
        bias = self.gate_up_bias
        return grouped_gemm_gated(
            source,
            gate_up,
            counts,
            bias=bias,
            gather_indices=indices,
            row_factors=factors,
            init_tail=False,
            **keywords,
        )

    def _few(self, rows: int, each: int) -> bool:
        """Whether there are at most `each` rows an expert on average; never while a compiler
        traces: the number of tokens would become part of its graph.
        """
        return not torch.compiler.is_compiling() and rows <= each * self.num_experts


class Fp8Experts(nn.Module):
    """The same in e4m3: a scale for each weight row, and one for each token row on the fly.

    gate_up [E, 2F, D] and down [E, D, F] float8; gate_up_scales [E * 2F] and down_scales [E * D]
    float32.
    """

    gate_up: Tensor
    gate_up_scales: Tensor
    down: Tensor
    down_scales: Tensor
    gate_up_bias: Tensor | None
    down_bias: Tensor | None

    def __init__(
        self,
        gate_up: Fp8Rows,
        down: Fp8Rows,
        gate_up_bias: Tensor | None,
        down_bias: Tensor | None,
        activation: Activation,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        hold(
            self,
            gate_up=gate_up.values,
            gate_up_scales=gate_up.scales,
            down=down.values,
            down_scales=down.scales,
            gate_up_bias=gate_up_bias,
            down_bias=down_bias,
        )
        self.activation, self.dtype = activation, dtype

    @classmethod
    def quantize(cls, experts: Experts) -> Fp8Experts:
        """The experts with their weights rounded to float8; biases stay as they are."""
        gate_up, down = experts.weights()
        return cls(
            quantize_weight(gate_up),
            quantize_weight(down),
            experts.gate_up_bias,
            experts.down_bias,
            experts.activation,
            experts.dtype,
        )

    @property
    def num_experts(self) -> int:
        return self.gate_up.shape[0]

    @property
    def sizes(self) -> tuple[int, int]:
        """(hidden size D, expert size F)."""
        return self.down.shape[1], self.down.shape[2]

    def weights(self) -> tuple[Tensor, Tensor]:
        """gate_up [E, 2F, D] and down [E, D, F]."""
        return self.gate_up, self.down

    def scales(self) -> tuple[Tensor, Tensor]:
        """What rows of the weights are multiplied with: [E * 2F] and [E * D]."""
        return self.gate_up_scales, self.down_scales

    def gather(
        self,
        tokens: Tensor,
        token_indices: Tensor,
        expert_indices: Tensor | None = None,
        scales: Tensor | None = None,
        valid: Tensor | None = None,
        *,
        fuse: bool = False,
    ) -> Fp8Rows:
        """tokens [T, D] -> float8 rows [M, D] and their scales, multiplied with scales[token,
        expert] if given.
        """
        return Fp8Rows(
            *gather_mul_quantize(
                tokens, token_indices, expert_indices, scales, valid, init_tail=False
            )
        )

    def forward(
        self,
        rows: Fp8Rows,
        counts: Tensor,
        valid: Tensor | None,
        scatter: Callable[[], Scatter] | None = None,
    ) -> Tensor:
        """As `Experts.forward`, from float8 rows; results are bfloat16, or have the dtype of
        scatter()'s `out`.
        """
        hidden = grouped_gemm_fp8_rowwise(
            rows.values,
            self.gate_up,
            counts,
            rows.scales,
            self.gate_up_scales,
            bias=self.gate_up_bias,
            init_tail=False,
        )
        values, scales = silu_mul_quantize(
            hidden, valid=valid, init_tail=False, **self.activation.keywords()
        )
        return grouped_gemm_fp8_rowwise(
            values,
            self.down,
            counts,
            scales,
            self.down_scales,
            bias=self.down_bias,
            **scatter_keywords(scatter),
        )


def scatter_keywords(scatter: Callable[[], Scatter] | None) -> ScatterKeywords:
    """The keyword arguments of the grouped products that scatter() stands for."""
    if scatter is None:
        return {}
    out, indices, weights = scatter()
    return {"row_weights": weights, "scatter_indices": indices, "scatter_out": out}


def quantize_weight(weight: Tensor) -> Fp8Rows:
    """weight [E, N, K] -> float8 [E, N, K] and scales [E * N]; a row's largest value is 448."""
    largest = weight.detach().abs().amax(2).float().clamp(min=1e-12)
    values = torch.empty(weight.shape, dtype=FP8, device=weight.device)
    for expert, row in enumerate(largest):  # one expert at a time: the float32 copy stays small
        values[expert] = (weight[expert].detach().float() * (FP8_MAX / row)[:, None]).to(FP8)
    return Fp8Rows(values, (largest / FP8_MAX).reshape(-1))


def hold(module: nn.Module, **tensors: Tensor | None) -> None:
    """Registers tensors on `module`: a Parameter as itself, anything else as a buffer."""
    for name, tensor in tensors.items():
        if tensor is None or isinstance(tensor, nn.Parameter):
            module.register_parameter(name, tensor)
        else:
            module.register_buffer(name, tensor)
