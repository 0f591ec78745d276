"""Detection as users write it: boxes, anchors, suppression, pooling of regions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.programs.making import EMPTY, normal, program


def boxes_of(n, g):
    low = torch.rand(n, 2, generator=g) * 20
    return torch.cat([low, low + 1 + torch.rand(n, 2, generator=g) * 10], 1)


def pairwise_iou(a, b):
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    low = torch.max(a[:, None, :2], b[None, :, :2])
    high = torch.min(a[:, None, 2:], b[None, :, 2:])
    size = (high - low).clamp(min=0)
    shared = size[..., 0] * size[..., 1]
    return shared / (area_a[:, None] + area_b[None] - shared)


@program(
    "detection",
    lambda b, n, g: {"boxes": boxes_of(n, g), "scores": torch.rand(n, generator=g)},
    EMPTY,
)
def nms_with_a_loop(boxes, scores):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        first = order[0]
        keep.append(first)
        if order.numel() == 1:
            break
        rest = order[1:]
        iou = pairwise_iou(boxes[first][None], boxes[rest])[0]
        order = rest[iou <= 0.3]
    return torch.stack(keep) if keep else torch.empty(0, dtype=torch.long)


@program(
    "detection",
    lambda b, n, g: {"boxes": boxes_of(n, g), "scores": torch.rand(n, generator=g)},
    EMPTY,
)
def filter_and_top_k(boxes, scores):
    keep = scores > 0.4
    boxes, scores = boxes[keep], scores[keep]
    count = min(5, scores.shape[0])
    top, index = scores.topk(count)
    return {"boxes": boxes[index], "scores": top, "count": count}


@program(
    "detection",
    lambda b, n, g: {"features": normal(b, 16, n, n + 2, g=g)},
    ((2, 7), (1, 12), (3, 4), (1, 1)),
)
class AnchorHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Conv2d(16, 3, 3, padding=1)
        self.delta = nn.Conv2d(16, 12, 3, padding=1)
        self.register_buffer(
            "base", torch.tensor([[-4.0, -4, 4, 4], [-8, -4, 8, 4], [-4, -8, 4, 8]])
        )

    def forward(self, features):
        b, _, h, w = features.shape
        ys, xs = torch.meshgrid(torch.arange(h) * 8.0, torch.arange(w) * 8.0, indexing="ij")
        shifts = torch.stack([xs, ys, xs, ys], -1).reshape(-1, 1, 4)
        anchors = (shifts + self.base).reshape(-1, 4)
        deltas = self.delta(features).permute(0, 2, 3, 1).reshape(b, -1, 4)
        scores = self.score(features).permute(0, 2, 3, 1).reshape(b, -1).sigmoid()
        center = (anchors[:, :2] + anchors[:, 2:]) / 2 + deltas[..., :2]
        size = (anchors[:, 2:] - anchors[:, :2]) * deltas[..., 2:].clamp(
            max=math.log(1000 / 16)
        ).exp()
        boxes = torch.cat([center - size / 2, center + size / 2], -1)
        k = min(10, boxes.shape[1])
        top, index = scores.topk(k, dim=1)
        return boxes.gather(1, index[..., None].expand(-1, -1, 4)), top


@program(
    "detection",
    lambda b, n, g: {"features": normal(1, 8, 16, 20, g=g), "boxes": boxes_of(n, g) / 2},
    EMPTY,
)
def roi_align_by_grid_sample(features, boxes):
    _, _, h, w = features.shape
    steps = (torch.arange(3) + 0.5) / 3
    xs = boxes[:, 0, None] + (boxes[:, 2] - boxes[:, 0])[:, None] * steps
    ys = boxes[:, 1, None] + (boxes[:, 3] - boxes[:, 1])[:, None] * steps
    grid = torch.stack(torch.broadcast_tensors(xs[:, None, :], ys[:, :, None]), -1)
    grid = grid / torch.tensor([w, h]) * 2 - 1
    return F.grid_sample(features.expand(boxes.shape[0], -1, -1, -1), grid, align_corners=False)


@program(
    "detection",
    lambda b, n, g: {"features": normal(8, 16, 20, g=g), "boxes": boxes_of(n, g) / 2},
    ((1, 3), (1, 5), (1, 1)),
)
def roi_max_pool_in_a_loop(features, boxes):
    out = []
    for x0, y0, x1, y1 in boxes.round().long().tolist():
        patch = features[:, y0 : y1 + 1, x0 : x1 + 1]
        out.append(F.adaptive_max_pool2d(patch, 2))
    return torch.stack(out)


@program(
    "detection",
    lambda b, n, g: {"boxes": boxes_of(n, g), "truth": boxes_of(b, g)},
    ((2, 7), (3, 16), (1, 33), (1, 1)),
)
def match_anchors(boxes, truth):
    iou = pairwise_iou(truth, boxes)
    best, index = iou.max(0)
    label = torch.full_like(index, -1)
    label[best < 0.1] = 0
    label[best >= 0.2] = 1
    label[iou.argmax(1)] = 1
    targets = truth[index]
    positive = (label == 1).nonzero().squeeze(1)
    return label, targets[positive], F.smooth_l1_loss(boxes[positive], targets[positive])
