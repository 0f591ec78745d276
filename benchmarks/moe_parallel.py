"""The MoE layer over all GPUs of this host through NCCL: checks it, times it, prints every table,
in one go.

    python -m benchmarks.moe_parallel --json moe_parallel.json      # one process for each GPU
    python -m benchmarks.moe_parallel --gloo 2                      # no GPU: checks only
    python -m benchmarks.moe_parallel --figures A.json B.json       # writes docs/moe.md

Each row is one way of spreading one layer; the number of tokens is for each expert-parallel rank.
"graph" rows are replays of one CUDA graph on all ranks. The floor beside them is what a rank's
collectives alone take, measured in the same run. The last stage lets one rank die and says how long
the others lived.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor

from anyshape.moe import Exchange, Mesh, MoE, ParallelMoE, Routing
from benchmarks import report

TIMEOUT = timedelta(seconds=90)
DEATH_TIMEOUT = timedelta(seconds=15)


@dataclass(frozen=True)
class Model:
    """One layer's sizes."""

    name: str
    hidden: int
    expert: int
    routing: Routing
    shared: int | None = None


@dataclass(frozen=True)
class Way:
    """One way of spreading a layer."""

    name: str
    tp: int
    ep: int
    exchange: Exchange
    fp8: bool = False


QWEN = Model("Qwen3-30B-A3B", 2048, 768, Routing(128, 8, renormalize=True))
SCOUT = Model("Llama 4 Scout", 5120, 8192, Routing(16, 1, "sigmoid", apply_to="input"), shared=8192)
TINY = Model("tiny", 64, 32, Routing(16, 2, renormalize=True), shared=64)


def ways(world: int) -> list[Way]:
    """Every way that `world` ranks allow."""
    dynamic, static = Exchange("dynamic"), Exchange("static")
    found = [
        Way("tp", world, 1, static),
        Way("ep dynamic", 1, world, dynamic),
        Way("ep static", 1, world, static),
        Way("ep dynamic, fp8", 1, world, dynamic, fp8=True),
        Way("ep static, fp8", 1, world, static, fp8=True),
    ]
    if world >= 4:
        half = world // 2
        for name, exchange in (("dynamic", dynamic), ("static", static)):
            repeated = Exchange(exchange.mode, deduplicate=False)
            sequence = Exchange(exchange.mode, sequence_parallel=True)
            found += [
                Way(f"tp {half} x ep 2 {name}, deduplicated", half, 2, exchange),
                Way(f"tp {half} x ep 2 {name}, repeated", half, 2, repeated),
                Way(f"tp {half} x ep 2 {name}, sequence parallel", half, 2, sequence),
            ]
    return found


class Rank:
    """What every stage needs: where this process stands and what it may use."""

    def __init__(self, rank: int, world: int, cuda: bool, directory: str, quick: bool) -> None:
        self.rank, self.world, self.cuda, self.quick = rank, world, cuda, quick
        self.directory = Path(directory)
        self.device = torch.device("cuda", rank) if cuda else torch.device("cpu")
        self.dtype = torch.bfloat16 if cuda else torch.float32
        self.lines: list[str] = []
        self.tables: list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]] = []

    def start(self, name: str, timeout: timedelta) -> None:
        if self.cuda:
            torch.cuda.set_device(self.device)
        dist.init_process_group(
            "nccl" if self.cuda else "gloo",
            init_method=f"file://{self.directory}/{name}",
            rank=self.rank,
            world_size=self.world,
            timeout=timeout,
            device_id=self.device if self.cuda else None,
        )

    def say(self, *parts: object) -> None:
        if self.rank == 0:
            print(*parts, flush=True)

    def layer(self, model: Model) -> MoE:
        """The same whole layer on every rank."""
        torch.manual_seed(0)
        layer = MoE(
            model.hidden,
            model.expert,
            model.routing,
            shared_size=model.shared,
            device=self.device,
            dtype=self.dtype,
        )
        layer.router.weight.data.normal_(std=model.hidden**-0.5)
        for parameter in layer.parameters():
            dist.broadcast(parameter.data, 0)
        return layer.requires_grad_(False).eval()

    def tokens(self, model: Model, count: int, ep_rank: int, seed: int = 0) -> Tensor:
        """The tokens of one expert-parallel rank: equal on its tensor-parallel ranks."""
        generator = torch.Generator().manual_seed(1000 * seed + ep_rank)
        x = torch.randn(count, model.hidden, generator=generator)
        return x.to(self.device, self.dtype)


