"""The Triton kernels in Triton's interpreter against the reference.

Run by `test_triton.py` in a process of its own (TRITON_INTERPRET=1 must be set before triton is imported).
bfloat16 is left to the GPU: the interpreter's is broken.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from anyshape.attention import (
    launch_sizes,
    reference,
    triton_attention,
    triton_backward,
    triton_write,
)
from anyshape.kernels.launches import power_of_two
from tests.attention.batches import CASES, Batch, assert_close, make, packed
from tests.triton_interpreter import mend

mend()

# what others cover, and benchmarks/attention_check.py: the interpreter takes seconds for each
LEFT_TO_THE_GPU = (
    "one", "decode", "one head", "not causal", "window of one", "scale", "soft cap", "sinks", "size 80",
    "float8 without scales", "larger values than keys", "pages of 64", "pages of 256",
)  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, so that small batches take several: the interpreter is slow."""
    monkeypatch.setattr(launch_sizes, "MOST_SEQUENCES_AT_ONCE", 4)
    monkeypatch.setattr(
        launch_sizes,
        "split_blocks",
        lambda rows, *_: launch_sizes.Blocks(max(16, power_of_two(rows)), 16, 1, 1, 2),
    )
    monkeypatch.setattr(launch_sizes, "tile_blocks", lambda *_: launch_sizes.Blocks(32, 16, 1, 1))
    monkeypatch.setattr(
        launch_sizes,
        "backward_blocks",
        lambda *_: (launch_sizes.Blocks(32, 16, 1, 1), launch_sizes.Blocks(16, 32, 1, 1)),
    )
    monkeypatch.setattr(launch_sizes, "INVARIANT_SPLITS", 3)
    monkeypatch.setattr(triton_attention, "COMBINED_AT_ONCE", 64)


def run(
    batch: Batch,
    *,
    max_queries: int = 0,
    batch_invariant: bool = False,
    faults: Tensor | None = None,
) -> Tensor:
    rules = batch.case.rules()
    out = torch.full(
        (*batch.q.shape[:2], batch.v_pages.shape[3]), float("nan"), dtype=batch.q.dtype
    )
    side = (batch.sequences, batch.sinks, batch.k_scale, batch.v_scale)
    flags = (max_queries, batch_invariant, True)
    rule = (rules.scale, rules.causal, rules.window, rules.soft_cap)
    triton_attention.ragged_paged_attention(*batch.positional(), out, faults, *side, *rule, *flags)
    return out


NAMES = [name for name in CASES if name not in LEFT_TO_THE_GPU]


@pytest.mark.parametrize("name", NAMES)
def test_paged_attention_is_the_reference(name: str) -> None:
    case = CASES[name]
    dtype = torch.float16 if case.pages else torch.float32
    batch = make(case, dtype)
    assert_close(run(batch), batch.expected(), dtype)


@pytest.mark.parametrize("batch_invariant", [False, True])
@pytest.mark.parametrize("name", ["everything", "many heads"])
def test_sequences_of_many_queries_may_all_be_split(name: str, batch_invariant: bool) -> None:
    case = replace(
        CASES[name], sequences=tuple((min(n, 8), length) for n, length in CASES[name].sequences)
    )
    batch = make(case, torch.float32)
    mine = run(batch, max_queries=8, batch_invariant=batch_invariant)
    assert_close(mine, batch.expected(), torch.float32)


# sequences of each kind, few and short
UNLIKE = ((1, 50), (0, 30), (3, 20), (17, 40), (1, 90))


def test_results_do_not_depend_on_other_sequences_if_asked() -> None:
    case = replace(CASES["mixed"], sequences=UNLIKE)
    all_of_them = make(case, torch.float32)
    together = run(all_of_them, batch_invariant=True)
    for s, (queries, length) in enumerate(case.sequences):
        rows = slice(int(all_of_them.starts[s]), int(all_of_them.starts[s + 1]))
        alone = replace(
            all_of_them,
            case=replace(case, sequences=((queries, length),)),
            q=all_of_them.q[rows],
            page_table=all_of_them.page_table[s : s + 1],
            starts=torch.tensor([0, queries]),
            lengths=all_of_them.lengths[s : s + 1],
        )
        assert torch.equal(run(alone, batch_invariant=True), together[rows])


