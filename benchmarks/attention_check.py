"""The CUDA implementation of attention against the reference in float64; prints one line a check.

    python -m benchmarks.attention_check [CHECK…]

Compiling takes most of the time, so the checks may run side by side, each in a process of its own.

The batches are those of tests/attention: what must not be read is NaN.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

import anyshape
from anyshape.attention import (
    check_faults,
    new_faults,
    ragged_attention,
    ragged_paged_attention,
    reference,
    write_pages,
)
from anyshape.attention.packed import PACKED
from anyshape.attention.paged import PAGED
from tests.attention.batches import CASES, Batch, Case, assert_close, make, packed
from tests.attention.test_operators import step

COMPILERS: dict[str, Callable[[Callable[..., object]], Callable[..., torch.Tensor]]] = {
    "torch.compile": lambda function: torch.compile(function, fullgraph=True, dynamic=True),
    "anyshape.compile": anyshape.compile,
}
# the longest checks are divided, to run side by side
PARTS = 4
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
LONG = ((1, 5000), (4, 3000), (300, 300), (129, 2000), (1, 1), (0, 7), (1000, 1500), (17, 17))
LARGE: dict[str, Case] = {
    f"heads of {size} and {value_size}, pages of {page}, {heads}/{key_heads} heads": Case(
        LONG, heads, key_heads, size, value_size, page
    )
    for size, value_size, page, heads, key_heads in (
        (64, 64, 16, 8, 2),
        (80, 80, 16, 8, 8),
        (96, 96, 32, 8, 1),
        (128, 128, 16, 32, 8),
        (128, 128, 64, 32, 8),
        (128, 128, 128, 8, 8),
        (128, 128, 256, 40, 8),
        (192, 128, 64, 16, 16),
        (256, 256, 128, 8, 2),
        (128, 128, 64, 128, 1),
        (128, 64, 48, 6, 2),
    )
}
OPTIONS: dict[str, dict[str, object]] = {
    "window": {"options": {"window": 700}},
    "not causal": {"options": {"causal": False}},
    "window to both sides": {"options": {"causal": False, "window": 100}},
    "soft cap, sinks": {"options": {"soft_cap": 5.0}, "sinks": True},
    "all": {"options": {"soft_cap": 5.0, "window": 300}, "sinks": True, "tail": 50, "absent": 2},
    "float8": {"pages": torch.float8_e4m3fn, "scales": 2},
    "shared": {"shared": 250, "sequences": ((1, 5000), (4, 3000), (300, 300), (129, 2000))},
}


def run(batch: Batch, **keywords: object) -> torch.Tensor:
    """On the GPU."""
    there = batch.to("cuda")
    return ragged_paged_attention(*there.positional(), **(there.keywords() | keywords))


def cases_of(dtype: torch.dtype, part: int) -> None:
    names = list(CASES)[part::PARTS]
    for case in (CASES[name] for name in names):
        batch = make(case, dtype)
        expected = batch.expected()
        for invariant in (False, True):
            mine = run(batch, batch_invariant=invariant)
            assert_close(mine, expected, dtype, 2.0 if case.pages else 1.0)
    print("   ", *names, sep=", ")


def large(part: int) -> None:
    plain = LARGE["heads of 128 and 128, pages of 64, 32/8 heads"]
    others = {name: replace(plain, **change) for name, change in OPTIONS.items()}
    for name, case in list((LARGE | others).items())[part::PARTS]:
        batch = make(case, torch.bfloat16)
        expected = batch.expected()
        for invariant in (False, True):
            mine = run(batch, batch_invariant=invariant)
            assert_close(mine, expected, torch.bfloat16, 1.0)
        print("   ", name)


def check_invariance() -> None:
    case = LARGE["heads of 128 and 128, pages of 64, 32/8 heads"]
    batch = make(case, torch.bfloat16).to("cuda")
    together = run(batch, batch_invariant=True)
    for s, pair in enumerate(case.sequences):
        rows = slice(int(batch.starts[s]), int(batch.starts[s + 1]))
        alone = replace(
            batch,
            case=replace(case, sequences=(pair,)),
            q=batch.q[rows],
            page_table=batch.page_table[s : s + 1],
            starts=torch.tensor([0, pair[0]], device="cuda", dtype=torch.int32),
            lengths=batch.lengths[s : s + 1],
        )
        assert torch.equal(run(alone, batch_invariant=True), together[rows]), pair


def check_graph() -> None:
    """One graph, replayed with other lengths, numbers of sequences and pages."""
    case = Case(((1, 5000),) * 8, 32, 8, 128, 128, 64, tail=2000, absent=24)
    batch = make(case, torch.bfloat16, capacity=100).to("cuda")
    static = replace(batch)
    out = torch.full_like(batch.q, float("nan"))
    call = lambda: ragged_paged_attention(*static.positional(), **static.keywords())  # noqa: E731
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    for seed, sequences in enumerate((LONG, ((1, 9),) * 30, ((0, 0),), ((1900, 1900), (1, 6000)))):
        rows = sum(n for n, _ in sequences)
        fresh = replace(
            case, sequences=sequences, tail=batch.q.shape[0] - rows, absent=32 - len(sequences)
        )
        other = make(fresh, torch.bfloat16, seed + 1, capacity=100)
        for name in ("q", "page_table", "starts", "lengths", "sequences"):
            getattr(static, name).copy_(getattr(other, name))
        for name in ("k_pages", "v_pages"):
            pages = getattr(other, name)
            getattr(static, name)[: pages.shape[0]].copy_(pages)
        graph.replay()
        assert_close(out, other.expected(), torch.bfloat16)


def check_compilers() -> None:
    """One compilation for batches of other sizes: writing to pages, attention, and gradients."""
    for name, compiler in COMPILERS.items():
        torch.compiler.reset()
        compiled = compiler(step)
        for case in ("decode", "one", "shared prefix", "decode"):
            batch = make(CASES[case], torch.bfloat16, capacity=20).to("cuda")
            k, v = (torch.randn(batch.q.shape[0], 2, 32, device="cuda").bfloat16() for _ in "kv")
            pages = [[x.clone() for x in batch.positional()[1:3]] for _ in range(2)]
            numbers = batch.positional()[3:]
            expected = step(batch.q, k, v, *pages[0], *numbers)
            mine = compiled(batch.q, k, v, *pages[1], *numbers)
            assert_close(mine, expected, torch.bfloat16, zeros=False)
            for one, other in zip(*pages, strict=True):
                assert torch.equal(one.nan_to_num(), other.nan_to_num())
        compiled = compiler(lambda *x: ragged_attention(*x, causal=True).sin())
        for case in ("one", "decode"):
            q, _, _, starts, _ = packed(CASES[case], torch.float32)
            k, v = (torch.randn(q.shape[0], 2, 32) for _ in "kv")
            inputs = [x.cuda().requires_grad_() for x in (q, k, v)]
            there = starts.cuda()
            expected = ragged_attention(*inputs, there, causal=True).sin()
            expected = torch.autograd.grad(expected.sum(), inputs)
            got = torch.autograd.grad(compiled(*inputs, there).sum(), inputs)
            for one, other in zip(got, expected, strict=True):
                assert_close(one, other, torch.float32, 3.0, zeros=False)
        print("   ", name)


def check_operators() -> None:
    """torch's own checks of the operators, on the GPU."""
    batch = make(CASES["everything"], torch.float32).to("cuda")
    pages = [x.nan_to_num() for x in batch.positional()[1:3]]
    q, numbers = batch.q.nan_to_num(), batch.positional()[3:]
    side = (batch.sequences, batch.sinks, None, None)
    rule = (0.2, True, 0, 0.0)
    arguments = (q, *pages, *numbers, torch.zeros_like(q), None, *side, *rule, 0, False, True)
    torch.library.opcheck(PAGED, arguments)
    q, k, v, starts, key_starts = (x.cuda() for x in packed(CASES["mixed"], torch.float32))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    torch.library.opcheck(PACKED, (*inputs, starts, key_starts, None, None, *rule, False))


