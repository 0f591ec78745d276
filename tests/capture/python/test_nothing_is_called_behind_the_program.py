"""No special method, property or attribute hook of the program's objects runs that the program does
not call itself: guards, explanations of failed ones, statistics and what decides whether a segment is
worth it look at objects without asking them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

import anyshape
from anyshape.api import compile as compiled_by_api

CALLS: Counter[str] = Counter()
ANSWERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys("__eq__ __lt__ __le__ __gt__ __ge__ __ne__".split(), lambda s, o: s is o),
    **dict.fromkeys("__repr__ __str__ __format__ __fspath__".split(), lambda s, *a: "counted"),
    **dict.fromkeys("__len__ __hash__ __index__ __int__ __length_hint__".split(), lambda s: 1),
    **dict.fromkeys("__add__ __radd__ __sub__ __mul__ __or__ __call__".split(), lambda s, *a: s),
    "__bool__": lambda s: True,
    "__float__": lambda s: 1.0,
    "__iter__": lambda s: iter(()),
    "__contains__": lambda s, o: False,
    "__enter__": lambda s: s,
    "__exit__": lambda s, *a: None,
    "__dir__": lambda s: [],
    "__copy__": lambda s: s,
    "__deepcopy__": lambda s, memo: s,
    "__reduce_ex__": lambda s, protocol: "counted",
    "__sizeof__": lambda s: 1,
}


def _counted(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        CALLS[name] += 1
        return answer(self, *args)

    return method


def _missing(self: Any, name: str) -> Any:
    CALLS[f"getattr {name}"] += 1
    raise AttributeError(name)


class Plain:
    """Every special method is counted."""

    def __init__(self, v: Any = 0) -> None:
        self.v = v

    @property
    def numel(self) -> int:
        CALLS["numel"] += 1
        return 1

    shape = dtype = data_ptr = named_modules = numel
    __getattr__ = _missing


for _name, _answer in ANSWERS.items():
    setattr(Plain, _name, _counted(_name, _answer))


class OfDict(dict):  # type: ignore[type-arg]
    """The same of a subclass of a builtin."""

    __getattr__ = _missing


class OfList(list):  # type: ignore[type-arg]
    """The same of another."""

    __getattr__ = _missing


class OfInt(int):
    """The same of a number."""

    __getattr__ = _missing


class OfTuple(tuple):  # type: ignore[type-arg]
    """The same of a tuple."""

    __getattr__ = _missing


for _cls in (OfDict, OfList, OfInt, OfTuple):
    for _name in set(ANSWERS) & set(dir(_cls)):
        if _name not in ("__repr__", "__reduce_ex__", "__dir__", "__hash__") or _cls is OfInt:
            setattr(_cls, _name, _counted(_name, getattr(_cls, _name)))

HELD: Any = None
NAMED: Any = None


def passes_on(x: Any, o: Any, held: Any) -> Any:
    y = x + 1
    return y, o, held


def reads(x: Any, o: Any, held: Any) -> Any:
    return x * o.v, held


def writes(x: Any, o: Any, held: Any) -> Any:
    o.v = o.v + 1
    o.new = x
    return x + o.v


def stores(x: Any, o: Any, held: Any) -> Any:
    held.append(o)
    return x + len(held)


def compares(x: Any, o: Any, held: Any) -> Any:
    return x + 1 if o is HELD or o is None else x + 2


def searches(x: Any, o: Any, held: Any) -> Any:
    return x + 1 if o in held else x + 2


def asks(x: Any, o: Any, held: Any) -> Any:
    y = x + 1 if o else x
    return y if o == HELD else y + len(str(o))


def iterates(x: Any, o: Any, held: Any) -> Any:
    y = x
    for value in held:
        y = y + (value is o)
    return y


def keeps_in_containers(x: Any, o: Any, held: Any) -> Any:
    table = {"o": o, "x": x, "l": [o, (o, held)]}
    return table, deque([o], 3), OrderedDict(a=o)


def branches(x: Any, o: Any, held: Any) -> Any:
    y = x * 2 if x.sum() > 3 else x
    return y, o, held


def uses_as_key(x: Any, o: Any, held: Any) -> Any:
    table = {o: x}
    return table[o] + 1


def breaks(x: Any, o: Any, held: Any) -> Any:
    y = x + 1
    list_of = [o, held, y]
    print(end="")
    torch.get_num_threads()
    list_of.append(float(y.sum().numpy()))
    return list_of, y + 1


def formats(x: Any, o: Any, held: Any) -> Any:
    return x + 1, "%s" % (o,), f"{held!r}"


def refers_to_global(x: Any, o: Any, held: Any) -> Any:
    return x + 1, HELD, [HELD]


def closes_over(x: Any, o: Any, held: Any) -> Any:
    def inner(y: Any, default: Any = o) -> Any:
        return y, o, held, default

    return inner(x + 1)


def raises(x: Any, o: Any, held: Any) -> Any:
    y = x + 1
    try:
        raise ValueError(o, held)
    except ValueError as error:
        return y, error.args


PROGRAMS = [passes_on, reads, writes, stores, compares, searches, asks, iterates]
PROGRAMS += [keeps_in_containers, branches, uses_as_key, breaks, refers_to_global, closes_over]
PROGRAMS += [raises, formats]


def objects() -> Iterator[tuple[Any, Any]]:
    """What is handed in, and what lies beside it; each call brings other ones."""
    for number in range(4):
        yield Plain(number), [Plain(), number, None]
    for number in range(3):
        yield Plain(OfInt(number)), OfList([OfInt(number), Plain(number)])
    for number in range(3):
        yield Plain([number]), [OfDict(a=Plain(), b=number), Plain]
    yield OfDict(v=Plain()), [OfInt(1)]
    for number in range(3):
        yield OfTuple((number, Plain())), [OfTuple((OfInt(number),))]


def counts_of(fn: Callable[..., Any]) -> list[Counter[str]]:
    """What each call counts."""
    found = []
    for o, held in objects():
        globals()["HELD"] = Plain(held)
        CALLS.clear()
        try:
            fn(torch.ones(3), o, held)
        except (AttributeError, TypeError, IndexError):
            pass
        CALLS.pop("getattr __torch_function__", None)  # which torch asks for
        found.append(Counter(CALLS))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_calls_count_what_they_count_natively(program: Callable[..., Any]) -> None:
    wanted = counts_of(program)
    fast = compiled_by_api(program)
    assert counts_of(fast) == wanted


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_told_of_a_program_asks_nothing_of_its_objects(program: Callable[..., Any]) -> None:
    fast = compiled_by_api(program)
    counts_of(fast)
    CALLS.clear()
    told = [str(fast.stats()), str(fast.guards()), str(fast.graphs()), str(fast.recompiles())]
    assert all(told)
    assert CALLS == Counter()
    o, held = next(objects())
    program(torch.ones(3), o, held)
    wanted = Counter(CALLS)
    CALLS.clear()
    str(anyshape.explain(program)(torch.ones(3), o, held))
    assert CALLS == wanted


class Slotted:
    __slots__ = ("v",)
    __getattr__ = _missing


class Meta(type):
    __getattr__ = _missing


def _slotted() -> Any:
    return Slotted()


def _module() -> Any:
    made = ModuleType("made")
    vars(made)["__getattr__"] = lambda name: _missing(made, name)
    return made


def _made_class() -> Any:
    return Meta("Made", (), {})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [_slotted, _module, _made_class])
def test_an_explanation_does_not_ask_for_what_is_not_there(make: Callable[[], Any]) -> None:
    """Guards on what the program has deleted are explained when another object comes."""

    def program(x: Any) -> Any:
        y = x * NAMED.v
        del NAMED.v
        return y

    fast, found = compiled_by_api(program), []
    for call in (program, fast):
        CALLS.clear()
        for number in (2, 3, 4):
            globals()["NAMED"] = named = make()
            named.v = number
            call(torch.ones(3))
        found.append(Counter(CALLS))
    assert found[0] == found[1]


def test_the_objects_do_count() -> None:
    CALLS.clear()
    one = Plain()
    repr(one), bool(one), one == 1, hash(one), len(one), one.numel, getattr(one, "zzz", None)
    int(OfInt(1)), len(OfList()), OfDict() == {}
    assert set(CALLS) >= {"__repr__", "__bool__", "__eq__", "__hash__", "__len__", "numel"}
    assert CALLS["getattr zzz"] == 1
    assert CALLS["__len__"] == 2
    assert CALLS["__eq__"] == 2


class AnswersForSlots:
    __slots__ = ("absent", "calls")

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> str:
        self.calls.append(name)
        return "answered"


class AnswersForAll(AnswersForSlots):
    __slots__ = ()

    def __getattribute__(self, name: str) -> object:
        return object.__getattribute__(self, name)


class AnswersForClasses(type):
    calls: list[str] = []

    def __getattr__(cls, name: str) -> str:
        cls.calls.append(name)
        return "answered"


class Made(metaclass=AnswersForClasses):
    pass


@pytest.mark.parametrize("kind", (AnswersForSlots, AnswersForAll))
def test_guards_on_an_empty_slot_do_not_ask_getattr(kind: type[AnswersForSlots]) -> None:
    outside = kind()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, object]:
        return x + 1, outside.absent

    fast = anyshape.compile(program, fullgraph=kind is AnswersForSlots)
    for n in (3, 4, 5):
        outside.calls.clear()
        assert fast(torch.ones(n))[1] == "answered"
        assert outside.calls == ["absent"]
    outside.absent = "there"
    assert fast(torch.ones(3))[1] == "there"
    assert fast.stats().internal_errors == 0


def test_guards_on_a_class_that_is_instantiated_do_not_ask_its_metaclass() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, object]:
        return x + 1, type(Made()).__name__

    fast = anyshape.compile(program, fullgraph=True)
    AnswersForClasses.calls.clear()
    for n in (3, 4, 5):
        assert fast(torch.ones(n))[1] == "Made"
    assert AnswersForClasses.calls == []
    assert fast.stats().internal_errors == 0
