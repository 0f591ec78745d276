"""Compiled programs on one GPU beside eager torch and torch.compile, in one process.

    python -m benchmarks.gpu OUT_FOLDER [kernels|products|models ...] [--only NAME ...] [--no-peers]
                             [--dtype float32]

Kernels: the time of a CUDA graph of ten calls, which is the device's time alone; `host` is what a
call costs the host; bytes are those of the tensors that it is handed and gives. Products are linear
layers and what follows them, by rows, columns and summed axis; `max-autotune` is ours. Models: the
median of calls that are waited for, and the sum of first calls over all shapes. Peers are
torch.compile's defaults, a graph for each shape (`static`) and one for all (`dynamic`); of kernels
`autotune` is its max-autotune for each shape. Rows of what is measured again replace those in the
folder; others stay.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import platform
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
import transformers
import triton
from torch import Tensor, nn

import anyshape
from benchmarks.gpu_models import MODELS, VOCABULARY
from benchmarks.moe_kernels import ceilings

SIZES = ((16384, 4096), (4096, 5120), (4096, 4096), (64, 2048), (4096, 50257), (3, 131072))
ROWS = (1, 16, 100, 512, 2048, 8192)
LAYERS = ((64, 256), (256, 1024), (128, 512), (64, 64), (1024, 4096))
"""The summed axis and the columns of linear layers."""
SHAPES = ((1, 512), (1, 384), (4, 100), (1, 1), (8, 1), (64, 1), (17, 1), (2, 1024))
REPLAYED = ((1, 512), (1, 1), (64, 1))
"""Shapes at which CUDA graphs are compared, each of which costs the peer a compile."""
EPSILON = 1e-6
HEAD = 128
AUTOTUNE = "max-autotune-no-cudagraphs"


@dataclass(frozen=True, slots=True)
class Row:
    """One program at one size: microseconds on the device and on the host, and bytes it moves."""

    name: str
    size: tuple[int, int]
    right: bool
    bytes: int
    times: Mapping[str, float]
    host: float

    def __str__(self) -> str:
        times = "  ".join(f"{name} {took:8.1f}" for name, took in self.times.items())
        rate = self.bytes / self.times["ours"] / 1e6
        right = "" if self.right else "  WRONG"
        size = f"{self.size[0]} x {self.size[1]}"
        return f"{self.name:14} {size:>14}  {times}  {rate:5.2f} TB/s  host {self.host:5.1f}{right}"


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + EPSILON)
    return x * scale.to(x.dtype) * w


def swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x.float(), -1)


def add_gelu(x: Tensor, y: Tensor) -> Tensor:
    return F.gelu(x + y, approximate="tanh")


def norm_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b), approximate="tanh")


def residual_norm(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    total = x + y
    return total, rms_norm(total, w)


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x.float(), target)


def sum_of_columns(x: Tensor) -> Tensor:
    return x.sum(0)


def sum_of_squares(x: Tensor) -> Tensor:
    return x.float().pow(2).sum()


def transposed_add(x: Tensor, y: Tensor) -> Tensor:
    return x.t() + y.t()


def argmax(x: Tensor) -> Tensor:
    return x.argmax(-1)


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


PROGRAMS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "rms norm": (rms_norm, "xw"),
    "SwiGLU": (swiglu, "x"),
    "softmax": (softmax, "x"),
    "add + GELU": (add_gelu, "xy"),
    "norm + GELU": (norm_gelu, "xwb"),
    "residual norm": (residual_norm, "xyw"),
    "cross entropy": (cross_entropy, "xt"),
    "sum over rows": (sum_of_columns, "x"),
    "sum of squares": (sum_of_squares, "x"),
    "transposed add": (transposed_add, "xy"),
    "argmax": (argmax, "x"),
}
"""Name -> the program and its operands."""
TIMED = {**PROGRAMS, "rotary": (rotary, "hcs")}
CLASSES = ((4096, 32000), (4096, 128000))
"""More sizes of cross entropy."""


HALVING = frozenset({swiglu, rotary})
"""What needs an even number of columns."""


def operands(rows: int, columns: int, dtype: torch.dtype) -> dict[str, Tensor]:
    x = torch.randn(rows, columns, device="cuda", dtype=dtype)
    w = torch.randn(columns, device="cuda", dtype=dtype)
    target = torch.randint(0, columns, (rows,), device="cuda")
    made = {"x": x, "y": torch.randn_like(x), "w": w, "b": torch.randn_like(w), "t": target}
    if columns % HEAD == 0:
        angle = torch.randn(rows, 1, HEAD, device="cuda")
        made |= {
            "h": x.view(rows, -1, HEAD),
            "c": angle.cos().to(dtype),
            "s": angle.sin().to(dtype),
        }
    return made


def moved(*sides: Any) -> int:
    """The bytes of the tensors that a program is handed and gives."""
    flat = itertools.chain.from_iterable(t if isinstance(t, (tuple, list)) else (t,) for t in sides)
    return sum(t.nbytes for t in flat)


def device_time(call: Callable[[], object], calls: int = 10, rounds: int = 7) -> float:
    """Microseconds of a call on the device: the median over replays of a graph of several."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    times = []
    for _ in range(rounds + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times[1:])


