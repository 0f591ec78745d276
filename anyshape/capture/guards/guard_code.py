"""What a specialization relies on, and the one straight-line Python function that tests it.

In: atoms `(source, kind, expected)` with the user's line, relations between sizes, the inputs
of the graph. Out: `compile_entry`, a function `slots -> list of graph inputs | None`. Pinned
sources cost one dictionary look-up and one identity test; nothing is walked twice.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field
from typing import Any, Literal, TypeAlias

import torch

from anyshape.capture.guards.definitions import MRO
from anyshape.capture.guards.no_alias import NoAlias
from anyshape.capture.heap import descriptions, purity, random_states
from anyshape.capture.heap.decimals import computes
from anyshape.capture.heap.hidden_dicts import dict_as_it_lies
from anyshape.capture.heap.mirrors import buffer_of
from anyshape.capture.heap.numpy_scalars import is_numpy_number
from anyshape.capture.heap.quiet_classes import bare_name, class_module
from anyshape.capture.heap.quiet_reads import hidden_names, is_unset, plain_of
from anyshape.capture.heap.sources import (
    Source,
    expression,
    path_expression,
    read_source,
)
from anyshape.capture.heap.times import state_of
from anyshape.capture.heap.values import is_empty
from anyshape.ir.graph import Location
from anyshape.ir.scalars import Scalar, ScalarInput, evaluate_scalar, names_of, render_scalar
from anyshape.known_builtins import generated
from anyshape.nouns import frozen
from anyshape.symbolic import Condition, Symbol, to_python


@frozen(eq=False)
class Guard:
    """One atom: what lies at `source` is as `expected` in the sense of `kind` (a row of
    `KINDS`)."""

    source: Source
    kind: str
    expected: Any
    location: Location | None = None
    library: bool = False  # about torch or the standard library, where hardly anything changes

    def __str__(self) -> str:
        return KINDS[self.kind].text(self.source.text, self.expected)


@frozen(eq=False)
class SizeGuard:
    """A relation between sizes that the program relies on."""

    condition: Condition
    location: Location | None = None
    names: Mapping[Symbol, str] = field(default_factory=dict)
    by_value: bool = False  # it says what the size is

    def __str__(self) -> str:
        symbols = sorted(self.condition.symbols, key=lambda s: s.name)
        where = ", ".join(f"{s.name} = {self.names[s]}" for s in symbols if s in self.names)
        return f"{self.condition}" + (f"  ({where})" if where else "")


@frozen(eq=False)
class ScalarGuard:
    """A comparison of floats computed from sizes and numbers, and the side that the program
    relies on."""

    scalar: Scalar
    truth: bool
    location: Location | None = None
    by_value: bool = False  # it says what the number is

    def __str__(self) -> str:
        return f"{self.code()} is {self.truth}"

    def code(self) -> str:
        """Python text over the names of symbols and inputs."""
        return render_scalar(self.scalar, lambda symbol: symbol.name, lambda unknown: unknown.name)


MODE_FIELDS = (
    *("grad mode", "inference mode", "autocast", "default dtype", "default device"),
    *("deterministic algorithms", "float32 matmul precision", "function modes", "dispatch modes"),
    *("hooks for saved tensors", "level of forward gradients"),
    *("flash sdp", "mem efficient sdp", "math sdp", "cudnn sdp", "overrideable sdp"),
)

Namer = Callable[[Any, str], str]


@frozen
class GuardKind:
    """How one kind of guard is tested fast, tested slowly, and reported."""

    fails: Callable[[str, Any, Namer], str]
    holds: Callable[[Any, Any], bool]
    text: Callable[[str, Any], str]
    steps: bool = False  # the guard proves the last step of its source


def _equals_text(path: str, expected: Any, name: Namer) -> str:
    constant = name(expected, "value")
    if expected is None or isinstance(expected, bool):
        return f"{path} is not {expected}"
    kind = name(type(expected), bare_name(type(expected)))
    if type(expected) is float and (expected == 0.0 or math.isnan(expected)):
        differs = f"type(v) is not {kind} or repr(v) != {str(expected)!r}"
        return f"(v := {path}) is not {constant} and ({differs})"
    # a tensor in a tuple has no truth, and 1 == True == 1.0
    by_parts = type(expected) in (tuple, slice) or is_numpy_number(expected)
    if by_parts or not _is_plain(expected):
        return (
            f"(v := {path}) is not {constant} and not {name(same_constant, 'same')}(v, {constant})"
        )
    return f"(v := {path}) is not {constant} and (type(v) is not {kind} or v != {constant})"


def _keys_text(path: str, expected: tuple[Any, ...], name: Namer) -> str:
    constant = name(expected, "keys")
    if all(type(key) is str for key in expected):  # which a tensor can be compared with
        return f"tuple({path}) != {constant}"
    return f"not {name(same_constant, 'same')}(tuple({path}), {constant})"


CONTENTS = frozenset({"length", "keys", "contains", "buffer", "time"})
OPAQUE = frozenset({str, bytes, range})
"""What native code may make anew in each call, with another value: it is handed on unread then."""


SLICE_PARTS = ("start", "stop", "step")


def same_constant(value: Any, expected: Any) -> bool:
    """Equal, of one type, and for floats with the same sign of zero; in tuples all the way. A
    tensor is equal to itself alone, as where it is a key."""
    if value is expected:
        return True
    if type(value) is not type(expected) or isinstance(expected, torch.Tensor):
        return False
    if type(expected) is tuple:
        return len(value) == len(expected) and all(map(same_constant, value, expected))
    if type(expected) is slice:
        return all(same_constant(getattr(value, n), getattr(expected, n)) for n in SLICE_PARTS)
    if isinstance(expected, float) or is_numpy_number(expected):
        return repr(value) == repr(expected)
    return _is_plain(expected) and bool(value == expected)


def _is_plain(value: Any) -> bool:
    """Whether `==` with it runs no code of the program: C compares it, or the standard library."""
    if type(value) is frozenset:
        return all(map(_is_plain, value))
    return purity.is_library(class_module(type(value)))


def _referent(obj: Any) -> str:
    return "an object that is gone" if obj is None else short(obj)


def short(value: Any) -> str:
    """A value on one line; no code of the program is called for it."""
    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.is_nested:  # it has no shape
        return f"<nested {bare_name(type(value))} {value.dtype} {value.device}>"
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return f"<{bare_name(type(value))} {tuple(value.shape)} {value.dtype} {value.device}>"
    return descriptions.short(value)


def _missing_text(path: str, expected: Any, name: Namer) -> str:
    return f"{expected!r} in {path}.__dict__"


def _no_alias_text(path: str, expected: tuple[Source, ...], name: Namer) -> str:
    others = [expression(source, name) for source in expected]
    if len(others) == 1:
        return f"{path} is {others[0]}"
    return f"len({{{', '.join(f'id({text})' for text in (path, *others))}}}) != {len(others) + 1}"


KINDS: Mapping[str, GuardKind] = {
    "is": GuardKind(
        lambda path, expected, name: f"{path} is not {name(expected, 'object')}",
        lambda value, expected: value is expected,
        lambda path, expected: f"{path} is {short(expected)}",
        steps=True,
    ),
    "refers": GuardKind(  # as "is", of what the caller alone keeps alive
        lambda path, expected, name: f"{path} is not {name(expected, 'object')}()",
        lambda value, expected: value is expected(),
        lambda path, expected: f"{path} is {_referent(expected())}",
        steps=True,
    ),
    "equals": GuardKind(
        _equals_text,
        same_constant,
        lambda path, expected: f"{path} == {short(expected)}",
        steps=True,
    ),
    "plain": GuardKind(  # of a subclass of numbers or texts, whose own `==` is not to run
        lambda path, expected, name: (
            f"not {name(same_constant, 'same')}"
            f"({name(plain_of, 'plain_of')}({path}), {name(expected, 'value')})"
        ),
        lambda value, expected: same_constant(plain_of(value), expected),
        lambda path, expected: f"{path} is a {short(expected)}",
    ),
    "type": GuardKind(
        lambda path, expected, name: f"type({path}) is not {name(expected, bare_name(expected))}",
        lambda value, expected: type(value) is expected,
        lambda path, expected: f"type({path}) is {descriptions.name_of(expected)}",
    ),
    "length": GuardKind(
        lambda path, expected, name: f"len({path}) != {expected}",
        lambda value, expected: len(value) == expected,
        lambda path, expected: f"len({path}) == {expected}",
    ),
    "keys": GuardKind(
        _keys_text,
        lambda value, expected: same_constant(tuple(value), expected),
        lambda path, expected: f"keys of {path} are {short(expected)}",
    ),
    "buffer": GuardKind(
        lambda path, expected, name: (
            f"{name(buffer_of, 'buffer_of')}({path}) != {name(expected, 'buffer')}"
        ),
        lambda value, expected: buffer_of(value) == expected,
        lambda path, expected: f"what {path} holds is the same",
    ),
    "time": GuardKind(
        lambda path, expected, name: (
            f"{name(state_of, 'state_of')}({path}) != {name(expected, 'time')}"
        ),
        lambda value, expected: state_of(value) == expected,
        lambda path, expected: f"{path} is the same time",
    ),
    "draws": GuardKind(
        lambda path, expected, name: (
            f"{name(random_states.state_of, 'state_of')}({path}) != {name(expected, 'state')}"
        ),
        lambda value, expected: random_states.state_of(value) == expected,
        lambda path, expected: f"{path} draws the same numbers",
    ),
    "computes": GuardKind(
        lambda path, expected, name: (
            f"not {name(computes, 'computes')}({path}, {name(expected, 'context')})"
        ),
        computes,
        lambda path, expected: f"{path} computes as it did",
    ),
    "contains": GuardKind(
        lambda path, expected, name: (
            f"{name(expected[0], 'item')} {'not in' if expected[1] else 'in'} {path}"
        ),
        lambda value, expected: (expected[0] in value) is expected[1],
        lambda path, expected: f"{short(expected[0])} {'in' if expected[1] else 'not in'} {path}",
    ),
    "kinds": GuardKind(  # of keys: none of the program's classes, whose `__eq__` a lookup may call
        lambda path, expected, name: f"not {name(expected, 'kinds')}.issuperset(map(type, {path}))",
        lambda value, expected: expected.issuperset(map(type, value)),
        lambda path, expected: f"keys of {path} are of classes known before",
    ),
    "missing": GuardKind(
        _missing_text,
        lambda obj, name: name not in obj.__dict__,
        lambda path, expected: f"{path} has no {expected!r} of its own",
    ),
    "hidden": GuardKind(
        lambda path, expected, name: (
            f"{expected!r} in {name(hidden_names, 'hidden_names')}({path})"
        ),
        lambda obj, name: name not in hidden_names(obj),
        lambda path, expected: f"{path} has no {expected!r} of its own",
    ),
    "unset": GuardKind(
        lambda path, expected, name: f"hasattr({path}, {expected!r})",
        lambda obj, name: not hasattr(obj, name),
        lambda path, expected: f"{path} has no attribute {expected!r}",
    ),
    "unset_in_c": GuardKind(
        lambda path, expected, name: f"not {name(is_unset, 'is_unset')}({path}, {expected!r})",
        is_unset,
        lambda path, expected: f"{path} has no attribute {expected!r}",
    ),
    "no_content": GuardKind(
        lambda path, expected, name: f"not {name(is_empty, 'is_empty')}({path})",
        lambda cell, expected: is_empty(cell),
        lambda path, expected: f"{path} of {expected!r} is empty",
    ),
    "function": GuardKind(
        lambda path, expected, name: expected.fails(path, name),
        lambda fn, expected: expected.holds(fn),
        lambda path, expected: f"{expected.code.co_qualname} has the same code and defaults",
    ),
    "mro": GuardKind(
        lambda path, expected, name: f"{name(MRO, 'MRO')}({path}) is not {name(expected, 'mro')}",
        lambda cls, expected: MRO(cls) is expected,
        lambda path, expected: f"{path} has the same bases",
    ),
    "remembers": GuardKind(
        lambda path, expected, name: f"{path}.cache_info().currsize < {expected}",
        lambda fn, expected: fn.cache_info().currsize >= expected,
        lambda path, expected: f"{path} has not forgotten its results",
    ),
    "same": GuardKind(
        lambda path, expected, name: f"{path} is not {expression(expected, name)}",
        lambda value, expected: True,
        lambda path, expected: f"{path} is {expected.text}",
    ),
    "distinct": GuardKind(
        _no_alias_text,
        lambda value, expected: True,
        lambda path, expected: f"{', '.join([path, *(s.text for s in expected)])} are different",
    ),
    "tensor": GuardKind(
        lambda path, expected, name: expected.fails(path, name),
        lambda value, expected: expected.holds(value),
        lambda path, expected: f"{path} is {expected}",
    ),
    "truth": GuardKind(
        lambda path, expected, name: f"{'not ' if expected else ''}{path}",
        lambda value, expected: bool(value) is expected,
        lambda path, expected: f"bool({path}) is {expected}",
    ),
}


@frozen
class DimsBinding:
    """The symbols that a tensor's shape or strides give, in order; None for what is constant."""

    source: Source
    what: Literal["shape", "stride"]
    symbols: tuple[Symbol | None, ...]


