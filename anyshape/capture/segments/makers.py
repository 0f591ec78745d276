"""How one object of each kind is made anew at the end of a segment.

In: an object that the trace made, and the `Rebuilder` that writes `rebuild`. Out: lines of it, and
the name that they give the object. A kind is one row of `MAKERS`; what has none is an instance,
made bare and given its attributes.
"""

from __future__ import annotations

import functools
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anyshape.capture.heap.breaks import broken

if TYPE_CHECKING:
    from anyshape.capture.segments.segment_end import Rebuilder


def _partial(rebuilder: Rebuilder, value: Any) -> str:
    name = rebuilder.fresh(value)
    made = rebuilder.constant(type(value))
    parts = [rebuilder.text(part) for part in (value.func, *value.args)]
    named = rebuilder.text(value.keywords)
    rebuilder.add(f"{name} = {made}({', '.join(parts)}, **{named})")
    return name


def _list(rebuilder: Rebuilder, value: list[Any]) -> str:
    name = rebuilder.fresh(value)
    if type(value) is list:
        rebuilder.add(f"{name} = []")
    else:
        rebuilder.add(f"{name} = list.__new__({rebuilder.constant(type(value))})")
        _attributes(rebuilder, name, value)
    if value:
        items = ", ".join(rebuilder.text(item) for item in list.__iter__(value))
        rebuilder.add(f"list.extend({name}, [{items}])")
    return name


def _dict(rebuilder: Rebuilder, value: dict[Any, Any]) -> str:
    name = rebuilder.fresh(value)
    kind = type(value)
    rebuilder.add(
        f"{name} = {{}}"
        if kind is dict
        else f"{name} = {rebuilder.constant(kind)}.__new__({rebuilder.constant(kind)})"
    )
    factory = getattr(value, "default_factory", None)
    if factory is not None:
        rebuilder.add(f"{name}.default_factory = {rebuilder.text(factory)}")
    base = OrderedDict if isinstance(value, OrderedDict) else dict
    setter = rebuilder.constant(base.__setitem__)
    for key, item in base.items(value):
        text = rebuilder.text(item)
        rebuilder.add(
            f"{name}[{rebuilder.text(key)}] = {text}"
            if kind is dict
            else f"{setter}({name}, {rebuilder.text(key)}, {text})"
        )
    if kind is not dict:
        _attributes(rebuilder, name, value)
    return name


def _set(rebuilder: Rebuilder, value: set[Any]) -> str:
    name = rebuilder.fresh(value)
    items = ", ".join(rebuilder.text(item) for item in value)
    rebuilder.add(f"{name} = {rebuilder.constant(type(value))}([{items}])")
    return name


def _deque(rebuilder: Rebuilder, value: deque[Any]) -> str:
    name = rebuilder.fresh(value)
    items = ", ".join(rebuilder.text(item) for item in value)
    rebuilder.add(f"{name} = {rebuilder.constant(deque)}([{items}], {value.maxlen!r})")
    return name


def _cell(rebuilder: Rebuilder, value: Any) -> str:
    name = rebuilder.fresh(value)
    rebuilder.add(f"{name} = {rebuilder.constant(types.CellType)}()")
    _fill(rebuilder, name, value)
    return name


def _fill(rebuilder: Rebuilder, name: str, cell: Any) -> None:
    try:
        contents = cell.cell_contents
    except ValueError:
        return
    rebuilder.add(f"{name}.cell_contents = {rebuilder.text(contents)}")


def _function(rebuilder: Rebuilder, value: types.FunctionType) -> str:
    """What cells and defaults hold may lead back to the function: they are filled afterwards."""
    cells = value.__closure__ or ()
    empty = [cell for cell in cells if rebuilder.is_unmade(cell)]
    for cell in empty:
        rebuilder.add(f"{rebuilder.fresh(cell)} = {rebuilder.constant(types.CellType)}()")
    closure = "".join(f"{rebuilder.text(cell)}, " for cell in cells)
    name = rebuilder.fresh(value)
    parts = [
        rebuilder.constant(value.__code__),
        rebuilder.constant(value.__globals__),
        repr(value.__name__),
    ]
    make, given = rebuilder.constant(types.FunctionType), f"({closure})" if closure else "None"
    rebuilder.add(f"{name} = {make}({', '.join(parts)}, None, {given})")
    for cell in empty:
        _fill(rebuilder, rebuilder.text(cell), cell)
    rebuilder.add(f"{name}.__defaults__ = {rebuilder.text(value.__defaults__)}")
    rebuilder.add(f"{name}.__kwdefaults__ = {rebuilder.text(value.__kwdefaults__)}")
    rebuilder.add(f"{name}.__qualname__ = {value.__qualname__!r}")
    for key, item in value.__dict__.items():
        rebuilder.add(f"{name}.__dict__[{key!r}] = {rebuilder.text(item)}")
    return name


def _exception(rebuilder: Rebuilder, value: BaseException) -> str:
    name = rebuilder.fresh(value)
    kind = rebuilder.constant(type(value))
    rebuilder.add(f"{name} = {kind}.__new__({kind}, *{rebuilder.text(value.args)})")
    _attributes(rebuilder, name, value)
    return name


def _getter(rebuilder: Rebuilder, value: Any) -> str:
    """An `operator.itemgetter` or the like, by what it says that it was made of."""
    make, args, *_ = value.__reduce__()
    parts = ", ".join(rebuilder.text(arg) for arg in args)
    return f"{rebuilder.text(make)}({parts})"


def _bytearray(rebuilder: Rebuilder, value: bytearray) -> str:
    name = rebuilder.fresh(value)
    rebuilder.add(f"{name} = {rebuilder.constant(bytearray)}({bytes(value)!r})")
    return name


def _class(rebuilder: Rebuilder, value: type) -> str:
    raise broken("escape", f"the class {value.__name__}, made in the function,")


def instance(rebuilder: Rebuilder, value: Any) -> str:
    """An object with nothing but attributes; breaks where C code has made more of it."""
    kind = type(value)
    bare = kind.__new__ is not object.__new__ and not hasattr(value, "__dict__")
    if (bare and not _slots(kind)) or not _is_plain(kind):
        raise broken("escape", f"an object of class {kind.__name__}")
    name = rebuilder.fresh(value)
    rebuilder.add(f"{name} = object.__new__({rebuilder.constant(kind)})")
    _attributes(rebuilder, name, value)
    return name


def _is_plain(kind: type) -> bool:
    """Whether all that an instance holds is in its attributes: no C base has made it its way."""
    try:
        object.__new__(kind)
    except TypeError:
        return False
    return True


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _attributes(rebuilder: Rebuilder, name: str, value: Any) -> None:
    namespace = getattr(value, "__dict__", None)
    if namespace:
        items = [(key, rebuilder.text(item)) for key, item in namespace.items()]
        for key, text in items:
            rebuilder.add(f"{name}.__dict__[{key!r}] = {text}")
    for slot in _slots(type(value)):
        try:
            item = object.__getattribute__(value, slot)
        except AttributeError:
            continue
        rebuilder.add(f"object.__setattr__({name}, {slot!r}, {rebuilder.text(item)})")


MAKERS: tuple[tuple[Any, Callable[[Rebuilder, Any], str]], ...] = (
    (list, _list),
    (dict, _dict),
    ((set, frozenset), _set),
    (deque, _deque),
    (types.CellType, _cell),
    (functools.partial, _partial),
    (types.FunctionType, _function),
    (BaseException, _exception),
    (type, _class),
    (bytearray, _bytearray),
    ((operator.itemgetter, operator.attrgetter, operator.methodcaller), _getter),
)
