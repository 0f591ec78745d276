"""The CUDA implementation of every operator against the reference, on the GPU; prints one line a
check.

    python benchmarks/moe_check.py [CHECK…]

Compiling takes most of the time, so the checks may run side by side, each in a process of its own.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from anyshape import moe
from anyshape.moe import few, gluon_gemm, reference
from anyshape.moe.gemm_tiles import Tile

FP8 = torch.float8_e4m3fn
DEVICE = "cuda"


def close(mine: Tensor, theirs: Tensor, relative: float) -> float:
    """||mine - theirs|| / ||theirs||; raises where it is not below `relative`, or where NaN
    differ.
    """
    mine, theirs = mine.double().cpu(), theirs.double().cpu()
    if mine.shape != theirs.shape:
        raise AssertionError(f"shape {mine.shape} is not {theirs.shape}")
    if not torch.equal(mine.isnan(), theirs.isnan()):
        raise AssertionError(f"{mine.isnan().sum()} NaN, expected {theirs.isnan().sum()}")
    mine, theirs = mine.nan_to_num(0.0), theirs.nan_to_num(0.0)
    error = ((mine - theirs).norm() / theirs.norm().clamp(min=1e-30)).item()
    if not error <= relative:
        raise AssertionError(f"relative error {error:.2e} > {relative:.0e}")
    return error


def check_shuffling() -> None:
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 0.5])
    for tokens, experts, top_k in (
        *((1, 1, 1), (1, 128, 8), (7, 16, 1), (33, 20, 3), (128, 128, 8), (300, 1024, 10)),
        *((2048, 128, 2), (5000, 60, 4), (16384, 512, 10), (0, 8, 2), (128, 16, 1), (64, 256, 256)),
    ):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            tied = values[torch.randint(0, 8, (tokens, experts))].to(dtype)
            for scores in (
                torch.randn(tokens, experts).to(dtype),
                tied,
                torch.randn(experts, tokens).to(dtype).T,
            ):
                for span, valid in ((None, None), ((experts // 3, experts), tokens // 2)):
                    count = None if valid is None else torch.tensor([valid])
                    mine = moe.index_shuffling(
                        scores.to(DEVICE),
                        top_k,
                        expert_range=span,
                        valid_tokens=None if count is None else count.to(DEVICE),
                    )
                    theirs = moe.index_shuffling(
                        scores, top_k, expert_range=span, valid_tokens=count
                    )
                    for one, other in zip(mine, theirs, strict=True):
                        assert torch.equal(one.cpu(), other), (tokens, experts, top_k, dtype, span)


def check_routing() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for function in ("softmax", "sigmoid"):
            for experts, groups, top_groups, best in (
                (128, 1, 1, 1),
                (256, 8, 4, 2),
                (160, 8, 3, 1),
                (7, 1, 1, 1),
            ):
                x, w = torch.randn(37, 256).to(dtype), torch.randn(256, experts).to(dtype)
                bias = torch.randn(experts) * 0.1
                options = dict(
                    function=function,
                    top_k=4,
                    renormalize=True,
                    groups=groups,
                    top_groups=top_groups,
                    group_best=best,
                    scale=2.5,
                    logit_biases=torch.randn(experts),
                )
                theirs = moe.routing_scores(x, w, bias, **options)
                options["logit_biases"] = options["logit_biases"].to(DEVICE)
                mine = moe.routing_scores(x.to(DEVICE), w.to(DEVICE), bias.to(DEVICE), **options)
                same = (mine[0].cpu().isinf() == theirs[0].isinf()).all(1)
                assert same.float().mean() > 0.9
                close(mine[1][same.to(DEVICE)], theirs[1][same], 1e-3)


def check_gather() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for rows, columns in ((5, 2880), (2000, 5120), (1500, 24), (64, 7), (3, 20000)):
            x = torch.randn(50, columns).to(dtype)
            token, expert = torch.randint(0, 50, (rows,)).int(), torch.randint(0, 8, (rows,)).int()
            scales = torch.rand(50, 8)
            for valid in (None, torch.tensor([rows // 2, 1])):
                args = (x, token, expert, scales, valid)
                on = [None if a is None else a.to(DEVICE) for a in args]
                assert torch.equal(moe.gather_mul(*on).cpu(), moe.gather_mul(*args))
                mine, theirs = moe.gather_mul_quantize(*on), moe.gather_mul_quantize(*args)
                assert torch.equal(mine[1].cpu(), theirs[1])
                differ = (mine[0].float().cpu() != theirs[0].float()).nonzero()
                if len(differ):
                    i, j = differ[0].tolist()
                    print(
                        dtype,
                        rows,
                        columns,
                        valid,
                        len(differ),
                        i,
                        j,
                        mine[0][i, j].item(),
                        theirs[0][i, j].item(),
                        mine[1][i].item(),
                        x[token[i].long(), j].item(),
                    )
                    close(mine[0], theirs[0], 1e-3)
                out = torch.randn(50, columns)
                close(
                    moe.scatter_add(out.to(DEVICE), on[0][on[1].long()], on[1], on[4]),
                    moe.scatter_add(out, x[token.long()], token, valid),
                    1e-5,
                )
                half = torch.randint(-3, 4, (50, columns)).to(dtype)
                row = torch.randint(-3, 4, (rows, columns)).to(dtype)
                few = (
                    torch.randint(0, 50, (rows,)).int()
                    if rows < 100
                    else (torch.arange(rows) % 50).int()
                )
                if rows < 100:
                    close(
                        moe.scatter_add(half.to(DEVICE), row.to(DEVICE), few.to(DEVICE)),
                        moe.scatter_add(half, row, few),
                        1e-3,
                    )


def check_activation() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for kind in reference.ACTIVATIONS:
            for columns in (130, 2880, 9000):
                x = torch.randn(40, 2 * columns).to(dtype)
                for interleaved in (False, True):
                    for valid in (None, torch.tensor(30)):
                        on = None if valid is None else valid.to(DEVICE)
                        theirs = moe.silu_mul(x, valid=valid, kind=kind, interleaved=interleaved)
                        mine = moe.silu_mul(
                            x.to(DEVICE), valid=on, kind=kind, interleaved=interleaved
                        )
                        close(mine, theirs, 3e-3)
                        mine = moe.silu_mul_quantize(
                            x.to(DEVICE), valid=on, kind=kind, interleaved=interleaved
                        )
                        close(mine[0].float() * mine[1][:, None], theirs, 4e-2)


def check_moves() -> None:
    for ranks, experts in ((1, 4), (4, 16), (8, 128), (2, 512)):
        counts = torch.randint(0, 6, (ranks, experts)).int()
        rows = int(counts.sum(1).max()) * ranks
        for dtype in (torch.bfloat16, FP8, torch.float32):
            tokens = torch.randn(rows, 264).to(dtype)
            for first, last in ((0, experts), (experts // 4, experts // 2)):
                for padded in (False, True):
                    args = (counts.to(DEVICE), first, last, padded)
                    mine = moe.combine_shuffling(tokens.to(DEVICE), *args)
                    theirs = moe.combine_shuffling(tokens, counts, first, last, padded)
                    assert torch.equal(mine[0].float().cpu(), theirs[0].float())
                    assert torch.equal(mine[1].cpu(), theirs[1])
                    mine, theirs = (
                        moe.split_shuffling(tokens.to(DEVICE), *args),
                        moe.split_shuffling(tokens, counts, first, last, padded),
                    )
                    assert torch.equal(mine.float().cpu(), theirs.float())
        padded_rows = torch.randn(ranks, rows, 264)
        token = torch.randint(0, 9, (rows,)).int()
        number = counts.sum(0).int() // ranks
        close(
            moe.scatter_add_padded(
                torch.zeros(9, 264, device=DEVICE),
                padded_rows.to(DEVICE),
                number.to(DEVICE),
                token.to(DEVICE),
            ),
            moe.scatter_add_padded(torch.zeros(9, 264), padded_rows, number, token),
            1e-5,
        )


def on_device(values: Sequence[object]) -> list[object]:
    return [value.to(DEVICE) if isinstance(value, Tensor) else value for value in values]


def check_few() -> None:
    """The layer of a few tokens: weights in 16 bits and in float8, even and odd sizes."""
    sizes = ((2048, 768, 64, 8), (520, 100, 20, 3), (2880, 36, 16, 1), (5120, 1022, 2, 1))
    for hidden, size, experts, top_k in (*sizes, (512, 1536, 8, 5)):
        for dtype in (torch.bfloat16, torch.float16, FP8):
            for tokens, function, on_input, biased in (
                (1, "softmax", False, False),
                (3, "sigmoid", True, False),
                (3, "sigmoid", True, True),
            ):
                half = torch.bfloat16 if dtype == FP8 else dtype
                x, router = torch.randn(tokens, hidden).to(half), torch.randn(hidden, experts)
                choice = (x, (router / hidden**0.5).to(half), torch.randn(experts), None, function)
                choice = (*choice, top_k, True, 1, 1, 1, 1.5)
                kept = []
                for rows, inner in ((2 * size, hidden), (hidden, size)):
                    weights = torch.randn(experts, rows, inner) / inner**0.5
                    values, scales = reference.quantize(weights.flatten(0, 1))
                    kept.append((values.view(weights.shape), scales))
                    if dtype != FP8:
                        kept[-1] = (weights.to(dtype), None)
                bias = torch.randn(experts, 2 * size) if biased else None
                valid = torch.tensor([tokens - 1 or 1]) if on_input else None
                first = (*choice, *kept[0], bias, valid, on_input, "silu", 1.0, 1.0, False)
                made, chosen, weights = reference.gate_few(*first)
                mine = few.GATE_FEW(*on_device(first))
                assert torch.equal(mine[1].cpu(), chosen)
                close(mine[2], weights, 1e-3)
                real = top_k * (tokens if valid is None else int(valid))
                close(mine[0][:real], made[:real], 1e-2)
                base = x if on_input else None
                second = (made, chosen, weights, *kept[1], None, base, None, on_input, top_k)
                close(few.DOWN_FEW(*on_device(second)), reference.down_few(*second), 1e-2)


def check_choices() -> None:
    """Experts chosen for a few tokens, out of limited groups too: distinct, and the reference's but
    where two scores are the same up to rounding.
    """
    limits = ((2, 1, 1, 1), (16, 2, 1, 1), (16, 2, 1, 2), (60, 2, 1, 1), (60, 4, 2, 3))
    for experts, groups, top_groups, best in (*limits, (128, 1, 1, 1), (256, 8, 4, 2)):
        gate_up = torch.randn(experts, 16, 256, device=DEVICE).bfloat16()
        for function in ("softmax", "sigmoid"):
            for top_k in (1, min(3, experts // groups), min(8, experts // groups)):
                for _ in range(20):
                    x = torch.randn(3, 256, device=DEVICE).bfloat16()
                    router = (torch.randn(256, experts, device=DEVICE) / 8).bfloat16()
                    routing = (function, top_k, False, groups, top_groups, best, 1.0)
                    first = (x, router, None, None, *routing, gate_up, None, None, None)
                    activation = (False, "silu", 1.0, 1.0, False)
                    chosen = few.GATE_FEW(*first, *activation)[1].view(3, top_k)
                    expected = reference.gate_few(*first, *activation)[1].view(3, top_k)
                    assert all(len(set(row.tolist())) == top_k for row in chosen)
                    assert (chosen == expected).float().mean() > 0.6, (experts, routing)


def ragged(groups: int, average: int) -> Tensor:
    """Uneven group sizes, some empty."""
    sizes = torch.randint(0, 2 * average + 1, (groups,)).int()
    sizes[torch.rand(groups) < 0.2] = 0
    return sizes


def check_tiles() -> None:
    """Tiles of the Hopper kernel that the tables do not have, beside those that they do."""
    special = dict(specialized=True, staged=True)
    for groups, average, columns, inner in (
        (16, 200, 768, 512),
        (300, 9, 264, 72),
        (3, 600, 1000, 1032),
    ):
        sizes = ragged(groups, average)
        total = int(sizes.sum())
        x = torch.randn(total + 50, inner, device=DEVICE).bfloat16()
        w = torch.randn(groups, columns, inner, device=DEVICE).bfloat16()
        expected = reference.grouped_gemm(
            x, w, sizes, None, None, None, None, None, torch.float32, True
        )
        for tile in (
            *(
                Tile(2, 1, 64, 256, 64, 4, store_n=128, **special),
                Tile(2, 1, 64, 256, 64, 3, **special),
                Tile(3, 1, 64, 128, 64, 5, store_n=64, **special),
            ),
            *(
                Tile(1, 1, 128, 256, 64, 4, store_n=128, warps=8, **special),
                Tile(1, 1, 16, 128, 128, 5, swap=True, specialized=True),
            ),
        ):
            out = torch.full(
                (total + 50, columns), float("nan"), device=DEVICE, dtype=torch.bfloat16
            )
            gluon_gemm.launch(tile, x, w, sizes.to(DEVICE), out, None, None, None, None, None, True)
            close(out, expected, 6e-3)


def check_gemm(dtype: torch.dtype) -> None:
    """Every form of the grouped product, for groups of 1 to 300 rows on average."""
    for groups, average, columns, inner in (
        *((16, 8, 256, 512), (128, 1, 512, 320), (5, 40, 2880, 1440), (8, 70, 136, 200)),
        *(
            (4, 300, 1024, 512),
            (16, 128, 768, 2048),
            (512, 4, 256, 264),
            (3, 5, 7, 9),
            (1, 1, 128, 128),
        ),
    ):
        sizes = ragged(groups, average)
        total = int(sizes.sum())
        if dtype == FP8 and inner % 16:
            continue
        for rows in {total, total + 37}:
            x = torch.randn(rows, inner, device=DEVICE).to(dtype)
            w = (torch.randn(groups, columns, inner, device=DEVICE)).to(dtype)
            bias = torch.randn(groups, columns, device=DEVICE)
            weight = torch.rand(rows, device=DEVICE)
            scales = (
                torch.rand(rows, device=DEVICE),
                torch.rand(groups, columns, device=DEVICE),
            )
            for extra in ({}, {"bias": bias, "row_weights": weight}):
                on = sizes.to(DEVICE)
                used = scales if dtype == FP8 else (None, None)
                theirs = reference.grouped_gemm(
                    x,
                    w,
                    on,
                    *used,
                    extra.get("bias"),
                    extra.get("row_weights"),
                    None,
                    torch.float32,
                    True,
                )
                if dtype == FP8:
                    mine = moe.grouped_gemm_fp8_rowwise(x, w, on, *scales, **extra)
                else:
                    mine = moe.grouped_gemm(x, w, on, **extra)
                close(mine, theirs, 1e-5 if dtype == torch.float32 else 6e-3)
                assert (mine[total:] == 0).all()
                token = torch.randint(0, 11, (rows,), device=DEVICE).int()
                out = torch.zeros(11, columns, device=DEVICE)
                expected = torch.zeros(11, columns, device=DEVICE).index_add_(
                    0, token[:total].long(), theirs[:total]
                )
                if dtype == FP8:
                    moe.grouped_gemm_fp8_rowwise(
                        x, w, on, *scales, **extra, scatter_indices=token, scatter_out=out
                    )
                else:
                    moe.grouped_gemm(x, w, on, **extra, scatter_indices=token, scatter_out=out)
                close(out, expected, 2e-3)
                if dtype == torch.bfloat16:
                    check_half_scatter(x, w, on, theirs[:total], extra)
            if dtype != FP8 and columns % 2 == 0:
                for interleaved in (False, True):
                    index = torch.randint(0, max(1, rows), (rows,), device=DEVICE) if rows else None
                    for gather in (None, index):
                        args = (x / 20, w, sizes.to(DEVICE))
                        mine = moe.grouped_gemm_gated(
                            *args, bias=bias, gather_indices=gather, interleaved=interleaved
                        )
                        theirs = reference.grouped_gemm_gated(
                            *args, bias, gather, None, "silu", 1.0, 1.0, interleaved, True
                        )
                        close(mine, theirs, 1e-2)
                factors = torch.rand(11, groups, device=DEVICE)
                token = torch.randint(0, 11, (rows,), device=DEVICE).int()
                out, expected = (
                    torch.zeros(11, columns, device=DEVICE),
                    torch.zeros(11, columns, device=DEVICE),
                )
                moe.grouped_gemm(
                    x, w, on, row_weights=factors, scatter_indices=token, scatter_out=out
                )
                reference.grouped_gemm_scatter(
                    x, w, on, token, expected, None, None, None, factors, None
                )
                close(out, expected, 2e-3)
            if dtype not in (FP8, torch.float16):
                index = torch.randint(0, max(1, rows), (total,), device=DEVICE)
                if rows:
                    mine = moe.grouped_gemm(x, w, on, gather_indices=index)
                    theirs = reference.grouped_gemm(
                        x[index], w, on, None, None, None, None, None, torch.float32, True
                    )
                    close(mine, theirs, 6e-3)
                mine = moe.grouped_gemm(x, w.transpose(1, 2).contiguous().transpose(1, 2), on)
                theirs = reference.grouped_gemm(
                    x, w, on, None, None, None, None, None, torch.float32, True
                )
                close(mine, theirs, 6e-3)


def check_half_scatter(
    x: Tensor, w: Tensor, sizes: Tensor, product: Tensor, extra: dict[str, Tensor]
) -> None:
    """Every row to a token of its own, in bfloat16, into columns of a wider matrix too."""
    token = torch.randperm(x.shape[0], device=DEVICE).int()
    columns = w.shape[1]
    for width in (columns, columns + 24):
        out = torch.zeros(x.shape[0], width, device=DEVICE, dtype=torch.bfloat16)[:, :columns]
        moe.grouped_gemm(x, w, sizes, **extra, scatter_indices=token, scatter_out=out)
        close(out[token[: len(product)].long()], product, 6e-3)


def in_a_graph(scores: Tensor, valid: Tensor, counts: Tensor, x: Tensor, w: Tensor) -> list[Tensor]:
    """What every operator makes of numbers of rows that lie on the device."""
    sizes, expert, token = moe.index_shuffling(scores, 2, valid_tokens=valid)
    factors = scores.float().sigmoid()
    rows = moe.gather_mul(x, token, expert, factors, sizes)
    values, scales = moe.gather_mul_quantize(x, token, expert, factors, sizes)
    w8, w_scales = reference.quantize(w.flatten(0, 1).float())
    product = moe.grouped_gemm(rows, w, sizes)
    added = torch.zeros(x.shape[0], w.shape[1], device=DEVICE)
    moe.grouped_gemm(rows, w, sizes, scatter_indices=token, scatter_out=added)
    moved, sums = moe.combine_shuffling(rows, counts)
    return [
        *(sizes, expert, token, rows, values.float() * scales[:, None], product, added),
        *moe.routing_scores(x, w[0].T, top_k=2),
        moe.grouped_gemm_fp8_rowwise(values, w8.view(w.shape), sizes, scales, w_scales),
        moe.grouped_gemm_gated(x, w, sizes, gather_indices=token),
        moe.silu_mul(product, valid=sizes),
        moe.scatter_add(torch.zeros_like(x), rows, token, sizes),
        moe.scatter_add_padded(torch.zeros_like(x).float(), rows[None].float(), sizes[:1], token),
        *(moved, sums, moe.split_shuffling(moved, counts)),
    ]


def check_graphs() -> None:
    """One CUDA graph of every operator; between its replays counts change, to none and to all."""
    tokens, experts, hidden = 200, 6, 512
    x = torch.randn(tokens, hidden, device=DEVICE).bfloat16()
    w = torch.randn(experts, 256, hidden, device=DEVICE).bfloat16() / hidden**0.5
    scores = torch.randn(tokens, experts, device=DEVICE)
    valid = torch.tensor([tokens], device=DEVICE)
    counts = torch.full((2, experts), 7, device=DEVICE, dtype=torch.int32)
    graph_inputs = (scores, valid, counts, x, w)
    in_a_graph(*graph_inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = in_a_graph(*graph_inputs)
    for number in (tokens, 0, 1, 77, tokens):
        valid.fill_(number)
        scores.copy_(torch.randn(tokens, experts))
        counts.copy_(torch.randint(0, 1 + number // 7, (2, experts)))
        graph.replay()
        for mine, theirs in zip(made, in_a_graph(*graph_inputs), strict=True):
            close(mine, theirs, 1e-3)  # sums of several rows have no order


CHECKS: dict[str, Callable[[], None]] = {
    "index_shuffling": check_shuffling,
    "routing_scores": check_routing,
    "gather, scatter": check_gather,
    "activation": check_activation,
    "combine, split": check_moves,
    "few tokens": check_few,
    "choices": check_choices,
    "graphs": check_graphs,
    "tiles": check_tiles,
    "grouped_gemm bfloat16": partial(check_gemm, torch.bfloat16),
    "grouped_gemm float16": partial(check_gemm, torch.float16),
    "grouped_gemm float32": partial(check_gemm, torch.float32),
    "grouped_gemm float8": partial(check_gemm, FP8),
}


def main() -> int:
    torch.manual_seed(0)
    failed = 0
    for name in sys.argv[1:] or CHECKS:
        try:
            CHECKS[name]()
            torch.cuda.synchronize()
            print("ok  ", name, flush=True)
        except Exception:
            failed += 1
            print("FAIL", name, flush=True)
            traceback.print_exc(limit=-3)
    return failed


if __name__ == "__main__":
    sys.exit(main())
