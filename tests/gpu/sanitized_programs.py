"""Run under compute-sanitizer as a process of its own: the kernel suite at small sizes, each buffer allocated alone.

PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python tests/gpu/sanitized_programs.py [--plant]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

import anyshape
from anyshape.targets.triton.target import _LOADER
from benchmarks.gpu import PROGRAMS, exactly, is_right

SIZES = [(1, 2), (3, 1000), (33, 640), (17, 3000), (2, 20000), (2048, 64)]


def operands(rows, columns):
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(columns, device="cuda", dtype=torch.bfloat16)
    target = torch.randint(0, columns, (rows,), device="cuda")
    return {"x": x, "y": torch.randn_like(x), "w": w, "b": torch.randn_like(w), "t": target}


@torch.no_grad()
def main() -> None:
    for name, (program, letters, _) in PROGRAMS.items():
        fast = anyshape.compile(program, fullgraph=True, options={"fallback": "error"})
        for rows, columns in SIZES:
            values = operands(rows, columns)
            given = [values[letter] for letter in letters]
            assert is_right(fast(*given), program(*given), exactly(program, given)), (
                name,
                rows,
                columns,
            )
    if "--plant" in sys.argv:
        plant()
    torch.cuda.synchronize()
    print("done")


def plant() -> None:
    """A kernel is handed a size that is larger than its buffers."""
    fast = anyshape.compile(lambda x: torch.exp(x) * 3)
    x = torch.randn(100, device="cuda")
    fast(x)
    (_, launcher) = [*_LOADER.loaded.items()][-1]
    out = torch.empty_like(x)
    launcher.call(x.data_ptr(), out.data_ptr(), 5000)


main()
