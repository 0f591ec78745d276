"""A read that finds nothing, or that C code refuses, is relied on: what appears later is seen."""

from __future__ import annotations

import array
import builtins
import collections
import contextvars
import functools
import operator
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape

Changes = tuple[Callable[[], object], ...]
pytestmark = pytest.mark.filterwarnings("ignore")


def agrees(read: Callable[[], Any], *changes: Callable[[], object]) -> None:
    """`x * read()`, or the error's name in numbers: compiled as eager, before and after each change."""

    def program(x: Tensor) -> Tensor:
        try:
            return x * read()
        except Exception as error:
            return x + 10 * len(type(error).__name__)

    x, fast = torch.ones(2), anyshape.compile(program)
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            torch.testing.assert_close(fast(x), program(x))


def unpacked(values: Any) -> Any:
    (only,) = values
    return only


SEQUENCE: dict[str, Callable[[Any], Any]] = {
    "first": lambda s: s[0],
    "last": lambda s: s[-1],
    "second": lambda s: s[1],
    "getitem": lambda s: operator.getitem(s, 0),
    "itemgetter": lambda s: operator.itemgetter(0)(s),
    "method": lambda s: s.__getitem__(0),
    "index": lambda s: s.index(3.0),
    "count": lambda s: s.count(3.0),
    "next": lambda s: next(iter(s)),
    "next or": lambda s: next(iter(s), 5.0),
    "largest": lambda s: max(s),
    "largest or": lambda s: max(s, default=7.0),
    "argument": lambda s: (lambda a: a)(*s),
    "unpacked": unpacked,
    "reversed": lambda s: next(reversed(s)),
    "truth": lambda s: 2.0 if s else 3.0,
}


@pytest.mark.parametrize("kind", [list, collections.deque, collections.UserList])
@pytest.mark.parametrize("name", SEQUENCE)
def test_elements_of_sequences(name: str, kind: Any) -> None:
    values, read = kind(), SEQUENCE[name]
    agrees(
        lambda: read(values),
        lambda: values.append(3.0),
        values.clear,
        lambda: values.extend([4.0, 3.0]),
    )


def test_elements_of_buffers() -> None:
    numbers, data = array.array("d"), bytearray()
    agrees(lambda: numbers[0], lambda: numbers.append(3), lambda: numbers.pop())
    agrees(lambda: data[0], lambda: data.append(3), data.clear)


MAPPING: dict[str, Callable[[Any], Any]] = {
    "item": lambda d: d["k"],
    "get": lambda d: d.get("k", 5.0),
    "in": lambda d: 2.0 if "k" in d else 3.0,
    "in keys": lambda d: 2.0 if "k" in d.keys() else 3.0,
    "in values": lambda d: 2.0 if 3.0 in d.values() else 3.0,
    "first": lambda d: len(next(iter(d))),
    "itemgetter": lambda d: operator.itemgetter("k")(d),
    "named": lambda d: (lambda k=9.0, **rest: k)(**d),
    "format": lambda d: float("{k}".format(**d)),
    "proxy": lambda d: types.MappingProxyType(d)["k"],
}


@pytest.mark.parametrize(
    "kind", [dict, collections.OrderedDict, collections.Counter, collections.UserDict]
)
@pytest.mark.parametrize("name", MAPPING)
def test_entries_of_mappings(name: str, kind: Any) -> None:
    table, read = kind(), MAPPING[name]
    agrees(
        lambda: read(table),
        lambda: table.update(k=3.0),
        table.clear,
        lambda: table.update(j=2.0, k=4.0),
    )


class Plain:
    pass


class Slotted:
    __slots__ = ("k",)


HOLDERS: dict[str, Callable[[], Any]] = {
    "object": lambda: Plain(),
    "class": lambda: type("Made", (), {}),
    "slots": lambda: Slotted(),
    "module": lambda: types.ModuleType("made"),
    "namespace": lambda: types.SimpleNamespace(),
    "function": lambda: functools.wraps(len)(lambda: 0),
    "partial": lambda: functools.partial(len),
    "thread local": lambda: threading.local(),
    "tensor": lambda: torch.ones(2),
    "nn.Module": lambda: nn.Linear(2, 2),
    "exception": lambda: ValueError(),
}
ATTRIBUTE: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda o: o.k,
    "or default": lambda o: getattr(o, "k", 4.0),
    "hasattr": lambda o: 2.0 if hasattr(o, "k") else 3.0,
    "attrgetter": lambda o: operator.attrgetter("k")(o),
    "names": lambda o: o.__dict__.get("k", 4.0),
    "in names": lambda o: 2.0 if "k" in o.__dict__ else 3.0,
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("name", ATTRIBUTE)
def test_attributes(name: str, holder: str) -> None:
    obj, read = HOLDERS[holder](), ATTRIBUTE[name]
    agrees(
        lambda: read(obj),
        lambda: setattr(obj, "k", 3.0),
        lambda: delattr(obj, "k"),
        lambda: setattr(obj, "k", 5.0),
    )


def closed() -> tuple[Callable[[], Any], Callable[[Any], None], Callable[[], None]]:
    """A function of a variable that has no value yet; one that sets it, and one that deletes it."""

    def read() -> Any:
        return value

    def put(new: Any) -> None:
        nonlocal value
        value = new

    def drop() -> None:
        nonlocal value
        del value

    value = 0.0
    drop()
    return read, put, drop


def test_closures() -> None:
    read, put, drop = closed()
    agrees(read, lambda: put(3.0), drop, lambda: put(4.0))
    put(2.0)
    agrees(read, drop, lambda: put(3.0), drop)
    assert read.__closure__ is not None
    (cell,) = read.__closure__
    agrees(lambda: cell.cell_contents, lambda: put(3.0), drop, lambda: put(4.0))


def test_functions_that_are_handed_in() -> None:
    fast = anyshape.compile(lambda x, fn: x * fn())
    x = torch.ones(2)
    for _, (read, put, drop) in enumerate([closed() for _ in range(3)]):
        with pytest.raises(NameError):
            fast(x, read)
        put(3.0)
        torch.testing.assert_close(fast(x, read), x * 3)
        drop()
        with pytest.raises(NameError):
            fast(x, read)


def test_builtins_and_context_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    agrees(
        lambda: nowhere_defined,  # type: ignore[name-defined]  # noqa: F821
        lambda: monkeypatch.setattr(builtins, "nowhere_defined", 3.0, raising=False),
        lambda: monkeypatch.setattr(builtins, "nowhere_defined", 4.0),
        lambda: monkeypatch.delattr(builtins, "nowhere_defined"),
    )
    variable: contextvars.ContextVar[float] = contextvars.ContextVar("variable")
    agrees(variable.get, lambda: variable.set(3.0))
    agrees(lambda: variable.get(7.0), lambda: variable.set(5.0))


def test_what_dies_and_what_is_shadowed() -> None:
    held = [Plain()]
    reference = weakref.ref(held[0])
    agrees(lambda: 2.0 if reference() is None else 3.0, held.clear)

    class Descriptor:
        def __get__(self, obj: Any, cls: Any = None) -> float:
            return 6.0

    class Late(Plain):
        pass

    late = Late()
    agrees(
        lambda: getattr(late, "w", 2.0),
        lambda: setattr(Late, "w", Descriptor()),
        lambda: setattr(late, "w", 4.0),
        lambda: delattr(Late, "w"),
    )
