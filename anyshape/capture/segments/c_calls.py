"""What a call of code that is not interpreted means while recording.

In: a function of C, of torch, or an opaque one, and its arguments, proxies among them. Out: a node,
where a row or a handler says so; the very result, where the function is pure and what it reads is
relied on; an effect for later; else a break.
"""

from __future__ import annotations

import inspect
import io
import logging
import types
from array import array
from collections import deque
from typing import Any

import torch

from anyshape.capture.guards import execution_modes
from anyshape.capture.guards.constant_kinds import CONSTANTS, EQUAL, IDENTITY, REMEMBERING
from anyshape.capture.heap import decimals, purity, times
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.nested_containers import CONTAINERS, values_of
from anyshape.capture.heap.quiet_classes import bare_name, has_entry, mro_of
from anyshape.capture.heap.values import PROXIES, Break, OpaqueValue
from anyshape.capture.interpreter import c_callbacks, calls_of_the_program, protocol
from anyshape.capture.python.builtin_exceptions import stores_arguments
from anyshape.capture.recording import decimal_contexts
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.segments import (
    callables,
    listeners,
    looked_up,
    number_attributes,
    weak_references,
)
from anyshape.capture.sizes import beside_numpy, formed_texts
from anyshape.capture.tensors import tensor_methods, tensor_ops
from anyshape.capture.tensors.meta import eager_call


