"""How one object of each kind is made anew at the end of a segment.

In: an object that the trace made, and the `Rebuilder` that writes `rebuild`. Out: lines of it, and
the name that they give the object. A kind is one row of `MAKERS`; what has none is an instance,
made bare and given its attributes.
"""

from __future__ import annotations

import functools
import operator
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextvars import Token
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from anyshape.capture.heap import decimals, random_states, times
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.deaths import DeathsAreUnknown
from anyshape.capture.heap.hidden_dicts import PARTIAL_FIELDS, dict_of_partial, hidden_dict, hides
from anyshape.capture.heap.iterators import Position, advanced, position_of
from anyshape.capture.heap.mirrors import MAXLEN, keys_in_order, mapping_behind
from anyshape.capture.heap.quiet_classes import (
    bare_name,
    class_entry,
    flags_of,
    mro_of,
    namespace_of,
)
from anyshape.capture.heap.quiet_reads import asks_the_program
from anyshape.capture.heap.raised_state import (
    ARGS,
    LINKS,
    SETTERS,
    cause_of,
    link_of,
    traceback_of,
)
from anyshape.capture.heap.values import IMMUTABLE
from anyshape.capture.interpreter.attributes import instance_dict
from anyshape.capture.recording import decimal_contexts
from anyshape.capture.segments.owned_objects import KINDS
from anyshape.capture.tensors.torch_polyfills import Context

if TYPE_CHECKING:
    from anyshape.capture.segments.segment_end import Rebuilder


def keyed_iterator(rebuilder: Rebuilder, value: Any) -> str:
    """An iterator over a mapping or a set sees what is written to it later: it is made over the
    container itself, once that is as the segment leaves it."""
    kind = bare_name(type(value))
    position = position_of(value)
    if position is None:
        raise broken("escape", f"a {kind} of a container that has changed")
    container = position.container
    if container is None:
        name = rebuilder.fresh(value)
        rebuilder.add(f"{name} = {rebuilder.constant(position.start)}(None)")
        return name
    if not _is_final(rebuilder, container) or not _keeps_order(rebuilder, position):
        raise broken("escape", f"a {kind} of a container that is made anew")
    text = rebuilder.text(container)
    name = rebuilder.fresh(value)
    start, forward = rebuilder.constant(position.start), rebuilder.constant(advanced)
    rebuilder.add(f"{name} = {forward}({start}({text}), {position.given})")
    return name


def _is_final(rebuilder: Rebuilder, container: Any) -> bool:
    """Whether nothing more is written to the container where its iterator is made."""
    heap = rebuilder.heap
    waits = rebuilder.replaying and heap.is_shadowed(heap.real(container))
    return not waits and id(container) not in rebuilder.making


def _keeps_order(rebuilder: Rebuilder, position: Position) -> bool:
    """Whether a set lies at run time as it does here; what is made in a run has another hash."""
    container, heap = position.container, rebuilder.heap
    if issubclass(type(container), dict):
        return True
    items = list(position.start(container))
    real = heap.real(container)
    if real is not container:
        lying: Any = list(position.start(real))
    elif heap.is_created(container) and all(type(item) in IMMUTABLE for item in items):
        lying = list(set(items))
    else:
        lying = [] if heap.is_created(container) else items
    return len(lying) == len(items) and all(a is b for a, b in zip(lying, items))


def _partial(rebuilder: Rebuilder, value: Any) -> str:
    """What it holds may lead back to it; C gives it a `__dict__` once somebody asks, and a copy
    that of the original."""
    name = rebuilder.fresh(value)
    kind, base = rebuilder.constant(type(value)), rebuilder.constant(functools.partial)
    rebuilder.add(f"{name} = {base}.__new__({kind}, object)")
    own = dict_of_partial(value)
    owner = rebuilder.heap.namespaces.get(id(own), None)
    shared = owner is not None and owner is not value
    parts = [rebuilder.text(field(value)) for field in PARTIAL_FIELDS.values()]
    parts.append(rebuilder.text(own) if shared else "None")
    rebuilder.add(f"{base}.__setstate__({name}, ({', '.join(parts)}))")
    if owner is value:
        rebuilder.add(f"{name}.__dict__")
    if own and not shared:
        attributes(rebuilder, name, value)
    return name


