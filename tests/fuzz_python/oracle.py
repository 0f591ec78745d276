"""What a program shows: results, what lies outside afterwards, who is the same object, the order of
effects, and what is raised; natively and compiled.

In: the text of a module (`grammar.py`). Out: how the compiled program differs; nothing if it does not.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

CALLS = (0, 0, 1)
"""What `world` is told for each call of one compiled function."""
WAYS = {
    "whole": {},
    "every": {"break_every": 1},
    "second": {"break_every": 2},
    "third": {"break_every": 3},
    "any": {"break_every": 5, "break_seed": 1},
}
"""Options by name: how often a segment is ended."""
MADE_ANYWHERE = {tuple, frozenset}
"""What has no identity that a program may rely on."""
FILE = "<program>"
LIMIT = 400
"""So many objects are looked at, and so many items of each iterator."""
ITERATORS = re.compile(r"'(map|filter|zip|enumerate|itertools\.\w+)'")
"""Generators of ours stand for those, and errors name them so (docs/python.md)."""
OBJECT = re.compile(r"<[^<>]*(<[^<>]*>[^<>]*)* at 0x[0-9a-f]+>")
UNSHOWN = {"__dict__", "__weakref__", "__doc__", "__module__", "__slotnames__"}
PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range)


class Shown:
    """Describes objects; one that was met before is its number."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []

    def text(self, value: Any) -> Any:
        """Nested tuples of plain values."""
        kind = type(value)
        if kind in PLAIN:
            text = OBJECT.sub("<object>", repr(value))
            return (kind.__name__, ITERATORS.sub("'generator'", text))
        if id(value) in self.seen:
            return ("again", self.seen[id(value)])
        if len(self.kept) > LIMIT:
            return "..."
        if kind not in MADE_ANYWHERE:
            self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if isinstance(value, Iterator) and kind.__module__ != "program":
            return ("iterator", *self.items(value))  # `map` and its like may be generators
        return (kind.__qualname__, *self.parts(value))

    def parts(self, value: Any) -> Iterator[Any]:
        for base, describe in KINDS:
            if isinstance(value, base):
                yield from describe(self, value)
                break
        else:
            if isinstance(value, Iterator):
                yield from self.items(value)
        space = getattr(value, "__dict__", None)
        if type(space) is dict and not isinstance(value, (types.FunctionType, types.ModuleType)):
            yield from ((str(name), self.text(held)) for name, held in space.items())
        for name in getattr(type(value), "__slots__", ()):
            yield name, self.text(getattr(value, name, "unset"))

    def items(self, value: Any) -> Iterator[Any]:
        """What is left in an iterator, and how it ends."""
        try:
            for item in itertools.islice(value, 20):
                yield self.text(item)
        except Exception as error:
            yield "raises", type(error).__name__, OBJECT.sub("<object>", str(error))

    def tensor(self, value: torch.Tensor) -> Iterator[Any]:
        yield str(value.dtype)
        yield repr(value.tolist())

    def error(self, value: BaseException) -> Iterator[Any]:
        yield self.text(value.args)
        yield self.text(value.__cause__)
        yield self.text(value.__context__)
        yield value.__suppress_context__
        tb, lines = value.__traceback__, []
        while tb is not None:
            code = tb.tb_frame.f_code
            if code.co_filename == FILE and code.co_name != "show":
                lines.append((code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        yield lines

    def sequence(self, value: Any) -> Iterator[Any]:
        base = next(b for b in (list, tuple, collections.deque) if isinstance(value, b))
        yield from map(self.text, base.__iter__(value))
        if base is collections.deque:
            yield value.maxlen

    def mapping(self, value: Any) -> Iterator[Any]:
        base = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        for key, held in base.items(value):
            yield self.text(key), self.text(held)

    def collection(self, value: Any) -> Iterator[Any]:
        """A set, in an order that its elements say."""
        base = set if isinstance(value, set) else frozenset
        yield from sorted(repr(Shown().text(item)) for item in base.__iter__(value))

    def function(self, value: types.FunctionType) -> Iterator[Any]:
        yield value.__qualname__
        yield self.text(value.__defaults__)
        yield self.text(value.__kwdefaults__)
        for cell in value.__closure__ or ():
            try:
                yield self.text(cell.cell_contents)
            except ValueError:
                yield "empty"

    def method(self, value: Any) -> Iterator[Any]:
        yield value.__name__
        yield self.text(value.__self__)

    def made_class(self, value: type) -> Iterator[Any]:
        yield value.__qualname__
        yield tuple(base.__qualname__ for base in value.__mro__)
        for name, held in list(vars(value).items()):
            if name not in UNSHOWN:
                kind = "iterator" if isinstance(held, Iterator) else type(held).__name__
                yield name, self.text(held) if _is_state(held) else kind

    def subclassed(self, value: Any) -> Iterator[Any]:
        yield next(b for b in (int, str, bytes) if isinstance(value, b)).__repr__(value)

    def reduced(self, value: Any) -> Iterator[Any]:
        yield value.func.__name__ if hasattr(value.func, "__name__") else "func"
        yield self.text(value.args)

    def slice(self, value: slice) -> Iterator[Any]:
        yield self.text((value.start, value.stop, value.step))


def _is_state(value: Any) -> bool:
    return isinstance(value, (*PLAIN, list, dict, set, tuple, collections.deque))


KINDS: list[tuple[Any, Callable[[Any, Any], Iterator[Any]]]] = [
    (torch.Tensor, Shown.tensor),
    (BaseException, Shown.error),
    ((list, tuple, collections.deque), Shown.sequence),
    (dict, Shown.mapping),
    ((set, frozenset), Shown.collection),
    (types.FunctionType, Shown.function),
    ((types.MethodType, types.BuiltinMethodType), Shown.method),
    (type, Shown.made_class),
    ((int, str, bytes), Shown.subclassed),
    (slice, Shown.slice),
]


def module_of(text: str) -> dict[str, Any]:
    """A module of the text, made anew."""
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, FILE, "exec", dont_inherit=True), scope)
    return scope


