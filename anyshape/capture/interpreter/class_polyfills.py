"""Class statements, instance checks, class patterns, names taken from modules, what is called when
objects die, interpreted (see polyfills.py)."""

from __future__ import annotations

import copyreg
import sys
from types import ModuleType
from typing import Any

from anyshape.capture.heap.class_flags import MATCHES_ITSELF
from anyshape.capture.heap.raised_state import parts_from_the_last, split_by_answers
from anyshape.capture.heap.values import ABSENT
from anyshape.capture.interpreter.intrinsic_names import (
    bind,
    created,
    find,
    generic_getattr,
    is_subtype,
    native,
    run_class_body,
)
from anyshape.capture.interpreter.versions import VERSION

GROUP = BaseExceptionGroup
OBJECT_INIT = object.__init__
TYPE_GETATTRIBUTE = type.__getattribute__


def class_attribute_or_hook(cls: Any, name: Any, hook: Any) -> Any:
    try:
        return TYPE_GETATTRIBUTE(cls, name)
    except AttributeError:
        pass
    return bind(hook, cls, type(cls))(name)


def made_by_alias(origin: Any, alias: Any, args: Any, kwargs: Any) -> Any:
    """What `types.GenericAlias` makes when it is called; not all objects keep what made them."""
    made = origin(*args, **kwargs)
    try:
        made.__orig_class__ = alias
    except (AttributeError, TypeError):
        pass
    return made


def call_in_order(calls: Any) -> None:
    for fn, arg in calls:
        fn(arg)


def add_note(error: Any, note: Any) -> None:
    notes: Any = getattr(error, "__notes__", ABSENT)
    if notes is ABSENT:
        notes = []
        error.__notes__ = notes
    elif not is_subtype(type(notes), list):
        raise TypeError("Cannot add note: __notes__ is not a list")
    list.append(notes, note)


def split_by_predicate(method: Any, group: Any, predicate: Any) -> Any:
    """`group.split(predicate)` or `subgroup`: C asks of a group before its parts, and not of these
    where it takes the group as a whole."""
    answers: list[bool] = []
    todo = [group]
    while todo:
        part = todo.pop()
        taken = True if predicate(part) else False  # `bool` may be another one
        list.append(answers, taken)
        if not taken and is_subtype(type(part), GROUP):
            list.extend(todo, parts_from_the_last(part))
    return split_by_answers(method, group, answers)


def construct(cls: Any, new: Any, args: Any, kwargs: Any) -> Any:
    obj = created(new(cls, *args, **kwargs))
    kind = type(obj)
    if is_subtype(kind, cls):
        initialise = find(kind, "__init__")
        if initialise is OBJECT_INIT:  # it lets pass what a `__new__` of the class's own took
            return obj
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
    if is_subtype(type(metaclass), type):
        for base in resolved:
            candidate = type(base)
            if is_subtype(metaclass, candidate):
                continue
            if is_subtype(candidate, metaclass):
                metaclass = candidate
                continue
            raise TypeError(
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) "
                "subclass of the metaclasses of all its bases"
            )
    prepare = getattr(metaclass, "__prepare__", None)
    namespace = {} if prepare is None else prepare(name, resolved, **kwargs)
    if find(type(namespace), "__getitem__") is ABSENT:
        owner = metaclass.__name__ if is_subtype(type(metaclass), type) else "<metaclass>"
        kind = type(namespace).__name__
        raise TypeError(f"{owner}.__prepare__() must return a mapping, not {kind}")
    cell = run_class_body(body, namespace)
    if resolved is not bases:
        namespace["__orig_bases__"] = bases
    cls = metaclass(name, resolved, namespace, **kwargs)
    if cell is not None and is_subtype(type(cls), type):
        try:
            filled = cell.cell_contents
        except ValueError:
            raise RuntimeError(
                f"__class__ not set defining {name!r} as {cls!r}. "
                "Was __classcell__ propagated to type.__new__?"
            ) from None
        if filled is not cls:
            raise TypeError(f"__class__ set to {filled!r} defining {name!r} as {cls!r}")
    return cls


def resolve_bases(bases: Any) -> Any:
    resolved = []
    changed = False
    for base in bases:
        entries = None if is_subtype(type(base), type) else getattr(base, "__mro_entries__", None)
        if entries is None:
            resolved.append(base)
            continue
        replacement = entries(bases)
        if not is_subtype(type(replacement), tuple):
            raise TypeError("__mro_entries__ must return a tuple")
        resolved.extend(replacement)
        changed = True
    return native(tuple, resolved) if changed else bases


def instance_check(obj: Any, cls: Any) -> Any:
    meta = type(cls)
    return True if bind(find(meta, "__instancecheck__"), cls, meta)(obj) else False


