"""What is rounded to what a quantized tensor can hold: one graph, with eager's gradients."""

from __future__ import annotations

import pytest
import torch

import anyshape

PROGRAMS = {
    "numbers": lambda x: torch.fake_quantize_per_tensor_affine(x * 2, 0.1, 3, 0, 255),
    "tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(0.2), torch.tensor(1, dtype=torch.int32), -8, 7
    ),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(
        x, x.detach().abs().amax(1).float() / 7 + 0.1, torch.zeros(len(x), dtype=torch.int32), 0, -8, 7
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_gradients_and_strides_are_those_of_eager(name, dtype) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for rows, columns in ((3, 5), (1, 7), (4, 4), (2, 100)):
        x = (torch.randn(columns, rows) * 3).to(dtype).t()
        ours, eagers = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, wanted = fast(ours), program(eagers)
        assert torch.equal(found, wanted) and found.stride() == wanted.stride()
        (found * found).sum().backward()
        (wanted * wanted).sum().backward()
        torch.testing.assert_close(ours.grad, eagers.grad)
    assert fast.stats().graph_breaks == 0


def test_a_number_that_does_not_fit_is_refused() -> None:
    def program(x):
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255)

    for run in (program, anyshape.compile(program)):
        with pytest.raises(RuntimeError, match="zero_point"):
            run(torch.randn(3))
