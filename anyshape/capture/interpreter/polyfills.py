"""Algorithms with interpreted calls in their middle, written as the Python code that the
interpreter runs for them.

Their frames are hidden: no tracebacks, no reads of globals recorded, and a fork or a break inside
one is like anywhere else. They may call the names of `intrinsics`, which native code may not. Where
C code has an algorithm (sorted, zip, ...) that calls back into the program, its twin is here.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections import deque
from typing import Any

from anyshape.capture.heap.descriptions import class_name
from anyshape.capture.heap.values import ABSENT
from anyshape.capture.interpreter.continuations import NO_EXCEPTION_MADE
from anyshape.capture.interpreter.intrinsic_names import (
    bind,
    find,
    generic_getattr,
    has_identity,
    is_subtype,
    native,
    raise_thrown,
    remembered,
)
from anyshape.capture.interpreter.versions import VERSION

CHECKS_MADE_CAUSES = VERSION.checks_made_causes
UNRAISABLE = next(kind for kind in tuple.__subclasses__() if kind.__name__ == "UnraisableHookArgs")
"""What `sys.unraisablehook` is given: a class that no module has."""


def given(value: Any) -> Any:
    return value


def going_on(rest: Any) -> Any:
    return (yield from rest)


def given_by(rest: Any) -> Any:
    """The same for an iterator of C, whose StopIteration comes out as it is."""
    while True:
        yield next(rest)


def raise_it(error: Any) -> Any:
    raise error


def throw_it(error: Any, handled: Any) -> Any:
    raise_thrown(error, handled)


def raise_from(box: Any) -> Any:
    """Raises what lies in a box, and leaves it empty: the frames of whoever was called hold those
    that called them, and these the box."""
    raise_thrown(box.pop(), None)


def close_and_raise(delegate: Any, error: Any, handled: Any) -> Any:
    try:
        close = getattr(delegate, "close", None)
    except BaseException as failed:
        unraisable(failed, delegate)
        close = None
    if close is not None:
        try:
            close()
        except BaseException as raised:
            error = raised
    raise_thrown(error, handled)


def unraisable(error: Any, owner: Any) -> None:
    """An exception that nobody can be given."""
    report = (type(error), error, error.__traceback__, None, owner)
    sys.unraisablehook(native(UNRAISABLE, report))


def send_to(delegate: Any, value: Any) -> Any:
    return delegate.send(value)


def throw_into(delegate: Any, error: Any, handled: Any) -> Any:
    throw = getattr(delegate, "throw", None)
    if throw is None:
        raise_thrown(error, handled)
    try:
        return throw(error)
    except StopIteration:
        raise
    except BaseException as raised:
        raise_thrown(raised, handled)


def throw_made_of_parts(generator: Any, error: Any) -> Any:
    warn(
        "the (type, exc, tb) signature of throw() is deprecated, "
        "use the single-arg signature instead."
    )
    return generator.throw(error)


def call_result(fn: Any, fn_args: Any, args: Any, kwargs: Any) -> Any:
    return fn(*fn_args)(*args, **kwargs)


# ---- attributes ----------------------------------------------------------------------------------
def custom_getattr(obj: Any, name: Any) -> Any:
    cls = type(obj)
    try:
        value = bind(find(cls, "__getattribute__"), obj, cls)(name)
        return remembered(obj, name, value)
    except AttributeError:
        hook = find(cls, "__getattr__")
        if hook is ABSENT:
            raise
    return bind(hook, obj, cls)(name)


def getattr_or_hook(obj: Any, name: Any, hook: Any) -> Any:
    try:
        return generic_getattr(obj, name)
    except AttributeError:
        pass
    return bind(hook, obj, type(obj))(name)


def getattr_or_default(obj: Any, name: Any, default: Any) -> Any:
    try:
        return getattr(obj, name)
    except AttributeError:
        return default


def attribute_of_result(fn: Any, args: Any, name: Any) -> Any:
    return getattr(fn(*args), name)


def has_attribute(obj: Any, name: Any) -> Any:
    try:
        getattr(obj, name)
    except AttributeError:
        return False
    return True


# ---- operators -----------------------------------------------------------------------------------
def power_modulo(a: Any, b: Any, modulus: Any) -> Any:
    """``pow(a, b, modulus)`` of an object whose class says what that is."""
    result = bind(find(type(a), "__pow__"), a, type(a))(b, modulus)
    if result is NotImplemented and is_subtype(type(a), int) and int in (type(b), type(modulus)):
        result = native(int.__pow__, a, b, modulus)  # that of the other one
    if result is NotImplemented:
        names = ", ".join([repr(native(class_name, type(x))) for x in (a, b, modulus)])
        raise TypeError(f"unsupported operand type(s) for ** or pow(): {names}")
    return result


def binary_op(a: Any, b: Any, method: Any, reflected: Any, in_place: Any, sign: Any) -> Any:
    left, right = type(a), type(b)
    last = ABSENT  # sq_concat and sq_repeat come after the number slots
    if in_place is not None:
        slot = find(left, in_place)
        if _of_a_sequence(slot, sign) and (sign == "*" or _is_sequence(left)):
            last = slot
        elif slot is not ABSENT:
            result = bind(slot, a, left)(b)
            if result is not NotImplemented:
                return result
    slot = find(left, method)
    other = find(right, reflected)
    behind = other if _of_a_sequence(other, sign) else ABSENT  # which comes behind the left one's
    other = other if behind is ABSENT else ABSENT
    if _of_a_sequence(slot, sign) and not _is_in_python(find(left, reflected), sign):
        last = slot if last is ABSENT else last
        slot = ABSENT
    if (
        other is not ABSENT
        and left is not right
        and is_subtype(right, left)
        and other is not find(left, reflected)
    ):
        result = bind(other, b, right)(a)
        if result is not NotImplemented:
            return result
        other = ABSENT
    if slot is not ABSENT:
        result = bind(slot, a, left)(b)
        if result is not NotImplemented:
            return result
    if other is not ABSENT and left is not right:
        result = bind(other, b, right)(a)
        if result is not NotImplemented:
            return result
    if last is not ABSENT:
        return by_sequence(last, a, b, sign)
    if behind is not ABSENT:
        return by_sequence(behind, b, a, sign)
    return refuse_operands(left, right, sign if in_place is None else sign + "=")


def by_sequence(slot: Any, sequence: Any, other: Any, sign: Any) -> Any:
    """`+` and `*` of C's sequences, which look first whether they are repeated by a number."""
    if sign == "*" and find(type(other), "__index__") is ABSENT:
        raise TypeError(f"can't multiply sequence by non-int of type '{type(other).__name__}'")
    return bind(slot, sequence, type(sequence))(other)


