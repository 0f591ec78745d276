"""`isinstance` of tensors and classes whose metaclass says what an instance is: `nn.Parameter` and
`nn.Buffer` ask a tensor for a flag, a class of the program's may ask for anything."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape


class Marked(Tensor):
    pass


def flagged() -> Tensor:
    x = torch.ones(3)
    x._is_param = True  # type: ignore[attr-defined]
    return x


TENSORS = {
    "plain": torch.ones(3),
    "parameter": nn.Parameter(torch.ones(3)),
    "parameter of a subclass": nn.Parameter(torch.ones(3).as_subclass(Marked)),
    "buffer": nn.Buffer(torch.ones(3)),
    "buffer of a subclass": nn.Buffer(torch.ones(3).as_subclass(Marked)),
    "flag set by hand": flagged(),
}


class OfVectors(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is Tensor and instance.dim() == 1


class Vector(metaclass=OfVectors):
    pass


def kinds(x: Tensor, other: Any) -> tuple[Any, ...]:
    made = x + 1
    return (
        [isinstance(other, cls) for cls in (nn.Parameter, nn.Buffer, Vector)],
        isinstance(other, (nn.Parameter, int)),
        [isinstance(made, cls) for cls in (nn.Parameter, nn.Buffer, Vector)],
        [isinstance(x.shape[0], cls) for cls in (nn.Parameter, Vector)],
        made,
    )


@pytest.mark.parametrize("name", TENSORS)
def test_instances_are_what_the_metaclass_says(name: str) -> None:
    fast = anyshape.compile(kinds)
    for x in (torch.ones(2), torch.ones(5), torch.ones(2, 2)):
        *found, made = fast(x, TENSORS[name])
        *wanted, expected = kinds(x, TENSORS[name])
        assert found == wanted
        assert torch.equal(made, expected)


def test_a_flag_that_is_set_later_is_seen() -> None:
    fast, other = anyshape.compile(kinds), torch.ones(3)
    assert fast(torch.ones(2), other)[0][0] is False
    other._is_param = True  # type: ignore[attr-defined]
    assert fast(torch.ones(2), other)[0][0] is True
