"""A small ResNet whose batch and picture size vary: compiled once.

python examples/resnet.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels_out)
        self.second = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """Pictures (batch, 3, height, width) of any size to `classes` logits."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.stages = nn.Sequential(
            Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, pixels: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(pixels)))
        x = self.stages(x)
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.head(x)


def build() -> nn.Module:
    model = ResNet()
    with torch.no_grad():  # running statistics other than 0 and 1, so that the norms do something
        for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
            norm.running_mean.normal_(0.0, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
    return model


def inputs(batch: int, length: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Pictures of about `length` pixels a side, higher than wide."""
    return {"pixels": torch.randn(batch, 3, length + 3, length, generator=generator)}


def main() -> None:
    model = build().eval()
    fast = anyshape.compile(model, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for batch, side in ((2, 32), (1, 33), (5, 224)):
            pixels = inputs(batch, side, generator)["pixels"]
            torch.testing.assert_close(fast(pixels), model(pixels), rtol=1e-4, atol=1e-4)
    print(fast.stats())


if __name__ == "__main__":
    main()