def subclass_check(sub: Any, cls: Any) -> Any:
    meta = type(cls)
    return True if bind(find(meta, "__subclasscheck__"), cls, meta)(sub) else False


def instance_by_class(obj: Any, cls: Any, abstract: Any) -> Any:
    """`isinstance` of an object whose code says what its `__class__` is, which abstract classes ask
    first."""
    kind = type(obj)
    if not abstract and is_subtype(kind, cls):
        return True
    shown: Any = getattr(obj, "__class__", ABSENT)
    if is_subtype(type(shown), type) and shown is not kind and issubclass(shown, cls):
        return True
    return issubclass(kind, cls)


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


def match_keys(subject: Any, keys: Any) -> Any:
    """The values for a mapping pattern, or None where a key is missing."""
    values = []
    get, absent = subject.get, native(object)
    for key in keys:
        value = get(key, absent)
        if value is absent:
            return None
        values.append(value)
    return native(tuple, values)


def match_class(subject: Any, cls: Any, count: Any, names: Any) -> Any:
    """The attributes that a class pattern binds, or None."""
    if not is_subtype(type(cls), type):
        raise TypeError(f"called match pattern must be a {_CLASS_WORD}")
    if not isinstance(subject, cls):
        return None
    values = []
    if count:
        wanted = getattr(cls, "__match_args__", ABSENT)
        if wanted is ABSENT and native(matches_itself, cls):
            check_positional(cls, 1, count)
            values.append(subject)
            positional = ()
        else:
            positional = positional_names(cls, () if wanted is ABSENT else wanted, count)
        names = (*positional, *names)
    seen = set()
    for name in names:
        if not is_subtype(type(name), str):
            shown = type(name).__name__
            raise TypeError(f"__match_args__ elements must be strings (got {shown})")
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        value = getattr(subject, name, ABSENT)
        if value is ABSENT:
            return None
        values.append(value)
    return native(tuple, values)


def positional_names(cls: Any, wanted: Any, count: Any) -> Any:
    if not is_subtype(type(wanted), tuple):
        shown = type(wanted).__name__
        raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {shown})")
    check_positional(cls, len(wanted), count)
    return wanted[:count]


def check_positional(cls: Any, allowed: Any, count: Any) -> Any:
    if allowed < count:
        patterns = "sub-pattern" if allowed == 1 else "sub-patterns"
        raise TypeError(f"{cls.__name__}() accepts {allowed} positional {patterns} ({count} given)")


_CLASS_WORD = VERSION.class_word
UNWRAPS_CLASSES = VERSION.unwraps_classes


def matches_itself(cls: Any) -> bool:
    """Whether a class pattern's one positional sub-pattern is the subject itself (int, str, list,
    ...).
    """
    return bool(cls.__flags__ & MATCHES_ITSELF)


def get_cached(self: Any, instance: Any, owner: Any = None) -> Any:
    """`functools.cached_property.__get__` as of Python 3.12: without a lock."""
    if instance is None:
        return self
    if self.attrname is None:
        raise TypeError("Cannot use cached_property instance without calling __set_name__ on it.")
    kind, name = type(instance).__name__, self.attrname
    try:
        cache = instance.__dict__
    except AttributeError:
        text = f"No '__dict__' attribute on {kind!r} instance to cache {name!r} property."
        raise TypeError(text) from None
    found = cache.get(name, ABSENT)
    if found is ABSENT:
        found = self.func(instance)
        try:
            cache[name] = found
        except TypeError:
            text = f"The '__dict__' attribute on {kind!r} instance does not support item assignment"
            raise TypeError(f"{text} for caching {name!r} property.") from None
    return found


new_object = vars(copyreg)["__newobj__"]
new_object_ex = vars(copyreg)["__newobj_ex__"]


def reduce_object(obj: Any, slots: Any, asked: Any) -> Any:
    """`object.__reduce_ex__` of protocol 2 and above; `slots` are the names of its slots, in the
    order of `copyreg`. Where the class has a `__getattribute__` of its own, it is `asked`."""
    cls = type(obj)
    reduce: Any = getattr(obj, "__reduce__", ABSENT) if asked else ABSENT
    if find(cls, "__reduce__") is not object.__reduce__ and not (asked and reduce is ABSENT):
        return reduce() if asked else obj.__reduce__()
    made = arguments_of_new(obj, cls)
    if asked or find(cls, "__getstate__") is not object.__getstate__:
        state = obj.__getstate__()
    else:
        state = state_of(obj, slots)
    items = iter(obj) if is_subtype(cls, list) else None
    pairs = iter(obj.items()) if is_subtype(cls, dict) else None
    return (*made, state, items, pairs)


