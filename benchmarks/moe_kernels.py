"""The kernels of anyshape.moe on one GPU beside their peers; prints the tables and writes them to
files.

    python -m benchmarks.moe_kernels OUT_FOLDER
    python -m benchmarks.moe_kernels --figures FILE...       # writes the tables into docs/moe.md

Peers: torch's `_grouped_mm` and `_scaled_grouped_mm`, torch operators one by one, and, where the
wheel mslk-cuda 1.1.0
is installed, the published MetaShuffling kernels (CUTLASS, and Triton autotuned over a third of
its own
configurations). A time is the median over replays of a CUDA graph that takes several input sets in
turn; the graphs
of a row are replayed one after the other in each round, so that all see the same clocks.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

from anyshape import moe
from benchmarks import report

try:
    import mslk.moe
    from mslk.gemm.triton import grouped_gemm as mslk_gemm
except ImportError:
    mslk = None
try:
    import fbgemm_gpu.experimental.gen_ai.moe as fbgemm  # the older wheel, which has top 8
except ImportError:
    fbgemm = None

FP8 = torch.float8_e4m3fn
ROUNDS = 9
# one matrix product with as many operations, in the same round: no peer, but what the card can do
DENSE = "dense"
Calls = Sequence[Callable[[], object]]
Gemm = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: what was measured, its floor in us (0: none), and us by name, ours
    first.
    """

    table: str
    name: str
    floor: float
    times: Mapping[str, float]

    @property
    def factor(self) -> float:
        """By what factor ours is faster than the best peer."""
        others = [took for name, took in self.times.items() if name not in ("ours", DENSE)]
        return min(others, default=float("nan")) / self.times["ours"]

    def cells(self, names: Sequence[str]) -> tuple[str, ...]:
        """The row of a table with these columns."""
        times = (f"{self.times[name]:.1f}" if name in self.times else "-" for name in names)
        factor = "-" if math.isnan(self.factor) else f"{self.factor:.2f}"
        return (self.name, *((f"{self.floor:.1f}",) if self.floor else ()), *times, factor)

    def text(self) -> str:
        floor = f" floor {self.floor:8.2f}" if self.floor else ""
        peers = "  ".join(f"{name} {took:.2f}" for name, took in self.times.items())
        return f"{self.table:9} {self.name:34}{floor}  {peers}  best peer / ours {self.factor:.2f}"


def record(calls: Calls, iterations: int = 20) -> torch.cuda.CUDAGraph:
    """A graph that makes `iterations` calls, in turn."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(iterations):
            calls[i % len(calls)]()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def measure(candidates: Mapping[str, Calls], iterations: int = 20) -> dict[str, float]:
    """Median microseconds of a call of each candidate; those that cannot run are left out with a
    message.
    """
    graphs = {}
    for name, calls in candidates.items():
        try:
            graphs[name] = record(calls, iterations)
        except Exception as problem:
            print("   cannot run", name, repr(problem)[:120], flush=True)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / iterations)
    return {name: statistics.median(values) for name, values in times.items()}


def ceilings() -> dict[str, float]:
    """TB/s of a copy and of a read, TFLOP/s of bf16 and fp8 products of 8192."""
    found = {}
    x = torch.randn(2**29, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    took = measure(
        {"copy": [lambda: torch.mul(x, 1.5, out=y)], "read": [lambda: x.view(torch.int32).max()]}
    )
    found["copy TB/s"] = 2 * x.nbytes / took["copy"] / 1e6
    found["read TB/s"] = x.nbytes / took["read"] / 1e6
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    one, a8, b8 = torch.ones(8192, 1, device="cuda"), a.to(FP8), b.to(FP8).t()
    took = measure(
        {
            "bf16": [lambda: a @ b],
            "fp8": [
                lambda: torch._scaled_mm(
                    a8, b8, one, one.t(), out_dtype=torch.bfloat16, use_fast_accum=True
                )
            ],
        }
    )
    found |= {f"{name} TFLOP/s": 2 * 8192**3 / value / 1e6 for name, value in took.items()}
    return found


def unfused_shuffling(scores: Tensor, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Index shuffling out of torch's operators."""
    expert = scores.topk(top_k, dim=1).indices.reshape(-1)
    counts = torch.zeros(scores.shape[1], dtype=torch.int64, device=scores.device)
    counts.scatter_add_(0, expert, torch.ones_like(expert))
    experts, order = torch.sort(expert, stable=True)
    return counts, experts, order // top_k


