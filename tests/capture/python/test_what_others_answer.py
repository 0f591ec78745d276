"""What code of the program answers in C's place: a stream that is printed to, a `__getattribute__`
of an object that lives on behind a break, the `mro` of a metaclass; and a bytearray that a view
locks. `fullgraph=False`, beside CPython.
"""

from __future__ import annotations

import collections
import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


class Stream:
    def __init__(self) -> None:
        self.got: list[str] = []

    def write(self, text: str) -> None:
        self.got.append(text)


class Silent:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} is asked for")


class Listening:
    asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        Listening.asked.append(name)
        return object.__getattribute__(self, name)


def printed_to_a_stream_of_the_program(x: Tensor) -> Any:
    stream = Stream()
    with contextlib.redirect_stdout(stream):  # type: ignore[type-var]
        print("a", 1)
        count = len(stream.got)
    return x + 1, count, stream.got


def printed_to_what_refuses(x: Tensor) -> Any:
    with contextlib.redirect_stdout(Silent()):  # type: ignore[type-var]
        try:
            print("a")
        except RuntimeError as error:
            return x + 1, repr(error)
    return x, "nothing"


def held_over_a_break(x: Tensor) -> Any:
    Listening.asked.clear()
    listening = Listening()
    listening.a = 1
    os.getpid()
    listening.b = x + 1
    os.getpid()
    return object.__getattribute__(listening, "b"), tuple(Listening.asked)


def moved_to_another_base(x: Tensor) -> Any:
    class Meta(type):
        def mro(cls) -> list[type]:
            called.append(cls.__name__)
            return super().mro()

    called: list[str] = []
    first, second = Meta("First", (), {"n": 1}), Meta("Second", (), {"n": 2})
    third = Meta("Third", (first,), {})
    before = third.n, len(called)
    third.__bases__ = (second,)
    return x * third.n, before, called, third.__mro__.index(second)


def joined_while_it_is_cleared(x: Tensor) -> Any:
    separator = bytearray(b",")

    def parts() -> Iterator[bytes]:
        separator.clear()
        yield b"A"

    try:
        return x, separator.join(parts())
    except BufferError:
        return x + 1, bytes(separator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        printed_to_a_stream_of_the_program,
        printed_to_what_refuses,
        held_over_a_break,
        moved_to_another_base,
        joined_while_it_is_cleared,
    ],
)
def test_code_of_the_program_answers_when_it_is_asked(program: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(program)
    for length in (3, 1, 4):
        x = torch.arange(float(length))
        found, wanted = fast(x), program(x)
        assert torch.equal(found[0], wanted[0])
        assert found[1:] == wanted[1:]
    assert fast.stats().internal_errors == 0


def lock_is_held_outside(x: Tensor, written: bytearray) -> Tensor:
    written.append(7)
    return x + len(written)


def test_a_bytearray_that_is_locked_refuses() -> None:
    fast, written, x = anyshape.compile(lock_is_held_outside), bytearray(b"a"), torch.zeros(3)
    assert torch.equal(fast(x, written), x + 2)
    with memoryview(written), pytest.raises(BufferError):
        fast(x, written)
    assert written == b"a\x07"
    assert torch.equal(fast(x, written), x + 3)


def closing(values: Any) -> Iterator[Any]:
    try:
        yield from values
    finally:
        torch.is_tensor(values)


def refused_by_c_in_a_generator(x: Tensor, into: Any) -> Tensor:
    y = x + 1
    into.extendleft(closing(object()))
    return y


def lines_of(error: BaseException) -> list[str]:
    names = [part.name for part in traceback.extract_tb(error.__traceback__)]
    return [name for name in names if name in ("closing", "refused_by_c_in_a_generator")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [1, 2, 3, 4])
def test_what_c_raises_is_another_exception_in_each_call(every: int) -> None:
    fast = anyshape.compile(refused_by_c_in_a_generator, options={"break_every": every})
    raised = []
    for length in (3, 1, 4):
        with pytest.raises(TypeError) as info:
            fast(torch.zeros(length), collections.deque([1]))
        raised.append(info.value)
        assert lines_of(info.value) == ["refused_by_c_in_a_generator", "closing"]
    assert len({*map(id, raised)}) == 3
