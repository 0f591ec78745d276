"""Training steps on one GPU: ours (the whole step, or the model, compiled), eager, torch.compile.

    python -m benchmarks.gpu_training FOLDER [--peers] [--models llama] [--sides step eager]

For each side and shape: milliseconds of a step that is waited for, of them the host's until all is
launched, and the device's in kernels; seconds of the first two steps; the loss of the first; the
most memory, allocated and reserved (graphs have memory that is reserved alone). For the first shape
the 25 kernels that take longest. Rows go to FOLDER/training.json as they are made, and replace
those of the same model and side; it ends after ``--seconds``. ANYSHAPE_TIMES=1 says what each stage
of a compile took.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, _dynamo, nn
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

import anyshape

SHAPES = ((4, 512), (4, 384), (2, 1024), (8, 200), (3, 777), (1, 2048))
VOCABULARY = 32000
STEPS = 8
PROFILED = 3
PROFILED_SHAPES = SHAPES[:1]
SHOWN_KERNELS = 25
Row = dict[str, Any]
Step = Callable[[Tensor], Tensor]


def llama() -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=5632, num_hidden_layers=8,
        num_attention_heads=16, num_key_value_heads=8,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def qwen3_moe() -> nn.Module:
    config = transformers.Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=1024, intermediate_size=3072, num_hidden_layers=4,
        num_attention_heads=16, num_key_value_heads=4, head_dim=64, num_experts=64,
        num_experts_per_tok=8, moe_intermediate_size=512,
    )  # fmt: skip
    return transformers.Qwen3MoeForCausalLM(config)


MODELS = {"llama": llama, "qwen3-moe": qwen3_moe}
PEERS: Mapping[str, bool | None] = {"default": None, "dynamic": True, "static": False}
"""What torch.compile is told of ``dynamic``; the model is compiled."""
OURS = {"step": None, "graphs": "reduce-overhead", "model": None}
"""The whole step, the same replayed, and the model alone: the mode that each is compiled in."""
SIDES = ("step", "graphs", "eager", "model")


def step_of(module: nn.Module, run: Callable[..., Any]) -> Step:
    optimizer = torch.optim.AdamW(module.parameters(), 1e-4, fused=True)

    def step(ids: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss: Tensor = run(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def made(side: str, module: nn.Module) -> tuple[Step, Any]:
    """The step of a side, and what was compiled."""
    if side == "eager":
        return step_of(module, module), None
    if side in ("step", "graphs"):
        whole: Any = anyshape.compile(step_of(module, module), mode=OURS[side])
        return whole, whole
    if side == "model":
        ours: Any = anyshape.compile(module)
        return step_of(module, ours), ours
    torch.compiler.reset()
    counters.clear()
    _dynamo.config.recompile_limit = 64
    theirs = torch.compile(module, dynamic=PEERS[side])
    return step_of(module, theirs), theirs


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds until a call has returned, and until the device has done it."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    returned = time.perf_counter()
    torch.cuda.synchronize()
    return (returned - start) * 1e3, (time.perf_counter() - start) * 1e3


def device_kernels(call: Callable[[], object]) -> list[Row]:
    """The kernels of a call, the longest first: microseconds of a call, and launches."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(PROFILED):
            call()
        torch.cuda.synchronize()
    rows = [
        {
            "us": event.self_device_time_total / PROFILED,
            "launches": event.count / PROFILED,
            "kernel": event.key[:160],
        }
        for event in profiled.key_averages()
        if event.self_device_time_total
    ]
    return sorted(rows, key=lambda row: -row["us"])


def measured(step: Step, ids: Tensor) -> Row:
    """The figures of one shape but the kernels'."""
    start = time.perf_counter()
    loss = step(ids).item()
    first, (_, second) = time.perf_counter() - start, timed(lambda: step(ids))
    step(ids)
    torch.cuda.reset_peak_memory_stats()
    times = [timed(lambda: step(ids)) for _ in range(STEPS)]
    peak = torch.cuda.max_memory_allocated() / 1e9
    reserved = torch.cuda.max_memory_reserved() / 1e9
    return {
        "ms": statistics.median(whole for _, whole in times),
        "host ms": statistics.median(host for host, _ in times),
        "first s": first,
        "second s": second / 1e3,
        "peak GB": peak,
        "reserved GB": reserved,
        "first loss": loss,
    }


