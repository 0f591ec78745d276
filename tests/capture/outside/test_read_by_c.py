"""What C code reads of an outside container is relied on, whichever operator or method it is called by."""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.capture.by_reference import compiled

FIRST: tuple[Any, ...] = (
    [1, 2], (1, 2), {1: 2}, {1, 2}, frozenset([1, 2]), deque([1, 2]), OrderedDict({1: 2}),
    bytearray(b"ab"),
)  # fmt: skip
OTHER: tuple[Any, ...] = (
    [1, 3], (1, 3), {1: 3}, {1, 3}, frozenset([1, 3]), deque([1, 3]), OrderedDict({1: 3}),
    bytearray(b"ac"),
)  # fmt: skip
NAMES = (
    "__add__ __mul__ __rmul__ __mod__ __or__ __and__ __sub__ __xor__ __ror__ __rand__ __rsub__ "
    "__rxor__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __contains__ __len__ __repr__ "
    "copy count index get keys values items union intersection difference symmetric_difference "
    "issubset issuperset isdisjoint"
).split()
OPERATORS = (
    "add mul mod or_ and_ sub xor iadd imul imod ior iand isub ixor concat iconcat eq ne lt le gt "
    "ge contains countOf indexOf"
).split()


def _calls(given: Any, other: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name in NAMES:
        method = getattr(given, name, None)
        for args in ((), (other,), (2,)):
            if method is not None:
                yield name, lambda method=method, args=args: method(*args)  # type: ignore[misc]
    for name in OPERATORS:
        for operand in (other, 2):
            fn = getattr(operator, name)
            yield name, lambda fn=fn, operand=operand: fn(given, operand)  # type: ignore[misc]


def _shown(call: Callable[[], Any]) -> str:
    try:
        return repr(call())
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(FIRST)), ids=[type(v).__name__ for v in FIRST])
def test_another_content_gives_another_result(at: int) -> None:
    def program(x: Any, given: Any, other: Any, number: int) -> Any:
        name, call = list(_calls(given, other))[number]
        return x + 1, _shown(call)

    for number, (name, _) in enumerate(list(_calls(FIRST[at], FIRST[at]))):
        fast = compiled(program, fullgraph=False)
        for a, b in ((FIRST, FIRST), (OTHER, FIRST), (FIRST, OTHER)):
            kind = type(a[at])
            wanted = program(torch.ones(2), kind(a[at]), kind(b[at]), number)[1]
            found = fast(torch.ones(2), kind(a[at]), kind(b[at]), number)[1]
            assert found == wanted, name
        assert not fast.mistakes, name


def grown(x: Any, pair: tuple[Any, ...], members: frozenset[int], text: str) -> Any:
    pair += (5,)
    pair *= 2
    members |= {7}
    members -= {7}
    text %= (*members,)
    return x + 1, pair, sorted(members), text


def test_what_a_tuple_holds_is_that_of_this_call() -> None:
    fast = compiled(grown)
    for count in (1, 2, 3):
        inner = [count]
        _, pair, members, text = fast(torch.ones(2), (inner, count), frozenset([count]), "%s")
        wanted = grown(torch.ones(2), (inner, count), frozenset([count]), "%s")
        assert (pair, members, text) == wanted[1:]
        assert pair[0] is inner
