"""Users' programs, as they write them: detection, recommenders, graphs, recurrent networks,
decoding, diffusion, wrappers, training.
"""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.zoo.entry import TEXT, Entry, Sizes

MANY: tuple[Sizes, ...] = ((2, 7), (3, 16), (1, 33), (2, 2), (2, 1), (1, 1), (4, 50))
EMPTY: tuple[Sizes, ...] = ((2, 7), (3, 16), (1, 1), (2, 0), (1, 33), (4, 1), (3, 2))
IMAGES: tuple[Sizes, ...] = ((2, 16), (1, 32), (3, 24), (1, 16))
ENTRIES_LIST: list[Entry] = []


def normal(*shape: int, g: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=g)


def program(family, inputs, shapes=MANY, grad=False):
    """Makes an entry of a function or a module class."""

    def note(made):
        def build():
            torch.manual_seed(0)
            return made().train(grad) if isinstance(made, type) else made

        name = made.__name__.replace("_", " ").strip()
        ENTRIES_LIST.append(Entry(name, family, build, inputs, shapes, grad))
        return made

    return note


def x32(b, n, g):
    return {"x": normal(b, n, 32, g=g)}


# --- detection ---


def boxes_of(n, g):
    low = torch.rand(n, 2, generator=g) * 20
    return torch.cat([low, low + 1 + torch.rand(n, 2, generator=g) * 10], 1)


def pairwise_iou(a, b):
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    low = torch.max(a[:, None, :2], b[None, :, :2])
    high = torch.min(a[:, None, 2:], b[None, :, 2:])
    size = (high - low).clamp(min=0)
    shared = size[..., 0] * size[..., 1]
    return shared / (area_a[:, None] + area_b[None] - shared)


@program(
    "detection",
    lambda b, n, g: {"boxes": boxes_of(n, g), "scores": torch.rand(n, generator=g)},
    EMPTY,
)
def nms_with_a_loop(boxes, scores):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        first = order[0]
        keep.append(first)
        if order.numel() == 1:
            break
        rest = order[1:]
        iou = pairwise_iou(boxes[first][None], boxes[rest])[0]
        order = rest[iou <= 0.3]
    return torch.stack(keep) if keep else torch.empty(0, dtype=torch.long)


@program(
    "detection",
    lambda b, n, g: {"boxes": boxes_of(n, g), "scores": torch.rand(n, generator=g)},
    EMPTY,
)
def filter_and_top_k(boxes, scores):
    keep = scores > 0.4
    boxes, scores = boxes[keep], scores[keep]
    count = min(5, scores.shape[0])
    top, index = scores.topk(count)
    return {"boxes": boxes[index], "scores": top, "count": count}


@program(
    "detection",
    lambda b, n, g: {"features": normal(b, 16, n, n + 2, g=g)},
    ((2, 7), (1, 12), (3, 4), (1, 1)),
)
class AnchorHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Conv2d(16, 3, 3, padding=1)
        self.delta = nn.Conv2d(16, 12, 3, padding=1)
        self.register_buffer(
            "base", torch.tensor([[-4.0, -4, 4, 4], [-8, -4, 8, 4], [-4, -8, 4, 8]])
        )

    def forward(self, features):
        b, _, h, w = features.shape
        ys, xs = torch.meshgrid(torch.arange(h) * 8.0, torch.arange(w) * 8.0, indexing="ij")
        shifts = torch.stack([xs, ys, xs, ys], -1).reshape(-1, 1, 4)
        anchors = (shifts + self.base).reshape(-1, 4)
        deltas = self.delta(features).permute(0, 2, 3, 1).reshape(b, -1, 4)
        scores = self.score(features).permute(0, 2, 3, 1).reshape(b, -1).sigmoid()
        center = (anchors[:, :2] + anchors[:, 2:]) / 2 + deltas[..., :2]
        size = (anchors[:, 2:] - anchors[:, :2]) * deltas[..., 2:].clamp(
            max=math.log(1000 / 16)
        ).exp()
        boxes = torch.cat([center - size / 2, center + size / 2], -1)
        k = min(10, boxes.shape[1])
        top, index = scores.topk(k, dim=1)
        return boxes.gather(1, index[..., None].expand(-1, -1, 4)), top