def _require_hashes(value: Any, contains: Callable[[Any, Any], bool]) -> None:
    """An element lies where the hash that it had then has put it: made anew it would lie elsewhere
    if it has another one now."""
    for key in list(value):
        if flags_of(type(key)) & HEAP_TYPE and not contains(value, key):
            raise broken("escape", f"a {bare_name(type(value))} with a key whose hash has changed")


def _list(rebuilder: Rebuilder, value: list[Any]) -> str:
    name = rebuilder.fresh(value)
    if type(value) is list:
        rebuilder.add(f"{name} = []")
    else:
        rebuilder.add(f"{name} = list.__new__({rebuilder.constant(type(value))})")
        attributes(rebuilder, name, value)
    if list.__len__(value):
        items = ", ".join(rebuilder.text(item) for item in list.__iter__(value))
        rebuilder.add(f"list.extend({name}, [{items}])")
    return name


def _dict(rebuilder: Rebuilder, value: dict[Any, Any]) -> str:
    keys_in_order(value)
    _require_hashes(dict.keys(value), lambda keys, key: dict.__contains__(value, key))
    name = rebuilder.fresh(value)
    kind = type(value)
    made = rebuilder.constant(_base_in_c(kind))
    rebuilder.add(
        f"{name} = {{}}" if kind is dict else f"{name} = {made}.__new__({rebuilder.constant(kind)})"
    )
    if issubclass(type(value), defaultdict):
        factory = vars(defaultdict)["default_factory"]
        text, setter = rebuilder.text(factory.__get__(value)), rebuilder.constant(factory.__set__)
        rebuilder.add(f"{setter}({name}, {text})")
    base = OrderedDict if issubclass(type(value), OrderedDict) else dict
    setter = rebuilder.constant(base.__setitem__)
    for key, item in base.items(value):
        text = rebuilder.text(item)
        rebuilder.add(
            f"{name}[{rebuilder.text(key)}] = {text}"
            if kind is dict
            else f"{setter}({name}, {rebuilder.text(key)}, {text})"
        )
    if kind is not dict:
        attributes(rebuilder, name, value)
    return name


def _set(rebuilder: Rebuilder, value: set[Any]) -> str:
    _require_hashes(set.__iter__(value), lambda members, key: set.__contains__(value, key))
    name = rebuilder.fresh(value)
    kind = rebuilder.constant(type(value))
    rebuilder.add(f"{name} = set.__new__({kind})")
    attributes(rebuilder, name, value)
    items = ", ".join(rebuilder.text(item) for item in set.__iter__(value))
    rebuilder.add(f"set.update({name}, [{items}])")
    return name


def _frozenset(rebuilder: Rebuilder, value: frozenset[Any]) -> str:
    items = ", ".join(rebuilder.text(item) for item in frozenset.__iter__(value))
    name = rebuilder.fresh(value)
    rebuilder.add(f"{name} = frozenset.__new__({rebuilder.constant(type(value))}, [{items}])")
    attributes(rebuilder, name, value)
    return name


def _deque(rebuilder: Rebuilder, value: deque[Any]) -> str:
    name = rebuilder.fresh(value)
    made, kind = rebuilder.constant(deque), rebuilder.constant(type(value))
    rebuilder.add(f"{name} = {made}.__new__({kind})")
    attributes(rebuilder, name, value)
    items = ", ".join(rebuilder.text(item) for item in deque.__iter__(value))
    rebuilder.add(f"{made}.__init__({name}, [{items}], {MAXLEN(value)!r})")
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
    rebuilder.add(f"{name}.__doc__ = {rebuilder.text(value.__doc__)}")
    rebuilder.add(f"{name}.__module__ = {rebuilder.text(value.__module__)}")
    if value.__annotations__:
        rebuilder.add(f"{name}.__annotations__ = {rebuilder.text(value.__annotations__)}")
    parameters = getattr(value, "__type_params__", ())  # since 3.12
    if parameters:
        rebuilder.add(f"{name}.__type_params__ = {rebuilder.text(parameters)}")
    for key, item in value.__dict__.items():
        rebuilder.add(f"{name}.__dict__[{rebuilder.text(key)}] = {rebuilder.text(item)}")
    return name