SHUFFLES = (
    *((1, tokens, experts) for tokens in (128, 2048, 4096, 8192) for experts in (16, 128)),
    *(
        (top_k, tokens, experts)
        for top_k in (2, 4)
        for tokens, experts in ((128, 16), (128, 128), (2048, 128), (8192, 128))
    ),
    *(
        (8, tokens, experts)
        for tokens, experts in (
            (1, 128),
            (16, 128),
            (128, 128),
            (2048, 128),
            (8192, 128),
            (4096, 512),
        )
    ),
)


def shuffling_rows() -> Iterator[Row]:
    """Choosing and sorting, for several tokens x experts and top-k."""
    for top_k, tokens, experts in SHUFFLES:
        scores = [torch.randn(tokens, experts, device="cuda") for _ in range(4)]
        candidates: dict[str, Calls] = {
            "ours": [lambda s=s: moe.index_shuffling(s, top_k) for s in scores],
            "torch": [lambda s=s: unfused_shuffling(s, top_k) for s in scores],
        }
        if mslk is not None and top_k <= 4:
            published = torch.ops.mslk.index_shuffling
            candidates["mslk"] = [lambda s=s: published(s, top_k=top_k) for s in scores]
        if fbgemm is not None and experts in (16, 32, 128, 320):
            older = torch.ops.fbgemm.index_shuffling
            candidates["fbgemm"] = [lambda s=s: older(s, top_k=top_k) for s in scores]
        yield Row(
            "shuffle", f"top {top_k}, {tokens} tokens, {experts} experts", 0.0, measure(candidates)
        )