@program(
    "detection",
    lambda b, n, g: {"features": normal(1, 8, 16, 20, g=g), "boxes": boxes_of(n, g) / 2},
    EMPTY,
)
def roi_align_by_grid_sample(features, boxes):
    _, _, h, w = features.shape
    steps = (torch.arange(3) + 0.5) / 3
    xs = boxes[:, 0, None] + (boxes[:, 2] - boxes[:, 0])[:, None] * steps
    ys = boxes[:, 1, None] + (boxes[:, 3] - boxes[:, 1])[:, None] * steps
    grid = torch.stack(torch.broadcast_tensors(xs[:, None, :], ys[:, :, None]), -1)
    grid = grid / torch.tensor([w, h]) * 2 - 1
    return F.grid_sample(features.expand(boxes.shape[0], -1, -1, -1), grid, align_corners=False)


@program(
    "detection",
    lambda b, n, g: {"features": normal(8, 16, 20, g=g), "boxes": boxes_of(n, g) / 2},
    ((1, 3), (1, 5), (1, 1)),
)
def roi_max_pool_in_a_loop(features, boxes):
    out = []
    for x0, y0, x1, y1 in boxes.round().long().tolist():
        patch = features[:, y0 : y1 + 1, x0 : x1 + 1]
        out.append(F.adaptive_max_pool2d(patch, 2))
    return torch.stack(out)


@program(
    "detection",
    lambda b, n, g: {"boxes": boxes_of(n, g), "truth": boxes_of(b, g)},
    ((2, 7), (3, 16), (1, 33), (1, 1)),
)
def match_anchors(boxes, truth):
    iou = pairwise_iou(truth, boxes)
    best, index = iou.max(0)
    label = torch.full_like(index, -1)
    label[best < 0.1] = 0
    label[best >= 0.2] = 1
    label[iou.argmax(1)] = 1
    targets = truth[index]
    positive = (label == 1).nonzero().squeeze(1)
    return label, targets[positive], F.smooth_l1_loss(boxes[positive], targets[positive])


# --- recommenders ---


