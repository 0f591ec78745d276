"""Attention on the CPU against the reference in float64, and what both say of their arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from anyshape.attention import ragged_attention, ragged_paged_attention, reference, write_pages
from tests.attention.batches import CASES, Batch, Case, assert_close, make, packed

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def run(batch: Batch, **keywords: object) -> torch.Tensor:
    return ragged_paged_attention(*batch.positional(), **(batch.keywords() | keywords))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_paged_attention_is_the_reference(name: str, dtype: torch.dtype) -> None:
    batch = make(CASES[name], dtype)
    assert_close(
        run(batch),
        batch.expected(),
        dtype,
        3.0 if batch.k_scale is not None and dtype != torch.float64 else 1.0,
    )


def test_reference_is_torch() -> None:
    batch = make(Case(((1, 40), (7, 7), (3, 50))), torch.float64)
    out = batch.expected()
    for s, rows in reference.rows_of(batch.starts, None):
        q = batch.q[rows].transpose(0, 1)
        k, v = (
            reference.keys_of(pages, batch.page_table[s], int(batch.lengths[s]), None).transpose(
                0, 1
            )
            for pages in (batch.k_pages, batch.v_pages)
        )
        mask = reference.visible(q.shape[1], k.shape[1], batch.case.rules())
        theirs = torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], attn_mask=mask, enable_gqa=True
        )
        torch.testing.assert_close(out[rows], theirs[0].transpose(0, 1))


@pytest.mark.parametrize("name", CASES)
def test_results_do_not_depend_on_other_sequences_if_asked(name: str) -> None:
    case = CASES[name]
    batch = make(case, torch.float32)
    together = run(batch, batch_invariant=True)
    for s, pair in enumerate(case.sequences):
        rows = slice(int(batch.starts[s]), int(batch.starts[s + 1]))
        alone = replace(
            batch,
            case=replace(case, sequences=(pair,)),
            q=batch.q[rows],
            page_table=batch.page_table[s : s + 1],
            starts=torch.tensor([0, pair[0]]),
            lengths=batch.lengths[s : s + 1],
            sequences=None,
        )
        assert torch.equal(run(alone, batch_invariant=True), together[rows])


def test_results_do_not_depend_on_the_width_of_the_page_table() -> None:
    narrow, wide = (
        make(CASES["mixed"], torch.float32, capacity=capacity) for capacity in (None, 50)
    )
    assert torch.equal(run(narrow), run(wide))


def test_rows_of_no_sequence_are_left_alone_in_a_given_output() -> None:
    batch = make(CASES["tail"], torch.float32)
    out = torch.full_like(batch.q, 7.0)
    assert run(batch, out=out) is out
    assert (out[-7:] == 7.0).all()
    assert torch.equal(out[:-7], run(batch)[:-7])


@pytest.mark.parametrize("name", CASES)
def test_what_was_written_is_attended_to(name: str) -> None:
    """Pages filled by write_pages, in two steps, hold what the reference writes."""
    case = CASES[name]
    case = replace(case, sequences=tuple((min(pair), pair[1]) for pair in case.sequences), shared=0)
    batch = make(case, torch.float32)
    rows = batch.q.shape[0]
    k, v = (
        torch.randn(rows, case.key_heads, case.size),
        torch.randn(rows, case.key_heads, case.value_size),
    )
    arguments = (batch.page_table, batch.starts, batch.lengths)
    mine, theirs = ([batch.k_pages.clone(), batch.v_pages.clone()] for _ in range(2))
    scales = {"k_scale": batch.k_scale, "v_scale": batch.v_scale}
    write_pages(k, v, *mine, *arguments, sequences=batch.sequences, **scales)
    reference.write_pages(k, v, *theirs, *arguments, batch.sequences, **scales)
    for one, other in zip(mine, theirs, strict=True):
        assert torch.equal(one.float().nan_to_num(), other.float().nan_to_num())


PACKED = [name for name, case in CASES.items() if not case.pages and not case.shared]


@pytest.mark.parametrize("name", PACKED)
def test_packed_attention_and_its_gradients_are_the_reference(name: str) -> None:
    case = CASES[name]
    q, k, v, starts, key_starts = packed(case, torch.float64)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    if case.sinks:
        inputs.append(torch.randn(case.heads, dtype=torch.float64).requires_grad_())
    count = torch.tensor(len(case.sequences)) if case.absent else None
    options = {"causal": True} | case.options | {"sequences": count}
    mine = ragged_attention(
        *inputs[:3], starts, key_starts, sinks=inputs[3] if case.sinks else None, **options
    )
    theirs, _ = reference.ragged_attention(
        *inputs[:3], starts, key_starts, count, case.rules(), *inputs[3:]
    )
    assert_close(mine, theirs, torch.float64)
    grad = torch.randn_like(mine)
    for one, other in zip(
        torch.autograd.grad(mine, inputs, grad),
        torch.autograd.grad(theirs, inputs, grad),
        strict=True,
    ):
        assert_close(one, other, torch.float64, zeros=False)


def test_packed_keys_are_where_the_queries_are_by_default() -> None:
    q, k, v, starts, _ = packed(Case(((4, 4), (3, 3))), torch.float32)
    assert torch.equal(ragged_attention(q, k, v, starts), ragged_attention(q, k, v, starts, starts))


MISTAKES = {
    "starts": {"starts": lambda b: b.starts.flip(0)},
    "starts 2": {"starts": lambda b: b.starts.float()},
    "lengths": {"lengths": lambda b: b.lengths + 10**6},
    "lengths 2": {"lengths": lambda b: b.lengths[:-1]},
    "page_table": {"page_table": lambda b: b.page_table * 0 - 1},
    "page_table 2": {"page_table": lambda b: b.page_table.long()},
    "page_table 3": {"page_table": lambda b: b.page_table.to("meta")},
    "q": {"q": lambda b: b.q[:, :3]},
    "q 2": {"q": lambda b: b.q[0]},
    "k_pages": {"k_pages": lambda b: b.k_pages.double()},
    "k_pages 2": {"k_pages": lambda b: b.k_pages[..., :-1]},
    "v_pages": {"v_pages": lambda b: b.v_pages[:-1]},
    "window": {"window": lambda b: 0},
    "soft_cap": {"soft_cap": lambda b: -1.0},
    "sinks": {"sinks": lambda b: torch.zeros(3)},
    "k_scale": {"k_scale": lambda b: 1.0},
    "v_scale": {"v_scale": lambda b: torch.zeros(3)},
    "sequences": {"sequences": lambda b: torch.zeros(2, dtype=torch.int32)},
    "max_queries": {"max_queries": lambda b: 2},
    "out": {"out": lambda b: b.q[:-1]},
    "faults": {"faults": lambda b: torch.zeros(1)},
}


@pytest.mark.parametrize("name", MISTAKES)
def test_errors_name_the_argument(name: str) -> None:
    batch = make(CASES["mixed"], torch.float32)
    names = ("q", "k_pages", "v_pages", "page_table", "starts", "lengths")
    arguments = dict(zip(names, batch.positional(), strict=True))
    for argument, change in MISTAKES[name].items():
        arguments[argument] = change(batch)
    with pytest.raises((ValueError, TypeError), match=f"^{name.split()[0]} must"):
        ragged_paged_attention(**arguments)


def test_pages_are_written_by_one_sequence_only() -> None:
    batch = make(CASES["decode"], torch.float32)
    new = torch.zeros(4, 2, 32)
    batch.page_table[1, 1] = batch.page_table[0, 0]
    with pytest.raises(ValueError, match="^page_table must be without a page that two write to"):
        write_pages(new, new, *batch.positional()[1:])
    batch.page_table[1, 1] = batch.page_table[1, 0]
    with pytest.raises(ValueError, match="^page_table must be without a page twice"):
        write_pages(new, new, *batch.positional()[1:])
    batch.lengths[0] = 0
    with pytest.raises(ValueError, match="^lengths must"):
        write_pages(new, new, *batch.positional()[1:])
