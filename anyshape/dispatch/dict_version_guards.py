"""Have these dictionaries changed since their guards were last tested? One number each, in C.

In: guards that the content of one pinned dictionary decides, or pointers inside an object (the
class of a module, the code of a function). Out: a function that says whether they hold. A model of
some depth has thousands of them (attributes of modules, names of globals) in hundreds of
dictionaries. CPython 3.11 and 3.12 give a dictionary a new number whenever it is written to; where
the number is that of the last test, nothing is asked. Where it is not, the guards of that
dictionary are tested again. (3.13 writes attributes into the object, and leaves the number of its
dictionary: there, guards are tested one by one.)
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from anyshape.capture.guards.guard_code import Guard, compile_test, dict_of_class, dict_read
from anyshape.capture.guards.guard_failures import holds
from anyshape.dispatch.native_guards import compared
from anyshape.errors import MISTAKES, AnyshapeError
from anyshape.nouns import mutable
from anyshape.options import Options

MANY = 64  # fewer guards are tested one by one, in less time
NUMBER = 24  # where a dictionary has its number, in bytes
WORD_CHANGED = -2
CLASS = 8  # where an object has its class
VERSIONS = ((3, 11), (3, 12))


def number_of(table: dict[Any, Any]) -> int:
    """The dictionary's number, another one after each write."""
    return ctypes.c_int64.from_address(id(table) + NUMBER).value


@functools.cache
def dictionaries_are_numbered() -> bool:
    """Tried, not assumed: every way to write gives a new number, and reading does not."""
    if sys.version_info[:2] not in VERSIONS or sys.implementation.name != "cpython":
        return False

    class Object:
        pass

    thing = Object()
    table = vars(thing)
    seen = [number_of(table)]

    def changes(write: Callable[[], object]) -> bool:
        write()
        seen.append(number_of(table))
        return seen[-1] != seen[-2]

    writes: tuple[Callable[[], object], ...] = (
        lambda: setattr(thing, "name", 1),
        lambda: setattr(thing, "name", 2),
        lambda: table.update(name=3, other=4),
        lambda: table.__setitem__("name", 5),
        lambda: table.setdefault("third", 6),
        lambda: delattr(thing, "other"),
        lambda: table.pop("third"),
        lambda: table.clear(),
    )
    if not all(map(changes, writes)) or changes(lambda: table.get("name")):
        return False
    table = dict_of_class(Object) or {}
    seen.append(number_of(table))
    return changes(lambda: setattr(Object, "name", 1)) and changes(lambda: delattr(Object, "name"))


@functools.cache
def function_offsets() -> tuple[int, ...] | None:
    """Where a function has its code and its defaults, in bytes; None where that is not plain."""

    def sample(x: object = (), *, y: object = ()) -> None:
        """Has both kinds of defaults."""

    words = list((ctypes.c_int64 * 12).from_address(id(sample)))
    wanted = [id(sample.__code__), id(sample.__defaults__), id(sample.__kwdefaults__)]
    plain = all(words.count(word) == 1 for word in wanted)
    return tuple(8 * words.index(word) for word in wanted) if plain else None


@functools.cache
def mro_offset() -> int | None:
    """Where a class has its MRO, in bytes; None where that is not plain."""

    class Sample:
        """Has an MRO of its own."""

    words = list((ctypes.c_int64 * 50).from_address(id(Sample)))
    wanted = id(Sample.__mro__)
    return 8 * words.index(wanted) if words.count(wanted) == 1 else None


BY_WORDS = frozenset({"type", "mro", "function"})
"""Guards that words inside the object itself decide."""


def word_addresses(guard: Guard) -> tuple[int, ...]:
    """The addresses of the words that decide the guard; none where more does."""
    if guard.kind not in BY_WORDS or not guard.source.is_constant:
        return ()
    address = id(guard.source.pinned)
    if guard.kind == "type":
        return (address + CLASS,)
    if guard.kind == "mro":
        offset = mro_offset()
        return () if offset is None else (address + offset,)
    return tuple([address + offset for offset in function_offsets() or ()])


@mutable(eq=False)
class DictVersionGuards:
    """Guards by the dictionary that decides them; ``numbers`` are from when they last held. And
    those that words decide."""

    dicts: Sequence[dict[Any, Any]]
    guards: Sequence[Sequence[Guard]]
    tests: list[Callable[[], bool] | None]
    numbers: Any
    changed: Callable[..., int]
    given: tuple[int, ...]
    kept: Any
    by_words: Sequence[Guard] = ()

    @classmethod
    def of(cls, guards: Sequence[Guard], options: Options) -> DictVersionGuards | None:
        """Those of the guards that dictionaries decide; None where it is not worth it."""
        if len(guards) < MANY:
            return None
        found: dict[int, tuple[dict[Any, Any], list[Guard]]] = {}
        by_words = [guard for guard in guards if word_addresses(guard) and holds(guard)]
        for guard in guards:
            table = dict_read(guard)
            if table is not None:
                found.setdefault(id(table), (table, []))[1].append(guard)
        count = len(by_words) + sum(len(some) for _, some in found.values())
        if count < MANY or not dictionaries_are_numbered():
            return None
        changed = _changed(options)
        if changed is None:
            return None
        dicts = [table for table, _ in found.values()]
        numbers = (ctypes.c_int64 * len(dicts))()  # none of a dictionary: all are tested first
        addresses = (ctypes.c_int64 * len(dicts))(*map(id, dicts))
        words = [address for guard in by_words for address in word_addresses(guard)]
        pointers = (ctypes.c_int64 * len(words))(*words)
        expected = (ctypes.c_int64 * len(words))(
            *(ctypes.c_int64.from_address(address).value for address in words)
        )
        given = (
            *(len(words), ctypes.addressof(pointers), ctypes.addressof(expected)),
            *(len(dicts), ctypes.addressof(addresses), ctypes.addressof(numbers)),
        )
        tests: list[Callable[[], bool] | None] = [None] * len(dicts)
        some_guards = [some for _, some in found.values()]
        kept = addresses, pointers, expected
        made = cls(dicts, some_guards, tests, numbers, changed, given, kept, by_words)
        made.test_at_first()
        return made

    def all_guards(self) -> frozenset[Guard]:
        """The guards that ``holds`` tests."""
        return frozenset(guard for some in (*self.guards, self.by_words) for guard in some)

    def test_at_first(self) -> None:
        """Numbers those dictionaries whose guards hold, without compiling their tests."""
        for index, table in enumerate(self.dicts):
            number = number_of(table)
            if all(holds(guard) for guard in self.guards[index]):
                self.numbers[index] = number

    def holds(self) -> bool:
        """Do all guards hold? What has changed is tested again; its number is read before that."""
        index = self.changed(*self.given, 0)
        while index >= 0:
            number = number_of(self.dicts[index])
            if not self._test(index)():
                return False
            self.numbers[index] = number
            index = self.changed(*self.given, index + 1)
        return index != WORD_CHANGED

    def _test(self, index: int) -> Callable[[], bool]:
        test = self.tests[index]
        if test is None:
            test = self.tests[index] = compile_test(self.guards[index])
        return test


def _changed(options: Options) -> Callable[..., int] | None:
    try:
        return compared(options)["anyshape_changed"]
    except AnyshapeError as error:
        if error.code in MISTAKES:
            raise
        return None
