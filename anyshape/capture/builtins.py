"""What Python's builtins mean here: those that touch frames, classes, iterators or code of the virtual program have a handler.

A handler gets the machine, positional and keyword arguments, and gives a value, a `Call` or a `Frame`. `native` is the rest: the C
function itself, on constants and containers. Iterating natively is right for containers and C iterators; what would run code of the
program goes to a polyfill.
"""

from __future__ import annotations
import __future__

import abc
import functools
import operator
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from types import CodeType, GeneratorType
from typing import TYPE_CHECKING, Any

from anyshape.capture import attributes, generators, intrinsics, polyfills, protocol
from anyshape.capture.continuations import RESUME, ResumeOr
from anyshape.capture.frame import Frame
from anyshape.capture.generators import CLOSING, Generator
from anyshape.capture.unwinding import exception_info, handled_exception
from anyshape.capture.values import ABSENT, NULL, PROXIES, Call
from anyshape.capture.views import FrameView

if TYPE_CHECKING:
    from anyshape.capture.machine import Machine

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Machine", Args, Kwargs], Any]


# ---- attributes -----------------------------------------------------------------------------------------------------------------
def _getattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and type(args[1]) is str and not kwargs:
        return attributes.load_attr(machine, *args)
    if len(args) == 3 and type(args[1]) is str and not kwargs:
        try:
            result = attributes.load_attr(machine, args[0], args[1])
        except AttributeError:
            return args[2]
        return Call(polyfills.getattr_or_default, args) if _is_pending(result) else result
    return machine.native(getattr, args, kwargs)


def _is_pending(result: Any) -> bool:
    return type(result) is Call or type(result) is Frame


def _hasattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or type(args[1]) is not str or kwargs:
        return machine.native(hasattr, args, kwargs)
    try:
        result = attributes.load_attr(machine, *args)
    except AttributeError:
        return False
    return Call(polyfills.has_attribute, args) if _is_pending(result) else True


def _setattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 3 and type(args[1]) is str and not kwargs:
        return _none_after(attributes.store_attr(machine, *args))
    return machine.native(setattr, args, kwargs)


def _delattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and type(args[1]) is str and not kwargs:
        return _none_after(attributes.delete_attr(machine, *args))
    return machine.native(delattr, args, kwargs)


def _none_after(result: Any) -> Any:
    return Call(polyfills.none_after, (result.fn, result.args)) if type(result) is Call else None