def rows(name: str, side: str) -> Iterator[Row]:
    """The row of one model and side, again after each shape."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        module = MODELS[name]().to(torch.bfloat16).train()
    step, compiled = made(side, module)
    row: Row = {"model": name, "side": side, "shapes": {}, "first steps, s": 0.0}
    for shape in SHAPES:
        figures = row["shapes"]["{} x {}".format(*shape)] = measured(step, tokens(*shape))
        row["first steps, s"] += figures["first s"] + figures["second s"]
        row |= graphs(side, compiled)
        yield row
    for shape in PROFILED_SHAPES:  # last: every launch takes longer once a process was profiled
        ids = tokens(*shape)
        kernels = device_kernels(lambda ids=ids: step(ids))  # type: ignore[misc]
        row["shapes"]["{} x {}".format(*shape)] |= {
            "device ms": sum(kernel["us"] for kernel in kernels) / 1e3,
            "launches": sum(kernel["launches"] for kernel in kernels),
        }
        row.setdefault("kernels", kernels[:SHOWN_KERNELS])
    yield row


def tokens(batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(batch * length)
    return torch.randint(0, VOCABULARY, (batch, length), generator=generator).to("cuda")


def graphs(side: str, compiled: Any) -> Row:
    """How many programs were made, and where they break."""
    if side in OURS:
        stats = compiled.stats()
        return {
            "specializations": stats.specializations,
            "graph breaks": stats.graph_breaks,
            "eager graphs": list(stats.eager_graphs),
        }
    return {
        "specializations": counters["stats"].get("unique_graphs", 0),
        "graph breaks": sum(counters["graph_break"].values()),
    }


def shown(row: Row) -> Iterator[str]:
    """The last shape; in the end the kernels of the first one."""
    is_whole = "kernels" in row
    shape, figures = [*row["shapes"].items()][0 if is_whole else -1]
    numbers = "  ".join(f"{key} {value:.2f}" for key, value in figures.items())
    made_of = f"specializations {row['specializations']} breaks {row['graph breaks']}"
    yield f"{row['model']} {row['side']} {shape}: {numbers}  {made_of}"
    if row.get("eager graphs"):
        yield f"    left to eager torch: {row['eager graphs']}"
    if is_whole:
        for kernel in row["kernels"]:
            yield f"    {kernel['us']:9.1f} us {kernel['launches']:6.1f} x  {kernel['kernel'][:99]}"
        yield f"    the first steps took {row['first steps, s']:.1f} s in all"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="+", default=[*MODELS], choices=MODELS)
    parser.add_argument("--sides", nargs="*", default=[*SIDES], choices=(*SIDES, *PEERS))
    parser.add_argument("--peers", action="store_true", help="torch.compile, three ways, too")
    parser.add_argument("--seconds", type=float, default=240)
    chosen = parser.parse_args()
    transformers.logging.set_verbosity_error()
    over = threading.Timer(chosen.seconds, os._exit, (0,))
    over.daemon = True
    over.start()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    path = chosen.folder / "training.json"
    kept: list[Row] = json.loads(path.read_text()) if path.exists() else []
    for side in [*chosen.sides, *(PEERS if chosen.peers else ())]:
        for name in chosen.models:
            others = [row for row in kept if (row["model"], row["side"]) != (name, side)]
            try:
                for row in rows(name, side):
                    print(*shown(row), sep="\n", flush=True)
                    kept = [*others, row]
                    path.write_text(json.dumps(kept, indent=1) + "\n")
            except Exception:  # the other sides are worth their time on the machine
                traceback.print_exc()
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
