"""Branches on sizes: both sides run to where they meet, and only what is really different is
guarded."""

from __future__ import annotations

import itertools
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.capture.interpreter import liveness
from anyshape.capture.interpreter.control_flow import RETURN, meeting_point
from anyshape.capture.interpreter.frame import decode
from anyshape.capture.interpreter.opcodes import OPCODE_HANDLERS, PREPARE
from anyshape.errors import PerformanceWarning
from tests.capture.by_reference import agree, compiled, same

ALL = [(torch.randn(n, 4),) for n in (3, 1, 0, 2, 64)]


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def is_causal(x: Tensor) -> Tensor:
    q = x[None, None]
    causal = x.shape[0] > 1 and x.shape[1] == 4
    return F.scaled_dot_product_attention(q, q, q, is_causal=causal)


def returns_a_bool(x: Tensor) -> Any:
    def ignored(n: int) -> bool:
        if n == 1 or n == 0:
            return True
        return False

    return x + 1, ignored(x.shape[0])


def identity_under_the_condition(x: Tensor) -> Tensor:
    y = x[:1]
    if x.shape[0] != 1:
        y = y.expand(x.shape[0], -1)
    return y * 2


def one_is_the_general_case(x: Tensor) -> Any:
    n = 1 if x.shape[0] == 1 else x.shape[0]
    return x.reshape(n, 2, 2)


def clamped(x: Tensor, limit: int = 2) -> Tensor:
    n = x.shape[0] if x.shape[0] < limit else limit
    return x[:n]


def selected_float(x: Tensor) -> Tensor:
    scale = 2.0
    if x.shape[0] > 2:
        scale = 3.0
    return x * scale


def selected_int(x: Tensor) -> Tensor:
    return x * (10 if x.shape[0] > 2 else 20)


def chained(x: Tensor) -> Any:
    return x.shape[0] > 1 and x.shape[1] == 4 and x.shape[0] < 50


def nested(x: Tensor) -> Any:
    if x.shape[0] > 1:
        kind = x.shape[0] > 10
    else:
        kind = False
    return x, kind


