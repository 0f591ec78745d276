"""Programs of libraries that nobody here has written, where they are installed:
`pip install einops kornia torch_geometric x-transformers local-attention rotary-embedding-torch
vector-quantize-pytorch e3nn pyro-ppl pytorch-metric-learning torchmetrics`.
"""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter

import torch
from torch import nn

from benchmarks.zoo.programs.making import normal, program

GRAPHS = ((10, 30), (17, 60), (5, 0), (1, 3))  # nodes and edges
PIXELS = ((1, 16), (2, 20), (3, 9))
WORDS = ((1, 7), (2, 20), (3, 1))


def pictures(b, n, g):
    return {"x": torch.rand(b, 3, n, n + 2, generator=g)}


def pairs(b, n, g):
    return {**pictures(b, n, g), "y": torch.rand(b, 3, n, n + 2, generator=g)}


def words(b, n, g):
    return {"x": torch.randint(0, 50, (b, n), generator=g)}


def graph(nodes, edges, g):
    return {
        "x": normal(nodes, 8, g=g),
        "edges": torch.randint(0, nodes, (2, edges), generator=g),
        "batch": torch.randint(0, 3, (nodes,), generator=g).sort().values,
    }


def embeddings(b, n, g):
    return {"x": normal(b * n, 8, g=g), "labels": torch.arange(b * n) % 3}


class Functions(nn.Module):
    """Functions and classes of a library, as attributes."""

    def __init__(self, library, *names):
        super().__init__()
        for name in names:
            setattr(self, name.rpartition(".")[2], attrgetter(name)(import_module(library)))


@program("libraries", lambda b, n, g: {"x": normal(b, 2 * n, 4, 3, g=g)})
class Einops(Functions):
    def __init__(self):
        super().__init__("einops", "rearrange", "reduce", "pack", "unpack")

    def forward(self, x):
        patches = self.rearrange(x, "b (h p) (w q) c -> b (h w) (p q c)", p=2, q=2)
        most = self.reduce(x, "b h w c -> b c", "max")
        packed, shapes = self.pack([patches, patches[:, :1] * 2], "b * d")
        return patches, most, self.unpack(packed + 1, shapes, "b * d")


@program("libraries", pictures, PIXELS)
class KorniaFilters(Functions):
    def __init__(self):
        super().__init__("kornia.filters", "gaussian_blur2d", "sobel")

    def forward(self, x):
        return self.gaussian_blur2d(x, (5, 5), (1.5, 1.5)), self.sobel(x)


@program("libraries", pictures, PIXELS)
class KorniaColours(Functions):
    def __init__(self):
        super().__init__("kornia", "color.rgb_to_lab", "color.rgb_to_hsv", "enhance.adjust_gamma")

    def forward(self, x):
        return self.rgb_to_lab(x), self.rgb_to_hsv(x), self.adjust_gamma(x, 1.4)


@program("libraries", pictures, PIXELS)
class KorniaMorphology(Functions):
    def __init__(self):
        super().__init__("kornia.morphology", "dilation", "opening")

    def forward(self, x):
        kernel = torch.ones(3, 3)
        return self.dilation(x, kernel), self.opening(x, kernel)


@program("libraries", pairs, PIXELS)
class KorniaLosses(Functions):
    def __init__(self):
        super().__init__("kornia.losses", "ssim_loss", "psnr_loss", "total_variation")

    def forward(self, x, y):
        return self.ssim_loss(x, y, 5), self.psnr_loss(x, y, 1.0), self.total_variation(x)


class Geometric(nn.Module):
    """A module of torch_geometric.nn, and a pooling of what it gives."""

    def __init__(self, name, *arguments, **options):
        super().__init__()
        library = import_module("torch_geometric.nn")
        self.pool = library.global_mean_pool
        self.net = getattr(library, name)(*arguments, **options)

    def forward(self, x, edges, batch):
        found = self.net(x, edges)
        return found, self.pool(found, batch)


