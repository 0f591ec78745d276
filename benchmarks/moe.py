"""The MoE layer on one GPU: checks it, times it beside its peers, prints every table, in one go.

    python benchmarks/moe.py --json moe.json          # on the GPU; --quick for the two rows that
    matter most python benchmarks/moe.py --figures moe.json       # anywhere: writes the tables into
    docs/moe.md

Times are medians of CUDA-graph replays over rotating inputs (and weights larger than the L2), so
launch gaps and cache hits stay out; peers that cannot be captured are timed as they run, and
marked. A floor is what must move or be multiplied at 4.3 TB/s and 790 TFLOP/s: the weights of the
experts hit in that run once, tokens in, tokens out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from anyshape.moe import MoE, Routing
from benchmarks import moe_figures

BYTES_PER_SECOND, FLOPS_PER_SECOND = 4.3e12, 790e12
ROTATION = 8
MEMORY_LIMIT_BYTES = 60e9


@dataclass(frozen=True)
class Model:
    """One layer's sizes, and its peer in transformers (family, config class, block class)."""

    name: str
    hidden: int
    expert: int
    routing: Routing
    shared: int | None = None
    peer: tuple[str, str, str] | None = None

    def layer(self) -> MoE:
        torch.manual_seed(0)
        layer = MoE(
            self.hidden,
            self.expert,
            self.routing,
            shared_size=self.shared,
            device="cuda",
            dtype=torch.bfloat16,
        )
        layer.router.weight.data.normal_(std=self.hidden**-0.5)
        return layer.requires_grad_(False).eval()


SCOUT = Model(
    "Llama 4 Scout, shard of 8", 5120, 1024, Routing(16, 1, "sigmoid", apply_to="input"), 1024
)
QWEN = Model(
    "Qwen3-30B-A3B",
    2048,
    768,
    Routing(128, 8, renormalize=True),
    peer=("qwen3_moe", "Qwen3MoeConfig", "Qwen3MoeSparseMoeBlock"),
)
GPT_OSS = Model("gpt-oss-20b sizes", 2880, 2880, Routing(32, 4, renormalize=True))
MIXTRAL = Model(
    "Mixtral-8x7B",
    4096,
    14336,
    Routing(8, 2, renormalize=True),
    peer=("mixtral", "MixtralConfig", "MixtralSparseMoeBlock"),
)
DEEPSEEK = Model(
    "DeepSeek-V3, shard of 8",
    7168,
    2048,
    Routing(32, 8, "sigmoid", True, scale=2.5, bias="ranking"),
    2048,
)


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
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    torch.cuda.synchronize()
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
    routing = layer.routing
    logits = tokens.float() @ layer.router.weight.float().t()
    weights = logits.softmax(1) if routing.function == "softmax" else logits.sigmoid()
    top, chosen = weights.topk(routing.top_k)
    if routing.renormalize:
        top = top / top.sum(1, keepdim=True)
    top = top * routing.scale
    out = torch.zeros(tokens.shape, device=tokens.device)
    gate_up, down = layer.experts.weights()
    for expert in chosen.unique().tolist():
        token, place = (chosen == expert).nonzero(as_tuple=True)
        weight = top[token, place][:, None]
        rows = tokens[token].float()
        rows = rows * weight if routing.apply_to == "input" else rows
        rows = gated(rows @ gate_up[expert].float().t()) @ down[expert].float().t()
        out.index_add_(0, token, rows if routing.apply_to == "input" else rows * weight)
    if layer.shared is not None:
        hidden = gated(tokens.float() @ layer.shared.gate.float().t())
        out += hidden @ layer.shared.down.float().t()
    return out


def gated(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, 1)
    return nn.functional.silu(gate) * up


def check(model: Model, layer: MoE, lines: list[str]) -> None:
    """Right numbers in bf16 and fp8, no host sync, one graph for every number of tokens."""
    torch.backends.cuda.matmul.allow_tf32 = False
    quantized, graphed = layer.to_fp8(), layer.graphed(64)
    for count in (0, 1, 17, 64, 300):
        x = torch.randn(count, model.hidden, device="cuda", dtype=torch.bfloat16)
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
            f"{'ok' if good else 'WRONG'}  {model.name}, {count} tokens: error {text}; no host sync"
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
        return moe_figures.markdown(self.title, self.header, self.rows)