@program(
    "recommender",
    lambda b, n, g: {
        "dense": normal(b, 13, g=g),
        "sparse": [torch.randint(0, 50, (b * n,), generator=g) for _ in range(3)],
        "offsets": [torch.arange(b) * n for _ in range(3)],
    },
)
class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(50, 16, mode="sum") for _ in range(3))
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16))
        self.top = nn.Sequential(nn.Linear(16 + 6, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense, sparse, offsets):
        x = self.bottom(dense)
        vectors = [x] + [t(i, o) for t, i, o in zip(self.tables, sparse, offsets)]
        stacked = torch.stack(vectors, 1)
        products = stacked @ stacked.transpose(1, 2)
        i, j = torch.tril_indices(4, 4, offset=-1)
        return self.top(torch.cat([x, products[:, i, j]], 1)).sigmoid().squeeze(-1)


@program("recommender", lambda b, n, g: {"fields": torch.randint(0, 10, (b, 5), generator=g)})
class DeepFM(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("offsets", torch.arange(5) * 10)
        self.linear, self.embed = nn.Embedding(50, 1), nn.Embedding(50, 8)
        self.deep = nn.Sequential(
            nn.Linear(40, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)
        )

    def forward(self, fields):
        index = fields + self.offsets
        v = self.embed(index)
        pairs = 0.5 * (v.sum(1) ** 2 - (v**2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.linear(index).sum(1) + pairs + self.deep(v.flatten(1))).squeeze(1)


@program(
    "recommender",
    lambda b, n, g: {
        "items": torch.randint(0, 50, (b * n,), generator=g),
        "lengths": torch.full((b,), n),
        "weights": torch.rand(b * n, generator=g),
    },
    EMPTY,
)
class RaggedBags(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)

    def forward(self, items, lengths, weights):
        rows = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths)
        vectors = self.table(items) * weights[:, None]
        sums = torch.zeros(lengths.shape[0], 8).index_add_(0, rows, vectors)
        return sums / lengths.clamp(min=1)[:, None]


@program(
    "recommender",
    lambda b, n, g: {
        "history": torch.randint(0, 50, (b, n), generator=g),
        "target": torch.randint(1, 50, (b,), generator=g),
    },
)
class InterestNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(50, 8, padding_idx=0)
        self.score = nn.Sequential(nn.Linear(32, 16), nn.PReLU(), nn.Linear(16, 1))

    def forward(self, history, target):
        h, t = self.items(history), self.items(target)[:, None].expand(-1, history.size(1), -1)
        score = self.score(torch.cat([h, t, h - t, h * t], -1)).squeeze(-1)
        score = score.masked_fill(history == 0, float("-inf"))
        return (score.softmax(-1).nan_to_num().unsqueeze(1) @ h).squeeze(1)


@program("recommender", x32)
class DeepAndCross(nn.Module):
    def __init__(self):
        super().__init__()
        self.cross = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.experts = nn.ModuleList(nn.Linear(32, 8) for _ in range(4))
        self.gates = nn.ModuleDict({k: nn.Linear(32, 4) for k in ("click", "buy")})

    def forward(self, x):
        x0 = x = x.mean(1)
        for layer in self.cross:
            x = x0 * layer(x) + x
        experts = torch.stack([e(x).relu() for e in self.experts], 1)
        return {
            k: (gate(x).softmax(-1).unsqueeze(-1) * experts).sum(1)
            for k, gate in self.gates.items()
        }


# --- ragged batches, graphs ---


@program(
    "ragged", lambda b, n, g: {"rows": [normal(max(0, n - i), 8, g=g) for i in range(3)]}, EMPTY
)
def pad_and_mask(rows):
    lengths = torch.tensor([len(r) for r in rows])
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.arange(padded.shape[1])[None] < lengths[:, None]
    mean = (padded * mask[..., None]).sum(1) / lengths.clamp(min=1)[:, None]
    return padded, mask, mean


@program(
    "ragged",
    lambda b, n, g: {"x": normal(b, n, 8, g=g), "keep": torch.rand(b, n, generator=g) > 0.4},
    EMPTY,
)
def unpad_work_repad(x, keep):
    b, n, d = x.shape
    flat = keep.flatten().nonzero().squeeze(-1)
    packed = F.gelu(x.reshape(-1, d)[flat])
    lengths = keep.sum(-1)
    bounds = F.pad(lengths.cumsum(0), (1, 0))
    back = torch.zeros(b * n, d)
    back[flat] = packed
    return back.view(b, n, d), bounds, lengths.max()


@program("ragged", lambda b, n, g: {"x": normal(b * n, 8, g=g), "sizes": [n] * b})
def split_by_sizes(x, sizes):
    return [part.softmax(0).sum(0) for part in x.split(sizes)]


def graph(b, n, g):
    return {"x": normal(n, 8, g=g), "edges": torch.randint(0, max(n, 1), (2, n * 3), generator=g)}


@program("graph", graph, EMPTY)
class GraphAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.a = nn.Linear(8, 8), nn.Linear(16, 1)

    def forward(self, x, edges):
        n = x.size(0)
        src, dst = edges
        h = self.lin(x)
        e = F.leaky_relu(self.a(torch.cat([h[src], h[dst]], -1)), 0.2).squeeze(-1)
        top = torch.full((n,), float("-inf")).scatter_reduce(0, dst, e, "amax", include_self=True)
        w = (e - top[dst]).exp()
        total = torch.zeros(n).scatter_add(0, dst, w)
        return torch.zeros(n, 8).index_add(0, dst, h[src] * (w / total[dst])[:, None])


@program("graph", graph, EMPTY)
class GraphConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 4)])

    def forward(self, x, edges):
        n = x.shape[0]
        loops = torch.arange(n).expand(2, n)
        src, dst = torch.cat([edges, loops], 1)
        degree = torch.bincount(dst, minlength=n).clamp(min=1).float().rsqrt()
        norm = degree[src] * degree[dst]
        for i, layer in enumerate(self.layers):
            h = layer(x)
            x = torch.zeros_like(h).scatter_add_(
                0, dst[:, None].expand(-1, h.size(1)), h[src] * norm[:, None]
            )
            if i == 0:
                x = x.relu()
        return x.log_softmax(-1)


