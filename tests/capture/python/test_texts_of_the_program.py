"""C code that calls a function for each match, that shows objects of the program in a text, or that
depends on the values it is given alone: no graph breaks, and what is called is called as natively."""

from __future__ import annotations

import _codecs
import binascii
import codecs
import dataclasses
import re
import reprlib
import string
import types
import typing
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

import anyshape

LOG: list[str] = []
T = typing.TypeVar("T")
S = typing.TypeVar("S")


class Shown:
    def __init__(self, text: Any) -> None:
        self.text = text

    def __str__(self) -> str:
        LOG.append(f"str {self.text}")
        return self.text  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        LOG.append(f"repr {self.text}")
        return f"<{self.text}>"


class Mapped(Shown):
    def __getitem__(self, key: str) -> str:
        return key * 2


class Double:
    def __call__(self, match: re.Match[str]) -> str:
        LOG.append(match[0])
        return match[0] * 2


OUTSIDE = Shown("out")
TWO = "%s %s"


def noted(match: re.Match[str]) -> str | None:
    LOG.append(f"{match.group()} {match.span()}")
    return match.group().upper() if match.group() != "b" else None


def failing(match: re.Match[str]) -> str:
    LOG.append(match[0])
    raise LookupError(match[0])


class Meta(type):
    pass


class Base(metaclass=Meta):
    pass


class Derived(Base):
    def __new__(cls) -> Derived:
        return super().__new__(cls)


CASES: dict[str, Callable[[], Any]] = {
    "each match": lambda: re.sub(r"\w", noted, "a.b.c"),
    "how often": lambda: re.compile(r"\w").subn(noted, "abc", 2),
    "never": lambda: re.compile(r"\w").subn(noted, "abc", -1),
    "nothing": lambda: re.subn(r"x", noted, ""),
    "empty matches": lambda: re.sub(r"x*", lambda m: f"-{m.start()}", "axb"),
    "bytes": lambda: re.sub(rb"b", lambda m: m[0] * 2, b"abc"),
    "an object": lambda: re.compile("a|b").sub(Double(), "abc"),
    "a method": lambda: re.compile("a").sub("{}".format, "abca"),
    "by name": lambda: re.compile("a").sub(string="aba", repl=noted, count=1),
    "no text": lambda: re.sub("a", lambda m: 3, "ba"),  # type: ignore[arg-type, return-value]
    "raising": lambda: re.sub("a|b", failing, "cab"),
    "bytes in a text": lambda: re.sub(b"a", noted, "abc"),  # type: ignore[call-overload]
    "template": lambda: string.Template("$who ${what} $$").substitute(who=OUTSIDE, what=[1]),
    "formatter": lambda: string.Formatter().vformat(
        "{0.text} {a[0]} {1!r:>5}", (OUTSIDE, 2), {"a": "xy"}
    ),
    "bad format": lambda: list(string.Formatter().parse("a{b} }")),
    "percent": lambda: "%s %r %5s|%-6s|%d%%" % (Shown("a"), OUTSIDE, Shown("b"), Shown("c"), 3),
    "percent of one": lambda: "at %s" % Shown("a"),
    "percent, no text": lambda: "%s %s" % (Shown("a"), Shown(3)),
    "percent, too few": lambda: TWO % (Shown("a"),),
    "percent of codecs": lambda: (_codecs.encode("é", "latin1"), codecs.escape_decode(b"a\\n")),  # type: ignore[attr-defined]
    "percent of sums": lambda: (
        binascii.hexlify(b"ab"),
        zlib.crc32(b"ab"),
        binascii.unhexlify(b"x"),
    ),
    "characters": lambda: (unicodedata.lookup("LATIN SMALL LETTER A"), unicodedata.name("é")),
    "mro": lambda: (Derived.mro(), Base.mro()[0] is Base),
    "parameters": lambda: (
        typing.Generic[T],
        dict[T, S][int, str],
        typing.Callable[[T], S],
        list[T],
    ),  # type: ignore[index, misc, valid-type]
}
BROKEN = {"percent, too few"}  # where C refuses after it has asked for a text


