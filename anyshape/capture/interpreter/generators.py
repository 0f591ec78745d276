"""Virtual generators: a suspended frame that can be resumed by the loop, by native code, or thrown
into.

`begin` gives the generator's frame, ready to be entered; whoever enters it says with a continuation
what yields and returns mean (FOR_ITER, SEND, next(), ...). Throwing puts a hidden interpreted frame
that raises on top of the suspended one, so that `yield from` delegation and `finally` need nothing
special.
"""

from __future__ import annotations

import gc
from sys import getrefcount
from types import GeneratorType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.raised_state import set_traceback
from anyshape.capture.heap.values import NULL, InterpreterBug, ProxyLeak
from anyshape.capture.interpreter import iterator_states, polyfills
from anyshape.capture.interpreter.continuations import (
    GENERATOR_ROOT,
    Continuation,
    Ended,
    Root,
    SendCall,
)
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.interpreter.frame_objects import untraced
from anyshape.capture.interpreter.frame_views import FrameView
from anyshape.capture.interpreter.generator_close import closes_quietly, may_have_a_close
from anyshape.capture.interpreter.iterator_states import STAND_INS, StandIn, named_by_c
from anyshape.capture.interpreter.versions import VERSION
from anyshape.nouns import frozen

OF_GENERATORS = frozenset(dir(GeneratorType)) - frozenset(dir(map))
NAMES = frozenset({"__name__", "__qualname__"})


