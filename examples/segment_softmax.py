"""A softmax over segments of any lengths, with unique, counts and repeat_interleave: how many
segments there are is known to the data alone. One graph for any number of either.

python examples/segment_softmax.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import anyshape


def segment_softmax(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax of scores (n,) among those of one label each; also the labels there are, and the
    entropy of each segment.
    """
    segments, segment, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    lowest = torch.full_like(segments, float("-inf"), dtype=scores.dtype)
    peak = lowest.scatter_reduce(0, segment, scores, "amax")
    weight = (scores - peak[segment]).exp()
    mass = torch.zeros_like(peak).index_add(0, segment, weight)
    result = weight / mass[segment]
    order = segment.argsort(stable=True)
    owner = torch.repeat_interleave(torch.arange(segments.shape[0]), counts)
    surprise = -(result * result.clamp(min=1e-30).log())[order]
    return result, segments, torch.zeros_like(peak).index_add(0, owner, surprise)


def inputs(count: int, labels: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random scores and labels."""
    scores = 5 * torch.randn(count, generator=generator)
    return scores, torch.randint(0, labels, (count,), generator=generator)


def main() -> None:
    fast = anyshape.compile(segment_softmax, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for count, labels in ((20, 4), (0, 1), (1, 1), (2, 50), (1000, 7), (1000, 2000)):
        given = inputs(count, labels, generator)
        made = fast(*given)
        torch.testing.assert_close(made, segment_softmax(*given))
        print(f"{count} scores: {len(made[1])} segments")
    print(fast.stats())


if __name__ == "__main__":
    main()
