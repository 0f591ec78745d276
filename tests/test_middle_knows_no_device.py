"""The middle of the compiler names no device, no target's language and no target's library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import anyshape

ROOT = Path(anyshape.__file__).parent
MIDDLE = ("symbolic", "ir", "ops", "passes", "schedule", "autograd")
FORBIDDEN = re.compile(
    r"cpu|gpu|cuda|nvidia|triton|aoti|openmp|\bgcc\b|\bblas\b|\bmkl\b|avx|simd|pragma"
    r"|\bwarps?\b|cubin|\bptx\b|cublas|cutlass|hopper|tensor core"
    r"|\bC(?: text| code| compiler| function|'s| source)",
    re.IGNORECASE,
)
HOST = 'HOST: Final = "cpu"'
"""The one line that says which device the host is."""


def named(text: str) -> list[str]:
    """The lines that name what only a target may know."""
    lines = [line for line in text.splitlines() if line != HOST]
    return [line for line in lines if FORBIDDEN.search(line)]


@pytest.mark.parametrize(
    "line",
    [
        'x.device == "cuda"',
        "# printed as C text",
        "aoti_torch_cpu_mm_out",
        "import triton",
        "def _is_on_gpu(node)",
        "as many rows as a warp has threads",
        "#pragma omp simd",
    ],
)
def test_a_device_or_a_language_is_seen(line: str) -> None:
    assert named(line) == [line]


@pytest.mark.parametrize("room", [room for room in MIDDLE if (ROOT / room).is_dir()])
def test_no_device_or_language_is_named(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / room).rglob("*.py"))
        if (lines := named(path.read_text()))
    }
    assert found == {}