class Generator:
    """A generator of the virtual program. To native code it is an ordinary iterator that runs its
    machine.
    """

    __slots__ = (
        "__name__",
        "__qualname__",
        "__weakref__",
        "finished",
        "frame",
        "function",
        "machine",
        "native",
        "running",
        "started",
        "touched",
    )

    def __init__(self, machine: Interpreter, frame: Frame) -> None:
        self.machine = machine
        self.native: Any = None  # the iterator with which it goes on in CPython, if it does
        self.frame = frame
        self.function, frame.function = frame.function, None
        named: Any = self.function or frame.code.code
        self.__name__ = named.__name__ if self.function else named.co_name
        self.__qualname__ = named.__qualname__ if self.function else named.co_qualname
        self.running = False
        self.started = False
        self.finished = False
        self.touched = False

    @classmethod
    def restored(
        cls, machine: Interpreter, code: Code, names: tuple[str, str] | None = None
    ) -> Generator:
        """A generator over `code` that somebody else gives its state and its frame; its names are
        those of the code where none are given."""
        made = object.__new__(cls)
        made.machine, made.native = machine, None
        made.frame = Frame(code, {}, {}, [])  # of one that is finished, nobody gives another
        made.__name__, made.__qualname__ = names or (code.code.co_name, code.code.co_qualname)
        made.function = None
        made.running = made.started = made.finished = made.touched = False
        return made

    @property  # type: ignore[misc] # nobody sets it
    def __class__(self) -> type:
        return self.python_type

    @property
    def python_type(self) -> type:
        """What it is to the program: a generator, or the iterator of C that it stands for."""
        if self.native is not None:
            return type(self.native)
        stands_for = self.stands_for
        return GeneratorType if stands_for is None else stands_for.cls

    @property
    def stands_for(self) -> StandIn | None:
        """The row of the iterator of C in whose place its code runs."""
        code = self.frame.code
        return STAND_INS.get(code.code.co_name) if code.hidden else None

    @property
    def is_of_c(self) -> bool:
        """Whether it stands for an iterator of C, which lets a StopIteration out."""
        return self.python_type is not GeneratorType

    def read(self, name: str) -> Any:
        """An attribute, as the program asks for it."""
        self.check_attribute(name)
        found = self.read_name(name) if name in NAMES else getattr(self, name, NULL)
        if found is NULL:
            raise self._missing(name)
        return found

    def read_name(self, name: str) -> str:
        """`__name__` or `__qualname__`: of its own, or of the function as it is called now."""
        value: str = getattr(self, name)
        heap = self.machine.heap
        if self.machine.recording and self.python_type is GeneratorType:
            if self.function is None:
                heap.attribute(self, name, value)
            else:
                heap.attribute(self.function, name, value)
        return value

    def check_attribute(self, name: str) -> None:
        """Raises AttributeError for what only generators have, if it stands for something else."""
        kind = self.python_type
        missing = name in OF_GENERATORS and kind is not GeneratorType
        if name == "__setstate__":
            missing = not hasattr(kind, name)
            if not missing and self.machine.recording and not getattr(self.stands_for, "sets", ""):
                raise broken("unknown-call", f"{named_by_c(self.python_type)}.__setstate__")
        if missing:
            raise self._missing(name)

    def _missing(self, name: str) -> AttributeError:
        text = f"'{named_by_c(self.python_type)}' object has no attribute '{name}'"
        return AttributeError(text, name=name, obj=self)

    def left_of_reversed(self) -> tuple[Any, int]:
        """What a `reversed` goes through, and how many of its items it has not given."""
        code = self.frame.code
        if not code.hidden or code.code.co_name != "reversed_of" or self.finished:
            return (), 0
        obj, index = self.frame.locals[:2]
        return obj, index + 1

    def set_attribute(self, name: str, value: Any) -> None:
        """As a generator of C has it, whose names are texts and cannot be deleted."""
        if self.python_type is not GeneratorType or name not in NAMES:
            self.check_attribute(name)
            kind = named_by_c(self.python_type)
            if hasattr(getattr(self.python_type, name, None), "__set__"):
                raise AttributeError(f"attribute {name!r} of {kind!r} objects is not writable")
            if hasattr(self.python_type, name):
                raise AttributeError(f"{kind!r} object attribute {name!r} is read-only")
            text = f"{kind!r} object has no attribute {name!r}{VERSION.without_dict}"
            raise AttributeError(text, name=name, obj=self)
        if not issubclass(type(value), str):
            raise TypeError(f"{name} must be set to a string object")
        if self.machine.recording:
            raise broken("python-effect", f"setting {name} of a generator")
        setattr(self, name, value)

    def __reduce_ex__(self, protocol: Any = 0) -> Any:
        if self.native is not None:
            return self.native.__reduce_ex__(protocol)
        row = self.stands_for
        if row is not None and not self.running:
            values = None if self.finished else self.frame.values_by_name()
            if (state := iterator_states.reduced_state(row, self.machine, values)) is not None:
                return state
        kind = self.python_type.__name__ if protocol < 2 else named_by_c(self.python_type)
        raise TypeError(f"cannot pickle '{kind}' object")

    __reduce__ = __reduce_ex__

    def __setstate__(self, state: Any) -> None:
        """As the iterator of C that it stands for."""
        if self.native is not None:
            self.native.__setstate__(state)
            return
        self.check_attribute("__setstate__")
        self._remember()
        row = self.stands_for
        if row is None or not row.sets:
            self.go_on_with(iterator_states.native_at(self, state))
        elif row.sets != "finished":
            slot = self.frame.code.local_names.index(row.sets)
            self.frame.locals[slot] = max(state, 0) if row.sets == "index" else state
        elif state:
            self.finished = True

    # ---- what the interpreter uses ---------------------------------------------------------------
    def begin(self, value: Any, continuation: Continuation) -> Frame | None:
        """The frame to enter for `send(value)`, or None when the generator is finished."""
        if self.running:
            return self._beside().begin(value, continuation)
        if self.finished:
            return None
        if not self.started and value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        self.touched = True
        self._remember()
        self._hand_over()
        frame = self.frame
        frame.stack.append(value)
        frame.continuation = continuation
        frame.back = None
        frame.generator = self  # only while it runs: a dropped generator must go at once
        self.running = self.started = True
        return frame

    def _hand_over(self) -> None:
        """Where the machine hands loops over to CPython: those of this one, too."""
        if self.machine.handing is None or self.native is not None:
            return
        code = self.frame.code
        rest = None
        if code.hidden:
            rest = iterator_states.native_rest(code.code.co_name, self.frame.values_by_name())
        if rest is None:
            self.machine.handing(self.frame)
        else:
            self.go_on_with(rest)

    def go_on_with(self, rest: Any) -> None:
        """From here on, it yields what a native iterator gives. One that runs stands behind the
        beginning then."""
        delegates = type(rest) is GeneratorType  # to which something may be sent
        polyfill = polyfills.going_on if delegates else polyfills.given_by
        frame, code = self.frame, self.machine.decoded(polyfill.__code__)
        frame.code, frame.instructions = code, code.instructions
        frame.index = _beginning(code) + self.running
        frame.locals, frame.stack = [rest], []
        self.native, self.started = rest, self.running

    def _beside(self) -> Generator:
        """Another one over the same iterators, for one that is advanced while it runs."""
        if self.python_type is GeneratorType:
            raise ValueError("generator already executing")
        row = self.stands_for
        if row is None or not row.shared:
            raise broken("escape", f"a {self.python_type.__name__} that is advanced while it runs")
        frame = self.frame
        beside = Frame(frame.code, frame.globals, frame.builtins, list(frame.locals))
        beside.index = _beginning(frame.code)
        return Generator(self.machine, beside)

    def suspend(self, machine: Interpreter) -> Frame | None:
        """A yield: the frame to which control goes back, that of `machine` from here on."""
        self._remember_state()
        frame = self.frame
        leaves = isinstance(frame.continuation, Root)
        caller = frame.back
        self.running = False
        frame.back = frame.generator = None
        if not leaves:
            machine.frame = caller
        return caller

    def returned(self) -> None:
        """The generator's code has returned."""
        self._remember_state()
        self.running = False
        self.finished = True
        self.frame.generator = None
        if self.machine.exact_deaths and self.machine.heap.journal is None:
            self.let_go()

    def let_go(self) -> None:
        """What its code held dies with the frame that is left."""
        self.frame.let_go()
        self.frame, self.function = Frame(self.frame.code, {}, {}, []), None

    def closed_unstarted(self) -> None:
        """It was closed before it had begun."""
        self._remember_state()
        self.touched = self.finished = True

    def failed(self, error: BaseException) -> BaseException:
        """The generator's code let `error` out: what its caller sees (PEP 479). An iterator of C
        lets a StopIteration out as it is."""
        row = self.stands_for
        if self.is_of_c and not (row is not None and row.ends_by_errors):
            self._remember_state()
            self.running = self.started = False
            frame = self.frame
            frame.stack.clear()
            frame.index, frame.handled = _beginning(frame.code), None
            frame.back = frame.generator = None
            return error
        self.returned()
        guarded = self.is_of_c or VERSION.generators_guard_themselves
        if issubclass(type(error), StopIteration) and not guarded:
            replaced = RuntimeError("generator raised StopIteration")
            replaced.__cause__ = replaced.__context__ = error
            return replaced
        return error

    def throwing(self, error: BaseException, continuation: Continuation) -> Frame:
        """The frame to enter for `throw(error)`: one that raises, on top of the generator's own."""
        if self.running:
            raise ValueError("generator already executing")
        self.touched = True
        if self.finished:
            raiser = _polyfill_frame(self.machine, polyfills.throw_it, error, None)
            raiser.continuation = continuation
            return raiser
        self._remember()
        frame = self.frame
        frame.continuation = continuation
        frame.back = None
        frame.generator = self
        self.running = True
        delegate = self.delegate()
        if delegate is NULL:
            raiser = _polyfill_frame(self.machine, polyfills.throw_it, error, frame.handled)
        elif issubclass(type(error), GeneratorExit):
            raiser = _polyfill_frame(
                self.machine, polyfills.close_and_raise, delegate, error, frame.handled
            )
        else:
            send_index = frame.index - 2
            frame.index -= 1
            raiser = _polyfill_frame(
                self.machine, polyfills.throw_into, delegate, error, frame.handled
            )
            raiser.continuation = SendCall(
                frame.instructions[send_index][1].target, VERSION.leaves_ended
            )
        raiser.back = frame
        return raiser

    def delegate(self) -> Any:
        """What a suspended `yield from` delegates to, else `NULL`."""
        index = self.frame.index - 1
        opcodes = self.frame.code.opcodes
        if (
            self.started
            and index > 0
            and opcodes[index - 1][0] == "SEND"
            and opcodes[index][0] == "YIELD_VALUE"
        ):
            return self.frame.stack[-1]
        return NULL

    def _remember(self) -> None:
        heap = self.machine.heap
        if heap.journal is not None:
            saved = self.frame.copy(self.machine.domain.outside_iterators())
            state = (self.running, self.started, self.finished)
            heap.journal.append(lambda: self._restore(saved, state))

    def _restore(self, saved: Frame, state: tuple[bool, bool, bool]) -> None:
        self.frame.restore(saved.copy(self.machine.domain.outside_iterators()))
        self._restore_state(state)

    def _remember_state(self) -> None:
        """For a side of a fork that leaves the generator it was in: a checkpoint keeps the frame,
        and not how the generator stands."""
        heap = self.machine.heap
        if heap.journal is not None:
            state = (self.running, self.started, self.finished)
            heap.journal.append(lambda: self._restore_state(state))

    def _restore_state(self, state: tuple[bool, bool, bool]) -> None:
        self.running, self.started, self.finished = state

    # ---- what native code sees -------------------------------------------------------------------
    def __iter__(self) -> Generator:
        return self

    @untraced
    def __next__(self) -> Any:
        if self.native is None:
            return self.send(None)
        return next(self.native)

    @untraced
    def send(self, value: Any) -> Any:
        """As `generator.send`, run natively."""
        if self.native is not None:
            return self.native.send(value)
        self._native_use("send")
        frame = self.begin(value, GENERATOR_ROOT)
        if frame is None:
            raise StopIteration
        return self._finish(self.machine.run_frame(frame, GENERATOR_ROOT))

    @untraced
    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        """As `generator.throw`, run natively."""
        if self.native is not None:
            return self.native.throw(thrown_exception(kind, value, traceback))
        self._native_use("throw")
        frame = self.throwing(thrown_exception(kind, value, traceback), GENERATOR_ROOT)
        return self._finish(self.machine.run_frame(frame, GENERATOR_ROOT))

    @untraced
    def close(self) -> Any:
        """As `generator.close`, run natively."""
        if self.native is not None:
            return self.native.close()
        if self.finished:
            return None
        self._native_use("close")
        if not self.started:
            self.closed_unstarted()
            return None
        try:
            self.throw(GeneratorExit())
        except (GeneratorExit, StopIteration) as error:
            set_traceback(error, None)  # it would hold all frames, and what they hold, in a cycle
            return CLOSING.result_of(error)
        raise RuntimeError("generator ignored GeneratorExit")

    def _native_use(self, method: str) -> None:
        if self.machine.recording:
            raise ProxyLeak("a generator", method)

    @untraced
    def _finish(self, value: Any) -> Any:
        if type(value) is Ended:
            raise StopIteration(value.value) if value.value is not None else StopIteration
        return value

    def __del__(self) -> None:
        if self.is_left_open and not self.machine.recording:
            self.close()

    @property
    def is_left_open(self) -> bool:
        """Whether dropping it runs code of the program."""
        if self.native is not None:
            return False  # that is dropped, too
        return self.gi_suspended and not self._closes_quietly()

    def _closes_quietly(self) -> bool:
        """Whether closing it runs no handler of its own, of what it delegates to, or of a generator
        that it holds, which may die with it."""
        seen: set[int] = set()
        waiting = [self]
        while waiting:
            generator = waiting.pop()
            if id(generator) in seen or not generator.gi_suspended or generator.native is not None:
                continue
            seen.add(id(generator))
            frame, delegate = generator.frame, generator.delegate()
            if not closes_quietly(frame):
                return False
            if type(delegate) is not Generator and may_have_a_close(delegate):
                return False
            if not frame.code.hidden:
                waiting += [v for v in (*frame.locals, *frame.stack) if type(v) is Generator]
        return True

    def is_dropped(self) -> bool:
        """Whether only heap and caller hold it, and closing it would run code."""
        return self.is_left_open and getrefcount(self) <= 4

    @property
    def gi_running(self) -> bool:
        if self.native is not None:
            return self.native.gi_running
        return self.running

    @property
    def gi_suspended(self) -> bool:
        if self.native is not None:
            return bool(self.native.gi_suspended)
        return self.started and not self.running and not self.finished

    @property
    def gi_frame(self) -> Any:
        if self.native is not None:
            return self.native.gi_frame
        return None if self.finished else FrameView.of(self.machine, self.frame)

    @property
    def gi_code(self) -> Any:
        if self.native is not None:
            return self.native.gi_code
        return self.frame.code.code

    @property
    def gi_yieldfrom(self) -> Any:
        if self.native is not None:
            return self.native.gi_yieldfrom
        delegate = NULL if self.finished or self.running else self.delegate()
        return None if delegate is NULL else delegate

    def __repr__(self) -> str:
        if self.python_type is not GeneratorType:
            return f"<{named_by_c(self.python_type)} object at {id(self):#x}>"
        return f"<generator object {self.__qualname__} at {id(self):#x}>"