def move_rows(copy: float) -> Iterator[Row]:
    """Gather, scatter, quantize, activate: 16,384 rows of 5,120; floors are bytes at the measured
    copy speed.
    """
    tokens, columns, experts = 16384, 5120, 16
    xs = [torch.randn(tokens, columns, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    scores = torch.randn(tokens, experts, device="cuda", dtype=torch.bfloat16)
    _, expert, token = moe.index_shuffling(scores)
    out = torch.zeros(tokens, columns, device="cuda", dtype=torch.bfloat16)
    size = xs[0].nbytes
    counts = torch.full((4, experts), tokens // 4 // experts, device="cuda", dtype=torch.int32)
    ours = {
        "gather_mul": (2.0, lambda x: moe.gather_mul(x, token, expert, scores)),
        "gather_mul_quantize": (1.5, lambda x: moe.gather_mul_quantize(x, token, expert, scores)),
        "scatter_add": (3.0, lambda x: moe.scatter_add(out, x, token)),
        "scatter_add unique": (3.0, lambda x: moe.scatter_add(out, x, token, unique=True)),
        "silu_mul": (1.5, lambda x: moe.silu_mul(x)),
        "silu_mul_quantize": (1.25, lambda x: moe.silu_mul_quantize(x)),
        "combine_shuffling": (2.0, lambda x: moe.combine_shuffling(x, counts)),
        "split_shuffling": (2.0, lambda x: moe.split_shuffling(x, counts, init_tail=False)),
    }
    peers: dict[str, dict[str, Callable[[Tensor], object]]] = {
        "scatter_add": {"torch": lambda x: out.index_add_(0, token, x)},
        "gather_mul": {"torch": lambda x: x[token] * scores[token, expert][:, None]},
    }
    if mslk is not None:
        peers["gather_mul"]["mslk"] = lambda x: mslk.moe.gather_scale_dense_tokens(
            x, token, expert, scores
        )
        peers["gather_mul_quantize"] = {
            "mslk": lambda x: mslk.moe.gather_scale_quant_dense_tokens(x, token, expert, scores)
        }
        peers["scatter_add"]["mslk"] = lambda x: mslk.moe.scatter_add_dense_tokens(out, x, token)
        peers["scatter_add unique"] = {"mslk": peers["scatter_add"]["mslk"]}
    for name, (times, run) in ours.items():
        all_of = {"ours": run, **peers.get(name, {})}
        candidates = {key: [lambda x=x, f=f: f(x) for x in xs] for key, f in all_of.items()}
        yield Row("rows", name, times * size / copy / 1e6, measure(candidates))


def random_sizes(groups: int, rows: int) -> Tensor:
    """Uneven sizes with the same sum, a tenth of them 0."""
    shares = torch.rand(groups) ** 2 * (torch.rand(groups) > 0.1)
    sizes = (shares / shares.sum() * groups * rows).floor().int()
    sizes[int(sizes.argmax())] += groups * rows - int(sizes.sum())
    return sizes.cuda()


def gemm_candidates(bits: int, shape: Gemm, sizes: Tensor, copies: int) -> dict[str, Calls]:
    """Ours, torch's and the published grouped products, over the same operands."""
    groups, rows, columns, inner = shape
    ends, long = sizes.cumsum(0).int(), sizes.long()
    dtype = torch.bfloat16 if bits == 16 else FP8
    xs = [
        torch.randn(groups * rows, inner, device="cuda", dtype=torch.bfloat16).to(dtype)
        for _ in range(copies)
    ]
    ws = [
        torch.randn(groups, columns, inner, device="cuda", dtype=torch.bfloat16).to(dtype)
        for _ in range(copies)
    ]
    a, b = torch.rand(groups * rows, device="cuda"), torch.rand(groups, columns, device="cuda")
    both = list(zip(xs, ws, strict=True))
    flat = (groups * columns, inner)
    plain = {"_use_warp_specialization": False}
    if bits == 16:
        candidates: dict[str, Calls] = {
            "ours": [lambda x=x, w=w: moe.grouped_gemm(x, w, sizes) for x, w in both],
            "torch": [
                lambda x=x, w=w: torch._grouped_mm(x, w.transpose(1, 2), offs=ends) for x, w in both
            ],
            **({} if rows < 128 else {DENSE: [lambda x=x, w=w: x @ w[0].T for x, w in both]}),
        }
        if mslk is not None:
            cutlass = torch.ops.mslk.bf16bf16bf16_grouped_stacked
            candidates["cutlass"] = [lambda x=x, w=w: cutlass(x, w, long) for x, w in both]
            candidates["triton"] = [
                lambda x=x, w=w: mslk_gemm.grouped_gemm(x, w.view(flat), sizes, **plain)
                for x, w in both
            ]
        return candidates
    fast = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    candidates = {
        "ours": [lambda x=x, w=w: moe.grouped_gemm_fp8_rowwise(x, w, sizes, a, b) for x, w in both],
        "torch": [
            lambda x=x, w=w: torch._scaled_grouped_mm(x, w.transpose(1, 2), a, b, offs=ends, **fast)
            for x, w in both
        ],
    }
    if rows >= 128:
        ones = (torch.ones(len(xs[0]), 1, device="cuda"), torch.ones(1, columns, device="cuda"))
        candidates[DENSE] = [
            lambda x=x, w=w: torch._scaled_mm(x, w[0].T, *ones, **fast) for x, w in both
        ]
    if mslk is not None:
        cutlass = torch.ops.mslk.f8f8bf16_rowwise_grouped_stacked
        candidates["cutlass"] = [lambda x=x, w=w: cutlass(x, w, a, b, long) for x, w in both]
        candidates["triton"] = [
            lambda x=x, w=w: mslk_gemm.grouped_gemm_fp8_rowwise(
                x, w.view(flat), sizes, a, b.view(-1), **plain
            )
            for x, w in both
        ]
    return candidates


def agree(candidates: Mapping[str, Calls]) -> None:
    """The first operands' results of ours and torch's are the same within bf16's rounding."""
    mine, theirs = candidates["ours"][0](), candidates["torch"][0]()
    error = ((mine.float() - theirs.float()).norm() / theirs.float().norm()).item()
    if not error < 5e-3:
        raise AssertionError(f"ours differs from torch's by {error}")


def gemm_rows(speeds: Mapping[str, float], deadline: float) -> Iterator[Row]:
    """Grouped products of equal and of random sizes, and of 512 groups."""
    shapes: list[tuple[Gemm, bool]] = [
        ((16, 1024, 5120, 1024), False),
        ((16, 1024, 2048, 5120), False),
        ((128, 128, 2048, 5120), False),
        ((128, 128, 5120, 1024), False),
        ((16, 8, 2048, 5120), False),
        ((16, 8, 5120, 1024), False),
        ((128, 1, 2048, 5120), False),
        ((128, 1, 5120, 1024), False),
        ((16, 1024, 5120, 1024), True),
        ((16, 1024, 2048, 5120), True),
        ((128, 128, 2048, 5120), True),
        ((128, 128, 5120, 1024), True),
        ((16, 8, 5120, 1024), True),
        ((512, 32, 1024, 2048), True),
    ]
    for shape, uneven in shapes:
        groups, rows, columns, inner = shape
        for bits in (16, 8):
            if time.monotonic() > deadline:
                return
            torch.manual_seed(0)
            sizes = (
                random_sizes(groups, rows)
                if uneven
                else torch.full((groups,), rows, device="cuda", dtype=torch.int32)
            )
            candidates = gemm_candidates(bits, shape, sizes, 2)
            agree(candidates)
            hit = int((sizes > 0).sum())
            moved = (
                hit * columns + groups * rows
            ) * inner * bits // 8 + groups * rows * columns * 2
            worked = 2 * groups * rows * columns * inner
            peak = speeds["bf16 TFLOP/s" if bits == 16 else "fp8 TFLOP/s"]
            floor = max(moved / speeds["read TB/s"] / 1e6, worked / peak / 1e6)
            name = "x".join(map(str, shape)) + (" random" if uneven else "")
            yield Row("bf16" if bits == 16 else "fp8", name, floor, measure(candidates, 10))
            del candidates
            torch.cuda.empty_cache()


def keep_some_configurations() -> None:
    """A third of the published Triton kernel's configurations: the others never won where all were
    tried.
    """
    for kernel in vars(mslk_gemm).values():
        if hasattr(kernel, "configs") and hasattr(kernel, "fn"):
            kernel.configs = [
                config
                for config in kernel.configs
                if config.kwargs["BLOCK_SIZE_N"] in (128, 256)
                and config.kwargs["BLOCK_SIZE_K"] in (64, 128)
                and config.kwargs["BLOCK_SIZE_M"] * config.kwargs["BLOCK_SIZE_N"]
                >= 2048 * config.num_warps
            ]


TITLES = {
    "shuffle": "Index shuffling, us",
    "rows": "16,384 rows of 5,120 in bf16, us; the floor is bytes at the copy speed",
    "bf16": "Grouped product in bf16 (groups x rows x columns x inner), us",
    "fp8": "Grouped product in fp8 with a scale a row, us",
}


PEERS = {"mslk": "mslk-cuda 1.1.0", "fbgemm": "fbgemm-gpu-genai 1.6.0"}


def tables_of(results: Mapping[str, Any]) -> list[str]:
    """What was measured beside which peers, and its tables."""
    speeds = ", ".join(f"{value:.2f} {name}" for name, value in results["ceilings"].items())
    rows = [Row(**row) for row in results["rows"]]
    there = [peer for name, peer in PEERS.items() if any(name in row.times for row in rows)]
    machine = ", ".join((results["machine"], *there))
    parts = [f"{machine}; measured in the same run: {speeds}."]
    for table, title in TITLES.items():
        chosen = [row for row in rows if row.table == table]
        names = list(dict.fromkeys(name for row in chosen for name in row.times))
        names.sort(key=lambda name: name == DENSE)
        floors = ("floor",) if any(row.floor for row in chosen) else ()
        header = ("", *floors, *names, "best peer / ours")
        if chosen:
            parts.append(report.titled(title, header, [row.cells(names) for row in chosen]))
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=Path())
    parser.add_argument("--figures", type=Path, nargs="+", help="write these files' tables")
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--shuffling", action="store_true", help="only that table")
    options = parser.parse_args()
    if options.figures:
        read = [json.loads(path.read_text()) for path in options.figures]
        parts = [part for results in read for part in tables_of(results)]
        report.write_to_moe_page("moe_kernels", parts)
        return
    deadline = time.monotonic() + options.seconds
    torch.manual_seed(0)
    if mslk is not None:
        keep_some_configurations()
    machine = (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    )
    print(machine, "" if mslk is None else "with mslk-cuda 1.1.0", flush=True)
    speeds = ceilings()
    print("  ".join(f"{name} {value:.2f}" for name, value in speeds.items()), flush=True)
    rows = []
    tables = [shuffling_rows(), move_rows(speeds["copy TB/s"]), gemm_rows(speeds, deadline)]
    for table in tables[:1] if options.shuffling else tables:
        for row in table:
            rows.append(row)
            print(row.text(), flush=True)
            text = [machine, json.dumps(speeds), *(row.text() for row in rows)]
            (options.out / "moe_kernels.txt").write_text("\n".join(text) + "\n")
            found = [
                {"table": row.table, "name": row.name, "floor": row.floor, "times": dict(row.times)}
                for row in rows
            ]
            (options.out / "moe_kernels.json").write_text(
                json.dumps({"machine": machine, "ceilings": speeds, "rows": found})
            )


if __name__ == "__main__":
    sys.exit(main())
