"""The MoE layer on one GPU: checks it, times it beside its peers, prints every table, in one go.

    python benchmarks/moe.py --json moe.json          # on the GPU; --quick for the two rows that
    matter most python benchmarks/moe.py --figures moe.json       # anywhere: writes the tables into
    docs/moe.md

Times are medians of CUDA-graph replays over rotating inputs (and weights larger than the L2), so
launch gaps and cache hits stay out; peers that cannot be captured are timed as they run, and
marked. A floor is what must move or be multiplied at 4.3 TB/s and 790 TFLOP/s: the weights of the
experts hit in that run once, tokens in, tokens out. "floor here" is the same at the speeds that a
read and a large product reached in this run.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from anyshape.moe import Experts, MoE, SharedExpert
from benchmarks import report
from benchmarks.moe_models import (
    DEEPSEEK,
    GPT_OSS,
    MIXTRAL,
    QWEN,
    SCOUT,
    Model,
    make_layer,
    scout_layer,
)

# at which floors are reckoned; beside them stand those at the speeds measured in the run
SPEEDS = {"read TB/s": 4.3, "bf16 TFLOP/s": 790.0}
ROTATION = 8
WARM_UP_SECONDS = 0.02
MEMORY_LIMIT_BYTES = 60e9


class Results(TypedDict):
    """What the file of results has."""

    device: str
    torch: str
    ceilings: dict[str, float]
    checks: list[str]
    tables: list[tuple[str, Sequence[str], Sequence[Sequence[str]]]]


# -- timing ----------------------------------------------------------------------------------------
# -----------


def event_time(run: Callable[[], object]) -> float:
    """Microseconds of one run on the stream."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


def warm_up(run: Callable[[], object]) -> None:
    """Runs until the clocks are up: a GPU that was idle is slower for some milliseconds."""
    end = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < end:
        run()
        torch.cuda.synchronize()


