"""Attention over sequences whose keys and values lie in pages, and the writing of new ones.

Every length is read on the device: the same launches serve any number of sequences, of any lengths,
with any mixture of prefill and decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anyshape.attention import arguments, cpu
from anyshape.attention.backends import KERNELS
from anyshape.attention.rules import Rules
from anyshape.kernels import checks, operators


def _gathered(
    k_pages: Tensor,
    v_pages: Tensor,
    table: Tensor,
    dtype: torch.dtype,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
) -> cpu.Gathered:
    """How the CPU version gets keys and values out of their pages."""
    page_size = k_pages.shape[1]
    sides = ((k_pages, k_scale), (v_pages, v_scale))

    def converted(rows: Tensor, scale: Tensor | None) -> Tensor:
        if scale is None:
            return rows.to(dtype)
        wide = torch.promote_types(dtype, torch.float32)
        return (rows.to(wide) * scale.reshape(-1, 1)).to(dtype)

    def one(span: cpu.Span) -> tuple[Tensor, Tensor]:
        used = table[span.index, : -(-span.keys // page_size)]
        k, v = (
            converted(pages.index_select(0, used).flatten(0, 1)[: span.keys], scale)
            for pages, scale in sides
        )
        return k, v

    def many(spans: Sequence[cpu.Span]) -> tuple[Tensor, Tensor]:
        longest = max(span.keys for span in spans)
        width = -(-longest // page_size)
        used = torch.stack([table[span.index, :width] for span in spans])
        counts = torch.tensor([-(-span.keys // page_size) for span in spans])
        used = torch.where(torch.arange(width) < counts[:, None], used, used[:, :1])
        both = []
        for pages, scale in sides:
            rows = pages.index_select(0, used.flatten()).view(
                len(spans), width * page_size, *pages.shape[2:]
            )
            for row, span in zip(rows, spans, strict=True):
                row[span.keys :] = 0
            both.append(converted(rows[:, :longest], scale))
        return both[0], both[1]

    return cpu.Gathered(one, many)


def _on_cpu(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    out: Tensor,
    faults: Tensor | None,
    sequences: Tensor | None,
    sinks: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    scale: float,
    causal: bool,
    window: int,
    soft_cap: float,
    max_queries: int,
    batch_invariant: bool,
    zero_tail: bool,
) -> None:
    spans, ends = _known(page_table, starts, lengths, sequences, k_pages, q.shape[0])
    gathered = _gathered(k_pages, v_pages, page_table, q.dtype, k_scale, v_scale)
    longest = max((span.queries for span in spans), default=0)
    if 0 < max_queries < longest:
        checks.fail("max_queries", f"at least {longest}, the most that a sequence has", max_queries)
    if zero_tail:
        out[ends:] = 0
    group = q.shape[1] // k_pages.shape[2]
    rules = Rules(scale, causal, window, soft_cap)
    if batch_invariant:
        for span in spans:
            cpu.run(q, group, [span], gathered, rules, sinks, out, None)
    else:
        cpu.run(q, group, spans, gathered, rules, sinks, out, None)


def _known(
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    sequences: Tensor | None,
    k_pages: Tensor,
    rows: int,
    *,
    writes: bool = False,
) -> tuple[list[cpu.Span], int]:
    """(sequences with queries, rows of q that belong to any), once their values are checked."""
    first, keys = starts.tolist(), lengths.tolist()
    count = len(keys) if sequences is None else max(0, min(len(keys), int(sequences)))
    arguments.check_values(
        first[: count + 1],
        keys[:count],
        page_table,
        k_pages.shape[1],
        k_pages.shape[0],
        rows,
        writes=writes,
    )
    return cpu.sequences_of(first, keys, sequences), first[count]


def _write_on_cpu(
    k: Tensor,
    v: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    faults: Tensor | None,
    sequences: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
) -> None:
    spans, _ = _known(page_table, starts, lengths, sequences, k_pages, k.shape[0], writes=True)
    page_size = k_pages.shape[1]
    for span in spans:
        at = torch.arange(span.keys - span.queries, span.keys)
        page, row = page_table[span.index, at // page_size].long(), at % page_size
        for new, pages, scale in ((k, k_pages, k_scale), (v, v_pages, v_scale)):
            value = new[span.start : span.start + span.queries]
            pages[page, row] = quantized(value, pages.dtype, scale)


def quantized(value: Tensor, dtype: torch.dtype, scale: Tensor | None) -> Tensor:
    """value [n, KH, D] / scale, in float32, as `dtype`; what float8 cannot hold is its largest."""
    if scale is None and dtype.itemsize > 1:
        return value.to(dtype)
    wide = value.float()
    if scale is not None:
        wide = wide / scale.reshape(-1, 1)
    if dtype.itemsize == 1:
        largest = torch.finfo(dtype).max
        wide = wide.clamp(-largest, largest)
    return wide.to(dtype)


def _fake(*_: object) -> None:
    return None


PAGED = operators.define(
    "ragged_paged_attention(Tensor q, Tensor k_pages, Tensor v_pages, Tensor page_table, "
    "Tensor starts, Tensor lengths, Tensor(a!) out, Tensor(b!)? faults, Tensor? sequences, "
    "Tensor? sinks, Tensor? k_scale, Tensor? v_scale, float scale, bool causal, int window, "
    "float soft_cap, int max_queries, bool batch_invariant, bool zero_tail) -> ()",
    reference=_on_cpu,
    fake=_fake,
    triton=KERNELS.get("ragged_paged_attention"),
)
WRITE = operators.define(
    "write_pages(Tensor k, Tensor v, Tensor(a!) k_pages, Tensor(b!) v_pages, Tensor page_table, "
    "Tensor starts, Tensor lengths, Tensor(c!)? faults, Tensor? sequences, Tensor? k_scale, "
    "Tensor? v_scale) -> ()",
    reference=_write_on_cpu,
    fake=_fake,
    triton=KERNELS.get("write_pages"),
)


def ragged_paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    sequences: Tensor | None = None,
    max_queries: int | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
    faults: Tensor | None = None,
) -> Tensor:
    """Each sequence's queries attend to its keys, which lie in pages. Returns [T, H, DV].

    - q [T, H, D]: all sequences' queries, one sequence behind the other.
    - k_pages [P, page_size, KH, D], v_pages [P, page_size, KH, DV]: all pages there are, in any
      strides but for the last. H is a multiple of KH; q's heads h * H/KH and on share key head h.
      Their dtype is q's, or float8 with `k_scale` and `v_scale` (float32, a number or [KH]), which
      stored values are multiplied with.
    - page_table [S, C] int32: key j of sequence s is row j % page_size of page
      page_table[s, j // page_size]. Entries behind a sequence's last key are not read. Sequences
      may have pages in common.
    - starts [S + 1]: sequence s has rows starts[s] to starts[s + 1] of q, perhaps none.
    - lengths [S]: how many keys it has, those of the new queries among them (see `write_pages`),
      whose positions are the last ones.
    - sequences: how many of the S there are, a number on the device; None for all.
    - `causal`, `window`, `soft_cap`, `scale` (1 / sqrt(D) by default): see `Rules`.
    - sinks [H]: a score for each head that takes part in the softmax without a value.
    - max_queries: the most queries that a sequence has, where the host knows. 1 for pure decoding
      saves a launch. What a sequence with more gets is then undefined on a GPU, and a fault.
    - batch_invariant: a sequence's results do not depend on the others, to the bit.
    - out: where to write; rows of no sequence are left as they are then, and are zeros otherwise.
    - faults: see `new_faults` and `check_faults`. On the CPU mistakes raise ValueError at once.

    A query that sees no key gets zeros. No gradients: see `ragged_attention`.
    """
    arguments.check_queries(q)
    arguments.check_pages(k_pages, v_pages, q, "q")
    arguments.check_heads(q, k_pages, v_pages, ("k_pages", "v_pages"))
    count = arguments.check_starts("starts", starts, q)
    arguments.check_table(page_table, lengths, count, q)
    arguments.check_sequences(sequences, q)
    arguments.check_sinks(sinks, q)
    arguments.check_scale("k_scale", k_scale, k_pages.shape[2], q)
    arguments.check_scale("v_scale", v_scale, k_pages.shape[2], q)
    arguments.check_faults(faults, q)
    if max_queries is not None and max_queries < 1:
        checks.fail("max_queries", "at least 1, or None", max_queries)
    rules = arguments.make_rules(q.shape[2], scale, causal, window, soft_cap)
    shape = (q.shape[0], q.shape[1], v_pages.shape[3])
    result = q.new_empty(shape) if out is None else out
    arguments.check_out(result, shape, q)
    PAGED(
        *(q, k_pages, v_pages, page_table, starts, lengths, result, faults, sequences, sinks),
        *(k_scale, v_scale, rules.scale, rules.causal, rules.window, rules.soft_cap),
        *(max_queries or 0, batch_invariant, out is None),
    )
    return result


def write_pages(
    k: Tensor,
    v: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    *,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    sequences: Tensor | None = None,
    faults: Tensor | None = None,
) -> None:
    """Put new keys k [T, KH, D] and values v [T, KH, DV] into their pages.

    Row i of the n new rows of a sequence of L keys becomes its key L - n + i: `lengths` counts the
    new ones already, as `ragged_paged_attention` wants it. A page that is written belongs to one
    sequence. Float8 pages hold values divided by `k_scale` and `v_scale`.
    """
    for argument, rows, pages in (("k", k, k_pages), ("v", v, v_pages)):
        checks.check_tensor(argument, rows, 3, arguments.FLOAT_DTYPES)
        checks.check_size(argument, rows, 1, pages.shape[2], "key heads of the pages")
        checks.check_size(argument, rows, 2, pages.shape[3], "the head size of the pages")
    checks.check_size("v", v, 0, k.shape[0], "rows of k")
    checks.check_device("v", v, k)
    arguments.check_pages(k_pages, v_pages, k, "k")
    count = arguments.check_starts("starts", starts, k)
    arguments.check_table(page_table, lengths, count, k)
    arguments.check_sequences(sequences, k)
    arguments.check_scale("k_scale", k_scale, k_pages.shape[2], k)
    arguments.check_scale("v_scale", v_scale, k_pages.shape[2], k)
    arguments.check_faults(faults, k)
    WRITE(
        *(k, v, k_pages, v_pages, page_table, starts, lengths, faults, sequences),
        *(k_scale, v_scale),
    )