def call(domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the call gives: a value of the graph, what it gives natively, or a break."""
    made = weak_references.call(domain, fn, args, kwargs)
    if made is not NotImplemented:
        return made
    _refuse(domain, fn, args)
    decimal_contexts.reads_contexts(domain, fn, (*args, *kwargs.values()))
    domain.rely_on_object(fn)  # what code of C does is known of this one alone
    if fn in formed_texts.FORMERS:
        text = formed_texts.formed(domain, fn, args, kwargs)
        if text is not NotImplemented:
            return text
    if type(fn) not in purity.CALLABLE_TYPES or fn not in callables.HOLDERS:
        _refuse_outside_iterators(domain, fn, args)
    if len(args) > 1 and (fn in purity.KEYED or fn in c_callbacks.LOOKING_UP):
        args = (args[0], protocol.plain_key(domain.machine, args[1]), *args[2:])
    made = tensor_methods.call_torch(domain, fn, args, kwargs)
    if made is not NotImplemented:
        return made
    if fn in execution_modes.SETTERS or fn in execution_modes.GETTERS:
        return _mode(domain, fn, args, kwargs)
    special = callables.NATIVE.get(fn) or decimal_contexts.handler_of(fn)
    if special is not None:
        return special(domain, args, kwargs)
    if callables.is_notice(fn, args):
        listeners.refuse_logged(domain, args[0], logging.CRITICAL)
        return domain.defer(fn, args, kwargs)
    if callables.is_torch(fn):
        return _call_torch(domain, fn, args, kwargs)
    _refuse_ids(domain, fn, (*_looked_at(fn, args), *kwargs.values()))
    looked_up.rely_on_comparison(domain, fn, args)
    if any(type(a) in PROXIES for a in args) or any(type(a) in PROXIES for a in kwargs.values()):
        return _call_with_proxies(domain, fn, args, kwargs)
    if c_callbacks.runs_program_code(domain.machine, fn, (*args, *kwargs.values())):
        raise broken("unknown-call", name_of(fn))
    if callables.is_pure(fn, args) and _reads_nothing_else(domain, fn, args, kwargs):
        return _call_with_parts(domain, fn, args, kwargs)
    raise unknown(domain, fn)


def _mode(domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if fn in execution_modes.SETTERS:
        return _set_mode(domain, fn, args, kwargs)
    return execution_modes.GETTERS[fn](domain.recorder.modes, *args, **kwargs)


def _set_mode(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> int:
    """Sets the virtual mode; what C refuses is handed to it."""
    given = [domain.concrete(arg, fn) for arg in args]
    if not all(type(arg) in MODES for arg in given):
        with execution_modes.real(domain.recorder.modes):
            fn(*given, **kwargs)
    domain.recorder.modes = execution_modes.SETTERS[fn](domain.recorder.modes, *given, **kwargs)
    return 1


MODES = frozenset({bool, str, torch.dtype})
"""What the modes are told by."""


def _refuse(domain: RecordingDomain, fn: Any, args: tuple[Any, ...]) -> None:
    if not callable(fn):
        fn(*args)  # C's own refusal
    _refuse_unhashed(domain, fn)
    if args and issubclass(type(args[0]), type) and getattr(fn, "__name__", "") == "__new__":
        callables.refuse_deaths(domain, args[0])


def _refuse_unhashed(domain: RecordingDomain, fn: Any) -> None:
    """No table knows such a function: one of ctypes, say."""
    try:
        hash(fn)
    except TypeError:
        raise unknown(domain, fn) from None


def _reads_nothing_else(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether the function looks into nothing but what is relied on."""
    given = (*args, *kwargs.values())
    if fn in callables.KEEPERS or times.is_quiet(fn, given):
        return True
    if type(fn) is WRAPPER and c_callbacks.declines(fn, args):
        return True
    if domain.machine.heap.journal is not None and decimals.is_of_context(fn):
        return False  # no branch of a fork takes back what it writes
    if type(fn) is REMEMBERING:  # it looks the arguments up, whatever tuples they lie in
        given = tuple(part for part in (*given, *parts(given)) if not _is_a_key(domain, part))
    if _reads_values_alone(fn):
        given = tuple([part for part in given if not _is_one_value(domain, part)])
    return not _reads_outside(domain, given)


WRAPPER = type(object.__eq__)
VALUES = (int, float, complex, str, bytes)


def _reads_values_alone(fn: Any) -> bool:
    """Whether the function takes numbers and texts for what they are worth, and looks into no
    object."""
    if type(fn) not in purity.CALLABLE_TYPES:
        return False
    known = fn in purity.ARITHMETIC or fn in c_callbacks.WRITING_INTEGERS
    return known or getattr(fn, "__objclass__", None) in VALUES


def _is_one_value(domain: RecordingDomain, value: Any) -> bool:
    """Whether what the object is worth is the same in each call: it is this one, of a subclass
    of a class whose objects never change."""
    return issubclass(type(value), VALUES) and domain.recorder.is_the_same(value)


def _is_a_key(domain: RecordingDomain, value: Any) -> bool:
    """Whether a cache finds by the object what it found before: it is this one in each call, and
    C asks for nothing but its identity. What the function read of it then is remembered too."""
    kind = type(value)
    by_identity = all(
        inspect.getattr_static(kind, name) is vars(object)[name] for name in ("__hash__", "__eq__")
    )
    return by_identity and domain.recorder.is_the_same(value)


def _refuse_ids(domain: RecordingDomain, fn: Any, values: tuple[Any, ...]) -> None:
    if domain.ids and (type(fn) not in purity.CALLABLE_TYPES or fn not in _KEEPING_IDS):
        domain.will_compute(*_items(values))


def _looked_at(fn: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without the container of which C moves the elements, whatever they are: to go through them
    all at each write would be quadratic."""
    moves = type(fn) in purity.CALLABLE_TYPES and fn in purity.MOVERS
    return args[1:] if moves else args


_KEEPING_IDS = purity.UNLOOKING | purity.KEYED | {list, tuple, set, frozenset, dict, len, id}
"""Functions that store numbers or look for them, and make no others of them."""


def _items(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values, and what lies in the containers among them."""
    return (*values, *(item for value in values for item in _lying_in(value)))


def _lying_in(value: Any) -> tuple[Any, ...]:
    return tuple(values_of(value)) if issubclass(type(value), CONTAINERS) else ()


def parts(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What lies in the tuples among the values, all the way down."""
    tuples = [value for value in values if issubclass(type(value), tuple)]
    inside = tuple(part for value in tuples for part in tuple.__iter__(value))
    return (*inside, *parts(inside)) if inside else ()


def _call_pure(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call that has no effects; what it may read of outside containers is relied on."""
    if type(fn) in purity.CALLABLE_TYPES and fn in tensor_ops.SIZE_MAKERS:
        return tensor_ops.made_of_sizes(fn, args)
    if _computes_with_decimals(fn, (fn, *args, *kwargs.values())):
        read = domain.machine.heap.read_whole
        named = {name: read(value) for name, value in kwargs.items()}
        return decimal_contexts.computed(domain, fn, tuple(map(read, args)), named)
    _refuse_opaque(fn, (*_looked_at(fn, args), *kwargs.values()))
    if callables.keeps(fn):
        return fn(*args, **kwargs)
    heap = domain.machine.heap
    whole = heap.mirror if fn in purity.MAKERS else heap.read_whole
    seen, named = tuple(map(whole, args)), {name: whole(v) for name, v in kwargs.items()}
    if type(fn) is REMEMBERING or calls_of_the_program.calls_python(fn):
        return calls_of_the_program.call(domain.machine.frame, fn, seen, named)
    return fn(*seen, **named)


def _refuse_opaque(fn: Any, seen: tuple[Any, ...]) -> None:
    """What an outside container holds may be a text, say, that differs from call to call: C takes
    what stands for it for an object of another class."""
    looks = type(fn) not in purity.CALLABLE_TYPES or fn not in _KEEPING_IDS
    if looks and any(type(item) is OpaqueValue for item in _items(seen)):
        raise broken("proxy-leak", "a text that differs from call to call")


def _computes_with_decimals(fn: Any, given: tuple[Any, ...]) -> bool:
    keeping = type(fn) in purity.CALLABLE_TYPES and fn in KEEPING
    return not keeping and decimals.are_among(given)


KEEPING = frozenset({*purity.UNLOOKING, *purity.KEYED, *purity.MAKERS, *purity.MUTATORS})
"""Functions that keep what they are given, or find it."""


def unknown(domain: RecordingDomain, fn: Any) -> Break:
    """The break before a call that capture cannot follow."""
    name = name_of(fn)
    if issubclass(type(fn), types.FunctionType):
        unsupported = domain.machine.decoded(fn.__code__).unsupported
        if unsupported is not None:
            return broken("opcode", name, why=unsupported)
    module = _module_of(fn)
    if "." not in name and issubclass(type(module), str) and module != "builtins":
        name = f"{module}.{name}"
    return broken("unknown-call", name)


def _module_of(fn: Any) -> Any:
    """Where a function, or the class of an object, is from; the object itself is not asked."""
    if type(fn) in purity.CALLABLE_TYPES:
        return getattr(fn, "__module__", None)
    cls = fn if issubclass(type(fn), type) else type(fn)
    return type.__getattribute__(cls, "__module__")


def _refuse_outside_iterators(domain: RecordingDomain, fn: Any, args: tuple[Any, ...]) -> None:
    """C code would advance them, once and for all; a method of theirs may do anything to them."""
    for arg in args:
        if has_entry(type(arg), "__next__") and domain.recorder.sources.of(arg) is not None:
            if getattr(fn, "__objclass__", None) not in mro_of(type(arg)):
                raise broken("outside-iterator", bare_name(type(arg)))
            if issubclass(type(arg), io.IOBase):
                raise broken("python-effect", f"{bare_name(type(arg))}.{fn.__name__}")
            raise unknown(domain, fn)


COMPARED = frozenset({*CONSTANTS, *times.CLASSES, array})
"""Of what is handed to C code as a whole, a guard compares what it holds."""


def _reads_outside(domain: RecordingDomain, args: tuple[Any, ...]) -> bool:
    """Whether C code would look into an outside object whose state no guard covers (an
    array, a counter, ...)."""
    heap, sources = domain.machine.heap, domain.recorder.sources
    for arg in args:
        if type(arg) in COMPARED or issubclass(
            type(arg), (*IDENTITY, *EQUAL, tuple, list, dict, set, frozenset)
        ):
            continue
        if not heap.is_created(arg) and sources.of(arg) is not None:
            return True
    return False


def _call_torch(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if not any(tensor_methods.holds_proxy(a) for a in (*args, *kwargs.values())):
        name = getattr(fn, "__name__", "")
        if name.startswith(callables.QUERIES) or fn in callables.PURE_TORCH:
            args = tuple(map(domain.machine.heap.read_whole, args))
            answer = _asked(domain, fn, args, kwargs)
            if not issubclass(type(answer), torch.Tensor):
                return answer
            raise unknown(domain, fn)  # as of a generator: another one in each call
    return eager_call(domain, fn, args, kwargs)


def _asked(domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What torch answers under the modes that the program has set; what it answers now is relied
    on."""
    answer = fn(*args, **kwargs) if kwargs else domain.relied.asked(fn, args)
    modes = domain.recorder.modes
    if modes == execution_modes.current_modes():
        return answer
    with execution_modes.real(modes):
        return fn(*args, **kwargs)


def _call_with_them(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A pure call with proxies; where C code refuses one, its text would name our classes."""
    try:
        return _call_pure(domain, fn, args, kwargs)
    except TypeError as error:
        if any(bare_name(kind) in str(error) for kind in PROXIES):
            raise unknown(domain, fn) from None
        raise


def _call_with_parts(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A pure call, in whose arguments proxies may lie, which C code may refuse. What the object of
    a method has in it is not read as numbers."""
    try:
        return _call_pure(domain, fn, args, kwargs)
    except TypeError:
        read = (*args[hasattr(fn, "__objclass__") :], *kwargs.values())
        if any(type(item) in PROXIES for item in _items(read)):
            raise unknown(domain, fn) from None
        raise


LENGTHS: dict[Any, tuple[int, str]] = {deque: (1, "maxlen"), deque.__init__: (2, "maxlen")}
"""Of what keeps its arguments as they are, the one that C reads as an integer: position, name."""


def _with_lengths(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with an integer where C would not ask a proxy for one."""
    if fn not in LENGTHS:
        return args, kwargs
    position, name = LENGTHS[fn]
    given = [domain.concrete(a, fn) if i == position else a for i, a in enumerate(args)]
    return tuple(given), {
        key: domain.concrete(value, fn) if key == name else value for key, value in kwargs.items()
    }


def _call_with_proxies(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if not kwargs:
        made = beside_numpy.math_call(domain.recorder, fn, args)
        if made is None:
            made = number_attributes.method_call(domain, fn, args)
        if made is not None:
            return made
    if fn in callables.OPERATOR_FUNCTIONS and not kwargs and (fn is not pow or len(args) == 2):
        return callables.OPERATOR_FUNCTIONS[fn](domain, *args)
    if (
        fn in purity.MAKERS
        or fn in purity.MUTATORS
        or fn in purity.READERS
        or fn in callables.STORES
    ):
        return _call_with_them(domain, fn, *_with_lengths(domain, fn, args, kwargs))
    if not kwargs and stores_arguments(fn):
        return domain.created(fn(*args))
    if type(fn) is REMEMBERING:  # one call each would be one specialization each
        raise unknown(domain, fn)
    fixed = [domain.concrete(a, fn) for a in args]
    named = {k: domain.concrete(v, fn) for k, v in kwargs.items()}
    if callables.is_pure(fn, tuple(fixed)):
        return _call_pure(domain, fn, tuple(fixed), named)
    raise unknown(domain, fn)
