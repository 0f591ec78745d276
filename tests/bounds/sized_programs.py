"""Programs whose loops may turn no times: each with the sizes of its arguments by name.

`PROGRAMS` is a table: the program's text over its arguments, then their shapes; a shape of sizes is a
tensor of the dtype that is asked for, with "i" in front one of indices (zeros), with "m" a mask; a name
alone is the size itself, handed in as a number. A name is any size of `SIZES`, independently of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

SIZES = (3, 0, 1, 2, 17, 133)
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)

TABLE = """
# gathers, of what may be empty
x[torch.zeros(a, dtype=torch.int64)].sum(); (b) a
x[torch.zeros(a, dtype=torch.int64)].sum(0); (b c) a
x[torch.zeros(a, dtype=torch.int64)].sum(1); (b c) a
x[torch.zeros(a, dtype=torch.int64)].float().softmax(0); (b) a
x[torch.zeros(a, dtype=torch.int64)].cumsum(0); (b) a
x[torch.zeros(a, dtype=torch.int64)].cumsum(1); (b c) a
x[i].sum(); (b) i(a)
x[i].float().softmax(0); (b c) i(a)
x[i] + x[i].float().mean(0); (b c) i(a)
x[i, j].sum(); (b c) i(a) i(a)
x.gather(0, i).cumsum(0); (b c) i(a c)
x.gather(1, i).any(1); (b c) i(b a)
x.index_select(1, i).float().logsumexp(1); (b c) i(a)
x.take_along_dim(i, 0).float().std(0); (b c) i(a c)
F.embedding(i, x).float().mean(0); (b c) i(a)
x[torch.zeros(a, dtype=torch.int64)].argmax(0); (b c) a
torch.where(m, x[torch.zeros(a, dtype=torch.int64)], 1).sum(); (b) a m(a)
x[torch.zeros(a, dtype=torch.int64)][:, torch.zeros(d, dtype=torch.int64)].sum((0, 1)); (b c) a d
x[torch.zeros(a, dtype=torch.int64)].sum() + y.sum(); (b) (c) a
# slices that are expanded
x[:1].expand(a).cumsum(0); (b) a
x[:1].expand(a, x.shape[1]).cumsum(0); (b c) a
x[:, :1].expand(x.shape[0], a).cumsum(1); (b c) a
x[:1].expand(a).sum(); (b) a
x[:1].expand(a).float().softmax(0); (b) a
x[:1].expand(a, x.shape[1]).float().softmax(0); (b c) a
x[-1:].expand(a, x.shape[1]).any(0); (b c) a
x[:1, :1].expand(a, b).cumsum(0).cumsum(1); (c d) a b
x[:, None].expand(x.shape[0], a).sum(1); (b) a
x[None].expand(a, x.shape[0]).sum(0); (b) a
x[::2].sum(0) + x[1::2].sum(0); (b c)
x[a:].cumsum(0); (b) a
x[:, a:].float().softmax(1); (b c) a
x[:a].float().softmax(0); (b c) a
x.T[a:].sum(0); (b c) a
x.T.cumsum(0); (b c)
x[a::3].cumsum(0); (b c) a
x[:a].T.contiguous().sum(1); (b c) a
x[a:a + 3].flip(0).cumsum(0); (b c) a
# reductions, scans, extremes
x.sum(), x.sum(0), x.sum(1); (a b)
x.sum() + y; (a b) (c)
x.sum(0) + y[:1]; (a b) (c b)
x.prod(0), x.any(1), x.all(0); (a b)
x.float().mean((0, 2)); (a b c)
x.float().var(1), x.float().norm(dim=0); (a b)
x.argmax(1), x.argmin(1); (a b)
x.argmax(); (a b)
x.amax(0), x.amin(0); (a b)
x.max(1).indices; (a b)
x.cumsum(0) + x.cumsum(1); (a b)
x.cumprod(0).sum(1); (a b)
x.float().softmax(0), x.float().log_softmax(1); (a b)
x.float().softmax(1) @ y.float(); (a b) (b c)
x.float().logsumexp((0, 1)); (a b)
x.count_nonzero(0), x.count_nonzero(); (a b)
x.masked_fill(m, 0).float().softmax(-1); (a b) m(a b)
x.where(m[:, None], x[:1]).sum(0); (a b) m(a)
x.float().cumsum(1).softmax(0).amax(1); (a b)
# norms
F.layer_norm(x.float(), x.shape[-1:]); (a b)
F.layer_norm(x.float(), x.shape[-1:], y.float(), y.float()); (a b) (b)
F.rms_norm(x.float(), x.shape[-1:], y.float()); (a b) (b)
F.group_norm(x.float(), 1); (a b c)
F.batch_norm(x.float(), y.float().abs(), y.float().abs() + 1); (a b) (b)
F.normalize(x.float(), dim=0); (a b)
x.float() / x.float().norm(dim=1, keepdim=True); (a b)
# joins
torch.cat([x, y]); (a c) (b c)
torch.cat([x, y, x[:1]], 1) * 1; (a b) (a c)
torch.cat([x, y], 1).cumsum(1); (a b) (a c)
torch.cat([x, y], 0).float().softmax(0); (a c) (b c)
torch.cat([x.cumsum(0), y.cumsum(0)]); (a c) (b c)
torch.cat([x.sum(0), y.sum(0)]); (a c) (b d)
torch.cat([x.float().softmax(1), y.float()], 1); (a b) (a c)
torch.cat([x[i], y]).sum(0); (a c) (b c) i(d)
torch.stack([x, x.flip(0)]).sum(1); (a b)
F.pad(x, (1, 2, 0, 3)).sum(0); (a b)
F.pad(x.cumsum(1), (2, 1)); (a b)
F.pad(x, (-1, 1)).cumsum(1); (a b)
F.pad(x.float().softmax(1), (0, a)); (b c) a
x.roll(1, 0).cumsum(0); (a b)
x.tril().sum(0), x.triu(1).cumsum(1); (a b)
x.repeat(2, a).sum(0); (b c) a
x.repeat_interleave(2, 0).cumsum(0); (a b)
torch.arange(a).cumsum(0) + x[:1]; (b) a
torch.full((a,), 2).sum() + x.sum(); (b) a
torch.zeros(a, b).float().softmax(1).sum(0); (c) a b
# pools and convolutions
F.max_pool1d(x.float(), 2); (a b c)
F.avg_pool1d(x.float(), 2); (a b c)
F.conv1d(x.float(), y.float()); (a b c) (d b 2)
F.conv2d(x.float(), y.float(), padding=1).relu(); (a b c d) (e b 2 2)
F.relu(F.conv2d(x.float(), y.float())).sum((2, 3)); (a 2 c d) (3 2 2 2)
F.adaptive_avg_pool1d(x.float(), 2); (a b c)
F.linear(x.float(), y.float()).relu().sum(0); (a b) (c b)
F.interpolate(x.float(), scale_factor=2.0); (a b c)
x.unfold(0, 2, 1).sum(1); (a b)
x.diagonal().cumsum(0); (a b)
F.scaled_dot_product_attention(x.float(), y.float(), y.float()); (a b 4) (a c 4)
torch.bmm(x.float(), y.float()).sum(1); (a b c) (a c d)
# writes where data says
x.index_add(0, i, y).sum(0); (a c) i(b) (b c)
x.scatter(0, i, y).cumsum(0); (a c) i(b c) (b c)
x.clone().index_put_((i,), y).sum(); (a c) i(b) (b c)
x.clone().masked_fill_(m, 1).sum(0); (a b) m(a b)
"""


@dataclass(frozen=True)
class Program:
    text: str
    shapes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The sizes that are its own, in order."""
        return tuple(
            dict.fromkeys(c for shape in self.shapes for c in shape.strip("im() ") if c.isalpha())
        )

    def function(self) -> Callable[..., Any]:
        """The program with its arguments: tensors x, y; indices i, j; masks m; sizes by name."""
        scope: dict[str, Any] = {"torch": torch, "F": F}
        exec(f"def program({', '.join(self.parameters())}):\n    return {self.text}", scope)
        return scope["program"]

    def parameters(self) -> list[str]:
        fresh = {"(": iter("xyz"), "i": iter("ij"), "m": iter("mn")}
        return [next(fresh[s[0]]) if s[-1] == ")" else s for s in self.shapes]

    def arguments(self, sizes: dict[str, int], dtype: torch.dtype, seed: int) -> list[Any]:
        draw = torch.Generator().manual_seed(seed)
        return [_argument(shape, sizes, dtype, draw) for shape in self.shapes]


