"""The hooks by which one interpreter serves two domains: the concrete one runs everything, the
symbolic domain records.

The interpreter calls a hook with raw objects and pushes what the hook returns. Every hook may also
return `Call(fn, args, kwargs)` to have the interpreter call that instead (an interpreted function
included), raise an ordinary exception (the virtual program sees it), or raise `Break` (the virtual
frames are then at the beginning of this very instruction). `Domain` itself is the behaviour without
proxies; `concrete.py` is its only torch-free heir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from types import CodeType, FunctionType
from typing import Any, Protocol

from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.sorted_lists import CallSite
from anyshape.capture.heap.values import Call, InterpreterBug
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.nouns import frozen


@frozen
class Mark:
    """A checkpoint of heap and frames; `Machine.rollback` goes back to it, as often as wanted."""

    frame: Frame
    frames: tuple[tuple[Frame, Frame], ...]
    journal: int
    uncopied: dict[int, tuple[Any, Any]]  # iterators, as `Domain.outside_iterators` gives them


class Interpreter(Protocol):
    """What handlers, the object protocol and domains use of the machine (`machine.Machine`)."""

    codes: dict[CodeType, Code]
    domain: Domain
    heap: Heap
    frame: Frame | None
    recording: bool
    exact_deaths: bool  # what nobody holds any more is to die at once
    fresh_raise: bool
    handing: Callable[[Frame], None] | None
    escaped: BaseException | None

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """Begin a call: a value, or a `Frame` that nobody has entered."""

    def settle(self, result: Any) -> Any:
        """A handler's result with tail calls begun."""

    def native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call what is not interpreted."""

    def python_call(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A frame for a Python function, or what the domain makes of the call."""

    def frame_of(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        """The frame of a Python function, whatever the domain makes of calls of it."""

    def run_frame(self, frame: Frame, root: Any) -> Any:
        """Enter a frame as a root and run until it is left."""

    def current(self) -> Frame:
        """The frame that runs."""

    def frames(self) -> Iterator[Frame]:
        """The virtual frames, innermost first."""

    def operated(self, function: Any, *values: Any) -> Call | None:
        """What is interpreted instead of an operator of C that would ask the program."""

    def decoded(self, code: CodeType) -> Code:
        """The decoded form of a code object."""

    def lookup(self, cls: type, name: str) -> Any:
        """The raw attribute along the MRO of a class; `NULL` where there is none."""

    def class_changed(self) -> None:
        """A class was written to."""

    def checkpoint(self) -> Mark:
        """Remember heap and frames as they are now."""

    def rollback(self, mark: Mark) -> None:
        """Put heap and frames back; the mark stays good."""

    def release(self, mark: Mark) -> None:
        """Close a checkpoint without going back."""


class Domain:
    """What the interpreter asks while it runs. `machine` is set by the `Machine` that
    takes this domain.
    """

    # True: outside objects are read through `read`, never written (the heap keeps shadows), and
    # proxies may occur. False: no hook below but the call hooks is ever called, and writes are
    # real.
    records: bool = False
    sorts_natively: Set[CallSite] = frozenset()
    """Where the program sorts, and the graph has been seen to break meanwhile."""
    leaves_work_to_c = False
    """The graph has been seen to break while a polyfill did the work of C: see `pickles.CODES`."""

    machine: Interpreter

    # ---- reads of outside objects ----------------------------------------------------------------
    def read(self, obj: Any, kind: str, key: Any, value: Any) -> Any:
        """Interpreted code has read `value` from `obj`, which was not created in this trace;
        returns what it shall see.

        kind and key: `attr` name (also of classes and modules), `item` index or key, `len` None,
        `count` None (as `len`, where a plain int is needed),
        `keys` None (value: tuple of the keys, in order), `type` None, `global` name (obj: the
        globals dict), `closure` name (obj: the cell), `contains` item (value: bool), `missing`,
        `unset` and `unbound` name (none such in the object's `__dict__`, its slot, these globals).
        """
        return value

    def is_outside(self, value: Any) -> bool:
        """Whether the program was handed the object, or has read it somewhere."""
        return True

    def behind(self, view: Any, mapping: Any) -> None:
        """An outside view of a dict is about to be read: this is the dict."""

    def will_look_inside(self, obj: Any) -> None:
        """C code is about to get an outside object that has no mirror, and may read it."""

    def key(self, value: Any) -> Any:
        """A proxy, or a tuple that may hold some, as the key of a dict or an element of a set."""
        return value

    def outside_key(self, key: Any) -> Any:
        """A key as it lies in an outside dict."""
        return key

    def will_look_up(self, container: Any, key: Any) -> None:
        """A key is about to be looked up in an outside dict or set as it lies there: one of the
        same hash is asked by its `__eq__`."""

    def will_distinguish(self, a: Any, b: Any) -> None:
        """C code is about to compare these, and what lies in them, by which objects they are."""

    def reads_signals(self, obj: Any, name: str, value: Any) -> None:
        """An attribute is read, which may be the flags or the traps of a decimal context."""

    def identify(self, obj: Any) -> None:
        """The program asks which object this is."""

    def identify_value(self, value: Any) -> None:
        """The program learns which of several equal texts, numbers or tuples this is."""

    def is_one(self, a: Any, b: Any) -> Any:
        """Whether two values that differ while recording are one object of the program; a symbolic
        truth where sizes or data say so."""
        return False

    # ---- calls -----------------------------------------------------------------------------------
    def python_call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Asked before a Python function is interpreted; `NotImplemented` means: interpret it."""
        return NotImplemented

    def entered(self, fn: FunctionType) -> None:
        """A Python function is about to be interpreted."""

    def inherits(self, cls: type) -> None:
        """The program asked the MRO of a class."""

    def not_a_subclass(self, sub: type, cls: type) -> None:
        """The program asked, and the answer was no; an abstract class may take it in later."""

    def default(self, fn: FunctionType, name: str, value: Any, *, keyword: bool) -> Any:
        """A call leaves a parameter to the function's default; returns what the program sees."""
        return value

    def created(self, value: Any) -> Any:
        """A container that the program has just made."""
        return self.machine.heap.create(value)

    def remembered(
        self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
        """What the program sees of a result that a function with `functools.lru_cache` gave, and
        may have kept."""
        return result

    def past_cache(self, cache: Any, since: Any, given: Any, result: Any) -> Any:
        """The function behind a cache is called (``since`` None), or has given its result since
        then."""

    def is_opaque(self, fn: Any) -> bool:
        """Whether a Python function is to be called natively as a whole (`call_native` then gets
        it).
        """
        return False

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a callable that is not interpreted: C code, opaque functions, code with an
        unsupported opcode.

        Comes after the handlers of builtins.py. Outside containers among `args` have been replaced
        by their mirrors where the callee reads them.
        """
        return fn(*args, **kwargs)

    def instantiate(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Asked before a class is called; `NotImplemented` means: `__new__` and `__init__` as
        CPython does.
        """
        return NotImplemented

    # ---- proxies: one hook for each thing that can be done to one --------------------------------
    def unary(self, op: str, a: Any) -> Any:
        """`op` is one of `-`, `+`, `~`, `abs`, `round`, `index`, `int`, `float`, `bool`, `str`,
        `repr`, `hash`, `complex`.
        """
        raise _unexpected("unary", a)

    def binary(self, op: str, a: Any, b: Any) -> Any:
        """`op` is `+ - * / // % ** @ << >> & | ^ divmod`; at least one of `a`, `b` is a proxy."""
        raise _unexpected("binary", a, b)

    def inplace(self, op: str, a: Any, b: Any) -> Any:
        """`a op= b`, `op` as in `binary`; the result is stored where `a` came from."""
        return self.binary(op, a, b)

    def compare(self, op: str, a: Any, b: Any) -> Any:
        """`op` is `< <= == != > >=`; at least one is a proxy."""
        raise _unexpected("compare", a, b)

    def extremum(self, name: str, values: Sequence[Any]) -> Any:
        """`min(*values)` or `max(*values)`, one of them a proxy; `NotImplemented` means: compare
        them one by one.
        """
        return NotImplemented

    def contains(self, container: Any, item: Any) -> Any:
        """`item in container`, where `container` is a proxy."""
        raise _unexpected("contains", container)

    def branch(self, value: Any, frame: Frame) -> bool:
        """The truth of a proxy, needed by a jump of `frame` (or by `bool()`, `any()`, ...); may
        fork, guard or break.
        """
        raise _unexpected("branch", value)

    def getattr(self, value: Any, name: str) -> Any:
        """An attribute of a proxy; a bound method is `types.MethodType(function, value)` or any
        callable.
        """
        raise _unexpected("getattr", value)

    def setattr(self, value: Any, name: str, new: Any) -> Any:
        """Set an attribute of a proxy."""
        raise _unexpected("setattr", value)

    def delattr(self, value: Any, name: str) -> Any:
        """Delete an attribute of a proxy."""
        raise _unexpected("delattr", value)

    def getitem(self, value: Any, key: Any) -> Any:
        """`value[key]`, where `value` is a proxy, or a real sequence indexed by a proxy."""
        raise _unexpected("getitem", value, key)

    def setitem(self, value: Any, key: Any, new: Any) -> Any:
        """`value[key] = new`, where `value` or `key` is a proxy."""
        raise _unexpected("setitem", value, key)

    def delitem(self, value: Any, key: Any) -> Any:
        """`del value[key]`, where `value` or `key` is a proxy."""
        raise _unexpected("delitem", value, key)

    def iterate(self, value: Any) -> Any:
        """`iter(value)`: a real iterator over raw values or proxies (`iter([...])` will do)."""
        raise _unexpected("iterate", value)

    def length(self, value: Any) -> Any:
        """`len(value)`."""
        raise _unexpected("length", value)

    def format(self, value: Any, spec: str) -> Any:
        """`format(value, spec)`."""
        raise _unexpected("format", value)

    def call(self, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`value(*args, **kwargs)`, where `value` is a proxy."""
        raise _unexpected("call", value)

    def type_of(self, value: Any) -> type:
        """The class that a proxy, or a tuple that holds some, shows (`type(value)`,
        `value.__class__`, isinstance)."""
        if issubclass(type(value), tuple):
            return type(value)
        raise _unexpected("type_of", value)

    def is_instance(self, value: Any, cls: type) -> bool:
        """`isinstance(value, cls)`, where `value` is a proxy."""
        return issubclass(self.type_of(value), cls)

    def part_of(self, value: tuple[Any, ...], part: tuple[Any, ...]) -> Any:
        """The slice `part` of a tuple `value`, in the class that the program sees."""
        return part

    def will_compare(self, a: Any, b: Any) -> None:
        """`a == b` and the like are about to be asked."""

    def will_compute(self, *values: Any) -> None:
        """Something is about to be made of the values, or their order is asked for."""

    def will_advance(self, iterator: Any) -> None:
        """A recording machine is about to advance a native iterator."""

    def will_jump_back(self) -> None:
        """A recording machine is about to begin another turn of a loop."""

    def will_drop(self, generator: Any) -> None:
        """A recording machine is about to throw a generator away that has code to run then."""

    def will_raise(self, error: BaseException) -> None:
        """A recording machine is about to raise an exception: its traceback will be written to."""

    def outside_iterators(self) -> dict[int, tuple[Any, Any]]:
        """Native iterators that a fork must not copy, by id, each as (iterator, iterator)."""
        return {}

    def class_changed(self) -> None:
        """The attributes of a class were written to."""
        self.machine.class_changed()

    # ---- observation -----------------------------------------------------------------------------
    def wrote(self, fn: Callable[..., Any], target: Any, args: tuple[Any, ...]) -> None:
        """An effect on an outside object was put in the log: `fn(target, *args)` is to be replayed
        at the segment's end.
        """


class Concrete(Domain):
    """Every operator runs natively, every write is real: a program runs as CPython does, frame by
    virtual frame, from any program point. The fallback, the deoptimiser, the oracle of tests."""

    records = False

    def python_call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return NotImplemented


def _unexpected(hook: str, *values: object) -> InterpreterBug:
    kinds = ", ".join(bare_name(type(value)) for value in values)
    return InterpreterBug(f"Domain.{hook} was asked about {kinds}, but this domain has no proxies")
