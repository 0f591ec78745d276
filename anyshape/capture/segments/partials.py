"""`functools.partial` and its subclasses, made while recording.

In: calls of the class, of `__new__`, `__setstate__` and `__reduce__`. Out: real objects of the
trace, which are made by C: it only stores what it is given. Of a partial C takes what that holds,
unless it has a `__dict__`: one from outside is to be the same in each call, and where only we may
have asked for that dictionary, nobody knows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.hidden_dicts import PARTIAL_FIELDS, dict_of_partial
from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.values import PROXIES
from anyshape.capture.recording.domain import RecordingDomain

Args = tuple[Any, ...]
PARTIAL = functools.partial
_NEW, _SET_STATE = PARTIAL.__new__, vars(PARTIAL)["__setstate__"]


def instantiate(domain: RecordingDomain, cls: type, args: Args, kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)`; NotImplemented of other classes, and of those that say in Python
    how."""
    if not issubclass(cls, PARTIAL):
        return NotImplemented
    lookup = domain.machine.lookup
    plain = lookup(cls, "__new__"), lookup(cls, "__init__")
    if plain != (_NEW, object.__init__):
        return NotImplemented
    return _made(domain, cls, args, kwargs)


def _made(domain: RecordingDomain, cls: type, args: Args, kwargs: dict[str, Any]) -> Any:
    heap = domain.machine.heap
    if args and (type(args[0]) in PROXIES or not _is_known(domain, args[0])):
        raise broken("unknown-call", "functools.partial of what may be another one in each call")
    made = heap.create(_NEW(cls, *args, **kwargs))
    heap.create(PARTIAL_FIELDS["keywords"](made))
    return made


def _is_known(domain: RecordingDomain, func: Any) -> bool:
    """Whether what C looks at of the function is the same in each call."""
    if not issubclass(type(func), PARTIAL):
        return True
    heap = domain.machine.heap
    if heap.is_created(func):
        return not _has_doubtful_dict(domain, func)
    source = domain.readable_source(func, "attr")
    if source is None or not source.is_pinned:
        return False
    for name, field in PARTIAL_FIELDS.items():
        heap.mirror(heap.attribute(func, name, field(func)))
    return True


def _has_doubtful_dict(domain: RecordingDomain, value: Any) -> bool:
    """Whether there is an empty dictionary that the program may not have asked for."""
    found = dict_of_partial(value)
    return found is not None and not found and id(found) not in domain.machine.heap.namespaces


def _new(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
    fits = args and issubclass(type(args[0]), type) and issubclass(args[0], PARTIAL)
    return _made(domain, args[0], args[1:], kwargs) if fits else _NEW(*args, **kwargs)


def _set_state(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> None:
    """C keeps the dictionaries that it is given."""
    heap = domain.machine.heap
    if not _is_ours(domain, args) or heap.journal is not None or len(args) != 2:
        raise broken("unknown-call", "partial.__setstate__")
    value, state = args
    if type(state) is not tuple and (type(state) in PROXIES or issubclass(type(state), tuple)):
        raise broken("unknown-call", "partial.__setstate__")
    if type(state) is tuple and len(state) == 4 and not _keeps(heap, *state):
        raise broken("unknown-call", "partial.__setstate__")
    before = dict_of_partial(value)
    _SET_STATE(*args)  # which may refuse
    if before is not None and heap.namespaces.get(id(before)) is value:
        del heap.namespaces[id(before)]  # from here on a dictionary as any
    heap.create(PARTIAL_FIELDS["keywords"](value))
    found = dict_of_partial(value)
    if found is not None:
        heap.namespaces.setdefault(id(found), value)


def _keeps(heap: Heap, func: Any, args: Any, *dicts: Any) -> bool:
    """Whether C refuses the state, or keeps dictionaries of this trace, one for each purpose."""
    if type(func) in PROXIES:
        return False
    named = dicts[0] is None or issubclass(type(dicts[0]), dict)
    if not (callable(func) and issubclass(type(args), tuple) and named):
        return True
    given = [found for found in dicts if found is not None]
    made = all(type(found) is dict and heap.is_created(found) for found in given)
    return made and not (given and dicts[0] is dicts[1])


def _reduced(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
    heap = domain.machine.heap
    if not _is_ours(domain, args) or len(args) != 1 or _has_doubtful_dict(domain, args[0]):
        raise broken("unknown-call", "partial.__reduce__")
    reduced = PARTIAL.__reduce__(args[0])
    found = dict_of_partial(args[0])
    if found is not None:
        heap.namespaces.setdefault(id(found), args[0])
        heap.create(found)
    return reduced


def _is_ours(domain: RecordingDomain, args: Args) -> bool:
    return (
        bool(args)
        and issubclass(type(args[0]), PARTIAL)
        and domain.machine.heap.is_created(args[0])
    )


HANDLERS: Mapping[Any, Callable[..., Any]] = {
    _NEW: _new,
    _SET_STATE: _set_state,
    vars(PARTIAL)["__reduce__"]: _reduced,
}
