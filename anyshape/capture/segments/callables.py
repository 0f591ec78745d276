"""What callables without rows mean while capturing: pure C functions, queries, deferred effects.

Tables, each from a callable to what is done instead of calling it, and `is_pure`: whether a C
function of constants may simply be called.
"""

from __future__ import annotations

import functools
import gc
import logging
import operator
import time
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyshape.capture.guards.constant_kinds import REMEMBERING
from anyshape.capture.heap import decimals, purity, times
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import class_name
from anyshape.capture.heap.numpy_scalars import is_function_of_numbers
from anyshape.capture.heap.quiet_classes import bare_name, class_module
from anyshape.capture.heap.quiet_reads import quiet_getattr
from anyshape.capture.heap.raised_state import asks_for
from anyshape.capture.heap.values import BY_VALUE, PROXIES, Call, OpaqueValue, TensorValue
from anyshape.capture.interpreter import class_polyfills, iteration_polyfills
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.value_opcodes import note_values
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.segments import (
    imports,
    inspected,
    listeners,
    owned_objects,
    partials,
    processes,
    random_draws,
    scripted,
    warned,
    weak_references,
)
from anyshape.capture.tensors import (
    function_transforms,
    scans,
    stand_ins,
    tensor_methods,
    tensor_ops,
    torch_polyfills,
    triton_launches,
)
from anyshape.capture.tensors.meta import eager_call
from anyshape.eager import linear_recurrence

NATIVE_CLASSES = frozenset({torch.finfo, torch.iinfo, torch.device})
QUERIES = ("_get", "get_", "_is", "is_", "_has", "has_", "_len", "_are", "are_", "_can", "can_")
OPAQUE = (
    "threading.", "importlib.", "multiprocessing.", "subprocess.", "socket.", "ctypes.",
    "torch._functorch.", "torch.autograd.functional.", "torch.autograd.forward_ad.",
    "torch.random.", "torch._inductor.", "torch._tensor_str.", "torch.autograd.graph.",
)  # fmt: skip
"""Packages whose functions are called natively as a whole: they meddle with the process, or, as
function transforms do, with what every operator called inside them means; or they are made for
eager gradients, where there is nothing to compile."""
OPAQUE_MODULES = frozenset({"torch.autograd"})
"""The same of modules, but not of what lies in them."""

WHOLE = frozenset(
    {
        torch.Tensor.__deepcopy__,
        torch.nn.Parameter.__deepcopy__,
        torch_polyfills.APPLY,
        torch_polyfills.UNPACKED_NATIVELY,
        torch_polyfills.MOVED_NATIVELY,
        torch_polyfills.SCANNED_NATIVELY,
        torch_polyfills.ENCODED_NATIVELY,
        *torch_polyfills.CONVERTED_NATIVELY.values(),
    }
)
"""And of single functions, where nothing in this file stands in for them."""


def is_opaque(fn: Any) -> bool:
    """Whether the Python function belongs to one of them."""
    if getattr(fn, "__code__", None) in function_transforms.ENTERED:
        return False
    return fn in WHOLE or f"{fn.__module__}.".startswith(OPAQUE) or fn.__module__ in OPAQUE_MODULES


OF_DYNAMO = frozenset(
    {
        "GenerationTracker.tag",  # notes every new module
        "DynamoConfigPatchProxy.__enter__",  # how Dynamo is to trace what is in the context
        "DynamoConfigPatchProxy.__exit__",
    }
)
"""Functions of torch._dynamo, by name as nothing imports it, that change only its own state."""