def _exception(rebuilder: Rebuilder, value: BaseException) -> str:
    """Made as C code does, whatever its class says; then its state, and what it was raised of."""
    base = _base_in_c(type(value))
    made, kind = rebuilder.constant(base), rebuilder.constant(type(value))
    args = rebuilder.text(ARGS.__get__(value))
    group = issubclass(base, BaseExceptionGroup)  # made of its parts, whatever the arguments are
    parts = rebuilder.text(tuple([part.__get__(value) for part in GROUP])) if group else args
    name = rebuilder.fresh(value)
    rebuilder.add(f"{name} = {made}.__new__({kind}, *{parts})")
    rebuilder.add(f"{rebuilder.constant(ARGS.__set__)}({name}, {args})")
    for member in _members(base):
        content = member.__get__(value)
        if content is not None:
            setter = rebuilder.constant(member.__set__)
            rebuilder.add(f"{setter}({name}, {rebuilder.text(content)})")
    _state_of_raising(rebuilder, name, value)
    attributes(rebuilder, name, value)
    return name


def _state_of_raising(rebuilder: Rebuilder, name: str, value: BaseException) -> None:
    """Set by C: a cause that is set also says that no context is shown."""
    given = {"__suppress_context__": cause_of(value) is not None}
    for link in LINKS:
        content = link_of(value, link)
        if content is not given.get(link):
            setter = rebuilder.constant(SETTERS[link])
            rebuilder.add(f"{setter}({name}, {rebuilder.text(content)})")
    found = traceback_of(value)
    if found is not None:
        setter = rebuilder.constant(SETTERS["__traceback__"])
        rebuilder.add(f"{setter}({name}, {_traceback(rebuilder, found)})")


def _base_in_c(kind: type) -> type:
    """The class whose C code makes the instances, whatever classes of the program say."""
    return next(base for base in mro_of(kind) if not flags_of(base) & HEAP_TYPE)


def _members(base: type) -> list[Any]:
    """The fields that C code keeps in exceptions of a class, such as `OSError.filename`."""
    found = [m for b in mro_of(base) for m in namespace_of(b).values() if type(m) is MEMBER]
    return [m for m in found if m.__objclass__ is not BaseException and m.__name__ not in READ_ONLY]


MEMBER = types.MemberDescriptorType
GROUP = tuple(vars(BaseExceptionGroup)[name] for name in ("message", "exceptions"))
READ_ONLY = frozenset(part.__name__ for part in GROUP)


def _traceback(rebuilder: Rebuilder, value: types.TracebackType) -> str:
    """Its lines, with the frame that stands for each code; what was handed in is itself."""
    known = rebuilder.made(value)
    if known is not None:
        return known
    source = rebuilder.recorder.sources.of(value)
    if source is not None:
        return rebuilder.read(source)
    if rebuilder.domain.deaths.watch == "watched":  # its frames hold what this capture has made
        raise DeathsAreUnknown
    following = "None" if value.tb_next is None else _traceback(rebuilder, value.tb_next)
    made, frame = rebuilder.constant(types.TracebackType), rebuilder.constant(value.tb_frame)
    name = rebuilder.fresh(value)
    rebuilder.add(f"{name} = {made}({following}, {frame}, {value.tb_lasti}, {value.tb_lineno})")
    return name


def _getter(rebuilder: Rebuilder, value: Any) -> str:
    """An `operator.itemgetter` or the like, by what it says that it was made of."""
    make, args, *_ = value.__reduce__()
    parts = ", ".join(rebuilder.text(arg) for arg in args)
    return rebuilder.named(value, f"{rebuilder.text(make)}({parts})")