def _object_getattribute(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if args and type(args[0]) in PROXIES:
        return machine.domain.getattr(*args)
    return attributes.generic_getattr(machine, args[0], type(args[0]), args[1])


def _type_getattribute(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return attributes.type_getattr(machine, args[0], type(args[0]), args[1])


def _super_getattribute(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return attributes.super_getattr(machine, *args)


def _object_setattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 3 or isinstance(args[0], type):
        return machine.native(object.__setattr__, args, kwargs)
    return _none_after(attributes.generic_setattr(machine, *args))


def _object_delattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _none_after(attributes.generic_setattr(machine, *args, NULL))


def _type_setattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.heap.native_setattr(*args)


# ---- classes --------------------------------------------------------------------------------------------------------------------
def _type(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        return type_of(machine, args[0])
    if machine.recording:
        return machine.heap.create(machine.native(type, args, kwargs))
    return machine.native(type, args, kwargs)


def type_of(machine: Machine, value: Any) -> type:
    """`type(value)`, as the virtual program sees it."""
    cls = type(value)
    if cls in PROXIES:
        return machine.domain.type_of(value)
    return GeneratorType if cls is Generator else cls


# Checks that depend on the two classes alone: `type`'s own, and those of abstract base classes, whose
# registries and caches are C.
_INSTANCE_CHECKS = (type.__instancecheck__, vars(abc.ABCMeta)["__instancecheck__"])
_SUBCLASS_CHECKS = (type.__subclasscheck__, vars(abc.ABCMeta)["__subclasscheck__"])


def _isinstance(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or kwargs:
        return machine.native(isinstance, args, kwargs)
    obj, cls = args
    if type(cls) is tuple:
        if all(
            _has_plain_check(machine, item, "__instancecheck__", _INSTANCE_CHECKS) for item in cls
        ):
            return any(_instance_of(machine, obj, item) for item in cls)
        return Call(polyfills.isinstance_any, args)
    if _has_plain_check(machine, cls, "__instancecheck__", _INSTANCE_CHECKS):
        return _instance_of(machine, obj, cls)
    if type(obj) is cls:
        return True
    if attributes.is_python(machine, type(cls), "__instancecheck__") and type(obj) not in PROXIES:
        return Call(polyfills.instance_check, args)
    if type(obj) in PROXIES:
        return issubclass(machine.domain.type_of(obj), cls)
    return machine.native(isinstance, args, kwargs)


def _has_plain_check(machine: Machine, cls: Any, name: str, plain: tuple[Any, ...]) -> bool:
    if type(cls) is type:
        return True
    return isinstance(cls, type) and any(
        machine.lookup(type(cls), name) is check for check in plain
    )


def _instance_of(machine: Machine, obj: Any, cls: type) -> bool:
    kind = type(obj)
    if kind in PROXIES:
        return issubclass(machine.domain.type_of(obj), cls)
    if cls in kind.__mro__:
        return True
    return isinstance(obj, cls)


def _issubclass(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or kwargs:
        return machine.native(issubclass, args, kwargs)
    sub, cls = args
    if type(cls) is tuple:
        if all(
            _has_plain_check(machine, item, "__subclasscheck__", _SUBCLASS_CHECKS) for item in cls
        ):
            return issubclass(sub, cls)
        return Call(polyfills.issubclass_any, args)
    if not _has_plain_check(
        machine, cls, "__subclasscheck__", _SUBCLASS_CHECKS
    ) and attributes.is_python(machine, type(cls), "__subclasscheck__"):
        return Call(polyfills.subclass_check, args)
    return machine.native(issubclass, args, kwargs)


def _super(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if args:
        return super(*args)
    frame = machine.frame
    assert frame is not None
    code = frame.code.code
    if not code.co_argcount:
        raise RuntimeError("super(): no arguments")
    receiver = frame.locals[0]
    if code.co_varnames[0] in code.co_cellvars:
        receiver = receiver.cell_contents
    if "__class__" not in code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cell = frame.locals[frame.code.local_names.index("__class__")]
    return super(cell.cell_contents, receiver)


# ---- frames -----------------------------------------------------------------------------------------------------------------------
def visible_frame(machine: Machine, depth: int = 0) -> Frame | None:
    """The frame of the program that is `depth` calls out."""
    for frame in machine.frames():
        if not frame.code.hidden:
            if depth == 0:
                return frame
            depth -= 1
    return None


def _globals(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    frame = visible_frame(machine)
    return machine.native(globals, args, kwargs) if frame is None else frame.globals


def _locals(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    frame = visible_frame(machine)
    if frame is None:
        return machine.native(locals, args, kwargs)
    names = frame.bound_locals() if frame.names is None else frame.names
    return machine.heap.create(names) if machine.recording else names


def _vars(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return _locals(machine, args, kwargs)
    return Call(polyfills.vars_of, args)


def _dir(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if args:
        if attributes.is_python(machine, type(args[0]), "__dir__"):
            return Call(polyfills.dir_by_method, args)
        return machine.native(dir, args, kwargs)
    return sorted(_locals(machine, args, kwargs))


def _getframe(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    depth = args[0] if args else 0
    frame = visible_frame(machine, depth)
    if frame is not None:
        return FrameView(frame)
    return sys._getframe(0) if depth == 0 else _native_caller(machine, depth)  # noqa: SLF001


def _native_caller(machine: Machine, depth: int) -> Any:
    own = sum(1 for frame in machine.frames() if not frame.code.hidden)
    real: Any = sys._getframe(0)  # noqa: SLF001
    while real is not None and real.f_globals.get("__name__", "").startswith("anyshape.capture"):
        real = real.f_back
    for _ in range(depth - own):
        real = None if real is None else real.f_back
    if real is None:
        raise ValueError("call stack is not deep enough")
    return real


def _currentframe(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _getframe(machine, (0,), {})


def _exc_info(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return exception_info(machine)


def _exception(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return handled_exception(machine.frame)


def _exec(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _run_source(machine, "exec", args, kwargs)


def _eval(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _run_source(machine, "eval", args, kwargs)


def _run_source(machine: Machine, mode: str, args: Args, kwargs: Kwargs) -> Any:
    source, *rest = args
    frame = visible_frame(machine)
    globals_ = rest[0] if rest else None
    names = rest[1] if len(rest) > 1 else None
    if frame is None or kwargs:
        return machine.native(exec if mode == "exec" else eval, args, kwargs)
    if globals_ is None:
        globals_ = frame.globals
        if names is None:
            names = _locals(machine, (), {})
    elif not isinstance(globals_, dict):
        raise TypeError(f"{mode}() globals must be a dict, not {type(globals_).__name__}")
    if names is None:
        names = globals_
    if "__builtins__" not in globals_:
        protocol.store_item(machine, globals_, "__builtins__", frame.builtins)
    code = source if type(source) is CodeType else _compile(frame, source, mode)
    decoded = machine.decoded(code)
    if decoded.unsupported or code.co_freevars:
        return machine.native(exec if mode == "exec" else eval, args, kwargs)
    scope = globals_["__builtins__"]
    slots = [NULL] * decoded.local_count
    return Frame(decoded, globals_, scope if isinstance(scope, dict) else vars(scope), slots, names)


_FUTURES = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)


def _compile(frame: Frame, source: Any, mode: str) -> CodeType:
    text = source.lstrip(" \t") if mode == "eval" and isinstance(source, str) else source
    flags = frame.code.code.co_flags & _FUTURES
    return compile(text, "<string>", mode, flags, dont_inherit=True)


def _compile_builtin(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    """`compile()` inherits the future statements of the virtual frame, not of ours."""
    frame = visible_frame(machine)
    names = ("source", "filename", "mode", "flags", "dont_inherit", "optimize")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if frame is not None and not given.get("dont_inherit"):
        given["flags"] = given.get("flags", 0) | frame.code.code.co_flags & _FUTURES
    given["dont_inherit"] = True
    return machine.native(compile, (), given)


# ---- iteration ----------------------------------------------------------------------------------------------------------------------
def _iter(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        return Call(polyfills.calls_until, args)
    if len(args) == 1:
        return protocol.iterate(machine, args[0])
    return machine.native(iter, args, kwargs)


def _next(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    iterator = args[0] if args else None
    cls = type(iterator)
    if cls is Generator:
        default = args[1] if len(args) > 1 else NULL
        if default is not NULL:
            frame = iterator.begin(None, ResumeOr(default))
            return default if frame is None else frame
        return resume_generator(iterator, None)
    if attributes.is_python(machine, cls, "__next__"):
        if len(args) == 1:
            return attributes.special(machine, iterator, "__next__")
        return Call(polyfills.next_or_default, args)
    if not machine.recording or not hasattr(cls, "__next__"):
        return next(*args, **kwargs)
    value = machine.heap.advance(iterator, shared=True)
    if value is not NULL:
        return value
    if len(args) > 1:
        return args[1]
    raise StopIteration


def resume_generator(generator: Generator, value: Any) -> Frame:
    """The frame to enter for `generator.send(value)`."""
    frame = generator.begin(value, RESUME)
    if frame is None:
        raise StopIteration
    return frame


def _generator_next(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return resume_generator(args[0], None)


def _generator_send(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return resume_generator(*args)


def _generator_throw(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    generator, *what = args
    return generator.throwing(generators.thrown_exception(*what), RESUME)


def _generator_close(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    generator = args[0]
    if generator.finished:
        return None
    if not generator.started:
        generator.finished = True
        return None
    return generator.throwing(GeneratorExit(), CLOSING)


def _container(make: Any) -> Handler:
    polyfill = polyfills.make_from_list if make in (list, tuple) else polyfills.make_from_elements

    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not kwargs and protocol.needs_interpretation(machine, args[0]):
            return Call(polyfill, (make, *args))
        return machine.native(make, args, kwargs)

    return handler


def _new_container(new: Any) -> Handler:
    """`tuple.__new__(cls, iterable)`."""

    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and protocol.needs_interpretation(machine, args[1]):
            return Call(polyfills.fill_from_list, (new, *args))
        return machine.native(new, args, kwargs)

    return handler


def _filler(method: Any) -> Handler:
    """`list.extend` and the like, which iterate over their arguments."""
    hinted = method in (list.extend, list.__init__)
    polyfill = polyfills.fill_from_list if hinted else polyfills.fill_from_elements

    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if any(protocol.needs_interpretation(machine, arg) for arg in args[1:]):
            return Call(polyfill, (method, *args))
        return machine.native(method, args, kwargs)

    return handler


def _dict_maker(make: Any) -> Handler:
    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and _is_python_source(machine, args[0]):
            return Call(polyfills.dict_of, (make, args, kwargs))
        return machine.native(make, args, kwargs)

    return handler


def _dict_update(method: Any) -> Handler:
    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and _is_python_source(machine, args[1]):
            return Call(polyfills.dict_update_from, (method, *args, kwargs))
        return machine.native(method, args, kwargs)

    return handler


def _fromkeys(machine: Machine, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    if args and protocol.needs_interpretation(machine, args[0]):
        return Call(polyfills.make_from_list, (fn, *args))
    return machine.native(fn, args, kwargs)


def _is_python_source(machine: Machine, source: Any) -> bool:
    cls = type(source)
    if isinstance(source, dict):
        return attributes.is_python(machine, cls, "__iter__")
    return (
        protocol.needs_interpretation(machine, source)
        or attributes.is_python(machine, cls, "keys")
        or (
            attributes.is_python(machine, cls, "__getitem__")
            and not isinstance(source, (list, tuple))
        )
    )


def _zip(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if any(protocol.needs_interpretation(machine, arg) for arg in args):
        return Call(polyfills.zip_of, (args, kwargs.get("strict", False)))
    return machine.native(zip, args, kwargs)


def _enumerate(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    if args and (type(start) in PROXIES or protocol.needs_interpretation(machine, args[0])):
        return Call(polyfills.enumerate_of, (args[0], start))
    return machine.native(enumerate, args, kwargs)


def _map(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) > 1 and not kwargs:
        return Call(polyfills.map_of, args)
    return machine.native(map, args, kwargs)


def _filter(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and not kwargs:
        return Call(polyfills.filter_of, args)
    return machine.native(filter, args, kwargs)


def _reversed(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        cls = type(args[0])
        if attributes.is_python(machine, cls, "__reversed__"):
            return attributes.special(machine, args[0], "__reversed__")
        if machine.lookup(cls, "__reversed__") is NULL and attributes.is_python(
            machine, cls, "__getitem__"
        ):
            return Call(polyfills.reversed_by_getitem, args)
    return machine.native(reversed, args, kwargs)


def _reduce(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) in (2, 3) and not kwargs:
        return Call(polyfills.reduce_of, (*args, ABSENT)[:3])
    return machine.native(functools.reduce, args, kwargs)


def _any_or_all(name: str) -> Handler:
    polyfill = polyfills.any_of if name == "any" else polyfills.all_of
    function = any if name == "any" else all

    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not (
            type(args[0]) in (list, tuple) and all(type(item) is bool for item in args[0])
        ):
            return Call(polyfill, args)
        return machine.native(function, args, kwargs)

    return handler


def _sum(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) not in (1, 2) or (kwargs and set(kwargs) != {"start"}):
        return machine.native(sum, args, kwargs)
    if not protocol.needs_interpretation(machine, args[0]) and all_plain(args[0]):
        return machine.native(sum, args, kwargs)
    start = args[1] if len(args) == 2 else kwargs.get("start", 0)
    return Call(polyfills.sum_of, (args[0], start))


def all_plain(values: Any) -> bool:
    """Whether a container (no iterator) holds only constants whose operators are C."""
    return type(values) in protocol.CONTAINERS and all(
        type(value) in protocol.PLAIN for value in values
    )


def _extreme(name: str) -> Handler:
    better = operator.gt if name == "max" else operator.lt
    function = max if name == "max" else min

    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if not args or set(kwargs) - {"key", "default"}:
            return machine.native(function, args, kwargs)
        values = args[0] if len(args) == 1 else args
        key, default = kwargs.get("key"), kwargs.get("default", ABSENT)
        if key is None and (all_plain(values) or type(values) is range):
            return machine.native(function, args, kwargs)
        if len(args) > 1 and default is not ABSENT:
            return machine.native(function, args, kwargs)
        return Call(polyfills.extreme_of, (name, values, key, default, better))

    return handler


def _sorted(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or set(kwargs) - {"key", "reverse"}:
        return machine.native(sorted, args, kwargs)
    key, reverse = kwargs.get("key"), kwargs.get("reverse", False)
    if key is None and all_plain(args[0]):
        return machine.native(sorted, args, kwargs)
    return Call(polyfills.sorted_of, (args[0], key, reverse))


def _list_sort(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or set(kwargs) - {"key", "reverse"}:
        return machine.native(list.sort, args, kwargs)
    key, reverse = kwargs.get("key"), kwargs.get("reverse", False)
    if key is None and all_plain(args[0]):
        return machine.native(list.sort, args, kwargs)
    return Call(polyfills.sort_in_place, (args[0], key, reverse))


def _join(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and protocol.needs_interpretation(machine, args[1]):
        return Call(polyfills.join_of, args)
    return machine.native(str.join, args, kwargs)


# ---- operators and conversions ----------------------------------------------------------------------------------------------------
def _len(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        return protocol.length(machine, args[0])
    return machine.native(len, args, kwargs)


def _length_hint(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) in (1, 2) and not kwargs:
        return Call(polyfills.length_hint, (*args, 0)[:2])
    return machine.native(operator.length_hint, args, kwargs)


def _bool(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        return (
            machine.domain.unary("bool", args[0])
            if type(args[0]) in PROXIES
            else protocol.truth(machine, args[0])
        )
    return machine.native(bool, args, kwargs)


def _text(kind: str) -> Handler:
    function = str if kind == "str" else repr

    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not kwargs:
            return protocol.text(machine, kind, args[0])
        return machine.native(function, args, kwargs)

    return handler


def _format(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if args and not kwargs:
        return protocol.format_value(machine, args[0], args[1] if len(args) > 1 else "")
    return machine.native(format, args, kwargs)


def _hash(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        if type(args[0]) in PROXIES:
            return machine.domain.unary("hash", args[0])
        if attributes.is_python(machine, type(args[0]), "__hash__"):
            return Call(polyfills.hash_by_method, args)
    return machine.native(hash, args, kwargs)


def _abs(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return (
        protocol.unary(machine, "abs", args[0])
        if len(args) == 1
        else machine.native(abs, args, kwargs)
    )


def _unary_operator(sign: str) -> Handler:
    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        return protocol.unary(machine, sign, *args)

    return handler


def _binary_operator(operation: protocol.Operator) -> Handler:
    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 2:
            return machine.native(operation.function, args, kwargs)
        return protocol.binary(machine, operation, *args)

    return handler


def _comparison(sign: str) -> Handler:
    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        return protocol.compare(machine, sign, *args)

    return handler


def _round(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if args and type(args[0]) in PROXIES:
        return (
            machine.domain.unary("round", args[0])
            if len(args) == 1
            else machine.native(round, args, kwargs)
        )
    if args and attributes.is_python(machine, type(args[0]), "__round__"):
        return attributes.special(machine, args[0], "__round__", *args[1:])
    return machine.native(round, args, kwargs)


def _divmod(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        a, b = args
        if type(a) in PROXIES or type(b) in PROXIES:
            return machine.domain.binary("divmod", a, b)
        if attributes.is_python(machine, type(a), "__divmod__") or attributes.is_python(
            machine, type(b), "__rdivmod__"
        ):
            return Call(polyfills.binary_op, (a, b, "__divmod__", "__rdivmod__", None, "divmod()"))
    return machine.native(divmod, args, kwargs)


def _pow(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and not kwargs:
        return protocol.binary(machine, protocol.BINARY["**"], *args)
    if len(args) == 3 and attributes.is_python(machine, type(args[0]), "__pow__"):
        return attributes.special(machine, args[0], "__pow__", *args[1:])
    return machine.native(pow, args, kwargs)


def _index(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and type(args[0]) in PROXIES:
        return machine.domain.unary("index", args[0])
    if len(args) == 1 and attributes.is_python(machine, type(args[0]), "__index__"):
        return Call(polyfills.index_by_method, args)
    return machine.native(operator.index, args, kwargs)


def _number(make: Any, op: str, polyfill: Any, methods: tuple[str, ...]) -> Handler:
    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not kwargs:
            if type(args[0]) in PROXIES:
                return machine.domain.unary(op, args[0])
            for method in methods:
                if attributes.is_python(machine, type(args[0]), method):
                    return Call(polyfill, (make, args[0], method))
                if machine.lookup(type(args[0]), method) is not NULL:
                    break
        return machine.native(make, args, kwargs)

    return handler


def _range_or_slice(make: Any) -> Handler:
    def handler(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if make is range and any(type(arg) in PROXIES for arg in args):
            args = tuple(
                [
                    machine.domain.unary("index", arg) if type(arg) in PROXIES else arg
                    for arg in args
                ]
            )
        return machine.native(make, args, kwargs)

    return handler


def _dict_missing(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if (
        len(args) == 2
        and isinstance(args[0], dict)
        and attributes.is_python(machine, type(args[0]), "__missing__")
    ):
        return Call(polyfills.item_or_missing, args)
    return machine.native(dict.__getitem__, args, kwargs)


# ---- functools ------------------------------------------------------------------------------------------------------------------------
def _partial(machine: Machine, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    return Call(fn.func, (*fn.args, *args), {**fn.keywords, **kwargs})


def _cached(machine: Machine, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """A function with `functools.lru_cache`: constants go to the cache, proxies past it."""
    if machine.recording and any(protocol.holds_proxy(arg) for arg in (*args, *kwargs.values())):
        return Call(fn.__wrapped__, args, kwargs)
    return machine.native(fn, args, kwargs)


# ---- intrinsics -----------------------------------------------------------------------------------------------------------------------
def _find(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    found = machine.lookup(*args)
    return ABSENT if found is NULL else found


def _bind(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    attribute, obj, cls = args
    return attributes.descriptor_get(machine, attribute, obj, cls, "")


def _generic_getattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return attributes.generic_getattr(machine, args[0], type(args[0]), args[1])


def _is_subtype(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return args[1] in type.__dict__["__mro__"].__get__(args[0])


def _native(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.native(args[0], args[1:], kwargs)


def _created(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.heap.create(args[0]) if machine.recording else args[0]


TYPE_HANDLERS: dict[Any, Handler] = {
    type: _type,
    super: _super,
    bool: _bool,
    str: _text("str"),
    int: _number(int, "int", polyfills.int_by_method, ("__int__", "__index__", "__trunc__")),
    float: _number(float, "float", polyfills.float_by_method, ("__float__", "__index__")),
    list: _container(list),
    tuple: _container(tuple),
    set: _container(set),
    frozenset: _container(frozenset),
    deque: _container(deque),
    bytes: _container(bytes),
    bytearray: _container(bytearray),
    dict: _dict_maker(dict),
    OrderedDict: _dict_maker(OrderedDict),
    zip: _zip,
    enumerate: _enumerate,
    map: _map,
    filter: _filter,
    reversed: _reversed,
    range: _range_or_slice(range),
    slice: _range_or_slice(slice),
}

_IN_PLACE_NAMES = {f"i{op.name}": op for op in protocol.INPLACE.values()}

BUILTINS: dict[Any, Handler] = {
    **TYPE_HANDLERS,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    object.__getattribute__: _object_getattribute,
    type.__getattribute__: _type_getattribute,
    super.__getattribute__: _super_getattribute,
    object.__setattr__: _object_setattr,
    object.__delattr__: _object_delattr,
    type.__setattr__: _type_setattr,
    isinstance: _isinstance,
    issubclass: _issubclass,
    globals: _globals,
    locals: _locals,
    vars: _vars,
    dir: _dir,
    exec: _exec,
    eval: _eval,
    sys._getframe: _getframe,  # noqa: SLF001
    sys.exc_info: _exc_info,
    sys.exception: _exception,
    iter: _iter,
    next: _next,
    any: _any_or_all("any"),
    all: _any_or_all("all"),
    sum: _sum,
    min: _extreme("min"),
    max: _extreme("max"),
    sorted: _sorted,
    list.sort: _list_sort,
    str.join: _join,
    functools.reduce: _reduce,
    len: _len,
    operator.length_hint: _length_hint,
    compile: _compile_builtin,
    repr: _text("repr"),
    format: _format,
    hash: _hash,
    abs: _abs,
    round: _round,
    divmod: _divmod,
    pow: _pow,
    operator.index: _index,
    operator.neg: _unary_operator("-"),
    operator.pos: _unary_operator("+"),
    operator.invert: _unary_operator("~"),
    operator.truth: _bool,
    dict.__getitem__: _dict_missing,
    **{op.function: _binary_operator(op) for op in protocol.BINARY.values()},
    **{op.function: _binary_operator(op) for op in protocol.INPLACE.values()},
    **{function: _comparison(sign) for sign, (_, _, function) in protocol.COMPARISONS.items()},
    **{
        method: _filler(method)
        for method in (list.extend, deque.extend, deque.extendleft, list.__init__)
    },
    **{
        method: _filler(method)
        for method in (
            set.update,
            set.union,
            set.difference,
            set.intersection,
            set.issubset,
            set.issuperset,
            frozenset.union,
            frozenset.difference,
            frozenset.intersection,
            set.difference_update,
            set.intersection_update,
        )
    },
    **{method: _dict_update(method) for method in (dict.update, dict.__init__, OrderedDict.update)},
    **{cls.__new__: _new_container(cls.__new__) for cls in (tuple, frozenset)},
    Generator.__next__: _generator_next,
    Generator.send: _generator_send,
    Generator.throw: _generator_throw,
    Generator.close: _generator_close,
    intrinsics.find: _find,
    intrinsics.bind: _bind,
    intrinsics.generic_getattr: _generic_getattr,
    intrinsics.is_subtype: _is_subtype,
    intrinsics.native: _native,
    intrinsics.created: _created,
}

# Objects of C classes that are called, by class.
OBJECT_CALLS: dict[type, Callable[[Machine, Any, Args, Kwargs], Any]] = {
    functools.partial: _partial,
    type(functools.lru_cache(len)): _cached,
}
# Class methods implemented in C, by class and name.
CLASS_METHODS: dict[tuple[type, str], Callable[[Machine, Any, Args, Kwargs], Any]] = {
    (dict, "fromkeys"): _fromkeys,
    (OrderedDict, "fromkeys"): _fromkeys,
}