def _argument(text: str, sizes: dict[str, int], dtype: torch.dtype, draw: torch.Generator) -> Any:
    if not text.endswith(")"):
        return sizes[text]
    kind, _, names = text.rstrip(")").partition("(")
    shape = [sizes[n] if n.isalpha() else int(n) for n in names.split()]
    made = torch.randint(
        0 if kind else -3, 2 if kind == "m" else 1 if kind == "i" else 4, shape, generator=draw
    )
    return made.to({"i": torch.int64, "m": torch.bool, "": dtype}[kind])


def _rows(text: str) -> Iterator[Program]:
    for line in text.strip().splitlines():
        if not line.startswith("#"):
            body, _, shapes = line.rpartition("; ")
            yield Program(body, tuple(_split(shapes)))


def _split(shapes: str) -> Iterator[str]:
    depth, word = 0, ""
    for c in shapes + " ":
        depth += (c == "(") - (c == ")")
        if c == " " and not depth:
            yield word
            word = ""
        else:
            word += c


PROGRAMS = tuple(_rows(TABLE))


def assignments(names: tuple[str, ...], most: int) -> list[dict[str, int]]:
    """Sizes for the names: ordinary ones first, so that a program is compiled for them and called with
    others; then each name empty or not, in every combination; then of all sizes so many, spread."""
    chosen = dict.fromkeys(itertools.product(SIZES[:2], repeat=len(names)))
    every = list(itertools.product(SIZES, repeat=len(names)))
    step = max(1, len(every) // most)
    while step > 1 and len(SIZES) % step == 0:
        step += 1
    chosen.update(dict.fromkeys(every[::step]))
    return [dict(zip(names, sizes)) for sizes in chosen]
