"""Every kernel of this package in plain torch: what runs on the CPU, and what the Triton kernels
are tested against.

Each function has the arguments of the operator with its name, already checked. Arithmetic is in
float32 and is
rounded once, at the end. Rows that do not count are zero in fresh outputs unless `init_tail` is
False; here
they are zero then too, which is one of the values that "unspecified" allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
SMALLEST_MAXIMUM = 1e-12
INT_MIN = -(2**31)


def counted(valid: Tensor | None, rows: int) -> int:
    """How many of `rows` rows count: the sum of `valid`, at most all."""
    return rows if valid is None else max(0, min(rows, int(valid.sum())))


def sort_keys(scores: Tensor) -> Tensor:
    """int32 keys [T, E] that order as the scores do: -0 equals +0, and NaN comes below -inf."""
    bits = (scores.float() + 0.0).view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return torch.where(scores.isnan(), torch.full_like(ordered, INT_MIN), ordered)


def choose(scores: Tensor, top_k: int) -> Tensor:
    """The experts [T, K] that each token takes, best first, ties to the lower expert."""
    return sort_keys(scores).sort(dim=1, descending=True, stable=True).indices[:, :top_k]


def mask_groups(scores: Tensor, groups: int, top_groups: int, group_best: int) -> Tensor:
    """Scores [T, E] with -inf outside the `top_groups` groups whose `group_best` best experts sum
    highest.
    """
    tokens, experts = scores.shape
    grouped = scores.view(tokens, groups, experts // groups)
    keys = sort_keys(scores).view_as(grouped)
    ordered = grouped.gather(2, keys.sort(dim=2, descending=True, stable=True).indices)
    kept = choose(ordered[:, :, :group_best].sum(2), top_groups)
    mask = torch.zeros(tokens, groups, dtype=torch.bool, device=scores.device)
    mask.scatter_(1, kept, True)
    return grouped.masked_fill(~mask[:, :, None], float("-inf")).reshape(tokens, experts)


def scores_of_logits(
    logits: Tensor,
    router_biases: Tensor | None,
    function: str,
    top_k: int,
    renormalize: bool,
    groups: int,
    top_groups: int,
    group_best: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """What experts are ranked by, and what a chosen expert's row is multiplied with; both [T, E]
    float32.
    """
    logits = logits.float()
    weights = logits.softmax(1) if function == "softmax" else logits.sigmoid()
    scores = weights.clone() if router_biases is None else weights + router_biases.float()
    if top_groups < groups:
        scores = mask_groups(scores, groups, top_groups, group_best)
    if renormalize:
        chosen = weights.gather(1, choose(scores, top_k))
        weights = weights / (chosen.sum(1, keepdim=True) + 1e-20)
    return scores, weights * scale


def router_logits(tokens: Tensor, router_weights: Tensor, logit_biases: Tensor | None) -> Tensor:
    """float32 [T, E]."""
    logits = tokens.float() @ router_weights.float()
    return logits if logit_biases is None else logits + logit_biases.float()


def routing_scores(
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
) -> tuple[Tensor, Tensor]:
    """See `anyshape.moe.routing_scores`."""
    logits = router_logits(tokens, router_weights, logit_biases)
    return scores_of_logits(
        logits, router_biases, function, top_k, renormalize, groups, top_groups, group_best, scale
    )


def index_shuffling(
    scores: Tensor,
    top_k: int,
    expert_range: Sequence[int] | None,
    valid_tokens: Tensor | None,
    init_tail: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `anyshape.moe.index_shuffling`."""
    tokens, experts = scores.shape
    first, last = (0, experts) if expert_range is None else expert_range
    chosen = choose(scores[: counted(valid_tokens, tokens)], top_k).reshape(-1)
    owned = ((chosen >= first) & (chosen < last)).nonzero()[:, 0]
    expert = chosen[owned]
    order = expert.argsort(stable=True)
    counts = torch.bincount(expert, minlength=experts)
    expert_indices = torch.zeros(tokens * top_k, dtype=torch.int32, device=scores.device)
    token_indices = torch.zeros_like(expert_indices)
    expert_indices[: len(order)] = expert[order].int()
    token_indices[: len(order)] = (owned[order] // top_k).int()
    return counts.int(), expert_indices, token_indices


def gathered(
    x: Tensor,
    token_indices: Tensor,
    expert_indices: Tensor | None,
    scales: Tensor | None,
    valid: Tensor | None,
) -> Tensor:
    """The float32 rows [M, D] that both gathers make, zero past `valid`."""
    rows = counted(valid, len(token_indices))
    token = token_indices[:rows].long()
    out = torch.zeros(len(token_indices), x.shape[1], dtype=torch.float32, device=x.device)
    out[:rows] = x[token].float()
    if scales is not None and expert_indices is not None:
        out[:rows] *= scales[token, expert_indices[:rows].long()].float()[:, None]
    return out


def gather_mul(
    x: Tensor,
    token_indices: Tensor,
    expert_indices: Tensor | None,
    scales: Tensor | None,
    valid: Tensor | None,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.gather_mul`."""
    return gathered(x, token_indices, expert_indices, scales, valid).to(x.dtype)


def quantize(rows: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [M, D] -> fp8 [M, D] and float32 scales [M], so that rows are about fp8 * scale; NaN
    stays in its place.
    """
    known = rows.abs().masked_fill(rows.isnan(), 0.0)
    largest = known.amax(1) if rows.shape[1] else rows.new_zeros(rows.shape[0])
    largest = largest.clamp(min=SMALLEST_MAXIMUM)
    multiplier = torch.full_like(largest, FP8_MAX) / largest  # a number over a tensor rounds twice
    return (rows * multiplier[:, None]).to(FP8), largest / FP8_MAX


def quantized(rows: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """`quantize`, with scales of zero past `valid`."""
    values, scales = quantize(rows)
    scales[counted(valid, len(rows)) :] = 0
    return values, scales


def gather_mul_quantize(
    x: Tensor,
    token_indices: Tensor,
    expert_indices: Tensor | None,
    scales: Tensor | None,
    valid: Tensor | None,
    init_tail: bool,
) -> tuple[Tensor, Tensor]:
    """See `anyshape.moe.gather_mul_quantize`."""
    return quantized(gathered(x, token_indices, expert_indices, scales, valid), valid)


def gpt_oss(gate: Tensor, up: Tensor, alpha: float, limit: float) -> Tensor:
    """The clamped SwiGLU of GPT-OSS."""
    gate = gate.clamp(max=limit)
    return gate * torch.sigmoid(alpha * gate) * (up.clamp(-limit, limit) + 1)


ACTIVATIONS: Mapping[str, Callable[[Tensor, Tensor, float, float], Tensor]] = MappingProxyType(
    {
        "silu": lambda gate, up, alpha, limit: functional.silu(gate) * up,
        "gelu": lambda gate, up, alpha, limit: functional.gelu(gate) * up,
        "gelu_tanh": lambda gate, up, alpha, limit: functional.gelu(gate, approximate="tanh") * up,
        "gpt_oss": gpt_oss,
    }
)


def activated(
    gate: Tensor, up: Tensor, valid: Tensor | None, kind: str, alpha: float, limit: float
) -> Tensor:
    """The float32 rows [M, F] of both activations, zero past `valid`."""
    rows = counted(valid, len(gate))
    out = torch.zeros(gate.shape, dtype=torch.float32, device=gate.device)
    out[:rows] = ACTIVATIONS[kind](gate[:rows].float(), up[:rows].float(), alpha, limit)
    return out


def silu_mul(
    gate: Tensor,
    up: Tensor,
    valid: Tensor | None,
    kind: str,
    alpha: float,
    limit: float,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.silu_mul`."""
    return activated(gate, up, valid, kind, alpha, limit).to(gate.dtype)


def silu_mul_quantize(
    gate: Tensor,
    up: Tensor,
    valid: Tensor | None,
    kind: str,
    alpha: float,
    limit: float,
    init_tail: bool,
) -> tuple[Tensor, Tensor]:
    """See `anyshape.moe.silu_mul_quantize`."""
    return quantized(activated(gate, up, valid, kind, alpha, limit), valid)


def grouped_rows(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    x_scales: Tensor | None,
    w_scales: Tensor | None,
    bias: Tensor | None,
    row_weights: Tensor | None,
    gather_indices: Tensor | None,
    scatter_indices: Tensor | None = None,
) -> Tensor:
    """The float32 rows [sum(m_sizes), N] of all grouped products; w is [G, N, K]."""
    pieces = [torch.zeros(0, w.shape[1], dtype=torch.float32, device=x.device)]
    rows = x.shape[0] if gather_indices is None else gather_indices.shape[0]
    start = 0
    for group, size in enumerate(m_sizes.tolist()):
        end = min(rows, start + size)
        taken = x[start:end] if gather_indices is None else x[gather_indices[start:end].long()]
        y = taken.float() @ w[group].float().T if end > start else pieces[0]
        if x_scales is not None and w_scales is not None:
            of = x_scales if gather_indices is None else x_scales[gather_indices.long()]
            y = y * of[start:end, None] * w_scales[group]
        if bias is not None:
            y = y + bias[group].float()
        if row_weights is not None and scatter_indices is not None and row_weights.dim() == 2:
            y = y * row_weights[scatter_indices[start:end].long(), group].float()[:, None]
        pieces.append(y)
        start = end
    out = torch.cat(pieces)
    if row_weights is None or row_weights.dim() == 2:
        return out
    return out * row_weights[: len(out), None].float()


def group_of_rows(m_sizes: Tensor, rows: int) -> Tensor:
    """The group [M] of each of `rows` rows; rows past the last group count as its."""
    position = torch.arange(rows, device=m_sizes.device)
    group = torch.searchsorted(m_sizes.cumsum(0), position, right=True)
    return group.clamp(max=len(m_sizes) - 1)


def grouped_gemm(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    x_scales: Tensor | None,
    w_scales: Tensor | None,
    bias: Tensor | None,
    row_weights: Tensor | None,
    gather_indices: Tensor | None,
    out_dtype: torch.dtype,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.grouped_gemm`."""
    y = grouped_rows(x, w, m_sizes, x_scales, w_scales, bias, row_weights, gather_indices)
    rows = x.shape[0] if gather_indices is None else gather_indices.shape[0]
    out = torch.zeros(rows, w.shape[1], dtype=out_dtype, device=x.device)
    out[: len(y)] = y.to(out_dtype)
    return out


def grouped_gemm_gated(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    bias: Tensor | None,
    gather_indices: Tensor | None,
    row_factors: Tensor | None,
    kind: str,
    alpha: float,
    limit: float,
    interleaved: bool,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.grouped_gemm_gated`."""
    if row_factors is not None:
        rows = torch.arange(len(x), device=x.device) if gather_indices is None else gather_indices
        experts = group_of_rows(m_sizes, len(rows))
        x, gather_indices = gathered(x, rows, experts, row_factors, None), None
    y = grouped_rows(x, w, m_sizes, None, None, bias, None, gather_indices)
    gate, up = (y[:, ::2], y[:, 1::2]) if interleaved else y.chunk(2, 1)
    count = x.shape[0] if gather_indices is None else gather_indices.shape[0]
    out = torch.zeros(count, w.shape[1] // 2, dtype=w.dtype, device=x.device)
    out[: len(y)] = ACTIVATIONS[kind](gate, up, alpha, limit).to(w.dtype)
    return out


def grouped_gemm_scatter(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    scatter_indices: Tensor,
    scatter_out: Tensor,
    x_scales: Tensor | None,
    w_scales: Tensor | None,
    bias: Tensor | None,
    row_weights: Tensor | None,
    gather_indices: Tensor | None,
) -> None:
    """See `anyshape.moe.grouped_gemm`."""
    scaling = (x_scales, w_scales, bias, row_weights)
    y = grouped_rows(x, w, m_sizes, *scaling, gather_indices, scatter_indices)
    scatter_out.index_add_(0, scatter_indices[: len(y)].long(), y.to(scatter_out.dtype))


def scatter_add(
    out: Tensor, rows: Tensor, token_indices: Tensor, valid: Tensor | None, unique: bool
) -> None:
    """See `anyshape.moe.scatter_add`."""
    count = counted(valid, len(token_indices))
    out.index_add_(0, token_indices[:count].long(), rows[:count].to(out.dtype))


def scatter_add_padded(
    out: Tensor, rows: Tensor, token_counts: Tensor, token_indices: Tensor
) -> None:
    """See `anyshape.moe.scatter_add_padded`."""
    ranks, length, _ = rows.shape
    counts = token_counts.tolist()
    owners = [expert // (len(counts) // ranks) for expert in range(len(counts))]
    start = 0
    for owner, size in zip(owners, counts, strict=True):
        end = min(length, start + size)
        out.index_add_(0, token_indices[start:end].long(), rows[owner, start:end].to(out.dtype))
        start = end


def moved_rows(
    token_counts: Tensor, rows: int, first: int, last: int, is_padded: bool
) -> tuple[list[int], list[int]]:
    """(rank-major rows, expert-major rows) of the same tokens, in expert-major order."""
    counts = token_counts.tolist()
    ranks = len(counts)
    block = rows // ranks if is_padded and ranks else 0
    starts, start = [], 0
    for rank, of_rank in enumerate(counts):
        start = rank * block if is_padded else start
        offsets = []
        for count in of_rank:
            offsets.append(start)
            start += count
        starts.append(offsets)
    rank_major = [
        starts[rank][expert] + i
        for expert in range(first, last)
        for rank in range(ranks)
        for i in range(counts[rank][expert])
    ]
    return rank_major, list(range(len(rank_major)))


def combine_shuffling(
    tokens: Tensor,
    token_counts: Tensor,
    expert_start: int,
    expert_end: int,
    is_padded: bool,
    init_tail: bool,
) -> tuple[Tensor, Tensor]:
    """See `anyshape.moe.combine_shuffling`."""
    source, target = moved_rows(token_counts, tokens.shape[0], expert_start, expert_end, is_padded)
    out = torch.zeros_like(tokens, memory_format=torch.contiguous_format)
    out[target] = tokens[source]
    counts = token_counts[:, expert_start:expert_end].sum(0)
    return out, torch.cat([counts, counts.sum()[None]]).to(torch.int32)


def split_shuffling(
    tokens: Tensor,
    token_counts: Tensor,
    expert_start: int,
    expert_end: int,
    is_padded: bool,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.split_shuffling`."""
    target, source = moved_rows(token_counts, tokens.shape[0], expert_start, expert_end, is_padded)
    out = torch.zeros_like(tokens, memory_format=torch.contiguous_format)
    out[target] = tokens[source]
    return out


def of_experts(weights: Tensor, scales: Tensor | None, expert: Tensor) -> Tensor:
    """weights [E, N, K] of these experts in float32; those in float8 have `scales` [E*N]."""
    if scales is None:
        return weights[expert].float()
    rows = weights.view(torch.uint8)[expert].view(weights.dtype).float()
    return rows * scales.view(weights.shape[:2])[expert][:, :, None]


def gate_few(
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
    valid: Tensor | None,
    on_input: bool,
    kind: str,
    alpha: float,
    limit: float,
    interleaved: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `anyshape.moe.few`."""
    scores, factors = routing_scores(
        *(tokens, router_weights, router_biases, logit_biases, function, top_k),
        *(renormalize, groups, top_groups, group_best, scale),
    )
    chosen = choose(scores, top_k)
    weights, expert = factors.gather(1, chosen).reshape(-1), chosen.reshape(-1)
    rows = tokens.float().repeat_interleave(top_k, 0)
    both = torch.einsum("pd,pfd->pf", rows, of_experts(gate_up, gate_up_scales, expert))
    both = both * weights[:, None] if on_input else both
    both = both if gate_up_bias is None else both + gate_up_bias[expert].float()
    gate, up = (both[:, ::2], both[:, 1::2]) if interleaved else both.chunk(2, 1)
    hidden = ACTIVATIONS[kind](gate, up, alpha, limit)
    hidden = (hidden if on_input else hidden * weights[:, None]).to(tokens.dtype)
    return hidden, expert.int(), weights


def down_few(
    hidden: Tensor,
    experts: Tensor,
    weights: Tensor,
    down: Tensor,
    down_scales: Tensor | None,
    down_bias: Tensor | None,
    base: Tensor | None,
    valid: Tensor | None,
    on_input: bool,
    top_k: int,
) -> Tensor:
    """See `anyshape.moe.few`."""
    expert = experts.long()
    rows = torch.einsum("pf,pdf->pd", hidden.float(), of_experts(down, down_scales, expert))
    if down_bias is not None:
        factor = torch.ones_like(weights) if on_input else weights
        rows = rows + down_bias[expert].float() * factor[:, None]
    out = rows.view(-1, top_k, down.shape[1]).sum(1)
    return (out if base is None else out + base.float()).to(hidden.dtype)
