"""All that waits for a GPU, in order of importance, within some minutes.

    python -m benchmarks.gpu_session FOLDER --minutes 9 [--part a b] [--again]
    python -m benchmarks.gpu_session FOLDER --list

Each job is a process of its own, so that one that fails or hangs costs its own time only. Checks
run side by side first; what is timed runs alone. What was right before, by ``FOLDER/session.json``,
is not run again, so that the same command goes on where the last one stopped. Everything that is
printed is in ``FOLDER/log.txt``; figures are in ``gpu.json``, ``training.json`` and, a folder a
table, ``attention.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

SIDE_BY_SIDE = 6
LEAST_SECONDS = 20
"""With less left no job is begun."""
SHOWN_LINES = 6
"""Of what a job printed last; all lines of one that is timed."""
FAILED = ("FAIL", "WRONG")
"""What begins a line, or ends a row, of what was not right."""

CEILINGS = """
import json
from benchmarks.moe_kernels import ceilings
print(json.dumps(ceilings()))
"""
CHECKS = (
    *("large_0", "large_1", "large_2", "large_3", "packed", "graph", "invariance", "mistakes"),
    *("writing", "compilers", "operators"),
)
MOE_CHECKS = (
    *("index_shuffling", "routing_scores", "gather, scatter", "activation", "combine, split"),
    *("few tokens", "choices", "graphs", "tiles"),
    *(f"grouped_gemm {dtype}" for dtype in ("bfloat16", "float16", "float32", "float8")),
)
SUITES = (
    *(
        "test_compiled",
        "test_launches",
        "test_graphs",
        "test_region_graphs",
        "test_guest",
        "test_two_devices",
    ),
    *("test_memory", "test_large", "test_sanitized", "test_attention_gradients", "test_demo"),
    *("test_users_kernels", "test_fuzz"),
)
KERNELS = (
    "rotary",
    *("softmax", "cross entropy", "norm + GELU", "rms norm", "residual norm", "argmax", "SwiGLU"),
    *("sum over rows", "sum of squares", "add + GELU", "transposed add"),
)
MODELS = ("Llama, 8 layers", "Qwen3-MoE, 4 layers")
BESIDE = (
    *(("Qwen3-MoE, 4 layers", 130), ("Llama, 8 layers", 80)),
    *(("ResNet-50, channels last", 70), ("ViT-B/16", 70)),
)
"""Models beside torch.compile, and the seconds that each has."""
TABLES = (("decode",), ("prefill",), ("mixed", "pages"), ("training",))


@dataclass(frozen=True, slots=True)
class Job:
    """``alone``: it is timed, so that nothing else may run. ``seconds``: it is stopped then."""

    part: str
    name: str
    command: Sequence[str]
    seconds: float = 240
    alone: bool = False


def module(name: str, *arguments: str) -> Sequence[str]:
    return ("-m", name, *arguments)


def jobs(folder: Path) -> Iterator[Job]:
    """The most important first."""
    out = str(folder)
    yield Job("a", "ceilings", ("-c", CEILINGS), 60, alone=True)
    for check in CHECKS:
        yield Job("b", f"attention {check}", module("benchmarks.attention_check", check), 420)
    for suite in SUITES:
        tests = f"tests/gpu/{suite}.py"
        command = module("pytest", "-q", "-m", "gpu", "--no-header", tests)
        yield Job("c", suite, command, 420, alone=suite == "test_memory")
    for check in MOE_CHECKS:
        yield Job("c", f"moe {check}", module("benchmarks.moe_check", check), 420)
    for tables in TABLES:
        command = module("benchmarks.attention", f"{out}/{tables[0]}", *tables)
        yield Job("d", f"attention's {' and '.join(tables)}", command, 300, alone=True)
    for name in KERNELS:
        command = module("benchmarks.gpu", out, "kernels", "--only", name)
        yield Job("e", name, command, 240, alone=True)
    for name in MODELS:
        command = module("benchmarks.gpu", out, "models", "--only", name)
        yield Job("e", name, command, 420, alone=True)
    products = module("benchmarks.gpu", out, "products", "--no-peers")
    yield Job("g", "products and what follows them", products, 90, alone=True)
    for name, seconds in BESIDE:
        given = "--only", name, "--seconds", str(seconds)
        command = module("benchmarks.gpu_beside", out, *given)
        yield Job("g", f"{name}, beside", command, seconds + 60, alone=True)
    first = module("benchmarks.launches", out, "first", "--no-peers")
    yield Job("g", "first calls of a second process", first, 300, alone=True)
    training = module("benchmarks.gpu_training", out)
    yield Job("f", "training steps", training, 300, alone=True)
    peers = module("benchmarks.gpu_training", out, "--sides", "--peers", "--seconds", "580")
    yield Job("f", "training steps of torch.compile", peers, 600, alone=True)


@dataclass(slots=True)
class Session:
    """Runs jobs until a time is over, and remembers how each ended."""

    folder: Path
    until: float
    ended: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def begun(cls, folder: Path, seconds: float, *, again: bool = False) -> Session:
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / "session.json"
        ended = json.loads(kept.read_text()) if kept.exists() and not again else {}
        return cls(folder, time.monotonic() + seconds, ended)

    def left(self) -> float:
        return self.until - time.monotonic()

    def run(self, wanted: Sequence[Job]) -> None:
        """Those that were not right before; what is timed comes when nothing else runs."""
        waiting = [job for job in wanted if not self.ended.get(job.name, "").startswith("ok")]
        for part in dict.fromkeys(job.part for job in waiting):
            own = [job for job in waiting if job.part == part]
            with ThreadPoolExecutor(SIDE_BY_SIDE) as together:
                list(together.map(self.one, (job for job in own if not job.alone)))
            for job in own:
                if job.alone:
                    self.one(job)

    def one(self, job: Job) -> None:
        """Runs a job, if there is time."""
        if self.left() < LEAST_SECONDS:
            return
        start, seconds = time.monotonic(), min(job.seconds, self.left())
        printed, code = run_for([sys.executable, *job.command], seconds)
        took = time.monotonic() - start
        state = f"{ending(printed, code)} after {took:.0f} s"
        with self.lock:
            self.ended[job.name] = state
            (self.folder / "session.json").write_text(json.dumps(self.ended, indent=1) + "\n")
            with (self.folder / "log.txt").open("a") as log:
                log.write(f"=== {job.part} {job.name}: {state}\n{printed}\n")
            shown = printed.strip().splitlines()
            print(f"{job.part} {job.name}: {state}", flush=True)
            for line in shown if job.alone else shown[-SHOWN_LINES:]:
                print("   ", line[:200], flush=True)


def run_for(command: Sequence[str], seconds: float) -> tuple[str, int | None]:
    """What the process printed, and its code; None where it was stopped with all that it began."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(
        command, env=environment, text=True, start_new_session=True, **pipe
    ) as process:
        try:
            return process.communicate(timeout=seconds)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return process.communicate()[0], None


