"""torch's own layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.entry import TEXT
from benchmarks.zoo.programs.making import MANY, normal, program, x32


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
