"""Top-p (nucleus) sampling: the smallest set of tokens that holds `p` of the probability, found
with boolean indexing, so that how many there are is known to the data alone. One graph for any
batch of logits.

python examples/top_p.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import anyshape


def top_p(logits: Tensor, noise: Tensor, p: float = 0.9) -> tuple[Tensor, Tensor]:
    """The tokens (rows,) drawn from logits (rows, vocabulary) with noise of the same shape, and
    how likely each was; noise is Exponential(1), as `multinomial` draws it inside.
    """
    probability, order = torch.softmax(logits, -1).sort(-1, descending=True)
    before = probability.cumsum(-1) - probability
    kept = before < p  # always the first, for what is before it is 0
    row, rank = torch.nonzero(kept, as_tuple=True)
    weight = probability[row, rank]
    mass = torch.zeros_like(logits[:, 0]).index_add(0, row, weight)
    weight = weight / mass[row]
    race = torch.full_like(logits, -1.0)
    race[row, rank] = weight / noise[row, rank]
    winner = race.argmax(-1, keepdim=True)
    drawn = order.gather(-1, winner).squeeze(-1)
    return drawn, probability.gather(-1, winner).squeeze(-1) / mass


def inputs(rows: int, vocabulary: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random logits and noise."""
    logits = 3 * torch.randn(rows, vocabulary, generator=generator)
    noise = torch.empty(rows, vocabulary).exponential_(generator=generator)
    return logits, noise


def main() -> None:
    fast = anyshape.compile(top_p, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for rows, vocabulary in ((4, 1000), (0, 50), (1, 1), (7, 3), (1, 5000)):
        given = inputs(rows, vocabulary, generator)
        drawn, likelihood = fast(*given)
        torch.testing.assert_close((drawn, likelihood), top_p(*given))
        print(f"{rows} rows of {vocabulary} tokens: drew {drawn.tolist()}")
    print(fast.stats())


if __name__ == "__main__":
    main()