def ending(printed: str, code: int | None) -> str:
    """`ok`, or what was not."""
    if code is None:
        return "stopped"
    wrong = any(line.startswith(FAILED) or line.endswith(FAILED) for line in printed.splitlines())
    return "ok" if code == 0 and not wrong else "failed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--part", nargs="+", default=[*"abcdefg"])
    parser.add_argument("--again", action="store_true", help="what was right before, too")
    parser.add_argument("--list", action="store_true", help="print the jobs and how they ended")
    chosen = parser.parse_args()
    wanted = [job for job in jobs(chosen.folder) if job.part in chosen.part]
    session = Session.begun(chosen.folder, chosen.minutes * 60, again=chosen.again)
    if not chosen.list:
        session.run(wanted)
    print(*summary(wanted, session.ended), sep="\n")


def summary(wanted: Sequence[Job], ended: Mapping[str, str]) -> Iterator[str]:
    """A line for each part, with what is not right in it."""
    for part in dict.fromkeys(job.part for job in wanted):
        states = {j.name: ended.get(j.name, "not run") for j in wanted if j.part == part}
        right = sum(state.startswith("ok") for state in states.values())
        rest = [f"{name}: {s}" for name, s in states.items() if not s.startswith("ok")]
        yield f"{part}: {right} of {len(states)} right" + (f"; {', '.join(rest)}" if rest else "")


if __name__ == "__main__":
    main()