def graph_time(calls: Sequence[Callable[[], object]], rounds: int = 9) -> float:
    """Microseconds a call, from one CUDA graph of all of them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(priority=-1)):
        for call in calls:
            call()
    warm_up(graph.replay)
    return statistics.median(event_time(graph.replay) for _ in range(rounds)) / len(calls)


def stream_time(calls: Sequence[Callable[[], object]], rounds: int = 5) -> float:
    """Microseconds a call as a program would see it, launches and host syncs included."""

    def once() -> None:
        for call in calls:
            call()

    once()
    torch.cuda.synchronize()
    return statistics.median(event_time(once) for _ in range(rounds)) / len(calls)


def time_peer(name: str, calls: Sequence[Callable[[], object]]) -> tuple[float, bool]:
    """(microseconds, whether a CUDA graph could hold it); the loop over experts is known not to."""
    if name == "eager":
        return stream_time(calls), False
    try:
        return graph_time(calls), True
    except Exception:
        torch.cuda.synchronize()
        return stream_time(calls), False


@triton.jit
def _read_kernel(source, out, count, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    """Reads everything, writes one number a program."""
    total = tl.zeros((BLOCK,), tl.int32)
    start = tl.program_id(0) * BLOCK
    step = tl.num_programs(0) * BLOCK
    for begin in range(start, count, step):
        total ^= tl.load(source + begin.to(tl.int64) + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0), tl.sum(total))


def ceilings() -> dict[str, float]:
    """What this GPU does in this run: TB/s read, TB/s read and written, bf16 TFLOP/s."""
    blocks = torch.cuda.get_device_properties(0).multi_processor_count * 8
    block = 4096
    count = (2**30 // (blocks * block)) * blocks * block
    source = torch.randint(0, 100, (count,), dtype=torch.int32, device="cuda")
    out = torch.empty(blocks, dtype=torch.int32, device="cuda")
    read = graph_time([lambda: _read_kernel[(blocks,)](source, out, count, BLOCK=block)] * 3)
    target = torch.empty_like(source)
    copy = graph_time([lambda: target.copy_(source)] * 3)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = graph_time([lambda: a @ b] * 5)
    return {
        "read TB/s": count * 4 / read / 1e6,
        "copy TB/s": count * 8 / copy / 1e6,
        "bf16 TFLOP/s": 2 * 8192**3 / product / 1e6,
    }


# -- checking
# -------------------------------------------------------------------------------------------------


def by_hand(layer: MoE, tokens: Tensor) -> Tensor:
    """The layer in float32, one expert at a time."""
    routing, bias = layer.routing, layer.router.bias
    logits = tokens.float() @ layer.router.weight.float().t()
    if bias is not None and routing.bias == "logits":
        logits = logits + bias.float()
    weights = logits.softmax(1) if routing.function == "softmax" else logits.sigmoid()
    ranking = weights if bias is None or routing.bias == "logits" else weights + bias.float()
    chosen = ranking.topk(routing.top_k).indices
    top = weights.gather(1, chosen)
    if routing.renormalize:
        top = top / top.sum(1, keepdim=True)
    out = torch.zeros(tokens.shape, device=tokens.device)
    for expert in chosen.unique().tolist():
        token, choice = (chosen == expert).nonzero(as_tuple=True)
        weight = top[token, choice][:, None] * routing.scale
        rows = tokens[token].float()
        rows = rows * weight if routing.apply_to == "input" else rows
        rows = expert_by_hand(layer, expert, rows)
        out.index_add_(0, token, rows if routing.apply_to == "input" else rows * weight)
    return out if layer.shared is None else out + shared_by_hand(layer.shared, tokens.float())


def shared_by_hand(shared: SharedExpert, x: Tensor) -> Tensor:
    """The shared expert in float32."""
    first = x @ shared.gate.float().t()
    gate, up = first.chunk(2, 1) if shared.up is None else (first, x @ shared.up.float().t())
    return (nn.functional.silu(gate) * up) @ shared.down.float().t()


def expert_by_hand(layer: MoE, expert: int, rows: Tensor) -> Tensor:
    """One expert in float32."""
    experts, activation = layer.experts, layer.experts.activation
    gate_up, down = experts.weights()
    both = rows @ gate_up[expert].float().t()
    if experts.gate_up_bias is not None:
        both = both + experts.gate_up_bias[expert].float()
    gate, up = (both[:, ::2], both[:, 1::2]) if activation.interleaved else both.chunk(2, 1)
    if activation.kind == "gpt_oss":
        gate, up = gate.clamp(max=activation.limit), up.clamp(-activation.limit, activation.limit)
        hidden = gate * torch.sigmoid(activation.alpha * gate) * (up + 1)
    else:
        hidden = nn.functional.silu(gate) * up
    out = hidden @ down[expert].float().t()
    return out if experts.down_bias is None else out + experts.down_bias[expert].float()


def check(name: str, layer: MoE, lines: list[str]) -> None:
    """Right numbers in bf16 and fp8, no host sync, one graph for every number of tokens."""
    torch.backends.cuda.matmul.allow_tf32 = False
    quantized, graphed = layer.to_fp8(), layer.graphed(64)
    for count in (0, 1, 17, 64, 300):
        x = torch.randn(count, layer.hidden_size, device="cuda", dtype=torch.bfloat16)
        want = by_hand(layer, x)
        errors = {"bf16": distance(layer(x), want), "fp8": distance(quantized(x), want)}
        if count <= 64:
            errors["graph"] = distance(graphed(x), want)
        torch.cuda.set_sync_debug_mode("error")
        layer(x)
        torch.cuda.set_sync_debug_mode("default")
        text = ", ".join(f"{name} {error:.4f}" for name, error in errors.items())
        good = errors["bf16"] < 0.02 and errors["fp8"] < 0.1 and errors.get("graph", 0) < 0.02
        lines.append(
            f"{'ok' if good else 'WRONG'}  {name}, {count} tokens: error {text}; no host sync"
        )
        show(lines[-1])


def distance(got: Tensor, want: Tensor) -> float:
    """Relative distance, 0 for nothing at all."""
    if not want.numel():
        return 0.0
    return ((got.float() - want).norm() / want.norm()).item()


# -- tables ----------------------------------------------------------------------------------------
# -----------


@dataclass(frozen=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        return report.titled(self.title, self.header, self.rows)


def inputs(layer: MoE, count: int) -> list[Tensor]:
    torch.manual_seed(count)
    return [
        torch.randn(count, layer.hidden_size, device="cuda", dtype=torch.bfloat16)
        for _ in range(ROTATION)
    ]


def calls_of(
    function: Callable[[Tensor], object], xs: Iterable[Tensor]
) -> list[Callable[[], object]]:
    return [lambda x=x: function(x) for x in xs]


def experts_hit(layer: MoE, xs: Sequence[Tensor]) -> float:
    """How many experts have rows, on average."""
    plans = [layer.router(x, layer.routing) for x in xs]
    return sum((plan.token_counts > 0).sum().item() for plan in plans) / len(plans)


def floor_us(
    layer: MoE, count: int, hit: float, weight_bytes: float, speeds: Mapping[str, float]
) -> float:
    """Microseconds of the experts (and the shared one): max of bytes and products."""
    hidden, expert = layer.experts.sizes if isinstance(layer.experts, Experts) else (0, 0)
    dense = 0 if layer.shared is None else 3 * layer.shared.down.numel()
    moved = hit * 3 * hidden * expert * weight_bytes + dense * 2 + 2 * count * hidden * 2
    products = 2 * count * layer.routing.top_k * 3 * hidden * expert
    multiplied = products * weight_bytes / 2 + 2 * count * dense
    return max(moved / speeds["read TB/s"], multiplied / speeds["bf16 TFLOP/s"]) / 1e6


def scout_table(read_speed: float, counts: Sequence[int]) -> Table:
    """The published decode row: all bytes of the layer, as a share of the read speed."""
    layer, block = scout_layer(), SCOUT.make_block()
    rows = []
    for name, bits in (("bf16", 2), ("fp8", 1)):
        used = layer if bits == 2 else layer.to_fp8()
        for count in counts:
            xs = inputs(layer, count)
            hit = experts_hit(layer, xs)
            dense = (
                layer.shared.gate.nbytes + layer.shared.down.nbytes
            ) + layer.router.weight.nbytes
            moved = hit * 3 * 5120 * 1024 * bits + dense
            times = {}
            for streams in (1, 2):
                used.streams = streams
                times[streams] = graph_time(calls_of(used, xs))
            used.streams = "auto"
            eager = stream_time(calls_of(used, xs))
            best = min(times.values())
            speed = moved / best / 1e6
            rows.append(
                (
                    name,
                    str(count),
                    f"{hit:.1f}",
                    f"{moved / 1e6:.1f}",
                    f"{times[1]:.1f}",
                    f"{times[2]:.1f}",
                    f"{eager:.1f}",
                    f"{speed:.2f}",
                    f"{100 * speed / read_speed:.0f} %",
                    peer_cell(layer, "dense", block, xs, best, eager),
                )
            )
            show("scout", rows[-1])
    header = ("dtype", "tokens", "experts hit", "MB", "1 stream us", "2 streams us")
    header += ("no graph us", "TB/s", "of read speed", "HF block")
    return Table("Llama 4 Scout, published shard; 197.5 us on H100 at 64 tokens", header, rows)


def peer_blocks(block: nn.Module) -> dict[str, Callable[[Tensor], object]]:
    """The block itself, under each of transformers' implementations of its experts."""
    config = getattr(block.experts, "config", None)
    if config is None:
        return {"eager": lambda x: block(x[None])}

    def run(x: Tensor, implementation: str) -> object:
        config._experts_implementation = implementation
        return block(x[None])

    names = ("eager", "grouped_mm", "batched_mm")
    return {name: (lambda x, name=name: run(x, name)) for name in names}


