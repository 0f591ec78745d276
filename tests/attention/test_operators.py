"""Attention's operators under torch's own checks and under compilers."""

from __future__ import annotations

import pytest
import torch

import anyshape
from anyshape.attention import ragged_attention, ragged_paged_attention, write_pages
from anyshape.attention.packed import BACKWARD, PACKED
from anyshape.attention.paged import PAGED, WRITE
from tests.attention.batches import CASES, make, packed

RULE = (0.2, True, 0, 0.0)


@pytest.mark.parametrize("name", ["mixed", "everything"])
def test_paged_operators_pass_opcheck(name: str) -> None:
    batch = make(CASES[name], torch.float32)
    pages = [x.float().nan_to_num().to(x.dtype) for x in batch.positional()[1:3]]
    q = batch.q.nan_to_num()
    numbers = batch.positional()[3:]
    scales = (batch.k_scale, batch.v_scale)
    torch.library.opcheck(
        PAGED,
        (
            q,
            *pages,
            *numbers,
            torch.zeros_like(q),
            None,
            batch.sequences,
            batch.sinks,
            *scales,
            *RULE,
            0,
            False,
            True,
        ),
    )
    keys = torch.zeros(q.shape[0], 2, 32)
    if all(n <= length for n, length in CASES[name].sequences):
        torch.library.opcheck(
            WRITE, (keys, keys.clone(), *pages, *numbers, None, batch.sequences, *scales)
        )


@pytest.mark.parametrize("name", ["mixed", "everything"])
def test_packed_operators_pass_opcheck(name: str) -> None:
    case = CASES[name]
    q, k, v, starts, key_starts = packed(case, torch.float32)
    count = torch.tensor(len(case.sequences)) if case.absent else None
    sinks = torch.randn(case.heads) if case.sinks else None
    inputs = [x.requires_grad_() for x in (q, k, v)]
    if sinks is not None:
        sinks.requires_grad_()
    torch.library.opcheck(PACKED, (*inputs, starts, key_starts, count, sinks, *RULE, False))
    with torch.no_grad():
        out, totals = PACKED(*inputs, starts, key_starts, count, sinks, *RULE, False)
    plain = [x.detach() for x in inputs]
    torch.library.opcheck(
        BACKWARD,
        (
            torch.ones_like(out),
            *plain,
            out,
            totals,
            starts,
            key_starts,
            count,
            sinks if sinks is None else sinks.detach(),
            *RULE,
        ),
    )


def step(q, k, v, k_pages, v_pages, table, starts, lengths):
    """A layer's attention: new keys into their pages, and the queries on all keys."""
    write_pages(k, v, k_pages, v_pages, table, starts, lengths)
    return ragged_paged_attention(q * 2.0, k_pages, v_pages, table, starts, lengths) + 1.0


COMPILERS = {
    "torch.compile": lambda function: torch.compile(
        function, backend="aot_eager", fullgraph=True, dynamic=True
    ),
    "anyshape.compile": anyshape.compile,
}


@pytest.mark.parametrize("name", COMPILERS)
def test_one_compile_serves_other_batches(name: str) -> None:
    torch.compiler.reset()
    compiled = COMPILERS[name](step)
    for case in ("decode", "one", "shared prefix", "decode"):
        batch = make(CASES[case], torch.float32, capacity=20)
        k, v = (torch.randn(batch.q.shape[0], 2, 32) for _ in range(2))
        pages = [x.clone() for x in batch.positional()[1:3]]
        numbers = batch.positional()[3:]
        expected = step(batch.q, k, v, *pages, *numbers)
        mine = [x.clone() for x in batch.positional()[1:3]]
        assert torch.equal(compiled(batch.q, k, v, *mine, *numbers), expected)
        for one, other in zip(mine, pages, strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())


@pytest.mark.parametrize("name", COMPILERS)
def test_gradients_go_through_a_compiled_function(name: str) -> None:
    torch.compiler.reset()
    compiled = COMPILERS[name](
        lambda q, k, v, starts: ragged_attention(q, k, v, starts, causal=True).sin()
    )
    for case in ("one", "decode"):
        q, _, _, starts, _ = packed(CASES[case], torch.float64)
        k, v = (torch.randn(q.shape[0], 2, 32, dtype=torch.float64) for _ in range(2))
        inputs = [x.requires_grad_() for x in (q, k, v)]
        expected = torch.autograd.grad(
            ragged_attention(*inputs, starts, causal=True).sin().sum(), inputs
        )
        got = torch.autograd.grad(compiled(*inputs, starts).sum(), inputs)
        torch.testing.assert_close(got, expected)
