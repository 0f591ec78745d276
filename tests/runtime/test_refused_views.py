"""What eager refuses to view, for the stride that an argument has in a dimension of one element."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.runtime.refused_views import RefusedViews

WEIGHT = torch.ones(4, 4, 1, 1)


def kron(x: Tensor) -> Tensor:
    return torch.kron(x.flatten(1), torch.ones(2, 2)) + 1


def unread(x: Tensor) -> Tensor:
    torch.kron(x.flatten(1), torch.ones(2, 2))
    return x + 1


def image(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT, padding=1).view(-1, 4)


def image_of_a_copy(x: Tensor) -> Tensor:
    return F.conv2d(x.view_as(x).to(x.dtype, copy=True), WEIGHT, padding=1).view(-1, 4)


def image_as_another(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT, padding=1).view_as(torch.ones(x.shape[0], 9, 4))


def copied_before(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT, padding=1).contiguous().view(-1, 4)


def reshaped(x: Tensor) -> Tensor:
    return F.conv2d(x, WEIGHT, padding=1).reshape(-1, 4)


def written_before(x: Tensor) -> Tensor:
    x.add_(1)
    return F.conv2d(x, WEIGHT, padding=1).view(-1, 4)


PROGRAMS = (kron, unread, image, image_of_a_copy, copied_before, reshaped, written_before)
REFUSED = (kron, unread, image, image_of_a_copy, written_before)


def arguments(recorded: bool) -> list[Tensor]:
    """Images of one pixel, as rows or with their channels innermost; larger ones."""
    made = [
        torch.ones(2, 4, 5, 3),
        torch.ones(1, 4, 1, 1),
        torch.ones(1, 1, 1, 4).permute(0, 3, 1, 2),
        torch.ones(3, 1, 1, 4).permute(0, 3, 1, 2),
        torch.ones(1, 4, 1, 1).permute(0, 1, 3, 2),
        torch.ones(4, 4, 1, 1).transpose(0, 1),
    ]
    return [x.requires_grad_(recorded) for x in made]


def called(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[object, ...]:
    try:
        made = f(x)
    except RuntimeError as error:
        return type(error), str(error), x.tolist(), x._version
    return made.tolist(), made.stride(), x.tolist(), x._version


@pytest.mark.parametrize(
    ("program", "recorded"),
    [(f, recorded) for f in PROGRAMS for recorded in (False, True) if f is not written_before]
    + [(written_before, False)],
)
def test_a_call_is_refused_as_by_eager(program: Callable[[Tensor], Tensor], recorded: bool) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    refused = 0
    for _ in range(2):
        for ours, eagers in zip(arguments(recorded), arguments(recorded), strict=True):
            made, expected = called(fast, ours), called(program, eagers)
            assert made == expected, (ours.shape, ours.stride())
            refused += expected[0] is RuntimeError
    assert (refused > 0) == (program in REFUSED)
    assert fast.stats().internal_errors == 0


def test_eager_is_asked_once_for_each_layout_and_never_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    refuses = RefusedViews._refuses

    def counted(self: RefusedViews, arguments: object, number: int) -> bool:
        asked.append(number)
        return refuses(self, arguments, number)  # type: ignore[arg-type] # as they come

    monkeypatch.setattr(RefusedViews, "_refuses", counted)
    fast = anyshape.compile(kron, fullgraph=True)
    for n in (1, 2, 1, 3):
        fast(torch.ones(n, 4, 1, 1))
    assert not asked
    for _ in range(3):
        called(fast, torch.ones(1, 1, 1, 4).permute(0, 3, 1, 2))
    assert asked == [0, 1]  # once, of both views