def too_big(layer: MoE, name: str, count: int) -> bool:
    """Whether batched_mm's copies of the weights would not fit."""
    per_expert = 3 * layer.experts.sizes[0] * layer.experts.sizes[1] * 2
    return name == "batched_mm" and count * layer.routing.top_k * per_expert > MEMORY_LIMIT_BYTES


def model_table(model: Model, counts: Sequence[int], found: Mapping[str, float]) -> Table:
    """One model's layer beside Hugging Face's."""
    block = model.make_block()
    layer = MoE.from_hf(block, relayout=True)
    quantized, peers = layer.to_fp8(), peer_blocks(block)
    rows = []
    for count in counts:
        xs = inputs(layer, count)
        hit = experts_hit(layer, xs)
        floors = [floor_us(layer, count, hit, size, SPEEDS) for size in (2, 1)]
        here = floor_us(layer, count, hit, 2, found)
        ours, fp8 = graph_time(calls_of(layer, xs)), graph_time(calls_of(quantized, xs))
        eager = stream_time(calls_of(layer, xs))
        row = [str(count), f"{hit:.1f}", f"{floors[0]:.1f}", f"{here:.1f}", f"{ours:.1f}"]
        row += [f"{ours / floors[0]:.2f}", f"{eager:.1f}", f"{fp8:.1f}", f"{fp8 / floors[1]:.2f}"]
        for name, peer in peers.items():
            row.append(peer_cell(layer, name, peer, xs, ours, eager))
        rows.append(tuple(row))
        show(model.name, rows[-1])
    header = ("tokens", "experts hit", "floor us", "floor here us", "ours us", "of floor")
    header += ("no graph us",)
    header += ("fp8 us", "of fp8 floor", *(f"HF {name}" for name in peers))
    note = " (* cannot be captured: as it runs, against ours without a graph)" if peers else ""
    return Table(f"{model.name}{note}", header, rows)


