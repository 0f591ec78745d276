"""One step of beam search over a ragged set of sentences: finished beams leave, live ones grow, and
how many of each there are is known to the data alone. One graph for any number of beams.

python examples/beam_search.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import anyshape

END = 0


def step(scores: Tensor, tokens: Tensor, logits: Tensor, width: int = 4) -> tuple[Tensor, ...]:
    """From beams with scores (beams,), tokens (beams, length) and logits (beams, vocabulary) of the
    next token: the best `width` continuations; tokens and scores of those that live on and of
    those that ended.
    """
    candidates = scores[:, None] + torch.log_softmax(logits, -1)
    vocabulary = logits.shape[1]
    best, position = candidates.flatten().topk(min(width, candidates.numel()))
    parent, token = position // vocabulary, position % vocabulary
    grown = torch.cat([tokens[parent], token[:, None]], 1)
    live = token != END
    finished = grown[~live], best[~live] / grown.shape[1]
    return grown[live], best[live], *finished


def inputs(beams: int, length: int, vocabulary: int, generator: torch.Generator) -> list[Tensor]:
    """Random beams."""
    scores = torch.randn(beams, generator=generator)
    tokens = torch.randint(1, vocabulary + 1, (beams, length), generator=generator)
    logits = torch.randn(beams, vocabulary, generator=generator)
    logits[:, END] += 3
    return [scores, tokens, logits]


def main() -> None:
    fast = anyshape.compile(step, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for beams, length, vocabulary in ((4, 7, 100), (1, 0, 1), (3, 1, 17), (4, 200, 5000)):
        given = inputs(beams, length, vocabulary, generator)
        made = fast(*given)
        torch.testing.assert_close(made, step(*given))
        print(f"{beams} beams of {length} tokens: {len(made[0])} go on, {len(made[2])} end")
    print(fast.stats())


if __name__ == "__main__":
    main()