@program(
    "graph",
    lambda b, n, g: {"x": normal(n, 8, g=g), "batch": torch.arange(n) % b},
    ((2, 7), (3, 16), (1, 33), (4, 50), (1, 1)),
)
def pool_by_graph(x, batch):
    count = int(batch.max()) + 1
    total = torch.zeros(count, 8).index_add_(0, batch, x)
    size = torch.zeros(count).index_add_(0, batch, torch.ones(x.size(0)))
    top = torch.full((count, 8), -1e9).index_reduce_(0, batch, x, "amax")
    return torch.cat([total, total / size[:, None], top], -1)


@program(
    "graph", lambda b, n, g: {"points": normal(b, n, 3, g=g)}, ((2, 7), (3, 16), (1, 33), (1, 5))
)
def nearest_neighbours(points):
    distance = torch.cdist(points, points)
    near = distance.topk(4, largest=False).indices
    picked = torch.gather(
        points[:, None].expand(-1, points.size(1), -1, -1), 2, near[..., None].expand(-1, -1, -1, 3)
    )
    return (picked - points[:, :, None]).norm(dim=-1).max(-1).values


# --- recurrent ---


@program("recurrent", x32, TEXT)
class LSTMTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = (
            nn.LSTM(32, 16, 2, batch_first=True, bidirectional=True),
            nn.Linear(32, 5),
        )

    def forward(self, x):
        out, (h, c) = self.rnn(x)
        return self.head(out), h, c


