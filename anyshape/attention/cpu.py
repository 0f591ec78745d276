"""Attention over ragged sequences on the CPU.

In: what the operators get, already checked. Out: their results. Each sequence's keys are gathered
once, and torch's own flash attention for the CPU does the products, with all heads that share a key
head as rows of one product where queries are few. Short sequences with equally many queries go
together, padded to a common length. What torch's kernel does not do (soft cap, values of another
size than keys) is done in blocks of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anyshape.attention.rules import Rules

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
QUERY_BLOCK = 256
# Up to this many rows (queries x heads of a group) are one product with a mask.
PACKED_ROWS = 64
# Sequences go together while their gathered keys and values stay in the cache, if padding adds less
# than PADDING of them.
TOGETHER_BYTES = 2**20
PADDING = 0.25


@dataclass(frozen=True, slots=True)
class Span:
    """A sequence: its rows of q, and how many keys it has."""

    index: int
    start: int
    queries: int
    keys: int


def sequences_of(
    starts: Sequence[int], lengths: Sequence[int], sequences: Tensor | None
) -> list[Span]:
    """All sequences that have queries."""
    count = len(lengths) if sequences is None else max(0, min(len(lengths), int(sequences)))
    return [
        Span(s, starts[s], starts[s + 1] - starts[s], lengths[s])
        for s in range(count)
        if starts[s + 1] > starts[s]
    ]


def mask_of(
    first: int, queries: int, low: int, high: int, rules: Rules, device: torch.device
) -> Tensor | None:
    """[queries, high - low]: which keys the queries from position `first` on see; None for all."""
    last = first + queries - 1
    needs_end = rules.end(first, high) < high
    needs_first = rules.first(last) > low
    if not (needs_end or needs_first):
        return None
    position = torch.arange(first, last + 1, device=device)[:, None]
    key = torch.arange(low, high, device=device)[None, :]
    ahead = key - position
    seen = torch.ones(1, 1, dtype=torch.bool, device=device)
    if rules.causal:
        seen = ahead <= 0
    if rules.window:
        seen = seen & (ahead > -rules.window) & (ahead < rules.window)
    return seen


def flash(
    q: Tensor, k: Tensor, v: Tensor, rules: Rules, mask: Tensor | None, diagonal: bool
) -> tuple[Tensor, Tensor]:
    """torch's kernel on q [B, R, n, D], k [B, R, L, D] and v: out, and totals [B, R, n]."""
    added = None
    if mask is not None:
        added = torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
    out, total = FLASH(q, k, v, 0.0, diagonal, attn_mask=added, scale=rules.scale)
    return out, total