def _of_a_sequence(slot: Any, sign: Any) -> Any:
    return sign in "+*" and _is_sequence(getattr(slot, "__objclass__", None))


def _is_in_python(slot: Any, sign: Any) -> Any:
    """Whether a class has a number slot of its own, by this method: C asks it before sequences."""
    return slot is not ABSENT and not _of_a_sequence(slot, sign)


def _is_sequence(cls: Any) -> Any:
    """Of C itself: a subclass has `+=` in a number slot. Without a loop: its turns would count as
    those of the program."""
    if cls is None or cls is ABSENT:
        return False
    if cls is list or cls is tuple or cls is str or cls is bytes:
        return True
    return cls is bytearray or cls is range or cls is deque


def proxy_right(a: Any, b: Any, methods: Any, reflected: Any, sign: Any) -> Any:
    cls = type(a)
    for name in methods:
        slot = find(cls, name)
        if slot is not ABSENT and slot is not None:
            result = bind(slot, a, cls)(b)
            if result is not NotImplemented:
                return result
    if find(cls, "__torch_function__") is not ABSENT:  # which a tensor asks
        other = find(type(b), reflected)
        if other is not ABSENT:
            result = bind(other, b, type(b))(a)
            if result is not NotImplemented:
                return result
    return refuse_operands(cls, type(b), sign)


def proxy_left(a: Any, b: Any, reflected: Any, sign: Any) -> Any:
    cls = type(b)
    result = bind(find(cls, reflected), b, cls)(a)
    return refuse_operands(type(a), cls, sign) if result is NotImplemented else result


def refuse_operands(left: Any, right: Any, sign: Any) -> Any:
    shown = "** or pow()" if sign == "**" else sign
    names = f"{native(class_name, left)!r} and {native(class_name, right)!r}"
    raise TypeError(f"unsupported operand type(s) for {shown}: {names}")


def compare_with_proxy(obj: Any, proxy: Any, method: Any, sign: Any, first: Any) -> Any:
    result = compare_by(obj, proxy, type(obj), method)
    if result is not NotImplemented:
        return result
    if sign == "==" or sign == "!=":
        return sign == "!="
    left, right = (obj, proxy) if first else (proxy, obj)
    names = f"{native(class_name, type(left))!r} and {native(class_name, type(right))!r}"
    raise TypeError(f"{sign!r} not supported between instances of {names}")


def rich_compare(a: Any, b: Any, method: Any, reflected: Any, sign: Any) -> Any:
    left, right = type(a), type(b)
    reflected_first = left is not right and is_subtype(right, left)
    if reflected_first:
        result = compare_by(b, a, right, reflected)
        if result is not NotImplemented:
            return result
    result = compare_by(a, b, left, method)
    if result is not NotImplemented:
        return result
    if not reflected_first:
        result = compare_by(b, a, right, reflected)
        if result is not NotImplemented:
            return result
    if sign == "==":
        return a is b
    if sign == "!=":
        return a is not b
    names = f"{native(class_name, left)!r} and {native(class_name, right)!r}"
    raise TypeError(f"{sign!r} not supported between instances of {names}")


