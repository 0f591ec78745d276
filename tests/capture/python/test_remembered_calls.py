"""functools.lru_cache: a remembered call is the value that it gave."""

from __future__ import annotations

import functools
import io
import itertools
import logging
import random
import time
import typing
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference


def test_a_remembered_call_of_constants_is_a_constant() -> None:
    calls: list[object] = []

    @functools.lru_cache
    def table(n: int) -> float:
        calls.append(n)
        return n * 2.0

    @functools.lru_cache
    def warn_once(message: str) -> None:
        calls.append(message)

    def program(x: Tensor) -> Tensor:
        warn_once("slow")
        return x * table(3)

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 1, 0, 17):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(fast(x), x * 6)
    assert calls == ["slow", 3]
    assert fast.stats().specializations == 1


def test_one_of_sizes_is_called_natively() -> None:
    @functools.lru_cache
    def table(n: int) -> float:
        return n * 2.0

    fast = anyshape.compile(lambda x: x * table(x.shape[0]))
    for rows in range(12):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(fast(x), x * 2.0 * rows)
    assert fast.stats().specializations <= 3


def test_arange_by_its_end_alone() -> None:
    fast = anyshape.compile(
        lambda x: torch.arange(end=x.shape[0]) + torch.arange(start=1, end=x.shape[0] + 1),
        fullgraph=True,
    )
    for rows in (3, 1, 0, 17):
        expected = 2 * torch.arange(rows) + 1
        torch.testing.assert_close(fast(torch.randn(rows)), expected)


def test_what_a_logger_says_once_is_no_break() -> None:
    log = logging.getLogger(f"{__name__}.once")

    @functools.lru_cache
    def warning_once(logger: logging.Logger, text: str) -> None:
        logger.warning(text)

    def program(x: torch.Tensor) -> torch.Tensor:
        warning_once(log, f"rank {x.ndim}")
        return x + 1

    fast = anyshape.compile(program, fullgraph=True)
    stream = io.StringIO()
    log.addHandler(logging.StreamHandler(stream))
    for length in (3, 2, 17):
        fast(torch.ones(length))
    fast(torch.ones(2, 2))
    assert stream.getvalue() == "rank 1\nrank 2\n"


@functools.lru_cache
def table(count: int) -> torch.Tensor:
    return torch.arange(count) ** 0.5


def test_a_remembered_tensor_is_indexed() -> None:
    fast = anyshape.compile(lambda x: x + table(3)[:, None] * table(3)[1])
    for width in (2, 1, 5):
        x = torch.randn(3, width)
        torch.testing.assert_close(fast(x), x + table(3)[:, None])
    assert fast.stats().specializations == 1


class Name:
    def __init__(self, text: str) -> None:
        self.text = text


@functools.lru_cache
def pair_of(name: Name, *, more: object = None) -> tuple[Name, object]:
    return name, more


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 2])
def test_what_a_cache_was_handed_is_the_object_that_the_program_goes_on_with(every: int) -> None:
    def program(x: Tensor) -> tuple[Tensor, Name, Name, Any, bool]:
        y = x + 1
        first, second = Name("first"), Name("second")
        pair = pair_of(first, more=(second, 1))
        time.perf_counter()
        return y * 2, first, second, pair, pair_of(first, more=(second, 1)) is pair

    fast = Compiled(program, Options(break_every=every), ByReference)
    seen: list[Name] = []
    for _ in range(3):
        _, first, second, pair, same = fast(torch.ones(2))
        assert pair[0] is first and pair[1][0] is second and same
        assert all(first is not other for other in seen)
        seen.append(first)


@pytest.mark.filterwarnings("ignore")
def test_types_made_inside_are_those_in_what_typing_has_made_of_them() -> None:
    def program(x: Tensor) -> Any:
        y = x + 1
        kind = typing.TypeVar("kind")  # type: ignore[misc]
        union = kind | "x"  # type: ignore[operator]
        time.perf_counter()
        return y * 2, kind, typing.get_args(union)[0] is kind, union == typing.Union[kind, "x"]

    fast = anyshape.compile(program)
    seen: list[Any] = []
    for _ in range(3):
        _, kind, *found = fast(torch.ones(2))
        assert found == [True, True]
        assert all(kind is not other for other in seen)
        seen.append(kind)


