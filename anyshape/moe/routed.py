"""The routed experts of a layer as one operator, for programs that are compiled.

In: tokens [T, D], the router and the experts. Out: results [T, D], added to `base` if there is one.
A compiler sees no sizes, so which kernels are run is decided here, at each call: those for a few
tokens, or tokens sorted by expert, gathered by the product itself or before it. And a call that is
one operator costs the host little (`kernels/replays.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from anyshape.kernels import operators
from anyshape.moe import few, reference
from anyshape.moe.backends import KERNELS, replayed

Functions = Mapping[str, Callable[..., Any]]
# Up to this many rows an expert on average, the first product reads tokens through their indices
# instead of from gathered rows: a pass less over them. benchmarks/moe.py prints both.
FUSED_GATHER_ROWS = 512


def routed(
    functions: Functions,
    tokens: Tensor,
    router_weights: Tensor,
    router_biases: Tensor | None,
    logit_biases: Tensor | None,
    function: str,
    top_k: int,
    renormalize: bool,
    groups: int,
    top_groups: int,
    group_best: int,
    scale: float,
    gate_up: Tensor,
    gate_up_scales: Tensor | None,
    gate_up_bias: Tensor | None,
    down: Tensor,
    down_scales: Tensor | None,
    down_bias: Tensor | None,
    base: Tensor | None,
    valid: Tensor | None,
    on_input: bool,
    kind: str,
    alpha: float,
    limit: float,
    interleaved: bool,
) -> Tensor:
    """The result, by the kernels `functions`; arguments are those of `gate_few` and `down_few`."""
    choice = (router_weights, router_biases, logit_biases, function, top_k, renormalize)
    choice += (groups, top_groups, group_best, scale)  # type: ignore[assignment]
    gate = (kind, alpha, limit, interleaved)
    if few.pays(tokens.shape[0], top_k, gate_up.shape[0]):
        hidden, chosen, weights = functions["gate_few"](
            *(tokens, *choice, gate_up, gate_up_scales, gate_up_bias, valid, on_input, *gate)
        )
        return functions["down_few"](
            *(hidden, chosen, weights, down, down_scales, down_bias, base, valid, on_input, top_k)
        )
    scores, factors = functions["routing_scores"](tokens, *choice)
    counts, experts, indices = functions["index_shuffling"](scores, top_k, None, valid, True)
    used = None if valid is None else counts
    scaled = (experts, factors) if on_input else (None, None)
    if gate_up_scales is None:
        hidden = _gated(
            functions, tokens, counts, indices, scaled, used, gate_up, gate_up_bias, gate
        )
        row_scales = None
    else:
        rows, row_scales = functions["gather_mul_quantize"](tokens, indices, *scaled, used, False)
        both = functions["grouped_gemm"](
            *(rows, gate_up, counts, row_scales, gate_up_scales.view(gate_up.shape[:2])),
            *(gate_up_bias, None, None, torch.bfloat16, False),
        )
        halves = (both[:, ::2], both[:, 1::2]) if interleaved else both.chunk(2, 1)
        hidden, row_scales = functions["silu_mul_quantize"](*halves, used, *gate[:3], False)
    new = {"memory_format": torch.contiguous_format}
    out = torch.zeros_like(tokens, **new) if base is None else base.clone(**new)  # type: ignore[arg-type]
    functions["grouped_gemm_scatter"](
        *(hidden, down, counts, indices, out, row_scales),
        None if down_scales is None else down_scales.view(down.shape[:2]),
        *(down_bias, None if on_input else factors, None),
    )
    return out


def _gated(
    functions: Functions,
    tokens: Tensor,
    counts: Tensor,
    indices: Tensor,
    scaled: tuple[Tensor, Tensor] | tuple[None, None],
    used: Tensor | None,
    gate_up: Tensor,
    bias: Tensor | None,
    gate: tuple[str, float, float, bool],
) -> Tensor:
    """act(gate) * up [M, F] of the tokens' rows."""
    source, gather, factors = tokens, indices, scaled[1]
    if indices.shape[0] > FUSED_GATHER_ROWS * gate_up.shape[0]:
        source = functions["gather_mul"](tokens, indices, *scaled, used, False)
        gather = factors = None  # type: ignore[assignment]
    hidden: Tensor = functions["grouped_gemm_gated"](
        *(source, gate_up, counts, bias, gather, factors, *gate, False)
    )
    return hidden


REFERENCES = {
    name: getattr(reference, name)
    for name in (
        *("gate_few", "down_few", "routing_scores", "index_shuffling", "gather_mul"),
        *("gather_mul_quantize", "grouped_gemm", "grouped_gemm_gated", "grouped_gemm_scatter"),
        "silu_mul_quantize",
    )
}


def _by_reference(*arguments: Any) -> Tensor:
    return routed(REFERENCES, *arguments)


def _by_kernels(*arguments: Any) -> Tensor:
    return routed(KERNELS, *arguments)


def _fake(tokens: Tensor, *_: object) -> Tensor:
    return tokens.new_empty(tokens.shape)


ROUTED = operators.define(
    "routed(Tensor tokens, Tensor router_weights, Tensor? router_biases, Tensor? logit_biases, "
    "str function, int top_k, bool renormalize, int groups, int top_groups, int group_best, "
    "float scale, Tensor gate_up, Tensor? gate_up_scales, Tensor? gate_up_bias, Tensor down, "
    "Tensor? down_scales, Tensor? down_bias, Tensor? base, Tensor? valid, bool on_input, str kind, "
    "float alpha, float limit, bool interleaved) -> Tensor",
    reference=_by_reference,
    fake=_fake,
    triton=replayed(_by_kernels) if KERNELS else None,
)
