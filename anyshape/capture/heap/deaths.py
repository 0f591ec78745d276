"""When objects die that the trace has made: where the program refers to one weakly, capture lets go
of what nothing of the program leads to any more, and CPython ends the weak references.

In: a heap, and what is referred to weakly. Out: deaths, one after another, and what the program
wants called at one. The heap holds each object that the trace made once (`Heap.created`); who has
no other holder is dead. That the trace holds nothing else is looked at in the end
(`are_referenced`); what this file cannot tell is a doubt, and capture begins again without weak
references.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable, Container, Iterable
from sys import getrefcount
from types import FrameType, ModuleType
from typing import Any, Literal

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import class_module
from anyshape.capture.heap.values import PROXIES, Break
from anyshape.nouns import frozen

Watch = Literal["unmet", "watched", "refused"]
"""Whether weak references to what the trace makes have been met, and are followed."""
PROXY_KINDS = (weakref.ProxyType, weakref.CallableProxyType)
REFERENCES = (weakref.ReferenceType, *PROXY_KINDS)
LOOKED_AT = 2_000
"""So many objects are looked at for a weak reference among what an object leads to."""
LOOKED_AT_IN_ALL = 1_000_000
"""So many objects are looked at in one capture, which takes a fraction of a second; a program that
needs more ends in front of its weak references."""
LEVELS = 30
"""So many holders of holders are looked at."""


class DeathsAreMet(BaseException):
    """The program refers weakly to what it has made: capture begins again and watches."""


class DeathsAreUnknown(BaseException):
    """Capture does not know when an object dies: it begins again, and ends at weak references."""


def _referenced(created: dict[int, Any], but: Container[int], times: int) -> list[Any]:
    """The objects that are held so often, this loop included."""
    return [v for key, v in created.items() if getrefcount(v) == times and key not in but]


ALONE = next(times for times in range(9) if _referenced({0: object()}, (), times))
"""How often it finds an object held that nobody else holds."""


@frozen(eq=False)
class Hook:
    """What C calls instead of the program's function when the object has died."""

    pending: list[tuple[Any, Any]]
    callback: Any

    def __call__(self, reference: Any) -> None:
        self.pending.append((self.callback, reference))


def behind(reference: Any) -> Any:
    """What a reference or a proxy leads to; None where that is dead."""
    return ctypes.cast(_address_behind(id(reference)), ctypes.py_object).value


_address_behind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
    ("PyWeakref_GetObject", ctypes.pythonapi)
)


def target_of(proxy: Any) -> Any:
    """What a weak proxy leads to; raises ReferenceError where that is dead."""
    target = behind(proxy)
    if target is None:
        raise ReferenceError("weakly-referenced object no longer exists")
    return target


