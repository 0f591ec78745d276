"""What C code reads out of objects from outside is relied on: arrays of numpy and of `array`,
memoryviews, and the dicts that read-only proxies show."""

import array
import inspect
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import anyshape


def iterated(x, held):
    return [k for k in held], x + 1


def found(x, held):
    return (1 in held, 7 in held), x + 1


def summed(x, held):
    return x * sum(held) + max(held)


def listed(x, held):
    return list(held), sorted(held), tuple(held), len(held), x + 1


def unpacked(x, held):
    a, b = held
    return x * a + b


def spread(x, held):
    return torch.stack([x * k for k in (*held,)])


def numbered(x, held):
    return [(i, k) for i, k in enumerate(held)], [a for a, _ in zip(held, range(9))], x + 1


def of_array():
    held = array.array("i", [1, 2])
    return held, lambda: held.__setitem__(0, 7)


def of_memory():
    held = memoryview(bytearray(b"\x01\x02"))
    return held, lambda: held.__setitem__(0, 7)


def of_numpy():
    held = np.array([1, 2])
    return held, lambda: held.__setitem__(0, 7)


def of_numpy_floats():
    held = np.array([1.0, 2.0], dtype=np.float32)
    return held, lambda: held.__setitem__(0, 7.0)


def of_proxy():
    shown = {1: 5, 2: 6}
    return types.MappingProxyType(shown), lambda: (shown.pop(1), shown.update({7: 5}))


HOLDERS = (of_array, of_memory, of_numpy, of_numpy_floats, of_proxy)
READERS = (iterated, found, summed, listed, unpacked, spread, numbered)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("make", HOLDERS, ids=lambda make: make.__name__)
def test_what_changes_outside_is_seen(make, read):
    held, change = make()
    x = torch.ones(2)
    as_argument, as_global = anyshape.compile(read), anyshape.compile(lambda x: read(x, held))
    assert repr(as_argument(x, held)) == repr(as_global(x)) == repr(read(x, held))
    change()
    assert repr(as_argument(x, held)) == repr(as_global(x)) == repr(read(x, held))


def test_arrays_of_many_values_settle_in_a_few_specializations():
    def scale(x, factors):
        for factor in factors:
            x = x * float(factor)
        return x

    fast, x = anyshape.compile(scale), torch.rand(3)
    for seed in range(14):
        factors = np.random.default_rng(seed).random(1 + seed % 3)
        assert torch.equal(fast(x, factors), scale(x, factors))
    assert fast.stats().specializations < 10


def test_a_large_array_is_asked_natively():
    table = np.arange(20000)

    def shift(x):
        return x + (19999 in table)

    fast, x = anyshape.compile(shift), torch.ones(2)
    assert torch.equal(fast(x), shift(x))
    table[19999] = 7
    assert torch.equal(fast(x), shift(x))


def methods(x, table):
    return (
        table.get("a"),
        table.get("none", 3),
        list(table.keys()),
        list(table.values()),
        list(table.items()),
        table.copy(),
        {**table},
        dict(table),
        table | {"z": 1},
        {"z": 1} | table,
        table == {"a": 1.5, "b": 2},
        list(reversed(table)),
        bool(table),
        str(table),
        repr(table),
        f"{table}",
        x * table["a"],
    )


def test_a_read_only_proxy_is_the_dict_that_it_shows():
    shown = {"a": 1.5, "b": 2}
    table = types.MappingProxyType(shown)
    whole, fast, x = (
        anyshape.compile(methods, fullgraph=True),
        anyshape.compile(methods),
        torch.ones(2),
    )
    assert repr(whole(x, table)) == repr(fast(x, table)) == repr(methods(x, table))
    shown["a"] = 2.5
    assert repr(fast(x, table)) == repr(methods(x, table))
    del shown["b"]
    assert repr(fast(x, table)) == repr(methods(x, table))
    empty = types.MappingProxyType({"a": 1})
    assert repr(fast(x, empty)) == repr(methods(x, empty))


