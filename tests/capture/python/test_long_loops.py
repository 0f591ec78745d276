"""A loop of more turns than capture takes goes on in CPython, from where it stands."""

from __future__ import annotations

import itertools
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.capture.interpreter import handover
from anyshape.errors import GraphBreakError

TURNS = 40
LOG: list[Any] = []


def sums(x: Tensor, n: int) -> Any:
    total = 0
    for i in range(n):
        total += i
    return x * 2, total


def nested(x: Tensor, n: int) -> Any:
    found = []
    for i in range(n):
        for j in (1, 2, 3):
            if i % 7 == j:
                continue
            found.append((i, j))
        else:
            found.append(i)
    return x + len(found), found


def whiles(x: Tensor, n: int) -> Any:
    i = 0
    while i < n:
        i += 1
        if i == n - 3:
            break
    return x + i, i


def cells(x: Tensor, n: int) -> Any:
    count, shared = 0, []

    def more(by: int) -> int:
        nonlocal count
        count += by
        return n

    for i in range(n):
        more(i)
        shared.append(lambda i=i: (i, count))
    return x + count, count, [f() for f in shared[-3:]]


class Suppressing:
    def __enter__(self) -> Suppressing:
        LOG.append("enter")
        return self

    def __exit__(self, *error: object) -> bool:
        LOG.append(error[0])
        return True


def handlers(x: Tensor, n: int) -> Any:
    seen = []
    with Suppressing():
        for i in range(n):
            try:
                if i % 5 == 0:
                    raise ValueError(i)
                if i % 7 == 0:
                    raise KeyError(i)
            except ValueError as error:
                seen.append(error.args)
                try:
                    raise TypeError from error
                except TypeError as other:
                    seen.append(type(other.__cause__))
            except KeyError:
                continue
            finally:
                seen.append(i)
        [][n]
    return x + len(seen), seen


def raises(x: Tensor, n: int) -> Any:
    y = x + 1
    for i in range(n):
        if i == n - 1:
            raise ValueError(i)
    return y


def caught_outside(x: Tensor, n: int) -> Any:
    try:
        raises(x, n)
    except ValueError as error:
        found = traceback.extract_tb(error.__traceback__)
        return x * 2, [(f.name, f.lineno, f.line) for f in found], error.args


def callers(x: Tensor, n: int) -> Any:
    names = []
    for i in range(n):
        if i > TURNS + 9:
            frame = sys._getframe()
            names.append((frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)[:2]))
    return x + 1, names[-1:]


