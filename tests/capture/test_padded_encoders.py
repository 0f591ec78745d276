"""Encoders of torch's own whose padding is packed away in eager: what is returned there is 0."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.errors import PerformanceWarning


class OwnLayer(nn.TransformerEncoderLayer):
    pass


def encoder(
    *, norm: bool = False, layer: type[nn.Module] = nn.TransformerEncoderLayer
) -> nn.Module:
    torch.manual_seed(0)
    made = layer(16, 2, 32, batch_first=True)
    last = nn.LayerNorm(16) if norm else None
    return nn.TransformerEncoder(made, 2, norm=last, enable_nested_tensor=True).eval()


def padding(lengths: list[int], time: int, side: str) -> Tensor:
    ahead = torch.arange(time) >= torch.tensor(lengths)[:, None]
    return ahead if side == "right" else ahead.flip(1)


CALLS = [([5, 3], 5, "right"), ([7, 2, 1], 7, "right"), ([4, 4], 4, "right"), ([4, 1], 6, "right"),
         ([2, 5], 5, "left"), ([1, 1], 1, "right")]  # fmt: skip


def agree(model: nn.Module, fast: nn.Module, *, as_numbers: bool = False, **given: object) -> None:
    for lengths, time, side in CALLS:
        x, mask = torch.randn(len(lengths), time, 16), padding(lengths, time, side)
        if as_numbers:
            mask = torch.zeros(mask.shape).masked_fill(mask, float("-inf"))
        expected = model(x, src_key_padding_mask=mask, **given)
        torch.testing.assert_close(fast(x, src_key_padding_mask=mask, **given), expected)


@torch.no_grad()
@pytest.mark.parametrize("norm", [False, True], ids=["plain", "norm"])
@pytest.mark.parametrize("as_numbers", [False, True], ids=["flags", "numbers"])
def test_what_stands_in_place_of_padding_is_eagers(norm: bool, as_numbers: bool) -> None:
    model = encoder(norm=norm)
    fast = anyshape.compile(model, fullgraph=True)
    agree(model, fast, as_numbers=as_numbers)
    assert fast.stats().specializations == 1


@torch.no_grad()
def test_a_sequence_of_padding_alone_is_0() -> None:
    model = encoder()
    x, mask = torch.randn(2, 4, 16), padding([0, 3], 4, "right")
    found = anyshape.compile(model)(x, src_key_padding_mask=mask)
    torch.testing.assert_close(found, model(x, src_key_padding_mask=mask))
    assert not found[0].any()


def test_where_gradients_are_recorded_nothing_is_packed() -> None:
    model = encoder()
    agree(model, anyshape.compile(model, fullgraph=True))


@torch.no_grad()
def test_nothing_is_packed_beside_another_mask() -> None:
    model = encoder()
    fast = anyshape.compile(model, fullgraph=True)
    for lengths, time, side in CALLS[:3]:
        x, padded = torch.randn(len(lengths), time, 16), padding(lengths, time, side)
        mask = nn.Transformer.generate_square_subsequent_mask(time)
        padded = torch.zeros(padded.shape).masked_fill(padded, float("-inf"))
        expected = model(x, mask, padded)
        torch.testing.assert_close(fast(x, mask, padded), expected)


@torch.no_grad()
def test_layers_of_the_programs_own_class_are_handed_what_eager_hands_them() -> None:
    model = encoder(layer=OwnLayer)
    with pytest.warns(PerformanceWarning):
        agree(model, anyshape.compile(model))
