"""Packing sequences of any lengths: padding out, attention within each sequence only, padding back
in. How many tokens there are is known to the data alone; one graph for any batch.

python examples/packer.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import anyshape


def pack(padded: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From padded (batch, time, width) the tokens (total, width), their sequences and positions."""
    time = torch.arange(padded.shape[1])
    sequence, position = torch.nonzero(time < lengths[:, None], as_tuple=True)
    return padded[sequence, position], sequence, position


def attend(padded: Tensor, lengths: Tensor) -> Tensor:
    """Self-attention within each sequence, computed on the packed tokens; padding stays 0."""
    tokens, sequence, position = pack(padded, lengths)
    scores = tokens @ tokens.t() * tokens.shape[1] ** -0.5
    causal = (sequence[:, None] == sequence) & (position[:, None] >= position)
    mixed = torch.softmax(scores.masked_fill(~causal, float("-inf")), -1) @ tokens
    result = torch.zeros_like(padded)
    result[sequence, position] = mixed
    return result


def chunks(tokens: Tensor, lengths: Tensor) -> list[Tensor]:
    """The mean of each of the sequences of packed tokens (total, width): a list, so that there is
    one specialization for each number of sequences, and for no length.
    """
    parts = torch.split(tokens, lengths.tolist())
    return [part.sum(0) / max(part.shape[0], 1) for part in parts]


def inputs(lengths: list[int], width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A padded batch of sequences of these lengths."""
    padded = torch.randn(len(lengths), max(lengths, default=0), width, generator=generator)
    return padded, torch.tensor(lengths, dtype=torch.int64)


def main() -> None:
    fast = anyshape.compile(attend, fullgraph=True)
    means = anyshape.compile(chunks, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for lengths in ([5, 1, 9], [0, 3, 0], [1, 1, 1], [0], [40], [], [3, 2, 1, 0]):
        padded, given = inputs(lengths, 16, generator)
        torch.testing.assert_close(fast(padded, given), attend(padded, given))
        tokens = pack(padded, given)[0]
        torch.testing.assert_close(means(tokens, given), chunks(tokens, given))
        print(f"{len(lengths)} sequences of {lengths}: {len(tokens)} tokens")
    seen = means.stats().specializations
    print(f"one graph for attention; {seen} for lists, one for each number of sequences")
    print(fast.stats())


if __name__ == "__main__":
    main()
