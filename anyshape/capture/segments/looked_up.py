"""What is looked up or compared by which object it is: a key of a dict, an element of a set.

In: a key, and an outside container as it lies there; or what C code is handed to compare. Out:
guards. Keys of an outside container that are relied on are these very objects, so that another
that is handed in is one of them or none (`guards/identities.py`). What is found under an object is
relied on for this one; what is not found, for all that are none of the keys.
"""

from __future__ import annotations

import itertools
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from anyshape.capture.guards.constant_kinds import CONSTANTS, EQUAL, IDENTITY, OWNERS
from anyshape.capture.heap import decimals, purity, times
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.mirrors import VIEWS, keys_in_order, mapping_behind
from anyshape.capture.heap.nested_containers import CONTAINERS, elements_of, length_of
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.quiet_reads import descriptor_of
from anyshape.capture.heap.values import PROXIES, TensorValue
from anyshape.capture.interpreter import c_callbacks
from anyshape.capture.recording.domain import RecordingDomain

BY_VALUE = (*CONSTANTS, *EQUAL)
BY_KEY = (dict, set, frozenset)
DEPTH = 4
METHOD_OF_A_NUMBER = "comparing a method of a number that may be another one,"
HASHED_BY_PARTS = c_callbacks.HASHED_BY_PARTS
SHARED = (*OWNERS, *CONTAINERS, bytearray)
"""What nobody tells from another of its class unless the program asks: objects that hold tensors
and, where methods are bound to them, containers."""
COMPARERS = c_callbacks.COMPARERS | c_callbacks.HASHERS | purity.KEYED


def rely_on_keys(domain: RecordingDomain, keys: tuple[Any, ...]) -> None:
    """A guard says that these are the keys: each is the very object."""
    for key in keys:
        parts = [*_parts([key])]
        for part in parts:
            _refuse_context(part)
        if any(isinstance(part, torch.Tensor) for part in parts):
            raise broken("unknown-call", "reading all keys of a container of tensors")
        rely_on_parts(domain, key)
        if parts and issubclass(type(key), HASHED_BY_PARTS):
            _rely_on_part(domain, key)


def rely_on_parts(domain: RecordingDomain, key: Any) -> None:
    """It is this very object, and so is what it is made of."""
    for part in _parts([key]):
        if not (isinstance(part, torch.Tensor) or _is_a_value(part)):
            _rely_on_part(domain, part)


def _rely_on_part(domain: RecordingDomain, part: Any) -> None:
    sources = domain.recorder.sources
    if sources.of(part) is not None:
        domain.rely_on_object(part)
    elif type(part) is types.FunctionType or not issubclass(type(part), IDENTITY):
        sources.const(part, name_of(part))


def rely_on_lookup(domain: RecordingDomain, container: Any, key: Any) -> None:
    """A key is about to be looked up in an outside dict or set."""
    moving = _moving(domain, key)
    if not moving:
        return
    if type(key) is not TensorValue and any(type(part) is TensorValue for part in moving):
        raise broken("unknown-call", f"a tensor in a key of a {bare_name(type(container))}")
    if _finds(container, key):
        for part in moving:
            domain.rely_on_object(part)
    elif type(key) is not TensorValue:
        domain.read(container, "keys", None, _keys_of(container))
        _distinguish(domain, moving, _parts(_keys_of(container)))


def rely_on_comparison(domain: RecordingDomain, fn: Any, args: tuple[Any, ...]) -> None:
    """C code is about to compare these, and what lies in them, with each other. Nothing in the
    container whose method it is matters where what it is handed has no such object: a loop that
    fills a container does not go through it in each turn."""
    if type(fn) not in purity.CALLABLE_TYPES or fn not in COMPARERS:
        return
    receiver = args[:1] if len(args) > 1 and hasattr(fn, "__objclass__") else ()
    given = args[len(receiver) :]
    given = given[:1] if fn in purity.KEYED else given
    if fn in c_callbacks.HASHERS:
        given = (*_hashed(fn, given),)
        domain.machine.heap.look_inside(given)
    if _has_shared(given):
        among = _hashed(fn, receiver) if fn in c_callbacks.HASHERS else receiver
        _rely_on_difference(domain, (*among, *given))


def rely_on_difference(domain: RecordingDomain, a: Any, b: Any) -> None:
    """The two, or what lies in them, are about to be compared with each other by C."""
    if all(_has_shared((side,)) for side in sorted((a, b), key=_size)):
        _rely_on_difference(domain, (a, b))


def _size(value: Any) -> int:
    return length_of(value) if issubclass(type(value), CONTAINERS) else 0


def _has_shared(values: Iterable[Any]) -> bool:
    return any(
        _is_a_value(part) or issubclass(type(part), SHARED) or decimals.is_context(type(part))
        for part in _inside(values)
    )


