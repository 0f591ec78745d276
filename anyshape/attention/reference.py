"""Attention over ragged sequences in float64, one sequence after the other: what every argument
means, and what the fast versions are tested against.

Nothing here is fast. Rows of `q` that belong to no sequence are zero in the output.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from anyshape.attention.rules import Rules


def visible(queries: int, keys: int, rules: Rules) -> Tensor:
    """[queries, keys]: whether a query sees a key."""
    position = torch.arange(keys - queries, keys)[:, None]
    key = torch.arange(keys)[None, :]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if rules.causal:
        seen &= key <= position
    if rules.window:
        seen &= (key - position).abs() < rules.window
    return seen


def attend(
    q: Tensor, k: Tensor, v: Tensor, rules: Rules, sinks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One sequence: q [n, H, D], k [L, KH, D], v [L, KH, DV], all float64, H a multiple of KH:
    heads h * H/KH and on share key head h. Returns out [n, H, DV] and the logarithm of the sum of
    exponentials [n, H], with the sink in it.

    A sink is a score without a value: it takes a part of the weights and adds nothing. A query that
    sees no key gets zeros.
    """
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("ihd,jhd->hij", q, k) * rules.scale
    if rules.soft_cap:
        scores = rules.soft_cap * torch.tanh(scores / rules.soft_cap)
    seen = visible(q.shape[0], k.shape[0], rules).to(q.device)
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        extra = sinks.double()[:, None, None].expand(-1, q.shape[0], 1)
        scores = torch.cat([scores, extra], 2)
    total = scores.logsumexp(2, keepdim=True)
    weights = torch.where(total.isinf(), 0.0, (scores - total).exp())[:, :, : k.shape[0]]
    return torch.einsum("hij,jhd->ihd", weights, v), total[:, :, 0].T


def counted(sequences: Tensor | None, capacity: int) -> int:
    """How many sequences there are."""
    return capacity if sequences is None else max(0, min(capacity, int(sequences)))


def rows_of(starts: Tensor, sequences: Tensor | None) -> Iterator[tuple[int, slice]]:
    """Each sequence and its rows of q."""
    for s in range(counted(sequences, starts.shape[0] - 1)):
        yield s, slice(int(starts[s]), int(starts[s + 1]))


def keys_of(pages: Tensor, table: Tensor, length: int, scale: Tensor | None) -> Tensor:
    """float64 [length, KH, D]: the rows of one sequence, page by page."""
    page_size, heads, size = pages.shape[1:]
    used = table[: -(-length // page_size)].long()
    rows = pages[used].reshape(-1, heads, size)[:length].double()
    return rows if scale is None else rows * scale.double().reshape(-1, 1)


def ragged_paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    sequences: Tensor | None,
    rules: Rules,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> Tensor:
    """float64 [T, H, DV]; see `anyshape.attention.ragged_paged_attention`."""
    out = q.new_zeros((*q.shape[:2], v_pages.shape[3]), dtype=torch.float64)
    for s, rows in rows_of(starts, sequences):
        k = keys_of(k_pages, page_table[s], int(lengths[s]), k_scale)
        v = keys_of(v_pages, page_table[s], int(lengths[s]), v_scale)
        out[rows] = attend(q[rows].double(), k, v, rules, sinks)[0]
    return out


def ragged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    sequences: Tensor | None,
    rules: Rules,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(float64 [T, H, DV], float64 [T, H]); see `anyshape.attention.ragged_attention`. Gradients
    go through it.
    """
    outs, totals, at = [], [], 0
    for s, rows in rows_of(starts, sequences):
        keys = slice(int(key_starts[s]), int(key_starts[s + 1]))
        part = (q[rows].double(), k[keys].double(), v[keys].double())
        out, total = attend(*part, rules, sinks)
        outs.append(out)
        totals.append(total)
        at = rows.stop
    rest = q[at:].double()
    outs.append(rest.new_zeros(*rest.shape[:2], v.shape[2]))
    totals.append(rest.new_zeros(rest.shape[:2]))
    return torch.cat(outs), torch.cat(totals)


def write_pages(
    k: Tensor,
    v: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    sequences: Tensor | None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    """Row i of a sequence's n new rows becomes its key L - n + i, divided by the scale."""
    page_size = k_pages.shape[1]
    for s, rows in rows_of(starts, sequences):
        count = rows.stop - rows.start
        for i in range(count):
            at = int(lengths[s]) - count + i
            page, row = int(page_table[s, at // page_size]), at % page_size
            for new, pages, scale in ((k, k_pages, k_scale), (v, v_pages, v_scale)):
                value = new[rows.start + i].float()
                if scale is not None:
                    value = value / scale.reshape(-1, 1)
                if pages.dtype.itemsize == 1:
                    largest = torch.finfo(pages.dtype).max
                    value = value.clamp(-largest, largest)
                pages[page, row] = value.to(pages.dtype)