@frozen
class NumberBinding:
    """A number that is handed in."""

    source: Source
    unknown: Symbol | ScalarInput


@frozen
class ComputedBinding:
    """A number that is computed: an int through floats, or a float of many operations."""

    unknown: Symbol | ScalarInput
    scalar: Scalar


Binding: TypeAlias = DimsBinding | NumberBinding | ComputedBinding


@frozen(eq=False)
class GuardSet:
    """All that one specialization relies on.

    `bindings` says which symbols the inputs give, in order. `modes` is what
    `execution_modes.snapshot()` gave. `hooks` are dictionaries that must be empty. `parameters` are
    pinned tensors whose metadata generated kernels rely on.
    """

    modes: tuple[Any, ...]
    guards: tuple[Guard, ...]
    sizes: tuple[SizeGuard, ...]
    bindings: tuple[Binding, ...]
    inputs: tuple[Source, ...]
    hooks: tuple[dict[Any, Any], ...] = ()
    parameters: tuple[torch.Tensor, ...] = ()
    scalars: tuple[ScalarGuard, ...] = ()
    no_alias: NoAlias | None = None
    overlapping: bool = False  # the opposite of `no_alias` is relied on
    front: Callable[[Sequence[Any]], bool] | None = None  # the sizes are as declared
    pointers: tuple[int, ...] = ()  # where the data of `parameters` lay

    def lines(self) -> Iterable[tuple[str, Location | None]]:
        """Each guard as text, with the user's line that made it."""
        for guard in self.guards:
            if not guard.library:
                yield str(guard), guard.location
        count = sum(guard.library for guard in self.guards)
        if count:
            names = "1 name" if count == 1 else f"{count} names"
            yield f"{names} of torch and the standard library: as while compiling", None
        relations: list[SizeGuard | ScalarGuard] = [*self.sizes, *self.scalars]
        for relation in relations:
            yield str(relation), relation.location
        if self.no_alias is not None:
            yield ("not: " if self.overlapping else "") + str(self.no_alias), None


