"""What an operator is handed beside its first argument, in shapes that broadcast with that one's or
do not: the same numbers, in the same shape, or the same refusal as eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "binary_cross_entropy": lambda x, w: F.binary_cross_entropy(x, x, w, reduction="none"),
    "with logits": lambda x, w: F.binary_cross_entropy_with_logits(x, x, w, reduction="none"),
    "rare classes": lambda x, w: F.binary_cross_entropy_with_logits(x, x, pos_weight=w),
    "soft margins": lambda x, w: F.soft_margin_loss(x, w, reduction="none"),
    "cross": lambda x, w: torch.linalg.cross(x, w),
    "cross of rows": lambda x, w: torch.cross(x, w, 0),
}
SHAPES = (2, 3), (3, 3), (3,), (1, 3), (3, 1), (), (1, 1, 3)


def numbers(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_what_is_broadcast_is_as_eagers(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    options = {"max_variants": 64, "fallback": "error"}
    whole = anyshape.compile(program, fullgraph=True, options=options)
    fast, refused = anyshape.compile(program, options={"max_variants": 64}), 0
    for shape, other in itertools.product(SHAPES[:4], SHAPES):
        arguments = numbers(shape, 1), numbers(other, 2)
        try:
            wanted = program(*arguments)
        except (RuntimeError, IndexError) as error:
            refused += 1
            with pytest.raises(type(error)):
                fast(*arguments)
        else:
            torch.testing.assert_close(whole(*arguments), wanted)
            torch.testing.assert_close(fast(*arguments), wanted)
    assert 0 < refused < 4 * len(SHAPES)
    assert whole.stats().graph_breaks == whole.stats().internal_errors == 0


@pytest.mark.parametrize("target", [torch.tensor(0), torch.tensor(1.0)], ids=["label", "share"])
def test_a_number_without_dimensions_has_no_classes(target: Tensor) -> None:
    fast = anyshape.compile(F.cross_entropy, fullgraph=True)
    with pytest.raises((RuntimeError, IndexError)) as wanted:
        F.cross_entropy(torch.tensor(1.0), target)
    with pytest.raises(wanted.type, match=str(wanted.value)):
        fast(torch.tensor(1.0), target)
    assert fast.stats().internal_errors == 0