def arguments_of_new(obj: Any, cls: Any) -> Any:
    method = find(cls, "__getnewargs_ex__")
    if method is ABSENT:
        method = find(cls, "__getnewargs__")
        args = () if method is ABSENT else bind(method, obj, cls)()
        if not is_subtype(type(args), tuple):
            kind = type(args).__name__
            raise TypeError(f"__getnewargs__ should return a tuple, not '{kind}'")
        return new_object, (cls, *args)
    given = bind(method, obj, cls)()
    if not is_subtype(type(given), tuple):
        kind = type(given).__name__
        raise TypeError(f"__getnewargs_ex__ should return a tuple, not '{kind}'")
    if len(given) != 2:
        raise ValueError(f"__getnewargs_ex__ should return a tuple of length 2, not {len(given)}")
    args, kwargs = given
    if not is_subtype(type(args), tuple):
        kind = type(args).__name__
        text = "first item of the tuple returned by __getnewargs_ex__ must be a tuple"
        raise TypeError(f"{text}, not '{kind}'")
    if not is_subtype(type(kwargs), dict):
        kind = type(kwargs).__name__
        text = "second item of the tuple returned by __getnewargs_ex__ must be a dict"
        raise TypeError(f"{text}, not '{kind}'")
    return (new_object_ex, (cls, args, kwargs)) if kwargs else (new_object, (cls, *args))


def state_of(obj: Any, slots: Any) -> Any:
    try:
        state = generic_getattr(obj, "__dict__")  # C looks where it lies and asks nobody
    except AttributeError:
        state = None
    state = None if state is None or not len(state) else state
    slot_values = {}
    for name in slots:
        value = getattr(obj, name, ABSENT)
        if value is not ABSENT:
            slot_values[name] = value
    return (state, slot_values) if slot_values else state


def vars_of(obj: Any) -> Any:
    try:
        return obj.__dict__
    except AttributeError:
        pass
    raise TypeError("vars() argument must have __dict__ attribute")


def namespaces_compare(a: Any, b: Any, compare: Any) -> Any:
    """As C compares two `SimpleNamespace`s: by what they hold."""
    return compare(generic_getattr(a, "__dict__"), generic_getattr(b, "__dict__"))


def dir_of_names(names: Any) -> Any:
    keys = names.keys()
    if find(type(keys), "__iter__") is ABSENT and find(type(keys), "__getitem__") is ABSENT:
        owner, kind = type(names).__name__, type(keys).__name__
        raise TypeError(f"{owner}.keys() returned a non-iterable (type {kind})")
    return sorted(keys)


def names_in_object(obj: Any) -> Any:
    """As `object.__dir__` lists them: its own, then those of its class."""
    own = getattr(obj, "__dict__", {})
    names = dict.fromkeys(own if is_subtype(type(own), dict) else ())
    for name in type.__dir__(type(obj)):
        names[name] = None
    return list(names)


def dir_by_method(obj: Any) -> Any:
    cls = type(obj)
    return sorted(bind(find(cls, "__dir__"), obj, cls)())


# ---- modules -------------------------------------------------------------------------------------
def import_from(module: Any, name: Any) -> Any:
    """`from module import name`: a `__getattr__` of the module is asked once."""
    found = getattr(module, name, ABSENT)
    if found is not ABSENT:
        return found
    package = getattr(module, "__name__", None)
    named = is_subtype(type(package), str)
    if named:
        found = sys.modules.get(f"{package}.{name}", ABSENT)
    if found is not ABSENT:
        return found
    origin = module.__dict__.get("__file__") if is_subtype(type(module), ModuleType) else None
    origin = origin if is_subtype(type(origin), str) else None
    shown = package if named else "<unknown module name>"
    message = f"cannot import name {name!r} from {shown!r} ({origin or 'unknown location'})"
    raise ImportError(message, name=package, path=origin)


def imported(module: Any, args: Any) -> Any:
    """A loaded module whose `__getattr__` says whether it is a package."""
    return module if getattr(module, "__path__", ABSENT) is ABSENT else native(__import__, *args)


def unwrapped(func: Any, *, stop: Any = None) -> Any:
    """`inspect.unwrap`, which asks for ids of functions and for the limit of recursion."""
    chain = [func]
    found = func
    while _is_wrapper(found, stop):
        found = found.__wrapped__
        for known in chain:
            if known is found:
                raise ValueError(f"wrapper loop when unwrapping {func!r}")
        chain.append(found)
    return found


def _is_wrapper(found: Any, stop: Any) -> bool:
    if not UNWRAPS_CLASSES and isinstance(found, type):
        return False
    return hasattr(found, "__wrapped__") and (stop is None or not stop(found))