_object_ne = object.__ne__


def compare_by(a: Any, b: Any, cls: Any, method: Any) -> Any:
    slot = find(cls, method)
    if slot is ABSENT:
        return NotImplemented
    if slot is _object_ne:
        return unequal(a, b)
    try:
        bound = bind(slot, a, cls)
    except BaseException:  # as `slot_tp_richcompare` has it
        return NotImplemented
    return bound(b)


def unequal(a: Any, b: Any) -> Any:
    result = compare_by(a, b, type(a), "__eq__")
    return result if result is NotImplemented else not result


def is_or_equals(a: Any, b: Any) -> Any:
    """Whether C code takes two elements for equal: they are one object, or `==` says so."""
    return (has_identity(a, b) and a is b) or a == b


def sequence_compare(a: Any, b: Any, sign: Any, item: Any = operator.getitem) -> Any:
    """Comparing two elements may change the sequences: their lengths are asked for each time. Lists
    of two lengths differ without a look at their elements, tuples do not."""
    equality = sign == "==" or sign == "!="
    if equality and is_subtype(type(a), list) and native(len, a) != native(len, b):
        return sign == "!="
    index = 0
    while index < native(len, a) and index < native(len, b):
        x, y = native(item, a, index), native(item, b, index)
        if not is_or_equals(x, y):
            break
        index += 1
    if index >= native(len, a) or index >= native(len, b):
        return _ORDERINGS[sign](native(len, a), native(len, b))
    if equality:
        return sign == "!="
    x, y = native(item, a, index), native(item, b, index)
    return _ORDERINGS[sign](x, y)


_ORDERINGS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


def dict_compare(a: Any, b: Any, sign: Any) -> Any:
    length = native(len, a)
    equal = length == native(len, b)
    if equal:
        at = 0
        for key, value in native(dict.items, a):
            at += 1
            equal = has_entry(b, key, value)
            if not equal or native(len, a) != length:
                break
        while equal and at < native(len, a) != length:  # as C, which goes on with what is new
            key, value = native(list, native(dict.items, a))[at]
            at += 1
            equal = has_entry(b, key, value)
    return equal if sign == "==" else not equal


def has_entry(table: Any, key: Any, value: Any) -> Any:
    other = native(dict.get, table, key, ABSENT)
    return True if other is not ABSENT and is_or_equals(value, other) else False


# ---- truth, length, containment ------------------------------------------------------------------
def asked(value: Any, method: Any, kind: Any, refusal: Any) -> Any:
    """What the method of the class answers, which must be of a kind."""
    cls = type(value)
    result = bind(find(cls, method), value, cls)()
    if not is_subtype(type(result), kind):
        raise TypeError(refusal.format(type(result).__name__))
    return result


def truth_by_bool(value: Any) -> Any:
    return asked(value, "__bool__", bool, "__bool__ should return bool, returned {}")


def truth_by_len(value: Any) -> Any:
    return True if length_by_len(value) != 0 else False


def length_by_len(value: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, "__len__"), value, cls)()
    if not is_subtype(type(result), int):
        result = operator.index(result)
    if result < 0:
        raise ValueError("__len__() should return >= 0")
    if result > sys.maxsize:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return result if type(result) is int else int(result)


def contains_by_method(container: Any, item: Any) -> Any:
    cls = type(container)
    return True if bind(find(cls, "__contains__"), container, cls)(item) else False


def contains_by_iteration(container: Any, item: Any) -> Any:
    for value in container:
        if is_or_equals(value, item):
            return True
    return False


def range_contains(values: Any, item: Any) -> Any:
    if native(len, values) == 0:
        return False
    ends = (values[0], values[-1]) if values.step > 0 else (values[-1], values[0])
    return ends[0] <= item and item <= ends[1] and (item - ends[0]) % values.step == 0


def item_by_index(obj: Any, key: Any) -> Any:
    return obj[operator.index(key)]


def item_or_missing(obj: Any, key: Any) -> Any:
    found = native(dict.get, obj, key, ABSENT)
    if found is not ABSENT:
        return found
    cls = type(obj)
    return bind(find(cls, "__missing__"), obj, cls)(key)


def item_or_default(obj: Any, key: Any) -> Any:
    factory = generic_getattr(obj, "default_factory")
    if factory is None:
        raise KeyError(key)
    value = factory()
    obj[key] = value
    return value


def items_of(obj: Any, keys: Any) -> Any:
    return obj[keys[0]] if len(keys) == 1 else tuple([obj[key] for key in keys])


