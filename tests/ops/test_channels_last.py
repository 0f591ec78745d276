"""Which images are channels-last to eager: by all of their strides, those of dimensions of one
element too. Resizing lays its result out by the same question (``suggest_memory_format``)."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

import anyshape
from anyshape.ir.dtypes import float32
from anyshape.ir.graph import TensorType
from anyshape.ops.context import TypeContext
from anyshape.ops.image_layout import suggests_channels_last
from anyshape.symbolic import Facts, Space
from tests.ops import harness
from tests.ops.test_op_db import CASES, KNOWN, describe, mapped, row_of, samples


def seen(image: torch.Tensor) -> bool:
    """Does eager take it for channels-last?"""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    made = F.interpolate(image, size=(3,) * (image.dim() - 2))
    return made.stride(1) == 1 and made.is_contiguous(memory_format=formats[image.dim()])


def views(count: int) -> list[torch.Tensor]:
    """Random views of four and five dimensions, many of one element."""
    rng = random.Random(0)

    def turned(t: torch.Tensor) -> torch.Tensor:
        d, rank = rng.randrange(t.dim()), t.dim()
        match rng.randrange(4):
            case 0:
                return t.permute(rng.sample(range(rank), rank))
            case 1:
                return t.narrow(d, 0, rng.randint(1, t.shape[d]))
            case 2:
                return t.select(d, 0).unsqueeze(rng.randrange(rank))
            case _:
                return t.expand([2 if n == d and t.shape[d] == 1 else -1 for n in range(rank)])

    made = []
    for _ in range(count):
        t = torch.zeros([rng.choice((1, 1, 2, 3)) for _ in range(rng.choice((4, 4, 5)))])
        for _ in range(rng.randrange(4)):
            t = turned(t)
        made.append(t)
    return made


def test_channels_last_is_what_eager_says_of_any_view() -> None:
    space = Space()
    cx = TypeContext(space, Facts(space))
    for t in views(1500):
        kind = TensorType(float32, "cpu", tuple(t.shape), t.stride())
        assert suggests_channels_last(cx, kind) == seen(t), (t.shape, t.stride())


WEIGHTS = {
    "a part of the channels": torch.rand(4, 4, 1, 1)[:, :1],
    "with gaps": torch.rand(4, 4, 1, 2)[..., ::2][:, :1],
    "every third filter": torch.rand(12, 1, 1, 1)[1::3],
    "channels innermost": torch.rand(4, 1, 1, 4).transpose(1, 3)[:, :1],
    "filters of some size": torch.rand(4, 4, 2, 2)[:, :1],
    "of channels that lie apart": torch.rand(4, 2, 2, 4).permute(0, 3, 1, 2)[:, :1],
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_convolution_lies_as_its_weight_says(name: str) -> None:
    compiled = anyshape.compile(lambda x, w: F.conv2d(x, w, groups=4))
    cut = anyshape.compile(lambda x, w: F.conv2d(x, w[:, :1], groups=4))
    weight = WEIGHTS[name]
    for size in ((2, 4, 2, 2), (1, 4, 5, 5), (5, 4, 7, 2), (3, 4, 6, 5)):
        x = torch.rand(size)
        wanted = F.conv2d(x, weight, groups=4)
        assert compiled(x, weight).stride() == wanted.stride()
        assert cut(x, weight).stride() == wanted.stride()


@pytest.mark.parametrize(
    "weight",
    [
        torch.rand(4, 4, 1)[:, :1],
        torch.rand(12, 1, 1)[::3],
        torch.rand(4, 3, 4).mT[:, :1],
        torch.rand(4, 4, 3)[:, :1],
        torch.rand(4, 4, 3)[:, :1, :1],
    ],
)
def test_lines_lie_as_a_weight_of_one_channel_says(weight: torch.Tensor) -> None:
    compiled = anyshape.compile(lambda x, w: F.conv1d(x, w, groups=4))
    for size in ((2, 4, 5), (1, 4, 6), (3, 4, 3)):
        x = torch.rand(size)
        assert compiled(x, weight).stride() == F.conv1d(x, weight, groups=4).stride()


INNERMOST = {4: torch.channels_last, 5: torch.channels_last_3d}
OTHERS = {
    "nn.functional.conv3d": "the library lays it out, which is chosen by the dtype, the threads and the sizes",
    "nn.functional.conv_transpose3d": "as conv3d",
    "float": "`Tensor.float` asks before the row is called (`capture/tensors/casts.py`)",
}


def of_images(entry: object) -> Iterator[tuple[tuple[object, ...], dict[str, object]]]:
    """Samples of torch's own database with images, their channels innermost."""

    def innermost(t: torch.Tensor) -> torch.Tensor:
        return t.contiguous(memory_format=INNERMOST[t.dim()]) if t.dim() in INNERMOST else t

    def with_gaps(t: torch.Tensor) -> torch.Tensor:
        return innermost(torch.stack([t, t], -1).flatten(-2))[..., ::2] if t.dim() == 4 else t

    for args, kwargs in samples(entry, torch.float32, 20):
        for layout in (innermost, with_gaps):
            made = tuple(mapped(layout, a) for a in args)
            if describe(made) != describe(args):
                yield made, kwargs


IMAGES = [e for e in CASES if e.name not in OTHERS and e.name not in KNOWN]


@pytest.mark.parametrize("entry", IMAGES, ids=lambda e: f"{e.name}.{e.variant_test_name}")
def test_every_row_lays_out_what_it_makes_of_images(entry) -> None:
    for args, kwargs in of_images(entry):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                eager = entry.op(*harness.clone(args), **kwargs)
            except Exception:
                continue  # eager refuses
        problem = harness.type_problems(row_of(entry.name), args, kwargs, eager)
        assert problem is None, (describe(args), kwargs, problem)
