"""What Python's builtins mean here: those that touch frames, classes, iterators or code of the
virtual program have a handler.

A handler gets the machine, positional and keyword arguments, and gives a value, a `Call` or a
`Frame`. `native` is the rest: the C function itself, on constants and containers. Iterating
natively is right for containers and C iterators; what would run code of the program goes to a
polyfill. Here are operators, conversions and the tables; builtin_objects.py and
builtin_iteration.py hold the rest.
"""

from __future__ import annotations

import functools
import operator
import re
import types
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from anyshape.capture.heap import answers
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.hidden_dicts import PARTIAL_FIELDS
from anyshape.capture.heap.mirrors import mapping_behind
from anyshape.capture.heap.quiet_classes import bare_name, mro_of
from anyshape.capture.heap.values import (
    ABSENT,
    C_METHODS,
    NULL,
    PROXIES,
    SYMBOLIC_NUMBERS,
    Call,
    ScalarValue,
)
from anyshape.capture.interpreter import (
    attributes,
    class_polyfills,
    exception_opcodes,
    intrinsic_names,
    iteration_polyfills,
    mapping_polyfills,
    operators,
    polyfills,
    protocol,
    text_polyfills,
)
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.python import cache_polyfills
from anyshape.capture.python.builtin_exceptions import EXCEPTION_BUILTINS
from anyshape.capture.python.builtin_iteration import (
    CLASS_METHODS,
    ITERATION_BUILTINS,
    ITERATION_TYPES,
)
from anyshape.capture.python.builtin_objects import OBJECT_BUILTINS, OBJECT_TYPES
from anyshape.capture.python.called_descriptors import DESCRIPTOR_BUILTINS
from anyshape.capture.python.iterator_methods import ITERATOR_METHODS
from anyshape.ir.scalars import ScalarInput

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Interpreter", Args, Kwargs], Any]


