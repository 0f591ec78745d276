"""Non-maximum suppression in matrix form with a fixed number of passes: boxes above a threshold,
sorted, suppressed, picked. How many are left is known to the data alone; one graph for any number.

python examples/nms.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import anyshape

PASSES = 8


def overlaps(boxes: Tensor) -> Tensor:
    """Intersection over union of each two of boxes (n, 4) given as left, top, right, bottom."""
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    low = torch.maximum(boxes[:, None, :2], boxes[:, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[:, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    return common / (area[:, None] + area - common)


def suppress(
    boxes: Tensor, scores: Tensor, least: float = 0.3, most: float = 0.5
) -> tuple[Tensor, Tensor]:
    """The boxes (k, 4) and scores (k,) that no better kept box overlaps by more than `most`."""
    sure = scores > least
    boxes, scores = boxes[sure], scores[sure]
    order = scores.argsort(descending=True, stable=True)
    boxes, scores = boxes[order], scores[order]
    against = (overlaps(boxes) > most).triu(1)
    kept = torch.ones_like(scores, dtype=torch.bool)
    for _ in range(PASSES):  # a chain of n boxes, each over the next, needs n passes
        kept = ~(against & kept[:, None]).any(0)
    return boxes[kept], scores[kept]


def inputs(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random boxes and scores."""
    corner = 20 * torch.rand(count, 2, generator=generator)
    size = 1 + 6 * torch.rand(count, 2, generator=generator)
    return torch.cat([corner, corner + size], 1), torch.rand(count, generator=generator)


def main() -> None:
    fast = anyshape.compile(suppress, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for count in (30, 0, 1, 2, 100, 3, 400):
        given = inputs(count, generator)
        made = fast(*given)
        torch.testing.assert_close(made, suppress(*given))
        print(f"{count} boxes: {len(made[0])} kept")
    print(fast.stats())


if __name__ == "__main__":
    main()
