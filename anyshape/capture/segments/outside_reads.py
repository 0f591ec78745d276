"""What reading from an outside object means: which guard it makes, by the kind of read.

In: a source and the value that was found one step further. Out: what the program sees of it.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyshape.capture.guards.constant_kinds import CONSTANTS
from anyshape.capture.guards.guard_code import NumberBinding
from anyshape.capture.guards.guard_failures import OUTSIDE_CONTAINERS, contents_of
from anyshape.capture.heap import times
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.hidden_dicts import names_of
from anyshape.capture.heap.mirrors import buffer_of
from anyshape.capture.heap.purity import is_library
from anyshape.capture.heap.quiet_classes import (
    C_FUNCTIONS,
    bare_name,
    class_entry,
    flags_of,
    has_entry,
    is_of_code,
)
from anyshape.capture.heap.quiet_reads import runs_a_function
from anyshape.capture.heap.sources import Source, number_in
from anyshape.capture.heap.values import NULL, PROXIES, SizeValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.segments.looked_up import rely_on_keys
from anyshape.ir.graph import Value
from anyshape.nouns import frozen
from anyshape.symbolic import Condition, Dim


def _read_attr(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    if type(source.pinned) is types.CodeType:
        return value
    if key == "__dict__" and type(value) is dict:
        child = domain.recorder.sources.child(source, "attr", key)
        if source.is_pinned:
            domain.recorder.sources.pin(child, value, borrowed=source.is_borrowed)
        else:
            domain.recorder.sources.remember(value, child)
        return value
    child = domain.recorder.sources.child(source, "attr", key)
    if (
        source.is_pinned
        and not child.is_pinned
        and type(value) not in CONSTANTS
        and _is_computed(source.pinned, key, value)
    ):
        domain.recorder.sources.remember(value, child)
        return value
    return domain.see(child, value)


def _is_computed(obj: Any, key: str, value: Any) -> bool:
    """Whether C code makes the attribute anew each time it is asked."""
    names = names_of(obj) or ()
    if issubclass(type(obj), type) or key in names:
        return False
    return getattr(obj, key, None) is not value


def _read_item(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    if type(key) in PROXIES:
        raise broken("unknown-call", "an outside dict with a symbolic key")
    sources = domain.recorder.sources
    key_source = sources.of(key) if isinstance(key, torch.Tensor) else None
    text = None if key_source is None else f"{source.text}[{key_source.text}]"
    return domain.see(sources.child(source, "item", key, text), value)


def number_read(domain: RecordingDomain, key: Any) -> Source | None:
    """Where each call reads the number that a key is; None where it is computed."""
    symbol = key.expr.symbol if type(key) is SizeValue else None
    if symbol is None:
        return None
    found = (b for b in domain.recorder.bindings if isinstance(b, NumberBinding))
    return next((binding.source for binding in found if binding.unknown is symbol), None)


def read_at_number(domain: RecordingDomain, obj: Any, key: Any) -> Any:
    """`obj[key]` of an outside container that lies as it lay before the segment, where the key is
    a number that each call reads: what lies there is read anew with it. NULL for any other."""
    heap, source = domain.machine.heap, number_read(domain, key)
    if source is None or type(obj) not in INDEXED or heap.is_created(obj) or heap.is_shadowed(obj):
        return NULL
    if domain.recorder.sources.of(obj) is None:
        return NULL
    try:
        value = obj[domain.recorder.hints[key.expr.symbol]]
    except LookupError:
        return NULL
    return domain.read(obj, "item", source, value)


INDEXED = frozenset({list, tuple, dict})


def _read_entry(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    """What lies in a dict whose class has a ``__getitem__`` of its own."""
    return domain.see(domain.recorder.sources.child(source, "get", key), value)


def _read_target(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    """What a weak reference refers to."""
    return domain.see(domain.recorder.sources.child(source, "target", key), value)


def _read_cell(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    return domain.see(domain.recorder.sources.child(source, "cell", key), value)


def _relied(kind: str) -> Callable[[RecordingDomain, Source, Any, Any], Any]:
    def read(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
        if kind == "keys":
            rely_on_keys(domain, value)
        if kind in ("keys", "buffer", "time"):
            _refuse_changing(domain, source, "iteration")
        domain.recorder.guard(source, kind, value)
        return value

    return read


def look_inside(domain: RecordingDomain, obj: Any) -> None:
    """C code reads what an object from outside holds: only what a guard can compare, where it may
    change."""
    if domain.recorder.sources.of(obj) is None:
        return
    if type(obj) in times.CLASSES:
        zone_of = times.ZONES.get(type(obj))
        if zone_of is not None and not times.is_plain(obj):
            domain.read(obj, "attr", "tzinfo", zone_of(obj))
        domain.read(obj, "time", None, times.state_of(obj))
        return
    iterates = type(class_entry(type(obj), "__iter__")) in C_FUNCTIONS
    if not iterates or issubclass(type(obj), UNCHANGING) or has_entry(type(obj), "__next__"):
        return
    content = buffer_of(obj)
    if content is None:
        raise broken("unknown-call", f"what a {bare_name(type(obj))} from outside holds")
    domain.read(obj, "buffer", None, content)


UNCHANGING = (str, bytes, range, type, types.GenericAlias)


def _refuse_changing(domain: RecordingDomain, source: Source, what: str) -> None:
    """What lies in a container that grows from call to call is asked natively."""
    if contents_of(source.text) in domain.widen:
        raise broken("changing-value", what)


def _read_count(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    _refuse_changing(domain, source, "the length")
    if not (source.is_pinned and issubclass(type(source.pinned), (tuple, frozenset, str))):
        domain.recorder.guard(source, "length", value)
    return value


def _read_len(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    """How much lies in a container: a number like any other where that changes."""
    if contents_of(source.text) in domain.widen:
        return domain.recorder.length(value, source)
    return _read_count(domain, source, key, value)


def _read_contains(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    if type(key) in PROXIES:
        raise broken("unknown-call", "membership of a symbolic value in an outside container")
    _refuse_changing(domain, source, "membership")
    domain.recorder.guard(source, "contains", (key, value))
    return value


def _lacks(kind: str) -> Callable[[RecordingDomain, Source, Any, Any], Any]:
    def read(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
        domain.recorder.guard(source, kind, key)
        return value

    return read


def _read_unbound(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    domain.recorder.guard(source, "contains", (key, False))
    return value


ABSENCES = frozenset({"missing", "hidden", "unset", "unset_in_c", "unbound"})
ATTRIBUTES = frozenset({"attr", "missing", "hidden"})
SEQUENCES = (list, tuple, deque)
CONTAINERS = (*SEQUENCES, dict, set, frozenset, bytearray)

# A special method, the classes whose C code is past it, and the reads that guards repeat by it.
READ_BY_METHOD: tuple[tuple[str, Any, frozenset[str]], ...] = (
    ("__getattribute__", object, ATTRIBUTES),
    ("__len__", CONTAINERS, frozenset({"len", "count", "keys"})),
    ("__getitem__", SEQUENCES, frozenset({"item"})),
    ("__iter__", CONTAINERS, frozenset({"keys"})),
    ("keys", dict, frozenset({"keys"})),
    ("__contains__", CONTAINERS, frozenset({"contains"})),
)


def read_by_code(cls: type) -> frozenset[str]:
    """The kinds of reads of its objects that a guard would repeat by code of the program."""
    found: frozenset[str] = frozenset()
    for name, kinds, reads in READ_BY_METHOD:
        if issubclass(cls, kinds):
            if is_of_code(cls, name):
                found |= reads
    return found


def names_past_code(obj: Any) -> dict[str, Any] | None:
    """The dictionary of an object's own names, for which no code of the program is asked; None
    where it has none that is plain."""
    if issubclass(type(obj), type) or type(class_entry(type(obj), "__dict__")) not in GETSETS:
        return None
    names = names_of(obj)
    return names if type(names) is dict else None


GETSETS = (types.GetSetDescriptorType, type(None))


def _read_names(domain: RecordingDomain, names: Source, key: Any, value: Any) -> Any:
    if key != "__dict__":
        return domain.see(domain.recorder.sources.child(names, "item", key), value)
    if not names.is_pinned:
        domain.recorder.sources.remember(value, names)
    return value


def answers_if_absent(machine: Any, obj: Any, name: str) -> bool:
    """Whether code of the program answers for an attribute in a call in which the object has none
    of its own: a `__getattr__`, or a descriptor that the entry stands before."""
    cls = type(obj)
    if not flags_of(cls) & HEAP_TYPE or issubclass(cls, (type, types.ModuleType)):
        return False
    hook = machine.lookup(cls, "__getattr__")
    if type(hook) in C_FUNCTIONS or (
        type(hook) is types.FunctionType and not is_library(str(hook.__module__))
    ):
        return True
    found = machine.lookup(cls, name)
    if type(found) is classmethod:
        found = found.__func__
    return found is not NULL and runs_a_function(found)


def _read_member(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    """What lies in a slot."""
    return domain.see(domain.recorder.sources.child(source, "member", key), value)


def _read_maxlen(domain: RecordingDomain, source: Source, key: Any, value: Any) -> Any:
    """How much a deque holds: another one loses other elements."""
    domain.recorder.guard(domain.recorder.sources.child(source, "attr", "maxlen"), "equals", value)
    return value


READS: Mapping[str, Callable[[RecordingDomain, Source, Any, Any], Any]] = {
    "attr": _read_attr,
    "member": _read_member,
    "item": _read_item,
    "entry": _read_entry,
    "target": _read_target,
    "global": _read_item,
    "closure": _read_cell,
    "len": _read_len,
    "count": _read_count,
    "maxlen": _read_maxlen,
    "keys": _relied("keys"),
    "buffer": _relied("buffer"),
    "time": _relied("time"),
    "type": _relied("type"),
    "contains": _read_contains,
    "missing": _lacks("missing"),
    "hidden": _lacks("hidden"),
    "unset": _lacks("unset"),
    "unset_in_c": _lacks("unset_in_c"),
    "no_content": _lacks("no_content"),
    "unbound": _read_unbound,
    "iter": lambda domain, source, key, value: value,
}
READS_OF_NAMES: Mapping[str, Callable[[RecordingDomain, Source, Any, Any], Any]] = {
    "attr": _read_names,
    "missing": _read_unbound,
}


@frozen(eq=False)
class OutsideNumbers:
    """Numbers that lie in tensors from outside; see ``scalar_contents.py``."""

    domain: RecordingDomain

    def number(self, value: Value, *, relies: bool) -> Dim | None:
        recorder = self.domain.recorder
        proxy, source = recorder.proxy_of(value), recorder.source_of(value)
        tensor = None if proxy is None else recorder.real_tensor(proxy)
        if tensor is None or source is None or tensor.dtype is not torch.int64:
            return None
        found = number_in(tensor)
        if found is None or not relies:
            return found
        seen = self.domain.see(recorder.sources.child(source, "number", None), found)
        return seen.expr if type(seen) is SizeValue else found

    def holds(self, condition: Condition | bool, *, relies: bool) -> bool:
        cx, known = self.domain.recorder.cx, self.domain.recorder.cx.known(condition)
        if self.domain.recorder.depth or known is not None:
            return known is True and not self.domain.recorder.depth
        return cx.hint(condition) is True and (not relies or cx.decide(condition))


def is_hyperparameter(source: Source) -> bool:
    """Whether it lies in a group of an optimizer's parameters: schedules write there."""
    groups = source.base.base if source.base is not None else None
    if groups is None or groups.kind != "attr" or groups.key != "param_groups":
        return False
    return groups.base is not None and isinstance(groups.base.pinned, torch.optim.Optimizer)


def may_be_replaced(source: Source | None, widen: frozenset[str]) -> bool:
    """Whether it lies in an attribute, of a program of which modules have been replaced."""
    return source is not None and source.kind == "attr" and OUTSIDE_CONTAINERS in widen


def is_factor(source: Source, widen: frozenset[str]) -> bool:
    """Whether it is an item of what may be replaced."""
    return source.kind == "item" and may_be_replaced(source.base, widen)