@program("recurrent", x32, TEXT)
class GRUWithState(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(32, 16, batch_first=True)

    def forward(self, x):
        state = x.new_zeros(1, x.size(0), 16)
        return self.rnn(x, state)


@program(
    "recurrent",
    lambda b, n, g: {
        "x": normal(b, n, 32, g=g),
        "lengths": torch.arange(n, n - b, -1).clamp(min=1),
    },
    ((2, 7), (3, 16), (1, 33), (1, 1)),
)
class PackedGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(32, 16, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        out, h = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0], h


@program(
    "recurrent",
    lambda b, n, g: {"source": torch.randint(0, 50, (b, n), generator=g), "steps": 5},
    TEXT,
)
class Seq2SeqWithAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.encoder = nn.Embedding(50, 16), nn.GRU(16, 16, batch_first=True)
        self.cell, self.out = nn.GRUCell(32, 16), nn.Linear(16, 50)

    def forward(self, source, steps):
        memory, h = self.encoder(self.embed(source))
        h, token = h[0], source[:, 0]
        produced = []
        for _ in range(steps):
            weight = torch.bmm(memory, h.unsqueeze(2)).squeeze(2).softmax(-1)
            context = torch.bmm(weight.unsqueeze(1), memory).squeeze(1)
            h = self.cell(torch.cat([self.embed(token), context], -1), h)
            logits = self.out(h)
            token = logits.argmax(-1)
            produced.append(logits)
        return torch.stack(produced, 1), token


@program("recurrent", x32, ((2, 7), (3, 4), (1, 12), (2, 1)))
class HandWrittenLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = nn.Linear(48, 64)

    def forward(self, x):
        h = c = x.new_zeros(x.size(0), 16)
        out = []
        for t in range(x.size(1)):
            i, f, o, u = self.gates(torch.cat([x[:, t], h], -1)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * u.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
        return torch.stack(out, 1), (h, c)


# --- decoding ---


@program("decoding", lambda b, n, g: {"log_probs": normal(b, n, 6, g=g).log_softmax(-1)}, TEXT)
def ctc_greedy(log_probs):
    best = log_probs.argmax(-1)
    out = []
    for row in best:
        row = torch.unique_consecutive(row)
        out.append(row[row != 0].tolist())
    return out


@program(
    "decoding",
    lambda b, n, g: {
        "log_probs": normal(n, b, 6, g=g).log_softmax(-1),
        "targets": torch.randint(1, 6, (b, 2), generator=g),
    },
    ((2, 7), (3, 16), (1, 33)),
)
def ctc_loss(log_probs, targets):
    n, b, _ = log_probs.shape
    return F.ctc_loss(
        log_probs, targets, torch.full((b,), n), torch.full((b,), 2), zero_infinity=True
    )


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pos = nn.Embedding(50, 16), nn.Embedding(128, 16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 50)

    def step(self, ids, cache=None):
        past = 0 if cache is None else cache[0].size(1)
        n = ids.size(1)
        x = self.embed(ids) + self.pos(torch.arange(past, past + n))
        q, k, v = self.qkv(x).chunk(3, -1)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        mask = torch.ones(n, past + n, dtype=torch.bool).tril(past)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(x + y), (k, v)


def ids50(b, n, g):
    return {"ids": torch.randint(0, 50, (b, n), generator=g)}


@program("decoding", ids50, ((2, 7), (1, 16), (3, 1)))
class GreedyWithCache(TinyLM):
    def forward(self, ids):
        logits, cache = self.step(ids)
        out = [ids]
        for _ in range(6):
            token = logits[:, -1].argmax(-1, keepdim=True)
            out.append(token)
            logits, cache = self.step(token, cache)
        return torch.cat(out, 1)


@program("decoding", ids50, ((2, 7), (1, 16), (3, 1)))
class StopsAtEnd(TinyLM):
    def forward(self, ids):
        done = torch.zeros(ids.size(0), dtype=torch.bool)
        for _ in range(8):
            logits, _ = self.step(ids)
            token = logits[:, -1].argmax(-1).masked_fill(done, 0)
            ids = torch.cat([ids, token[:, None]], 1)
            done |= token % 5 == 0
            if done.all():
                break
        return ids


@program("decoding", ids50, ((1, 7), (1, 16), (1, 1)))
class BeamSearch(TinyLM):
    def forward(self, ids):
        beams, scores = ids, torch.zeros(1)
        for _ in range(4):
            logits, _ = self.step(beams)
            total = scores[:, None] + logits[:, -1].log_softmax(-1)
            scores, flat = total.flatten().topk(3)
            beams = torch.cat([beams[flat // 50], (flat % 50)[:, None]], 1)
        return beams, scores


@program("decoding", ids50, ((2, 7), (1, 16), (3, 1)))
class Sampling(TinyLM):
    def forward(self, ids):
        for _ in range(3):
            logits = self.step(ids)[0][:, -1] / 0.8
            kth = logits.topk(10).values[:, -1:]
            logits = logits.masked_fill(logits < kth, float("-inf"))
            sorted_logits, order = logits.sort(descending=True)
            drop = sorted_logits.softmax(-1).cumsum(-1) - sorted_logits.softmax(-1) > 0.9
            logits = logits.masked_fill(drop.scatter(1, order, drop), float("-inf"))
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
        return ids


@program("decoding", ids50, ((1, 7), (1, 16), (1, 2)))
class Speculative(TinyLM):
    def forward(self, ids):
        draft = ids
        for _ in range(3):
            draft = torch.cat([draft, self.step(draft[:, -4:])[0][:, -1:].argmax(-1)], 1)
        best = self.step(draft)[0].argmax(-1)
        n = ids.size(1)
        agree = (draft[:, n:] == best[:, n - 1 : -1])[0]
        accepted = int(agree.long().cumprod(0).sum())
        return torch.cat([draft[:, : n + accepted], best[:, n + accepted - 1 : n + accepted]], 1)


# --- generation of pictures ---


def time_embedding(t, dim):
    half = dim // 2
    freq = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
    angle = t.float()[:, None] * freq[None]
    return torch.cat([angle.cos(), angle.sin()], -1)


class ResidualBlock(nn.Module):
    def __init__(self, c_in, c_out, t_dim=32):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, c_in), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.time = nn.Linear(t_dim, c_out)
        self.norm2, self.conv2 = nn.GroupNorm(4, c_out), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.skip = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)


@program(
    "generation",
    lambda b, n, g: {"x": normal(b, 3, n, n, g=g), "t": torch.randint(0, 1000, (b,), generator=g)},
    IMAGES,
)
class DiffusionUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.start = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.ModuleList([ResidualBlock(8, 16), ResidualBlock(16, 32)])
        self.attention, self.norm = (
            nn.MultiheadAttention(32, 4, batch_first=True),
            nn.GroupNorm(4, 32),
        )
        self.up = nn.ModuleList([ResidualBlock(64, 16), ResidualBlock(32, 8)])
        self.end = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x, t):
        t = self.time(time_embedding(t, 16))
        h, skips = self.start(x), []
        for block in self.down:
            h = block(h, t)
            skips.append(h)
            h = F.avg_pool2d(h, 2)
        b, c, hh, ww = h.shape
        flat = self.norm(h).flatten(2).transpose(1, 2)
        h = h + self.attention(flat, flat, flat)[0].transpose(1, 2).reshape(b, c, hh, ww)
        for block in self.up:
            h = F.interpolate(h, scale_factor=2, mode="nearest")
            h = block(torch.cat([h, skips.pop()], 1), t)
        return self.end(F.silu(h))


@program("generation", lambda b, n, g: {"x": normal(b, 1, n + 3, n, g=g)}, IMAGES)
class UNet(nn.Module):
    def __init__(self):
        super().__init__()

        def double(a, b):
            return nn.Sequential(
                nn.Conv2d(a, b, 3, padding=1),
                nn.BatchNorm2d(b),
                nn.ReLU(True),
                nn.Conv2d(b, b, 3, padding=1),
                nn.BatchNorm2d(b),
                nn.ReLU(True),
            )

        self.a, self.b, self.c = double(1, 8), double(8, 16), double(24, 8)
        self.pool, self.up = nn.MaxPool2d(2), nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.a(x)
        u = self.up(self.b(self.pool(a)))
        dy, dx = a.size(2) - u.size(2), a.size(3) - u.size(3)
        u = F.pad(u, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(self.c(torch.cat([a, u], 1)))


@program("generation", lambda b, n, g: {"x": torch.rand(b, 1, 16, 16, generator=g)}, IMAGES)
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.mean, self.logvar = nn.Linear(256, 8), nn.Linear(256, 8)
        self.decoder = nn.Sequential(
            nn.Linear(8, 256),
            nn.Unflatten(1, (16, 4, 4)),
            nn.ConvTranspose2d(16, 8, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        h = self.encoder(x)
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        y = self.decoder(z)
        kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()
        return y, F.binary_cross_entropy(y, x, reduction="sum") / x.size(0) + kl


@program("generation", lambda b, n, g: {"z": normal(b, 8, g=g)}, IMAGES)
class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(8, 32, 4),
            nn.BatchNorm2d(32),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(32, 12, 3, padding=1),
            nn.PixelShuffle(2),
            nn.InstanceNorm2d(3, affine=True),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z[:, :, None, None])


@program("generation", lambda b, n, g: {"x": normal(b, 8, n, g=g)}, ((2, 7), (1, 16), (3, 33)))
class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(3))
        self.skip = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3))

    def forward(self, x):
        total = 0
        for i, (layer, skip) in enumerate(zip(self.layers, self.skip)):
            a, b = layer(F.pad(x, (2**i, 0))).chunk(2, 1)
            h = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(h)
            x = x + h
        return total


@program(
    "generation",
    lambda b, n, g: {"z": normal(b, 4, 8, 8, g=g), "codebook": normal(16, 4, g=g)},
    IMAGES,
)
def vector_quantize(z, codebook):
    flat = z.permute(0, 2, 3, 1).reshape(-1, 4)
    distance = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ codebook.t() + codebook.pow(2).sum(1)
    index = distance.argmin(1)
    q = codebook[index].view(z.size(0), 8, 8, 4).permute(0, 3, 1, 2)
    usage = F.one_hot(index, 16).float().mean(0)
    return z + (q - z).detach(), F.mse_loss(q, z), torch.exp(-(usage * (usage + 1e-10).log()).sum())


# --- torch's own layers ---


@program(
    "layers", lambda b, n, g: {"src": normal(b, n, 32, g=g), "tgt": normal(b, n + 1, 32, g=g)}, TEXT
)
class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
        return self.net(src, tgt, tgt_mask=mask, tgt_is_causal=True)


@program(
    "layers",
    lambda b, n, g: {"x": normal(b, n, 32, g=g), "pad": torch.zeros(b, n, dtype=torch.bool)},
    TEXT,
)
class EncoderWithPadding(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        )

    def forward(self, x, pad):
        return self.net(x, src_key_padding_mask=pad)


@program(
    "layers", lambda b, n, g: {"q": normal(n, b, 32, g=g), "k": normal(n + 2, b, 32, g=g)}, TEXT
)
class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, add_bias_kv=True)

    def forward(self, q, k):
        return self.attention(q, k, k, need_weights=True, average_attn_weights=False)


