"""State that a program keeps between calls: what is written anew in each call is not relied on by
its identity, and a container that is only written is not looked into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference, compiled, same


def sizes() -> list[Tensor]:
    return [torch.arange(float(n * 4)).reshape(n, 4) for n in (3, 1, 2, 17, 0, 5, 8, 9, 11)]


def agree(make: Callable[[], tuple[Callable[[Tensor], Any], Callable[[], Any]]]) -> Any:
    """Calls what `make` gives, compiled and not; results and state are the same after each."""
    (plain, expected), (program, found) = make(), make()
    fast = compiled(program)
    for x in sizes():
        same(fast(x), plain(x))
        same(found(), expected())
    return fast.stats()


class Averaged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.last: Tensor | None = None
        self.seen: dict[str, Any] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.mean = self.mean * 0.9 + x.sum(0)
        self.last = x
        self.seen["last"] = self.mean
        return x + self.mean + self.seen["last"]


def test_a_buffer_that_each_call_replaces_is_an_argument_from_the_first_on() -> None:
    def make() -> Any:
        net = Averaged()
        return net, lambda: [net.mean, net.last, net.seen]

    assert agree(make).specializations == 1


def test_a_hook_that_stores_features_relies_on_none() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        features: dict[str, Tensor] = {}
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        net[0].register_forward_hook(lambda module, args, out: features.update({"a": out.detach()}))
        net[1].register_forward_hook(
            lambda module, args, out: features.__setitem__("b", out.detach())
        )
        return torch.no_grad()(net), lambda: features

    assert agree(make).recompiles <= 2


def test_a_log_that_grows_is_not_read() -> None:
    def make() -> Any:
        log: list[Any] = []
        table: dict[Any, Any] = {}

        def program(x: Tensor) -> Tensor:
            log.append(x.sum())
            table[x.shape[1]] = x * 2
            table["a"] = "text"
            return x + table[4].shape[1] + ("a" in table)

        return program, lambda: [log, table]

    assert agree(make).specializations == 1


def test_a_container_that_is_read_after_it_was_written_shows_the_write() -> None:
    def make() -> Any:
        log: list[Any] = []
        table: dict[Any, Any] = {"a": 1}

        def program(x: Tensor) -> Any:
            table["b"] = x
            table["a"] = 2
            log.append(x)
            log.append(3)
            shown = list(table), table["a"], len(log), log[-1], table.get("c"), "b" in table
            log.clear()
            return shown

        return program, lambda: [list(table), log]

    agree(make)


def test_a_counter_becomes_a_number_after_a_few_values() -> None:
    def make() -> Any:
        class Counting(nn.Module):
            count = 0

            def forward(self, x: Tensor) -> Tensor:
                self.count += 1
                return x * self.count

        net = Counting()
        return net, lambda: net.count

    assert agree(make).specializations <= 6


def test_an_averaged_global_is_an_argument_from_the_first_call_on() -> None:
    def make() -> Any:
        state = {"mean": torch.zeros(4)}

        def program(x: Tensor) -> Tensor:
            state["mean"] = state["mean"] * 0.5 + x.sum(0)
            return state["mean"] * 2

        return program, lambda: state

    assert agree(make).specializations == 1


def test_an_attribute_given_by_the_programs_code_is_asked_again_after_a_write() -> None:
    class Config:
        def __init__(self) -> None:
            self.scale = 1
            self.asked = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "counted":
                self.asked += 1
                return self.asked
            return super().__getattribute__(name)

    def make() -> Any:
        config = Config()

        def program(x: Tensor) -> Any:
            first = config.scale, config.scale
            config.scale = 3
            second = config.scale
            config.scale = 1
            return x * config.scale, first, second, config.counted, config.counted

        return program, lambda: [config.scale, config.asked]

    agree(make)


def test_what_another_thread_writes_during_capture_is_captured_again() -> None:
    class Config:
        scale = 1.0

    config, compiles = Config(), []

    class Disturbed(ByReference):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            compiles.append(None)
            if len(compiles) < 3:  # as another thread would, while the kernels are compiled
                config.scale += 1

    fast = Compiled(lambda x: x * config.scale, Options(), Disturbed)
    x = torch.ones(2)
    for _ in range(3):
        same(fast(x), x * config.scale)
    assert config.scale == 3.0 and len(compiles) == 3 and not fast.warned


def test_a_container_that_each_call_replaces_is_read_where_it_lies() -> None:
    def make() -> Any:
        state: dict[str, Any] = {"step": {"sum": torch.zeros(())}}

        def program(x: Tensor) -> Any:
            before = state["step"]
            state["step"] = {"sum": before["sum"] + x.sum()}
            return state["step"]["sum"] * 2, dict(before)

        return program, lambda: state

    assert agree(make).specializations == 2


def test_a_container_that_grows_keeps_its_readers_compiled() -> None:
    log: list[Any] = []
    cache: dict[int, Tensor] = {}

    def program(x: Tensor, log: list[Any], cache: dict[int, Tensor]) -> Any:
        log.append(x.sum())
        y = x * 2
        if len(log) not in cache:
            cache[len(log)] = y + len(log)
        return y + 1, len(log), log[-1], cache[len(log)], sum(log)

    fast = compiled(program, fullgraph=False)
    expected_log: list[Any] = []
    expected_cache: dict[int, Tensor] = {}
    for _ in range(14):
        x = torch.ones(2)
        same(fast(x, log, cache), program(x, expected_log, expected_cache))
    same([log, cache], [expected_log, expected_cache])
    assert not fast.warned and fast.stats().specializations < 40


def test_a_module_that_keeps_sizes_under_several_names_is_one_specialization() -> None:
    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = 0

        def forward(self, x: Tensor) -> Tensor:
            self.rows = x.shape[0]
            self.twice = x.shape[0] * 2
            y = x * self.rows
            self.rows = y.shape[0] + 1
            return y + self.twice

    def make() -> tuple[Callable[[Tensor], Any], Callable[[], Any]]:
        module = Sized()
        return module, lambda: (module.rows, module.twice)

    assert agree(make).specializations == 1


def test_what_is_got_from_a_dict_relies_on_that_key_alone() -> None:
    def program(x: Tensor, given: dict[str, Any]) -> Any:
        y = x * given.get("scale", 2.0)
        mask = given.get("mask")
        return y if mask is None else y + mask, given.get("name", "none")

    fast = compiled(program)
    for step, x in enumerate(sizes()):
        given = {f"other {step}": step, "step": step, "name": "a"}
        same(fast(x, given), program(x, given))
        given["mask"] = x + step
        same(fast(x, given), program(x, given))
    assert fast.stats().specializations == 2


def counted_in_an_attribute() -> tuple[Callable[[Tensor], Any], Callable[[], Any]]:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = 0

        def forward(self, x: Tensor) -> Tensor:
            self.step += 1
            return x * self.step if self.step % 3 else x + self.step

    module = Steps()
    return module, lambda: module.step


def counted_in_a_closure() -> tuple[Callable[[Tensor], Any], Callable[[], Any]]:
    step = 0

    def program(x: Tensor) -> Tensor:
        nonlocal step
        step += x.shape[0]
        return x + step

    return program, lambda: step


def counted_in_containers() -> tuple[Callable[[Tensor], Any], Callable[[], Any]]:
    counts, positions = {"calls": 0, "rows": 0}, [0, 0]

    def program(x: Tensor) -> tuple[Tensor, str]:
        counts["calls"] += 1
        counts["rows"] += x.shape[0]
        positions[1] = positions[1] + 2
        return x * positions[1], f"{counts['calls']} of {counts['rows']}"

    return program, lambda: (dict(counts), list(positions))


def set_back() -> tuple[Callable[[Tensor], Any], Callable[[], Any]]:
    class State:
        def __init__(self) -> None:
            self.left = 4

    state = State()

    def program(x: Tensor) -> Tensor:
        state.left -= 1
        if state.left == 0:
            state.left = 4
        return x + state.left

    return program, lambda: state.left


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (counted_in_an_attribute, 2),
        (counted_in_a_closure, 1),
        (counted_in_containers, 1),
        (set_back, 2),
    ],
)
def test_a_counter_is_a_symbol_from_the_first_call_on(make: Any, most: int) -> None:
    stats = agree(make)
    assert stats.specializations <= most and stats.graph_breaks == 0


def test_what_a_counter_picks_is_picked_by_its_value() -> None:
    def make() -> tuple[Callable[[Tensor], Any], Callable[[], Any]]:
        turn, factors = [0], (1.0, 2.0, 3.0)

        def program(x: Tensor) -> Tensor:
            turn[0] = (turn[0] + 1) % len(factors)
            return x * factors[turn[0]]

        return program, lambda: list(turn)

    assert agree(make).specializations == 3


def test_a_log_that_grows_is_asked_how_long_it_is_and_what_came_last() -> None:
    log: list[int] = []

    def program(x: Tensor, log: list[int]) -> Any:
        before = len(log)
        log.append(x.shape[0])
        log.append(before)
        return x + before, len(log), log[-1] + log[-2]

    fast, expected = compiled(program, fullgraph=False), list(log)
    for x in sizes():
        same(fast(x, log), program(x, expected))
        same(log, expected)
    assert fast.stats().specializations <= 4 and fast.stats().graph_breaks == 0


def test_a_number_under_a_key_of_the_programs_own_class_is_kept_like_any_other() -> None:
    class Name:
        def __init__(self, text: str) -> None:
            self.text = text

        def __hash__(self) -> int:
            return hash(self.text)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Name) and self.text == other.text

    def make() -> tuple[Callable[[Tensor], Any], Callable[[], Any]]:
        name = Name("calls")
        counts = {name: 0}

        def program(x: Tensor) -> Tensor:
            counts[name] += 1
            return x * counts[name]

        return program, lambda: counts[name]

    (plain, expected), (program, found) = make(), make()
    fast = compiled(program, fullgraph=False)
    for x in sizes():
        same(fast(x), plain(x))
        same(found(), expected())