def attributes_of(obj: Any, paths: Any) -> Any:
    found = []
    for path in paths:
        value = obj
        for name in path.split("."):
            value = getattr(value, name)
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


def method_of(obj: Any, call: Any, named: Any = None) -> Any:
    return getattr(obj, call[0])(*call[1:], **({} if named is None else named))


# ---- conversions ---------------------------------------------------------------------------------
def proxy_repr(mapping: Any) -> Any:
    return f"mappingproxy({mapping!r})"


def percent(text: Any, values: Any, kinds: Any) -> Any:
    shown = []
    for position in range(len(kinds)):
        kind, value = kinds[position], values[position]
        shown.append(str(value) if kind == "s" else repr(value) if kind == "r" else value)
    return native(operator.mod, text, tuple(shown))


def text_by_method(value: Any, method: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, method), value, cls)()
    if not is_subtype(type(result), str):
        raise TypeError(f"{method} returned non-string (type {type(result).__name__})")
    return result


def format_by_method(value: Any, spec: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, "__format__"), value, cls)(spec)
    if not is_subtype(type(result), str):
        raise TypeError(f"__format__ must return a str, not {type(result).__name__}")
    return result


def hash_by_method(value: Any) -> Any:
    result = asked(value, "__hash__", int, "__hash__ method should return an integer")
    number = exact(result, int)
    if not -(2**63) <= number < 2**63:  # only what is no C integer is hashed once more
        return native(hash, number)
    return -2 if number == -1 else number


def bytes_by_method(value: Any) -> Any:
    return asked(value, "__bytes__", bytes, "__bytes__ returned non-bytes (type {})")


def bytes_by_index(make: Any, value: Any) -> Any:
    return native(make, index_by_method(value))


def index_by_method(value: Any) -> Any:
    result = asked(value, "__index__", int, "__index__ returned non-int (type {})")
    warn_of_subclass(result, "__index__", int)
    return exact(result, int)


def exact(number: Any, kind: Any) -> Any:
    """The number as C copies it out of an object of a subclass, which is not asked."""
    if type(number) is kind:
        return number
    return native(int.__int__ if kind is int else float.__float__, number)


def int_by_method(make: Any, value: Any, method: Any) -> Any:
    cls = type(value)
    if method == "__trunc__":
        return make(truncated(value))
    result = bind(find(cls, method), value, cls)()
    if not is_subtype(type(result), int):
        raise TypeError(f"{method} returned non-int (type {type(result).__name__})")
    warn_of_subclass(result, method, int)
    return make(exact(result, int))


def truncated(value: Any) -> Any:
    cls = type(value)
    warn("The delegation of int() to __trunc__ is deprecated.")
    result = bind(find(cls, "__trunc__"), value, cls)()
    if is_subtype(type(result), int):
        return exact(result, int)
    kind = type(result)
    if find(kind, "__index__") is ABSENT:
        raise TypeError(f"__trunc__ returned non-Integral (type {kind.__name__})")
    return operator.index(result)


def warn_of_subclass(result: Any, method: Any, kind: Any) -> None:
    """C's own warning of a number of a subclass."""
    if type(result) is not kind:
        shown = type(result).__name__
        word = kind.__name__
        warn(
            f"{method} returned non-{word} (type {shown}).  The ability to return an instance of "
            f"a strict subclass of {word} is deprecated, and may not be supported in a future "
            "version of Python."
        )


def warn(text: Any) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=1)


def float_by_method(make: Any, value: Any, method: Any) -> Any:
    if method == "__index__":
        return make(index_by_method(value))
    cls = type(value)
    result = bind(find(cls, method), value, cls)()
    if not is_subtype(type(result), float):
        raise TypeError(
            f"{cls.__name__}.__float__ returned non-float (type {type(result).__name__})"
        )
    warn_of_subclass(result, f"{cls.__name__}.__float__", float)
    return make(exact(result, float))


# ---- statements ----------------------------------------------------------------------------------
def not_contained(container: Any, item: Any) -> Any:
    return False if item in container else True


def convert_and_format(conversion: Any, value: Any, spec: Any) -> Any:
    if conversion == "str":
        text = str(value)
    elif conversion == "repr":
        text = repr(value)
    else:
        text = ascii(value)
    return native(format, text, spec) if spec else text


def raise_with(error: Any, cause: Any) -> Any:
    made = error()
    raise made from cause


def raise_caused_by(error: Any, cause: Any) -> Any:
    made = cause()
    if CHECKS_MADE_CAUSES and not issubclass(type(made), BaseException):
        raise TypeError(NO_EXCEPTION_MADE.format(cause, type(made)))
    raise error from made


def none_after(fn: Any, args: Any) -> Any:
    fn(*args)
