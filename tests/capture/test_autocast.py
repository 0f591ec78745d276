"""What autocast casts, on the CPU beside eager, and on GPUs by torch's own lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from anyshape.capture.recording.autocast import CLASSES, Casting
from anyshape.ir.dtypes import DTYPES
from anyshape.ir.graph import TensorType
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.symbolic import Facts, Space

HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
MACROS = {
    "LOWER_PRECISION_FP": "lower",
    "FP32": "float32",
    "FP32_SET_OPT_DTYPE": "float32",
    "PROMOTE": "promote",
}


def torchs_lists() -> dict[str, str]:
    """Function -> what torch's header says that autocast does to it on GPUs."""
    found = {}
    for macro, kind in MACROS.items():
        (body,) = re.findall(
            rf"#define AT_FORALL_{macro}\(_\)((?:.*\\\n)*.*\n)", HEADER.read_text()
        )
        found |= dict.fromkeys(re.findall(r"_\((\w+)", body), kind)
    return found


@pytest.mark.skipif(not HEADER.exists(), reason="torch was installed without its headers")
def test_the_lists_of_gpus_are_torchs():
    theirs, ours = torchs_lists(), CLASSES["cuda"]
    assert len(theirs) > 80
    assert {n: k for n, k in theirs.items() if ours.get(n, k) != k} == {}
    assert {n for n in theirs if n in OPS and n not in ours} == set()


def test_every_row_that_torch_casts_on_gpus_is_in_a_list():
    cast = set()
    for name in torch._C._dispatch_get_all_op_names():
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA"):
            cast.add(name.partition("::")[2].partition(".")[0])
    assert len(cast) > 80
    assert {name for name in cast if name in OPS and name not in CLASSES["cuda"]} == set()


CASTS_RMS_NORM = torch._C._dispatch_has_kernel_for_dispatch_key("aten::rms_norm", "AutocastCUDA")
NORMALIZED = "float32" if CASTS_RMS_NORM else "bfloat16"  # as given: torch 2.11 does not cast it


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("mm", ["float32", "float32"], ["bfloat16", "bfloat16"]),
        ("addmv", ["float32", "float32", "float32"], ["bfloat16"] * 3),
        ("mm", ["float64", "float32"], ["float64", "bfloat16"]),
        ("sinh", ["bfloat16"], ["float32"]),
        ("logsumexp", ["float16"], ["float32"]),
        ("rms_norm", ["bfloat16"], [NORMALIZED]),
        ("scatter_add", ["bfloat16", "int64", "float32"], ["float32", "int64", "float32"]),
        ("dot", ["bfloat16", "float16"], ["bfloat16", "bfloat16"]),
        ("rpow", ["bfloat16", "bfloat16"], ["float32", "float32"]),
        ("cat", ["bfloat16", "float32"], ["bfloat16", "float32"]),
        ("add", ["bfloat16", "float32"], ["bfloat16", "float32"]),
    ],
)
def test_arguments_on_a_gpu_are_cast(name, given, wanted):
    space = Space()
    builder = Builder(TypeContext(space, Facts(space), on_check=lambda condition, message: None))
    size = space.symbol("s0")
    kinds = [TensorType(DTYPES[dtype], "cuda:0", (size,), (1,)) for dtype in given]
    values = [builder.input(kind, "argument", f"x_{n}") for n, kind in enumerate(kinds)]
    casting = Casting(builder, ((False, torch.bfloat16), (True, torch.bfloat16)))
    made, _ = casting.arguments(name, tuple(values), {})
    assert [value.dtype.name for value in made] == wanted
    off = Casting(builder, ((True, torch.bfloat16), (False, torch.bfloat16)))
    assert off.arguments(name, tuple(values), {})[0] == tuple(values)


WRITING = {
    "mm": lambda c, a, b: torch.mm(a, b, out=torch.empty(5, 7)),
    "matmul": lambda c, a, b: torch.matmul(a, b, out=torch.zeros(5, 7)) + 1,
    "addmm": lambda c, a, b: torch.addmm(c, a, b, out=torch.empty(5, 7)),
    "bmm": lambda c, a, b: torch.bmm(a[None], b[None], out=torch.empty(1, 5, 7)),
    "cat": lambda c, a, b: torch.cat((a, a.bfloat16()), out=torch.empty(10, 6)),
    "in place": lambda c, a, b: c.clone().addmm_(a, b),
    "then as usual": lambda c, a, b: (torch.mm(a, b, out=torch.empty(5, 7)), a @ b),
}