def inner(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


def calls_inner(x: Tensor, n: int) -> Any:
    values = [x]
    for i in range(3):
        values.append(values[-1] + inner(n) + i)
    return values


def unbound(x: Tensor, n: int, *rest: int, key: int = 3, **named: int) -> Any:
    for i in range(n):
        if i < 5:
            late = i
        elif i == 5:
            del late
    try:
        late
    except UnboundLocalError as error:
        return x + key, str(error), rest, named


def comprehends(x: Tensor, n: int) -> Any:
    found = [i * 2 for i in range(n) if i % 3]
    return x + 1, found, {i: n for i in range(n)}, sum(i for i in range(n))


def generated(n: int) -> Iterator[int]:
    for i in range(n):
        yield i


def generators(x: Tensor, n: int) -> Any:
    found = []
    for i in generated(n):
        found.append(i)
    return x + 1, found


class Held:
    pass


def deaths(x: Tensor, n: int) -> Any:
    held, seen = Held(), []
    for i in range(n):
        if i == TURNS + 10:
            LOG.append(weakref.ref(held, lambda ref: seen.append("dead")))
        if i == n - 2:
            held = None
            seen.append(i)
    return x + 1, seen


@contextmanager
def managed() -> Iterator[int]:
    LOG.append("in")
    yield 3
    LOG.append("out")


def contexts(x: Tensor, n: int) -> Any:
    with managed() as three:
        for i in range(n):
            with Suppressing():
                if i == 2:
                    raise OSError
    return x + three, three


def shown(error: BaseException) -> list[Any]:
    entries = traceback.extract_tb(error.__traceback__)
    return [(e.name, e.lineno) for e in entries]


def failing(n: int) -> Iterator[int]:
    for i in range(n):
        yield i
    raise KeyError(n)


def raising_generators(x: Tensor, n: int) -> Any:
    """What they raise shows the program's frames alone, wherever CPython runs them."""
    found: list[Any] = []
    for made in (failing(n), filter(lambda i: 9 // (n - i), range(n + 1)), map(failing, range(n))):
        try:
            for _ in range(n + 3):
                found.append(isinstance(next(made), int))  # type: ignore[call-overload]
        except (KeyError, ZeroDivisionError, StopIteration) as error:
            found.append(shown(error))
    return x + 1, found


def looking(n: int) -> Iterator[int]:
    try:
        for i in range(n):
            if i == n - 1:
                got = yield i
                LOG.append(got)
    except ValueError as error:
        yield -1
        LOG.append((type(error), sys.exc_info()[0]))
    finally:
        LOG.append("left")


def searches(x: Tensor, n: int) -> Any:
    """One advance takes many turns; then it is sent to, thrown into and closed."""
    found: list[Any] = []
    for leave in ("send", "throw", "close", "drop"):
        made: Any = looking(n)
        found += [next(made), made.gi_yieldfrom, made.gi_running, made.gi_code.co_name]
        try:
            if leave == "send":
                made.send(3)
            elif leave == "throw":
                found.append(made.throw(ValueError))
                next(made)
            elif leave == "close":
                found.append(made.close())
        except StopIteration as stop:
            found.append(stop.value)
        LOG.append("before")
        del made
    return x + 1, found


def picky(n: int) -> Any:
    return filter(lambda i: i >= n - 2, range(n))


def iterators_of_c(x: Tensor, n: int) -> Any:
    """Those of which one advance takes many turns, and those that are advanced many times."""
    found: list[Any] = []
    for made in (
        picky(n),
        itertools.filterfalse(lambda i: i < n - 2, range(n)),
        itertools.chain(*[()] * n, (1, 2)),
        itertools.chain.from_iterable(() if i < n - 1 else "ab" for i in range(n)),
    ):
        found += [next(made), next(made), next(made, None), next(made, None)]
    for made in (
        itertools.islice(Counted(n), n - 2, None),
        itertools.dropwhile(lambda i: i < n - 2, Counted(n)),
        itertools.compress(Counted(n), (i >= n - 2 for i in range(n))),
    ):
        found += [next(made), next(made), next(made, None), next(made, None)]
    for made in (
        map(pair, range(n), failing(n)),
        itertools.islice(Counted(n), 1, n - 2, 3),
        itertools.accumulate(Counted(n), max, initial=4),
        itertools.takewhile(lambda i: i < n - 2, Counted(n)),
        itertools.dropwhile(lambda i: i < 2, Counted(n)),
        itertools.starmap(pair, zip(Counted(n), Counted(n))),
        itertools.pairwise(Counted(n)),
        itertools.islice(itertools.cycle(Counted(n)), 2 * n + 3),
        itertools.zip_longest(Counted(n), Counted(n + 2)),
        itertools.product(Counted(n), Counted(2)),
        itertools.chain(Counted(n), Counted(3)),
        itertools.islice(Noticing(n), n - 3),
        zip(range(n), looking(n + 99)),
        enumerate("ab" * n),
    ):
        try:
            found += [next(made, None), len(list(made)), list(made)]  # type: ignore[call-overload]
        except KeyError as error:
            found.append(shown(error))
    return x + 1, found


class Counted:
    """An iterator of the program's."""

    def __init__(self, end: int) -> None:
        self.turn, self.end = 0, end

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        if self.turn == self.end:
            raise StopIteration("counted")
        self.turn += 1
        return self.turn - 1


class Noticing(Counted):
    """One that would notice if it were asked for its iterator once more."""

    def __iter__(self) -> Any:
        LOG.append("asked")
        return self


def pair(*values: int) -> Any:
    return values


PROGRAMS = [
    sums, nested, whiles, cells, handlers, caught_outside, callers, calls_inner, unbound,
    comprehends, generators, deaths, contexts, raising_generators, searches, iterators_of_c,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_long_loop_goes_on_in_cpython(
    program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = []
    resuming = handover.resuming
    monkeypatch.setattr(
        handover, "resuming", lambda *given: handed.append(given) or resuming(*given)
    )
    fast = anyshape.compile(program, options={"unroll_budget": TURNS})
    x = torch.ones(2)
    for n in (100, 100, 120, 3):
        expected = _result(program, x, n)
        assert _result(fast, x, n) == expected
    inlined = program is comprehends and sys.version_info >= (3, 12)
    assert handed or inlined  # what a comprehension has on the stack there is no value


def test_what_escapes_a_long_loop_has_its_own_lines() -> None:
    fast = anyshape.compile(raises, options={"unroll_budget": TURNS})
    found = []
    for fn in (raises, fast):
        with pytest.raises(ValueError, match="99") as caught:
            fn(torch.ones(2), 100)
        entries = traceback.extract_tb(caught.value.__traceback__)
        found.append([(e.name, e.lineno) for e in entries if e.filename == __file__][1:])
    assert found[0] == found[1]


def test_a_million_turns_take_little() -> None:
    fast = anyshape.compile(sums)
    result, total = fast(torch.ones(2), 3_000_000)
    assert total == sum(range(3_000_000))
    assert result.tolist() == [2.0, 2.0]


def longest(x: Tensor, n: int) -> Any:
    made = (i for i in range(n))
    found = [next(itertools.chain.from_iterable(() for _ in range(n)), None)]
    found += [sum(made), len([*map(str, range(n))]), next(filter(lambda i: i == n - 1, range(n)))]
    return x * 2, found


def longest_of_classes(x: Tensor, n: int) -> Any:
    found: list[Any] = [next(itertools.islice(Counted(n), n - 1, None))]
    found.append(sum(itertools.takewhile(lambda i: i < n - 1, Counted(n))))
    found.append(max(itertools.accumulate(Counted(n), lambda a, b: b)))
    return x * 2, found


def test_functions_of_itertools_of_many_turns_take_little() -> None:
    fast = anyshape.compile(longest_of_classes, options={"unroll_budget": 5000})
    started = time.process_time()
    result = fast(torch.ones(2), 100_000)
    assert str(result) == str(longest_of_classes(torch.ones(2), 100_000))
    assert time.process_time() - started < 15  # a tenth of what it takes interpreted


def test_generators_and_iterators_of_many_turns_take_little() -> None:
    fast = anyshape.compile(longest)
    started = time.process_time()
    result = fast(torch.ones(2), 400_000)
    assert str(result) == str(longest(torch.ones(2), 400_000))
    assert time.process_time() - started < 40  # 10 of them until capture gives up; else 100


def watched(x: Tensor, n: int) -> Any:
    held, total = Held(), 0
    ref = weakref.ref(held)
    for i in range(n):
        total += i
    del held
    return x + 1, total, ref()


def test_a_long_loop_behind_a_weak_reference_takes_little() -> None:
    fast = anyshape.compile(watched)
    started = time.process_time()
    assert str(fast(torch.ones(2), 1_000_000)) == str(watched(torch.ones(2), 1_000_000))
    assert time.process_time() - started < 8


def test_more_than_256_names() -> None:
    names = "\n".join(f"    v{i} = {i}" for i in range(300))
    adds = "\n".join(f"        v{i} += i" for i in range(300))
    text = f"def program(x, n):\n{names}\n    for i in range(n):\n{adds}\n    return x + v299, v0\n"
    space: dict[str, Any] = {}
    exec(text, space)
    fast = anyshape.compile(space["program"], options={"unroll_budget": TURNS})
    x = torch.ones(2)
    assert str(fast(x, 100)) == str(space["program"](x, 100))


def _result(fn: Callable[..., Any], x: Tensor, n: int) -> Any:
    LOG.clear()
    value = fn(x, n)
    log = [entry for entry in LOG if type(entry) is not weakref.ref]
    return str(value), str(log)


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def recursion(x: Tensor, n: int) -> Any:
    return x + 1, fibonacci(n)


def test_a_recursion_of_more_calls_than_capture_takes_goes_on_in_cpython() -> None:
    x, options = torch.ones(2), {"unroll_budget": TURNS}
    fast = anyshape.compile(recursion, options=options)
    for n in (12, 12, 13):
        assert str(fast(x, n)) == str(recursion(x, n))
    with pytest.raises(GraphBreakError, match="E220.*number of calls of functions"):
        anyshape.compile(recursion, fullgraph=True, options=options)(x, 12)
    assert anyshape.compile(recursion, fullgraph=True, options=options)(x, 6)[1] == 8