def inputs(model: Model, count: int) -> list[Tensor]:
    torch.manual_seed(count)
    return [
        torch.randn(count, model.hidden, device="cuda", dtype=torch.bfloat16)
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


def floor_us(model: Model, count: int, hit: float, weight_bytes: float) -> float:
    """Microseconds of the routed part: max of bytes and products."""
    per_expert = 3 * model.hidden * model.expert
    moved = hit * per_expert * weight_bytes + 2 * count * model.hidden * 2
    multiplied = 2 * count * model.routing.top_k * per_expert
    rate = FLOPS_PER_SECOND if weight_bytes == 2 else 2 * FLOPS_PER_SECOND
    return max(moved / BYTES_PER_SECOND, multiplied / rate) * 1e6


def scout_table(read_speed: float, counts: Sequence[int]) -> Table:
    """The published decode row: all bytes of the layer, as a share of the read speed."""
    layer = SCOUT.layer()
    rows = []
    for name, bits in (("bf16", 2), ("fp8", 1)):
        used = layer if bits == 2 else layer.to_fp8()
        for count in counts:
            xs = inputs(SCOUT, count)
            hit = experts_hit(layer, xs)
            dense = (
                layer.shared.gate.nbytes + layer.shared.down.nbytes
            ) + layer.router.weight.nbytes
            moved = hit * 3 * SCOUT.hidden * SCOUT.expert * bits + dense
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
                )
            )
            show("scout", rows[-1])
    header = ("dtype", "tokens", "experts hit", "MB", "1 stream us", "2 streams us")
    header += ("no graph us", "TB/s", "of read speed")
    return Table("Llama 4 Scout, published shard; 197.5 us on H100 at 64 tokens", header, rows)


def peer_blocks(model: Model, layer: MoE) -> dict[str, Callable[[Tensor], object]]:
    """Hugging Face's block with the layer's own weights, under each of its implementations."""
    if model.peer is None:
        return {}
    family, config_name, block_name = model.peer
    package = f"transformers.models.{family}"
    config_class = getattr(
        importlib.import_module(f"{package}.configuration_{family}"), config_name
    )
    block_class = getattr(importlib.import_module(f"{package}.modeling_{family}"), block_name)
    config = config_class(
        hidden_size=model.hidden,
        intermediate_size=model.expert,
        num_experts_per_tok=model.routing.top_k,
        **(
            {"num_local_experts": model.routing.num_experts}
            if family == "mixtral"
            else {
                "num_experts": model.routing.num_experts,
                "moe_intermediate_size": model.expert,
                "norm_topk_prob": True,
            }
        ),
    )
    with torch.device("meta"):
        block = block_class(config)
    block.gate.weight = nn.Parameter(layer.router.weight.data, requires_grad=False)
    block.experts.gate_up_proj = nn.Parameter(layer.experts.gate_up.data, requires_grad=False)
    block.experts.down_proj = nn.Parameter(layer.experts.down.data, requires_grad=False)

    def run(x: Tensor, implementation: str) -> object:
        setattr(config, "_experts_implementation", implementation)  # noqa: B010
        return block(x[None])

    names = ("eager", "grouped_mm", "batched_mm")
    return {name: (lambda x, name=name: run(x, name)) for name in names}


def too_big(model: Model, name: str, count: int) -> bool:
    copies = count * model.routing.top_k * 3 * model.hidden * model.expert * 2
    return name == "batched_mm" and copies > MEMORY_LIMIT_BYTES


def model_table(model: Model, counts: Sequence[int]) -> Table:
    """One model's layer beside Hugging Face's."""
    layer = model.layer()
    quantized, peers = layer.to_fp8(), peer_blocks(model, layer)
    rows = []
    for count in counts:
        xs = inputs(model, count)
        hit = experts_hit(layer, xs)
        floors = floor_us(model, count, hit, 2), floor_us(model, count, hit, 1)
        ours, fp8 = graph_time(calls_of(layer, xs)), graph_time(calls_of(quantized, xs))
        eager = stream_time(calls_of(layer, xs))
        row = [str(count), f"{hit:.1f}", f"{floors[0]:.1f}", f"{ours:.1f}"]
        row += [f"{ours / floors[0]:.2f}", f"{eager:.1f}", f"{fp8:.1f}", f"{fp8 / floors[1]:.2f}"]
        for name, block in peers.items():
            row.append(peer_cell(model, name, block, xs, ours, eager))
        rows.append(tuple(row))
        show(model.name, rows[-1])
    header = ("tokens", "experts hit", "floor us", "ours us", "of floor", "no graph us")
    header += ("fp8 us", "of fp8 floor", *(f"HF {name}" for name in peers))
    note = " (* cannot be captured: as it runs, against ours without a graph)" if peers else ""
    return Table(f"{model.name}{note}", header, rows)


def peer_cell(
    model: Model,
    name: str,
    block: Callable[[Tensor], object],
    xs: Sequence[Tensor],
    ours: float,
    eager: float,
) -> str:
    """A peer's time, and by what factor ours is faster when both run the same way."""
    if too_big(model, name, xs[0].shape[0]):
        return "out of memory"
    with torch.no_grad():
        try:
            time, captured = time_peer(name, calls_of(block, xs))
        except Exception as error:
            return f"{type(error).__name__}"
    return f"{time:.1f} ({time / (ours if captured else eager):.2f}x){'' if captured else '*'}"