@frozen
class Closing(Continuation):
    """`generator.close()`: GeneratorExit or StopIteration is wanted; a yield is an error."""

    ends_frame = True

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack.append(value if VERSION.close_gives_result else None)
        return frame

    def yielded(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        raise RuntimeError("generator ignored GeneratorExit")

    def raised(self, machine: Interpreter, frame: Frame, error: BaseException) -> Frame | None:
        if not issubclass(type(error), (GeneratorExit, StopIteration)):
            return None
        frame.stack.append(self.result_of(error))
        return frame

    def result_of(self, error: BaseException) -> Any:
        """What `close` gives where the generator ended by this."""
        given = VERSION.close_gives_result and issubclass(type(error), StopIteration)
        return error.value if given else None  # type: ignore[attr-defined]


@frozen
class Dropped(Closing):
    """As CPython's finalizer of a generator, which lets no exception out."""

    def yielded(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack.append(None)
        return frame

    def raised(self, machine: Interpreter, frame: Frame, error: BaseException) -> Frame | None:
        frame.stack.append(None)
        return frame


CLOSING = Closing()
DROPPED = Dropped()


def _beginning(code: Code) -> int:
    """Where the frame of a generator stands that nobody has advanced."""
    return [name for name, _ in code.opcodes].index("RETURN_GENERATOR") + 1


def thrown_exception(kind: Any, value: Any = None, traceback: Any = None) -> BaseException:
    """The exception that `generator.throw(kind, value, traceback)` raises."""
    if issubclass(type(kind), type) and issubclass(kind, BaseException):
        if issubclass(type(value), kind):
            error = value
        elif value is None:
            error = kind()
        else:
            error = kind(*value) if issubclass(type(value), tuple) else kind(value)
    elif issubclass(type(kind), BaseException):
        if value is not None:
            raise TypeError("instance exception may not have a separate value")
        error = kind
    else:
        raise TypeError(
            "exceptions must be classes or instances deriving from BaseException, "
            f"not {type(kind).__name__}"
        )
    return error if traceback is None else error.with_traceback(traceback)


def _polyfill_frame(machine: Interpreter, fn: Any, *args: Any) -> Frame:
    frame = machine.python_call(fn, args, {})
    if type(frame) is not Frame:
        raise InterpreterBug(f"{fn.__name__} is no polyfill")
    return frame


def _text_alone(slot: Any, name: str) -> property:
    """A name of a generator as C has it, which C code may set, too: a text, and never deleted."""

    def write(generator: Any, value: Any) -> None:
        if not issubclass(type(value), str):
            raise TypeError(f"{name} must be set to a string object")
        slot.__set__(generator, value)

    def delete(generator: Any) -> None:
        raise TypeError(f"{name} must be set to a string object")

    return property(slot.__get__, write, delete)


def _refuse_other_names() -> None:
    """`Generator.__name__ = ...` would name the class: its dictionary has what generators have."""
    (entries,) = gc.get_referents(vars(Generator))
    for name in NAMES:
        entries[name] = _text_alone(entries[name], name)
    Generator.__name__ = GeneratorType.__name__  # as errors of C have it; caches are told, too


_refuse_other_names()