def _time(rebuilder: Rebuilder, value: Any) -> str:
    """One of a `tzinfo` is made of what that is in this run."""
    zone_of = times.ZONES.get(type(value))
    if type(value) not in times.CLASSES:
        return _time_of_subclass(rebuilder, value)
    if zone_of is None or times.is_plain(value):
        return rebuilder.constant(value)
    bare = rebuilder.constant(value.replace(tzinfo=None))
    return rebuilder.named(value, f"{bare}.replace(tzinfo={rebuilder.text(zone_of(value))})")


def _time_of_subclass(rebuilder: Rebuilder, value: Any) -> str:
    """Made by C of its fields, whatever its class says."""
    base = _base_in_c(type(value))
    fields = [getattr(base, name).__get__(value) for name in times.FIELDS[base]]
    *parts, zone = (*fields, None) if base not in times.ZONES else fields
    given = [rebuilder.constant(type(value)), *map(repr, parts)]
    named = f", tzinfo={rebuilder.text(zone)}, fold={value.fold}" if base in times.ZONES else ""
    name = rebuilder.fresh(value)
    rebuilder.add(f"{name} = {rebuilder.constant(base)}.__new__({', '.join(given)}{named})")
    attributes(rebuilder, name, value)
    return name


def _owned(rebuilder: Rebuilder, value: Any) -> str:
    """An object of C that nobody but capture has had, as its row makes it again."""
    row = KINDS.get(type(value))
    if row is None:  # a class of the program is what it is
        return instance(rebuilder, value)
    state = row.state(value)
    if state is None:
        raise broken("escape", f"a {bare_name(type(value))}, as it is now,")
    name = rebuilder.named(value, f"{rebuilder.constant(row.again)}({rebuilder.constant(state)})")
    attributes(rebuilder, name, value)
    return name


def _generator_of_numbers(rebuilder: Rebuilder, value: Any) -> str:
    """A `random.Random`: of the state that it has here, or seeded by the system in each call."""
    slots, state = rebuilder.heap.slots, "None"
    if not random_states.is_by_chance(slots, value):
        if random_states.twin_of(slots, value) is None:
            raise broken("escape", f"a {bare_name(type(value))} that nothing has seeded")
        state = rebuilder.constant(random_states.state_of(value))
    kind, made = rebuilder.constant(type(value)), rebuilder.constant(random_states.with_state)
    name = rebuilder.named(value, f"{made}({kind}, {state})")
    attributes(rebuilder, name, value)
    return name


def _context(rebuilder: Rebuilder, value: Any) -> str:
    """A context of `decimal`, with the flags that it has here."""
    decimal_contexts.read_flags(rebuilder.domain, value)
    state = decimals.settings_of(value), decimals.flags_of_context(value)
    parts = ", ".join(map(rebuilder.constant, (type(value), *state)))
    return rebuilder.named(value, f"{rebuilder.constant(decimals.context_of)}({parts})")


def _alias(rebuilder: Rebuilder, value: types.GenericAlias) -> str:
    """`list[int]`; an unpacked one is what such a one gives when it is iterated over."""
    made = rebuilder.constant(types.GenericAlias)
    text = f"{made}({rebuilder.text(value.__origin__)}, {rebuilder.text(value.__args__)})"
    if getattr(value, "__unpacked__", False):
        text = f"{rebuilder.constant(next)}({rebuilder.constant(iter)}({text}))"
    return rebuilder.named(value, text)


def _token(rebuilder: Rebuilder, value: Any) -> str:
    """What the write at the segment's end has given; no write in front of that can hold it."""
    setting = rebuilder.domain.variables.tokens.get(id(value))
    if setting is None or rebuilder.replaying:
        raise broken("escape", "a token of a context variable")
    setting.escapes = True
    return rebuilder.named(value, f"{rebuilder.constant(setting.token)}()")


def _proxy(rebuilder: Rebuilder, value: Any) -> str:
    """Of a dict that was made, or handed in; that of a class is no object of its own."""
    mapping = mapping_behind(value)
    handed = rebuilder.recorder.sources.of(mapping) is not None
    if not handed and not rebuilder.heap.is_created(mapping):
        raise broken("escape", "an object of class mappingproxy")
    made = rebuilder.constant(types.MappingProxyType)
    return rebuilder.named(value, f"{made}({rebuilder.text(mapping)})")


