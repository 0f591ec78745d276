"""An exception that the handler of a signal raises, KeyboardInterrupt for one, leaves nothing half
done wherever it comes in a call, the first or a later one: what lies outside is as after some line
of the program, `finally` has run where `try` had begun, and the next call is right.
"""

from __future__ import annotations

import dis
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import anyshape

ROOT = Path(__file__).parents[2]
WANTED = 4  # first calls that are interrupted, and as many later ones
SCRIPT = """
import os, random, signal, sys, time
import torch, anyshape

breaks, handler, wanted = sys.argv[1] == "breaks", sys.argv[2], int(sys.argv[3])

def out_of_time(number, frame):
    raise TimeoutError

signal.signal(signal.SIGALRM, out_of_time if handler == "ours" else signal.default_int_handler)
INTERRUPTS = (TimeoutError, KeyboardInterrupt)

def made(k):
    def program(x, log):
        log.append("begun")
        y = (x * (1.5 + k)).cumsum(0).tanh() @ x.T
        log.append("middle")
        try:
            if breaks:
                os.getpid()
            log.append("broken")
            z = torch.sort(y, 0)[0].abs().softmax(-1)
            log.append("end")
        finally:
            log.append("closed")
        return z.sum(0) * (k + 2.5)
    return program

WHOLE = ["begun", "middle", "broken", "end", "closed"]
x = torch.randn(60, 60, dtype=torch.float64)
longest = {}  # of a first call, and of a later one: seconds that were not interrupted
for later in (False, True):
    fast = anyshape.compile(made(0.1))
    for _ in range(1 + later):
        begun = time.perf_counter()
        fast(x, [])
        longest[later] = time.perf_counter() - begun

def interrupted_after(seconds, fast, log):
    begun = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        fast(x, log)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except INTERRUPTS:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    longest[later] = min(longest[later], time.perf_counter() - begun)
    return False

def well_left(log):
    body = log[:-1] if log[-1:] == ["closed"] else log
    in_the_body = body is log and len(body) == 3  # but before or at `try`, and in `finally`
    return body == WHOLE[:len(body)] and not in_the_body

chosen = random.Random(f"{sys.argv[1:]}")
counts = {False: 0, True: 0}
for step in range(100 * wanted):
    if min(counts.values()) >= wanted:
        break
    program = made(step + 0.2)
    fast = anyshape.compile(program)
    for later in counts:
        log = []
        counts[later] += interrupted_after(chosen.uniform(1e-6, longest[later]), fast, log)
        assert well_left(log), log
        again = []
        assert torch.allclose(fast(x, again), program(x, []), atol=1e-5), step
        assert again == WHOLE, again
    assert fast.stats().internal_errors == 0, fast.stats()
print("interrupted", *counts.values())
"""


@pytest.mark.parametrize("handler", ["ours", "python's"])
@pytest.mark.parametrize("ends", ["whole", "breaks"])
def test_an_interrupt_leaves_nothing_half_done(ends: str, handler: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, ends, handler, str(WANTED)],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ANYSHAPE_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    first, later = map(int, run.stdout.split()[-2:])
    assert first >= WANTED and later >= WANTED, run.stdout


def test_writes_that_follow_each_other_are_one_call_of_c() -> None:
    """Between two calls CPython may deliver a signal, and one would be done without the other."""

    def program(x: torch.Tensor, log: list[str], found: dict[str, int]) -> torch.Tensor:
        log.append("begun")
        found["begun"] = 1
        y = x + 1
        log.append("middle")
        log.reverse()
        found.pop("old")
        return y * 2

    fast = anyshape.compile(program, fullgraph=True)
    for size in (3, 4):
        log: list[str] = []
        found = {"old": 0}
        assert fast(torch.ones(size), log, found).shape == (size,)
        assert log == ["middle", "begun"] and found == {"begun": 1}
    (point,) = fast._lazy.machinery.points.values()
    (specialization,) = point.specializations
    calls = [step for step in dis.get_instructions(specialization.rebuild) if step.opname == "CALL"]
    assert len(calls) == 1, dis.dis(specialization.rebuild)
