"""Strides that arguments have of their own in dimensions of one element: what is broadcast or
indexed may lie in another order for them, and a reshape of it is a view or a copy."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import anyshape
from anyshape.runtime import result_layouts

MADE: dict[str, Any] = {
    "a comparison": lambda x: x[:, None].expand(-1, x.shape[1], -1) > 0,
    "a product of a sum": lambda x: (x + 1)[:, None] * torch.ones(4, x.shape[1]),
    "a choice": lambda x: torch.where(x[:, None] > 0, x[None], 1.0),
    "a copy": lambda x: x[:, None].expand(-1, x.shape[1], -1).clone(),
    "indexed": lambda x: x[:, None].expand(-1, 3, -1)[:, torch.tensor([0, 2, 1])],
}


def written(made: torch.Tensor, seen: torch.Tensor) -> Any:
    seen.fill_(1)
    return made, seen


ASKED: dict[str, Any] = {
    "is_contiguous": lambda made: made.is_contiguous(),
    "contiguous": lambda made: made.contiguous() is made,
    "flatten": lambda made: written(made, made.flatten(1)),
    "view": lambda made: written(made, made.view(made.shape[0] * made.shape[1], -1)),
}
LAYOUTS = [((1, 6), (1, 1)), ((1, 6), (6, 1)), ((6, 1), (1, 6)), ((6, 1), (1, 1)), ((3, 4), (1, 3))]


def outcome(program: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    try:
        found = program(torch.empty_strided(shape, strides).zero_())
    except RuntimeError:
        return "raises"
    return found if isinstance(found, bool) else [(t.tolist(), t.stride()) for t in found]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("made", MADE)
def test_an_order_that_the_stride_of_one_element_decides_is_eagers(made: str, asked: str) -> None:
    program = lambda x: ASKED[asked](MADE[made](x))
    for first in LAYOUTS[:1], LAYOUTS[4:]:
        fast = anyshape.compile(program)
        for layout in (*first, *LAYOUTS):
            assert outcome(fast, *layout) == outcome(program, *layout), layout


DRAWN: dict[str, Any] = {
    "rand_like": torch.rand_like,
    "randint_like": lambda made: torch.randint_like(made, 1000),
    "dropout": lambda made: torch.nn.functional.dropout(made + 1, 0.5),
    "alpha_dropout": lambda made: torch.nn.functional.alpha_dropout(made + 1, 0.5, True),
    "uniform_": lambda made: (made + 1).uniform_(),
}


def drawn(program: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    torch.manual_seed(0)
    made = program(torch.empty_strided(shape, strides).zero_())
    return made.tolist(), made.stride()


@pytest.mark.parametrize("draw", DRAWN)
def test_numbers_are_drawn_in_the_order_that_the_stride_of_one_element_decides(draw: str) -> None:
    program = lambda x: DRAWN[draw](x[:, None].expand(-1, x.shape[1], -1))
    for first in LAYOUTS[:1], LAYOUTS[4:]:
        fast = anyshape.compile(program)
        for layout in (*first, *LAYOUTS):
            assert drawn(fast, *layout) == drawn(program, *layout), layout


RESHAPED: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "flatten of what is turned": (
        lambda x: x.permute(3, 2, 1, 0).flatten(0, 1),
        ((2, 2, 1, 3), (2, 9, 2, 17), (4, 1, 5, 1), (2, 3, 1, 1)),
    ),
    "heads side by side": (
        lambda x: x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1),
        ((2, 4, 5, 1), (2, 4, 5, 8), (1, 4, 5, 1), (2, 4, 1, 1), (2, 1, 5, 1), (1, 1, 3, 4)),
    ),
}


@pytest.mark.parametrize("name", RESHAPED)
@pytest.mark.parametrize("draw", DRAWN)
def test_numbers_are_drawn_into_a_reshape_that_sizes_of_one_make_a_view(
    draw: str, name: str
) -> None:
    reshape, shapes = RESHAPED[name]
    program = lambda x: DRAWN[draw](reshape(x))
    fast = anyshape.compile(program)
    for shape in (*shapes, *reversed(shapes)):
        strides = torch.empty(shape).stride()
        assert drawn(fast, shape, strides) == drawn(program, shape, strides), shape


def test_heads_side_by_side_are_drawn_into_at_all_other_sizes_alike() -> None:
    fast = anyshape.compile(lambda x: torch.rand_like(x.transpose(1, 2).flatten(2)))
    for shape in ((2, 4, 5, 8), (3, 1, 5, 8), (2, 4, 1, 8), (5, 1, 1, 3)):
        fast(torch.randn(shape))
    assert fast.stats().specializations == 1


def test_arguments_that_lie_as_their_types_say_need_one_specialization() -> None:
    fast = anyshape.compile(lambda mask, causal: (mask[:, None, None] & causal).flatten(1))
    for batch, length in ((2, 5), (1, 4), (3, 1), (1, 1)):
        mask, causal = torch.ones(batch, length) > 0, torch.ones(length, length) > 0
        assert torch.equal(fast(mask, causal), (mask[:, None, None] & causal).flatten(1))
    assert fast.stats().specializations == 1


def own_strides(pick: random.Random, shape: list[int]) -> list[int]:
    """Dense in any order, but that dimensions of one element may have any stride."""
    strides, step = [0] * len(shape), 1
    for d in pick.sample(range(len(shape)), len(shape)):
        strides[d] = pick.choice((1, 2, 7, step)) if shape[d] == 1 else step
        step *= shape[d]
    return strides


@pytest.mark.parametrize("seed", range(2))
def test_writes_through_reshapes_of_what_is_broadcast_reach_what_they_reach_in_eager(
    seed: int,
) -> None:
    pick = random.Random(seed)
    program = lambda x, y: written(
        made := x[:, :, None] + y, made.flatten(pick_from, pick_from + 1)
    )
    for pick_from in (0, 1):
        fast = anyshape.compile(program)
        for _ in range(6):
            sizes = [pick.choice((1, 1, 2, 3)) for _ in range(3)]
            x = torch.empty_strided(sizes, own_strides(pick, sizes)).zero_()
            rows = [4, sizes[2]]
            y = torch.empty_strided(rows, own_strides(pick, rows)).zero_()
            for ours, eager in zip(fast(x, y), program(x, y)):
                assert torch.equal(ours, eager), (sizes, x.stride(), y.stride())


def test_a_pixel_of_its_own_strides_is_indexed_and_flattened_as_in_eager() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        made = (x + y)[(x + y).argsort(0)[:, 0]]
        return made, made.ravel()

    fast, x = anyshape.compile(program), torch.zeros(1)
    for strides in ((4, 1, 1, 16), (4, 1, 1, 1), (4, 1, 4, 4), (1, 4, 1, 16)):
        y = torch.arange(32.0).as_strided((4, 4, 1, 1), strides)
        ours, eager = fast(x, y), program(x, y)
        assert [t.stride() for t in ours] == [t.stride() for t in eager]
        assert (ours[0].data_ptr() == ours[1].data_ptr()) == (
            eager[0].data_ptr() == eager[1].data_ptr()
        )


def test_a_call_of_sizes_that_were_there_before_works_out_no_strides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decoder of one sequence is called so for each token, and has a size of one throughout."""
    patterns: list[object] = []
    form_of = result_layouts.form_of
    monkeypatch.setattr(
        result_layouts, "form_of", lambda tensors: patterns.append(tensors) or form_of(tensors)
    )
    made = anyshape.compile(lambda x: x.transpose(1, 2) * 2, fullgraph=True)
    given = [torch.rand(shape) for shape in ((1, 5, 8), (1, 1, 8), (1, 5, 8), (1, 7, 8))]
    for x in given:
        made(x)
    asked = len(patterns)
    assert asked > 0
    for x in given:
        assert made(x).stride() == (x.transpose(1, 2) * 2).stride()
    assert len(patterns) == asked


