"""Run under compute-sanitizer as a process of its own: the kernel suite at small sizes, each buffer allocated alone.

PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python tests/gpu/sanitized_programs.py [--plant WHAT]
WHAT is `past`, a write past a buffer, `unwritten`, a read of what nothing wrote, or `race`, threads that share a byte.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

import anyshape
from anyshape.runtime.cuda_driver import driver
from anyshape.targets.triton.binaries import Binary, load_binary
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
    for name, (program, letters) in PROGRAMS.items():
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
        {"past": past, "unwritten": unwritten, "race": race}[sys.argv[-1]]()
    torch.cuda.synchronize()
    print("done")


RACE = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry race(.param .u64 out)
{
    .shared .align 4 .b8 shared[512];
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, shared;
    add.s32 %r4, %r3, %r2;
    st.shared.u32 [%r4], %r1;
    xor.b32 %r2, %r2, 256;
    add.s32 %r4, %r3, %r2;
    ld.shared.u32 %r5, [%r4];
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd2, %rd2, %rd3;
    st.global.u32 [%rd2], %r5;
    ret;
}
"""
"""128 threads, each of which reads what a thread of another warp has written, and no barrier."""


def race() -> None:
    out = torch.empty(128, dtype=torch.int32, device="cuda")
    loaded = load_binary(Binary(RACE.encode() + b"\0", "race", 128, 0))
    address = ctypes.c_void_p(out.data_ptr())
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(address))
    function = ctypes.c_void_p(loaded.function)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert not driver().cuLaunchKernel(
        function, 1, 1, 1, loaded.threads, 1, 1, 0, stream, arguments, None
    )


def unwritten() -> None:
    fast = anyshape.compile(lambda x: torch.exp(x) * 3)
    fast(torch.empty(100, device="cuda"))


def past() -> None:
    """A kernel is handed a size that is larger than its buffers."""
    fast = anyshape.compile(lambda x: torch.exp(x) * 3)
    x = torch.randn(100, device="cuda")
    fast(x)
    (_, launcher) = [*_LOADER.loaded.items()][-1]
    out = torch.empty_like(x)
    launcher.call(x.data_ptr(), out.data_ptr(), 5000)


main()