@functools.lru_cache(typed=True)
def of_each_type(value: object) -> list[object]:
    return [value]


@pytest.mark.filterwarnings("ignore")
def test_arguments_that_are_equal_and_of_other_types() -> None:
    def program(x: Tensor) -> Any:
        y = x + 1
        return y * 2, of_each_type(1), of_each_type(1.0), of_each_type(True)

    fast = anyshape.compile(program, fullgraph=True)
    for _ in range(2):
        assert [found[0].__class__ for found in fast(torch.ones(2))[1:]] == [int, float, bool]


def test_an_argument_that_has_no_hash_is_refused_before_the_call() -> None:
    @functools.lru_cache
    def remembered(*args: object) -> int:
        return len(args)

    def said(*args: object) -> object:
        try:
            return remembered(*args)
        except TypeError as error:
            return str(error)

    def program(x: Tensor) -> object:
        y = x + 1
        return said([1], y), said((1, {}), y), said(1, y), y * 2

    for way in ({"fullgraph": True}, {"options": {"break_every": 1}}):
        found = anyshape.compile(program, **way)(torch.ones(2))
        assert found[:3] == program(torch.ones(2))[:3]


class Shaped:
    """Holds sizes of the call, and is looked up by its identity."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


class Keyed(Shaped):
    def __hash__(self) -> int:
        return hash(self.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.shape == other.shape


class Slotted:
    __slots__ = ("shape",)

    def __init__(self, shape: Any) -> None:
        self.shape = shape


@functools.lru_cache
def same_object(value: Any) -> Any:
    return value


SHAPES: dict[str, Any] = {
    "tuple": lambda y: tuple(int(size) for size in y.shape),
    "list": lambda y: [y.shape[0]],
    "nested": lambda y: (Shaped((y.shape[0], 3)),),
    "size": lambda y: y.shape[0],
    "tensor": lambda y: [y],
}


def _plain(value: Any) -> Any:
    """With sizes as they are: what stands for one in a graph refuses everything."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Shaped):
        return _plain(value.shape)
    return value.shape if isinstance(value, Tensor) else value + 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    ("kind", "made"),
    [
        *itertools.product((Shaped, Slotted), SHAPES),
        *itertools.product((Keyed,), ("tuple", "size")),
    ],
)
def test_what_a_cache_holds_has_no_symbolic_sizes(kind: Any, made: str, ends: bool) -> None:
    def program(x: Tensor) -> Any:
        y = x + 1
        held = kind(SHAPES[made](y))
        found = same_object(held)
        if ends:
            time.perf_counter()
        return y * 2, found, found is held

    fast = anyshape.compile(program)
    for rows in (3, 4):
        x = torch.ones(rows, 2)
        result, found, same = fast(x)
        assert same or kind is Keyed
        assert torch.equal(result, program(x)[0])
        assert _plain(found.shape) == _plain(program(x)[1].shape)


class Recipe:
    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names


@functools.lru_cache
def recipe_of(pattern: str, names: tuple[str, ...], more: object = None) -> Recipe:
    return Recipe((*pattern.split(), *names))


@functools.lru_cache
def shape_by(recipe: Recipe, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[recipe.names.index(name)] for name in sorted(recipe.names[:2]))


@pytest.mark.parametrize("more", [None, (1, ("a",)), frozenset({"a", 2})])
def test_a_cache_that_is_handed_values_alone_leaves_the_program_compiled(more: Any) -> None:
    """As einops does: the recipe of a pattern is looked up by a tuple that each call makes."""
    table_of_constants = torch.randn(3, 4)

    def program(x: Tensor, **axes: int) -> tuple[Tensor, Tensor]:
        made = frozenset(set(more)) if isinstance(more, frozenset) else more
        recipe = recipe_of("b a", tuple(axes), made and tuple(made))
        assert same_object(tuple(axes.items())) == (("h", 1),)
        by_size = shape_by(recipe, (x.shape[0], x.shape[1]))
        fixed = shape_by(recipe, table_of_constants.shape)
        return x.reshape(by_size), table_of_constants.reshape(fixed) * 2

    fast = anyshape.compile(program)  # it goes on natively where each call needs a new one
    for rows in (3, 4, 1, 0, 17):
        x = torch.randn(rows, 2)
        for got, wanted in zip(fast(x, h=1), program(x, h=1)):
            assert torch.equal(got, wanted)
    assert (fast.stats().specializations, fast.stats().graph_breaks) == (1, 0)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_program_that_uses_up_a_specialization_in_each_call_says_so(fullgraph: bool) -> None:
    def program(x: Tensor) -> Tensor:
        same_object(Name("of this call"))
        return x * 2

    fast = anyshape.compile(program, fullgraph=fullgraph)
    with pytest.warns(anyshape.errors.PerformanceWarning, match="E233") as said:
        for rows in range(6):
            assert torch.equal(fast(torch.ones(rows)), torch.full((rows,), 2.0))
    assert len(said) == 1
    assert ("natively" in str(said[0].message)) is not fullgraph


