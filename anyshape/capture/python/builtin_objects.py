"""Builtins about objects, classes and frames: getattr, isinstance, super, locals, exec, ... (see
builtins.py).
"""

from __future__ import annotations
import __future__

import abc
import functools
import inspect
import operator
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from types import CellType, CodeType, FrameType, FunctionType, SimpleNamespace, TracebackType
from typing import Any

from anyshape.capture.heap import class_attributes, purity
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import bare_name, mro_of
from anyshape.capture.heap.values import NULL, PROXIES, Call, contents
from anyshape.capture.interpreter import attributes, class_polyfills, polyfills, protocol
from anyshape.capture.interpreter.continuations import AttributeOf, settled_attribute
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame, handled_exception
from anyshape.capture.interpreter.frame_views import FrameView, locals_of, outer_frame
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.opcode_results import also
from anyshape.capture.interpreter.operators import COMPARISONS
from anyshape.capture.interpreter.unwinding import exception_info
from anyshape.capture.python import pickles
from anyshape.capture.python.compiled_text import compiled
from anyshape.capture.python.object_states import STATE_BUILTINS, lists_plainly, refuse_state

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Interpreter", Args, Kwargs], Any]


# ---- attributes ----------------------------------------------------------------------------------
def _getattr(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and type(args[1]) is str and not kwargs:
        found = settled_attribute(machine, attributes.load_attr(machine, *args), *args)
        return also(found, AttributeOf(*args)) if type(found) is Frame else found
    if len(args) == 3 and type(args[1]) is str and not kwargs:
        try:
            result = attributes.load_attr(machine, args[0], args[1])
        except AttributeError:
            return args[2]
        return Call(polyfills.getattr_or_default, args) if _is_pending(result) else result
    return machine.native(getattr, args, kwargs)


def _is_pending(result: Any) -> bool:
    return type(result) is Call or type(result) is Frame


def _hasattr(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or type(args[1]) is not str or kwargs:
        return machine.native(hasattr, args, kwargs)
    try:
        result = attributes.load_attr(machine, *args)
    except AttributeError:
        return False
    return Call(polyfills.has_attribute, args) if _is_pending(result) else True


def _setattr(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 3 and type(args[1]) is str and not kwargs:
        return _none_after(attributes.store_attr(machine, *args))
    return machine.native(setattr, args, kwargs)


def _delattr(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and type(args[1]) is str and not kwargs:
        return _none_after(attributes.delete_attr(machine, *args))
    return machine.native(delattr, args, kwargs)


def _none_after(result: Any) -> Any:
    return Call(polyfills.none_after, (result.fn, result.args)) if type(result) is Call else None


def _names_an_attribute(owner: type, args: Args, kwargs: Kwargs) -> bool:
    """Whether these are arguments that `owner.__getattribute__` takes."""
    return (
        len(args) == 2
        and not kwargs
        and issubclass(type(args[0]), owner)
        and issubclass(type(args[1]), str)
    )


def _generic_getattribute(owner: type) -> Handler:
    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if args and type(args[0]) in PROXIES and len(args) == 2:
            return machine.domain.getattr(*args)
        if not _names_an_attribute(owner, args, kwargs):
            return machine.native(owner.__getattribute__, args, kwargs)
        obj, name = args
        if issubclass(type(obj), type):  # gives what its own namespace has, bound to nothing
            if machine.recording:
                raise broken("unknown-call", f"object.__getattribute__ of {bare_name(obj)}")
            return machine.native(owner.__getattribute__, args, kwargs)
        return attributes.generic_getattr(machine, obj, type(obj), name)

    return handler


def _type_getattribute(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not _names_an_attribute(type, args, kwargs):
        return machine.native(type.__getattribute__, args, kwargs)
    return attributes.type_getattr(machine, args[0], type(args[0]), args[1])


def _super_getattribute(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not _names_an_attribute(super, args, kwargs):
        return machine.native(super.__getattribute__, args, kwargs)
    return attributes.super_getattr(machine, *args)


def _object_setattr(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 3 or issubclass(type(args[0]), type):
        return machine.native(object.__setattr__, args, kwargs)
    return _none_after(attributes.generic_setattr(machine, *args))


def _object_delattr(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2:
        return machine.native(object.__delattr__, args, kwargs)
    obj, name = args
    return _none_after(attributes.generic_setattr(machine, obj, name, NULL))


def _type_setattr(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 3 or kwargs:
        return machine.native(type.__setattr__, args, kwargs)
    return machine.heap.native_setattr(*args)


def _type_delattr(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or kwargs:
        return machine.native(type.__delattr__, args, kwargs)
    return machine.heap.native_setattr(*args, NULL)


# ---- classes -------------------------------------------------------------------------------------
def _type(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        return type_of(machine, args[0])
    return made_class(machine, type, args, kwargs)


def made_class(machine: Interpreter, make: Any, args: Args, kwargs: Kwargs) -> Any:
    """`make(*args)` of a metaclass or `type.__new__`: C code that names the module of the calling
    frame, which is not ours."""
    if machine.heap.journal is not None:
        raise broken("fork", "a class is made")  # C calls `__set_name__`
    frame = visible_frame(machine)
    if args and machine.recording and issubclass(type(args[-1]), dict):
        args = (*args[:-1], machine.heap.mirror(args[-1]))
    namespace: Any = args[-1] if args else None
    if machine.recording and _tells_the_program(machine, args, namespace):
        raise broken("unknown-call", "a class statement that C code tells the program of,")
    if issubclass(type(namespace), dict) and len(args) in (3, 4) and frame is not None:
        module = frame.globals.get("__name__", NULL)
        if module is not NULL and "__module__" not in namespace:
            args = (*args[:-1], {**namespace, "__module__": module})
    cell = _cell_from_outside(machine, args)
    if cell is not None:
        args = (*args[:-1], {k: v for k, v in dict.items(args[-1]) if k != CLASS_CELL})
    made = machine.native(make, args, kwargs)
    if cell is not None:
        machine.heap.set_cell(cell, made)
    return machine.heap.create(made) if machine.recording else made


def _cell_from_outside(machine: Interpreter, args: Args) -> CellType | None:
    """The cell of `__class__`, where the body of the class has run in another segment: C code would
    fill it while capturing, and no other run of this segment would."""
    if not machine.recording or not args or not issubclass(type(args[-1]), dict):
        return None
    cell = dict.get(args[-1], CLASS_CELL)
    return cell if type(cell) is CellType and not machine.heap.is_created(cell) else None


CLASS_CELL = "__classcell__"


def _tells_the_program(machine: Interpreter, args: Args, namespace: Any) -> bool:
    """Whether C code calls a `__set_name__` or an `__init_subclass__` that may write to what was
    there before: one in Python, or of an object that was. Those of the standard library write to
    their object, or to the class."""
    if not issubclass(type(namespace), dict) or len(args) < 3:
        return False
    for value in dict.values(namespace):
        hook = machine.lookup(type(value), "__set_name__")
        if hook is not NULL and (_is_of_the_program(hook) or not machine.heap.is_created(value)):
            return True
    mro = [cls for base in args[-2] if issubclass(type(base), type) for cls in mro_of(base)]
    inherited = next((vars(c)[SUBCLASS] for c in mro if SUBCLASS in vars(c)), None)
    return _is_of_the_program(getattr(inherited, "__func__", inherited))


def _is_of_the_program(method: Any) -> bool:
    return type(method) is FunctionType and not purity.is_library(method.__module__ or "")


SUBCLASS = "__init_subclass__"


def _type_new(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return made_class(machine, type.__new__, args, kwargs)


def type_of(machine: Interpreter, value: Any) -> type:
    """`type(value)`, as the virtual program sees it."""
    cls = type(value)
    if cls in PROXIES or (cls is not tuple and issubclass(cls, tuple)):
        return machine.domain.type_of(value)
    if cls is FrameView:
        return FrameType
    return value.python_type if cls is Generator else cls


# Checks that depend on the two classes alone: `type`'s own, and those of abstract base classes,
# whose registries and caches are C.
_INSTANCE_CHECKS = (type.__instancecheck__, vars(abc.ABCMeta)["__instancecheck__"])
_SUBCLASS_CHECKS = (type.__subclasscheck__, vars(abc.ABCMeta)["__subclasscheck__"])


def _callable(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """The class decides, and nothing of the program's is called."""
    if len(args) != 1 or kwargs or type(args[0]) not in PROXIES:
        if machine.recording and len(args) == 1:
            machine.lookup(type(args[0]), "__call__")  # is relied on
        return machine.native(callable, args, kwargs)
    return machine.lookup(machine.domain.type_of(args[0]), "__call__") is not NULL


def _isinstance(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or kwargs:
        return machine.native(isinstance, args, kwargs)
    obj, cls = args
    if type(cls) is tuple:
        if all(
            _has_plain_check(machine, item, "__instancecheck__", _INSTANCE_CHECKS) for item in cls
        ):
            if not _says_its_class(machine, type(obj)):
                return any(_instance_of(machine, obj, item) for item in cls)
        return Call(class_polyfills.isinstance_any, args)
    if _has_plain_check(machine, cls, "__instancecheck__", _INSTANCE_CHECKS):
        return _instance_of(machine, obj, cls)
    if type(obj) is cls:
        return True
    if attributes.is_python(machine, type(cls), "__instancecheck__"):
        return Call(class_polyfills.instance_check, args)
    if type(obj) in PROXIES:
        return machine.domain.is_instance(obj, cls)
    return machine.native(isinstance, args, kwargs)


def _has_plain_check(machine: Interpreter, cls: Any, name: str, plain: tuple[Any, ...]) -> bool:
    if type(cls) is type:
        return True
    return issubclass(type(cls), type) and any(
        machine.lookup(type(cls), name) is check for check in plain
    )


def _says_its_class(machine: Interpreter, kind: type) -> bool:
    """Whether code of the program says what `__class__` of an instance is."""
    if kind in PROXIES or kind is Generator:
        return False
    own = machine.lookup(kind, "__class__")
    return type(own) is property or attributes.is_python(machine, kind, "__getattribute__")


def _instance_of(machine: Interpreter, obj: Any, cls: type) -> Any:
    kind = type(obj)
    if kind in PROXIES:
        return issubclass(machine.domain.type_of(obj), cls)
    abstract = type(cls) is not type
    machine.domain.inherits(kind)
    if kind is cls or (not abstract and any(base is cls for base in mro_of(kind))):
        return True
    if _says_its_class(machine, kind):
        return Call(class_polyfills.instance_by_class, (obj, cls, abstract))
    found = isinstance(obj, cls)
    if not found and type(cls) is not type:
        machine.domain.not_a_subclass(kind, cls)
    return found


def _issubclass(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or kwargs:
        return machine.native(issubclass, args, kwargs)
    sub, cls = args
    if type(cls) is tuple:
        if all(
            _has_plain_check(machine, item, "__subclasscheck__", _SUBCLASS_CHECKS) for item in cls
        ):
            return any(_subclass_of(machine, sub, item) for item in cls)
        return Call(class_polyfills.issubclass_any, args)
    if not _has_plain_check(
        machine, cls, "__subclasscheck__", _SUBCLASS_CHECKS
    ) and attributes.is_python(machine, type(cls), "__subclasscheck__"):
        return Call(class_polyfills.subclass_check, args)
    return _subclass_of(machine, sub, cls)


def _subclass_of(machine: Interpreter, sub: Any, cls: Any) -> Any:
    found = machine.native(issubclass, (sub, cls), {})
    if issubclass(type(sub), type):
        machine.domain.inherits(sub)
    if found is False and type(cls) is not type and issubclass(type(sub), type):
        machine.domain.not_a_subclass(sub, cls)
    return found


def _super(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if any(type(arg) in PROXIES for arg in args):
        raise broken("unknown-call", SUPER_OF_A_PROXY)
    if args:
        return super(*args)
    frame = machine.frame
    assert frame is not None
    code = frame.code.code
    if not code.co_argcount:
        raise RuntimeError("super(): no arguments")
    receiver = frame.locals[0]
    if code.co_varnames[0] in code.co_cellvars:
        receiver = _contents(machine, receiver, code.co_varnames[0])
    if receiver is NULL:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cell = frame.locals[frame.code.local_names.index("__class__")]
    cls = _contents(machine, cell, "__class__")
    if cls is NULL:
        raise RuntimeError("super(): empty __class__ cell")
    if type(receiver) in PROXIES:
        raise broken("unknown-call", SUPER_OF_A_PROXY)
    return super(cls, receiver)


SUPER_OF_A_PROXY = "super() of an object that is known only at run time"


def _contents(machine: Interpreter, cell: CellType, name: str) -> Any:
    return machine.heap.cell(cell, name) if machine.recording else contents(cell)


# ---- frames --------------------------------------------------------------------------------------
def visible_frame(machine: Interpreter, depth: int = 0) -> Frame | None:
    """The frame of the program that is `depth` calls out."""
    for frame in machine.frames():
        if not frame.code.hidden:
            if depth == 0:
                return frame
            depth -= 1
    return None


def count_visible(machine: Interpreter) -> int:
    """How many frames of the program run."""
    return sum(not frame.code.hidden for frame in machine.frames())


def _globals(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    frame = visible_frame(machine)
    return machine.native(globals, args, kwargs) if frame is None else frame.globals


def _locals(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    frame = visible_frame(machine)
    if frame is None:
        return machine.native(locals, args, kwargs)
    return locals_of(machine, frame)


def _vars(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return _locals(machine, args, kwargs)
    return Call(class_polyfills.vars_of, args)


def _dir(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if args:
        python = attributes.is_python(machine, type(args[0]), "__dir__")
        if python or (machine.recording and lists_plainly(machine, args[0])):
            return Call(class_polyfills.dir_by_method, args)
        class_attributes.refuse_written(machine.heap)
        if machine.recording and issubclass(type(args[0]), type):
            class_attributes.rely_on_all_names(machine.heap, args[0])
        else:
            refuse_state(machine, args[0])
        return machine.native(dir, args, kwargs)
    names = _locals(machine, args, kwargs)
    return Call(class_polyfills.dir_of_names, (names,))


def _getframe(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    depth = max(args[0], 0) if args else 0
    pickles.refuse_frames(machine)
    frame = visible_frame(machine, depth)
    return _outside(machine, depth) if frame is None else FrameView.of(machine, frame)


def _getframemodulename(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    depth = max(args[0] if args else kwargs.get("depth", 0), 0)
    pickles.refuse_frames(machine)
    frame = visible_frame(machine, depth)
    if frame is not None:
        return frame.globals.get("__name__")
    try:
        return _outside(machine, depth).f_globals.get("__name__")
    except ValueError:
        return None


def _outside(machine: Interpreter, depth: int) -> Any:
    """A frame further out than those of the function."""
    own = sum(1 for frame in machine.frames() if not frame.code.hidden)
    real = outer_frame(machine)
    for _ in range(depth - own):
        real = None if real is None else real.f_back
    if real is None:
        raise ValueError("call stack is not deep enough")
    return real


def _currentframe(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return _getframe(machine, (0,), {})


def _exc_info(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return exception_info(machine)


def _exception(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return handled_exception(machine.frame)


def _exec(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return _run_source(machine, "exec", args, kwargs)


def _eval(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return _run_source(machine, "eval", args, kwargs)


def _run_source(machine: Interpreter, mode: str, args: Args, kwargs: Kwargs) -> Any:
    frame = visible_frame(machine)
    if frame is None or kwargs or not 1 <= len(args) <= 3:
        return machine.native(exec if mode == "exec" else eval, args, kwargs)
    source, globals_, names = (*args, None, None)[:3]
    if globals_ is None:
        globals_ = frame.globals
        if names is None:
            names = _locals(machine, (), {})
    elif not issubclass(type(globals_), dict):
        raise TypeError(f"{mode}() globals must be a dict, not {bare_name(type(globals_))}")
    if names is None:
        names = globals_
    code = source if type(source) is CodeType else _compile(frame, source, mode)
    decoded = machine.decoded(code)
    if decoded.unsupported or code.co_freevars or type(globals_) is not dict:
        return machine.native(exec if mode == "exec" else eval, args, kwargs)
    scope = machine.heap.item_or_null(globals_, "__builtins__")
    if scope is NULL:
        scope = frame.builtins
        machine.native(dict.__setitem__, (globals_, "__builtins__", scope), {})
    slots = [NULL] * decoded.local_count
    scope = scope if issubclass(type(scope), dict) else vars(scope)
    if type(scope) is not dict:  # which C asks by its own methods
        return machine.native(exec if mode == "exec" else eval, args, kwargs)
    return Frame(decoded, globals_, scope, slots, names)


def _traceback(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`types.TracebackType(...)`, which wants a frame object of Python's."""
    if any(type(arg) is FrameView for arg in (*args, *kwargs.values())):
        raise broken("escape", "a frame of the function")
    return machine.native(TracebackType, args, kwargs)


_FUTURES = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)


def _compile(frame: Frame, source: Any, mode: str) -> CodeType:
    text = source.lstrip(" \t") if mode == "eval" and isinstance(source, str) else source
    flags = frame.code.code.co_flags & _FUTURES
    return compile(text, "<string>", mode, flags, dont_inherit=True)


def _compile_builtin(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`compile()` inherits the future statements of the virtual frame, not of ours."""
    frame = visible_frame(machine)
    names = ("source", "filename", "mode", "flags", "dont_inherit", "optimize")
    positional = dict(zip(names, args, strict=False))
    given = {**positional, **kwargs}
    twice = len(args) > len(names) or not positional.keys().isdisjoint(kwargs)
    if twice or type(given.get("flags", 0)) is not int:
        return machine.native(compile, args, kwargs)
    if frame is not None and not given.get("dont_inherit"):
        given["flags"] = given.get("flags", 0) | frame.code.code.co_flags & _FUTURES
    given["dont_inherit"] = True
    code = compiled(given) if machine.recording else None
    return machine.native(compile, (), given) if code is None else code


def _namespace(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`SimpleNamespace(**values)`, whose values C does not look at."""
    if args:
        return machine.native(SimpleNamespace, args, kwargs)
    made = SimpleNamespace(**kwargs)
    return machine.heap.create(made) if machine.recording else made


def _namespaces_compared(method: str, function: Callable[[Any, Any], Any]) -> Handler:
    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        known = machine.recording and len(args) == 2 and not kwargs
        if known and all(issubclass(type(arg), SimpleNamespace) for arg in args):
            return protocol.compare_namespaces(args[0], args[1], function)
        return machine.native(getattr(SimpleNamespace, method), args, kwargs)

    return handler


OBJECT_TYPES: dict[Any, Handler] = {
    type: _type,
    super: _super,
    TracebackType: _traceback,
    SimpleNamespace: _namespace,
}

GENERIC = (
    *(object, list, tuple, dict, set, frozenset, deque, defaultdict),
    *(str, bytes, bytearray, int, float, complex, range, slice, SimpleNamespace),
)
"""Classes of C whose attributes are found as `object` has it."""

OBJECT_BUILTINS: dict[Any, Handler] = {
    **STATE_BUILTINS,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    **{cls.__getattribute__: _generic_getattribute(cls) for cls in GENERIC},
    type.__getattribute__: _type_getattribute,
    super.__getattribute__: _super_getattribute,
    **dict.fromkeys((object.__setattr__, SimpleNamespace.__setattr__), _object_setattr),
    **dict.fromkeys((object.__delattr__, SimpleNamespace.__delattr__), _object_delattr),
    **{
        getattr(SimpleNamespace, method): _namespaces_compared(method, function)
        for method, _, function in COMPARISONS.values()
    },
    type.__setattr__: _type_setattr,
    type.__delattr__: _type_delattr,
    type.__new__: _type_new,
    callable: _callable,
    isinstance: _isinstance,
    issubclass: _issubclass,
    globals: _globals,
    locals: _locals,
    vars: _vars,
    dir: _dir,
    exec: _exec,
    eval: _eval,
    compile: _compile_builtin,
    sys._getframe: _getframe,
    **(
        {sys._getframemodulename: _getframemodulename}
        if hasattr(sys, "_getframemodulename")
        else {}
    ),
    inspect.currentframe: _currentframe,
    sys.exc_info: _exc_info,
    sys.exception: _exception,
}
