"""A device that is named without its index, of a type that is neither the CPU nor CUDA: torch is
asked which one is meant, and what it refuses is refused by the program's own call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


def caught(x: Tensor) -> Tensor:
    try:
        return x.to("mps")
    except (RuntimeError, AssertionError):
        return x * 2


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "made on mps": lambda x: torch.ones(3, device="mps") + x,
    "made on xla": lambda x: torch.zeros(x.shape, device="xla"),
    "moved to vulkan": lambda x: x.to("vulkan"),
    "moved to xpu": lambda x: x.to(device=torch.device("xpu")),
    "caught": caught,
}


def outcome(program: Callable[[Tensor], Any], x: Tensor) -> Any:
    try:
        return str(program(x))
    except (RuntimeError, AssertionError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_a_device_that_is_not_there_is_refused_by_the_programs_call(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    for size in (3, 1):
        x = torch.ones(size)
        assert outcome(fast, x) == outcome(program, x)
    assert not fast.stats().internal_errors


LAZY = """
import torch, anyshape, torch._lazy.ts_backend

torch._lazy.ts_backend.init()


def program(x):
    made = torch.ones(3, 4, device="lazy")
    return (made * 2).to("cpu") + x, x.to("lazy").device.type, made.device


fast, x = anyshape.compile(program), torch.randn(3, 4)
(ours, *kinds), (theirs, *wanted) = fast(x), program(x)
assert torch.equal(ours, theirs) and kinds == wanted
assert not fast.stats().internal_errors
"""


def test_torchs_lazy_device_is_none_of_cudas() -> None:
    """In a process of its own: the device stays in the process."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", LAZY], check=True)
