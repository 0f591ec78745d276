"""The domain that records: reads become sources and guards, tensors become nodes, sizes stay
symbolic, branches on sizes join.

In: what the interpreter asks (`domain.py`). Out: a `Recorder` full of nodes and guards, and the
heap's log of effects. Numbers handed in are constants first; those named in `widen` are symbolic.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape.capture.heap import purity
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.decimals import Contexts
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.effects import Effect
from anyshape.capture.heap.quiet_classes import bare_name, class_module
from anyshape.capture.heap.values import (
    NULL,
    PROXIES,
    SYMBOLIC_NUMBERS,
    Call,
    Formed,
    OpaqueValue,
    TensorValue,
    TextValue,
)
from anyshape.capture.interpreter import size_texts
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.recording import past_caches
from anyshape.capture.recording.domain import ContextVariables
from anyshape.capture.recording.forks import Forks
from anyshape.capture.recording.functions import Functions
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.segments import (
    c_calls,
    callables,
    context_variables,
    data_branches,
    partials,
    torch_warnings,
)
from anyshape.capture.segments.cleared_gradients import clears_gradient
from anyshape.capture.segments.made_classes import belongs_to_this_run
from anyshape.capture.segments.marked_functions import compiled_by_torch, is_disabled
from anyshape.capture.segments.number_attributes import number_attribute
from anyshape.capture.segments.outside_reads import look_inside, read_at_number
from anyshape.capture.segments.reading_domain import READ_AS_THEY_ARE, ReadingDomain
from anyshape.capture.segments.refused_operands import class_of, refuse, refused_comparison
from anyshape.capture.sizes import beside_numpy, formed_texts, join, numbers
from anyshape.capture.tensors import (
    aliases,
    backward,
    modules,
    tensor_methods,
    tensor_ops,
    torchmap,
)
from anyshape.capture.tensors.snapshots import snapshot
from anyshape.ops.context import OpError
from anyshape.symbolic import Condition

# Functions that may be more than their code, depending on their arguments.
SPECIAL = (callables.FUNCTIONS, modules.FAST, tensor_methods.HANDLERS, torchmap.ROWS)


def unread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, which ends the segment where it is asked to look into an opaque value."""

    @functools.wraps(hook)
    def guarded(self: SymbolicDomain, *args: Any) -> Any:
        for arg in args:
            if type(arg) is OpaqueValue and arg.description:
                raise broken("tensor-subclass", arg.description)
            if type(arg) is OpaqueValue or type(arg) is TextValue:
                raise broken("changing-value", hook.__name__)
        return hook(self, *args)

    return guarded


SEQUENCES = (list, tuple, str, bytes, bytearray, deque)
OF_SEQUENCES = {"+": operator.add, "*": operator.mul, "+=": operator.iadd, "*=": operator.imul}
UNSTREAMED = (print, sys.audit)
"""Effects that go to no stream but those that are named, or that `sys` has."""
TURNS = "the allowed number of turns of its loops"
CALLS = "the allowed number of calls of functions in Python"
CALLS_A_TURN = 2
"""How many functions may be entered for each turn of a loop that is allowed: a recursion takes as
long to capture as a loop does."""
GUARD_TURNS = 50
"""How many turns of unrolled loops a guard on a branch counts for: it costs as much to capture."""