def time_calls(rank: Rank, call: Callable[[], object], rounds: int, calls: int) -> float:
    """Microseconds a call, the slowest rank's median."""
    call()
    times = []
    for _ in range(rounds):
        if rank.cuda:
            torch.cuda.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        if rank.cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e6 / calls)
    slowest = torch.tensor([statistics.median(times)], device=rank.device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def distance(got: Tensor, want: Tensor) -> float:
    if not want.numel():
        return 0.0
    return ((got.float() - want.float()).norm() / want.float().norm()).item()


def own_tokens(layer: ParallelMoE, x: Tensor) -> Tensor:
    """What this rank comes with: its share under sequence parallel."""
    tp = layer.mesh.tp
    return x.chunk(tp.size)[tp.rank].contiguous() if layer.exchange.sequence_parallel else x


def check(rank: Rank, model: Model, whole: MoE, way: Way, layer: ParallelMoE) -> None:
    """Against the whole layer on one GPU, with ragged numbers of tokens where allowed."""
    ep_rank, tp = layer.mesh.ep.rank, layer.mesh.tp
    worst = 0.0
    for count in (8 * way.tp, 64 * way.tp):
        ragged = way.exchange.mode == "dynamic" and way.ep > 1
        mine = count * (1 + ep_rank) if ragged else count
        x = rank.tokens(model, mine, ep_rank)
        want, got = whole(x), layer(own_tokens(layer, x))
        if way.exchange.sequence_parallel:
            want = want.chunk(tp.size)[tp.rank]
        worst = max(worst, distance(got, want))
    limit = torch.tensor([worst], device=rank.device)
    dist.all_reduce(limit, dist.ReduceOp.MAX)
    good = limit.item() < (0.1 if way.fp8 else 0.02 if rank.cuda else 1e-4)
    line = f"{'ok' if good else 'WRONG'}  {model.name}, {way.name}: error {limit.item():.5f}"
    rank.lines.append(line)
    rank.say(line)


def time_way(rank: Rank, model: Model, way: Way, layer: ParallelMoE, counts: Sequence[int]) -> list:
    rows = []
    for count in counts:
        if count % way.tp and (way.exchange.sequence_parallel or way.exchange.mode == "static"):
            continue
        x = own_tokens(layer, rank.tokens(model, count, layer.mesh.ep.rank))
        plain = time_calls(rank, lambda x=x: layer(x), 5, 10)
        graphed = "-"
        if rank.cuda and (way.exchange.mode == "static" or way.ep == 1):
            recorded = layer.graphed(x.shape[0])
            recorded(x)
            graphed = f"{time_calls(rank, lambda r=recorded, n=x.shape[0]: r.replay(n), 5, 20):.1f}"
            torch.cuda.synchronize()
            del recorded
        rows.append((way.name, str(count), f"{plain:.1f}", graphed))
        rank.say(model.name, *rows[-1])
    return rows


def collectives_table(rank: Rank, model: Model, counts: Sequence[int]) -> None:
    """The collectives alone: the floor of every way."""
    rows, world, group = [], rank.world, dist.group.WORLD
    for count in counts:
        x = torch.zeros(count, model.hidden, device=rank.device, dtype=rank.dtype)
        everyone = torch.zeros(world * count, model.hidden, device=rank.device, dtype=rank.dtype)
        sent = torch.zeros(
            count * model.routing.top_k // world * world,
            model.hidden,
            device=rank.device,
            dtype=rank.dtype,
        )
        received = torch.empty_like(sent)
        cells = [
            time_calls(rank, lambda x=x: dist.all_reduce(x), 5, 20),
            time_calls(rank, lambda x=x, e=everyone: dist.all_gather_into_tensor(e, x), 5, 20),
            time_calls(rank, lambda x=x, e=everyone: dist.reduce_scatter_tensor(x, e), 5, 20),
            time_calls(rank, lambda s=sent, r=received: dist.all_to_all_single(r, s), 5, 20),
        ]
        rows.append((str(count), *(f"{cell:.1f}" for cell in cells)))
        rank.say(model.name, "collectives", *rows[-1])
    header = (
        "tokens a rank",
        "all-reduce us",
        "all-gather us",
        "reduce-scatter us",
        "all-to-all us",
    )
    rank.tables.append(
        (f"{model.name}: the collectives alone, {world} GPUs, {group.name()}", header, rows)
    )


@torch.no_grad()
def measure(rank: Rank) -> None:
    models = [TINY] if not rank.cuda else [QWEN] if rank.quick else [QWEN, SCOUT]
    counts = (8,) if not rank.cuda else (64, 4096) if rank.quick else (1, 16, 128, 1024, 4096)
    for model in models:
        whole = rank.layer(model)
        rows = []
        for count in counts:
            x = rank.tokens(model, count, 0)
            alone = time_calls(rank, lambda w=whole, x=x: w(x), 5, 10)
            rows.append(("one GPU, all experts", str(count), f"{alone:.1f}", "-"))
        for way in ways(rank.world):
            mesh = Mesh.of_world(tp=way.tp, ep=way.ep, timeout=TIMEOUT)
            layer = ParallelMoE.of(whole, mesh, way.exchange, fp8=way.fp8)
            check(rank, model, whole, way, layer)
            rows += time_way(rank, model, way, layer, counts)
            del layer
        header = ("way", "tokens a rank", "us", "us, one CUDA graph")
        rank.tables.append((f"{model.name}, {rank.world} ranks", header, rows))
        if rank.cuda:
            collectives_table(rank, model, counts)


def run_measure(index: int, world: int, cuda: bool, directory: str, quick: bool) -> None:
    rank = Rank(index, world, cuda, directory, quick)
    rank.start("measure", TIMEOUT)
    try:
        measure(rank)
    except Exception:
        print(f"FAILED on rank {index}", traceback.format_exc(), flush=True)
        os._exit(1)
    if index == 0:
        results = {"checks": rank.lines, "tables": rank.tables}
        (rank.directory / "results.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


def run_death(index: int, world: int, cuda: bool, directory: str, quick: bool) -> None:
    """Rank 1 is gone before the second call: all others must end with an error."""
    rank = Rank(index, world, cuda, directory, quick)
    rank.start("death", DEATH_TIMEOUT)
    mesh = Mesh.of_world(ep=world, timeout=DEATH_TIMEOUT)
    layer = ParallelMoE.of(rank.layer(TINY), mesh, Exchange("dynamic"))
    x = rank.tokens(TINY, 8, index)
    layer(x)
    if index == 1:
        os._exit(9)
    try:
        layer(x)
    except Exception as error:
        print(f"rank {index}: {str(error).splitlines()[0]}", flush=True)
        os._exit(1)  # the GPU still waits for rank 1: a tidy end would wait with it


def death(world: int, cuda: bool, directory: str) -> str:
    """How the ranks ended when one of them died."""
    context = processes.get_context("spawn")
    ranks = [
        context.Process(target=run_death, args=(i, world, cuda, directory, True))
        for i in range(world)
    ]
    for process in ranks:
        process.start()
    ranks[1].join()
    begin = time.monotonic()
    for process in ranks:
        process.join(2 * DEATH_TIMEOUT.total_seconds())
    seconds = time.monotonic() - begin
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        if process.exitcode is None:
            process.kill()
    good = all(code not in (None, 0) for code in codes)
    timeout = DEATH_TIMEOUT.total_seconds()
    return (
        f"{'ok' if good else 'WRONG'}  rank 1 died; exit codes {codes}, the last after "
        f"{seconds:.1f} s (timeout {timeout:.0f} s)"
    )


def page_parts(path: Path) -> list[str]:
    """What docs/moe.md says of one file of results: which machine and when, checks, tables."""
    results = json.loads(path.read_text())
    measured = results["device"] + (f", {results['date']}" if "date" in results else "")
    checks = "\n".join(f"- {line}" for line in results["checks"])
    return [
        f"{measured}.",
        checks,
        *(report.titled(*table) for table in results["tables"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--gloo", type=int, help="this many processes on the CPU instead")
    parser.add_argument("--quick", action="store_true", help="one model, two sizes")
    parser.add_argument(
        "--figures", type=Path, nargs="+", help="write these files' tables into docs/moe.md"
    )
    arguments = parser.parse_args()
    if arguments.figures:
        parts = [part for path in arguments.figures for part in page_parts(path)]
        report.write_to_moe_page("moe_parallel", parts)
        return
    cuda = arguments.gloo is None
    world = torch.cuda.device_count() if cuda else arguments.gloo
    if world < 2:
        raise SystemExit(f"needs at least 2 GPUs, found {world}; --gloo 2 checks it on the CPU")
    with tempfile.TemporaryDirectory() as directory:
        processes.spawn(run_measure, (world, cuda, directory, arguments.quick), nprocs=world)
        results = json.loads((Path(directory) / "results.json").read_text())
        results["checks"].append(death(world, cuda, directory))
    results["device"] = f"{world} x {torch.cuda.get_device_name()}" if cuda else "CPU"
    results["date"] = time.strftime("%d %B %Y, %H:%M", time.gmtime())
    print(results["checks"][-1])
    for table in results["tables"]:
        print("\n" + report.titled(*table))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