# ---- operators and conversions -------------------------------------------------------------------
def _len(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        return protocol.length(machine, args[0])
    return machine.native(len, args, kwargs)


def _length_hint(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) in (1, 2) and not kwargs:
        if type(args[0]) is Generator and args[0].python_type is reversed:
            polyfill = iteration_polyfills.hint_of_reversed
            return Call(polyfill, (*args[0].left_of_reversed(), (*args, 0)[1]))
        if len(args) == 2:
            return Call(iteration_polyfills.length_hint_or, args)
        return Call(iteration_polyfills.length_hint, (args[0], 0))
    return machine.native(operator.length_hint, args, kwargs)


def _hint_of_reversed(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """What a `reversed` of C has left: of a sequence of C, it asks nobody."""
    asks_nobody = type(args[0]) is reversed and type(args[0].__reduce__()[1][0]) in ASKING_NOBODY
    if asks_nobody and len(args) == 1 and not kwargs:
        return machine.native(operator.length_hint, args, kwargs)
    return machine.native(HINT_OF_REVERSED, args, kwargs)


ASKING_NOBODY = (tuple, str, bytes, bytearray)
HINT_OF_REVERSED: Any = reversed.__length_hint__


def _truth(function: Callable[..., bool]) -> Handler:
    """`bool(x)` and the like."""

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 1 or kwargs:
            return machine.native(function, args, kwargs)
        if type(args[0]) in PROXIES:
            return machine.domain.unary("bool", args[0])
        return protocol.truth(machine, args[0])

    return handler


def _text(kind: str) -> Handler:
    function = str if kind == "str" else repr

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not kwargs:
            return protocol.text(machine, kind, args[0])
        return machine.native(function, args, kwargs)

    return handler


def _text_of_object(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`object.__str__(x)`, which asks the class of `x` for its `__repr__`."""
    if len(args) == 1 and not kwargs:
        return protocol.text(machine, "repr", args[0])
    return machine.native(object.__str__, args, kwargs)


def _unequal(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`object.__ne__(a, b)`, which asks the class of `a` for its `__eq__`."""
    if len(args) == 2 and not kwargs and attributes.is_python(machine, type(args[0]), "__eq__"):
        return Call(polyfills.unequal, args)
    return machine.native(object.__ne__, args, kwargs)


def _format(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if args and not kwargs:
        if not all(type(spec) in PROXIES or issubclass(type(spec), str) for spec in args[1:]):
            return format(None, *args[1:])  # which C refuses before it asks the object
        return protocol.format_value(machine, args[0], args[1] if len(args) > 1 else "")
    return machine.native(format, args, kwargs)


def _hash(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        if type(args[0]) in PROXIES:
            return machine.domain.unary("hash", args[0])
        if attributes.is_python(machine, type(args[0]), "__hash__"):
            return Call(polyfills.hash_by_method, args)
        args = (protocol.plain_key(machine, args[0]),)
    return machine.native(hash, args, kwargs)


def _abs(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return (
        protocol.unary(machine, "abs", args[0])
        if len(args) == 1 and not kwargs
        else machine.native(abs, args, kwargs)
    )


def _unary_operator(sign: str) -> Handler:
    _, function = operators.UNARY[sign]

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 1 or kwargs:
            return machine.native(function, args, kwargs)
        return protocol.unary(machine, sign, *args)

    return handler


def _binary_operator(operation: operators.Operator) -> Handler:
    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 2 or kwargs:
            return machine.native(operation.function, args, kwargs)
        return protocol.binary(machine, operation, *args)

    return handler


def _comparison(sign: str) -> Handler:
    *_, function = operators.COMPARISONS[sign]

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 2 or kwargs:
            return machine.native(function, args, kwargs)
        return protocol.compare(machine, sign, *args)

    return handler


def _round(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if args and type(args[0]) in PROXIES:
        if len(args) == 1 and kwargs.keys() == {"ndigits"}:
            args, kwargs = (*args, kwargs["ndigits"]), {}
        if not kwargs and (len(args) == 1 or args[1:] == (None,)):
            return machine.domain.unary("round", args[0])
        return machine.native(round, args, kwargs)
    if args and attributes.is_python(machine, type(args[0]), "__round__"):
        round(0, *(None for _ in args[1:]), **dict.fromkeys(kwargs))  # or C refuses
        digits = [digits for digits in (*args[1:], *kwargs.values()) if digits is not None]
        return attributes.special(machine, args[0], "__round__", *digits)
    return machine.native(round, args, kwargs)


def _divmod(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and not kwargs:
        a, b = args
        if type(a) in PROXIES or type(b) in PROXIES:
            return machine.domain.binary("divmod", a, b)
        if attributes.is_python(machine, type(a), "__divmod__") or attributes.is_python(
            machine, type(b), "__rdivmod__"
        ):
            return Call(polyfills.binary_op, (a, b, "__divmod__", "__rdivmod__", None, "divmod()"))
    return machine.native(divmod, args, kwargs)


def _pow(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not kwargs and (len(args) == 2 or (len(args) == 3 and args[2] is None)):
        return protocol.binary(machine, operators.BINARY["**"], *args[:2])
    proxy = bool(args) and type(args[0]) in PROXIES
    if len(args) == 3 and not proxy and attributes.is_python(machine, type(args[0]), "__pow__"):
        return Call(polyfills.power_modulo, args)
    return machine.native(pow, args, kwargs)


def _index(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        if type(args[0]) in PROXIES:
            return machine.domain.unary("index", args[0])
        if protocol.asks_index(machine, type(args[0])):
            return Call(polyfills.index_by_method, args)
    return machine.native(operator.index, args, kwargs)


def _number(make: Any, op: str, polyfill: Any, methods: tuple[str, ...]) -> Handler:
    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
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


def _range(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    whole = tuple([machine.domain.unary("index", a) if type(a) in PROXIES else a for a in args])
    return machine.native(range, whole, kwargs)


def _slice(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """A slice holds whatever it is given, and looks into nothing."""
    proxies = any(type(arg) in PROXIES for arg in args)
    return slice(*args) if proxies and not kwargs else machine.native(slice, args, kwargs)


def _getitem(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`operator.getitem`: of a dict, what Python has; C code reads the rest."""
    if len(args) == 2 and issubclass(type(args[0]), dict) and not kwargs:
        return protocol.load_item(machine, *args)
    return machine.native(operator.getitem, args, kwargs)


def _item_written(function: Any, method: str, polyfill: Any) -> Handler:
    """`operator.setitem` and `operator.delitem`: of what the class says itself."""

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if args and not kwargs and attributes.is_python(machine, type(args[0]), method):
            return Call(polyfill, args)
        return machine.native(function, args, kwargs)

    return handler


def _dict_item(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`dict.__getitem__`, which asks for what is missing."""
    if len(args) == 2 and issubclass(type(args[0]), dict):
        if attributes.is_python(machine, type(args[0]), "__missing__"):
            return Call(polyfills.item_or_missing, args)
        if machine.recording and issubclass(type(args[0]), defaultdict):
            return protocol.recorded_default(machine, *args)
    return machine.native(dict.__getitem__, args, kwargs)


def _shown(name: str) -> Handler:
    """A method of a read-only proxy: that of the mapping that it shows."""
    method = vars(types.MappingProxyType)[name]

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        mapping = machine.heap.behind(args[0]) if machine.recording and args else NULL
        if mapping is NULL or mapping is args[0]:
            return machine.native(method, args, kwargs)
        return Call(getattr(type(mapping), name), (mapping, *args[1:]), kwargs)

    return handler


def _merged(method: Any, order: slice) -> Handler:
    """`__or__` or `__ror__` of a read-only proxy: `|` of the mapping that it shows."""

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if kwargs or len(args) != 2 or type(args[0]) is not types.MappingProxyType:
            return machine.native(method, args, kwargs)
        shown = machine.heap.behind if machine.recording else mapping_behind
        a, b = (shown(v) if type(v) is types.MappingProxyType else v for v in args[order])
        return protocol.binary(machine, operators.BINARY["|"], a, b)

    return handler


# ---- functools -----------------------------------------------------------------------------------
def _partial(machine: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    func, first, named = (field(fn) for field in PARTIAL_FIELDS.values())
    heap = machine.heap
    if machine.recording and not heap.is_created(fn):
        if any(
            machine.lookup(type(fn), n) is not vars(functools.partial)[n] for n in PARTIAL_FIELDS
        ):
            raise broken("unknown-call", f"a {bare_name(type(fn))} that hides what it holds")
        func = heap.attribute(fn, "func", func)
        first = heap.mirror(heap.attribute(fn, "args", first))
        named = heap.mirror(heap.attribute(fn, "keywords", named))
    if any(type(name) is not str for name in named):
        raise TypeError("keywords must be strings")
    return Call(func, (*first, *args), {**named, **kwargs})


def _partial_call(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`functools.partial.__call__`, as `super()` gives it."""
    if not args or not issubclass(type(args[0]), functools.partial):
        return machine.native(_PARTIAL_CALL, args, kwargs)
    return _partial(machine, args[0], args[1:], kwargs)


_COUNTS = frozenset({"cache_info", "cache_clear"})
"""What code names that looks at a cache: each call is to count as often as it is made."""


def _cached(machine: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """A function with `functools.lru_cache`: constants go to the cache, proxies past it."""
    if machine.recording and any(
        _COUNTS.intersection(f.code.code.co_names) for f in machine.frames()
    ):
        raise broken("unknown-call", "a cache whose calls the program counts")
    if not machine.recording:
        return machine.native(fn, args, kwargs)
    if machine.heap.is_created(fn):  # it calls its function again in each call of the program
        raise broken("unknown-call", "a cache that the program has made")
    given = (*args, *kwargs.values())
    if any(protocol.holds_proxy(arg) for arg in given):
        for arg in given if fn.cache_info().maxsize != 0 else ():
            _refuse_unhashable(machine, arg)
        wrapped = getattr(fn, "__wrapped__", None)
        if wrapped is None:  # `functools` has not put it there, or the program has taken it
            raise broken("unknown-call", "a cache that does not tell its function")
        if fn.cache_info().maxsize == 0:  # it keeps nothing
            return Call(wrapped, args, kwargs)
        if id(fn) in machine.heap.past_caches.called:
            raise broken("unknown-call", "a cache that calls its function once")
        return Call(cache_polyfills.call_past, (fn, wrapped, args, kwargs))
    result = machine.native(fn, args, kwargs)
    return machine.domain.remembered(fn, args, kwargs, result)


def _alias(machine: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """`list[int](...)`: a call of the class, which C then tells what was called."""
    origin = fn.__origin__
    if machine.recording and machine.domain.is_outside(fn):
        origin = machine.heap.attribute(fn, "__origin__", origin)
    return Call(class_polyfills.made_by_alias, (origin, fn, args, kwargs))


def calls_past(machine: Interpreter) -> list[Any]:
    """The caches whose functions are called in one of the frames."""
    code = cache_polyfills.call_past.__code__
    return [frame.locals[0] for frame in machine.frames() if frame.code.code is code]


def _substituting(name: str) -> Handler:
    """`pattern.sub` and `subn` with a function, which C calls for each match."""
    fn, method = vars(re.Pattern)[name], text_polyfills.SUBSTITUTIONS[name]

    def handler(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        given = dict(zip(("self", "repl", "string", "count"), args)) | kwargs
        count = given.get("count", 0)
        fits = given.keys() <= {"self", "repl", "string", "count"}
        if not machine.recording or not fits or len(args) + len(kwargs) != len(given):
            return machine.native(fn, args, kwargs)
        pattern, repl, text = (given.get(key) for key in ("self", "repl", "string"))
        if type(count) is not int or type(text) not in (str, bytes):
            return machine.native(fn, args, kwargs)
        if type(pattern) is not re.Pattern or type(repl) in PROXIES or not callable(repl):
            return machine.native(fn, args, kwargs)
        return Call(method, (pattern, repl, text, count))

    return handler


def _refuse_unhashable(machine: Interpreter, value: Any) -> None:
    """As the key of a cache is refused before the function is called."""
    cls = protocol.class_shown(machine, value)
    if cls is tuple:
        for item in value:
            _refuse_unhashable(machine, item)
    elif machine.lookup(cls, "__hash__") is None:
        hash(value)  # which C refuses in its own words


def _getter(polyfill: Any) -> Callable[[Interpreter, Any, Args, Kwargs], Any]:
    """`operator.itemgetter(...)(obj)` and the like: what they were made of is in their state."""

    def handler(machine: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
        if not machine.recording or len(args) != 1 or kwargs:
            return machine.native(fn, args, kwargs)
        make, state, *_ = fn.__reduce__()
        if type(make) is functools.partial:  # a methodcaller with named arguments
            return Call(polyfill, (args[0], make.args + state, make.keywords))
        return Call(polyfill, (args[0], state))

    return handler


# ---- intrinsics ----------------------------------------------------------------------------------
def _find(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    found = machine.lookup(*args)
    return ABSENT if found is NULL else found


def _bind(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    attribute, obj, cls = args
    if type(obj) in PROXIES and type(attribute) in attributes.C_FUNCTIONS:
        return machine.domain.getattr(obj, attribute.__name__)
    if type(attribute) in C_METHODS and not issubclass(cls, attribute.__objclass__):
        return functools.partial(attribute, obj)  # C does not bind it, and the call refuses
    return attributes.descriptor_get(machine, attribute, obj, cls, "")


def _bound_function(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """`function.__get__(obj, cls)`."""
    plain = not kwargs and len(args) in (2, 3) and type(args[0]) is types.FunctionType
    if plain and args[1] is not None:
        return types.MethodType(args[0], args[1])
    return machine.native(FUNCTION_GET, args, kwargs)


def _generic_getattr(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return attributes.generic_getattr(machine, args[0], type(args[0]), args[1])


def _is_subtype(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return any(base is args[1] for base in mro_of(args[0]))


def _has_identity(machine: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    a, b = args
    if a is b or (type(a) not in SYMBOLIC_NUMBERS and type(b) not in SYMBOLIC_NUMBERS):
        return True
    return _may_be_shared_nan(a) and _may_be_shared_nan(b)


def _may_be_shared_nan(value: Any) -> bool:
    """Two numbers that are one object are equal, but for NaN; a computed one is a new object."""
    if type(value) is ScalarValue:
        return value.kind is float and type(value.scalar) is ScalarInput
    return type(value) is float and value != value


def _global_name(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    globals_, builtins, name = args
    if machine.recording:
        return machine.heap.global_name(globals_, builtins, name)
    found = globals_.get(name, NULL)
    found = builtins.get(name, NULL) if found is NULL else found
    if found is NULL:
        raise NameError(f"name {name!r} is not defined", name=name)
    return found


def _native(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return machine.native(args[0], args[1:], kwargs)


def _remembered(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return answers.remember(machine.heap, *args) if machine.recording else args[2]


def _sorts(machine: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    values, begins = args
    if not machine.recording:
        return False
    seen = machine.heap.mirror(values)
    if not begins:
        return machine.heap.sorting.end(seen)
    machine.heap.sorting.begin(seen)
    return False


def _past_cache(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return machine.domain.past_cache(*args) if machine.recording else None


def _created(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return machine.domain.created(args[0]) if machine.recording else args[0]


def _default(machine: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if machine.recording and len(args) == 2:
        return Call(polyfills.item_or_default, args)
    return machine.native(DEFAULT, args, kwargs)


DEFAULT = vars(defaultdict)["__missing__"]
_PARTIAL_CALL = vars(functools.partial)["__call__"]
FUNCTION_GET = vars(types.FunctionType)["__get__"]
PROXY_METHODS = (
    *("get", "keys", "values", "items", "copy", "__getitem__", "__contains__", "__len__"),
    *("__iter__", "__reversed__"),
)
TYPE_HANDLERS: dict[Any, Handler] = {
    **OBJECT_TYPES,
    **ITERATION_TYPES,
    bool: _truth(bool),
    str: _text("str"),
    object.__str__: _text_of_object,
    object.__ne__: _unequal,
    int: _number(int, "int", polyfills.int_by_method, ("__int__", "__index__", "__trunc__")),
    float: _number(float, "float", polyfills.float_by_method, ("__float__", "__index__")),
    range: _range,
    slice: _slice,
}

BUILTINS: dict[Any, Handler] = {
    **TYPE_HANDLERS,
    **OBJECT_BUILTINS,
    **DESCRIPTOR_BUILTINS,
    **EXCEPTION_BUILTINS,
    **ITERATION_BUILTINS,
    **ITERATOR_METHODS,
    len: _len,
    operator.length_hint: _length_hint,
    HINT_OF_REVERSED: _hint_of_reversed,
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
    operator.truth: _truth(operator.truth),
    dict.__getitem__: _dict_item,
    operator.getitem: _getitem,
    operator.setitem: _item_written(operator.setitem, "__setitem__", mapping_polyfills.item_stored),
    operator.delitem: _item_written(
        operator.delitem, "__delitem__", mapping_polyfills.item_deleted
    ),
    DEFAULT: _default,
    _PARTIAL_CALL: _partial_call,
    FUNCTION_GET: _bound_function,
    **{vars(types.MappingProxyType)[name]: _shown(name) for name in PROXY_METHODS},
    types.MappingProxyType.__or__: _merged(types.MappingProxyType.__or__, slice(None)),
    types.MappingProxyType.__ror__: _merged(types.MappingProxyType.__ror__, slice(None, None, -1)),
    **{op.function: _binary_operator(op) for op in operators.BINARY.values()},
    **{op.function: _binary_operator(op) for op in operators.INPLACE.values()},
    **{function: _comparison(sign) for sign, (_, _, function) in operators.COMPARISONS.items()},
    intrinsic_names.find: _find,
    intrinsic_names.bind: _bind,
    intrinsic_names.generic_getattr: _generic_getattr,
    intrinsic_names.has_identity: _has_identity,
    intrinsic_names.is_subtype: _is_subtype,
    intrinsic_names.global_name: _global_name,
    intrinsic_names.native: _native,
    intrinsic_names.raise_thrown: exception_opcodes.raise_thrown,
    intrinsic_names.sorts: _sorts,
    intrinsic_names.created: _created,
    intrinsic_names.past_cache: _past_cache,
    intrinsic_names.remembered: _remembered,
    **{vars(re.Pattern)[name]: _substituting(name) for name in text_polyfills.SUBSTITUTIONS},
}

# Objects of C classes that are called, by class.
OBJECT_CALLS: dict[type, Callable[[Interpreter, Any, Args, Kwargs], Any]] = {
    functools.partial: _partial,
    type(functools.lru_cache(len)): _cached,
    types.GenericAlias: _alias,
    operator.itemgetter: _getter(polyfills.items_of),
    operator.attrgetter: _getter(polyfills.attributes_of),
    operator.methodcaller: _getter(polyfills.method_of),
}

__all__ = ["BUILTINS", "CLASS_METHODS", "OBJECT_CALLS", "TYPE_HANDLERS", "Handler"]