def peer_cell(
    layer: MoE,
    name: str,
    block: Callable[[Tensor], object],
    xs: Sequence[Tensor],
    ours: float,
    eager: float,
) -> str:
    """A peer's time, and by what factor ours is faster when both run the same way."""
    if too_big(layer, name, xs[0].shape[0]):
        return "out of memory"
    with torch.no_grad():
        try:
            time, captured = time_peer(name, calls_of(block, xs))
        except Exception as error:
            return f"{type(error).__name__}"
    return f"{time:.1f} ({time / (ours if captured else eager):.2f}x){'' if captured else '*'}"


def bound_table() -> Table:
    """One recording for every number of tokens, beside a recording made for exactly that number."""
    layer, rows = scout_layer(), []
    bound = layer.graphed(256)
    for count in (1, 16, 64, 256):
        x, exact = inputs(layer, count)[0], layer.graphed(count)
        exact(x)
        bound(x)
        times = [
            statistics.median(event_time(lambda g=g, n=count: g.replay(n)) for _ in range(30))
            for g in (exact, bound)
        ]
        rows.append((str(count), *(f"{time:.1f}" for time in times)))
        show("bound", rows[-1])
    return Table(
        "One CUDA graph for up to 256 tokens (Scout's shard; warm, with the launch of the replay)",
        ("tokens", "graph of this size us", "the one graph us"),
        rows,
    )


def streams_table() -> Table:
    """Where a second stream stops paying."""
    rows = []
    for name, make in (("Scout", scout_layer), ("DeepSeek-V3", lambda: make_layer(DEEPSEEK))):
        layer = make()
        for count in (1, 64, 256, 512, 1024, 2048, 4096):
            xs, times = inputs(layer, count)[:4], {}
            for streams in (1, 2):
                layer.streams = streams
                times[streams] = graph_time(calls_of(layer, xs))
            rows.append((name, str(count), f"{times[1]:.1f}", f"{times[2]:.1f}"))
            show("streams", rows[-1])
        del layer
        torch.cuda.empty_cache()
    return Table("One stream or two", ("model", "tokens", "1 stream us", "2 streams us"), rows)


def gather_table() -> Table:
    """Where gathering inside the first product stops paying."""
    layer, rows = make_layer(QWEN), []
    for count in (1, 4, 16, 64, 256, 1024):
        xs, times = inputs(layer, count), {}
        for fused in (0, 1 << 30):
            layer.experts.fused_gather_rows = fused
            times[fused] = graph_time(calls_of(layer, xs))
        gathered = 8 * count
        rows.append((str(count), str(gathered), *(f"{time:.1f}" for time in times.values())))
        show("gather", rows[-1])
    header = ("tokens", "rows", "gathered first us", "in the product us")
    return Table("Qwen3-30B-A3B: the gather as a kernel, or inside the first product", header, rows)