MULTIPLIED: dict[str, Any] = {
    "kron": lambda x, y: torch.kron(y, x + 1),
    "kron with a number of data": lambda x, y: torch.kron(y, x + int(x.count_nonzero())),
    "kron of halves": lambda x, y: torch.kron(y.half(), x.half()),
    "einsum": lambda x, y: torch.einsum("abcd,ce->abe", x + 1, y[:1]),
    "beside an image of no pixel": lambda x, y: (torch.einsum("abcd,ce->abe", x, y[:1]), x[:0] + 1),
}


@pytest.mark.parametrize("name", MULTIPLIED)
def test_a_product_without_dimensions_of_one_element_lies_as_one_with_them(name: str) -> None:
    program, y = MULTIPLIED[name], torch.randn(4, 4)
    fast = anyshape.compile(program)
    for strides in ((4, 1, 1, 1), (4, 1, 1, 16), (4, 1, 16, 16), (1, 4, 1, 16), (4, 1, 4, 4)):
        x = torch.arange(32.0).as_strided((4, 4, 1, 1), strides)
        ours, eager = fast(x, y), program(x, y)
        for one, other in zip(ours, eager) if isinstance(ours, tuple) else [(ours, eager)]:
            assert one.stride() == other.stride()
            torch.testing.assert_close(one, other)