class _Text:
    """The source of one function under construction, and the constants it names."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._failures: list[str] = []  # the conditions behind the last line
        self._lines: list[str] = []

    def name(self, obj: Any, hint: str) -> str:
        known = self._names.get(id(obj))
        if known is None:
            known = self._names[id(obj)] = f"c{len(self._names)}"
            self.constants[known] = obj
        return known

    def fail_if(self, *conditions: str) -> None:
        self._failures += conditions

    def add(self, line: str) -> None:
        """One statement for all conditions in front of the line: it compiles in less time."""
        if self._failures:
            conditions = "\n            or ".join(self._failures)
            self._lines.append(f"        if ({conditions}): return None")
            self._failures.clear()
        self._lines.append("        " + line)

    def compile(self, name: str, parameters: str, **given: Any) -> Callable[..., Any]:
        body = "\n".join(self._lines)
        caught = "(LookupError, AttributeError, TypeError, ValueError, ArithmeticError)"
        head, tail = f"def {name}({parameters}):\n    try:", f"    except {caught}:"
        text = f"{head}\n{body}\n{tail}\n        return None\n"
        scope: dict[str, Any] = {**self.constants, **given}
        function: Callable[..., Any] = generated(text, f"<anyshape {name}>", scope, name)
        return function


def dict_read(guard: Guard) -> dict[Any, Any] | None:
    """The pinned dictionary whose content alone decides the guard; None where more does."""
    source = guard.source
    if guard.kind in ("contains", "keys", "length", "truth"):
        return _plain(source.pinned) if source.is_constant else None
    if guard.kind == "missing":
        return own_dict(source.pinned) if source.is_constant else None
    constant = guard.kind == "equals" and is_unchanging(guard.expected)
    base = source.base
    if not (guard.kind == "is" or constant) or base is None or not base.is_constant:
        return None
    if source.is_varying:  # another number decides, too
        return None
    if source.kind == "attr":
        table = own_dict(base.pinned)
        return table if table is not None and source.key in table else None
    return _plain(base.pinned) if source.kind in ("item", "get") else None


UNCHANGING = frozenset(
    {int, float, bool, str, bytes, complex, type(None), range, torch.Size, torch.device}
)


def is_unchanging(value: Any) -> bool:
    """Does the object itself decide what it is equal to? A tuple does where its items do."""
    if type(value) is tuple:
        return all(map(is_unchanging, value))
    return type(value) in UNCHANGING


def _plain(value: Any) -> dict[Any, Any] | None:
    return value if type(value) is dict else None


def own_dict(obj: Any) -> dict[Any, Any] | None:
    """The dictionary of an object's own attributes, if it is a plain one."""
    return dict_of_class(obj) if issubclass(type(obj), type) else dict_as_it_lies(obj)