def test_results_do_not_depend_on_the_width_of_the_page_table() -> None:
    narrow, wide = (
        make(replace(CASES["mixed"], sequences=UNLIKE), torch.float32, capacity=capacity)
        for capacity in (None, 50)
    )
    assert torch.equal(run(narrow), run(wide))


@pytest.mark.parametrize(
    "name",
    [
        "mixed",
        "tail",
        "float8",
        "float8 with a scale a head",
        "larger keys than values",
        "pages of 24",
    ],
)
def test_writing_pages_is_the_reference(name: str) -> None:
    case = CASES[name]
    case = replace(case, sequences=tuple((min(pair), pair[1]) for pair in case.sequences))
    batch = make(case, torch.float16)
    rows = batch.q.shape[0]
    k, v = (
        torch.randn(rows, case.key_heads, case.size),
        torch.randn(rows, case.key_heads, case.value_size),
    )
    arguments = (batch.page_table, batch.starts, batch.lengths)
    mine, theirs = ([batch.k_pages.clone(), batch.v_pages.clone()] for _ in range(2))
    reference.write_pages(k, v, *theirs, *arguments, batch.sequences, batch.k_scale, batch.v_scale)
    triton_write.write_pages(
        k, v, *mine, *arguments, None, batch.sequences, batch.k_scale, batch.v_scale
    )
    for one, other in zip(mine, theirs, strict=True):
        one, other = one.float(), other.float()
        known = ~other.isnan()
        # the interpreter's float8 loses a carry into the exponent, and makes a number of NaN
        exact = case.pages is None
        assert exact is False or torch.equal(one.isnan(), other.isnan())
        torch.testing.assert_close(
            one[known], other[known], rtol=0 if exact else 0.51, atol=0 if exact else 2.0**-8
        )


PACKED = ("window to both sides", "everything", "larger keys than values", "more queries than keys")


@pytest.mark.parametrize("name", PACKED)
def test_packed_attention_and_its_gradients_are_the_reference(name: str) -> None:
    case = CASES[name]
    q, k, v, starts, key_starts = packed(case, torch.float32)
    count = torch.tensor(len(case.sequences)) if case.absent else None
    sinks = torch.randn(case.heads) if case.sinks else None
    rules = case.rules()
    rule = (rules.scale, rules.causal, rules.window, rules.soft_cap)
    mine, totals = triton_attention.ragged_attention(
        q, k, v, starts, key_starts, count, sinks, *rule, False
    )
    wide = [x.double().requires_grad_() for x in (q, k, v)] + (
        [] if sinks is None else [sinks.double().requires_grad_()]
    )
    theirs, their_totals = reference.ragged_attention(
        *wide[:3], starts, key_starts, count, rules, *wide[3:]
    )
    assert_close(mine, theirs, torch.float32)
    torch.testing.assert_close(totals.double(), their_totals, rtol=1e-5, atol=1e-6)
    grad = torch.randn_like(mine)
    expected = torch.autograd.grad(theirs, wide, grad.double())
    got = triton_backward.ragged_attention_backward(
        grad, q, k, v, mine, totals, starts, key_starts, count, sinks, *rule
    )
    for one, other in zip(got, expected, strict=False):
        assert_close(one, other, torch.float32, 3.0, zeros=False)


MISTAKES = {
    "starts": lambda b: b.starts[2:].fill_(10**5),
    "lengths": lambda b: b.lengths[1:2].fill_(10**5),
    "page_table": lambda b: b.page_table[0, :1].fill_(-5),
}


def test_more_queries_than_were_promised_are_noted() -> None:
    from anyshape.attention import check_faults, new_faults

    batch = make(CASES["decode"], torch.float32)
    faults = new_faults("cpu")
    run(batch, max_queries=1, faults=faults)
    check_faults(faults)
    run(make(CASES["shared prefix"], torch.float32), max_queries=4, faults=faults)
    with pytest.raises(ValueError, match="^max_queries must"):
        check_faults(faults)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_on_the_device_are_noted_and_nothing_outside_is_read(name: str) -> None:
    from anyshape.attention import check_faults, new_faults

    batch = make(replace(CASES["mixed"], sequences=((1, 20), (9, 24), (2, 3))), torch.float32)
    faults = new_faults("cpu")
    run(batch, faults=faults)
    check_faults(faults)
    MISTAKES[name](batch)
    if name == "lengths":
        batch.page_table[:] = batch.page_table.clamp(max=3)
    run(batch, faults=faults)
    with pytest.raises(ValueError, match=f"^{name} must"):
        check_faults(faults)
