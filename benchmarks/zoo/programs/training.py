"""Training inside the compiled function."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from benchmarks.zoo.programs.making import normal, program, x32


@program(
    "training",
    lambda b, n, g: {"x": normal(b, n, 32, g=g), "y": torch.randint(0, 5, (b,), generator=g)},
    ((2, 7), (3, 16), (1, 33), (2, 1)),
    grad=True,
)
class TrainingLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 5)

    def forward(self, x, y):
        h = self.n(x + F.gelu(self.a(x))).mean(1)
        loss = F.cross_entropy(self.b(h), y)
        loss.backward()
        return loss


@program("training", x32, ((2, 7), (3, 16), (1, 33), (2, 1)), grad=True)
class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = x + checkpoint(lambda y, layer=layer: layer(y).tanh(), x, use_reentrant=False)
        x.sum().backward()
        return x


@program("training", x32, ((2, 7), (3, 16), (1, 33), (2, 1)), grad=True)
class TrainingLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(32, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)
        )
        self.optimizer = None

    def forward(self, x):
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        history = []
        for _ in range(3):
            self.optimizer.zero_grad()
            loss = self.net(x.flatten(0, 1)).pow(2).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimizer.step()
            history.append(loss.detach())
        return torch.stack(history)


@program(
    "training",
    lambda b, n, g: {"a": normal(b, n, 32, g=g), "b": normal(b, n, 32, g=g)},
    ((2, 7), (3, 16), (1, 33), (2, 1)),
    grad=True,
)
class Contrastive(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(32, 16)
        self.t = nn.Parameter(torch.tensor(0.07))
        self.momentum = nn.Linear(32, 16).requires_grad_(False)

    def forward(self, a, b):
        with torch.no_grad():
            for p, m in zip(self.f.parameters(), self.momentum.parameters()):
                m.mul_(0.99).add_(p, alpha=0.01)
            keys = F.normalize(self.momentum(b.flatten(0, 1)), dim=-1)
        queries = F.normalize(self.f(a.flatten(0, 1)), dim=-1)
        logits = queries @ keys.t() / self.t
        loss = F.cross_entropy(logits, torch.arange(logits.size(0)))
        loss.backward()
        return loss