def host_time(call: Callable[[], object], calls: int = 200) -> float:
    """Microseconds that a call keeps the host."""
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    took = time.perf_counter() - start
    torch.cuda.synchronize()
    return took / calls * 1e6


def is_right(made: Any, wanted: Any, exact: Any) -> bool:
    """Not further from float64's result than twice eager's distance and eight roundings."""
    pairs = zip(*((t if isinstance(t, tuple) else (t,)) for t in (made, wanted, exact)))
    for ours, eager, true in pairs:
        if ours.dtype is not eager.dtype or ours.shape != eager.shape:
            return False
        if not ours.is_floating_point():
            if not torch.equal(ours, eager):
                return False
            continue
        if not true.numel():
            continue
        scale = true.abs().max().item() * torch.finfo(ours.dtype).eps
        far, eagers = ((t.double() - true.double()).abs().max().item() for t in (ours, eager))
        if far > 2 * eagers + 8 * scale:
            return False
    return True


def exactly(program: Callable[..., Any], given: Sequence[Tensor]) -> Any:
    """The result of float64 operands, where the program converts to float32 too."""
    with mock.patch.object(Tensor, "float", Tensor.double):
        return program(*(t.double() if t.is_floating_point() else t for t in given))


def kernels(
    peers: bool, only: Collection[str], dtype: torch.dtype = torch.bfloat16
) -> Iterator[Row]:
    for name, (program, letters) in TIMED.items():
        if name not in only:
            continue
        ours = anyshape.compile(program, fullgraph=True, options={"fallback": "error"})
        sides: dict[str, Callable[..., Any]] = {"ours": ours, "eager": program}
        if peers:
            torch.compiler.reset()
            torch._dynamo.config.recompile_limit = 64
            sides |= {"static": torch.compile(program, dynamic=False)}
            sides |= {"dynamic": torch.compile(program, dynamic=True)}
            sides |= {"autotune": torch.compile(program, dynamic=False, mode=AUTOTUNE)}
        for rows, columns in (*SIZES, *(CLASSES if program is cross_entropy else ())):
            if columns % 2 and program in HALVING:
                continue
            values = operands(rows, columns, dtype)
            given = [values[letter] for letter in letters]
            made = ours(*given)
            right = is_right(made, program(*given), exactly(program, given))
            times = {
                side: device_time(lambda call=call, given=given: call(*given))  # type: ignore[misc]
                for side, call in sides.items()
            }
            host = host_time(lambda ours=ours, given=given: ours(*given))  # type: ignore[misc]
            yield Row(name, (rows, columns), right, moved(given, made), times, host)
            del values, given, made
            torch.cuda.empty_cache()
        assert ours.stats().specializations == 1, name


def linear_gelu(layer: nn.Linear) -> Callable[..., Tensor]:
    return lambda x, y: F.gelu(layer(x))


def linear_residual(layer: nn.Linear) -> Callable[..., Tensor]:
    return lambda x, y: (layer(x) + y) * 0.5


PRODUCTS = {"linear + GELU": linear_gelu, "linear + residual": linear_residual}


