"""Tensors of more than 2^31 elements on a GPU: indices are 64 bits where they must be."""

from __future__ import annotations

import pytest
import torch

import anyshape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < 40 << 30,
        reason="needs an NVIDIA GPU with 40 GB of free memory",
    ),
]
COLUMNS = 65_536
ROWS = (1 << 31) // COLUMNS + 3


@pytest.fixture
def large():
    made = torch.empty(ROWS, COLUMNS, dtype=torch.bfloat16, device="cuda").normal_()
    yield made
    del made
    torch.cuda.empty_cache()


@torch.no_grad()
def test_elementwise_rows_columns_and_all(large):
    programs = {
        "elementwise": lambda x: x * 2 + 1,
        "rows": lambda x: torch.softmax(x, -1),
        "columns": lambda x: x.sum(0, dtype=torch.float32),
        "all": lambda x: x.float().sum(),
        "one row": lambda x: x.view(-1).float().amax(0),
        "gathered": lambda x: x.view(-1)[torch.tensor([0, x.numel() - 1], device=x.device)] + 1,
    }
    for name, program in programs.items():
        fast = anyshape.compile(program, fullgraph=True, options={"fallback": "error"})
        small = large[:5]
        torch.testing.assert_close(fast(small), program(small), rtol=2e-2, atol=2e-2)
        made, wanted = fast(large), program(large)
        assert fast.stats().specializations == 1, name
        if made.dim() == 2:
            made, wanted = made[-4:], wanted[-4:]
        torch.testing.assert_close(made, wanted, rtol=2e-2, atol=0.5 if name == "all" else 2e-2)
        del made, wanted