@program("layers", x32, TEXT)
class ManyLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.bi = nn.RMSNorm(32), nn.Bilinear(32, 32, 8)
        self.act = nn.ModuleList(
            [
                nn.Hardswish(),
                nn.Mish(),
                nn.ELU(),
                nn.CELU(),
                nn.Softshrink(),
                nn.GLU(),
                nn.Softsign(),
            ]
        )
        self.weight = nn.utils.parametrizations.weight_norm(nn.Linear(16, 32))

    def forward(self, x):
        y = self.norm(x)
        for act in self.act:
            y = act(y)
        y = self.weight(y)
        return self.bi(x, y), F.cosine_similarity(x, y, dim=-1), F.pairwise_distance(x[0], y[0])


@program(
    "layers",
    lambda b, n, g: {
        "logits": normal(b, 5, n, g=g),
        "labels": torch.randint(0, 5, (b, n), generator=g),
    },
    MANY,
)
def losses(logits, labels):
    hot = F.one_hot(labels, 5).movedim(-1, 1).float()
    return {
        "ce": F.cross_entropy(logits, labels, label_smoothing=0.1),
        "focal": (1 - logits.softmax(1).gather(1, labels[:, None])).pow(2).mean(),
        "bce": F.binary_cross_entropy_with_logits(logits, hot, pos_weight=torch.ones(5, 1) * 2),
        "kl": F.kl_div(logits.log_softmax(1), hot + 0.01, reduction="batchmean"),
        "dice": 1 - 2 * (logits.sigmoid() * hot).sum() / (logits.sigmoid().sum() + hot.sum()),
        "huber": F.huber_loss(logits, hot),
        "nll": F.nll_loss(logits.log_softmax(1), labels, ignore_index=2),
        "triplet": F.triplet_margin_loss(logits[0], logits[0] + 1, logits[0] - 1),
    }


# --- wrappers ---


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


# --- training ---


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


ENTRIES: tuple[Entry, ...] = tuple(ENTRIES_LIST)