def kernel_table(name: str, layer: MoE, count: int) -> Table:
    """Where the time of one call goes, kernel by kernel."""
    xs = inputs(layer, count)
    for x in xs:
        layer(x)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for x in xs:
            layer(x)
        torch.cuda.synchronize()
    totals = [
        (e.key, e.self_device_time_total / len(xs), e.count / len(xs))
        for e in profile.key_averages()
    ]
    kernels = sorted((t for t in totals if t[1] > 0), key=lambda t: -t[1])
    rows = [(name[:70], f"{calls:.1f}", f"{time:.2f}") for name, time, calls in kernels[:16]]
    for row in rows:
        show("kernel", row)
    return Table(f"{name}, {count} tokens: kernels", ("kernel", "calls", "us"), rows)


# -- running
# --------------------------------------------------------------------------------------------------


def show(*parts: object) -> None:
    print(*parts, flush=True)


def check_all(lines: list[str], models: Sequence[Model]) -> None:
    """Every layer; one that fails is said, and the others still run."""
    makers = {"Scout": scout_layer, **{m.name: lambda m=m: make_layer(m) for m in models}}
    for name, make in makers.items():
        try:
            check(name, make(), lines)
        except Exception:
            lines.append(f"FAILED {name}: {traceback.format_exc()}")
            show(lines[-1])
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.empty_cache()


def attempt(results: Results, path: Path | None, make: Callable[[], Table]) -> None:
    """Adds a table, and writes all there are to `path`: what is cut off keeps what it has. One that
    fails is said, and the others still run.
    """
    try:
        table = make()
        results["tables"].append((table.title, table.header, table.rows))
        show(table.markdown() + "\n")
    except Exception:
        show("FAILED", traceback.format_exc())
    if path is not None:
        path.write_text(json.dumps(results, indent=1))
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.empty_cache()


@torch.no_grad()
def measure(quick: bool, path: Path | None) -> None:
    """Every check and every table, written to `path` one after the other."""
    found = ceilings()
    show(
        torch.cuda.get_device_name(), torch.__version__, {k: round(v, 2) for k, v in found.items()}
    )
    checks: list[str] = []
    check_all(checks, (QWEN,) if quick else (QWEN, GPT_OSS, MIXTRAL, DEEPSEEK))
    results: Results = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "ceilings": found,
        "checks": checks,
        "tables": [],
    }
    add = functools.partial(attempt, results, path)
    read = found["read TB/s"]
    add(lambda: scout_table(read, (64,) if quick else (1, 16, 64, 128, 256)))
    add(lambda: model_table(QWEN, (16, 128) if quick else (1, 16, 128, 1024, 4096), found))
    add(lambda: kernel_table("Scout", scout_layer(), 64))
    add(lambda: kernel_table("Qwen3-30B-A3B", make_layer(QWEN), 1))
    add(lambda: kernel_table("Qwen3-30B-A3B", make_layer(QWEN), 16))
    add(gather_table)
    if not quick:
        add(lambda: kernel_table("Qwen3-30B-A3B", make_layer(QWEN), 4096))
        add(lambda: model_table(GPT_OSS, (1, 16, 128, 1024, 4096), found))
        add(lambda: model_table(MIXTRAL, (1, 16, 128, 1024), found))
        add(lambda: model_table(DEEPSEEK, (1, 16, 128, 1024), found))
        add(bound_table)
        add(streams_table)


def write_figures(results: Results) -> None:
    """The tables into docs/moe.md."""
    speeds = ", ".join(f"{value:.2f} {name}" for name, value in results["ceilings"].items())
    parts = [f"{results['device']}, torch {results['torch']}; measured in the same run: {speeds}."]
    report.write_to_moe_page("moe", parts + [report.titled(*table) for table in results["tables"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument(
        "--figures", type=Path, help="write the tables of this file into docs/moe.md"
    )
    parser.add_argument("--quick", action="store_true", help="the two rows that matter most")
    arguments = parser.parse_args()
    if arguments.figures:
        write_figures(json.loads(arguments.figures.read_text()))
        return
    measure(arguments.quick, arguments.json)


if __name__ == "__main__":
    main()