@pytest.mark.parametrize("name", WRITING)
def test_what_writes_its_result_into_a_tensor_is_not_cast(name):
    program, fast = WRITING[name], anyshape.compile(WRITING[name])
    given = torch.randn(5, 7), torch.randn(5, 6), torch.randn(6, 7)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        wanted, made = program(*given), fast(*given)
    for ours, eager in zip(flat(made), flat(wanted), strict=True):
        assert ours.dtype is eager.dtype
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
    assert fast.stats().internal_errors == 0


def flat(made: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return made if isinstance(made, tuple) else (made,)


def test_every_operator_that_torch_casts_on_the_cpu_is_in_a_list():
    cast = set()
    for name in torch._C._dispatch_get_all_op_names():
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCPU"):
            cast.add(name.partition("::")[2].partition(".")[0])
    assert len(cast) > 80
    assert cast - set(CLASSES["cpu"]) == set()


CAST_ON_THE_CPU = {
    "reflect, 1": lambda x: F.pad(x[:, 0], (1, 2), mode="reflect"),
    "reflect, 3: not cast": lambda x: F.pad(x[None], (1, 2, 1, 1, 1, 1), mode="reflect"),
    "replicate, 2": lambda x: F.pad(x, (1, 2, 1, 1), mode="replicate"),
    "circular: not cast": lambda x: F.pad(x, (1, 2, 1, 1), mode="circular"),
    "constant: not cast": lambda x: F.pad(x, (1, 2, 1, 1)),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x, 2),
    "max_unpool2d": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "max_pool3d": lambda x: F.max_pool3d(x, 2),
    "max_pool3d with places: not cast": lambda x: F.max_pool3d(x, 2, return_indices=True)[0],
    "frexp: has a namesake of numbers": lambda x: torch.frexp(x)[0],
    "rmatmul": lambda x: x[0, 0, 0].__rmatmul__(x),
    "vecdot": lambda x: torch.linalg.vecdot(x, x),
    "qr": lambda x: torch.linalg.qr(x)[1],
    "lu_solve: not cast": lambda x: torch.linalg.lu_solve(
        *torch.linalg.lu_factor(torch.eye(5).expand(2, 3, 5, 5)), x.mT
    ),
    "loss of images": lambda x: F.cross_entropy(x, x.argmax(1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CAST_ON_THE_CPU)
def test_the_dtype_on_the_cpu_is_eagers(name, dtype):
    program, fast = CAST_ON_THE_CPU[name], anyshape.compile(CAST_ON_THE_CPU[name])
    x = torch.randn(2, 3, 4, 5).to(dtype)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        try:
            wanted = program(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error)[:40])):
                fast(x)
            return
        made = fast(x)
    assert made.dtype is wanted.dtype
    assert not fast.stats().internal_errors
    torch.testing.assert_close(made, wanted, rtol=2e-2, atol=2e-2)


def blocks_entered() -> int:
    """How many blocks of autocast this thread is in; weights that were cast are kept until it is
    none."""
    deeper = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return deeper - 1


def around_a_break(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
        with torch.autocast("cpu", enabled=False):
            z = (y.float() @ x).sum()
            note_depth()
        w = y @ x
    return y, z, w


def left_by_an_error(x):
    try:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
            note_depth()
            raise KeyError
    except KeyError:
        return y, x @ x


native_depths: list[int] = []


@torch.compiler.disable
def note_depth():
    native_depths.append(blocks_entered())


@pytest.mark.parametrize("every", [0, 1, 3])
@pytest.mark.parametrize("program", [around_a_break, left_by_an_error])
def test_blocks_are_entered_and_left_over_breaks_as_often_as_in_eager(program, every):
    options = {"break_every": every} if every else {}
    compiled = anyshape.compile(program, options=options)
    for size in (3, 4, 3):
        x = torch.randn(size, size)
        native_depths.clear()
        torch.testing.assert_close(compiled(x), program(x), rtol=2e-2, atol=1e-2)
        assert native_depths[0] == native_depths[1] > 0
        assert blocks_entered() == 0


def test_weights_that_were_cast_are_not_kept_behind_a_break():
    linear = torch.nn.Linear(4, 4)
    anyshape.compile(around_a_break)(torch.randn(3, 3))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        linear(torch.ones(2, 4))
    made = []
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            made.append(linear(torch.ones(2, 4)))
        with torch.no_grad():
            linear.weight.mul_(2)
    assert not torch.equal(*made)
