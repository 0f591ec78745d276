"""The end of a segment: what it returns or leaves alive, rebuilt as fresh Python objects from what
the graph computed.

In: virtual values and the heap's log of effects. Out: the graph's flat outputs and one
generated function `rebuild(outs, slots)`, which makes the objects, replays the writes in order
and gives the values. Outside objects are named by their source, constants by themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from anyshape.capture.guards import execution_modes
from anyshape.capture.heap import decimals, times
from anyshape.capture.heap.allocation_age import may_be_made_since, objects_made_since
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.effects import Effect, without_overwritten, without_passing
from anyshape.capture.heap.iterators import STARTS, TELLING
from anyshape.capture.heap.mirrors import VIEWS, maker_of, mapping_behind
from anyshape.capture.heap.nested_containers import values_of
from anyshape.capture.heap.numpy_scalars import float64, is_numpy_number
from anyshape.capture.heap.quiet_classes import (
    bare_name,
    class_entry,
    has_entry,
)
from anyshape.capture.heap.quiet_reads import asks_the_program, descriptor_of
from anyshape.capture.heap.sources import Source, expression
from anyshape.capture.heap.values import (
    C_METHODS,
    IMMUTABLE,
    LOST,
    NULL,
    PROXIES,
    Formed,
    OpaqueValue,
    ScalarValue,
    SizeValue,
    TensorValue,
    TextValue,
)
from anyshape.capture.interpreter.continuations import Continuation
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.frame_views import FrameView
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.recording.choices import Choice
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.segments.made_classes import MadeClasses
from anyshape.capture.segments.makers import MAKERS, attributes, instance, keyed_iterator
from anyshape.capture.segments.replayed_writes import Write, line_of
from anyshape.capture.segments.suspended_generators import STATE
from anyshape.capture.tensors.tensor_ops import SizeTuple
from anyshape.ir.graph import Arg
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.known_builtins import generated
from anyshape.version_counters import move_version

SIMPLE = (IMMUTABLE - {slice}) | {types.ModuleType, types.CodeType, re.Pattern, re.Match}
"""What is written as it is: a slice may hold sizes."""


PLAIN_TUPLES = (tuple, torch.Size, SizeTuple)
ANNOTATIONS = (types.GenericAlias, types.UnionType)
"""What `list[int]` and `int | str` make."""


class Rebuilder:
    """Writes the source of `rebuild`, one value after the other; an object reached twice is
    made once."""

    def __init__(self, domain: RecordingDomain, new_machine: Callable[[], Any]) -> None:
        self.domain = domain
        self.new_machine = new_machine
        self.recorder = domain.recorder
        self.heap = domain.machine.heap
        self.outputs: list[Arg] = []
        self._output_of: dict[Any, str] = {}
        self._made: dict[int, str] = {}
        self._kept: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._constant_of: dict[int, str] = {}
        self.lines: list[str] = []
        self._positions: list[str] = []
        self._reads: dict[str, str] = {}
        self._made_inside: frozenset[int] | None = None
        self._kept_generators: set[int] = set()  # generators that the program goes on with
        self._classes = MadeClasses(self.heap, domain.kept_in_c)
        self.making: set[int] = set()
        self.replaying = False  # whether writes to what lies outside are still to be replayed
        self._writes: list[Write] = []  # those that no line does yet
        self.once = bool(domain.kept_in_c)  # whether something is left that belongs to one run

    # ---- names -----------------------------------------------------------------------------------
    def constant(self, obj: Any, hint: str = "") -> str:
        """The name of an object that is the same in every run, or belongs to the only one."""
        if id(obj) in self._classes.belonging:
            if id(obj) in self._classes.unfit:
                raise broken("escape", f"the class {bare_name(type(obj))}, made in the function,")
            self.once = True
        known = self._constant_of.get(id(obj))
        if known is None:
            known = self._constant_of[id(obj)] = f"c{len(self.constants)}"
            self.constants[known] = obj
        return known

    def output(self, arg: Arg) -> str:
        """What the graph computes; asked for twice, it is one output."""
        known = self._output_of.get(arg)
        if known is None:
            known = self._output_of[arg] = f"outs[{len(self.outputs)}]"
            self.outputs.append(arg)
        return known

    def add(self, line: str) -> None:
        self._replay()
        self.lines.append("    " + line)

    def fresh(self, obj: Any) -> str:
        self.heap.past_caches.refuse_made(obj)
        name = f"v{len(self._made)}"
        self._made[id(obj)] = name
        self._kept.append(obj)
        return name

    def made(self, obj: Any) -> str | None:
        """The name of an object that has one already."""
        return self._made.get(id(obj))

    def is_unmade(self, obj: Any) -> bool:
        """Whether an object of this trace has no name yet, and is not handed on as it is."""
        known = id(obj) in self._made or id(obj) in self._classes.belonging
        return not known and self.heap.is_created(obj)

    def read(self, source: Source) -> str:
        """What lies outside at the end of the graph, before any write is replayed."""
        text = expression(source, self.constant)
        if source.is_constant or source.base is None:
            return text
        self.recorder.sources.read_at_end.add(source)
        return self._reads.setdefault(text, f"r{len(self._reads)}")

    # ---- values ----------------------------------------------------------------------------------
    def text(self, value: Any) -> str:
        """Python text that gives the value at run time."""
        kind = type(value)
        if kind is TensorValue:
            return self._tensor(value)
        if kind is SizeValue:
            expr = self.recorder.cx.facts.simplify(value.expr)
            text = repr(expr) if isinstance(expr, int) else self.output(expr)
            return text if value.kind is int else f"{self.constant(value.kind)}({text})"
        if kind is ScalarValue:
            whole = isinstance(value.scalar, (Scalar, ScalarInput))
            text = self.output(value.scalar if whole else Scalar("bool", "value", (value.scalar,)))
            return f"{self.constant(float64)}({text})" if value.is_wide else text
        if kind is OpaqueValue:
            return self.read(value.source)
        if kind is TextValue:
            parts = ", ".join(map(self._part, value.parts))
            return self._made.get(id(value)) or self.named(value, f"''.join(({parts},))")
        if kind is int and value in self.domain.ids:
            raise broken("escape", "the id of an object that may be another one")
        handed = self.recorder.sources.of_constant(value)
        if handed is not None:
            return self.read(handed)
        if kind is FrameView and self.recorder.sources.of(value) is None:
            raise broken("escape", "a frame of the function")
        if value is None or kind is bool or (kind is int and -5 <= value <= 256):
            return repr(value)  # others are objects that the program may tell from their equals
        if value is NULL or value is LOST:
            return self.constant(value)
        if kind in SIMPLE:  # code or a match that was handed in is another one in each call
            source = self.recorder.sources.of(value)
            return self.constant(value) if source is None else self.read(source)
        made = self._made.get(id(value))
        if made is not None:
            return made
        return self._object(value, kind)

    def _part(self, part: str | Formed) -> str:
        """A part of a text: `format(outs[0], '>4')`."""
        if isinstance(part, str):
            return repr(part)
        args = [self.text(arg) for arg in part.args]
        named = [f"{key}={self.text(value)}" for key, value in part.kwargs.items()]
        return f"{self.constant(part.function)}({', '.join([*args, *named])})"

    def _tensor(self, value: TensorValue) -> str:
        source = self.recorder.source_of(value.value)
        if source is not None:
            return self.read(source)
        choice = self.recorder.choices.handed_out(value.value, self.recorder.builder.nodes)
        if choice is not None:
            return self._choice(choice, value)
        text, times = self.output(value.value), self.domain.functions.versions.get(value.value)
        if value.attributes or times is not None:
            known = self._made.get(id(value.value))
            if known is not None:
                return known
            name = self.fresh(value.value)
            self.add(f"{name} = {text}")
            if times is not None:
                self.add(f"{self.constant(move_version)}({name}, {times})")
            for key, attribute in (value.attributes or {}).items():
                self.add(f"setattr({name}, {key!r}, {self.text(attribute)})")
            return name
        return text

    def _choice(self, choice: Choice, value: TensorValue) -> str:
        """One tensor or the other, as objects."""
        if value.attributes:
            choice.seen()
        condition = self.text(ScalarValue(choice.condition, bool))
        return f"({self.text(choice.yes)} if {condition} else {self.text(choice.no)})"

    def _object(self, value: Any, kind: type) -> str:
        if kind is Generator:
            self._kept_generators.add(id(value))
        if id(value) in self._classes.belonging:
            return self.constant(value)
        if id(value) in self.heap.namespaces:
            return f"{self.text(self.heap.namespaces[id(value)])}.__dict__"
        real = self.heap.real(value)
        if real is not value and not self._is_ours(real):
            return self._outside(real)
        if issubclass(kind, tuple):
            return self._any_tuple(value)
        small = self._small_object(value, kind)
        if small is not None:
            return self.named(value, small)
        if kind in TELLING and self.recorder.sources.of(value) is None:
            return self._iterator(value)
        if not self.heap.is_created(value) and not self._is_ours(value):
            return self._outside(value)
        for base, maker in MAKERS:
            if issubclass(kind, base):
                self.making.add(id(value))
                text = maker(self, value)
                self.making.discard(id(value))
                return text
        if kind is Generator:
            return self._generator(value)
        if issubclass(kind, Iterator):  # its `__class__` is not asked for: it may be a property
            raise broken("escape", f"a {bare_name(kind)}")
        return instance(self, value)

    def _small_object(self, value: Any, kind: type) -> str | None:
        """The expression that makes what is made by one."""
        if decimals.is_number(kind) and self.recorder.sources.of(value) is None:
            return f"{self.constant(kind)}({str(value)!r})"
        if is_numpy_number(value) and value.dtype.type is kind:  # no class of the program's
            return f"{self.constant(kind)}({self.constant(value)})"
        if kind is slice:
            return (
                f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
            )
        if kind is types.MethodType:
            function, owner = self.text(value.__func__), self.text(value.__self__)
            if type(value.__self__) in PROXIES and type(value.__func__) in C_METHODS:
                return f"{function}.__get__({owner})"
            return f"{self.constant(types.MethodType)}({function}, {owner})"
        if kind in ANNOTATIONS and self.recorder.sources.of(value) is None:
            parts = [self.text(part) for part in value.__args__]
            if kind is types.UnionType:
                return f"({' | '.join(parts)})"
            arguments = "".join(f"{part}, " for part in parts)
            made = f"{self.constant(kind)}({self.text(value.__origin__)}, ({arguments}))"
            return f"next(iter({made}))" if value.__unpacked__ else made
        if kind is super and self.recorder.sources.of(value) is None:
            return f"super({self.text(value.__thisclass__)}, {self.text(value.__self__)})"
        method = None if self.recorder.sources.of(value) is not None else descriptor_of(value)
        if method is not None:
            owner, name = value.__self__, value.__name__
            plain = not asks_the_program(owner, "attr")
            if plain and class_entry(type(owner), name) is method:
                return f"getattr({self.text(owner)}, {name!r})"  # made as another one, maybe
            kind_of_owner = self.constant(type(owner))
            return f"{self.constant(method)}.__get__({self.text(owner)}, {kind_of_owner})"
        over = kind in VIEWS or kind is types.MappingProxyType
        ours = over and self.recorder.sources.of(value) is None
        mapping = mapping_behind(value) if ours else None
        if mapping is None:
            return None
        maker = maker_of(kind) if kind in VIEWS else kind
        return f"{self.constant(maker)}({self.text(self.heap.real(mapping))})"

    def _is_ours(self, value: Any) -> bool:
        """Whether a container that nobody registered was made in this trace nevertheless."""
        if self.recorder.sources.of(value) is not None:
            return False
        return holds_proxy(value) or (
            issubclass(type(value), MADE_BY_C) and self._is_made_inside(value)
        )

    def _is_made_inside(self, value: Any) -> bool:
        if self._made_inside is None:
            self._made_inside = objects_made_since()
        return may_be_made_since(value, self._made_inside)

    def _outside(self, value: Any) -> str:
        source = self.recorder.sources.of(value)
        if source is None and issubclass(
            type(value), tuple
        ):  # made here; what lies in it need not be
            return self._any_tuple(value)
        return self.constant(value) if source is None else self.read(source)

    def _any_tuple(self, value: tuple[Any, ...]) -> str:
        source = self.recorder.sources.of(value)
        if source is not None:  # a tuple from outside: its items may differ the next time
            return self.read(source)
        plain = type(value) is tuple or type(value) is SizeTuple
        return self._tuple(value) if plain else self._tuple_subclass(value)

    def _tuple(self, value: tuple[Any, ...]) -> str:
        parts = [self.text(item) for item in value]
        if type(value) is SizeTuple:
            return self.named(value, f"{self.constant(torch.Size)}([{', '.join(parts)}])")
        if not self.is_fixed(value):
            return self.named(value, f"({', '.join(parts)},)")
        if not self.heap.is_created(value):
            return self.constant(value)
        return self.named(value, f"(*[{', '.join(parts)}],)")  # no constant of the code: a new one

    def named(self, value: Any, text: str) -> str:
        """The name of what an expression makes: it is one object wherever it is needed. One that
        lies in itself, by way of a list, has been made by now."""
        known = self._made.get(id(value))
        if known is not None:
            return known
        name = self.fresh(value)
        self.add(f"{name} = {text}")
        return name

    def _tuple_subclass(self, value: Any) -> str:
        if type(value) is torch.Size and self.is_fixed(value):
            return self.constant(value)
        parts = ", ".join(self.text(item) for item in tuple.__iter__(value))
        made_by_itself = has_entry(type(value), "n_sequence_fields")  # a struct sequence of C
        if made_by_itself or issubclass(type(value), torch.Size):  # which tuple.__new__ refuses
            return self.named(value, f"{self.constant(type(value))}([{parts}])")
        if type(value) is times.IN_WEEKS:
            return self.named(value, f"{self.constant(times.IN_WEEKS)}({parts})")
        made = f"tuple.__new__({self.constant(type(value))}, [{parts}])"
        name = self.named(value, made)
        attributes(self, name, value)
        return name

    def is_fixed(self, value: Any) -> bool:
        """Whether a tuple holds only constants, all the way down, and is none that lay outside: in
        its place another one may lie the next time. An object of a subclass is one that the program
        may tell from another."""
        if type(value) not in PLAIN_TUPLES or self.recorder.sources.of(value) is not None:
            return False
        return all(
            self.is_fixed(item) if issubclass(type(item), tuple) else self._is_simple(item)
            for item in value
        )

    def _is_simple(self, item: Any) -> bool:
        """Whether it is written as it is; what was handed in is another object in each call."""
        sources = self.recorder.sources
        source = sources.of(item)
        the_same = source is None or source.is_constant
        return type(item) in SIMPLE and the_same and sources.of_constant(item) is None

    # ---- frames ----------------------------------------------------------------------------------
    def frames(self, frame: Frame) -> str:
        """Real frames from the innermost outwards; gives the name of the innermost."""
        chain: list[Frame] = []
        current: Frame | None = frame
        while current is not None:
            chain.append(current)
            current = current.back
        names = [self._frame(part, part.continuation) for part in chain]
        for part, name in zip(chain, names):
            if isinstance(part.generator, Generator):
                generator = self.text(part.generator)
                self.add(f"{name}.generator = {generator}")
                self._state(generator, part.generator, name)
        for inner, outer in zip(names, names[1:]):
            self.add(f"{inner}.back = {outer}")
        return names[0]

    def _generator(self, value: Generator) -> str:
        """A generator that this segment made: it is run by a machine of its own."""
        name = self.fresh(value)
        make = self.constant(Generator.restored)
        machine = f"{self.constant(self.new_machine)}()"
        names = "" if value.function is None else f", {self._names_of(value)}"
        self.add(f"{name} = {make}({machine}, {self.constant(value.frame.code)}{names})")
        if not value.running:  # the frame of a running one is among the frames
            self._leave(name, value)
        return name

    def _names_of(self, value: Generator) -> str:
        return repr((value.read_name("__name__"), value.read_name("__qualname__")))

    def generators(self) -> None:
        """Brings generators from outside to where their twins are."""
        for twin in self.domain.generators():
            if not twin.running:
                self._leave(self._outside(twin), twin)

    def refuse_lost_generators(self) -> None:
        """A generator that nobody holds any more has something to do, at a moment that capture has
        missed."""
        for value in (*self.heap.created.values(), *self.domain.handed_generators()):
            if (
                type(value) is Generator
                and value.is_left_open
                and id(value) not in self._kept_generators
            ):
                raise broken("escape", "a generator that is dropped")

    def _leave(self, name: str, value: Generator) -> None:
        if value.finished:
            self._state(name, value, None)
            self.add(f"{name}.let_go()")
            return
        frame = self._frame(value.frame, None)
        self._state(name, value, frame)

    def _state(self, name: str, value: Generator, frame: str | None) -> None:
        for key in STATE:
            self.add(f"{name}.{key} = {getattr(value, key)}")
        if frame is not None:
            self.add(f"{name}.frame = {frame}")

    def _frame(self, frame: Frame, continuation: Any) -> str:
        if frame.instructions is not frame.code.instructions:
            raise broken("escape", "what both sides of a branch return")
        if frame.is_watched():
            raise broken("escape", "a frame of the function")
        name = self.fresh(frame)
        locals_ = ", ".join(self.text(value) for value in frame.locals)
        stack = ", ".join(self.text(value) for value in frame.stack)
        parts = [
            self.constant(frame.code),
            self.constant(frame.globals),
            self.constant(frame.builtins),
            f"[{locals_}]",
        ]
        self.add(f"{name} = {self.constant(Frame)}({', '.join(parts)}, {self.text(frame.names)})")
        self.add(f"{name}.stack = [{stack}]")
        self.add(f"{name}.index = {frame.index}")
        if frame.locals_dict is not None:
            self.add(f"{name}.locals_dict = {self.text(frame.locals_dict)}")
        if frame.handled is not None:
            self.add(f"{name}.handled = {self.text(frame.handled)}")
        self.add(f"{name}.continuation = {self._continuation(continuation)}")
        return name

    def _continuation(self, made: Continuation | None) -> str:
        if made is None or not dataclasses.is_dataclass(made):
            return "None" if made is None else self.constant(made)
        parts = []
        for entry in dataclasses.fields(made):
            value = getattr(made, entry.name)
            parts.append(
                self._continuation(value)
                if issubclass(type(value), Continuation)
                else self.text(value)
            )
        return f"{self.constant(type(made))}({', '.join(parts)})"

    def _iterator(self, value: Any) -> str:
        """A native iterator over rebuilt containers. It takes its position when all writes have
        been replayed: one behind the end of a list, so far, would become the end."""
        if type(value) in STARTS:
            return keyed_iterator(self, value)
        make, args, *rest = value.__reduce__()
        name = self.fresh(value)
        self.add(f"{name} = {self.constant(make)}({', '.join(self.text(arg) for arg in args)})")
        if rest and rest[0] is not None:
            self._positions.append(f"    {name}.__setstate__({self.text(rest[0])})")
        return name

    # ---- the whole -------------------------------------------------------------------------------
    def effect(self, effect: Effect) -> None:
        """Replays one write, in front of the next line."""
        target = self.text(self.heap.real(effect.target))
        args = [self.text(arg) for arg in effect.args if arg is not NULL]
        named = [f"{key}={self.text(value)}" for key, value in effect.kwargs.items()]
        self._writes.append(Write(self.constant(effect.fn), [target, *args], named))

    def _replay(self) -> None:
        if self._writes:
            self.lines.append("    " + line_of(self._writes, self.constant))
            self._writes.clear()

    def modes(self) -> None:
        """Leaves torch in the modes that the program left it in."""
        if self.recorder.modes != self.recorder.entry_modes:
            self.add(
                f"{self.constant(execution_modes.apply)}({self.constant(self.recorder.modes)})"
            )

    def compile(self, result: str) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
        """The function `rebuild(outs, slots)` that does all lines and returns `result`."""
        self._replay()
        reads = [f"    {name} = {text}" for text, name in self._reads.items()]
        if result == "outs[0]" and not (reads or self.lines or self._positions):
            return first_output
        head, tail = "def rebuild(outs, slots):", f"    return {result}"
        text = "\n".join([head, *reads, *self.lines, *self._positions, tail, ""])
        scope = dict(self.constants)
        function: Callable[[Sequence[Any], Sequence[Any]], Any] = generated(
            text, "<anyshape rebuild>", scope, "rebuild"
        )
        return function


def first_output(outs: Sequence[Any], slots: Sequence[Any]) -> Any:
    """The result of most programs, which give back one tensor and write nothing outside."""
    return outs[0]


def holds_proxy(value: Any) -> bool:
    """Whether a proxy lies in a container that no row of the heap knows: C code made it."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        found = pending.pop()
        if type(found) in PROXIES:
            return True
        if id(found) in seen or not issubclass(type(found), LOOKED_INTO):
            continue
        seen.add(id(found))
        pending.extend(_contents(found))
    return False


