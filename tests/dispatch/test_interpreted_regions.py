"""Lists of another length in each call: a few specializations, whatever the lengths; what is little
between two graph breaks runs natively, what is much stays compiled.
"""

from __future__ import annotations

import copy
import gc
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference, agree

MOST = Options().max_variants
LENGTHS = (3, 0, 1, 2, 17, 5, 4, 8, 1, 0, 12)


def lists(seed: int = 0) -> list[tuple[Tensor, list[Tensor]]]:
    stream = torch.Generator().manual_seed(seed)
    draw = random.Random(seed)
    return [
        (
            torch.rand(n % 4, 3, generator=stream),
            [torch.rand(draw.choice((0, 1, 2, 5)), 3, generator=stream) for _ in range(n)],
        )
        for n in LENGTHS
    ]


def padded(x: Tensor, parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    lengths = [len(part) for part in parts]
    longest = max(lengths) if parts else 0
    out = torch.zeros(len(parts), longest, 3)
    for i, part in enumerate(parts):
        out[i, : len(part)] = part
    return out.sum(1) * 2, torch.tensor(lengths)


def left_early(x: Tensor, parts: list[Tensor]) -> Tensor:
    for part in parts:
        if part.shape[0] == 0:
            continue
        if part.shape[0] == 5:
            break
        x = x + part.sum(0)
    else:
        x = x - 1
    return x * 2


def returned_early(x: Tensor, parts: list[Tensor]) -> Tensor:
    for part in parts:
        for row in part:
            x = x + row
            if len(part) == 2:
                return x
    return x * 2


def handled(x: Tensor, parts: list[Tensor]) -> tuple[Tensor, list[str]]:
    told = []
    for part in parts:
        try:
            x = x + part[1]
        except IndexError as error:
            told.append(type(error).__name__)
        finally:
            x = x * 0.5
    return x, told


def generated(x: Tensor, parts: list[Tensor]) -> tuple[Tensor, int]:
    def rows() -> Iterator[Tensor]:
        for part in parts:
            yield part.sum(0)

    return sum(rows(), start=x), max((len(part) for part in parts), default=0)


def nested(x: Tensor, parts: list[Tensor]) -> dict[int, Tensor]:
    groups: dict[int, list[Tensor]] = {}
    for part in parts:
        groups.setdefault(len(part), []).append(part)
    return {size: torch.stack(group).sum((0, 1)) for size, group in groups.items()}


@pytest.mark.parametrize(
    "function", [padded, left_early, returned_early, handled, generated, nested]
)
def test_lists_of_every_length_make_few_specializations(function: Callable[..., Any]) -> None:
    fast = agree(function, *lists(0), *lists(1), fullgraph=False)
    settled = fast.stats().specializations
    assert not fast.warned and settled <= 24
    for arguments in lists(2) + lists(3):
        fast(*arguments)
    assert fast.stats().specializations <= settled + 2


def test_what_a_light_loop_raises_is_the_programs_own() -> None:
    def checked(x: Tensor, parts: list[Tensor]) -> Tensor:
        for part in parts:
            if part.shape[0] == 5:
                raise ValueError(f"{part.shape[0]} rows")
            x = x + part.sum(0)
        return x

    fast = anyshape.compile(checked)
    for _ in range(2):
        for x, parts in lists():
            if any(len(part) == 5 for part in parts):
                with pytest.raises(ValueError, match="5 rows"):
                    fast(x, parts)
            else:
                torch.testing.assert_close(fast(x, parts), checked(x, parts))


def deep(x: Tensor) -> Tensor:
    for _ in range(20):
        x = torch.tanh(x * 2 + 1)
    return x


def test_what_is_much_in_a_loop_stays_compiled_though_its_first_turns_were_light() -> None:
    def looped(x: Tensor, parts: list[Tensor]) -> Tensor:
        for part in parts:
            if part.shape[0] == 0:
                continue
            x = x + deep(part).sum(0)
        return x

    few = [[torch.ones(0, 3)] * n for n in range(6)]
    many = [[torch.rand(m, 3) for m in (0, 2, 5)] * n for n in range(1, 6)]
    fast = agree(looped, *((torch.ones(3), parts) for parts in few + many * 8), fullgraph=False)
    before = fast.stats().specializations
    x, parts = torch.ones(3), [torch.rand(7, 3) for _ in range(9)]
    torch.testing.assert_close(fast(x, parts), looped(x, parts))
    assert fast.stats().specializations <= before + 1
    assert any(text.count("torch.tanh") == 20 for text in fast.graphs())


def test_the_length_of_a_list_is_a_number_like_any_other() -> None:
    def counted(x: Tensor, names: list[str]) -> tuple[Tensor, int, bool]:
        if names:
            x = x * 2
        return x[: len(names)] + len(names), len(names) * 3, bool(names)

    calls = [(torch.rand(4, 2), ["a"] * n) for n in (*range(12), 0, 3)]
    fast = agree(counted, *calls, fullgraph=False)
    assert fast.stats().specializations <= 5 and fast.stats().graph_breaks == 0


def test_where_segments_save_less_than_they_cost_the_original_function_is_called() -> None:
    def told(x: Tensor, names: list[str]) -> list[Tensor]:
        return [x + len(name) for name in names]

    fast = agree(told, *((torch.ones(2), ["a", "bb"] * n) for n in range(60)), fullgraph=False)
    assert fast.stats().uncompiled > 40
    before = fast.stats().uncompiled
    fast(torch.ones(5_000, 50), ["a"] * 70)  # larger than anything it was judged by
    assert fast.stats().uncompiled == before


def test_where_segments_save_more_than_they_cost_they_run() -> None:
    def shown(x: Tensor) -> Tensor:
        y = deep(deep(x))
        return deep(deep(y)) * float(str(y.sum().item() > 1e9) == "True")

    fast = agree(shown, *((torch.rand(n, 2),) for n in range(20)), fullgraph=False)
    assert fast.stats().graph_breaks > 0 and fast.stats().uncompiled == 0


class Pages:
    """A table of pages that grows as a cache fills."""

    def __init__(self) -> None:
        self.table: list[int] = []
        self.free = list(range(64))

    def room_for(self, count: int) -> Tensor:
        while len(self.table) * 2 < count:
            self.table.append(self.free.pop())
        return torch.tensor(self.table)


def test_a_loop_whose_turns_sizes_decide_settles_behind_a_graph_break() -> None:
    def stepped(pages: Pages, x: Tensor) -> Tensor:
        return deep(x) + pages.room_for(x.shape[0]).sum()

    fast = anyshape.compile(stepped)
    ours, eagers = Pages(), Pages()
    for n in (*range(40), 3, 41, 60):
        x = torch.rand(n, 2)
        torch.testing.assert_close(fast(ours, x), stepped(eagers, x))
        assert ours.table == eagers.table and ours.free == eagers.free
    assert fast.stats().specializations <= 4 * MOST


class Scale(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.weight = torch.nn.Parameter(torch.full((3,), factor), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.factor


def test_modules_are_made_between_graph_breaks() -> None:
    def stacked(x: Tensor, factors: list[float]) -> Tensor:
        for layer in [Scale(factor) for factor in factors]:
            x = layer(x)
        return x

    fast = anyshape.compile(stacked)
    for count in (2, 3, 1, 0, 5, 4, 2, 6):
        x, factors = torch.rand(count, 3), [float(i + 1) for i in range(count)]
        torch.testing.assert_close(fast(x, factors), stacked(x, factors))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [2, 8, 32])
def test_what_cannot_be_handed_on_is_not_captured_up_to_from_each_instruction(count: int) -> None:
    """A class that holds a generator of the trace cannot be put together behind a break."""

    def program(x: Tensor, breaks: Callable[[], object]) -> tuple[Tensor, Any]:
        y = x + 1
        breaks()
        y = y * 2

        def values(value: Tensor = y) -> Iterator[Tensor]:
            yield value
            yield value + 1

        held = values()
        next(held)

        class Holding:
            values = held

        for _ in range(count):
            y = torch.sin(y)
        breaks()
        return y + 1, next(Holding.values)

    fast = Compiled(program, Options(), ByReference)
    for rows in (3, 4):
        x = torch.ones(rows)
        for got, wanted in zip(fast(x, gc.collect), program(x, gc.collect)):
            torch.testing.assert_close(got, wanted)
        assert len(fast.capturer.works) <= 12


@pytest.mark.filterwarnings("ignore")
def test_a_namespace_is_handed_on() -> None:
    class Slotted(types.SimpleNamespace):
        __slots__ = ("size",)

    def program(x: Tensor) -> tuple[Tensor, Any, Any]:
        y = x + 1
        first = types.SimpleNamespace(size=x.shape[0], parts=[y])
        first.itself, second = first, Slotted(of=first, value=y)
        second.size = x.shape[0]
        gc.collect()
        return y * 2, first, second

    fast = Compiled(program, Options(), ByReference)
    for rows in (3, 4):
        doubled, first, second = fast(torch.ones(rows))
        assert (first.size, second.size) == (rows, rows)
        assert first.itself is first and second.of is first and second.value is first.parts[0]
        assert type(second) is Slotted and list(vars(first)) == ["size", "parts", "itself"]
        assert torch.equal(doubled, first.parts[0] * 2)
    assert all("would leave" not in found.reason for found in fast.capturer.breaks)


class Settings:
    """What copies of is made instruction by instruction: reads of it are the program's own."""

    def __init__(self, depth: int) -> None:
        self.names = [depth, "a"]
        self.inner = Settings(depth - 1) if depth else None

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


@pytest.mark.parametrize("depth", [0, 5])
def test_ids_that_cannot_be_handed_over_are_got_behind_in_few_captures(depth: int) -> None:
    def copied(x: Tensor, settings: Settings) -> Tensor:
        for i in range(30):
            x = (x.cos() + i).sin()
        torch.manual_seed(0)  # a graph break: from there on, `settings` may be another object
        own = copy.deepcopy(settings)
        for i in range(8):
            x = (x.cos() * len(own.names) + i).sin()
        return x

    fast = anyshape.compile(copied)
    for n in (5, 6):
        x, settings = torch.rand(n, n), Settings(depth)
        torch.testing.assert_close(fast(x, settings), copied(x, settings))
    assert fast.stats().segments and fast.stats().graph_breaks <= 16
