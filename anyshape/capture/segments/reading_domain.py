"""The reading half of the domain that records: what the program sees of objects that were there
before it ran.

In: an outside object and what was read from it. Out: what the program sees, and guards on what it
relies on: constants by value, what holds the program together by identity, what may be another
object in each call by its type and its contents as they are read.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from anyshape.capture.guards.constant_kinds import (
    CALLED,
    CONSTANTS,
    EQUAL,
    IDENTITY,
    OWNERS,
    is_simple,
)
from anyshape.capture.guards.guard_code import OPAQUE
from anyshape.capture.guards.guard_failures import data_of
from anyshape.capture.guards.tensor_specs import in_words, is_handed_on
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.deaths import Deaths
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.iterators import FORKABLE
from anyshape.capture.heap.nested_containers import elements_of
from anyshape.capture.heap.numpy_scalars import is_numpy_number
from anyshape.capture.heap.quiet_classes import bare_name, class_entry
from anyshape.capture.heap.quiet_reads import PLAIN_BASES, descriptor_of, plain_of
from anyshape.capture.heap.sources import Source
from anyshape.capture.heap.unread_writes import PLAIN_KEYS
from anyshape.capture.heap.values import BOUND_IN_C, BY_VALUE, PROXIES, OpaqueValue, TensorValue
from anyshape.capture.interpreter import c_callbacks
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.recording import decimal_contexts
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.segments import looked_up
from anyshape.capture.segments.ended_references import WEAK, Ended
from anyshape.capture.segments.outside_reads import (
    ABSENCES,
    ATTRIBUTES,
    READS,
    READS_OF_NAMES,
    answers_if_absent,
    is_factor,
    is_hyperparameter,
    may_be_replaced,
    names_past_code,
    read_by_code,
)
from anyshape.capture.segments.suspended_generators import see_generator
from anyshape.capture.tensors import later_reads, tensor_ops


def is_global(function: types.FunctionType) -> bool:
    """Whether a guard compares its identity: no call makes it anew, or the program named it. What
    `functools.wraps` notes of a function is read where it lies, as its closure is."""
    if function.__dict__.keys() - {"__wrapped__"}:
        return True
    if "<locals>" in function.__qualname__ or function.__name__ == "<lambda>":
        return False
    return not function.__closure__


def is_handed_in(source: Source) -> bool:
    """Whether the caller handed it in: by itself, or in a container that may be another one, or
    where a number of the caller's says."""
    step = source.base
    while step is not None and not step.is_pinned:
        if source.is_varying:
            return True
        source, step = step, step.base
    return source.is_varying or (step is None and source.kind == "slot")


def _is_left_by_earlier_code(recorder: Recorder, source: Source) -> bool:
    """Whether it is a number in a tensor that the code before a graph break left in a variable:
    most such tensors are made anew in each call."""
    tensor = source.base if source.kind == "number" else None
    return tensor is not None and tensor.kind == "slot" and recorder.resumed