def products(peers: bool, only: Collection[str]) -> Iterator[Row]:
    for (name, make), (summed, columns) in itertools.product(PRODUCTS.items(), LAYERS):
        if name not in only:
            continue
        layer = nn.Linear(summed, columns, device="cuda", dtype=torch.bfloat16)
        program, exact = make(layer), make(copy.deepcopy(layer).double())
        sides: dict[str, Callable[..., Any]] = {
            "ours": anyshape.compile(program, fullgraph=True, options={"fallback": "error"}),
            "max-autotune": anyshape.compile(program, fullgraph=True, mode="max-autotune"),
            "eager": program,
        }
        if peers:
            torch.compiler.reset()
            sides["dynamic"] = torch.compile(program, dynamic=True)
        for rows in ROWS:
            x, y = (torch.randn(rows, n, device="cuda").bfloat16() for n in (summed, columns))
            true = exact(x.double(), y.double())
            right, times = True, {}
            for side, call in sides.items():
                right = right and is_right(call(x, y), program(x, y), true)
                times[side] = device_time(partial(call, x, y))
            touched = 2 * (rows * (summed + columns) + columns * summed)
            yield Row(f"{name}, {summed}", (rows, columns), right, touched, times, 0.0)


def waited(call: Callable[[], object], calls: int = 15) -> float:
    """Milliseconds of a call that is waited for, the median."""
    for _ in range(3):
        call()
    times = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def errors(ours: Any, model: torch.nn.Module, ids: Tensor) -> dict[str, float]:
    """How far logits are from those of float32 weights, relative to their norm."""
    made, wanted = (side(ids, use_cache=False).logits.float() for side in (ours, model))
    exact = copy.deepcopy(model).float()(ids, use_cache=False).logits
    return {
        side: ((logits - exact).norm() / exact.norm()).item()
        for side, logits in (("ours", made), ("eager", wanted))
    }


def models(peers: bool, only: Collection[str]) -> Iterator[dict[str, object]]:
    for name, make in MODELS.items():
        if name not in only:
            continue
        torch.manual_seed(0)
        with torch.device("cuda"):
            model = make().to(torch.bfloat16).eval()
        ours = anyshape.compile(model)
        sides: dict[str, Any] = {"ours": ours, "eager": model}
        sides["ours, graphs"] = anyshape.compile(model, mode="reduce-overhead")
        if peers:
            torch.compiler.reset()
            sides["torch.compile"] = torch.compile(model)
            graphed = {"mode": "reduce-overhead", "dynamic": False}
            sides["torch.compile, graphs"] = torch.compile(model, **graphed)
        first = dict.fromkeys(sides, 0.0)
        for batch, length in SHAPES:
            ids = torch.randint(0, VOCABULARY, (batch, length), device="cuda")
            times = {}
            for side, call in sides.items():
                if "graphs" in side and (batch, length) not in REPLAYED:
                    continue
                torch.cuda.synchronize()
                start = time.perf_counter()
                call(ids, use_cache=False)
                torch.cuda.synchronize()
                first[side] += time.perf_counter() - start
                times[side] = waited(lambda call=call, ids=ids: call(ids, use_cache=False))  # type: ignore[misc]
            yield {
                "model": name, "shape": (batch, length), "ms": times,
                "error": errors(ours, model, ids),
            }  # fmt: skip
        stats = ours.stats()
        yield {
            "model": name, "first calls, s": first, "specializations": stats.specializations,
            "graph breaks": stats.graph_breaks,
            "peak GB": torch.cuda.max_memory_allocated() / 1e9,
        }  # fmt: skip
        del model, ours, sides
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tables", nargs="*", default=["kernels", "models"])
    parser.add_argument("--only", nargs="+", default=[*TIMED, *PRODUCTS, *MODELS])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    dtype = getattr(torch, chosen.dtype)
    path = chosen.folder / ("gpu.json" if dtype is torch.bfloat16 else f"gpu-{chosen.dtype}.json")
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    content: dict[str, Any] = kept | {
        "dtype": chosen.dtype,
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "triton": triton.__version__, "transformers": transformers.__version__,
        "python": platform.python_version(), "ceilings": ceilings(),
    }  # fmt: skip
    print(json.dumps(content, indent=1), flush=True)
    makers: dict[str, Callable[[bool, Collection[str]], Iterator[Any]]]
    makers = {"kernels": partial(kernels, dtype=dtype), "products": products, "models": models}
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        for table in chosen.tables:
            others = [row for row in kept.get(table, ()) if name_of(row) not in chosen.only]
            content[table] = others
            for row in makers[table](not chosen.no_peers, chosen.only):
                print(row, flush=True)
                content[table].append(asdict(row) if isinstance(row, Row) else row)
                path.write_text(json.dumps(content, indent=1) + "\n")


def name_of(row: Mapping[str, Any]) -> str:
    """The program or model of a row as it is written."""
    name: str = row.get("name") or row["model"]
    return name.partition(", ")[0] if "name" in row else name


if __name__ == "__main__":
    main()
