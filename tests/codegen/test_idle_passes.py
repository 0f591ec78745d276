"""Passes of gcc that are left out because they do nothing: kernels are the same with them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from anyshape.ir import dtypes
from anyshape.targets.cpu.build import IDLE, Toolchain
from anyshape.targets.cpu.c import emit_c
from anyshape.targets.cpu.prelude import standing_before, texts
from tests.schedule.programs import compile_sketch, launches

LOOPS: Sequence[Callable[[Any, Any], Any]] = (
    lambda b, x: b.mul(b.sin(x), 2.0),
    lambda b, x: b.add(x, b.permute(x, (1, 0))),
    lambda b, x: b.softmax(x, 1),
    lambda b, x: b.sum(x, (0,)),
    lambda b, x: b.var(x, (1,)),
    lambda b, x: b.sum(x, (0, 1)),
    lambda b, x: b.cumsum(x, 1),
    lambda b, x: b.cat((x, b.mul(x, 3.0)), 1),
)


def assembly(source: str, *flags: str) -> list[str]:
    """What gcc makes of it, labels numbered as they appear."""
    toolchain = Toolchain.find("gcc")
    assert toolchain is not None
    command = (toolchain.path, *toolchain.flags, *flags, "-S", "-x", "c", "-", "-o", "-")
    finished = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    labels: dict[str, str] = {}

    def numbered(label: re.Match[str]) -> str:
        return labels.setdefault(label[0], f".L{len(labels)}")

    return re.sub(r"\.L[A-Z]*\d+", numbered, finished.stdout).splitlines()


def major() -> str:
    """Of gcc's version; empty without gcc."""
    found = shutil.which("gcc")
    asked = [found, "-dumpversion"] if found else ["true"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.partition(".")[0].strip()


@pytest.mark.skipif(major() != "12", reason="another gcc may find work, and stay right")
@pytest.mark.parametrize("dtype", (dtypes.float32, dtypes.bfloat16), ids=str)
def test_idle_passes_find_nothing_to_do(dtype: dtypes.DType) -> None:
    def program(b: Any, *inputs: Any) -> tuple[Any, ...]:
        return tuple(loop(b, x) for loop, x in zip(LOOPS, inputs, strict=True))

    compiled = compile_sketch(program, *[("n n", dtype)] * len(LOOPS))
    kernels = [launch.kernel for launch in launches(compiled.program)]
    assert len(kernels) >= len(LOOPS)
    text = "".join(emit_c(kernel, f"k{n}") for n, kernel in enumerate(kernels))
    source = f"{standing_before(text, texts())}\n{text}"
    lines, others = assembly(source), assembly(source, *(f"-f{name}" for name in IDLE))
    assert lines == others