def same_work_on_both_sides(x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        y = torch.relu(x) + 1
    else:
        y = torch.relu(x) + 1
    return y * 2


JOINED: dict[str, Callable[[Tensor], Any]] = {
    "is_causal": is_causal,
    "returned bool": returns_a_bool,
    "identity": identity_under_the_condition,
    "general": one_is_the_general_case,
    "minimum": clamped,
    "float": selected_float,
    "int": selected_int,
    "and": chained,
    "nested": nested,
    "same work": same_work_on_both_sides,
}


@pytest.mark.parametrize("name", JOINED)
def test_sides_that_meet_are_one_specialization(name: str) -> None:
    calls = [
        call for call in ALL if call[0].shape[0] or name not in ("is_causal", "identity", "general")
    ]
    fast = agree(JOINED[name], *calls)
    stats = fast.stats()
    assert stats.specializations == 1, fast.recompiles()
    assert stats.guarded == 0 and stats.joined > 0


def rank_changes(x: Tensor) -> Tensor:
    return x.squeeze(0) if x.shape[0] == 1 else x


def one_side_raises(x: Tensor) -> Tensor:
    if x.shape[0] > 10:
        raise ValueError(f"too long: {x.shape[0]}")
    return x + 1


def different_work(x: Tensor) -> Tensor:
    return torch.sin(x) if x.shape[0] > 10 else torch.cos(x)


def other_shapes(x: Tensor) -> Tensor:
    return x[:, :1] + 1 if x.shape[0] > 10 else torch.cos(x)


def writes_outside(x: Tensor) -> list[int]:
    log: list[int] = []
    if x.shape[0] > 10:
        log.append(1)
    return log


GUARDED = {f.__name__: f for f in (rank_changes, different_work, writes_outside)}


@pytest.mark.parametrize("name", GUARDED)
def test_sides_that_differ_are_guarded_by_the_relation_not_the_value(name: str) -> None:
    fast = agree(GUARDED[name], *[(torch.randn(n, 4),) for n in (3, 5, 7, 1, 1, 20, 30, 2)])
    assert fast.stats().specializations <= 3, fast.recompiles()
    assert fast.stats().joined == 0


def test_a_side_that_raises_is_left_to_the_other() -> None:
    fast = compiled(one_side_raises)
    same(fast(torch.zeros(3, 4)), torch.ones(3, 4))
    with pytest.raises(ValueError, match="too long: 11"):
        fast(torch.zeros(11, 4))
    same(fast(torch.zeros(9, 4)), torch.ones(9, 4))
    assert fast.stats().specializations == 1


def test_nothing_of_the_side_not_taken_stays() -> None:
    log: list[str] = []

    def program(x: Tensor) -> Tensor:
        if x.shape[0] > 10:
            log.append("long")
            return x * 2
        log.append("short")
        return x * 3

    fast = compiled(program)
    for n in (3, 20, 4):
        fast(torch.ones(n, 4))
    assert log == ["short", "long", "short"]


def test_an_unbacked_branch_joins_or_breaks_with_the_line_that_would_help() -> None:
    x = torch.randn(5, 4)
    anyshape.mark_unbacked(x, 0)
    same(compiled(selected_float)(x), x * 3)
    with pytest.raises(anyshape.errors.GraphBreakError, match=r"check\("):
        compiled(other_shapes)(x)


def jumps(fn: types.FunctionType) -> list[tuple[str, int]]:
    code = decode(fn.__code__, OPCODE_HANDLERS, PREPARE)
    found = []
    for index, (name, _) in enumerate(code.opcodes):
        if "JUMP_IF" in name or "IF_TRUE" in name or "IF_FALSE" in name:
            found.append((name, meeting_point(code, index)[0]))
    return found


def test_meeting_points_are_postdominators() -> None:
    def falls_together(n: int) -> int:
        if n > 1:
            a = 1
        else:
            a = 2
        return a

    def returns_early(n: int) -> int:
        if n > 1:
            return 1
        return 2

    def raises(n: int) -> int:
        if n > 1:
            raise ValueError
        return n

    assert jumps(falls_together)[0][1] != RETURN
    assert jumps(returns_early)[0][1] == RETURN
    assert jumps(raises)[0][1] != RETURN  # a path that only raises does not count


def test_what_lives_is_worked_out_once_for_each_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many branches are joined in it."""
    asked: list[Any] = []
    worked_out = liveness._worked_out
    monkeypatch.setattr(liveness, "_worked_out", lambda c: asked.append(c) or worked_out(c))

    def program(x: Tensor) -> Tensor:
        for _ in range(6):
            scale = 10 if x.shape[0] > 2 else 20
            x = x * scale
        return x

    fast = anyshape.compile(program)
    for n in (4, 1):
        assert torch.equal(fast(torch.ones(n)), program(torch.ones(n)))
    assert fast.stats().programs == 1
    assert asked and len(asked) == len({id(code) for code in asked})


def test_copies_of_one_end_are_one_meeting_point() -> None:
    """CPython 3.12 copies a short end into each branch; 3.11 shares it. Both meet before it."""

    def chosen(x: Any, n: int) -> Any:
        return x * (10 if n > 2 else 20)

    def raised(n: int) -> int:
        if n > 2:
            return -1
        raise ValueError

    ((_, meeting),) = jumps(chosen)
    code = decode(chosen.__code__, OPCODE_HANDLERS, PREPARE)
    assert code.opcodes[meeting][0] == "BINARY_OP"
    assert jumps(raised)[0][1] != RETURN


def test_a_number_read_on_one_side_only_is_not_joined() -> None:
    def program(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        mean = x.mean().item() if x.numel() else -1.0
        return mean, x * mean

    fast = compiled(program)
    for count in (3, 1, 0, 5, 0):
        x = torch.arange(float(count))
        same(fast(x), program(x))
    assert not fast.warned


def the_largest_that_passed(x: Tensor) -> Tensor:
    y = x[x > 0]
    return x * (int(y.max()) + 1 if y.numel() > 0 else 0)


def how_many_passed(x: Tensor) -> Tensor:
    y = x[x > 0]
    return x * (y[y > 2].shape[0] if y.numel() > 3 else 7)


def as_a_float(x: Tensor) -> Tensor:
    return x * (float(x.max()) if x.shape[0] > 3 else float(x.sum()))


def as_a_bool(x: Tensor) -> Tensor:
    y = x[x > 0]
    return x + 1 if (int(y.max()) > 4 if y.numel() > 2 else False) else x - 1


@pytest.mark.parametrize(
    "program", [the_largest_that_passed, how_many_passed, as_a_float, as_a_bool]
)
def test_a_size_or_flag_read_on_one_side_only_is_not_joined(program: Callable[..., Any]) -> None:
    fast = anyshape.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PerformanceWarning)
        for count in (10, 3, 1, 30, 4, 2):
            torch.manual_seed(count)
            x = torch.randint(-9, 9, (count,))
            same(fast(x), program(x))
    assert fast.stats().specializations > 0


ITERATORS: dict[str, Callable[[], Any]] = {
    "values of a dictionary": lambda: iter({n: n for n in range(1, 9)}.values()),
    "keys": lambda: iter(dict.fromkeys(range(1, 9))),
    "items": lambda: iter({n: n for n in range(1, 9)}.items()),
    "a set": lambda: iter({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}),
    "a deque": lambda: iter(deque(range(1, 9))),
    "zip": lambda: zip(range(1, 9), range(9)),
    "enumerate": lambda: enumerate(range(1, 9)),
    "a range": lambda: iter(range(1, 9)),
    "chain": lambda: itertools.chain([1, 2], [3, 4, 5, 6]),
    "islice": lambda: itertools.islice(range(9), 7),
    "count": lambda: itertools.count(1),
    "a list": lambda: iter([1, 2, 3, 4, 5, 6]),
    "map": lambda: map(float, range(1, 9)),
    "a generator": lambda: (n for n in range(9)),
}


def number_of(element: Any) -> Any:
    return element[-1] if isinstance(element, tuple) else element


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_that_others_hold_is_one_after_a_branch(name: str) -> None:
    make = ITERATORS[name]

    def looped(x: Tensor) -> Tensor:
        elements = make()
        holders = [elements]
        n = 0
        for element in elements:
            factor = 2 if x.shape[0] > 3 + n else 5
            n = n + 1
            x = x * factor + number_of(element) + number_of(next(holders[0])) * 10
            if n == 2:
                break
        return x

    def generated(x: Tensor) -> Tensor:
        elements = make()
        generator = (element for element in elements)
        first = number_of(next(generator))
        factor = 2 if x.shape[0] > 3 else 5
        second, third = number_of(next(elements)), number_of(next(generator))
        return x * factor + first + second * 10 + third * 100

    def advanced_on_both_sides(x: Tensor) -> Tensor:
        elements = make()
        holders = (elements,)
        first = number_of(next(elements)) if x.shape[0] > 3 else number_of(next(holders[0])) * 2
        return x + first + number_of(next(elements)) * 10

    for program in (looped, generated, advanced_on_both_sides):
        fast = anyshape.compile(program)
        for size in (2, 5, 4, 3, 6):
            x = torch.ones(size)
            same(fast(x), program(x))


def test_no_warning_of_ours_reaches_a_program_that_makes_objects_on_a_side() -> None:
    def program(x: Tensor) -> Tensor:
        scale = types.SimpleNamespace(by=2) if x.shape[0] > 2 else types.SimpleNamespace(by=3)
        return x * scale.by

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(program, (torch.ones(4, 2),), (torch.ones(1, 2),), fullgraph=False)