def dict_of_class(cls: type) -> dict[str, Any] | None:
    """The dictionary behind the mapping proxy that is the class's `__dict__`."""
    behind = gc.get_referents(type.__dict__["__dict__"].__get__(cls))
    return behind[0] if len(behind) == 1 and type(behind[0]) is dict else None


def compile_test(guards: Sequence[Guard]) -> Callable[[], bool]:
    """A function that says whether the guards, which read no slot, hold."""
    text = _Text()
    for guard in guards:
        _emit(text, guard)
    text.add("return True")
    return text.compile("test", "")


def compile_entry(
    guards: GuardSet,
    modes_hold: Callable[[Any], bool],
    fresh: Callable[[], bool] | None,
    by_version: Callable[[], bool] | None = None,
    tested: Set[Guard] = frozenset(),
) -> Callable[[Sequence[Any]], list[Any] | None]:
    """`entry(slots)`: the graph's inputs in order if every guard holds, else None. Cheap and
    telling guards come first. `by_version` tests those guards that are in `tested`. `modes_hold`
    is a global of the function, as is what it is handed, `mode_reads`."""
    text = _Text()
    text.fail_if("not modes_hold(mode_reads)")
    if guards.front is not None:
        text.fail_if(f"not {text.name(guards.front, 'front')}(slots)")
    slow: list[Guard] = []
    for guard in guards.guards:
        if from_slot(guard.source):
            _emit(text, guard)
        elif guard not in tested:
            slow.append(guard)
    _emit_bindings(text, guards)
    for size in guards.sizes:
        text.fail_if(f"not ({to_python(size.condition)})")
    for scalar in guards.scalars:
        text.fail_if(f"bool({scalar.code()}) is not {scalar.truth}")
    if guards.no_alias is not None:
        parts = [
            "[" + ", ".join(expression(source, text.name) for source in sources) + "]"
            for sources in (guards.no_alias.written, guards.no_alias.others)
        ]
        wrong = "" if guards.overlapping else "not "
        text.fail_if(f"{wrong}{text.name(guards.no_alias.holds, 'no_alias')}({', '.join(parts)})")
    for guard in slow:
        _emit(text, guard)
    if fresh is not None:  # parameters and hooks
        text.fail_if("not fresh()")
    if by_version is not None:
        text.fail_if("not by_version()")
    reads = ", ".join(expression(source, text.name) for source in guards.inputs)
    text.add(f"return [{reads}]")
    modes = {"modes_hold": modes_hold, "mode_reads": None}
    return text.compile("entry", "slots", **modes, fresh=fresh, by_version=by_version, math=math)


