"""Recurrent networks and decoding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.entry import TEXT
from benchmarks.zoo.programs.making import normal, program, x32


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
