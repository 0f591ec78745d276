"""Quantized weights as plain tensors: int8 and a scale, multiplied out where they are used.

What unpacks them is fused; nothing has to be registered. Weights that are tensor subclasses (of
torchao, say) are run by their own class behind graph breaks: right, and not fused.
"""

import torch
from torch import nn

import anyshape


class Quantized(nn.Module):
    """A linear layer whose weight is int8, with one scale for each row."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("scale", scale)
        self.register_buffer("weight", (linear.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("bias", linear.bias.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)


torch.manual_seed(0)
exact = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
model = nn.Sequential(Quantized(exact[0]), nn.GELU(), Quantized(exact[2]))
fast = anyshape.compile(model, fullgraph=True)
with torch.no_grad():
    for rows in (1, 3, 0, 40):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(fast(x), model(x))
        torch.testing.assert_close(fast(x), exact(x), atol=0.05, rtol=0.05)
assert fast.stats().specializations == 1
print(fast.stats())
