"""Dicts filled from what is the program's: mappings, and iterables of pairs (see polyfills.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.capture.heap.values import ABSENT
from anyshape.capture.interpreter.intrinsic_names import created, find, is_subtype, native
from anyshape.capture.interpreter.iteration_polyfills import taken


def dict_of(update: Any, make: Any, args: Any, kwargs: Any) -> Any:
    *before, source = args
    made = created(native(make, *before))
    update(made, source, kwargs)
    return made


def item_stored(container: Any, key: Any, value: Any) -> None:
    container[key] = value


def item_deleted(container: Any, key: Any) -> None:
    del container[key]


def dict_update_from(receiver: Any, source: Any, kwargs: Any) -> None:
    """`dict.update`: each pair is stored before the next one is asked for."""
    if hasattr(source, "keys"):
        merge(receiver, source)
    else:
        position = 0
        for pair in source:
            parts = parts_of(pair, position)
            if len(parts) != 2:
                raise ValueError(
                    f"dictionary update sequence element #{position} has length {len(parts)}; "
                    "2 is required"
                )
            native(dict.__setitem__, receiver, parts[0], parts[1])
            position += 1
    for name in kwargs:
        native(dict.__setitem__, receiver, name, kwargs[name])


def parts_of(pair: Any, position: Any) -> Any:
    """A pair as C code takes it apart, which calls every TypeError by one name."""
    try:
        return taken(pair)
    except TypeError:
        pass
    raise TypeError(f"cannot convert dictionary update sequence element #{position} to a sequence")


def merge(receiver: Any, mapping: Any) -> None:
    """As C code merges mappings: a dict that iterates as C has it is not asked."""
    if iterates_in_c(mapping):
        for key, value in native(list, native(dict.items, mapping)):
            native(dict.__setitem__, receiver, key, value)
    else:
        for key in taken(mapping.keys()):
            native(dict.__setitem__, receiver, key, mapping[key])


def iterates_in_c(mapping: Any) -> Any:
    cls = type(mapping)
    return is_subtype(cls, dict) and find(cls, "__iter__") is _dict_iter


_dict_iter = dict.__iter__


def ordered_update_from(receiver: Any, source: Any, kwargs: Any) -> None:
    """`OrderedDict.update`, which stores by `receiver[key] = value`."""
    if type(source) is dict:
        store_pairs(receiver, source.items())
    else:
        store_from(receiver, source)
    if kwargs:
        store_pairs(receiver, kwargs.items())


def update_of(ordered: bool) -> Callable[..., Any]:
    return ordered_update_from if ordered else dict_update_from


def store_from(receiver: Any, source: Any) -> None:
    keys: Any = getattr(source, "keys", ABSENT)
    if keys is not ABSENT:
        for key in keys():
            receiver[key] = source[key]
        return
    items: Any = getattr(source, "items", ABSENT)
    store_pairs(receiver, source if items is ABSENT else items())


def store_pairs(receiver: Any, pairs: Any) -> None:
    for pair in pairs:
        iterator = iter(pair)
        key = next(iterator, ABSENT)
        if key is ABSENT:
            raise ValueError("need more than 0 values to unpack")
        value = next(iterator, ABSENT)
        if value is ABSENT:
            raise ValueError("need more than 1 value to unpack")
        if next(iterator, ABSENT) is not ABSENT:
            raise ValueError("too many values to unpack (expected 2)")
        receiver[key] = value


def dict_updated(update: Any, receiver: Any, source: Any) -> Any:
    """`receiver |= source`."""
    update(receiver, source, {})
    return receiver


def dict_from_mapping(mapping: Any, refusal: Any) -> Any:
    """What `**mapping` gives."""
    values: dict[Any, Any] = {}
    try:
        merge(values, mapping)
        return values
    except AttributeError:
        pass
    raise TypeError(refusal)
