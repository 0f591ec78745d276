"""The operators on the CPU: what they compute, what they refuse, and that torch accepts them (opcheck, compile)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anyshape import moe

FP8 = torch.float8_e4m3fn


def counts(*sizes: int) -> Tensor:
    return torch.tensor(sizes, dtype=torch.int32)


def samples() -> dict[str, tuple[object, ...]]:
    """Arguments of each operator, in the order of its schema."""
    torch.manual_seed(0)
    x = torch.randn(5, 6)
    index = torch.tensor([0, 3, 3, 4], dtype=torch.int32)
    expert = torch.tensor([0, 0, 1, 2], dtype=torch.int32)
    scales = torch.rand(5, 3)
    rows, w = torch.randn(4, 6), torch.randn(3, 8, 6)
    sizes, valid = counts(1, 0, 2), torch.tensor(3)
    fp8 = (rows.to(FP8), w.to(FP8), sizes, torch.rand(4), torch.rand(3, 8), None, None, None)
    both = counts(1, 2, 0, 1).view(2, 2)
    return {
        "routing_scores": (
            *(x, torch.randn(6, 4), torch.randn(4), None),
            *("sigmoid", 2, True, 2, 1, 1, 1.0),
        ),
        "index_shuffling": (torch.randn(5, 3), 2, (0, 2), torch.tensor(4), True),
        "gather_mul": (x, index, expert, scales, valid, True),
        "gather_mul_quantize": (x, index, expert, scales, valid, True),
        "scatter_add": (torch.randn(5, 6), rows, index, valid, False),
        "scatter_add_padded": (torch.randn(5, 6), torch.randn(2, 4, 6), counts(1, 2), index),
        "silu_mul": (x, x + 1, valid, "gelu", 1.0, 1.0, True),
        "silu_mul_quantize": (x, x + 1, valid, "gpt_oss", 1.702, 7.0, True),
        "grouped_gemm": (
            *(rows, w, sizes, None, None, torch.randn(3, 8), torch.rand(4)),
            *(None, torch.float32, True),
        ),
        "grouped_gemm_scatter": (
            *(rows, w, sizes, index, torch.randn(5, 8), None, None),
            *(torch.randn(3, 8), torch.rand(4), None),
        ),
        "grouped_gemm_gated": (
            *(rows, w, sizes, torch.randn(3, 8), None),
            *("gpt_oss", 1.702, 7.0, True, True),
        ),
        "combine_shuffling": (rows, both, 0, 2, False, True),
        "split_shuffling": (rows, both, 0, 2, False, True),
    } | {"grouped_gemm/fp8": (*fp8, torch.bfloat16, True)}


@pytest.mark.parametrize("name", list(samples()))
def test_torch_accepts_the_operator(name: str) -> None:
    operator = getattr(torch.ops.anyshape, name.split("/")[0]).default
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    # opcheck itself multiplies its inputs to see whether they were changed, which fp8 on the CPU cannot
    torch.library.opcheck(operator, samples()[name], test_utils=tests[name.endswith("fp8") :])
    if not name.endswith("fp8"):
        torch.library.opcheck(operator, samples()[name], test_utils="test_aot_dispatch_dynamic")