MADE_BY_C = (list, dict, set, deque, bytearray, Iterator, BaseException, types.TracebackType)
LOOKED_INTO = (list, tuple, dict, set, deque, types.CellType, types.MethodType, functools.partial)


def _contents(value: Any) -> Iterable[Any]:
    if issubclass(type(value), dict):
        return [*dict.keys(value), *dict.values(value)]
    if issubclass(type(value), types.CellType):
        try:
            return [value.cell_contents]
        except ValueError:
            return []
    if issubclass(type(value), types.MethodType):
        return [value.__self__]
    if issubclass(type(value), functools.partial):
        return [value.func, value.args, value.keywords]
    return values_of(value)


Rebuild = Callable[[Sequence[Any], Sequence[Any]], Any]


def finish(
    domain: RecordingDomain, result: Any, new_machine: Callable[[], Any]
) -> tuple[tuple[Arg, ...], Rebuild, bool]:
    """The graph outputs and the `rebuild` of a segment that ends by returning `result`, or
    before an instruction of a `Frame`, and whether it may run once only. `new_machine` gives a
    machine for a generator to run in."""
    if type(result) is Generator:
        raise broken("escape", "a generator")
    try:
        return _finish(domain, result, new_machine)
    except RecursionError:
        raise broken("escape", "what is nested too deeply") from None


def _finish(
    domain: RecordingDomain, result: Any, new_machine: Callable[[], Any]
) -> tuple[tuple[Arg, ...], Rebuild, bool]:
    rebuilder = Rebuilder(domain, new_machine)
    rebuilder.replaying = True
    heap = domain.machine.heap
    effects = without_passing(heap.effects, heap.real, domain.ids, heap.created)
    for effect in without_overwritten(effects, heap.real, (move_version,)):
        rebuilder.effect(effect)
    rebuilder.replaying = False
    text = rebuilder.frames(result) if isinstance(result, Frame) else rebuilder.text(result)
    rebuilder.generators()
    rebuilder.refuse_lost_generators()
    rebuilder.modes()
    return tuple(rebuilder.outputs), rebuilder.compile(text), rebuilder.once
