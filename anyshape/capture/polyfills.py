"""Algorithms with interpreted calls in their middle, written as the Python code that the interpreter runs for them.

Their frames are hidden: no tracebacks, no reads of globals recorded, and a fork or a break inside one is like anywhere else. They may
call the names of `intrinsics`, which native code may not. Where C code has an algorithm (sorted, min, zip, ...) that calls back into
the program, its Python twin is here.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

from anyshape.capture.intrinsics import (
    bind,
    created,
    find,
    generic_getattr,
    is_subtype,
    native,
    run_class_body,
)
from anyshape.capture.values import ABSENT

PYTHON = sys.version_info[:2]


def raise_it(error: Any) -> Any:
    raise error


def close_and_raise(delegate: Any, error: Any) -> Any:
    close = getattr(delegate, "close", None)
    if close is not None:
        close()
    raise error


def throw_into(delegate: Any, error: Any) -> Any:
    throw = getattr(delegate, "throw", None)
    if throw is None:
        raise error
    return throw(error)


def call_result(fn: Any, fn_args: Any, args: Any, kwargs: Any) -> Any:
    return fn(*fn_args)(*args, **kwargs)


# ---- attributes ---------------------------------------------------------------------------------------------------------------
def custom_getattr(obj: Any, name: Any) -> Any:
    cls = type(obj)
    try:
        return bind(find(cls, "__getattribute__"), obj, cls)(name)
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


def has_attribute(obj: Any, name: Any) -> Any:
    try:
        getattr(obj, name)
    except AttributeError:
        return False
    return True


# ---- operators ------------------------------------------------------------------------------------------------------------------
_SEQUENCES = (list, tuple, str, bytes, bytearray, range)


def binary_op(a: Any, b: Any, method: Any, reflected: Any, in_place: Any, sign: Any) -> Any:
    left, right = type(a), type(b)
    if in_place is not None:
        slot = find(left, in_place)
        if slot is not ABSENT and slot is not None:
            result = bind(slot, a, left)(b)
            if result is not NotImplemented:
                return result
    slot = find(left, method)
    other = find(right, reflected)
    last = ABSENT
    if slot is not ABSENT and getattr(slot, "__objclass__", None) in _SEQUENCES and sign in "+*":
        last, slot = slot, ABSENT  # sq_concat and sq_repeat come after the number slots
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
    if slot is not ABSENT and slot is not None:
        result = bind(slot, a, left)(b)
        if result is not NotImplemented:
            return result
    if other is not ABSENT and other is not None and left is not right:
        result = bind(other, b, right)(a)
        if result is not NotImplemented:
            return result
    if last is not ABSENT:
        return bind(last, a, left)(b)
    shown = sign if in_place is None else sign + "="
    if sign == "**" and in_place is None:
        shown = "** or pow()"
    raise TypeError(
        f"unsupported operand type(s) for {shown}: {left.__name__!r} and {right.__name__!r}"
    )


_PROXY_OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}


def proxy_right(a: Any, b: Any, method: Any, in_place: Any, sign: Any) -> Any:
    cls = type(a)
    for name in (in_place, method):
        slot = ABSENT if name is None else find(cls, name)
        if slot is not ABSENT and slot is not None:
            result = bind(slot, a, cls)(b)
            if result is not NotImplemented:
                return result
    raise TypeError(
        f"unsupported operand type(s) for {sign}: {cls.__name__!r} and {type(b).__name__!r}"
    )


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
    raise TypeError(
        f"{sign!r} not supported between instances of {left.__name__!r} and {right.__name__!r}"
    )


_object_ne = object.__ne__


def compare_by(a: Any, b: Any, cls: Any, method: Any) -> Any:
    slot = find(cls, method)
    if slot is ABSENT or slot is None:
        return NotImplemented
    if slot is _object_ne:
        result = bind(find(cls, "__eq__"), a, cls)(b)
        return result if result is NotImplemented else not result
    return bind(slot, a, cls)(b)


def sequence_compare(a: Any, b: Any, sign: Any) -> Any:
    for x, y in native(zip, a, b):
        if x is y or x == y:
            continue
        if sign == "==":
            return False
        if sign == "!=":
            return True
        return _ORDERINGS[sign](x, y)
    return _ORDERINGS[sign](native(len, a), native(len, b))


_ORDERINGS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


def dict_compare(a: Any, b: Any, sign: Any) -> Any:
    equal = native(len, a) == native(len, b)
    if equal:
        for key, value in native(dict.items, a):
            other = native(dict.get, b, key, ABSENT)
            if other is ABSENT or not (value is other or value == other):
                equal = False
                break
    return equal if sign == "==" else not equal


# ---- truth, length, containment -----------------------------------------------------------------------------------------------------
def truth_by_bool(value: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, "__bool__"), value, cls)()
    if not isinstance(result, bool):
        raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
    return result


def truth_by_len(value: Any) -> Any:
    return True if length_by_len(value) != 0 else False  # noqa: SIM210 - a proxy must become a bool


def length_by_len(value: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, "__len__"), value, cls)()
    if not isinstance(result, int):
        result = operator.index(result)
    if result < 0:
        raise ValueError("__len__() should return >= 0")
    return result


def contains_by_method(container: Any, item: Any) -> Any:
    cls = type(container)
    return True if bind(find(cls, "__contains__"), container, cls)(item) else False  # noqa: SIM210


def contains_by_iteration(container: Any, item: Any) -> Any:
    for value in container:
        if value is item or value == item:
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
    if native(dict.__contains__, obj, key):
        return native(dict.__getitem__, obj, key)
    cls = type(obj)
    return bind(find(cls, "__missing__"), obj, cls)(key)


# ---- iteration ----------------------------------------------------------------------------------------------------------------------
def iterator_by_iter(obj: Any) -> Any:
    cls = type(obj)
    iterator = bind(find(cls, "__iter__"), obj, cls)()
    if find(type(iterator), "__next__") is ABSENT:
        raise TypeError(f"iter() returned non-iterator of type {type(iterator).__name__!r}")
    return iterator


def iterator_by_getitem(obj: Any) -> Any:
    return items_until_index_error(obj)


def items_until_index_error(obj: Any) -> Any:
    index = 0
    while True:
        try:
            value = obj[index]
        except (IndexError, StopIteration):
            return
        yield value
        index += 1


def calls_until(fn: Any, sentinel: Any) -> Any:
    while True:
        try:
            value = fn()
        except StopIteration:
            return
        if value == sentinel:
            return
        yield value


def next_or_default(iterator: Any, default: Any) -> Any:
    try:
        return next(iterator)
    except StopIteration:
        return default


def list_of(iterable: Any) -> Any:
    cls = type(iterable)
    if find(cls, "__len__") is ABSENT and find(cls, "__length_hint__") is ABSENT:
        return elements_of(iterable)
    iterator = iter(iterable)
    length_hint(iterable, 0)  # as list() and tuple() ask before they take the first element
    return elements_of(iterator)


def elements_of(iterator: Any) -> Any:
    values = []
    for value in iterator:
        values.append(value)  # noqa: PERF402 - list() is what this implements
    return values


def length_hint(obj: Any, default: Any) -> Any:
    cls = type(obj)
    if find(cls, "__len__") is not ABSENT:
        try:
            return len(obj)
        except TypeError:
            pass
    hint = find(cls, "__length_hint__")
    if hint is ABSENT:
        return default
    result = bind(hint, obj, cls)()
    if result is NotImplemented:
        return default
    if not isinstance(result, int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(result).__name__}")
    if result < 0:
        raise ValueError("__length_hint__() should return >= 0")
    return result


def make_from_elements(make: Any, iterable: Any) -> Any:
    return created(make(elements_of(iterable)))


def make_from_list(make: Any, iterable: Any, *rest: Any, **kwargs: Any) -> Any:
    return created(make(list_of(iterable), *rest, **kwargs))


def fill_from_list(method: Any, receiver: Any, *iterables: Any) -> Any:
    return method(receiver, *[list_of(iterable) for iterable in iterables])


def fill_from_elements(method: Any, receiver: Any, *iterables: Any) -> Any:
    return method(receiver, *[elements_of(iterable) for iterable in iterables])


def delete_name(names: Any, name: Any) -> Any:
    try:
        del names[name]
        return
    except KeyError:
        pass
    raise NameError(f"name {name!r} is not defined", name=name)


def pairs_of(iterable: Any) -> Any:
    pairs = []
    position = 0
    for pair in iterable:
        parts = list_of(pair)
        if len(parts) != 2:
            raise ValueError(
                f"dictionary update sequence element #{position} has length {len(parts)}; 2 is required"
            )
        pairs.append(parts)
        position += 1
    return pairs


def mapping_pairs(mapping: Any) -> Any:
    return [(key, mapping[key]) for key in mapping.keys()]  # noqa: SIM118 - a mapping is what has keys()


def dict_of(make: Any, args: Any, kwargs: Any) -> Any:
    source = args[0]
    pairs = mapping_pairs(source) if hasattr(source, "keys") else pairs_of(source)
    return created(make(pairs, **kwargs))


def dict_update_from(method: Any, receiver: Any, source: Any, kwargs: Any) -> Any:
    pairs = mapping_pairs(source) if hasattr(source, "keys") else pairs_of(source)
    return method(receiver, pairs, **kwargs)


def zip_of(iterables: Any, strict: Any) -> Any:
    iterators = [iter(iterable) for iterable in iterables]
    if not iterators:
        return
    while True:
        row = []
        for iterator in iterators:
            value = next(iterator, ABSENT)
            if value is ABSENT:
                if strict:
                    check_zip_ends(iterators, len(row))
                return
            row.append(value)
        yield native(tuple, row)


def check_zip_ends(iterators: Any, position: Any) -> Any:
    if position:
        plural = "argument 1" if position == 1 else f"arguments 1-{position}"
        raise ValueError(f"zip() argument {position + 1} is shorter than {plural}")
    for index in range(1, len(iterators)):
        if next(iterators[index], ABSENT) is not ABSENT:
            plural = "argument 1" if index == 1 else f"arguments 1-{index}"
            raise ValueError(f"zip() argument {index + 1} is longer than {plural}")


def enumerate_of(iterable: Any, start: Any) -> Any:
    for value in iterable:
        yield start, value
        start = start + 1


def map_of(fn: Any, *iterables: Any) -> Any:
    if len(iterables) == 1:
        for value in iterables[0]:
            yield fn(value)
    else:
        for values in zip(*iterables, strict=False):
            yield fn(*values)


def filter_of(fn: Any, iterable: Any) -> Any:
    for value in iterable:
        if value if fn is None or fn is bool else fn(value):
            yield value


def reversed_of(obj: Any, length: Any) -> Any:
    index = length - 1
    while index >= 0:
        yield obj[index]
        index -= 1


def reduce_of(fn: Any, iterable: Any, initial: Any) -> Any:
    iterator = iter(iterable)
    if initial is ABSENT:
        initial = next(iterator, ABSENT)
        if initial is ABSENT:
            raise TypeError("reduce() of empty iterable with no initial value")
    for value in iterator:
        initial = fn(initial, value)
    return initial


def any_of(iterable: Any) -> Any:
    for value in iterable:
        if value:
            return True
    return False


def all_of(iterable: Any) -> Any:
    for value in iterable:
        if not value:
            return False
    return True


def sum_of(iterable: Any, start: Any) -> Any:
    if isinstance(start, str):
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    total = start
    for value in iterable:
        total = total + value
    return total


def extreme_of(name: Any, values: Any, key: Any, default: Any, better: Any) -> Any:
    best = best_key = ABSENT
    for value in values:
        value_key = value if key is None else key(value)
        if best is ABSENT or better(value_key, best_key):
            best, best_key = value, value_key
    if best is not ABSENT:
        return best
    if default is ABSENT:
        raise ValueError(f"{name}() {_EMPTY}")
    return default


_EMPTY = "arg is an empty sequence" if PYTHON < (3, 12) else "iterable argument is empty"


def sorted_of(iterable: Any, key: Any, reverse: Any) -> Any:
    values = list_of(iterable)
    sort_in_place(values, key, reverse)
    return created(values)


def sort_in_place(values: Any, key: Any, reverse: Any) -> Any:
    keys = values if key is None else [key(value) for value in values]
    order = native(list, native(range, len(values)))
    if reverse:
        order.reverse()
    order = merge_sorted(order, keys)
    if reverse:
        order.reverse()
    values[:] = [values[index] for index in order]


def merge_sorted(order: Any, keys: Any) -> Any:
    """Stable merge sort of indices by `keys[index]`, with `<` only."""
    count = len(order)
    if count < 2:
        return order
    left = merge_sorted(order[: count // 2], keys)
    right = merge_sorted(order[count // 2 :], keys)
    merged = []
    i = j = 0
    while i < len(left) and j < len(right):
        if keys[right[j]] < keys[left[i]]:
            merged.append(right[j])
            j += 1
        else:
            merged.append(left[i])
            i += 1
    merged.extend(left[i:])
    merged.extend(right[j:])
    return merged


def join_of(separator: Any, iterable: Any) -> Any:
    return separator.join(list_of(iterable))


# ---- conversions --------------------------------------------------------------------------------------------------------------------
def text_by_method(value: Any, method: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, method), value, cls)()
    if not isinstance(result, str):
        raise TypeError(f"{method} returned non-string (type {type(result).__name__})")
    return result


def format_by_method(value: Any, spec: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, "__format__"), value, cls)(spec)
    if not isinstance(result, str):
        raise TypeError(f"__format__ must return a str, not {type(result).__name__}")
    return result


def hash_by_method(value: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, "__hash__"), value, cls)()
    if not isinstance(result, int):
        raise TypeError("__hash__ method should return an integer")
    return native(hash, result)


def index_by_method(value: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, "__index__"), value, cls)()
    if not isinstance(result, int):
        raise TypeError(f"__index__ returned non-int (type {type(result).__name__})")
    return result


def int_by_method(make: Any, value: Any, method: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, method), value, cls)()
    if not isinstance(result, int):
        raise TypeError(f"{method} returned non-int (type {type(result).__name__})")
    return make(result)


def float_by_method(make: Any, value: Any, method: Any) -> Any:
    cls = type(value)
    result = bind(find(cls, method), value, cls)()
    if method == "__float__" and not isinstance(result, float):
        raise TypeError(
            f"{cls.__name__}.__float__ returned non-float (type {type(result).__name__})"
        )
    return make(result)


# ---- classes ------------------------------------------------------------------------------------------------------------------------
def construct(cls: Any, new: Any, args: Any, kwargs: Any) -> Any:
    obj = created(new(cls, *args, **kwargs))
    kind = type(obj)
    if is_subtype(kind, cls):
        initialise = find(kind, "__init__")
        if bind(initialise, obj, kind)(*args, **kwargs) is not None:
            raise TypeError("__init__() should return None")
    return obj


def construct_by_metaclass(cls: Any, args: Any, kwargs: Any) -> Any:
    meta = type(cls)
    return bind(find(meta, "__call__"), cls, meta)(*args, **kwargs)


def build_class(body: Any, name: Any, bases: Any, metaclass: Any, kwargs: Any) -> Any:
    resolved = resolve_bases(bases)
    if metaclass is ABSENT:
        metaclass = type(resolved[0]) if resolved else type
    if isinstance(metaclass, type):
        for base in resolved:
            candidate = type(base)
            if is_subtype(metaclass, candidate):
                continue
            if is_subtype(candidate, metaclass):
                metaclass = candidate
                continue
            raise TypeError(
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass "
                "of the metaclasses of all its bases"
            )
    prepare = getattr(metaclass, "__prepare__", None)
    namespace = {} if prepare is None else prepare(name, resolved, **kwargs)
    cell = run_class_body(body, namespace)
    if resolved is not bases:
        namespace["__orig_bases__"] = bases
    cls = metaclass(name, resolved, namespace, **kwargs)
    if cell is not None and isinstance(cls, type):
        try:
            filled = cell.cell_contents
        except ValueError:
            raise RuntimeError(
                f"__class__ not set defining {name!r} as {cls!r}. Was __classcell__ propagated to type.__new__?"
            ) from None
        if filled is not cls:
            raise TypeError(f"__class__ set to {filled!r} defining {name!r} as {cls!r}")
    return cls


def resolve_bases(bases: Any) -> Any:
    resolved = []
    changed = False
    for base in bases:
        entries = None if isinstance(base, type) else getattr(base, "__mro_entries__", None)
        if entries is None:
            resolved.append(base)
            continue
        replacement = entries(bases)
        if not isinstance(replacement, tuple):
            raise TypeError("__mro_entries__ must return a tuple")
        resolved.extend(replacement)
        changed = True
    return native(tuple, resolved) if changed else bases


def instance_check(obj: Any, cls: Any) -> Any:
    meta = type(cls)
    return True if bind(find(meta, "__instancecheck__"), cls, meta)(obj) else False  # noqa: SIM210


def subclass_check(sub: Any, cls: Any) -> Any:
    meta = type(cls)
    return True if bind(find(meta, "__subclasscheck__"), cls, meta)(sub) else False  # noqa: SIM210


def isinstance_any(obj: Any, classes: Any) -> Any:
    for cls in classes:
        if isinstance(obj, cls):
            return True
    return False


def issubclass_any(sub: Any, classes: Any) -> Any:
    for cls in classes:
        if issubclass(sub, cls):
            return True
    return False


# ---- statements ---------------------------------------------------------------------------------------------------------------------
def enter_context(manager: Any, enter: Any) -> Any:
    return bind(enter, manager, type(manager))()


def unpack_list(iterable: Any, count: Any) -> Any:
    """At most `count + 1` values, as UNPACK_SEQUENCE takes them."""
    values = []
    iterator = iter(iterable)
    while len(values) <= count:
        value = next(iterator, ABSENT)
        if value is ABSENT:
            break
        values.append(value)
    return values


def match_keys(subject: Any, keys: Any) -> Any:
    """The values for a mapping pattern, or None where a key is missing."""
    values = []
    get = subject.get
    for key in keys:
        value = get(key, ABSENT)
        if value is ABSENT:
            return None
        values.append(value)
    return native(tuple, values)


def not_contained(container: Any, item: Any) -> Any:
    return False if item in container else True  # noqa: SIM211 - `not in` would come back here


def dict_from_mapping(mapping: Any) -> Any:
    values = {}
    for key in mapping.keys():  # noqa: SIM118 - a mapping is what has keys()
        values[key] = mapping[key]
    return values


def convert_and_format(conversion: Any, value: Any, spec: Any) -> Any:
    if conversion == "str":
        text = str(value)
    elif conversion == "repr":
        text = repr(value)
    else:
        text = ascii(value)
    return native(format, text, spec) if spec else text


def match_class(subject: Any, cls: Any, count: Any, names: Any) -> Any:
    """The attributes that a class pattern binds, or None."""
    if not isinstance(cls, type):
        raise TypeError(f"called match pattern must be a {_CLASS_WORD}")
    if not isinstance(subject, cls):
        return None
    values = []
    seen = set()
    if count:
        wanted = getattr(cls, "__match_args__", ABSENT)
        itself = wanted is ABSENT and native(matches_itself, cls)
        if wanted is ABSENT:
            wanted = ()
        if not isinstance(wanted, tuple):
            raise TypeError(
                f"{cls.__name__}.__match_args__ must be a tuple (got {type(wanted).__name__})"
            )
        allowed = 1 if itself else len(wanted)
        if allowed < count:
            plural = "" if allowed == 1 else "s"
            raise TypeError(
                f"{cls.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)"
            )
        if itself:
            values.append(subject)
        else:
            for name in wanted[:count]:
                if not isinstance(name, str):
                    raise TypeError(
                        f"__match_args__ elements must be strings (got {type(name).__name__})"
                    )
                if name in seen:
                    raise TypeError(
                        f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}"
                    )
                seen.add(name)
                value = getattr(subject, name, ABSENT)
                if value is ABSENT:
                    return None
                values.append(value)
    for name in names:
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        value = getattr(subject, name, ABSENT)
        if value is ABSENT:
            return None
        values.append(value)
    return native(tuple, values)


_CLASS_WORD = "type" if PYTHON < (3, 12) else "class"
_MATCHES_ITSELF = 1 << 22


def matches_itself(cls: Any) -> bool:
    """Whether a class pattern's one positional sub-pattern is the subject itself (int, str, list, ...)."""
    return bool(cls.__flags__ & _MATCHES_ITSELF)


def raise_from(error: Any, cause: Any) -> Any:
    made = error()
    raise made from cause


def none_after(fn: Any, args: Any) -> Any:
    fn(*args)


def vars_of(obj: Any) -> Any:
    try:
        return obj.__dict__
    except AttributeError:
        pass
    raise TypeError("vars() argument must have __dict__ attribute")


def dir_by_method(obj: Any) -> Any:
    cls = type(obj)
    return sorted(bind(find(cls, "__dir__"), obj, cls)())


def reversed_by_getitem(obj: Any) -> Any:
    return reversed_of(obj, len(obj))
