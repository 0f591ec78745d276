"""Files in memory that capture makes and owns, and what is pickled into them by `pickle`'s own Python:
no graph breaks, and over a break they are what they were."""

from __future__ import annotations

import contextlib
import io
import logging
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape


class Plain:
    def __init__(self) -> None:
        self.items = [1, self]
        self.text = "x"


class Empty:
    def __setstate__(self, state: Any) -> None:
        raise AssertionError("there is no state")


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self) -> None:
        self.left = 3


class Counted(int):
    def __getnewargs__(self) -> Any:
        LOG.append("arguments")
        return (int(self) + 1,)


class Named:
    def __new__(cls, *args: Any, **kwargs: Any) -> Named:
        made = super().__new__(cls)
        made.given = (args, kwargs)  # type: ignore[attr-defined]
        return made

    def __getnewargs_ex__(self) -> Any:
        return (1,), {"two": 2}


class Wrong:
    def __getnewargs__(self) -> Any:
        return [1]


class Items(list[Any]):
    pass


LOG: list[str] = []
LOGGER, HANDLER = logging.getLogger("anyshape.owned"), logging.StreamHandler(io.StringIO())
LOGGER.addHandler(HANDLER)


def written() -> Any:
    file = io.BytesIO(b"abc")
    counts = file.write(b"xy"), file.tell(), file.seek(0)
    file.writelines([b"1", b"2\n", b"3"])
    file.truncate()
    return counts, file.getvalue(), file.read(), file.seek(1), file.readline(), list(file)


def read_as_text() -> Any:
    with io.StringIO("a\r\nb\n", newline="") as file:
        lines = [line for line in file]
        file.write("c")
        found = file.getvalue(), file.closed
    return lines, found, file.closed


def refused() -> Any:
    file = io.StringIO()
    file.close()
    return file.write("a")


def of_another_kind() -> Any:
    return io.BytesIO().write("text")  # type: ignore[arg-type]


def viewed() -> Any:
    view = io.BytesIO(b"abc").getbuffer()
    return len(view), view[1], bytes(view)


def dumped(value: Any, protocol: int) -> bytes:
    file = io.BytesIO()
    pickle._Pickler(file, protocol).dump(value)  # type: ignore[attr-defined]
    return file.getvalue()


def pickled(value: Any) -> Callable[[], Any]:
    def run() -> Any:
        texts = [dumped(value, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
        again = [pickle._Unpickler(io.BytesIO(text)).load() for text in texts]  # type: ignore[attr-defined]
        return texts, [dumped(other, 4) for other in again], [type(other) for other in again]

    return run


CASES: dict[str, Callable[[], Any]] = {
    "written": written,
    "text": read_as_text,
    "closed": refused,
    "of another kind": of_another_kind,
    "viewed": viewed,
    "pickled containers": pickled({"a": [1, (2.5, None)], "b": b"\x00\xff", "c": {1}, "d": 10**30}),
    "pickled objects": pickled(Plain()),
    "pickled list": pickled(Items([1, [2]])),
    "pickled number": lambda: (pickled(Counted(3))(), LOG[-1]),
    "pickled arguments": lambda: (Named().__reduce_ex__(4)[1], dumped(Wrong, 4)),
    "pickled slots": lambda: [dumped(Slotted(), p) for p in (2, 4)],
    "bad arguments": lambda: dumped(Wrong(), 4),
    "slots of the first protocols": lambda: dumped(Slotted(), 1),
    "nothing to pickle": lambda: [dumped(Empty(), p) for p in range(5)],
    "reduced": lambda: (Plain().__reduce_ex__(2)[:2], Empty().__reduce_ex__(4)[2:], 3),
}


def outcome(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", CASES)
def test_files_in_memory_break_no_graph(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, outcome(CASES[name])

    wanted = program(torch.ones(2))[1]
    fast = anyshape.compile(program, fullgraph=True)
    for _ in range(2):
        assert fast(torch.ones(2))[1] == wanted


def test_a_file_goes_over_a_break_as_it_is() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        file, text, shut = io.BytesIO(b"abc"), io.StringIO("a\nb", newline="\n"), io.BytesIO()
        file.read(1)
        file.note = [file]  # type: ignore[attr-defined]
        text.readline()
        shut.close()
        time.monotonic()
        assert file.note[0] is file  # type: ignore[attr-defined]
        text.write("c")
        return y * 2, file.read(), text.getvalue(), shut.closed, file

    fast = anyshape.compile(program)
    for _ in range(2):
        *_, rest, text, closed, file = fast(torch.ones(2))
        assert (rest, text, closed, type(file)) == (b"bc", "a\nc", True, io.BytesIO)
    assert fast(torch.ones(2))[-1] is not file


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", ["print", "warn", "warn through sys", "log", "print to it"])
def test_what_others_write_to_a_file_is_in_it(what: str) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        file = io.StringIO()
        if what == "print":
            with contextlib.redirect_stdout(file):
                print("told", 3)
        elif what == "warn":
            with contextlib.redirect_stderr(file), warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.warn("told", stacklevel=1)
        elif what == "log":
            before, HANDLER.stream = HANDLER.stream, file
            LOGGER.error("told")
            HANDLER.stream = before
        elif what == "warn through sys":
            before, sys.stderr = sys.stderr, file
            warnings.warn("told", stacklevel=1)
            sys.stderr = before
        else:
            print("told", file=file)
        return y * 2, "told" in file.getvalue()

    wanted, out = program(torch.ones(2))[1], sys.stdout
    fast = anyshape.compile(program)
    for _ in range(2):
        assert fast(torch.ones(2))[1] is wanted
    assert sys.stdout is out


@pytest.mark.filterwarnings("ignore")
def test_a_file_that_is_written_to_while_it_was_viewed() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        file = io.BytesIO(b"abc")
        view = file.getbuffer()
        size = len(view)
        del view
        file.write(b"longer than it was")
        return y * 2, size, file.getvalue()

    fast = anyshape.compile(program)
    for _ in range(2):
        assert fast(torch.ones(2))[1:] == (3, b"longer than it was")


@pytest.mark.filterwarnings("ignore")
def test_a_file_that_is_written_on_one_side_of_a_branch() -> None:
    def program(x: torch.Tensor) -> Any:
        file = io.BytesIO()
        if x.shape[0] > 2:
            file.write(b"many")
        else:
            file.write(b"few")
        return x + 1, file.getvalue()

    fast = anyshape.compile(program)
    for size, text in ((2, b"few"), (3, b"many"), (2, b"few"), (5, b"many")):
        assert fast(torch.ones(size))[1] == text


@pytest.mark.filterwarnings("ignore")
def test_subclasses_of_files_are_called() -> None:
    class Loud(io.StringIO):
        def write(self, text: str) -> int:
            LOG.append(text)
            return super().write(text)

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        file = Loud()
        time.monotonic()
        file.write("a")
        return y * 2, file.getvalue(), type(file)

    fast = anyshape.compile(program)
    for _ in range(2):
        LOG.clear()
        assert fast(torch.ones(2))[1:] == ("a", Loud)
        assert LOG == ["a"]
