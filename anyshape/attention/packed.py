"""Attention over sequences packed one behind the other, without pages: encoders, and training on
packed batches. Has gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anyshape.attention import arguments, cpu
from anyshape.attention.backends import KERNELS
from anyshape.attention.rules import Rules
from anyshape.kernels import checks, operators


def _known(
    q: Tensor, k: Tensor, starts: Tensor, key_starts: Tensor, sequences: Tensor | None
) -> tuple[list[cpu.Span], list[int], int]:
    """(sequences with queries, each one's first key, rows of q that belong to any), checked."""
    first, first_key = starts.tolist(), key_starts.tolist()
    count = len(first) - 1 if sequences is None else max(0, min(len(first) - 1, int(sequences)))
    for argument, values, rows in (("starts", first, q), ("key_starts", first_key, k)):
        used = values[: count + 1]
        rising = all(a <= b for a, b in zip(used[:-1], used[1:], strict=True))
        if used[0] != 0 or not rising or used[-1] > rows.shape[0]:
            checks.fail(argument, f"rising from 0 to at most {rows.shape[0]} rows", used)
    lengths = [b - a for a, b in zip(first_key[:-1], first_key[1:], strict=True)]
    return cpu.sequences_of(first, lengths, sequences), first_key, first[count]


def _on_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    sequences: Tensor | None,
    sinks: Tensor | None,
    scale: float,
    causal: bool,
    window: int,
    soft_cap: float,
    batch_invariant: bool,
) -> tuple[Tensor, Tensor]:
    spans, first_key, ends = _known(q, k, starts, key_starts, sequences)
    wide = torch.promote_types(q.dtype, torch.float32)
    out = q.new_empty(q.shape[0], q.shape[1], v.shape[2])
    totals = q.new_empty(q.shape[:2], dtype=wide)
    out[ends:], totals[ends:] = 0, 0

    def one(span: cpu.Span) -> tuple[Tensor, Tensor]:
        rows = slice(first_key[span.index], first_key[span.index] + span.keys)
        return k[rows], v[rows]

    def many(spans: Sequence[cpu.Span]) -> tuple[Tensor, Tensor]:
        longest = max(span.keys for span in spans)
        both = [rows.new_zeros(len(spans), longest, *rows.shape[1:]) for rows in (k, v)]
        for i, span in enumerate(spans):
            for padded, rows in zip(both, one(span), strict=True):
                padded[i, : span.keys] = rows
        return both[0], both[1]

    rules = Rules(scale, causal, window, soft_cap)
    group = q.shape[1] // k.shape[1]
    for together in [[span] for span in spans] if batch_invariant else [spans]:
        cpu.run(q, group, together, cpu.Gathered(one, many), rules, sinks, out, totals)
    return out, totals


def _backward_on_cpu(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    totals: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    sequences: Tensor | None,
    sinks: Tensor | None,
    scale: float,
    causal: bool,
    window: int,
    soft_cap: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    spans, first_key, _ = _known(q, k, starts, key_starts, sequences)
    dq, dk, dv = (torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    rules = Rules(scale, causal, window, soft_cap)
    for span in spans:
        rows = slice(span.start, span.start + span.queries)
        keys = slice(first_key[span.index], first_key[span.index] + span.keys)
        inputs = (grad[rows], q[rows], k[keys], v[keys], out[rows], totals[rows])
        dq[rows], dk[keys], dv[keys] = cpu.backward(*inputs, rules)
    return dq, dk, dv, _sink_gradients(grad, out, totals, starts, sequences, sinks)


def _sink_gradients(
    grad: Tensor,
    out: Tensor,
    totals: Tensor,
    starts: Tensor,
    sequences: Tensor | None,
    sinks: Tensor | None,
) -> Tensor:
    """[H]: a sink takes its weight away from all values; empty without sinks."""
    if sinks is None:
        return grad.new_empty(0)
    ends = starts[-1] if sequences is None else starts.gather(0, sequences.reshape(1).long())[0]
    inside = (torch.arange(grad.shape[0], device=grad.device) < ends)[:, None]
    shares = (grad.to(totals.dtype) * out.to(totals.dtype)).sum(2)
    weights = (sinks.to(totals.dtype) - totals).exp()
    return -torch.where(inside, shares * weights, 0.0).sum(0).to(sinks.dtype)


def _fake(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    return q.new_empty(q.shape[0], q.shape[1], v.shape[2]), q.new_empty(q.shape[:2], dtype=wide)


def _fake_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    totals: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    sequences: Tensor | None,
    sinks: Tensor | None,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    like = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v)]
    return (
        like[0],
        like[1],
        like[2],
        torch.empty_like(sinks) if sinks is not None else (grad.new_empty(0)),
    )


PACKED = operators.define(
    "ragged_attention(Tensor q, Tensor k, Tensor v, Tensor starts, Tensor key_starts, "
    "Tensor? sequences, Tensor? sinks, float scale, bool causal, int window, float soft_cap, "
    "bool batch_invariant) -> (Tensor, Tensor)",
    reference=_on_cpu,
    fake=_fake,
    triton=KERNELS.get("ragged_attention"),
)
BACKWARD = operators.define(
    "ragged_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, "
    "Tensor totals, Tensor starts, Tensor key_starts, Tensor? sequences, Tensor? sinks, "
    "float scale, bool causal, int window, float soft_cap) -> (Tensor, Tensor, Tensor, Tensor)",
    reference=_backward_on_cpu,
    fake=_fake_backward,
    triton=KERNELS.get("ragged_attention_backward"),
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, starts, key_starts, sequences, sinks, *ctx.rules, _ = inputs
    ctx.save_for_backward(q, k, v, *output, starts, key_starts, sequences, sinks)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    *tensors, sinks = ctx.saved_tensors
    dq, dk, dv, dsinks = BACKWARD(grad.contiguous(), *tensors, sinks, *ctx.rules)
    nothing = (None, None, None)
    return dq, dk, dv, *nothing, None if sinks is None else dsinks, *nothing, None, None


torch.library.register_autograd(
    "anyshape::ragged_attention", _backward, setup_context=_save, lib=operators.LIBRARY
)


def ragged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    key_starts: Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    sequences: Tensor | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    """Each sequence's queries attend to its keys, all packed without padding. Returns [T, H, DV].

    q [T, H, D], k [R, KH, D], v [R, KH, DV]; sequence s has rows starts[s] to starts[s + 1] of q
    and key_starts[s] to key_starts[s + 1] of k and v (the same rows by default). Everything else
    is as in `ragged_paged_attention`. Rows of no sequence are zeros, and so are their gradients.
    """
    arguments.check_queries(q)
    arguments.check_rows("k", k, q)
    arguments.check_rows("v", v, q)
    checks.check_size("v", v, 0, k.shape[0], "rows of k")
    checks.check_size("v", v, 1, k.shape[1], "heads of k")
    arguments.check_heads(q, k, v, ("k", "v"))
    count = arguments.check_starts("starts", starts, q)
    if key_starts is None:
        checks.check_size("k", k, 0, q.shape[0], "rows of q, without key_starts")
        key_starts = starts
    arguments.check_starts("key_starts", key_starts, q)
    checks.check_size("key_starts", key_starts, 0, count + 1, "as starts")
    arguments.check_sequences(sequences, q)
    arguments.check_sinks(sinks, q)
    rules = arguments.make_rules(q.shape[2], scale, causal, window, soft_cap)
    options = (rules.scale, rules.causal, rules.window, rules.soft_cap)
    return PACKED(q, k, v, starts, key_starts, sequences, sinks, *options, batch_invariant)[0]
