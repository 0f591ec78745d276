"""The interpreter: one loop over an explicit stack of virtual frames, parameterised by a `Domain`.

In: a Python callable and its arguments. Out: what CPython would give, or `Break` with every frame
intact. Handlers (opcodes.py) and the object protocol (protocol.py) return a value, a `Call` (a tail
call) or a new `Frame`; Python-to-Python calls never recurse natively. Where an algorithm needs an
interpreted call in its middle it is itself interpreted Python: see polyfills.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import CO_GENERATOR, CO_OPTIMIZED
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NoReturn

from anyshape.capture.heap import class_attributes, copied_modules, native_calls
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.iterators import referenced_elsewhere
from anyshape.capture.heap.quiet_classes import (
    bare_name,
    is_slot_of_c,
    mro_of,
)
from anyshape.capture.heap.quiet_reads import method_behind
from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.values import (
    METHOD_WITH_CLASS,
    NULL,
    PROXIES,
    Break,
    Call,
    InterpreterBug,
    ProxyLeak,
)
from anyshape.capture.interpreter import (
    attributes,
    binding,
    calls_of_the_program,
    exception_origin,
    unwinding,
)
from anyshape.capture.interpreter.continuations import ROOT, Finished
from anyshape.capture.interpreter.domain import Domain, Mark
from anyshape.capture.interpreter.frame import Code, Frame, decode
from anyshape.capture.interpreter.frame_objects import untraced
from anyshape.capture.interpreter.opcodes import OPCODE_HANDLERS, PREPARE
from anyshape.interrupts import is_interrupt
from anyshape.nouns import frozen

_METHOD_DESCRIPTOR = type(list.append)
_WRAPPER_DESCRIPTOR = type(object.__init__)
_METHOD_WRAPPER = type([].__len__)
KEYED = frozenset(
    {FunctionType, BuiltinFunctionType, type, _METHOD_DESCRIPTOR, _WRAPPER_DESCRIPTOR}
)
NO_KWARGS: dict[str, Any] = {}


@frozen
class Language:
    """What the rooms above tell the interpreter: what calls of known callables mean. Each handler
    takes the machine, what is called if the table's key does not say it, and the arguments.
    """

    functions: Mapping[Any, Callable[..., Any]]
    class_methods: Mapping[tuple[type, str], Callable[..., Any]]
    objects: Mapping[type, Callable[..., Any]]
    instantiate: Callable[..., Any]
    operated: Callable[..., Call | None]
    polyfill_files: frozenset[str]


class Machine:
    """An interpreter over one domain. `language` says what builtins mean; `codes` may be shared
    between machines; everything else belongs to this one.
    """

    __slots__ = (
        "class_attributes",
        "classes",
        "codes",
        "domain",
        "escaped",
        "frame",
        "fresh_raise",
        "handing",
        "heap",
        "exact_deaths",
        "language",
        "recording",
    )

    def __init__(
        self, domain: Domain, language: Language, codes: dict[CodeType, Code] | None = None
    ) -> None:
        self.language = language
        self.domain = domain
        domain.machine = self
        self.recording = domain.records
        self.exact_deaths = not domain.records
        self.heap = Heap(domain)
        self.codes: dict[CodeType, Code] = {} if codes is None else codes
        self.frame: Frame | None = None
        self.fresh_raise = True
        self.handing: Callable[[Frame], None] | None = None
        self.escaped: BaseException | None = None
        self.class_attributes: dict[int, dict[str, Any]] = {}
        self.classes: list[type] = []

    # ---- running ---------------------------------------------------------------------------------
    def run(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `fn` in this machine; what it raises comes out as a native exception, a break as
        `Break`.
        """
        try:
            result = self.settle(self.call(fn, args, kwargs))
        except TypeError as error:
            if self.frame is None:  # nothing runs yet: the arguments are not the function's
                self.escaped = error
            raise
        if type(result) is not Frame:
            return result
        self.class_changed()
        return self.run_frame(result, ROOT)

    @untraced
    def run_frame(self, frame: Frame, root: Any) -> Any:
        """Enter `frame` as a root and run until it is left; may be nested inside native code that a
        frame called.
        """
        outer = self.frame
        self.begin(frame, root)
        try:
            result = self.resume()
        except BaseException:
            if outer is not None:  # native code lies between: a break is its call
                self.frame = outer
            raise
        self.frame = outer
        return result

    def begin(self, frame: Frame, root: Any = ROOT) -> None:
        """Make `frame` the current frame; what becomes of its result is said by `root`."""
        bottom = frame
        while bottom.back is not None:
            bottom = bottom.back
        bottom.back = self.frame
        bottom.continuation = root
        self.frame = frame

    def current(self) -> Frame:
        """The frame that runs."""
        assert self.frame is not None
        return self.frame

    def go_on_from(self, frame: Frame) -> None:
        """Leave the frames as they are and go on from others."""
        self.frame = frame
        self.class_changed()

    @untraced
    def resume(self) -> Any:
        """Go on from `self.frame` until its root returns. After a `Break`: see `step`."""
        while True:
            try:
                self.execute(self.current())
            except Finished as finished:
                self.frame = None
                return finished.value
            except Break:
                self.current().index -= 1
                raise
            except ProxyLeak as leak:
                self.current().index -= 1
                raise broken("proxy-leak", str(leak)) from leak
            except InterpreterBug:
                raise
            except BaseException as error:
                raised = error
                if self.recording and is_interrupt(error):
                    raise
                if self.recording:
                    self._refuse_to_deliver(error)
            left = unwinding.unwind(self, raised) is None
            del raised  # it dies when the program drops it
            if left:
                unwinding.leave(self)

    def _refuse_to_deliver(self, error: BaseException) -> None:
        """Raises what is not the program's to handle, instead."""
        leak = exception_origin.leak_behind(error)
        if leak is not None:
            self.current().index -= 1
            raise broken("proxy-leak", str(leak)) from leak
        if exception_origin.is_ours(error):
            raise InterpreterBug(f"{bare_name(type(error))}: {error}") from error

    def execute(self, frame: Frame) -> NoReturn:
        """Instruction after instruction, until one of them raises."""
        instructions = frame.instructions
        while True:
            handler, arg = instructions[frame.index]
            frame.index += 1
            switched = handler(self, frame, arg)
            if switched is not None:
                frame = switched
                instructions = frame.instructions

    def step(self) -> None:
        """Execute one instruction of `self.frame`: after a `Break`, with a domain that does it
        natively.

        Raises `Finished` where a root returns, and what leaves through a root.
        """
        frame = self.current()
        handler, arg = frame.instructions[frame.index]
        frame.index += 1
        try:
            handler(self, frame, arg)
            return
        except (Break, ProxyLeak):
            frame.index -= 1
            raise
        except (Finished, InterpreterBug):
            raise
        except BaseException as error:
            raised = error
        left = unwinding.unwind(self, raised) is None
        del raised
        if left:
            unwinding.leave(self)

    # ---- code ------------------------------------------------------------------------------------
    def decoded(self, code: CodeType) -> Code:
        """The decoded form of a code object, made once."""
        known = self.codes.get(code)
        if known is None:
            known = decode(code, OPCODE_HANDLERS, PREPARE)
            known.hidden = code.co_filename in self.language.polyfill_files
            self.codes[code] = known
        return known

    # ---- calls -----------------------------------------------------------------------------------
    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """Begin a call: its value where it needs no interpretation, else a `Frame` that nobody has
        entered yet.
        """
        kwargs = NO_KWARGS if kwargs is None else kwargs
        for _ in range(sys.getrecursionlimit()):
            result = self._call_once(fn, args, kwargs)
            if type(result) is not Call:
                return result
            fn, args, kwargs = result.fn, result.args, result.kwargs or NO_KWARGS
        raise RecursionError("maximum recursion depth exceeded")  # an object that calls itself

    def settle(self, result: Any) -> Any:
        """A hook's or handler's result with tail calls begun: a value or a `Frame`."""
        return self.call(result.fn, result.args, result.kwargs) if type(result) is Call else result

    def _call_once(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind = type(fn)
        if kind is MethodType:
            return Call(fn.__func__, (fn.__self__, *args), kwargs)
        if kind in KEYED:
            handler = self.language.functions.get(fn)
            if handler is not None:
                return handler(self, args, kwargs)
            if kind is FunctionType:
                return self.python_call(fn, args, kwargs)
            if kind is type:
                return self.instantiate(fn, args, kwargs)
            if kind is BuiltinFunctionType and not (
                fn.__self__ is None or type(fn.__self__) is ModuleType
            ):
                return self._bound_builtin(fn, args, kwargs)
            if self.recording and (known := copied_modules.original(fn)) is not None:
                return Call(known, args, kwargs)
            return self.native(fn, args, kwargs)
        return self._call_object(fn, kind, args, kwargs)

    def _call_object(
        self, fn: Any, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if kind in PROXIES:
            return self.domain.call(fn, args, kwargs)
        if issubclass(kind, type):
            return self.instantiate(fn, args, kwargs)
        if kind is _METHOD_WRAPPER:
            method = method_behind(fn)
            if method is not None:
                return Call(method, (self._owner_of(fn), *args), kwargs)
        if kind is METHOD_WITH_CLASS and not issubclass(type(fn.__self__), ModuleType):
            return self._bound_builtin(fn, args, kwargs)
        if bare_name(kind) == attributes.INSTANCE_METHOD:
            return Call(fn.__func__, args, kwargs)
        slot = self.lookup(kind, "__call__")
        if type(slot) is FunctionType:
            return Call(slot, (fn, *args), kwargs)
        if slot is NULL or is_slot_of_c(kind, "__call__", slot):
            owner = slot.__objclass__ if isinstance(slot, WrapperDescriptorType) else kind
            objects = self.language.objects
            handler = objects.get(owner) or objects.get(copied_modules.original_class(owner))
            if handler is not None:
                return handler(self, fn, args, kwargs)
            return self.native(fn, args, kwargs)
        return attributes.call_bound(self, slot, fn, args, kwargs)

    def _bound_builtin(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A C method bound to an object: the same as the descriptor in its class called with the
        object.
        """
        owner = fn.__self__
        if issubclass(type(owner), type):
            handler = self.language.class_methods.get((owner, fn.__name__))
            if handler is not None:
                return handler(self, fn, args, kwargs)
            return self.native(fn, args, kwargs)
        method = method_behind(fn)
        if method is None:
            return self.native(fn, args, kwargs)
        return Call(method, (self._owner_of(fn), *args), kwargs)

    def _owner_of(self, method: Any) -> Any:
        """What a method of C is bound to, as the program sees it: of one from outside, that is
        relied on, and so is which method it is."""
        owner, kind = method.__self__, type(method)
        if self.recording and self.domain.is_outside(method):
            if kind is _METHOD_WRAPPER:
                self.heap.attribute(method, "__name__", method.__name__)
                self.heap.attribute(method, "__objclass__", method.__objclass__)
            owner = self.heap.attribute(method, "__self__", owner)
        return owner

    def python_call(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A frame for a Python function with its arguments bound, unless the domain or the code
        says otherwise.
        """
        if fn.__code__.co_filename not in self.language.polyfill_files:
            domain = self.domain
            answer = domain.python_call(fn, args, kwargs)
            if answer is not NotImplemented:
                if not self.recording:
                    self.class_changed()  # by what was called natively, maybe
                return answer
            code = self.decoded(fn.__code__)
            plain = type(fn.__globals__) is dict  # another may have a `__missing__`
            left = code.unsupported is not None or not plain or domain.is_opaque(fn)
            if left or calls_of_the_program.is_replaced(fn):
                return self.native(fn, args, kwargs)
            if self.recording:
                domain.entered(fn)
        return self.frame_of(fn, args, kwargs)

    def frame_of(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        """The frame of a Python function, whatever the domain makes of calls of it."""
        code = self.decoded(fn.__code__)
        if code.simple and not kwargs and len(args) == code.argument_count:
            locals_ = [*args, *[NULL] * (code.local_count - len(args))]
        else:
            locals_ = binding.bind(self, fn, code, args, kwargs)
        if fn.__closure__ is not None:
            locals_[-len(fn.__closure__) :] = fn.__closure__
        names = None if fn.__code__.co_flags & CO_OPTIMIZED else fn.__globals__  # of no `def`
        frame = Frame(code, fn.__globals__, _builtins_of(fn), locals_, names)
        if fn.__code__.co_flags & CO_GENERATOR:
            frame.function = fn
        elif self.handing is not None:
            self.handing(frame)
        return frame

    def native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call what is not interpreted; a recording machine first sees to outside containers."""
        if self.recording:
            return native_calls.native(self.heap, fn, args, kwargs)
        self.class_changed()  # nothing here holds a class while the program may see it die
        try:
            return self.domain.call_native(fn, args, kwargs)
        finally:
            self.class_changed()  # by what was called, maybe

    def instantiate(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a class: the metaclass's `__call__`, or `__new__` and `__init__`."""
        return self.language.instantiate(self, cls, args, kwargs)

    def operated(self, function: Any, *values: Any) -> Call | None:
        """What is interpreted instead of an operator of C that would ask the program."""
        return self.language.operated(self, function, *values)

    # ---- classes ---------------------------------------------------------------------------------
    def lookup(self, cls: type, name: str) -> Any:
        """`_PyType_Lookup`: the raw attribute `name` along the MRO of `cls`, `NULL` where there is
        none. Cached for one run.
        """
        try:
            return self.class_attributes[id(cls)][name]
        except KeyError:
            return self._lookup(cls, name)

    def _lookup(self, cls: type, name: str) -> Any:
        known = self.class_attributes.get(id(cls))
        if known is None:  # by `id`: its metaclass may have a `__hash__`, or none
            known = self.class_attributes[id(cls)] = {}
            self.classes.append(cls)
            self.domain.inherits(cls)
        value: Any = NULL
        for base in mro_of(cls):
            namespace = type.__dict__["__dict__"].__get__(base) or {}
            changed = class_attributes.written(self.heap, base, name)
            if changed is NULL:
                continue
            if changed is not class_attributes.NOT_WRITTEN:
                value = changed
                break
            if name in namespace:
                value = namespace[name]
                if self.recording:
                    value = self.heap.class_attribute(base, name, value)
                break
            if self.recording:
                self.heap.absent(base, name)
        known[name] = value
        if self.heap.journal is not None:
            self.heap.journal.append(partial(known.pop, name, None))
        return value

    def class_changed(self) -> None:
        """Forget what is known of classes: one was written to."""
        self.class_attributes.clear()
        self.classes.clear()

    # ---- forks -----------------------------------------------------------------------------------
    def frames(self) -> Iterator[Frame]:
        """The virtual frames, innermost first."""
        frame = self.frame
        while frame is not None:
            yield frame
            frame = frame.back

    def checkpoint(self) -> Mark:
        """Remember heap and frames as they are now; from here on the heap keeps an undo journal."""
        assert self.frame is not None
        frames = list(self.frames())
        iterators = referenced_elsewhere(
            [(*frame.locals, *frame.stack) for frame in frames], self.heap.created
        )
        uncopied = self.domain.outside_iterators() | {id(i): (i, i) for i in iterators}
        memo = dict(uncopied)
        saved = tuple((frame, frame.copy(memo)) for frame in frames)
        return Mark(self.frame, saved, self.heap.checkpoint(iterators), uncopied)

    def rollback(self, mark: Mark) -> None:
        """Put heap and frames back to `mark`; the mark stays good."""
        self.heap.rollback(mark.journal)
        memo = dict(mark.uncopied)
        for frame, saved in mark.frames:
            frame.restore(saved.copy(memo))
        self.frame = mark.frame

    def release(self, mark: Mark) -> None:
        """Close a checkpoint without going back; the journal is dropped when the last one is
        closed.
        """
        self.heap.release(mark.journal)


def _builtins_of(fn: Any) -> Any:
    return fn.__builtins__