def by_hand(
    q: Tensor, k: Tensor, v: Tensor, rules: Rules, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The same in plain operators."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q @ k.mT).to(wide) * rules.scale
    if rules.soft_cap:
        scores = torch.tanh_(scores.div_(rules.soft_cap)).mul_(rules.soft_cap)
    if mask is not None:
        scores.masked_fill_(~mask, float("-inf"))
    total = scores.logsumexp(-1)
    weights = scores.sub_(total[..., None]).exp_()
    return weights.to(v.dtype) @ v, total


def block(
    q: Tensor, k: Tensor, v: Tensor, rules: Rules, mask: Tensor | None, diagonal: bool
) -> tuple[Tensor, Tensor]:
    """Attention of q [B, R, n, D] on k [B, R, L, D] and v; rows that see nothing are zero."""
    plain = not rules.soft_cap and q.shape[-1] == v.shape[-1]
    if plain:
        out, total = flash(q, k, v, rules, mask, diagonal)
    else:
        if diagonal:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril_()
        out, total = by_hand(q, k, v, rules, mask)
    if mask is not None and not bool(mask.any(-1).all()):
        blind = ~mask.any(-1)
        out = out.masked_fill(blind[..., None], 0.0)
        total = total.masked_fill(blind, float("-inf"))
    return out, total


def query_blocks(queries: int, keys: int, rules: Rules) -> Iterator[tuple[int, int, int, int]]:
    """(first query, past the last, first key, past the last) of each block of queries."""
    if rules.causal and not rules.window and queries == keys:
        yield 0, queries, 0, keys
        return
    step = QUERY_BLOCK if rules.causal or rules.window else queries
    for begin in range(0, queries, step):
        end = min(queries, begin + step)
        position = keys - queries
        low = min(rules.first(position + begin), keys)
        yield begin, end, low, max(low, rules.end(position + end - 1, keys))


def one_sequence(q: Tensor, k: Tensor, v: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """q [n, H, D], k [L, KH, D], v [L, KH, DV] -> (out [n, H, DV], totals [n, H])."""
    queries, heads, size = q.shape
    keys, key_heads, _ = k.shape
    group = heads // key_heads
    k, v = k.transpose(0, 1), v.transpose(0, 1)
    rows = q.view(queries, key_heads, group, size).permute(1, 2, 0, 3)
    if queries * group <= PACKED_ROWS:
        low = min(rules.first(keys - queries), keys)
        high = max(low, rules.end(keys - 1, keys))
        mask = mask_of(keys - queries, queries, low, high, rules, q.device)
        if mask is not None:
            mask = mask.expand(queries, high - low).repeat(group, 1)
        packed = rows.reshape(1, key_heads, group * queries, size)
        if low == high:
            return q.new_zeros(queries, heads, v.shape[2]), empty_totals(q)
        out, total = block(packed, k[None, :, low:high], v[None, :, low:high], rules, mask, False)
        out = out.view(key_heads, group, queries, -1).permute(2, 0, 1, 3)
        total = total.reshape(key_heads, group, queries).permute(2, 0, 1)
        return out.reshape(queries, heads, -1), total.reshape(queries, heads)
    outs, totals = [], []
    k, v = (x[:, None].expand(-1, group, -1, -1) for x in (k, v))
    diagonal = rules.causal and not rules.window and queries == keys
    for begin, end, low, high in query_blocks(queries, keys, rules):
        part = rows[:, :, begin:end]
        if low == high:
            outs.append(part.new_zeros(*part.shape[:3], v.shape[3]))
            totals.append(empty_totals(part[..., 0]))
            continue
        mask = None
        if not diagonal:
            mask = mask_of(keys - queries + begin, end - begin, low, high, rules, q.device)
        out, total = block(part, k[:, :, low:high], v[:, :, low:high], rules, mask, diagonal)
        outs.append(out)
        totals.append(total.reshape(part.shape[:3]))
    out = torch.cat(outs, 2).permute(2, 0, 1, 3)
    total = torch.cat(totals, 2).permute(2, 0, 1)
    return out.reshape(queries, heads, -1), total.reshape(queries, heads)


def empty_totals(q: Tensor) -> Tensor:
    """Totals of queries that see nothing."""
    shape = q.shape if q.dim() != 3 else q.shape[:2]
    wide = torch.promote_types(q.dtype, torch.float32)
    return torch.full(shape, float("-inf"), dtype=wide)


def with_sinks(out: Tensor, total: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same after a sink has taken its part of the weights: out [n, H, DV], totals [n, H]."""
    if sinks is None:
        return out, total
    new = torch.logaddexp(total, sinks.to(total.dtype))
    kept = torch.where(new.isinf(), 0.0, (total - new).exp())
    return (out * kept[..., None]).to(out.dtype), new


def short_groups(found: Sequence[Span], most_keys: int) -> Iterator[list[Span]]:
    """Sequences that go together: equally many queries, about the same length, and no more than
    `most_keys` keys with the padding.
    """
    batch: list[Span] = []
    for item in sorted(found, key=lambda item: (item.queries, item.keys)):
        if batch and not _fits(batch, item, most_keys):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def _fits(batch: Sequence[Span], item: Span, most_keys: int) -> bool:
    """Whether `item`, no shorter than those of the batch, may join it."""
    padded = item.keys * (len(batch) + 1)
    if item.queries != batch[0].queries or padded > most_keys or batch[0].keys == 0:
        return False
    return padded <= (1 + PADDING) * (sum(one.keys for one in batch) + item.keys)


def padded_mask(
    batch: Sequence[Span], queries: int, keys: int, rules: Rules, group: int
) -> Tensor | None:
    """[B, 1, group * queries, keys]: what the queries of each sequence of the batch see."""
    length = torch.tensor([item.keys for item in batch])[:, None, None]
    key = torch.arange(keys)[None, None, :]
    ahead = key - (length - queries + torch.arange(queries)[None, :, None])
    seen = (key < length).expand(-1, queries, -1)
    if rules.causal:
        seen = seen & (ahead <= 0)
    if rules.window:
        seen = seen & (ahead.abs() < rules.window)
    if bool(seen.all()):
        return None
    return seen.repeat(1, group, 1)[:, None]


def many_sequences(
    q: Tensor, k: Tensor, v: Tensor, batch: Sequence[Span], rules: Rules
) -> tuple[Tensor, Tensor]:
    """q [B, n, H, D], k [B, L, KH, D], v, padded with zeros -> (out [B, n, H, DV], totals)."""
    count, queries, heads, size = q.shape
    key_heads = k.shape[2]
    group = heads // key_heads
    rows = q.view(count, queries, key_heads, group, size).permute(0, 2, 3, 1, 4)
    rows = rows.reshape(count, key_heads, group * queries, size)
    mask = padded_mask(batch, queries, k.shape[1], rules, group)
    out, total = block(rows, k.transpose(1, 2), v.transpose(1, 2), rules, mask, False)
    out = out.reshape(count, key_heads, group, queries, -1).permute(0, 3, 1, 2, 4)
    total = total.reshape(count, key_heads, group, queries).permute(0, 3, 1, 2)
    return out.reshape(count, queries, heads, -1), total.reshape(count, queries, heads)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Where keys and values come from: `one` sequence's rows, or those of `many`, padded with
    zeros."""

    one: Callable[[Span], tuple[Tensor, Tensor]]
    many: Callable[[Sequence[Span]], tuple[Tensor, Tensor]]


def run(
    q: Tensor,
    group: int,
    found: Sequence[Span],
    gathered: Gathered,
    rules: Rules,
    sinks: Tensor | None,
    out: Tensor,
    totals: Tensor | None,
) -> None:
    """Write each sequence's rows of `out` and `totals` [T, H]; `group` heads share a key head."""
    row_bytes = q.shape[1] // group * (q.shape[2] + out.shape[2]) * q.element_size()
    for batch in short_groups(found, TOGETHER_BYTES // row_bytes):
        first = batch[0]
        if len(batch) > 1 and first.queries * group <= PACKED_ROWS:
            start = torch.tensor([item.start for item in batch])
            together = start[:, None] + torch.arange(first.queries)[None, :]
            part, total = many_sequences(q[together], *gathered.many(batch), batch, rules)
            part, total = with_sinks(part, total, sinks)
            out[together] = part
            if totals is not None:
                totals[together] = total
            continue
        for item in batch:
            rows = slice(item.start, item.start + item.queries)
            k, v = gathered.one(item)
            part, total = one_sequence(q[rows], k, v, rules)
            part, total = with_sinks(part, total, sinks)
            out[rows] = part
            if totals is not None:
                totals[rows] = total


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, totals: Tensor, rules: Rules
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q [n, H, D], k [L, KH, D] and v [L, KH, DV] of one sequence."""
    wide = totals.dtype
    queries, heads, _ = q.shape
    keys, key_heads, size = k.shape
    group = heads // key_heads
    dq = torch.zeros_like(q, dtype=wide)
    dk, dv = (torch.zeros(key_heads, keys, x.shape[2], dtype=wide) for x in (k, v))
    shares = (grad.to(wide) * out.to(wide)).sum(2)
    for begin in range(0, queries, QUERY_BLOCK):
        end = min(queries, begin + QUERY_BLOCK)
        first = keys - queries + begin
        low = min(rules.first(first), keys)
        high = max(low, rules.end(first + end - begin - 1, keys))
        mask = mask_of(first, end - begin, low, high, rules, q.device)
        for head in range(heads):
            of = head // group
            part, grads = q[begin:end, head].to(wide), grad[begin:end, head].to(wide)
            key, value = k[low:high, of].to(wide), v[low:high, of].to(wide)
            scores = (part @ key.T) * rules.scale
            slope = rules.scale * torch.ones((), dtype=wide)
            if rules.soft_cap:
                bent = torch.tanh(scores / rules.soft_cap)
                scores, slope = bent * rules.soft_cap, rules.scale * (1 - bent * bent)
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            total = totals[begin:end, head, None]
            weights = torch.where(total.isinf(), 0.0, (scores - total).exp())
            dscores = weights * (grads @ value.T - shares[begin:end, head, None]) * slope
            dq[begin:end, head] = dscores @ key
            dk[of, low:high] += dscores.T @ part
            dv[of, low:high] += weights.T @ grads
    return dq.to(q.dtype), dk.transpose(0, 1).to(k.dtype), dv.transpose(0, 1).to(v.dtype)