def test_a_cache_that_is_made_without_its_parameters() -> None:
    """As C makes one, before `functools` puts its function and its parameters on it."""
    made: Any = functools._lru_cache_wrapper  # type: ignore[attr-defined]
    kept = made(lambda n, x: (n, x), 5, False, functools._CacheInfo)  # type: ignore[attr-defined]
    fast = anyshape.compile(lambda x: kept(3, x.shape[0])[1] + x)
    for rows in (2, 3, 2, 5):
        torch.testing.assert_close(fast(torch.ones(rows)), torch.ones(rows) + rows)


WAYS: list[dict[str, Any]] = [{"fullgraph": False}, {"break_every": 1}, {"break_every": 3}]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_a_cache_that_each_call_makes_calls_its_function_in_each_call(options: Any) -> None:
    def program(x: Tensor, log: list[Any]) -> Any:
        @functools.lru_cache
        def told(value: int) -> list[int]:
            log.append(value)
            if value < 0:
                raise ValueError(value)
            return [value]

        first = told(1)
        try:
            told(-1)
        except ValueError:
            log.append("refused")
        return x + 1, first is told(1), told(2)

    fast = Compiled(program, Options(**options), ByReference)
    for _ in range(2):
        log: list[Any] = []
        assert fast(torch.ones(1), log)[1:] == (True, [2])
        assert log == [1, -1, "refused", 2]


@pytest.mark.parametrize("options", [{"fullgraph": True}, *WAYS], ids=str)
def test_what_is_written_to_a_remembered_result_is_there_in_the_next_call(options: Any) -> None:
    @functools.lru_cache
    def listed(value: int) -> list[int]:
        return [value]

    @functools.lru_cache
    def nested(value: int) -> tuple[dict[str, list[int]], list[int]]:
        return {"a": [value]}, [value]

    def program(x: Tensor) -> Any:
        found, (table, rest) = listed(1), nested(2)
        found.append(5)
        table["a"].append(len(rest))
        rest.append(len(found))
        same = found is listed(1), table is nested(2)[0], rest is nested(2)[1]
        return x + len(found), list(found), list(table["a"]), list(rest), same, listed(1)[-1]

    def three_calls(fn: Any) -> list[Any]:
        listed.cache_clear()
        nested.cache_clear()
        return [fn(torch.ones(1)) for _ in range(3)]

    wanted = three_calls(program)
    assert three_calls(Compiled(program, Options(**options), ByReference)) == wanted


@pytest.mark.filterwarnings("ignore")
def test_a_program_that_counts_the_calls_of_a_cache_makes_each_of_them() -> None:
    def counting() -> Any:
        @functools.lru_cache
        def next_of(value: int) -> int:
            return value + 1

        def program(x: Tensor, value: int) -> Any:
            y, seen = x * next_of(value), [next_of.cache_info()]
            next_of.cache_clear()
            next_of(value)
            return y * next_of(value), [*seen, next_of.cache_info()]

        return program

    plain, fast = counting(), anyshape.compile(counting())
    for value in (2, 3, 2, 2):
        (made, counts), (wanted, expected) = (run(torch.ones(2), value) for run in (fast, plain))
        assert torch.equal(made, wanted)
        assert counts == expected


def _appends(log: list[Any]) -> Any:
    return lambda n: log.append(n) or n * 2