def test_what_is_written_to_the_dict_is_read_through_its_proxy():
    shown = {"a": 1.0}
    table = types.MappingProxyType(shown)

    def count(x):
        before = table["a"]
        shown["a"] = before + 1
        shown["n"] = x * 2
        return x * table["a"] + table.get("n"), list(table)

    fast, x = anyshape.compile(count), torch.ones(2)
    for turn in range(1, 4):
        y, keys = fast(x)
        assert torch.equal(y, x * (turn + 1) + x * 2) and keys == ["a", "n"]
        assert shown["a"] == turn + 1 and torch.equal(shown["n"], x * 2)
    with pytest.raises(TypeError):
        anyshape.compile(lambda x: operator.setitem(table, "a", x))(x)


def test_arguments_are_bound_to_a_signature():
    def target(a, b=2, *rest, c=3, **named):
        pass

    signature = inspect.signature(target)

    def bind(x):
        bound = signature.bind(x, 5, d=x)
        bound.apply_defaults()
        return bound.arguments["a"] + bound.arguments["c"], list(bound.arguments)

    fast, x = anyshape.compile(bind, fullgraph=True), torch.ones(2)
    assert repr(fast(x)) == repr(bind(x))


def test_the_state_of_a_generator_is_asked_in_each_call():
    def drawn(x):
        return torch.get_rng_state()[:8], x * torch.rand(2)

    fast, x = anyshape.compile(drawn), torch.ones(2)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = drawn(x)
        torch.manual_seed(seed)
        assert repr(fast(x)) == repr(expected)


def aged_set(last: int) -> set[int]:
    """A set whose order tells what was removed from it."""
    aged = {8 * n for n in range(40)}
    for n in range(36):
        aged.discard(8 * n)
    aged.update((5, 13, 21, last))
    return aged


@pytest.mark.parametrize("frozen", [False, True])
def test_a_set_from_outside_has_its_own_order(frozen: bool) -> None:
    make: Callable[[Any], Any] = frozenset if frozen else set

    def ordered(x: Tensor, kept: Any) -> Any:
        first = next(iter(kept))
        return x + first, list(kept), [*kept], {v: 1 for v in kept}, tuple(v for v in kept)

    fast = anyshape.compile(ordered)
    aged = aged_set(1000)
    for kept in (aged, make(aged), make(list(aged)), aged_set(2000), {21, 5, 13}):
        x = torch.ones(2)
        assert str(fast(x, kept)) == str(ordered(x, kept))


@pytest.mark.parametrize("count", [3, 5, 20, 100])
@pytest.mark.parametrize("make", [set, frozenset])
def test_a_set_copied_from_another_one_is_read_in_one_graph(make: Any, count: int) -> None:
    added = {n * 7919 for n in range(count)}
    for kept in (added, make(added), make(added | {-5}), make(make(added))):

        def ordered(x: Tensor, kept: Any = kept) -> Any:
            return x + len(kept), list(kept), 7919 in kept

        fast = anyshape.compile(ordered, fullgraph=True)
        assert str(fast(torch.ones(2))) == str(ordered(torch.ones(2)))


@pytest.mark.parametrize("make", [set, frozenset])
def test_a_set_whose_order_its_elements_do_not_tell_is_read_in_one_graph(make: Any) -> None:
    aged = aged_set(1000)
    kept = aged if make is set else make(f"name {n}" for n in range(200))

    def ordered(x: Tensor) -> Any:
        return x + len(kept), list(kept), [v for v in kept], sorted(kept), next(iter(kept)) in kept

    fast = anyshape.compile(ordered, fullgraph=True)
    for _ in range(2):
        assert str(fast(torch.ones(2))) == str(ordered(torch.ones(2)))


def test_a_set_from_outside_that_is_written_keeps_its_order() -> None:
    def grown(x: Tensor, kept: set[int]) -> Any:
        kept.add(77)
        kept.discard(5)
        return x + 1, list(kept)

    fast = anyshape.compile(grown)
    x = torch.ones(2)
    for make in (lambda: aged_set(1000), lambda: set(aged_set(1000)), lambda: {1, 2, 3}):
        assert str(fast(x, make())) == str(grown(x, make()))
