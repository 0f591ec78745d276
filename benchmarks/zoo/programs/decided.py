"""Programs in which data decides what is done: what is clipped, what is set at first use, settings
that hold within a block."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from benchmarks.zoo.entry import TEXT
from benchmarks.zoo.programs.making import program, x32


class Setting:
    """As libraries keep theirs: on a class, set and set back by a context manager."""

    scale = 1.0

    def __init__(self, scale):
        self.old, self.new = type(self).scale, scale

    def __enter__(self):
        type(self).scale = self.new

    def __exit__(self, *error):
        type(self).scale = self.old


class Loud(Setting):
    pass


@program("decided", x32, TEXT)
class ClippedWhereLarge(nn.Module):
    def forward(self, x):
        norm = x.norm()
        if norm > 30:
            x = x * (30 / norm)
        return x, x.abs().amax(-1)


@program("decided", x32, TEXT)
class SetAtFirstUse(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.tensor(False))
        self.register_buffer("mean", torch.zeros(32))

    def forward(self, x):
        if not self.ready:
            self.mean.copy_(x.mean((0, 1)))
            self.ready.fill_(True)
        return x - self.mean


@program("decided", x32, TEXT)
class WithinASetting(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = SimpleNamespace(rows=0)

    def forward(self, x):
        self.seen.rows = x.shape[1]
        with Loud(2.0):
            y = x * Loud.scale
        return y + Loud.scale, self.seen.rows


@program("decided", x32, TEXT)
class LossesWhereFound(nn.Module):
    def forward(self, x):
        losses, found = {"all": x.mean()}, x[x > 2]
        if found.numel() == 0:
            losses["found"] = x.sum() * 0
        else:
            losses["found"] = found.mean() - x.mean()
        return losses["all"], losses["found"]