class Deaths:
    """See the module. `created` is the heap's; `targets` and `references` are what is watched, by
    `id`, `heard` the references with a function to call; `closes` ends a generator that nobody
    holds, if no code runs then; `settled` is known to be dead and of no interest.
    """

    __slots__ = (
        *(
            "closes",
            "created",
            "doubted",
            "looked_at",
            "heard",
            "made",
            "pending",
            "references",
            "settled",
            "targets",
        ),
        "watch",
    )

    def __init__(self, watch: Watch) -> None:
        self.closes: Callable[[Any], bool] = lambda generator: False
        self.watch: Watch = watch
        self.created: dict[int, Any] = {}
        self.targets: set[int] = set()
        self.references: set[int] = set()
        self.heard: set[int] = set()
        self.settled: set[int] = set()
        self.pending: list[tuple[Any, Any]] = []
        self.made = False
        self.looked_at = 0
        self.doubted: type[BaseException] | None = None

    def doubt(self, found: type[BaseException] = DeathsAreUnknown) -> Break:
        """Ends the capture, which begins again."""
        self.doubted = found
        return broken("unknown-call", "weakref.ref")

    def refer(self, make: Callable[..., Any], target: Any, rest: tuple[Any, ...]) -> Any:
        """Make a weak reference to what the trace has made."""
        given = rest
        if rest and rest[0] is not None:
            given = (Hook(self.pending, rest[0]), *rest[1:])
        reference = make(target, *given)
        self.made = True
        self.targets.add(id(target))
        self.references.add(id(reference))
        if given is not rest:
            self.heard.add(id(reference))
        self.settled.clear()
        return reference

    def ended(self) -> bool:
        """Lets go of what is dead, after an instruction; whether anything was. Where the program is
        called for one of several that died at once, or a reference died with what it leads to,
        their order would matter, which nobody knows here."""
        count, unheard, found = len(self.targets), [], False
        while dead := self._dead():
            found = True
            unheard += [each for each in map(self._unheard, dead) if each is not None]
            while dead:
                self._let_go(dead)
        together = self.pending and count - len(self.targets) > 1
        if together or not self.targets.issuperset(unheard):
            raise self.doubt()
        return found

    def _dead(self) -> list[Any]:
        """What is dead and leads to what is watched."""
        self._count(len(self.created))
        dead = _referenced(self.created, self.settled, ALONE)
        self.settled.update(map(id, dead))
        return [value for value in dead if self._leads_to_watched(value)] if dead else dead

    def _unheard(self, value: Any) -> int | None:
        """The `id` of what a dead reference leads to, whose death the program would have heard."""
        if id(value) not in self.heard:
            return None
        target = behind(value)
        return None if target is None else id(target)

    def _let_go(self, values: list[Any]) -> None:
        """Of the last: nobody else holds it. What lies in a generator dies when that is closed."""
        key = id(values[-1])
        if _is_ours(type(values[-1])) and not self.closes(values[-1]):
            raise self.doubt()
        del self.created[key]
        self.targets.discard(key)
        self.references.discard(key)
        self.heard.discard(key)
        self.settled.discard(key)
        values.pop()

    def _leads_to_watched(self, value: Any) -> bool:
        """Whether it is watched, or holds what may be; an exception holds frames."""
        return issubclass(type(value), BaseException) or any(
            id(each) in self.targets or id(each) in self.references for each in self._behind(value)
        )

    def _behind(self, value: Any) -> list[Any]:
        """The object, and what it leads to."""
        found, seen, at = [value], {id(value)}, 0
        while at < len(found):
            for each in self._parts(found[at]):
                if id(each) not in seen and not self._is_elsewhere(each):
                    seen.add(id(each))
                    found.append(each)
            at += 1
            if at > LOOKED_AT:
                raise self.doubt()
        self._count(at)
        return found

    def _count(self, looked_at: int) -> None:
        self.looked_at += looked_at
        if self.looked_at > LOOKED_AT_IN_ALL:
            raise self.doubt()

    def _parts(self, value: Any) -> list[Any]:
        """What an object holds; of one of ours, which is a generator of the program if it can be
        dropped, what its frame does."""
        kind = type(value)
        if not _is_ours(kind):
            return gc.get_referents(value)
        frame = None if kind in PROXIES else getattr(value, "frame", None)
        return [] if frame is None else [*frame.locals, *frame.stack]

    def _is_elsewhere(self, value: Any) -> bool:
        kind = type(value)
        if issubclass(kind, ModuleType):
            return True
        if issubclass(kind, type):
            return id(value) not in self.created
        return kind is dict and "__builtins__" in value

    def watched(self, *, classes: bool) -> list[Any]:
        """What is watched and lives; classes lie in cycles, which only the collector ends."""
        keys = [key for key in (*self.targets, *self.references) if key in self.created]
        values = [self.created[key] for key in keys]
        return [value for value in values if classes or not issubclass(type(value), type)]


def are_referenced(values: Iterable[Any], uncounted: tuple[Any, ...]) -> bool:
    """Whether anything leads to one of the objects but what these themselves hold, in cycles, and
    the `uncounted` tables."""
    level, seen = list(values), {id(table) for table in uncounted}
    seen.add(id(level))
    for _ in range(LEVELS):
        seen.update(map(id, level))
        level[:] = _holders(level, seen)  # one list: another would be found among them
        if not level:
            return False
        if any(map(_holds_for_sure, level)):
            return True
    return True


def _holders(values: list[Any], but: set[int]) -> list[Any]:
    return [
        holder
        for holder in gc.get_referrers(*values)
        if id(holder) not in but and not _is_this(holder)
    ]


def _is_ours(kind: type) -> bool:
    return kind is not Hook and str(class_module(kind)).startswith("anyshape.")


def _is_this(holder: Any) -> bool:
    return type(holder) is FrameType and holder.f_globals.get("__name__") == __name__


def _holds_for_sure(holder: Any) -> bool:
    kind = type(holder)
    return (
        _is_ours(kind)
        or kind in (FrameType, ModuleType)
        or (kind is dict and "__builtins__" in holder)
    )