def from_slot(source: Source) -> bool:
    """Whether it is read of what was handed in, or found by such a key."""
    if source.kind == "slot" or (source.is_varying and from_slot(source.key)):
        return True
    base = source.base if not source.is_constant else None
    return base is not None and not base.is_constant and from_slot(base)


def _emit(text: _Text, guard: Guard) -> None:
    kind = KINDS[guard.kind]
    if guard.source.kind == "const" and guard.kind == "is":
        return  # a root is what it is
    path = path_expression if kind.steps else expression
    text.fail_if(kind.fails(path(guard.source, text.name), guard.expected, text.name))


def _emit_bindings(text: _Text, guards: GuardSet) -> None:
    """Names for the symbols that the relations need, in the order in which they became known."""
    needed: set[Any] = {symbol for size in guards.sizes for symbol in size.condition.symbols}
    read_by = [guard.scalar for guard in guards.scalars]
    read_by += [b.scalar for b in guards.bindings if isinstance(b, ComputedBinding)]
    for scalar in read_by:
        needed |= names_of(scalar)
    for binding in guards.bindings:
        match binding:
            case ComputedBinding(unknown, scalar):
                text.add(f"{unknown.name} = {scalar_code(scalar)}")
            case NumberBinding(source, unknown) if unknown in needed:
                text.add(f"{unknown.name} = {expression(source, text.name)}")
            case DimsBinding(source, what, symbols) if needed.intersection(symbols):
                names = [s.name if s is not None and s in needed else "_" for s in symbols]
                read = f"{expression(source, text.name)}.{READERS[what]}"
                text.add(f"{', '.join(names)}, = {read}")


READERS = {"shape": "shape", "stride": "stride()"}


def scalar_code(scalar: Any) -> str:
    """Python text of a scalar over the names of symbols and inputs."""
    return render_scalar(scalar, lambda symbol: symbol.name, lambda unknown: unknown.name)


def bind_symbols(
    guards: GuardSet, slots: Sequence[Any]
) -> tuple[dict[Symbol, int], dict[ScalarInput, Any]]:
    """The value of each symbol, and of each float, that the slots give."""
    values: dict[Any, Any] = {}
    for binding in guards.bindings:
        match binding:
            case ComputedBinding(unknown, scalar):
                numbers = {k: v for k, v in values.items() if isinstance(k, ScalarInput)}
                values[unknown] = evaluate_scalar(scalar, values, numbers)
            case NumberBinding(source, unknown):
                values[unknown] = read_source(source, list(slots))
            case DimsBinding(source, what, symbols):
                tensor = read_source(source, list(slots))
                sizes = tensor.shape if what == "shape" else tensor.stride()
                values.update((s, size) for s, size in zip(symbols, sizes) if s is not None)
    floats = {k: v for k, v in values.items() if isinstance(k, ScalarInput)}
    return {k: v for k, v in values.items() if k not in floats}, floats