def _hashed(fn: Any, args: tuple[Any, ...]) -> Iterator[Any]:
    """What C hashes of the arguments: elements and keys, none of the values of a dict."""
    owner = getattr(fn, "__objclass__", fn)
    takes_pairs = issubclass(type(owner), type) and issubclass(owner, dict)
    for arg in args:
        if type(arg) in VIEWS or type(arg) is types.MappingProxyType:
            arg = mapping_behind(arg)
        if fn is hash or not issubclass(type(arg), CONTAINERS):
            yield arg
        elif issubclass(type(arg), BY_KEY) or not takes_pairs:
            yield from elements_of(arg)
        else:
            pairs = (elements_of(pair) for pair in elements_of(arg) if type(pair) in (list, tuple))
            yield from (key for pair in pairs for key in itertools.islice(pair, 1))


def _rely_on_difference(domain: RecordingDomain, values: Iterable[Any]) -> None:
    """These, and what lies in them, are about to be compared with each other by C."""
    inside = [*_objects(domain, _inside(values))]
    inside = [part for part in inside if issubclass(type(part), SHARED)]
    moving = [part for part in inside if not domain.recorder.is_the_same(part)]
    if moving and len(inside) > 1:
        _distinguish(domain, moving, inside)


def _distinguish(domain: RecordingDomain, moving: list[Any], others: Iterable[Any]) -> None:
    """Relies on those that move being none of the others of their class."""
    kinds = {type(part) for part in moving}
    for part in (*moving, *others):
        if type(part) in kinds:
            domain.identify(part)


def _objects(domain: RecordingDomain, parts: Iterable[Any]) -> Iterator[Any]:
    """The parts but the values that methods are bound to: which object each is, is relied on."""
    for part in parts:
        _refuse_context(part)
        domain.identify_value(part)
        if domain.as_it_was(part) is not part:  # a tuple whose numbers may be others
            raise broken("unknown-call", METHOD_OF_A_NUMBER)
        if not _is_a_value(part):
            yield part


def _is_a_value(part: Any) -> bool:
    return type(part) in CONSTANTS or issubclass(type(part), EQUAL)


def _moving(domain: RecordingDomain, key: Any) -> list[Any]:
    """The objects in a key that may be others in another call."""
    found = []
    for part in _objects(domain, _parts([domain.machine.heap.mirror(key)])):
        if type(part) in times.CLASSES:
            domain.will_look_inside(part)
        elif type(part) is TensorValue or not domain.recorder.is_the_same(part):
            found.append(part)
    return found


def _parts(keys: Iterable[Any], depth: int = DEPTH) -> Iterator[Any]:
    """The objects by which keys are told from each other, where no value tells, and the values
    that methods are bound to, which are compared as objects."""
    for key in keys:
        if _is_a_value(key):
            continue
        if depth and issubclass(type(key), HASHED_BY_PARTS):
            yield from _parts(elements_of(key), depth - 1)
        elif type(key) is types.MethodType:
            yield from (*_parts((key.__func__,), depth - 1), *_owner_of(key))
        elif descriptor_of(key) is not None:
            yield from _owner_of(key)
        elif issubclass(type(key), weakref.ref):
            referent = weakref.ref.__call__(key)
            yield from () if referent is None else (referent,)
        elif type(key) not in PROXIES or type(key) is TensorValue:
            yield key


def _refuse_context(part: Any) -> None:
    """A copy stands for one from outside."""
    if decimals.is_context(type(part)):
        raise broken("unknown-call", "comparing a decimal context")


def _owner_of(method: Any) -> tuple[Any, ...]:
    owner = method.__self__
    if type(owner) in PROXIES and type(owner) is not TensorValue:  # which object it is, is unknown
        raise broken("unknown-call", METHOD_OF_A_NUMBER)
    return (owner,)


def _inside(given: Iterable[Any], depth: int = DEPTH) -> Iterator[Any]:
    for value in given:
        if type(value) in VIEWS or type(value) is types.MappingProxyType:
            value = mapping_behind(value)
        if not issubclass(type(value), CONTAINERS):
            yield from _parts([value])
        elif depth:
            values = dict.values(value) if issubclass(type(value), dict) else ()
            yield from _inside((*elements_of(value), *values), depth - 1)


def _finds(container: Any, key: Any) -> bool:
    base: Any = next(base for base in BY_KEY if issubclass(type(container), base))
    try:
        return bool(base.__contains__(container, key))
    except TypeError:  # which C says once more
        return False


def _keys_of(container: Any) -> tuple[Any, ...]:
    return (
        keys_in_order(container)
        if issubclass(type(container), dict)
        else (*elements_of(container),)
    )
