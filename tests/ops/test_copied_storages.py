"""`slice_scatter` and its relatives copy the whole storage that their argument lies in.

What the storage around holds is seen by `as_strided` alone, where a result begins by
`storage_offset()` too: of what is written, of views of it, and of copies of copies.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape

OFFSETS = ((3, 3), (4, 1), (1, 3), (3, 0), (0, 2))
"""How many columns, and after how many elements the argument begins in its storage."""


def rows_set(x: Tensor) -> Tensor:
    return x.slice_scatter(torch.ones(x[1:].shape), 0, 1)


def written(x: Tensor) -> tuple[Tensor, ...]:
    t = rows_set(x)
    t.mul_(2)
    return t, t


def made_contiguous(x: Tensor) -> tuple[Tensor, ...]:
    t = x.diagonal_scatter(torch.ones(x.diagonal().shape, dtype=torch.float64))
    t[0] -= 1
    return (t.to(memory_format=torch.contiguous_format),)


def by_aten(x: Tensor) -> tuple[Tensor, ...]:
    t = torch.ops.aten.select_scatter(x, torch.ones(x[0].shape), 0, 1)
    t.lerp_(x, 0.5)
    return (t,)


def of_what_is_made(x: Tensor) -> tuple[Tensor, ...]:
    t = rows_set((x * 2)[1:])
    t.mul_(2)
    return (t,)


def of_a_copy(x: Tensor) -> tuple[Tensor, ...]:
    t = rows_set(rows_set(x))
    t.mul_(2)
    return (t,)


def of_repeated_rows(x: Tensor) -> tuple[Tensor, ...]:
    t = rows_set(x[:1].expand(3, -1))
    t.add_(1)
    return (t,)


def with_views(x: Tensor) -> tuple[Tensor, ...]:
    t = rows_set(x)
    t.mul_(2)
    return t, t[1], t.view(-1)


def laid(x: Tensor) -> tuple[Tensor, ...]:
    t = rows_set(x)
    t.mul_(2)
    return (t.as_strided((1,), (1,)),)


def surrounded(x: Tensor) -> tuple[Tensor, ...]:
    t = rows_set(x)
    t.mul_(2)
    return (t.as_strided((2,), (1,), 0),)


WHOLE = (written, made_contiguous, by_aten, of_what_is_made, of_a_copy, of_repeated_rows)
BROKEN = (laid, surrounded)


def argument(columns: int, begins: int, requires_grad: bool) -> Tensor:
    storage = torch.arange(2.0 * columns + begins + 4)
    x = storage[begins : begins + 2 * columns].view(2, columns).detach()
    return x.requires_grad_(requires_grad)


def lies(results: tuple[Tensor, ...]) -> list[tuple[object, ...]]:
    storages = [t.untyped_storage().data_ptr() for t in results]
    return [
        (t.storage_offset(), t.stride(), t.shape, t._version, *(s == own for s in storages))
        for t, own in zip(results, storages, strict=True)
    ]


@pytest.mark.parametrize("program", [*WHOLE, with_views, *BROKEN])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.filterwarnings("ignore::anyshape.errors.PerformanceWarning")
def test_a_result_begins_in_a_copy_of_the_storage_as_eagers(
    program: Callable[[Tensor], tuple[Tensor, ...]], recorded: bool
) -> None:
    fast = anyshape.compile(program, fullgraph=program in WHOLE)
    for columns, begins in OFFSETS:
        expected, made = (f(argument(columns, begins, recorded)) for f in (program, fast))
        assert all(map(torch.equal, made, expected)), (columns, begins)
        assert lies(made) == lies(expected), (columns, begins)
    assert fast.stats().internal_errors == 0


def test_gradients_of_a_written_copy_are_eagers() -> None:
    fast = anyshape.compile(written, fullgraph=True)
    for columns, begins in OFFSETS:
        gradients = []
        for f in (written, fast):
            x = argument(columns, begins, True)
            f(x)[0].sum().backward()
            gradients.append(x.grad)
        assert torch.equal(*gradients)


def test_what_lies_around_a_result_is_what_lies_around_the_argument() -> None:
    fast = anyshape.compile(written, fullgraph=True)
    for recorded in (True, False):
        (made, _), (expected, _) = (f(argument(3, 2, recorded)) for f in (fast, written))
        around = [t.detach().as_strided((10,), (1,), 0) for t in (made, expected)]
        assert torch.equal(*around)


def test_where_arguments_begin_makes_two_specializations_at_most() -> None:
    fast = anyshape.compile(written, fullgraph=True)
    for begins in range(6):
        fast(argument(3, begins, False))
    assert fast.stats().specializations == 2
