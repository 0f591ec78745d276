"""Sorting tokens by expert, and moving rows between rank-major and expert-major order.

The idea of MetaShuffling: once rows lie expert by expert, every expert's work is dense, nothing is
padded, and no
size has to be known on the host. All counts stay on the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anyshape.kernels import checks, operators
from anyshape.moe import reference
from anyshape.moe.backends import KERNELS

MAX_EXPERTS = 1024
ROW_DTYPES = (*checks.FLOAT_DTYPES, checks.FP8, torch.uint8, torch.int32, torch.float64)


def _fake_index_shuffling(scores: Tensor, top_k: int, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    counts = scores.new_empty((scores.shape[1],), dtype=torch.int32)
    indices = scores.new_empty((scores.shape[0] * top_k,), dtype=torch.int32)
    return counts, indices, torch.empty_like(indices)


def _fake_combine(
    tokens: Tensor, token_counts: Tensor, expert_start: int, expert_end: int, *_: object
) -> tuple[Tensor, Tensor]:
    counts = token_counts.new_empty((expert_end - expert_start + 1,), dtype=torch.int32)
    return tokens.new_empty(tokens.shape), counts


def _fake_split(tokens: Tensor, *_: object) -> Tensor:
    return tokens.new_empty(tokens.shape)


INDEX_SHUFFLING = operators.define(
    "index_shuffling(Tensor scores, int top_k, int[]? expert_range, Tensor? valid_tokens, "
    "bool init_tail) "
    "-> (Tensor, Tensor, Tensor)",
    reference=reference.index_shuffling,
    fake=_fake_index_shuffling,
    triton=KERNELS.get("index_shuffling"),
)
COMBINE_SHUFFLING = operators.define(
    "combine_shuffling(Tensor tokens, Tensor token_counts, int expert_start, int expert_end, "
    "bool is_padded, "
    "bool init_tail) -> (Tensor, Tensor)",
    reference=reference.combine_shuffling,
    fake=_fake_combine,
    triton=KERNELS.get("combine_shuffling"),
)
SPLIT_SHUFFLING = operators.define(
    "split_shuffling(Tensor tokens, Tensor token_counts, int expert_start, int expert_end, "
    "bool is_padded, "
    "bool init_tail) -> Tensor",
    reference=reference.split_shuffling,
    fake=_fake_split,
    triton=KERNELS.get("split_shuffling"),
)


def index_shuffling(
    scores: Tensor,
    top_k: int = 1,
    *,
    expert_range: tuple[int, int] | None = None,
    valid_tokens: Tensor | None = None,
    init_tail: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Choose `top_k` experts for each token of scores [T, E], and sort the choices by expert.

    Returns int32 tensors: how many tokens each expert has [E], and for each row, in order of the
    experts and
    inside an expert in order of the tokens, its expert [K*T] and its token [K*T]. Ties go to the
    lower expert;
    -0 equals 0; NaN ranks below -inf. Only experts in `expert_range` (first, past the last) and
    tokens below the
    count `valid_tokens` (on the device) have rows; experts are numbered from 0 all the same. The
    tail
    of unused rows is zero, or left as it is with init_tail=False.
    """
    checks.check_tensor("scores", scores, 2, checks.FLOAT_DTYPES)
    experts = scores.shape[1]
    checks.check_range("scores.shape[1]", experts, 1, MAX_EXPERTS, "the number of experts")
    checks.check_range("top_k", top_k, 1, experts, "the number of experts")
    if expert_range is not None:
        _check_range(expert_range, experts)
    checks.check_valid("valid_tokens", valid_tokens, scores)
    return INDEX_SHUFFLING(scores, top_k, expert_range, valid_tokens, init_tail)


def _check_range(expert_range: Sequence[int], experts: int) -> None:
    if len(expert_range) != 2 or not 0 <= expert_range[0] <= expert_range[1] <= experts:
        checks.fail("expert_range", f"(first, past the last) within 0 and {experts}", expert_range)


def _checked_range(
    tokens: Tensor, token_counts: Tensor, start: int | None, end: int | None, is_padded: bool
) -> tuple[int, int]:
    """The range of experts, once all arguments of combine and split are checked."""
    checks.check_tensor("tokens", tokens, 2, ROW_DTYPES)
    checks.check_tensor("token_counts", token_counts, 2, checks.INDEX_DTYPES)
    checks.check_device("token_counts", token_counts, tokens)
    ranks, experts = token_counts.shape
    if ranks < 1:
        checks.fail("token_counts", "[ranks, experts] with at least one rank", (ranks, experts))
    if is_padded and tokens.shape[0] % ranks:
        checks.fail("tokens", f"a multiple of {ranks} rows (is_padded)", tokens.shape[0])
    first = 0 if start is None else start
    last = experts if end is None else end
    if not 0 <= first <= last <= experts:
        checks.fail("expert_start, expert_end", f"within 0 and {experts}", (first, last))
    return first, last


def combine_shuffling(
    tokens: Tensor,
    token_counts: Tensor,
    expert_start: int | None = None,
    expert_end: int | None = None,
    is_padded: bool = False,
    init_tail: bool = True,
) -> tuple[Tensor, Tensor]:
    """Rows [T, D] of several ranks, each sorted by expert, to rows sorted by expert over all ranks.

    `token_counts` [ranks, E] says how many rows each rank has for each expert. Rank r's rows begin
    where those of
    rank r - 1 end, or at r * T // ranks if `is_padded`. Only experts from `expert_start` up to
    `expert_end` are kept.
    Returns the rows [T, D] (the tail zero, or unspecified with init_tail=False) and int32 counts
    [expert_end - expert_start + 1], the last of which is their sum.
    """
    first, last = _checked_range(tokens, token_counts, expert_start, expert_end, is_padded)
    return COMBINE_SHUFFLING(tokens, token_counts, first, last, is_padded, init_tail)


def split_shuffling(
    tokens: Tensor,
    token_counts: Tensor,
    expert_start: int | None = None,
    expert_end: int | None = None,
    is_padded: bool = False,
    init_tail: bool = True,
) -> Tensor:
    """The inverse of `combine_shuffling`: rows sorted by expert go back to where each rank had
    them.

    Rows [T, D] of experts outside the range, and padding, are zero, or unspecified with
    init_tail=False.
    """
    first, last = _checked_range(tokens, token_counts, expert_start, expert_end, is_padded)
    return SPLIT_SHUFFLING(tokens, token_counts, first, last, is_padded, init_tail)