class SymbolicDomain(ReadingDomain):
    """See the module."""

    records = True

    def __init__(
        self,
        recorder: Recorder,
        *,
        widen: frozenset[str] = frozenset(),
        forks: int = 2_000,
        turns: int = 50_000,
        forms_texts: bool = True,
    ) -> None:
        super().__init__(recorder, widen)
        self.forms_texts = forms_texts  # of sizes known at entry, in each call
        self.functions = Functions()
        self.enters_contexts = True  # those of `tensors/mode_contexts.py`
        self.has_formed = False
        self.ids, self.listeners, self.unread_names = set(), set(), set()
        self.kept_in_c, self.decimals = [], Contexts()
        self.variables = ContextVariables()
        self.turns_left = turns
        self.jumps_left = turns
        self.calls_left = turns * CALLS_A_TURN
        self.forks = Forks(left=forks)
        self.interpreted: set[types.CodeType] = set()
        self.cleared: dict[int, int] = {}  # see `cleared_gradients.py`
        recorder.frame = lambda: self.machine.frame

    # ---- values ----------------------------------------------------------------------------------
    def forget(self) -> None:
        """The capture is over: what it has met is kept by nobody but the program."""
        machine = self.machine
        made = [v for v in machine.heap.created.values() if type(v) is Generator]
        generators = [*made, *(twin for _, twin in self._twins.values() if type(twin) is Generator)]
        for frame in [*machine.frames(), *(each.frame for each in generators)]:
            frame.back = frame.generator = None  # no cycle: what a frame holds may have a `__del__`
        machine.frame = machine.escaped = None
        heap, shown = machine.heap, (self._values, self._shown, self._keys_of_c, self._iterators)
        kept = (heap.created, heap.mirrors, heap.unread, heap.answers, heap.slots, heap.effects)
        for table in (*kept, *shown, self._twins, self.defaults_seen, self.plain, self.kept_in_c):
            table.clear()
        self.variables = ContextVariables()
        self.recorder.contents.outside = None
        self.recorder.forget()
        del self.machine  # no cycle is left for the collector

    def argument(self, value: Any) -> Any:
        """A value of the virtual stack as an argument of a node."""
        return tensor_ops.to_arg(self, value)

    def arguments(self, values: Any) -> tuple[Any, ...]:
        """Values of the virtual stack as arguments of a node."""
        return tuple(tensor_ops.to_arg(self, value) for value in values)

    def created(self, value: Any) -> Any:
        """Registers a container made here as made in this trace; not one that native code made
        before this segment: it is another one in each call."""
        outside = self.recorder.sources.of(value) is not None
        return value if outside else self.machine.heap.create(value)

    def will_advance(self, iterator: Any) -> None:
        """An iterator from outside is advanced natively, between segments; an endless loop ends
        the segment."""
        self._spend_turns(1)
        if self.recorder.sources.of(iterator) is not None:
            raise broken("outside-iterator", bare_name(type(iterator)))

    def will_jump_back(self) -> None:
        """An endless loop ends the segment, whatever it turns for."""
        self.jumps_left -= 1
        if self.jumps_left < 0:
            raise broken("budget", TURNS)

    def will_guard(self) -> None:
        """A branch on sizes could not be joined; many of them are a loop over sizes."""
        self._spend_turns(GUARD_TURNS)

    def _spend_turns(self, count: int) -> None:
        self.turns_left -= count
        if self.turns_left < 0:
            raise broken("budget", TURNS)

    def will_drop(self, generator: Any) -> None:
        if self.recorder.sources.of(generator) is not None:
            raise broken("outside-iterator", "generator")

    def will_raise(self, error: BaseException) -> None:
        if self.recorder.sources.of(error) is not None:
            raise broken("python-effect", f"raising a {bare_name(type(error))} from outside")

    def behind(self, view: Any, mapping: Any) -> None:
        sources = self.recorder.sources
        source = sources.of(view)
        if (
            source is None and type(view) is types.MappingProxyType
        ):  # of a class, a new one each time
            source = sources.const(view, "__dict__")
        if source is not None and sources.of(mapping) is None:
            sources.remember(mapping, sources.child(source, "behind", None))

    def will_look_inside(self, obj: Any) -> None:
        look_inside(self, obj)

    def key(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(self.key(v) if type(v) in (tuple, *PROXIES) else v for v in value)
        return value if type(value) is TensorValue else self.concrete(value, "a key")

    def identify(self, obj: Any) -> None:
        self.recorder.choices.refuse_identity(obj)
        self.machine.heap.past_caches.refuse(obj)
        tensor = type(obj) is TensorValue
        source = self.recorder.source_of(obj.value) if tensor else self.recorder.sources.of(obj)
        if source is not None:
            self.recorder.identified[source] = None

    def is_one(self, a: Any, b: Any) -> Any:
        if type(a) in SYMBOLIC_NUMBERS or type(b) in SYMBOLIC_NUMBERS:
            return self._is_one_number(a, b)
        self.machine.heap.past_caches.refuse_two(a, b)
        if type(a) is not TensorValue or type(b) is not TensorValue:
            return self.is_one_value(a, b)
        self.recorder.choices.refuse_identity(a, b)
        pairs = ((a.value, b.value), (b.value, a.value))
        return any(aliases.is_given_back(self.recorder, *pair) for pair in pairs)

    def _is_one_number(self, a: Any, b: Any) -> Any:
        """Of symbolic numbers. There are one True and one False; which equal ints or floats are one
        object, CPython decides."""
        kinds = [self.type_of(v) if type(v) in SYMBOLIC_NUMBERS else type(v) for v in (a, b)]
        if kinds[0] is not kinds[1]:
            return False
        if kinds[0] is not bool:
            raise broken("changing-value", "is")
        return self.compare("==", a, b) if type(a) in SYMBOLIC_NUMBERS else self.compare("==", b, a)

    def outside_iterators(self) -> dict[int, tuple[Any, Any]]:
        return dict(self._iterators)

    # ---- calls -----------------------------------------------------------------------------------
    def python_call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if fn in self.plain:
            return NotImplemented
        replaced = callables.FUNCTIONS.get(fn)
        if replaced is not None:
            return replaced(self, args, kwargs)
        made = torch_warnings.call_torch(self, fn, args, kwargs)
        if made is not NotImplemented:
            return made
        if callables.looks_up(fn):
            return fn(*args, **kwargs)
        named = callables.NAMED.get((fn.__module__, fn.__qualname__))
        if named is not None:
            return named(self, args, kwargs)
        if callables.is_of_dynamo(fn, self.machine):
            return None
        if is_disabled(fn):
            raise broken("disabled", fn.__qualname__)
        original = compiled_by_torch(fn)
        if original is not None:
            return Call(original, args, kwargs)
        return modules.call(self, fn, args, kwargs)

    def entered(self, fn: types.FunctionType) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise broken("budget", CALLS)
        if not self.recorder.is_dropped:
            self.interpreted.add(fn.__code__)
        if fn in self.plain:
            return
        name = fn.__module__, fn.__qualname__
        if name not in callables.NAMED and not any(fn in table for table in SPECIAL):
            self.plain.add(fn)
        if id(fn) not in self.machine.heap.created and self.relied.is_fixed(fn):
            self.relied.entered(fn)

    def not_a_subclass(self, sub: type, cls: type) -> None:
        self.relied.not_a_subclass(sub, cls)

    def default(self, fn: types.FunctionType, name: str, value: Any, *, keyword: bool) -> Any:
        if type(value) in PROXIES or id(fn) in self.machine.heap.created:
            return value
        seen = self.defaults_seen.get(id(fn))
        if seen is not None:
            return seen[name]
        sources = self.recorder.sources
        if keyword and self.relied.is_fixed(fn):
            table = sources.const(fn.__kwdefaults__, f"defaults of {fn.__qualname__}")
            return self.see(sources.child(table, "item", name), value)
        self.relied.default(fn, name, value)
        return self.lift(value) if issubclass(type(value), torch.Tensor) else value

    def remembered(
        self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
        self.relied.remembered(fn, () if kwargs else args, result)
        given = (*args, *kwargs.values())
        # Only now: a call that was refused has left nothing, and its arguments hold proxies.
        if any(belongs_to_this_run(self.machine.heap, part) for part in c_calls.parts((given,))):
            self.kept_in_c.append(given)
        if self.kept_in_c:  # it may hold what was handed in, and is given back the next time
            self.kept_in_c.append(result)
        if issubclass(type(result), torch.Tensor):
            return self.lift(result)
        if issubclass(type(result), READ_AS_THEY_ARE) and self.recorder.sources.of(result) is None:
            self.recorder.sources.const(result, f"what {name_of(fn)} remembers")
        return result

    def past_cache(self, *call: Any) -> Any:
        return past_caches.called(self, *call)

    def is_opaque(self, fn: Any) -> bool:
        return fn not in self.plain and callables.is_opaque(fn)

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return c_calls.call(self, fn, args, kwargs)

    def concrete(self, value: Any, fn: Any) -> Any:
        """A size as a plain int, for C code that needs one."""
        name = fn if type(fn) is str else name_of(fn)
        if type(value) in SYMBOLIC_NUMBERS:
            return beside_numpy.at_its_value(self.recorder, value, name)
        if type(value) in PROXIES:
            raise c_calls.unknown(self, fn)
        return value

    def instantiate(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if cls in callables.NATIVE_CLASSES:
            return cls(*[self.concrete(a, cls) for a in args], **kwargs)
        if cls is torch.Size:
            parts = list(self.machine.heap.mirror(args[0])) if args else []
            if any(type(p) in PROXIES for p in parts):
                return tensor_ops.SizeTuple(parts)
            return torch.Size(parts)
        if issubclass(cls, torch.Tensor):
            made = tensor_methods.call_torch(self, cls, args, kwargs)
            if made is not NotImplemented:
                return made
            raise broken("unknown-call", f"making a {bare_name(cls)}")
        callables.refuse_deaths(self, cls)
        return partials.instantiate(self, cls, args, kwargs)

    # ---- proxies ---------------------------------------------------------------------------------
    def unary(self, op: str, a: Any) -> Any:
        shown = formed_texts.shown(self, op, a)
        return self._unary(op, a) if shown is None else shown

    @unread
    def _unary(self, op: str, a: Any) -> Any:
        if type(a) is TensorValue:
            if op == "not":
                return self.unary(op, tensor_ops.read_number(self, a, "bool"))
            return tensor_ops.unary(self, op, a)
        return beside_numpy.unary(self.recorder, op, a)

    @unread
    def binary(self, op: str, a: Any, b: Any) -> Any:
        return self._binary(op, a, b, op)

    def _binary(self, op: str, a: Any, b: Any, sign: str) -> Any:
        if op == "*":
            a, b = self._repeated(a, b), self._repeated(b, a)
        if (
            type(a) is TensorValue
            or type(b) is TensorValue
            or issubclass(type(a), torch.Tensor)
            or issubclass(type(b), torch.Tensor)
        ):
            made = tensor_ops.binary(self, op, a, b)
        elif op == "%" and issubclass(type(a), (str, bytes)):
            return operator.mod(a, self.concrete(b, "a format"))
        elif sign == "|=" and issubclass(type(a), dict):  # which takes pairs from it
            return self.machine.native(operator.ior, (a, self.concrete(b, "pairs")), {})
        elif op in ("+", "*") and (
            issubclass(type(a), SEQUENCES) or issubclass(type(b), SEQUENCES)
        ):
            a, b = self.concrete(a, "a repetition"), self.concrete(b, "a repetition")
            return self.machine.native(OF_SEQUENCES[sign], (a, b), {})
        else:
            made = beside_numpy.binary(self.recorder, op, a, b)
        return refuse(self, op, sign, a, b) if made is NotImplemented else made

    def _repeated(self, count: Any, other: Any) -> Any:
        """`[0] * count` reads from a tensor how often."""
        if type(count) is not TensorValue or not issubclass(type(other), SEQUENCES):
            return count
        return tensor_ops.read_number(self, count, "index")

    @unread
    def inplace(self, op: str, a: Any, b: Any) -> Any:
        if type(a) is TensorValue:
            made = tensor_ops.inplace(self, op, a, b)
            return refuse(self, op, f"{op}=", a, b) if made is NotImplemented else made
        return self._binary(op, a, b, f"{op}=")

    @unread
    def compare(self, op: str, a: Any, b: Any) -> Any:
        if type(a) is TensorValue or type(b) is TensorValue:
            made = tensor_ops.compare(self, op, a, b)
        else:
            made = beside_numpy.compare(self.recorder, op, a, b)
        return refused_comparison(self, op, a, b) if made is NotImplemented else made

    @unread
    def contains(self, container: Any, item: Any) -> Any:
        if type(container) is not TensorValue:
            raise TypeError(f"argument of type '{class_of(self, container)}' is not iterable")
        equal = tensor_ops.compare(self, "==", container, item)
        return tensor_ops.read_number(self, tensor_ops.call_row(self, "any", equal), "bool")

    @unread
    def branch(self, value: Any, frame: Frame) -> bool:
        if type(value) is TensorValue:
            content = self.recorder.contents.read(self.recorder.builder, value.value)
            if content is None:
                return data_branches.branch(self, value, frame)
            value = self.recorder.wrap(content)
            if type(value) not in PROXIES:
                return bool(value)
        condition = numbers.condition_of(value)
        if condition is None and not self.recorder.is_known(value.scalar):
            return data_branches.branch(self, value, frame)
        if condition is None:
            return self.recorder.decide_scalar(value.scalar)
        known = self.recorder.cx.known(condition)
        if known is not None:
            return known
        assert not isinstance(condition, bool)
        return join.branch(self, condition, frame)

    def extremum(self, name: str, values: Sequence[Any]) -> Any:
        return beside_numpy.extremum(self.recorder, name, values)

    def getattr(self, value: Any, name: str) -> Any:
        if name in formed_texts.METHODS and size_texts.are_texts(value):
            return types.MethodType(formed_texts.METHODS[name], value)
        return self._getattr(value, name)

    @unread
    def _getattr(self, value: Any, name: str) -> Any:
        if type(value) is TensorValue:
            read = backward.grad if name == "grad" else tensor_ops.attribute
            return read(self, value, name)
        return number_attribute(self, value, name)

    @unread
    def bound_method(self, slots: list[Any], value: Any, method: Any, slot: int) -> Any:
        """A C method of a value, as an earlier segment left it on a stack."""
        source = self.recorder.sources.slot(slot, method.__name__)
        return self._stands_for(self.bind_in_c(value, method), source, slots[slot])

    @unread
    def setattr(self, value: Any, name: str, new: Any) -> Any:
        if type(value) is not TensorValue:
            raise AttributeError(f"'{class_of(self, value)}' object has no attribute '{name}'")
        self.recorder.choices.refuse_marks(value)
        set_attribute = tensor_ops.set_attribute if name != "grad" else backward.set_grad
        set_attribute(self, value, name, new)

    @unread
    def delattr(self, value: Any, name: str) -> Any:
        raise broken("python-effect", f"deleting {name} of a {class_of(self, value)}")

    @unread
    def getitem(self, value: Any, key: Any) -> Any:
        if type(value) is TensorValue:
            return tensor_ops.getitem(self, value, key)
        if type(value) in PROXIES:
            raise TypeError(f"'{class_of(self, value)}' object is not subscriptable")
        return self._indexed(value, key)

    def _indexed(self, value: Any, key: Any) -> Any:
        """A real container indexed by a number: it is read with the number, or the number becomes
        a constant."""
        found = read_at_number(self, value, key)
        if found is not NULL:
            return found
        if type(key) is slice:
            key = slice(
                *(self.concrete(part, "a slice") for part in (key.start, key.stop, key.step))
            )
        else:
            if type(key) is TensorValue:
                key = tensor_ops.read_number(self, key, "index")
            key = self.concrete(key, "a key" if issubclass(type(value), dict) else "an index")
        result = self.machine.heap.item(value, key)
        return (
            self.created(result)
            if type(key) is slice and issubclass(type(result), list)
            else result
        )

    @unread
    def setitem(self, value: Any, key: Any, new: Any) -> Any:
        if type(value) is TensorValue:
            return tensor_ops.setitem(self, value, key, new)
        raise broken("unknown-call", "storing at an index that is symbolic")

    @unread
    def delitem(self, value: Any, key: Any) -> Any:
        raise broken("unknown-call", "deleting at an index that is symbolic")

    @unread
    def iterate(self, value: Any) -> Any:
        if type(value) is TensorValue:
            return tensor_ops.iterate(self, value)
        raise TypeError(f"'{class_of(self, value)}' object is not iterable")

    @unread
    def length(self, value: Any) -> Any:
        if type(value) is TensorValue:
            return tensor_ops.length(self, value)
        raise TypeError(f"object of type '{class_of(self, value)}' has no len()")

    def format(self, value: Any, spec: Any) -> Any:
        if type(spec) in PROXIES:
            raise broken("proxy-leak", "a text that says how something is shown")
        shown = formed_texts.shown(self, "format", value, spec) if type(spec) is str else None
        return self._format(value, spec) if shown is None else shown

    @unread
    def _format(self, value: Any, spec: str) -> Any:
        if type(value) is TensorValue:
            return self._format_tensor(value, spec)
        return format(self.concrete(value, "format()"), spec)

    def _format_tensor(self, value: TensorValue, spec: str) -> Any:
        """One without dimensions is shown as its number, formed in each call."""
        if value.value.shape:
            raise broken("tensor-data", "formatting a tensor")
        number = tensor_ops.read_number(self, value, "index")
        return TextValue((Formed(format, (number, spec)),))

    @unread
    def call(self, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise TypeError(f"'{class_of(self, value)}' object is not callable")

    def type_of(self, value: Any) -> type:
        if type(value) is TensorValue:
            return value.python or torch.Tensor
        if issubclass(type(value), tuple):
            ours = purity.is_library(class_module(type(value)))  # a size shows `torch.Size`
            return value.__class__ if ours else type(value)
        of_number = type(value) in SYMBOLIC_NUMBERS
        return beside_numpy.class_of(value) if of_number else value.kind

    def is_instance(self, value: Any, cls: type) -> bool:
        if type(value) is TensorValue and type(cls) is torchmap.LEGACY_METACLASS:
            return torchmap.LEGACY_CLASSES[cls].holds(value.value.tensor)
        return super().is_instance(value, cls)

    def part_of(self, value: tuple[Any, ...], part: tuple[Any, ...]) -> Any:
        return tensor_ops.as_size(part) if type(value) is tensor_ops.SizeTuple else part

    # ---- facts and effects -----------------------------------------------------------------------
    def require(self, condition: Condition | bool, message: Any) -> None:
        """A precondition that the program states: `torch._check`."""
        text = message if issubclass(type(message), str) else "check failed"
        self.recorder.here()
        try:
            self.recorder.cx.require(condition, text)
        except OpError:
            raise RuntimeError(text) from None

    def defer(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An effect whose result nobody uses: done at the end of the segment, in order."""
        if self.recorder.depth:
            raise broken("fork", f"the effect {getattr(fn, '__name__', fn)}")
        replaced = self.made_stream or self.machine.heap.is_shadowed(vars(sys))
        if replaced and fn not in UNSTREAMED:  # whose output it may be
            raise broken("unknown-call", getattr(fn, "__name__", "an effect outside"))
        self.has_reported = True
        shown = tuple([snapshot(self, arg) for arg in args])
        named = {name: snapshot(self, arg) for name, arg in kwargs.items()}
        self.machine.heap.effects.append(Effect(callables.called, fn, shown, named))

    def wrote(self, fn: Callable[..., Any], target: Any, args: tuple[Any, ...]) -> None:
        if self.recorder.is_dropped:
            raise broken("fork", "a write to an outside object")
        self.recorder.changed.add(type(target))
        if clears_gradient(fn, target, args):
            builder = self.recorder.builder
            self.cleared[id(target)] = len(builder.nodes) + len(builder.checks)

    def reads_signals(self, obj: Any, name: str, value: Any) -> None:
        super().reads_signals(obj, name, value)
        context_variables.refuse_unread(self, obj, name)

    def wrote_tensor(self, x: TensorValue) -> None:
        """A tensor was written in place."""
        self.recorder.written[x.value] = None