def _takes_the_clock(log: list[Any]) -> Any:
    def timed(n: int) -> int:
        log.append(n)
        time.perf_counter()
        return n

    return timed


def _of_a_cache(log: list[Any]) -> Any:
    inner = functools.lru_cache(_appends(log))
    return lambda n: inner(n) + inner(n + 1)


def _draws(log: list[Any]) -> Any:
    return lambda n: tuple(random.random() for _ in range(2)) if n < 0 else torch.rand(n).sum()


def _raises(log: list[Any]) -> Any:
    def refuse(n: int) -> int:
        log.append(n)
        raise ValueError(n)

    return refuse


def _used(cache: Any, n: int, log: list[Any]) -> Any:
    try:
        return cache(n) + cache(n)
    except ValueError as error:
        return str(error)


def _written(cache: Any, n: int, log: list[Any]) -> Any:
    found = cache(n)
    found.append(len(found))
    return list(found)


def _written_in_place(cache: Any, n: int, log: list[Any]) -> Any:
    return cache(n)[1:].add_(1).sum() + cache(n).sum()


def _compared(cache: Any, n: int, log: list[Any]) -> Any:
    return cache(n) is cache(n), cache(n) is cache(n + 1)


def _identified(cache: Any, n: int, log: list[Any]) -> Any:
    return id(cache(n)) == id(cache(n))


def _given_back(cache: Any, n: int, log: list[Any]) -> Any:
    found = cache(n)
    log.append(found)
    return found, (found,), found is log[0]


def _over_a_break(cache: Any, n: int, log: list[Any]) -> Any:
    found = cache(n)
    time.perf_counter()
    return found is cache(n), found


def _of_pairs(log: list[Any]) -> Any:
    return lambda n: ({"a": [n]}, n)[0]["a"]


PAST_THE_CACHE: list[tuple[Any, Any]] = [
    *((function, _used) for function in (_appends, _takes_the_clock, _of_a_cache, _draws, _raises)),
    *(
        (lambda log, made=made: made, use)  # type: ignore[misc]
        for made in (lambda n: [n], lambda n: torch.ones(n))
        for use in (_compared, _identified, _given_back, _over_a_break)
    ),
    *((_of_pairs, use) for use in (_written, _compared, _given_back)),
    (lambda log: torch.ones, _written_in_place),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize(("made", "use"), PAST_THE_CACHE)
def test_a_cache_of_sizes_calls_its_function_once_for_each(
    made: Any, use: Any, options: Any
) -> None:
    def five_calls(compiled: Any) -> list[Any]:
        log: list[Any] = []
        cache = functools.lru_cache(made(log))

        def program(x: Tensor) -> Any:
            return x.sum() + 1, use(cache, x.shape[0], log), len(log)

        fn, results = compiled(program), []
        torch.manual_seed(0)
        for rows in (3, 4, 3, 5, 3, 4):
            result = fn(torch.ones(rows))
            found = result[1][0] if use is _given_back else None
            assert found is None or found is cache(rows)
            results.append(repr(result))
        return [*results, repr(log)]

    by_python = five_calls(lambda program: program)
    assert five_calls(lambda p: Compiled(p, Options(**options), ByReference)) == by_python


@pytest.mark.parametrize(
    "made",
    [lambda n: n * 2, lambda n: ([n], {"a": n}), lambda n: torch.arange(n), lambda n: n**0.5],
)
def test_a_cache_whose_results_are_only_read_stays_in_one_graph(made: Any) -> None:
    cache = functools.lru_cache(made)

    def program(x: Tensor) -> Tensor:
        found = cache(x.shape[0])
        return x + (found[0][0] if isinstance(found, tuple) else found)

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 4, 1, 7):
        x = torch.randn(rows)
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations == 1


@pytest.mark.filterwarnings("ignore")
def test_a_cache_that_is_handed_a_tensor_keeps_what_it_made_of_it() -> None:
    cache = functools.lru_cache(lambda weight, n: weight * n)
    weight = torch.ones(2)

    def program(x: Tensor) -> Tensor:
        return x + cache(weight, x.shape[0])

    fast = anyshape.compile(program)
    for _ in range(3):
        torch.testing.assert_close(fast(torch.zeros(3, 2)), torch.full((3, 2), 3.0))
        weight.add_(1)
