"""The containers that lie in a container, as the program sees them.

In: a container and how one from outside is seen (`Heap.mirror`). Out: each container in it, all the
way down, once, however they hold each other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, repeat
from types import MappingProxyType, MethodType, NoneType, SimpleNamespace
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.mirrors import VIEWS, mapping_behind
from anyshape.capture.heap.numpy_scalars import is_numpy_number
from anyshape.capture.heap.observer import Observer
from anyshape.capture.heap.quiet_classes import is_of_code
from anyshape.capture.heap.values import BOUND_IN_C

CONTAINERS = (list, tuple, dict, set, frozenset, deque)
BY_VALUE = (int, float, complex, str, bytes, tuple, NoneType)
BASES = (list, tuple, OrderedDict, dict, set, frozenset, deque, bytearray)


def containers_in(state: Any, seen_as: Callable[[Any], Any]) -> Iterator[Any]:
    """As they lie there, outermost first; what lies in an outside one is that of its mirror. What
    an exception or a partial function was made of lies in it, and in a view the mapping."""
    pending, seen = [state], {id(state)}
    while pending:
        for item in _referents(pending.pop()):
            if id(item) in seen:
                continue
            seen.add(id(item))
            if issubclass(type(item), CONTAINERS):
                yield item
                pending.append(seen_as(item))
            elif type(item) in SHOWING:
                seen_as(item)  # which mapping it shows is relied on
                pending.append(item)
            elif issubclass(type(item), READ_BY_C):
                yield item
                pending.append(item)
            else:
                seen_as(item)  # what is in its memory is relied on


READ_BY_C = (BaseException, partial, SimpleNamespace, count, repeat)
"""What C code shows the contents of, and no guard compares."""
SHOWING = frozenset({MappingProxyType, *VIEWS})
_args_of = vars(BaseException)["args"].__get__


def _referents(value: Any) -> Any:
    if issubclass(type(value), CONTAINERS):
        return values_of(value)
    if type(value) in SHOWING:
        return (mapping_behind(value),)
    if issubclass(type(value), BaseException):
        return (_args_of(value),)
    if issubclass(type(value), SimpleNamespace):
        return vars(value).values()
    return (value.args, value.keywords) if issubclass(type(value), partial) else ()


def values_of(container: Any) -> Any:
    """What a container holds; of a dict, its values. No code of a subclass is asked."""
    if issubclass(type(container), dict):
        return dict.values(container)
    return elements_of(container)


def length_of(container: Any) -> int:
    """`len` of it by C, whatever a subclass says."""
    base: Any = next((c for c in BASES if issubclass(type(container), c)), None)
    return len(container) if base is None else base.__len__(container)


def item_of(container: Any, key: Any) -> Any:
    """`container[key]` by C, whatever a subclass says."""
    if not is_of_code(type(container), "__getitem__"):
        return container[key]
    base: Any = next(c for c in BASES if issubclass(type(container), c))
    return base.__getitem__(container, key)


def require_kept_item(container: Any, key: Any, value: Any) -> None:
    """Raises ``Break`` where the container makes an object for each index, as an array of numpy's
    does: no guard finds that object again. What is compared by its value may be made anew."""
    kept = issubclass(type(container), BASES) or _is_compared_by_value(value)
    if not (kept or item_of(container, key) is value):
        raise broken("unknown-call", f"what {name_of(type(container))} makes for an index")


def require_kept_attribute(obj: Any, descriptor: Any, name: str, value: Any) -> None:
    """Raises ``Break`` where C makes an object each time the attribute is asked for, as `T` of an
    array of numpy's: what was read twice is two objects, and no guard finds either again. Methods
    are two as well, and compared by what they bind (`lru_cache` makes them in C)."""
    plain = _is_compared_by_value(value) or type(value) is MethodType
    if not (plain or descriptor.__get__(obj, type(obj)) is value):
        raise broken("unknown-call", f"what {name_of(type(obj))} makes for {name!r}")


def is_bound_here(domain: Observer, obj: Any) -> bool:
    """A method of C that the program has bound: what it is called, its owner's class says."""
    return type(obj) in BOUND_IN_C and not domain.is_outside(obj)


def _is_compared_by_value(value: Any) -> bool:
    return issubclass(type(value), BY_VALUE) or is_numpy_number(value)


def elements_of(container: Any) -> Any:
    """What a container gives by the `__iter__` of C, whatever a subclass says; anything else as it
    is."""
    base: Any = next((c for c in BASES if issubclass(type(container), c)), None)
    return container if base is None else base.__iter__(container)