def _bytearray(rebuilder: Rebuilder, value: bytearray) -> str:
    name = rebuilder.fresh(value)
    made, kind = rebuilder.constant(bytearray), rebuilder.constant(type(value))
    rebuilder.add(f"{name} = {made}.__new__({kind})")
    rebuilder.add(f"{made}.__init__({name}, {bytes(bytearray.__iter__(value))!r})")
    attributes(rebuilder, name, value)
    return name


def instance(rebuilder: Rebuilder, value: Any) -> str:
    """An object with nothing but attributes; breaks where C code has made more of it."""
    kind = type(value)
    if decimals.is_context(kind):
        return _context(rebuilder, value)
    made = _allocator(kind)
    bare = kind.__new__ is not made.__new__ and instance_dict(value) is None
    if (bare and not _slots(kind)) or not _is_plain(kind) or issubclass(kind, Context):
        raise broken("escape", f"an object of class {bare_name(kind)}")
    name = rebuilder.fresh(value)
    base = "object" if made is object else rebuilder.constant(made)
    rebuilder.add(f"{name} = {base}.__new__({rebuilder.constant(kind)})")
    attributes(rebuilder, name, value)
    return name


ATTRIBUTES_ALONE = (tzinfo, types.SimpleNamespace)
"""Classes of C whose objects hold nothing but attributes."""


def _allocator(kind: type) -> Any:
    """The class whose `__new__` makes a bare object of a class."""
    return next((base for base in ATTRIBUTES_ALONE if issubclass(kind, base)), object)


def _is_plain(kind: type) -> bool:
    """Whether all that an instance holds is in its attributes: no C base has made it its way."""
    try:
        _allocator(kind).__new__(kind)
    except TypeError:
        return False
    return True


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in mro_of(kind):
        slots = namespace_of(base).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def own_names_text(rebuilder: Rebuilder, name: str, value: Any) -> str:
    """Python text of the dictionary of an object's own names, past all code of its class."""
    if hides(type(value)):
        return f"{rebuilder.constant(hidden_dict)}({name})"
    if asks_the_program(value, "attr"):
        return f"object.__getattribute__({name}, '__dict__')"
    return f"{name}.__dict__"


def attributes(rebuilder: Rebuilder, name: str, value: Any) -> None:
    """What lies in the object's `__dict__` and slots."""
    values = instance_dict(value)
    if values:
        items = [(key, rebuilder.text(item)) for key, item in values.items()]
        namespace = own_names_text(rebuilder, name, value)
        for key, text in items:
            rebuilder.add(f"{namespace}[{rebuilder.text(key)}] = {text}")
    for slot in _slots(type(value)):
        try:
            item = object.__getattribute__(value, slot)
        except AttributeError:
            continue
        rebuilder.add(f"object.__setattr__({name}, {slot!r}, {rebuilder.text(item)})")


def _of_value(rebuilder: Rebuilder, value: Any) -> str:
    """An object of a class of the program's that is a number or a text: made of it by C."""
    base = _base_in_c(type(value))
    made, kind = rebuilder.constant(base), rebuilder.constant(type(value))
    args = ", ".join(rebuilder.constant(arg) for arg in class_entry(base, "__getnewargs__")(value))
    name = rebuilder.named(value, f"{made}.__new__({kind}, {args})")
    attributes(rebuilder, name, value)
    return name


MAKERS: tuple[tuple[Any, Callable[[Rebuilder, Any], str]], ...] = (
    (list, _list),
    (dict, _dict),
    (set, _set),
    (frozenset, _frozenset),
    (deque, _deque),
    (types.CellType, _cell),
    (functools.partial, _partial),
    (types.FunctionType, _function),
    (BaseException, _exception),
    (types.TracebackType, _traceback),
    (times.KINDS, _time),
    (tuple(KINDS), _owned),
    (random_states.KIND, _generator_of_numbers),
    (bytearray, _bytearray),
    ((int, float, complex, str, bytes), _of_value),
    (types.GenericAlias, _alias),
    (Token, _token),
    (types.MappingProxyType, _proxy),
    ((operator.itemgetter, operator.attrgetter, operator.methodcaller), _getter),
)