def observed(call: Callable[..., Any], scope: dict[str, Any], k: int) -> dict[str, Any]:
    """Everything that one call shows."""
    scope["LOG"].clear()
    arguments = scope["world"](k)
    scope["LOG"].clear()
    shown = Shown()
    try:
        result: Any = call(*arguments)
        raised = None
    except Exception as error:
        result, raised = None, error
    log = list(scope["LOG"])
    globals_ = [scope[name] for name in ("GLOBAL", "TABLE", "STATE")]
    classes = [scope[name] for name in ("A0", "A1", "B")]
    seen = {
        "raised": shown.text(raised),
        "result": shown.text(result),
        "log": [shown.text(entry) for entry in log],
        "arguments": [shown.text(value) for value in arguments],
        "globals": [shown.text(value) for value in globals_],
        "classes": [shown.text(value) for value in classes],
    }
    shown = raised = None  # a traceback holds this frame: in a cycle, generators are closed later
    return seen


def natively(text: str) -> list[dict[str, Any]]:
    """What each call shows under CPython."""
    scope = module_of(text)
    return [observed(scope["program"], scope, k) for k in CALLS]


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first thing that differs, and how."""

    what: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.what}\n  found:  {self.found}\n  wanted: {self.wanted}"


def differences(text: str, way: str, wanted: list[dict[str, Any]]) -> Difference | None:
    """How the compiled program differs from what it shows natively."""
    scope = module_of(text)
    fast = Compiled(scope["program"], Options(**WAYS[way]), ByReference)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, (k, natural) in enumerate(zip(CALLS, wanted, strict=True)):
            try:
                seen = observed(fast, scope, k)
            except BaseException as error:
                return Difference(f"call {number} ends", f"{type(error).__name__}: {error}", "")
            for part, expected in natural.items():
                if seen[part] != expected:
                    return _first(f"call {number}, {part}", seen[part], expected)
            if fast.mistakes:
                return Difference("E901", str(next(iter(fast.mistakes.values()))), "")
    return None


def _first(what: str, found: Any, wanted: Any) -> Difference:
    """The smallest part that differs."""
    both = isinstance(found, (list, tuple)) and isinstance(wanted, (list, tuple))
    if both and len(found) == len(wanted):
        for index, (a, b) in enumerate(zip(found, wanted)):
            if a != b:
                return _first(f"{what}[{index}]", a, b)
    return Difference(what, str(found)[:300], str(wanted)[:300])