@program("libraries", graph, GRAPHS)
class GeometricGCN(Geometric):
    def __init__(self):
        super().__init__("GCN", 8, 16, 2, 4)


@program("libraries", graph, GRAPHS)
class GeometricGAT(Geometric):
    def __init__(self):
        super().__init__("GAT", 8, 16, 2, 4, heads=2, v2=True)


@program("libraries", graph, GRAPHS)
class GeometricTransformer(Geometric):
    def __init__(self):
        super().__init__("TransformerConv", 8, 4, heads=2)


class XTransformers(nn.Module):
    """A small language model of x-transformers, whose decoder has these options."""

    def __init__(self, **options):
        super().__init__()
        x = import_module("x_transformers")
        layers = x.Decoder(dim=32, depth=2, heads=4, **options)
        self.net = x.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=layers)

    def forward(self, x):
        return self.net(x)


@program("libraries", words, WORDS)
class XTransformersDecoder(XTransformers):
    def __init__(self):
        super().__init__(rotary_pos_emb=True, ff_glu=True)


@program("libraries", words, WORDS)
class XTransformersAlibi(XTransformers):
    """Its biases are made by einx, whose cache is looked up by objects with sizes."""

    def __init__(self):
        super().__init__(alibi_pos_bias=True, attn_qk_norm=True)


@program("libraries", lambda b, n, g: {"q": normal(b, 2, n, 8, g=g)}, WORDS)
class LocalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        made = import_module("local_attention").LocalAttention
        self.net = made(dim=8, window_size=8, causal=True, look_backward=1, autopad=True)
        self.rotary = import_module("rotary_embedding_torch").RotaryEmbedding(dim=8)

    def forward(self, q):
        return self.net(self.rotary.rotate_queries_or_keys(q), q, q * 2)


@program("libraries", lambda b, n, g: {"x": normal(b, n, 3, g=g)}, WORDS)
class FiniteScalarQuantization(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = import_module("vector_quantize_pytorch").FSQ([5, 4, 3])

    def forward(self, x):
        return self.net(x)


@program("libraries", lambda b, n, g: {"x": normal(b * n, 12, g=g)})
class EquivariantGate(nn.Module):
    def __init__(self):
        super().__init__()
        gate = import_module("e3nn.nn").Gate
        self.net = gate("4x0e", [torch.tanh], "2x0e", [torch.sigmoid], "2x1o")

    def forward(self, x):
        return self.net(x)


@program("libraries", lambda b, n, g: {"x": normal(b * n, 4, g=g)})
class PyroDistributions(Functions):
    def __init__(self):
        names = ("Categorical", "Normal", "MixtureSameFamily", "Gamma", "Dirichlet")
        super().__init__("pyro.distributions", *names)

    def forward(self, x):
        parts = self.Categorical(logits=torch.zeros(3)), self.Normal(torch.arange(3.0), 1.0)
        return (
            self.Normal(x, 0.5).to_event(1).log_prob(x + 1),
            self.MixtureSameFamily(*parts).log_prob(x[:, 0]),
            self.Gamma(2.0, 3.0).log_prob(x.abs() + 0.1),
            self.Dirichlet(torch.ones(4)).log_prob(torch.softmax(x, -1)),
        )


@program("libraries", embeddings, ((2, 4), (3, 5), (1, 6)))
class MetricLearning(nn.Module):
    def __init__(self):
        super().__init__()
        losses = import_module("pytorch_metric_learning.losses")
        self.losses = [losses.NTXentLoss(), losses.SupConLoss(), losses.MultiSimilarityLoss()]

    def forward(self, x, labels):
        return [loss(x, labels) for loss in self.losses]


@program("libraries", pairs, ((1, 24), (2, 31)))
class PictureMetrics(Functions):
    def __init__(self):
        names = ("structural_similarity_index_measure", "peak_signal_noise_ratio")
        super().__init__("torchmetrics.functional.image", *names)

    def forward(self, x, y):
        similar = self.structural_similarity_index_measure(x, y, data_range=1.0)
        return similar, self.peak_signal_noise_ratio(x, y, data_range=1.0)