def outcome(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_what_is_called_is_called_as_natively(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, outcome(CASES[name])

    LOG.clear()
    wanted, asked = program(torch.ones(2))[1], LOG[:]
    fast = anyshape.compile(program, fullgraph=name not in BROKEN)
    for _ in range(2):
        LOG.clear()
        assert fast(torch.ones(2))[1] == wanted
        assert asked == LOG


@pytest.mark.filterwarnings("ignore")
def test_a_mapping_is_shown_by_its_names() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, "%(a)s" % Mapped("no"), "%s" % Mapped("yes")

    fast = anyshape.compile(program)
    for _ in range(2):
        assert fast(torch.ones(2))[1:] == ("aa", "yes")


def test_sizes_beside_objects_are_shown() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return (
            y * 2,
            "%s of %s" % (Shown("part"), x.shape[0]),
            re.sub("a", lambda m: f"{len(x)}", "ba"),
        )

    fast = anyshape.compile(program)
    for size in (2, 3, 5):
        assert fast(torch.ones(size))[1:] == (f"part of {size}", f"b{size}")


class Pair(NamedTuple):
    first: Any
    second: Any


class Silent(tuple[Any, ...]):
    """C asks none of its methods for what lies in it."""

    def __iter__(self) -> Iterator[Any]:
        raise KeyError

    def __len__(self) -> int:
        return 7


@dataclasses.dataclass
class Tree:
    value: Any
    parts: list[Any] = dataclasses.field(default_factory=list)


class Endless:
    def __init__(self) -> None:
        self.parts = [self, Tree(1)]

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        return f"Endless({self.parts!r})"


RUNNING = {7}


def test_what_is_kept_while_a_text_is_made_is_gone_behind_it() -> None:
    """The set of what is being shown lies outside."""

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        RUNNING.discard(7)
        RUNNING.add(7)
        return y, repr(Tree(1, [Tree(x.shape[0])])), f"{Endless()}", str([Endless(), Tree(2)])

    fast = anyshape.compile(program, fullgraph=True)
    for size in (2, 3, 5):
        x = torch.ones(size)
        assert fast(x)[1:] == program(x)[1:]
        assert RUNNING == {7}


def test_named_tuples_of_sizes_are_shown() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        pair = Pair(x.shape[0], Shown("part"))
        nested = Pair(Pair(x.shape[0], 1.5), "b")
        shown = repr(pair), f"{nested}", "%r-%s" % pair, "%d %s" % Silent((x.shape[0], "a"))
        return y * 2, *shown

    fast = anyshape.compile(program, fullgraph=True)
    for size in (2, 3, 5):
        x = torch.ones(size)
        assert fast(x)[1:] == program(x)[1:]


@pytest.mark.filterwarnings("ignore")
def test_a_handler_of_errors_that_the_program_has_registered_is_called() -> None:
    codecs.register_error("anyshape.noted", lambda error: (LOG.append("handled") or "?", error.end))

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return (
            y * 2,
            _codecs.ascii_encode("é", "anyshape.noted"),
            _codecs.encode("é", "ascii", "anyshape.noted"),
        )

    fast = anyshape.compile(program)
    for _ in range(2):
        LOG.clear()
        assert fast(torch.ones(2))[1:] == ((b"?", 1), b"?")
        assert LOG == ["handled", "handled"]


def test_another_parameter_is_another_result() -> None:
    def program(x: torch.Tensor, parameter: Any) -> Any:
        return x + 1, typing.Generic[parameter]

    fast = anyshape.compile(program, fullgraph=True)
    for parameter in (T, S, T):
        assert fast(torch.ones(2), parameter)[1].__parameters__ == (parameter,)


def test_aliases_and_proxies_leave_the_function() -> None:
    def program(x: torch.Tensor, given: dict[str, int]) -> Any:
        y = x + 1
        own = {"a": [1]}
        shown = types.MappingProxyType(own)
        own["b"] = [2]
        return y * 2, list[int], (*tuple[int, ...],), own, shown, types.MappingProxyType(given)

    fast = anyshape.compile(program, fullgraph=True)
    for count in (1, 1, 2):
        given = {"c": count}
        found, wanted = fast(torch.ones(2), given), program(torch.ones(2), given)
        assert found[1:] == wanted[1:]
        assert [type(each) for each in found[1:]] == [type(each) for each in wanted[1:]]
        assert found[4]["a"] is found[3]["a"]
        found[3]["d"] = []
        given["e"] = 5
        assert found[4]["d"] is found[3]["d"]
        assert found[5]["e"] == 5
