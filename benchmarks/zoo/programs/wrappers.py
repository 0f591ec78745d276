"""What users wrap models in, and what they do around them."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.zoo.entry import TEXT
from benchmarks.zoo.programs.making import MANY, normal, program, x32


@program("wrappers", x32, TEXT)
class LoRA(nn.Module):
    def __init__(self):
        super().__init__()

        class Adapted(nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base, self.scale = base, 0.5
                self.down = nn.ParameterDict(
                    {"default": nn.Parameter(torch.randn(4, base.in_features))}
                )
                self.up = nn.ParameterDict(
                    {"default": nn.Parameter(torch.randn(base.out_features, 4))}
                )
                self.active = ["default"]

            def forward(self, x):
                y = self.base(x)
                for name in self.active:
                    if name in self.down.keys():
                        y = y + F.linear(F.linear(x, self.down[name]), self.up[name]) * self.scale
                return y

            def __getattr__(self, name):
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(self.base, name)

        self.net = nn.Sequential(
            OrderedDict(a=nn.Linear(32, 64), act=nn.GELU(), b=nn.Linear(64, 32))
        )
        for name, child in list(self.net.named_children()):
            if isinstance(child, nn.Linear):
                setattr(self.net, name, Adapted(child))

    def forward(self, x):
        return self.net(x) * self.net.a.in_features


@program("wrappers", x32, TEXT)
class Int8Linear(nn.Module):
    def __init__(self):
        super().__init__()
        w = torch.randn(16, 32)
        scale = w.abs().amax(1, keepdim=True) / 127
        self.register_buffer("w", (w / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x):
        s = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
        q = (x / s).round().clamp(-128, 127).to(torch.int8)
        y = q.to(torch.int32) @ self.w.t().to(torch.int32)
        return y.float() * s * self.scale.t(), F.linear(x, self.w.float() * self.scale)


@program(
    "wrappers",
    lambda b, n, g: {"x": torch.randint(0, 256, (b, n), generator=g, dtype=torch.uint8)},
    TEXT,
)
def unpack_int4(x):
    low, high = (x & 0xF).to(torch.int8) - 8, (x >> 4).to(torch.int8) - 8
    both = torch.stack([low, high], -1).flatten(-2)
    return both.to(torch.bfloat16) * 0.125, both.sum(-1), (both.to(torch.int16) << 3) ^ 5


def rearrange(x, pattern, **sizes):
    """A few lines of what einops does."""
    left, right = (side.split() for side in pattern.split("->"))
    dims, shape, names = dict(sizes), [], []
    for token, size in zip(group_tokens(pattern.split("->")[0]), x.shape):
        known = math.prod(dims[t] for t in token if t in dims)
        for t in token:
            dims.setdefault(t, size // known)
            shape.append(dims[t])
            names.append(t)
    x = x.reshape(shape)
    targets = group_tokens(pattern.split("->")[1])
    x = x.permute([names.index(t) for token in targets for t in token])
    return x.reshape([math.prod(dims[t] for t in token) for token in targets])


def group_tokens(side):
    out, group = [], None
    for token in side.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            group = []
        elif token == ")":
            out.append(tuple(group))
            group = None
        elif group is not None:
            group.append(token)
        else:
            out.append((token,))
    return out


@program(
    "wrappers",
    lambda b, n, g: {"x": normal(b, 3, n * 4, n * 4, g=g)},
    ((2, 3), (1, 4), (3, 2), (1, 1)),
)
def einops_like(x):
    patches = rearrange(x, "b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4)
    heads = rearrange(patches, "b n (k d) -> b k n d", k=4)
    scores = torch.einsum("bkid,bkjd->bkij", heads, heads).softmax(-1)
    return rearrange(torch.einsum("bkij,bkjd->bkid", scores, heads), "b k n d -> b n (k d)")


@program(
    "wrappers",
    lambda b, n, g: {"x": normal(b, n, g=g), "y": np.arange(b * n, dtype=np.float32).reshape(b, n)},
    TEXT,
)
def numpy_mix(x, y):
    scale = np.sqrt(x.shape[1]) + np.float64(2.0)
    z = torch.from_numpy(y) * float(scale)
    table = torch.tensor(np.linspace(0, 1, 5))
    return x + z, table, x.detach().numpy() * 2, np.prod(x.shape)


Box = namedtuple("Box", "low high")


class Output(NamedTuple):
    logits: Tensor
    box: Box
    count: int = 0


@dataclass
class State:
    hidden: Tensor
    steps: list
    extra: dict = None


@program("wrappers", x32, TEXT)
def structured_returns(x):
    state = State(x.tanh(), [x.size(1)])
    state.steps.append(x.sum())
    state.extra = {"mean": x.mean(1), 3: (x[:1], None)}
    return Output(x * 2, Box(x.amin(1), x.amax(1)), len(state.steps)), state


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low):
        ctx.save_for_backward(x)
        ctx.low = low
        return x.clamp(min=low)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x > ctx.low) * 0.5, None


@program("wrappers", x32, TEXT)
def custom_function(x):
    return Clamp.apply(x, 0.1) + 1


@program("wrappers", x32, TEXT)
def vmap_and_jacobian(x):
    def energy(row):
        return (row.sin() * row).sum()

    return torch.func.vmap(torch.func.grad(energy))(x.flatten(0, 1)), torch.vmap(torch.dot)(
        x[:, 0], x[:, -1]
    )


@program("wrappers", lambda b, n, g: {"x": normal(b, n, 32, g=g)}, TEXT)
class FunctionalCall(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(32, 8)

    def forward(self, x):
        weights = {k: v * 0.5 for k, v in self.net.named_parameters()}
        return torch.func.functional_call(self.net, weights, (x,))


@program("wrappers", x32, TEXT)
class HooksAndBuffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 16), nn.Tanh())
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(16))
        self.features = {}
        self.net[0].register_forward_hook(self.note)

    def note(self, module, args, output):
        self.features["first"] = output

    def forward(self, x):
        y = self.net(x)
        self.seen += 1
        self.mean.mul_(0.9).add_(0.1 * y.mean((0, 1)))
        return y, self.features["first"], self.mean.clone(), self.seen.item()


@program("wrappers", x32, TEXT)
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            with torch.autocast("cpu", enabled=False):
                z = self.b(y.float())
        return y, z, torch.distributed.is_available() and torch.distributed.is_initialized()


@program(
    "wrappers",
    lambda b, n, g: {"x": normal(b, n, g=g), "mode": ["mean", "max", "last"][n % 3]},
    MANY,
)
def dispatch_by_string(x, mode):
    match mode:
        case "mean":
            return x.mean(-1)
        case "max":
            return x.max(-1).values
        case _:
            return x[..., -1]


@program("wrappers", x32, TEXT)
class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.exits = nn.ModuleList(nn.Linear(32, 4) for _ in range(3))

    def forward(self, x):
        for i, (layer, leave) in enumerate(zip(self.layers, self.exits)):
            x = layer(x).relu()
            p = leave(x).softmax(-1)
            if p.max() > 0.6:
                return p, i
        return p, -1


@program("wrappers", x32, TEXT)
def sliding_windows(x):
    n = x.size(1)
    size = min(4, n)
    windows = x.unfold(1, size, 1)
    shifted = torch.roll(x, 1, 1)
    chunks = [c.mean(1) for c in x.chunk(3, 1)]
    return windows.mean(-1), (x - shifted).abs().cumsum(1), torch.stack(chunks, 1), x.diff(dim=1)


@program("wrappers", x32, TEXT)
def spectral(x):
    f = torch.fft.rfft(x, dim=1)
    y = torch.fft.irfft(f * 0.5, n=x.size(1), dim=1)
    return (
        f.abs(),
        f.angle(),
        y,
        torch.linalg.norm(x, dim=-1),
        torch.linalg.vector_norm(x, ord=1, dim=(1, 2)),
    )


@program(
    "wrappers",
    lambda b, n, g: {"x": normal(b, n, n, g=g) + 3 * torch.eye(n)},
    ((2, 7), (1, 3), (3, 1), (2, 12)),
)
def linear_algebra(x):
    sym = x @ x.mT
    low = torch.linalg.cholesky(sym)
    return (
        torch.linalg.solve(x, sym),
        low,
        torch.linalg.det(x),
        torch.linalg.inv(x),
        torch.linalg.eigvalsh(sym),
    )


@program("wrappers", lambda b, n, g: {"q": normal(b, 2, n, 8, g=g)}, TEXT)
def rotary_and_alibi(q):
    n = q.size(-2)
    freq = 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8))
    angle = torch.outer(torch.arange(n).float(), freq)
    turn = torch.polar(torch.ones_like(angle), angle)
    spun = torch.view_as_real(
        torch.view_as_complex(q.reshape(*q.shape[:-1], -1, 2)) * turn
    ).flatten(3)
    slopes = torch.tensor([2.0 ** -(i + 1) for i in range(2)])
    bias = slopes[:, None, None] * (torch.arange(n)[None] - torch.arange(n)[:, None])
    mask = torch.triu(torch.full((n, n), float("-inf")), 1)
    return (spun @ spun.mT / math.sqrt(8) + bias + mask).softmax(-1)