def called(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Replays a deferred effect such as a print."""
    return fn(*args, **kwargs)


# ---- purity --------------------------------------------------------------------------------------
def is_torch(fn: Any) -> bool:
    is_class = issubclass(type(fn), type)
    module = class_module(fn) if is_class else getattr(fn, "__module__", None)
    if module is None:
        owner = getattr(fn, "__objclass__", None) or type(getattr(fn, "__self__", None))
        module = getattr(owner, "__module__", "")
    return isinstance(module, str) and module.partition(".")[0] == "torch"


def refuse_deaths(domain: RecordingDomain, cls: type) -> None:
    """When an object made here is dropped, nobody knows while capturing."""
    if type(domain.machine.lookup(cls, "__del__")) is types.FunctionType:
        raise broken("unknown-call", f"{bare_name(cls)}.__del__, when the object is dropped,")


def is_pure(fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether a C function of constants may simply be called."""
    try:
        if any(fn in table for table in SAFE):
            return True
    except TypeError:
        return False
    if is_function_of_numbers(fn, args) or type(fn) is REMEMBERING:
        return True
    if times.is_pure(fn, args) or purity.is_of_values(fn, args) or decimals.is_method(fn, args):
        return True
    if fn is time.gmtime and args and args[0] is not None:  # or it asks the clock
        return True
    if quiet_getattr(fn, "_dynamo_marked_constant"):  # torch.compiler.assume_constant_result
        return True
    owner = quiet_getattr(fn, "__objclass__")
    if owner is not None:
        return fn is not type.__subclasses__ and (
            owner in purity.PURE_TYPES
            or owner in CONTAINERS
            or (issubclass(owner, BaseException) and _leaves_as_it_is(fn, args))
            or owner is object
        )
    if issubclass(type(fn), type):
        return class_module(fn) not in purity.IMPURE_MODULES or fn is time.struct_time
    bound = quiet_getattr(fn, "__self__")
    if bound is not None and not issubclass(type(bound), types.ModuleType):
        if fn.__name__ in ("mro", "__subclasses__") and issubclass(type(bound), type):
            return fn.__name__ == "mro"  # another subclass may be made
        return type(bound) in purity.PURE_TYPES or type(bound) in CONTAINERS or bound in CONTAINERS
    return fn in purity.OF_ABC or (getattr(fn, "__module__", None) or "") in PURE_MODULES


def _leaves_as_it_is(fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether a method of exceptions writes to none, and asks nothing of the program."""
    if fn.__name__ in ("split", "subgroup") and args:
        return asks_for(args[0]) is None and issubclass(type(args[-1]), (type, tuple))
    return fn.__name__ not in ("add_note", "with_traceback", "__setstate__", "__init__")


def is_notice(fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether a logger is to say something that it has not said before: nobody uses the result."""
    return type(fn) is REMEMBERING and bool(args) and issubclass(type(args[0]), logging.Logger)


CONTAINERS = (
    *(list, dict, set, tuple, frozenset, str, bytes, int, float, object, type, bytearray, complex),
    *(OrderedDict, defaultdict, deque, types.MappingProxyType, slice, range),
)
PURE_MODULES = frozenset(
    {
        "math",
        "_operator",
        "_functools",
        "_collections",
        "itertools",
        "_sre",
        "re",
        "_struct",
        "_bisect",
        "_contextvars_",
        "_statistics",
    }
)
STORES = frozenset(
    {
        list.append,
        list.insert,
        dict.__setitem__,
        dict.setdefault,
        dict.get,
        types.MappingProxyType.get,
        dict.update,
        dict.pop,
        list.pop,
        tuple.__new__,
        object.__new__,
        dict.__new__,
        list.__new__,
        functools.partial,
    }
)

SAFE = (purity.PURE, purity.READERS, purity.MAKERS, purity.MUTATORS, STORES, {class_name})

# What keeps an iterator that it is given, and takes nothing out of it.
HOLDERS = STORES - purity.ABSORBERS - {tuple.__new__}

# What keeps or compares objects by identity and class, and looks into none.
KEEPERS = STORES | {
    isinstance,
    issubclass,
    callable,
    type,
    operator.is_,
    operator.is_not,
    object.__init__,
    object.__eq__,
    object.__ne__,
    super,
    property,
    slice,
}
KEEPERS |= {
    list,
    tuple,
    dict,
    set,
    frozenset,
    zip,
    enumerate,
    reversed,
    iter,
    functools.partial,
    *purity.MUTATORS,
}

# What heap.py hands mirrors to, as far as it reads containers.
_TAKE_MIRRORS = purity.READERS | purity.FIRST_READERS | purity.PAIR_READERS | KEEPERS
_KEEPING_MODULES = frozenset({"types", "functools", "weakref"})


def keeps(fn: Any) -> bool:
    """Whether C code reads no container that it is given, or has been given its mirror."""
    if issubclass(type(fn), type) and (
        issubclass(fn, BaseException) or class_module(fn) in _KEEPING_MODULES
    ):
        return True
    return type(fn) in purity.CALLABLE_TYPES and fn in _TAKE_MIRRORS


OPERATOR_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    operator.add: lambda d, a, b: d.binary("+", a, b),
    operator.sub: lambda d, a, b: d.binary("-", a, b),
    operator.mul: lambda d, a, b: d.binary("*", a, b),
    operator.truediv: lambda d, a, b: d.binary("/", a, b),
    operator.floordiv: lambda d, a, b: d.binary("//", a, b),
    operator.mod: lambda d, a, b: d.binary("%", a, b),
    operator.pow: lambda d, a, b: d.binary("**", a, b),
    pow: lambda d, a, b: d.binary("**", a, b),
    operator.matmul: lambda d, a, b: d.binary("@", a, b),
    operator.and_: lambda d, a, b: d.binary("&", a, b),
    operator.or_: lambda d, a, b: d.binary("|", a, b),
    operator.xor: lambda d, a, b: d.binary("^", a, b),
    operator.neg: lambda d, a: d.unary("-", a),
    operator.getitem: lambda d, a, b: d.getitem(a, b),
    operator.eq: lambda d, a, b: d.compare("==", a, b),
    operator.ne: lambda d, a, b: d.compare("!=", a, b),
    operator.lt: lambda d, a, b: d.compare("<", a, b),
    operator.le: lambda d, a, b: d.compare("<=", a, b),
    operator.gt: lambda d, a, b: d.compare(">", a, b),
    operator.ge: lambda d, a, b: d.compare(">=", a, b),
}

_C = torch._C
PURE_TORCH = frozenset(
    {
        torch.promote_types,
        torch.can_cast,
        torch.get_num_threads,
        torch.Size.numel,
        _C._log_api_usage_once,
        *filter(callable, (getattr(_C, "_jit_tree_views", None),)),
    }
)


def _has_override(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Whether one of the arguments has a ``__torch_function__`` of its own; modes do not count, as
    those that capture knows change no operator but for the device of what it makes."""
    classes = [domain.type_of(arg) if type(arg) in PROXIES else type(arg) for arg in args]
    if torch_polyfills.WITHOUT_OVERRIDE.issuperset(classes):
        return False
    if not domain.relied.asked(_C._is_torch_function_enabled, ()):
        return False
    return Call(torch_polyfills.any_override, (args,))


def _has_override_inside(
    domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _has_override(domain, tuple(domain.machine.heap.mirror(args[0])), kwargs)


def _is_tensor_like(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Outside objects are asked by torch's own Python."""
    value = args[0] if args else kwargs["inp"]
    if tensor_methods.is_a_tensor(value):
        return True
    return False if type(value) in PROXIES else NotImplemented


def _handle_override(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The ``__torch_function__`` of what is handed on unread is called by torch itself."""
    relevant = args[1] if len(args) > 1 else kwargs["relevant_args"]
    for arg in relevant:
        if type(arg) is OpaqueValue:
            raise broken("tensor-subclass", arg.description)
    return NotImplemented


PRINT_OPTIONS = frozenset({"sep", "end", "file", "flush"})


def _print(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not all(issubclass(type(name), str) for name in kwargs):
        raise TypeError("keywords must be strings")
    for name in kwargs:
        if name not in PRINT_OPTIONS:
            raise TypeError(f"'{name}' is an invalid keyword argument for print()")
    if kwargs.get("file") is None:
        listeners.refuse_printed(domain, "stdout", "print")
    domain.defer(print, args, kwargs)


def _id(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """It may serve until the segment ends: behind that another object may be here."""
    obj, recorder = args[0], domain.recorder
    if type(obj) in PROXIES:
        return _id_behind(domain, obj)
    domain.identify(obj)
    domain.identify_value(obj)
    obj = domain.as_it_was(obj)
    made = domain.machine.heap.is_created(obj)
    if made or type(obj) in BY_VALUE or not recorder.is_the_same(obj):
        return domain.take_id(obj)
    return id(obj)


def _id_behind(domain: RecordingDomain, obj: Any) -> int:
    """That of the tensor that is the same one in each call. Another's is known at run time only:
    that of its proxy serves to compare tensors of the segment with each other (`will_compare`)."""
    source = domain.recorder.source_of(obj.value) if type(obj) is TensorValue else None
    if source is not None and source.is_pinned:
        return id(source.pinned)
    domain.identify(obj)
    return domain.take_id(obj)


def _same_object(same: bool) -> Callable[..., Any]:
    def answer(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != 2 or kwargs:
            return operator.is_(*args, **kwargs) if same else operator.is_not(*args, **kwargs)
        a, b = args
        domain.identify(a)
        domain.identify(b)
        note_values(domain.machine, a, b)
        found = a is b or domain.is_one(a, b)
        if type(found) is bool:
            return found is same
        return found if same else domain.unary("not", found)

    return answer


def _as_it_is(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda d, args, kwargs: fn(*args)


NATIVE: Mapping[Any, Callable[..., Any]] = {
    iteration_polyfills.settled_bounds: _as_it_is(iteration_polyfills.settled_bounds),
    class_polyfills.matches_itself: _as_it_is(class_polyfills.matches_itself),
    type.__init__: lambda domain, args, kwargs: type.__init__(*args, **kwargs),
    operator.is_: _same_object(True),
    operator.is_not: _same_object(False),
    _C._has_torch_function: _has_override_inside,
    _C._has_torch_function_unary: _has_override,
    _C._has_torch_function_variadic: _has_override,
    torch.overrides.handle_torch_function: _handle_override,
    print: _print,
    **warned.HANDLERS,
    id: _id,
    _C._nn._parse_to: lambda domain, args, kwargs: _C._nn._parse_to(*args, **kwargs),
    __import__: imports.import_now,
    gc.collect: weak_references.collect,
    **{**stand_ins.NATIVE, **owned_objects.HANDLERS, **random_draws.HANDLERS},
    **{**processes.HANDLERS, **scripted.HANDLERS, **partials.HANDLERS},
}


def _packet(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.ops.namespace.name(...)`: a row if it has one, else the operator itself runs
    eagerly inside the graph."""
    packet, *rest = args
    name = getattr(packet, "_qualified_op_name", None) or packet._schema.name
    known = PACKETS.get(str(name))
    if known is not None:
        return known(domain, tuple(rest), kwargs)
    made = tensor_methods.operator_call(domain, packet, tuple(rest), kwargs)
    if made is NotImplemented:
        made = eager_call(domain, packet, tuple(rest), kwargs)
    return _as_returned(domain, packet, made) if issubclass(type(made), tuple) else made


def _as_returned(domain: RecordingDomain, operator: Any, made: tuple[Any, ...]) -> Any:
    """``Tensor[]`` is a list in Python where an operator is called, and its results have no names:
    torch's own functions of that name give tuples, which may be named."""
    overloads = getattr(operator, "overloads", None)
    found = [operator] if overloads is None else [getattr(operator, n) for n in overloads()]
    returned = [[isinstance(r.type, torch.ListType) for r in o._schema.returns] for o in found]
    if [True] in returned:
        return domain.created(list(made))
    lists = next((kinds for kinds in returned if len(kinds) == len(made)), [False] * len(made))
    parts = zip(made, lists, strict=True)
    return tuple([domain.created(list(part)) if many else part for part, many in parts])


def _grouped_mm(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    named = dict(zip(("input", "weight", "offs"), args)) | kwargs
    return tensor_ops.call_row(
        domain, "grouped_mm", named["input"], named["weight"], offs=named["offs"]
    )


# Operators of libraries that stand in, under torch.compile, for what eager torch calls directly.
PACKETS: Mapping[str, Callable[..., Any]] = {
    "transformers::grouped_mm_fallback": _grouped_mm,
    "aten::slice": lambda domain, args, kwargs: tensor_methods.slice_operator(
        domain, *args, **kwargs
    ),
}


def _answer(value: Any) -> Callable[..., Any]:
    return lambda domain, args, kwargs: value


def _instead(polyfill: Callable[..., Any]) -> Callable[..., Any]:
    return lambda domain, args, kwargs: Call(polyfill, args, kwargs)


def _logged(fn: Any) -> Callable[..., Any]:
    def handler(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        level = listeners.LEVELS.get(fn) or (args[1:2] or (kwargs.get("level"),))[0]
        listeners.refuse_logged(domain, args[0], level)
        domain.defer(fn, args, kwargs)

    return handler


LOGGING = frozenset(
    getattr(logging.Logger, name)
    for name in ("debug", "info", "warning", "error", "exception", "critical", "log")
)
"""What is deferred as a whole, and called as a whole where it cannot be."""


_MAKING = ("_Ops", "_OpNamespace", "OpOverloadPacket", "_Classes")
LOOKUPS = frozenset({"__getattr__", *(f"{name}.__getattr__" for name in _MAKING)})


def looks_up(fn: Any) -> bool:
    """Whether it is a `__getattr__` of a module, of `torch.ops` or `torch.classes`, that does
    nothing but import or make what it is asked for. One of the program's may do anything."""
    return fn.__qualname__ in LOOKUPS and purity.is_library(fn.__module__ or "")


OURS: Mapping[str, Callable[..., Any]] = {
    "check": tensor_methods.check_condition,
    "is_compiling": lambda domain, args, kwargs: True,
    "CompiledFunction.__call__": lambda domain, args, kwargs: Call(
        args[0]._lazy.fn,
        args[1:],
        kwargs,
    ),
    "_compiled_module.<locals>.<lambda>": lambda domain, args, kwargs: Call(
        type(args[0])._anyshape_original.__call__,
        args,
        kwargs,
    ),
}
# Functions of the layer above and of what may be absent, by module and name.
NAMED: Mapping[tuple[str, str], Callable[..., Any]] = {
    **{("anyshape.api", name): handler for name, handler in OURS.items()},
    **triton_launches.NAMED,
}


def _instance_check(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`isinstance(x, nn.Parameter)`, whose metaclass also asks tensors for a flag."""
    cls, instance = args
    if type(instance) not in PROXIES:
        return isinstance(instance, cls)
    kind, flags = domain.type_of(instance), torch_polyfills.FLAGGED
    if issubclass(kind, cls) or not issubclass(kind, torch.Tensor) or cls not in flags:
        return issubclass(kind, cls)
    return Call(torch_polyfills.has_flag, (instance, flags[cls]))


# What the program is answered that asks if it is compiled, in capture and between segments.
ANSWERS: dict[Any, bool] = {
    torch.compiler.is_compiling: True,
    torch.compiler.is_dynamo_compiling: True,
    torch.compiler.is_exporting: False,
    torch.jit.is_scripting: False,
    torch.jit.is_tracing: False,
}


def answer(fn: Any, machine: Interpreter) -> bool | None:
    """What a function of `ANSWERS` says to the frame that runs: `AS_EAGER` does what eager torch
    does. Where torch itself asks for Dynamo, it goes on in a way that only Dynamo knows."""
    said = ANSWERS.get(fn)
    if said and fn is torch.compiler.is_dynamo_compiling and _asks_as(machine, "torch."):
        return False
    return False if said and _asks_as(machine, *AS_EAGER) else said


OPTIMIZERS = "torch.optim."
AS_EAGER = (OPTIMIZERS, torch.nn.Module.__module__)
"""Those compute otherwise, and modules that raise forget some hooks, where they hear "compiled"."""


def _asks_as(machine: Interpreter, *packages: str) -> bool:
    """Whether the frame that runs belongs to a module of one of the packages."""
    return str(machine.current().globals.get("__name__")).startswith(packages)


def is_of_dynamo(fn: types.FunctionType, machine: Interpreter) -> bool:
    """Whether a function of torch._dynamo does nothing here. Those that are named change only its
    own state; the graph breaks that optimizers ask for are for its own sake."""
    if fn.__qualname__ in OF_DYNAMO:
        return True
    breaks = fn.__qualname__ == "graph_break" and fn.__module__.startswith("torch._dynamo")
    return breaks and _asks_as(machine, OPTIMIZERS)


def _answer_of(fn: Any) -> Callable[..., Any]:
    return lambda domain, args, kwargs: answer(fn, domain.machine)


# What a process does not change: which GPUs it has, and what they can do.
DEVICES = (
    *(torch.cuda.is_available, torch.cuda.device_count, torch.cuda.get_device_capability),
    *(torch.cuda.get_device_name, torch.cuda.get_device_properties, torch.cuda.is_bf16_supported),
    *(torch.cuda.get_arch_list, torch.backends.cuda.is_built),
    *(torch.accelerator.current_accelerator, torch.accelerator.is_available),
)


def _answered_now(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda domain, args, kwargs: fn(*args, **kwargs)


def _asked(fn: Callable[[], Any]) -> Callable[..., Any]:
    """Its answer is relied on, and asked for again at each call."""
    return lambda domain, args, kwargs: domain.relied.asked(fn, ())


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{fn: _answered_now(fn) for fn in DEVICES},
    **inspected.FUNCTIONS,
    **{
        fn: _asked(fn) for fn in (torch.cuda.current_device, torch.cuda.is_current_stream_capturing)
    },
    torch._ops.OpOverloadPacket.__call__: _packet,
    torch._ops.OpOverload.__call__: _packet,
    type(torch.nn.Parameter).__instancecheck__: _instance_check,
    type(torch.nn.Buffer).__instancecheck__: _instance_check,
    **stand_ins.FUNCTIONS,
    scans.is_linear: lambda domain, args, kwargs: scans.linear(domain, *args),
    linear_recurrence: lambda domain, args, kwargs: tensor_ops.call_row(
        domain, "linear_recurrence", *args
    ),
    functools.cached_property.__get__: _instead(class_polyfills.get_cached),
    **{fn: _answer_of(fn) for fn in ANSWERS},
    **{**owned_objects.FUNCTIONS, **warned.FUNCTIONS},
    **random_draws.FUNCTIONS,
    **{fn: _instead(polyfill) for fn, polyfill in torch_polyfills.STAND_INS.items()},
    torch._utils_internal.justknobs_check: _answer(True),
    torch.overrides.is_tensor_like: _is_tensor_like,
    **{fn: _logged(fn) for fn in LOGGING},
    logging.Logger.isEnabledFor: lambda domain, args, kwargs: domain.relied.asked(
        args[0].isEnabledFor, tuple([*args[1:], *kwargs.values()])
    ),
}