def bound_table() -> Table:
    """One recording for every number of tokens, beside a recording made for exactly that number."""
    layer, rows = SCOUT.layer(), []
    graphed = layer.graphed(256)
    for count in (1, 16, 64, 256):
        x = inputs(SCOUT, count)[0]
        exact = graph_time([lambda x=x: layer(x)] * 4)
        graphed(x)
        one = statistics.median(event_time(lambda n=count: graphed.replay(n)) for _ in range(20))
        rows.append((str(count), f"{exact:.1f}", f"{one:.1f}"))
        show("bound", rows[-1])
    return Table(
        "One CUDA graph for up to 256 tokens (Scout's shard; includes the replay's own launch)",
        ("tokens", "graph of this size us", "the one graph us"),
        rows,
    )


def streams_table() -> Table:
    """Where a second stream stops paying."""
    rows = []
    for model in (SCOUT, DEEPSEEK):
        layer = model.layer()
        for count in (1, 64, 256, 512, 1024, 2048, 4096):
            xs, times = inputs(model, count)[:4], {}
            for streams in (1, 2):
                layer.streams = streams
                times[streams] = graph_time(calls_of(layer, xs))
            rows.append((model.name, str(count), f"{times[1]:.1f}", f"{times[2]:.1f}"))
            show("streams", rows[-1])
        del layer
        torch.cuda.empty_cache()
    return Table("One stream or two", ("model", "tokens", "1 stream us", "2 streams us"), rows)


def gather_table() -> Table:
    """Where gathering inside the first product stops paying."""
    layer, rows = QWEN.layer(), []
    for count in (1, 4, 16, 64, 256, 1024):
        xs, times = inputs(QWEN, count), {}
        for fused in (0, 1 << 30):
            layer.experts.fused_gather_rows = fused
            times[fused] = graph_time(calls_of(layer, xs))
        gathered = 8 * count
        rows.append((str(count), str(gathered), *(f"{time:.1f}" for time in times.values())))
        show("gather", rows[-1])
    header = ("tokens", "rows", "gathered first us", "in the product us")
    return Table("Qwen3-30B-A3B: the gather as a kernel, or inside the first product", header, rows)


def kernel_table(model: Model, count: int) -> Table:
    """Where the time of one call goes, kernel by kernel."""
    layer = model.layer()
    xs = inputs(model, count)
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
    return Table(f"{model.name}, {count} tokens: kernels", ("kernel", "calls", "us"), rows)


# -- running
# --------------------------------------------------------------------------------------------------


def show(*parts: object) -> None:
    print(*parts, flush=True)


def attempt(tables: list[Table], make: Callable[[], Table]) -> None:
    """A table that fails is said, and the others still run."""
    try:
        tables.append(make())
        show(tables[-1].markdown() + "\n")
    except Exception:
        show("FAILED", traceback.format_exc())
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.empty_cache()


@torch.no_grad()
def measure(quick: bool) -> dict[str, object]:
    found = ceilings()
    show(
        torch.cuda.get_device_name(), torch.__version__, {k: round(v, 2) for k, v in found.items()}
    )
    checks: list[str] = []
    for model in (SCOUT, QWEN) if quick else (SCOUT, QWEN, GPT_OSS, MIXTRAL):
        layer = model.layer()
        try:
            check(model, layer, checks)
        except Exception:
            checks.append(f"FAILED {model.name}: {traceback.format_exc()}")
            show(checks[-1])
        torch.cuda.set_sync_debug_mode("default")
        del layer
        torch.cuda.empty_cache()
    tables: list[Table] = []
    read = found["read TB/s"]
    attempt(tables, lambda: scout_table(read, (64,) if quick else (1, 16, 64, 128, 256)))
    attempt(tables, lambda: model_table(QWEN, (16, 128) if quick else (1, 16, 128, 1024, 4096)))
    attempt(tables, lambda: kernel_table(SCOUT, 64))
    attempt(tables, lambda: kernel_table(QWEN, 16))
    attempt(tables, gather_table)
    if not quick:
        attempt(tables, lambda: kernel_table(QWEN, 4096))
        attempt(tables, lambda: model_table(GPT_OSS, (1, 16, 128, 1024, 4096)))
        attempt(tables, lambda: model_table(MIXTRAL, (1, 16, 128, 1024)))
        attempt(tables, bound_table)
        attempt(tables, streams_table)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "ceilings": found,
        "checks": checks,
        "tables": [(t.title, t.header, t.rows) for t in tables],
    }


def write_figures(results: dict[str, object]) -> None:
    """The tables into docs/moe.md."""
    speeds = ", ".join(f"{value:.2f} {name}" for name, value in results["ceilings"].items())
    parts = [f"{results['device']}, torch {results['torch']}; measured in the same run: {speeds}."]
    moe_figures.write("moe", parts + [moe_figures.markdown(*table) for table in results["tables"]])


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
    results = measure(arguments.quick)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