def check_packed() -> None:
    for options in (
        Case(LONG, 8, 2, 128, 128),
        Case(LONG, 8, 2, 64, 64, options={"causal": False}),
        Case(LONG, 4, 4, 192, 128, options={"window": 50, "soft_cap": 4.0}, sinks=True, tail=9),
        Case(LONG, 8, 1, 80, 80, options={"causal": False, "window": 64}),
        Case(LONG, 4, 4, 256, 256),
    ):
        q, k, v, starts, key_starts = packed(options, torch.bfloat16)
        sinks = torch.randn(options.heads) if options.sinks else None
        keywords = {"causal": True} | options.options
        here = [x.cuda().requires_grad_() for x in (q, k, v)]
        side = [] if sinks is None else [sinks.cuda().requires_grad_()]
        mine = ragged_attention(
            *here, starts.cuda(), key_starts.cuda(), sinks=side[0] if side else None, **keywords
        )
        wide = [x.double().requires_grad_() for x in (q, k, v)]
        wide += [] if sinks is None else [sinks.double().requires_grad_()]
        theirs, _ = reference.ragged_attention(
            *wide[:3], starts, key_starts, None, options.rules(), *wide[3:]
        )
        assert_close(mine, theirs, torch.bfloat16)
        grad = torch.randn_like(mine)
        got = torch.autograd.grad(mine, here + side, grad)
        expected = torch.autograd.grad(theirs, wide, grad.double().cpu())
        for one, other in zip(got, expected, strict=True):
            assert_close(one, other, torch.bfloat16, 2.0, zeros=False)


