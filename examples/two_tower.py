"""A two-tower recommender: users with histories of any length against any number of items,
compiled once.

python examples/two_tower.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape


class Tower(nn.Module):
    """An embedding (batch, features) to a unit vector."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, 2 * width), nn.GELU(), nn.LayerNorm(2 * width),
            nn.Linear(2 * width, width),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.layers(x), dim=-1)


class TwoTower(nn.Module):
    """Scores (users, items) from histories (users, length; 0 is padding) and item ids (items,)."""

    def __init__(self, items: int = 5000, features: int = 64, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(items, features, padding_idx=0)
        self.user = Tower(features, width)
        self.item = Tower(features, width)
        self.temperature = nn.Parameter(torch.tensor(0.07))

    def forward(self, history: Tensor, candidates: Tensor) -> Tensor:
        seen = (history != 0).unsqueeze(-1)
        embedded = self.embedding(history) * seen
        count = seen.sum(1).clamp(min=1)
        users = self.user(embedded.sum(1) / count)
        items = self.item(self.embedding(candidates))
        return (users @ items.t()) / self.temperature


def build() -> nn.Module:
    return TwoTower()


def inputs(batch: int, length: int, generator: torch.Generator) -> dict[str, Tensor]:
    """`batch` histories of `length` items, against 3 * length + 1 candidates."""
    history = torch.randint(0, 5000, (batch, length), generator=generator)
    history[torch.rand(batch, length, generator=generator) < 0.2] = 0
    candidates = torch.randint(1, 5000, (3 * length + 1,), generator=generator)
    return {"history": history, "candidates": candidates}


def main() -> None:
    model = build().eval()
    fast = anyshape.compile(model, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for users, length in ((8, 20), (1, 1), (64, 200)):
            batch = inputs(users, length, generator)
            torch.testing.assert_close(fast(**batch), model(**batch), rtol=1e-4, atol=1e-4)
    print(fast.stats())


if __name__ == "__main__":
    main()
