"""Recommenders, ragged batches and graphs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.programs.making import EMPTY, normal, program, x32


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
