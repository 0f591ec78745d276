"""Data that is read again, not written since, decides the same sizes; what was written is new."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape


def ones_of(*counts: int) -> Tensor:
    """A sum of as many ones as each number says."""
    for count in counts:
        anyshape.check(count >= 0)
    return torch.stack([torch.ones(count).sum() for count in counts])


def added_at_a_mask(x: Tensor) -> Tensor:
    total = torch.zeros_like(x)
    mask = x > 0
    total[mask] += x[mask] * 2
    return total


def joined_pair_by_pair(lengths: Tensor, x: Tensor) -> Tensor:
    parts = zip(x.split(lengths.tolist()), x.split(lengths.tolist()), strict=True)
    return torch.cat([a * b for a, b in parts])


def view_before_a_write(lengths: Tensor) -> Tensor:
    view = lengths[0]
    first = view.item()
    lengths.add_(1)
    return ones_of(first, lengths[0].item(), view.item())


def written_through_another_view(lengths: Tensor) -> Tensor:
    one, other = lengths.split(1)
    first = one[0].item()
    other[0] = 5
    second = one[0].item()
    lengths[0] += 2
    return ones_of(first, second, one[0].item(), other[0].item())


def written_in_a_list_of_views(lengths: Tensor, more: Tensor) -> Tensor:
    made = more + 1
    _, wide = torch.broadcast_tensors(made, lengths + 0)
    first = wide[0].item()
    parts = lengths.unbind()
    second = parts[0].item()
    parts[0].add_(2)
    return ones_of(first, second, lengths[0].item(), wide[0].item())


def mask_written_in_part(mask: Tensor, x: Tensor) -> Tensor:
    first = x[mask]
    mask[1:].logical_not_()
    again = x[mask]
    return first.sum() + again.sum() * again.shape[0]


def computed_mask_of_what_was_written(x: Tensor) -> Tensor:
    first = (x > 0).nonzero()
    x.view(-1).neg_()
    return ones_of(first.shape[0], (x > 0).nonzero().shape[0])


LENGTHS = torch.tensor([1, 2]), torch.tensor([4, 0])
XS = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([-1.0, 2.0, -3.0, -4.0, 5.0])
MASKS = torch.tensor([True, False, True]), torch.tensor([True, True, False, True, False])


@pytest.mark.parametrize(
    ("program", "calls"),
    [
        (added_at_a_mask, [(x,) for x in XS]),
        (joined_pair_by_pair, [(n, torch.arange(float(n.sum()))) for n in LENGTHS]),
        (view_before_a_write, [(n,) for n in LENGTHS]),
        (written_through_another_view, [(n,) for n in LENGTHS]),
        (written_in_a_list_of_views, [(n, n) for n in LENGTHS]),
        (mask_written_in_part, [*zip(MASKS, XS, strict=True)]),
        (computed_mask_of_what_was_written, [(x,) for x in XS]),
    ],
)
def test_what_was_written_is_read_anew(
    program: Callable[..., Tensor], calls: list[tuple[Tensor, ...]]
) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for given in calls:
        ours, eagers = ([x.clone() for x in given] for _ in range(2))
        assert torch.equal(fast(*ours), program(*eagers))
        assert all(map(torch.equal, ours, eagers))


@pytest.mark.parametrize(
    ("program", "given", "sizes"),
    [(added_at_a_mask, (XS[0],), 1), (joined_pair_by_pair, (LENGTHS[0], torch.ones(3)), 2)],
)
def test_what_was_not_written_decides_the_same_sizes(
    program: Callable[..., Tensor], given: tuple[Tensor, ...], sizes: int
) -> None:
    """A write to other memory lies in between, or the numbers are elements of one tensor."""
    fast = anyshape.compile(program, fullgraph=True)
    fast(*given)
    (text,) = fast.graphs()
    assert text.count("# symbol u") == sizes
