"""Programs that make pictures: autoencoders, adversaries, diffusion."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.programs.making import IMAGES, normal, program


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
