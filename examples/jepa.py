"""A JEPA-style predictor: from the patches one sees, predict the features of those one does not;
counts of both vary.

python examples/jepa.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape


class Layer(nn.Module):
    """One transformer layer, norm first, attention over all patches."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = (
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        )
        x = x + self.out(mixed)
        return x + self.mlp(self.mlp_norm(x))


class Predictor(nn.Module):
    """Context features (batch, seen, width) and the positions of seen and hidden patches to (batch,
    hidden, width).
    """

    def __init__(
        self, width: int = 128, heads: int = 4, depth: int = 2, positions: int = 1024
    ) -> None:
        super().__init__()
        self.position = nn.Embedding(positions, width)
        self.mask_token = nn.Parameter(torch.randn(width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, context: Tensor, seen: Tensor, hidden: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        queries = self.mask_token + self.position(hidden)
        x = torch.cat([context + self.position(seen), queries], dim=1)
        for layer in self.layers:
            x = layer(x)
        predicted = self.norm(x[:, seen.shape[1] :])
        return predicted, F.smooth_l1_loss(predicted, F.layer_norm(target, target.shape[-1:]))


def build() -> nn.Module:
    return Predictor()


def inputs(batch: int, length: int, generator: torch.Generator) -> dict[str, Tensor]:
    """`length` patches seen, and half as many and one hidden."""
    hidden = length // 2 + 1
    return {
        "context": torch.randn(batch, length, 128, generator=generator),
        "seen": torch.randint(0, 1024, (batch, length), generator=generator),
        "hidden": torch.randint(0, 1024, (batch, hidden), generator=generator),
        "target": torch.randn(batch, hidden, 128, generator=generator),
    }


def main() -> None:
    model = build().eval()
    fast = anyshape.compile(model, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for batch, seen in ((2, 64), (1, 1), (4, 300)):
            example = inputs(batch, seen, generator)
            torch.testing.assert_close(fast(**example), model(**example), rtol=1e-4, atol=1e-4)
    print(fast.stats())


if __name__ == "__main__":
    main()