HANDED_ON = (*OWNERS, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
"""What the program may have made a moment ago, and see dying: behind a break, a guard that compares
its identity does not keep it alive."""


HASHED_AS_NUMBERS = frozenset({int, float, complex, bool, tuple})
"""Classes of keys that an object of the program's may well have the hash of, and so be asked; to
have that of a text it has to be made for it."""

BOUND = frozenset({types.MethodType, *BOUND_IN_C})
MADE_OF_PARTS = frozenset({tuple, *BOUND})
"""Classes of what may stand for what was read."""

NAMES = frozenset({"global", "unbound"})
"""Reads of the names of a module, or of none there."""

READ_AS_THEY_ARE = (tuple, list, dict, set, frozenset, BaseException)
"""Classes of objects that nobody but the segment has had, where nobody knows where they are from:
what C made, or raised."""


def refuse_unhashed(cls: type) -> None:
    """Tables of classes are looked up by hash: raises ``Break`` for one whose metaclass has none,
    and the function runs natively: what lies behind would meet it again."""
    if type(cls) is not type and class_entry(type(cls), "__hash__") is None:
        raise broken("escape", f"{bare_name(cls)}, whose metaclass has no `__hash__`,")


class ReadingDomain(RecordingDomain):
    """See the module."""

    def __init__(self, recorder: Recorder, widen: frozenset[str]) -> None:
        self.recorder = recorder
        self.relied = recorder.relied
        self.widen = widen
        self.expects_others = False  # floats that have had one value are numbers of each call
        self.deaths = Deaths("refused")
        self.plain = set()
        self._iterators: dict[int, tuple[Any, Any]] = {}
        self._twins: dict[int, tuple[Any, Any]] = {}
        self.defaults_seen: dict[int, dict[str, Any]] = {}  # by id of a function
        self._long_numbers: set[int] = set()
        self._ended = Ended()
        self._by_code: dict[type, frozenset[str]] = {}
        self._keys_of_c: dict[int, Any] = {}  # containers without keys of the program's classes
        self._values: dict[int, list[tuple[Source, Any]]] = {}  # by id: where they were read
        self._shown: dict[
            int, tuple[Any, Any]
        ] = {}  # tuples made of items, by id, and what they are

    def inherits(self, cls: type) -> None:
        refuse_unhashed(cls)
        if id(cls) not in self.machine.heap.created:
            self.relied.inherits(cls)

    # ---- reads -----------------------------------------------------------------------------------
    def read(self, obj: Any, kind: str, key: Any, value: Any) -> Any:
        if type(value) in PROXIES:
            return value
        if self.listeners and id(obj) in self.listeners:
            raise broken("unknown-call", f"a {bare_name(type(obj))} that hears what was said,")
        if self.collects and issubclass(type(obj), WEAK):
            raise broken("unknown-call", "reading a weak reference behind gc.collect,")
        if effects := self.machine.heap.effects:
            self._ended.refuse(obj, effects, keeps=self.machine.heap.journal is None)
        if kind in NAMES and self.relied.has_found(obj, key):
            return value
        if kind == "keys" and any(c_callbacks.hashes_outside(self.machine, key) for key in value):
            raise broken("unknown-call", f"__hash__ of keys of a {bare_name(type(obj))}")
        if kind in self._read_by_code(obj):
            if kind not in ATTRIBUTES:
                raise broken(
                    "unknown-call", f"code of {bare_name(type(obj))} that guards would call"
                )
            return self._read_past_code(obj, kind, key, value)
        if kind == "attr" and answers_if_absent(self.machine, obj, key):
            return self._read_of_its_own(obj, key, value)
        return self._read_plainly(obj, kind, key, value)

    def _read_past_code(self, obj: Any, kind: str, key: Any, value: Any) -> Any:
        """An attribute of an object whose class answers for its attributes by code: guards ask the
        dictionary of its names."""
        names, source = names_past_code(obj), self.readable_source(obj, kind)
        if source is None:
            return self._read_plainly(obj, kind, key, value)
        if names is not None and (key == "__dict__" or kind == "missing" or key in names):
            child = self.recorder.sources.child(source, "names", None)
            if source.is_pinned and not child.is_pinned:
                self.recorder.sources.pin(child, names, borrowed=source.is_borrowed)
            return READS_OF_NAMES[kind](self, child, key, value)
        if not source.is_pinned:
            raise broken("unknown-call", f"code of {bare_name(type(obj))} that guards would call")
        return self._read_plainly(obj, kind, key, value)

    def _read_of_its_own(self, obj: Any, key: Any, value: Any) -> Any:
        """An attribute for which code of the program answers where it is gone."""
        names = names_past_code(obj)
        if names is not None and key in names:
            return self._read_past_code(obj, "attr", key, value)
        is_slot = type(self.machine.lookup(type(obj), key)) is types.MemberDescriptorType
        return self._read_plainly(obj, "member" if is_slot else "attr", key, value)

    def _read_plainly(self, obj: Any, kind: str, key: Any, value: Any) -> Any:
        called = kind in ABSENCES or (
            kind in ("global", "attr") and issubclass(type(value), CALLED)
        )
        if called and self.relied.is_library(obj, kind):
            self.relied.found(obj, key, value)
            return value
        source = self.readable_source(obj, kind)
        if source is not None:
            return READS[kind](self, source, key, value)
        if issubclass(type(value), torch.Tensor):
            if issubclass(type(obj), (list, dict)):  # it may hold another one the next time
                raise broken("unknown-call", f"what made a {bare_name(type(obj))}")
            return self.lift(value)
        return value

    def _read_by_code(self, obj: Any) -> frozenset[str]:
        """The kinds of reads that a guard could repeat by calling code of the program only."""
        cls = type(obj)
        by_code = self._by_code.get(cls)
        if by_code is None:
            by_code = self._by_code[cls] = read_by_code(cls)
        return by_code

    def readable_source(self, obj: Any, kind: str) -> Source | None:
        """Where an outside object came from; classes, modules and objects of trusted code are
        roots of their own."""
        sources = self.recorder.sources
        source = sources.of(obj)
        if source is not None:
            return source
        if kind in ("global", "unbound"):
            return sources.const(obj, str(obj.get("__name__", "globals")))
        if issubclass(type(obj), READ_AS_THEY_ARE) or type(obj) in CONSTANTS:
            return None
        if kind in ("closure", "no_content"):
            return sources.const(obj, "closure")
        own = vars(obj).get("__name__") if issubclass(type(obj), types.ModuleType) else None
        return sources.const(obj, own if type(own) is str else name_of(obj))

    def _changing(self, source: Source, value: int | float) -> Any:
        """A number whose value is not relied on; None of one that is taken to be the same in each
        call."""
        if type(value) is int and _is_left_by_earlier_code(self.recorder, source):
            return self.recorder.measured(value, source, signed=True)
        changes = source.text in self.widen or (type(value) is float and is_hyperparameter(source))
        if not changes and type(value) is float and is_factor(source, self.widen):
            self.expects_others = changes = True
        return self.recorder.number(value, source) if changes else None

    def see(self, source: Source, value: Any) -> Any:
        """What the program sees of a value found at `source`; relies on what it sees."""
        recorder = self.recorder
        kind = type(value)
        if self.functions.section is not None:
            later_reads.refuse_source(self, source, value)
        refuse_unhashed(kind)
        if kind in (tuple, torch.Size) and source.text in self.widen and is_simple(value):
            return self._see_items(source, value)
        if kind in CONSTANTS:
            number = self._changing(source, value) if kind in (int, float) else None
            if number is not None:
                return number
            if kind in OPAQUE and source.text in self.widen:
                recorder.guard(source, "type", kind)
                return OpaqueValue(source, kind)
            return self._see_value(source, value)
        if issubclass(type(value), torch.Tensor):
            return self._see_tensor(source, value)
        if (
            issubclass(type(value), EQUAL)
            or (kind is tuple and is_simple(value))
            or is_numpy_number(value)
        ):
            return self._see_value(source, value)
        stand_in = see_generator if kind is Generator else decimal_contexts.stand_in(kind)
        if stand_in is not None:
            return stand_in(self, source, value)
        if not self._is_fixed(source):
            if kind in BOUND and (made := self._see_method(source, value)) is not None:
                return made
            if kind is types.FunctionType and not is_global(value):
                return self._see_function(source, value)
            if kind is super:
                return self._see_super(source, value)
        if (
            issubclass(type(value), IDENTITY)
            or (issubclass(type(value), OWNERS) and not self._is_replaced(source))
            or self._is_fixed(source, kind)
        ):
            return self._see_fixed(source, value)
        return self._see_object(source, value)

    def _see_value(self, source: Source, value: Any) -> Any:
        """What is relied on by its value; what is given back of it is what this call was given."""
        if type(value) in (int, tuple):
            self._see_numbers(value)
        self.recorder.guard(source, "equals", value)
        if type(value) in BY_VALUE:
            self._note_value(source, value)
        return value if value is None or type(value) is bool else self._handed(value, source)

    def _note_value(self, source: Source, value: Any) -> None:
        """That it is this very object is relied on where the program asks, of parts of tuples
        too: the tuple around a part may be made anew at each read, as `code.co_varnames` is."""
        self._values.setdefault(id(value), []).append((source, value))
        for index, item in enumerate(value if type(value) is tuple else ()):
            if type(item) in BY_VALUE:
                self._note_value(self.recorder.sources.child(source, "item", index), item)

    def is_one_value(self, a: Any, b: Any) -> bool:
        """Whether two tuples, or methods, of which one was made of what lies in it, are one that
        was read."""
        return type(a) in MADE_OF_PARTS and self.as_it_was(a) is self.as_it_was(b)

    def as_it_was(self, value: Any) -> Any:
        return self._shown.get(id(value), (value, value))[1]

    def identify_value(self, value: Any) -> None:
        for source, seen in self._values.get(id(value), ()):
            self.recorder.guard(source, "is", seen)

    def _handed(self, value: Any, source: Source) -> Any:
        """What stands for an object that was handed in, and is it where it is given back."""
        if is_handed_in(source):
            self.recorder.sources.remember_constant(value, source)
        return value

    def _see_object(self, source: Source, value: Any) -> Any:
        """An object that may be another one in each call."""
        recorder, kind = self.recorder, type(value)
        recorder.guard(source, "type", kind)
        if issubclass(kind, PLAIN_BASES):
            recorder.guard(source, "plain", plain_of(value))
        known = recorder.sources.of(value)
        if known is None:
            recorder.sources.remember(value, source)
        elif known is not source:
            recorder.guard(source, "same", known)
        if kind in FORKABLE:
            self._iterators[id(value)] = value, value
        return value

    def _see_fixed(self, source: Source, value: Any) -> Any:
        """An object that is the same one in each call; of another class it would be another."""
        self._pin(source, value)
        if type(value) in BOUND:
            looked_up.rely_on_parts(self, value)
        if not issubclass(type(value), IDENTITY):
            self.recorder.guard(source, "type", type(value))
        return value

    def _see_items(self, source: Source, value: tuple[Any, ...]) -> Any:
        """A tuple whose numbers are other ones in each call."""
        kind, sources = type(value), self.recorder.sources
        self.recorder.guard(source, "type", kind)
        self.recorder.guard(source, "length", len(value))
        items = [self.see(sources.child(source, "item", i), item) for i, item in enumerate(value)]
        made = tuple(items) if kind is tuple else tensor_ops.SizeTuple(items)
        return self._stands_for(made, source, value)

    def _stands_for(self, made: Any, source: Source, value: Any) -> Any:
        """What was made of the parts of what lies at a source."""
        self._values.setdefault(id(made), []).append((source, value))
        self._shown[id(made)] = made, value
        return self._handed(made, source)

    def _see_method(self, source: Source, value: Any) -> Any:
        """A bound method is made anew each time: what it is made of is relied on. None of a
        function of C that is bound to nothing."""
        child, in_python = self.recorder.sources.child, type(value) is types.MethodType
        method = None if in_python else descriptor_of(value)
        if not in_python and method is None:
            of_none = type(value) is types.MethodWrapperType  # or of a class, or a module
            return self._see_value(source, value) if of_none else None
        self.recorder.guard(source, "type", type(value))
        if in_python:
            function = self.see(child(source, "attr", "__func__"), value.__func__)
        else:  # what it does is what the method of its class does
            self.recorder.guard(child(source, "descriptor", None), "is", method)
        owned = type(value.__self__) in (int, float)  # of another number it is another method
        looks = self._see_value if owned else self.see
        owner = looks(child(source, "attr", "__self__"), value.__self__)
        made = types.MethodType(function, owner) if in_python else self.bind_in_c(owner, method)
        return self._stands_for(made, source, value)

    def bind_in_c(self, value: Any, method: Any) -> Any:
        """A C method, bound to a value."""
        if type(value) in PROXIES:
            return self.getattr(value, method.__name__)
        return method.__get__(value, type(value))

    def _see_super(self, source: Source, value: Any) -> Any:
        """What `super()` gave before the segment: it is made again of what it was made of."""
        child = self.recorder.sources.child
        self.recorder.guard(source, "type", super)
        this = self.see(child(source, "attr", "__thisclass__"), value.__thisclass__)
        owner = self.see(child(source, "attr", "__self__"), value.__self__)
        if type(owner) in PROXIES:  # no instance of the class that it shows
            raise broken("unknown-call", "super() of a tensor or a number, made before a break")
        return self._handed(super(this, owner), source)

    def _see_function(self, source: Source, value: Any) -> Any:
        """A function that a call may make anew: its code is relied on; closure and defaults are
        read where it lies."""
        recorder, sources = self.recorder, self.recorder.sources
        recorder.guard(source, "type", types.FunctionType)
        recorder.guard(sources.child(source, "attr", "__code__"), "is", value.__code__)
        known = sources.of(value)
        if known is not None:
            recorder.guard(source, "same", known)
            return value
        closure = sources.child(source, "attr", "__closure__")
        for index, cell in enumerate(value.__closure__ or ()):
            sources.remember(cell, sources.child(closure, "item", index))
        sources.remember(value, source)
        self.defaults_seen[id(value)] = dict(self._see_defaults(source, value))
        return value

    def is_outside(self, value: Any) -> bool:
        return self.recorder.sources.of(value) is not None

    def reads_signals(self, obj: Any, name: str, value: Any) -> None:
        decimal_contexts.reads_signals(self, obj, name, value)

    def outside_key(self, key: Any) -> Any:
        """A tensor that is the same one in each call, for its proxy."""
        if self._is_unknown_id(key):
            raise broken("unknown-call", "looking for the id of an object that may be another one,")
        source = self.recorder.source_of(key.value) if type(key) is TensorValue else None
        return source.pinned if source is not None and source.is_pinned else key

    def will_look_up(self, container: Any, key: Any) -> None:
        if self.unread_names and type(key) is str and key in self.unread_names:
            raise broken("unknown-call", f"reading {key} behind what writes it")
        if self.machine.heap.is_created(container):
            return self.will_distinguish(container, key)
        if id(container) not in self._keys_of_c:
            self._refuse_keys(container)
            self._keys_of_c[id(container)] = container
        if type(key) not in CONSTANTS:
            looked_up.rely_on_lookup(self, container, key)
        if type(key) in HASHED_AS_NUMBERS:
            self._rely_on_kinds(container, key)

    def _rely_on_kinds(self, container: Any, key: Any) -> None:
        """A guard that looks up a number asks no key of the program's that came later. One that has
        the key now finds it first, as long as it is the same container."""
        source = self.readable_source(container, "item")
        if source is None or "keys" in self._read_by_code(container):
            return
        base = next(b for b in (dict, set, frozenset) if issubclass(type(container), b))
        if not (source.is_pinned and type(key) is not tuple and base.__contains__(container, key)):
            kinds = PLAIN_KEYS.union(map(type, elements_of(container)))
            self.recorder.guard(source, "kinds", kinds)

    def _refuse_keys(self, container: Any) -> None:
        """Keys whose `__hash__` or `__eq__` is the program's are asked by native code alone, once
        for each time that the program looks."""
        if not PLAIN_KEYS.issuperset(map(type, elements_of(container))):
            if c_callbacks.hashes_elements(self.machine, container):
                raise broken("unknown-call", f"__eq__ of keys of a {bare_name(type(container))}")

    def _see_numbers(self, value: Any) -> None:
        """Numbers from outside that may be ids: `take_id` asks for them."""
        if type(value) is tuple:
            for item in value:
                self._see_numbers(item)
        elif type(value) is int and value > 1 << 32:  # no object lies below
            if value in self.ids:
                raise broken("unknown-call", "reading the id of an object that may be another,")
            self._long_numbers.add(value)

    def take_id(self, obj: Any) -> int:
        """The id of an object that may be another one in the next call. Where the program was
        given the same number, the two are not told from each other."""
        if id(obj) in self._long_numbers:
            raise broken("unknown-call", "taking an id that was handed in as a number as well")
        self.ids.add(id(obj))
        return id(obj)

    def will_compare(self, a: Any, b: Any) -> None:
        """Ids that are known at run time only are different from each other, or one; of any other
        number they say nothing."""
        if self.ids and self._is_unknown_id(a) != self._is_unknown_id(b):
            raise broken("unknown-call", "comparing the id of an object that may be another one,")

    def will_distinguish(self, a: Any, b: Any) -> None:
        if type(a) not in CONSTANTS and type(b) not in CONSTANTS:
            looked_up.rely_on_difference(self, a, b)

    def will_compute(self, *values: Any) -> None:
        """The id of an object that may be another one is good to be compared and kept; any other
        number made of it would be that of the first call."""
        ids = self.ids
        if ids and any([type(value) is int and value in ids for value in values]):
            raise broken("unknown-call", "computing with the id of an object that may be another,")

    def _is_unknown_id(self, value: Any) -> bool:
        return type(value) is int and value in self.ids

    def twin(self, real: Any) -> Any:
        """What stands for an outside generator in this trace; None if nothing yet."""
        known = self._twins.get(id(real))
        return None if known is None else known[1]

    def keep_twin(self, real: Any, twin: Any) -> None:
        """From now on `twin` stands for `real`."""
        self._twins[id(real)] = real, twin

    def generators(self) -> list[Generator]:
        """The twins of outside generators that this trace has advanced."""
        found = [twin for _, twin in self._twins.values() if type(twin) is Generator]
        return [twin for twin in found if twin.touched]

    def handed_generators(self) -> list[Generator]:
        """The twins of generators that the program handed from one instruction to the next."""
        twins = [twin for _, twin in self._twins.values() if type(twin) is Generator]
        sources = map(self.recorder.sources.of, twins)
        return [twin for twin, at in zip(twins, sources) if at is not None and at.kind == "slot"]

    def _see_defaults(self, source: Source, value: Any) -> Iterator[tuple[str, Any]]:
        """By parameter, what a call takes for those that it leaves out."""
        child, code, given = self.recorder.sources.child, value.__code__, value.__defaults__
        defaults = child(source, "attr", "__defaults__")
        if given is None:
            self.recorder.guard(defaults, "is", None)
        else:
            self.recorder.guard(defaults, "length", len(given))
            names = code.co_varnames[: code.co_argcount]
            first = len(given) - len(names)  # of those that are left over, a call takes none
            for index in range(max(first, 0), len(given)):
                yield names[index - first], self.see(child(defaults, "item", index), given[index])
        named = value.__kwdefaults__
        defaults = child(source, "attr", "__kwdefaults__")
        if named is None:
            self.recorder.guard(defaults, "is", None)
        else:
            self.recorder.guard(defaults, "keys", tuple(named))
            for name, default in named.items():
                yield name, self.see(child(defaults, "item", name), default)

    def _is_fixed(self, source: Source, kind: type = object) -> bool:
        """Whether what holds the value is itself always the same object, so that identity is
        the guard: until it has been replaced."""
        pinned = source.base is not None and source.base.is_pinned and not source.is_varying
        replaced = kind is list and may_be_replaced(source, self.widen)
        return pinned and not replaced and source.text not in self.widen

    def _is_replaced(self, source: Source) -> bool:
        """Whether it, or what it is a part of, is another object in each call."""
        step: Source | None = source if self.widen else None
        while step is not None and step.text not in self.widen and not step.is_varying:
            step = step.base
        return step is not None

    def _see_tensor(self, source: Source, value: torch.Tensor) -> Any:
        if self._is_fixed(source):
            self._pin(source, value)
            if data_of(source.text) in self.widen:
                shape = self.recorder.sources.child(source, "attr", "shape")
                self.recorder.guard(shape, "equals", value.shape)
                return self.recorder.tensor(value, source, tuple(value.shape))
        elif is_handed_on(value):
            self.recorder.guard(source, "type", type(value))
            return OpaqueValue(source, type(value), in_words(value))
        return self.recorder.tensor(value, source)

    def _pin(self, source: Source, value: Any) -> None:
        """Relies on an object being this one, wherever it was handed in before."""
        recorder = self.recorder
        kinds = HANDED_ON if recorder.resumed and source.kind == "slot" else OWNERS
        borrowed = issubclass(type(value), kinds) and is_handed_in(source)
        if borrowed:
            recorder.guard(source, "refers", weakref.ref(value))
        else:
            recorder.guard(source, "is", value)
        known = recorder.sources.of(value)
        recorder.sources.pin(source, value, borrowed=borrowed)
        if known is not None and not known.is_pinned:
            recorder.guard(known, "same", source)

    def rely_on_object(self, obj: Any) -> None:
        source = self.recorder.sources.of(obj)
        if not (source is None or source.is_pinned or self.recorder.is_the_same(obj)):
            self._pin(source, obj)

    def lift(self, tensor: torch.Tensor) -> TensorValue:
        """A real tensor that no source is known of: a constant of the segment."""
        source = self.recorder.sources.of(tensor) or self.recorder.sources.const(tensor, "constant")
        return self.recorder.tensor(tensor, source)

    def seen(self, value: Any) -> Any:
        """A value that torch code will look into, outside containers read at any depth."""
        if not issubclass(type(value), (list, tuple, dict)) or type(value) is torch.Size:
            return value
        heap = self.machine.heap
        state = heap.mirror(value)
        if issubclass(type(value), dict):
            return {key: self.seen(item) for key, item in dict.items(state)}
        items = [self.seen(item) for item in state]
        if all(a is b for a, b in zip(items, state)):
            return state
        return items if issubclass(type(value), list) else tuple.__new__(type(value), items)