def check_writing() -> None:
    for pages, scales in ((None, 0), (torch.float8_e4m3fn, 2), (torch.float8_e4m3fn, 1)):
        pairs = tuple((min(n, m), m) for n, m in LONG)
        case = Case(pairs, 32, 8, 128, 128, 64, pages=pages, scales=scales, tail=5, absent=3)
        batch = make(case, torch.bfloat16)
        rows = batch.q.shape[0]
        k, v = (torch.randn(rows, 8, 128).bfloat16() for _ in range(2))
        theirs = [batch.k_pages.clone(), batch.v_pages.clone()]
        there = batch.to("cuda")
        reference.write_pages(
            k, v, *theirs, *batch.positional()[3:], batch.sequences, batch.k_scale, batch.v_scale
        )
        write_pages(
            *(k.cuda(), v.cuda(), *there.positional()[1:]),
            sequences=there.sequences,
            k_scale=there.k_scale,
            v_scale=there.v_scale,
        )
        for one, other in zip((there.k_pages, there.v_pages), theirs, strict=True):
            assert torch.equal(one.cpu().float().isnan(), other.float().isnan())
            assert torch.equal(one.cpu().float().nan_to_num(), other.float().nan_to_num())


def check_mistakes() -> None:
    for argument in ("starts", "lengths", "page_table"):
        batch = make(CASES["mixed"], torch.bfloat16)
        faults = new_faults("cuda")
        run(batch, faults=faults)
        check_faults(faults)
        if argument == "starts":
            batch.starts[2:] = 10**5
        elif argument == "lengths":
            batch.lengths[1] = 10**6
        else:
            batch.page_table[0, 0] = -5
        run(batch, faults=faults)
        try:
            check_faults(faults)
        except ValueError as error:
            assert argument in str(error) or argument == "lengths", error
        else:
            raise AssertionError(argument)


CHECKS: dict[str, Callable[[], None]] = {
    name.removeprefix("check_"): function
    for name, function in dict(globals()).items()
    if name.startswith("check_") and name != "check_faults"
}
CHECKS |= {f"large_{part}": partial(large, part) for part in range(PARTS)}
CHECKS |= {
    f"cases_{str(dtype)[6:]}_{part}": partial(cases_of, dtype, part)
    for dtype in DTYPES
    for part in range(PARTS)
}


def main() -> None:
    torch.manual_seed(0)
    for name in sys.argv[1:] or CHECKS:
        try:
            CHECKS[name]()
            torch.cuda.synchronize()
            print("ok  ", name, flush=True)
        except Exception:
            print("FAIL", name, traceback.format_exc()[-1500:], flush=True)


if __name__ == "__main__":
    main()
