"""Classes of data: ``@frozen`` and ``@mutable``.

In: a class with annotated fields. Out: a dataclass with slots, for `dataclasses.fields` and
patterns as much as for a type checker; `replace` is that of `dataclasses`, with less work. Two
ideas, as `dataclass` compiles three to seven functions for each of hundreds of classes, of which a
program uses a part: what is made of the fields is made where it is first asked for, and then stands
in the class like any method; and methods of classes with equally many fields, which differ in names
alone, are compiled once, with numbers for names, and every class gets that code with its own names.

``@frozen`` is ``dataclass(frozen=True)`` for a type checker, which refuses every assignment. At run
time nothing does: such an object is made in a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(noun: T, /, **changes: object) -> T:
        """One like the noun, made anew with some fields changed."""
        names, values = _given_fields(noun.__class__)
        return noun.__class__(**{**dict(zip(names, values(noun))), **changes})


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T], /) -> type[T]: ...


@overload
def frozen(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


def frozen(cls: type[T] | None = None, /, *, eq: bool = True) -> Any:
    """``eq``: objects with equal fields are equal; else each is equal to itself alone."""

    def made(cls: type[T]) -> type[T]:
        methods = {"__hash__": _Made(_hash)} if eq and not _hashes_itself(cls) else {}
        return _noun(cls, eq, methods)

    return made if cls is None else made(cls)


@overload
@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T], /) -> type[T]: ...


@overload
def mutable(*, eq: bool = True, weakref_slot: bool = False) -> Callable[[type[T]], type[T]]: ...


def mutable(cls: type[T] | None = None, /, *, eq: bool = True, weakref_slot: bool = False) -> Any:
    """``eq``: objects with equal fields are equal, and none has a hash; ``weakref_slot``: there may
    be weak references to them."""

    def made(cls: type[T]) -> type[T]:
        methods = {"__hash__": None} if eq and not _hashes_itself(cls) else {}
        return _noun(cls, eq, methods, weakref_slot)

    return made if cls is None else made(cls)


def _hashes_itself(cls: type) -> bool:
    """Whether the class defines its hash; Python writes None there for one that defines `==`."""
    own = cls.__dict__
    return "__hash__" in own and (own["__hash__"] is not None or "__eq__" not in own)


def _noun(
    cls: Any, eq: bool, methods: Mapping[str, object], weakref_slot: bool = False
) -> type[Any]:
    """The class once more, with slots for its fields and with the methods that it does not define
    itself."""
    own = dict(cls.__dict__)
    values = {name: own.pop(name, MISSING) for name in _own_fields(cls)}
    for name, value in values.items():
        default = value.default if isinstance(value, Field) else value
        if type(default).__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name} would be shared: use field(default_factory=)")
    own.pop("__dict__", None)
    own.pop("__weakref__", None)
    made: dict[str, object] = {"__init__": _Made(_init), "__repr__": _written}
    made |= {name: _Made(make) for name, make in _OF_DATACLASSES.items()}
    if eq:
        made["__eq__"] = _Made(_eq)
    slots, inherited = (*values, *["__weakref__"][:weakref_slot]), _inherited_slots(cls)
    made["__slots__"] = tuple(slot for slot in slots if slot not in inherited)
    made["__qualname__"] = cls.__qualname__
    made[_VALUES] = values
    return type(cls)(cls.__name__, cls.__bases__, {**made, **own, **methods})


def _inherited_slots(cls: type) -> set[str]:
    found: set[str] = set()
    for base in cls.__mro__[1:]:
        slots = vars(base).get("__slots__", ())
        found |= {slots} if isinstance(slots, str) else {*slots}
    return found


class _Made:
    """What a class has under this name, made where it is first asked for."""

    __slots__ = ("make", "name", "owner")
    name: str
    owner: Any

    def __init__(self, make: Callable[[Any], object]) -> None:
        self.make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, noun: object, cls: type | None = None) -> Any:
        made = self.make(self.owner)
        setattr(self.owner, self.name, made)
        return made.__get__(noun, cls) if isinstance(made, FunctionType) else made


def make_methods(cls: type) -> None:
    """Makes what the noun's methods are now, for who must not meet them being made later."""
    for name, value in [*vars(cls).items()]:
        if type(value) is _Made and name not in _FOR_OTHERS:
            getattr(cls, name)


# --- the fields ---

_VALUES = "__values_of_fields__"
"""A noun's own fields, with the default or the `field(...)` of each."""
_CLASSWIDE = ("ClassVar", "typing.ClassVar")
_REFUSED = ("InitVar", "dataclasses.InitVar", "KW_ONLY", "dataclasses.KW_ONLY")


def _own_fields(cls: type) -> Iterator[str]:
    """The names that the class itself annotates, but for variables of the class."""
    for name, annotation in vars(cls).get("__annotations__", {}).items():
        text = str(annotation)
        if text.startswith(_REFUSED):
            raise TypeError(f"{cls.__name__}.{name}: a noun has fields and class variables alone")
        if not text.startswith(_CLASSWIDE):
            yield name


@cache
def _fields(cls: Any) -> Mapping[str, Field[Any]]:
    """Every field of a noun, or of a plain dataclass, by its name; those of the bases first."""
    found: dict[str, Field[Any]] = {}
    for base in reversed(cls.__mro__):
        own = vars(base)
        if _VALUES in own:
            for name, value in own[_VALUES].items():
                found[name] = value if isinstance(value, Field) else field(default=value)
        elif "__dataclass_fields__" in own:
            found |= {one.name: one for one in fields(base)}
    return found


def _annotations(cls: Any) -> dict[str, object]:
    """What is written behind the name of each field."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        found |= vars(base).get("__annotations__", {})
    return {name: found[name] for name in _fields(cls)}


def _match_args(cls: Any) -> tuple[str, ...]:
    return tuple(name for name, one in _fields(cls).items() if one.init and not _is_keyword(one))


@cache
def _dataclass(cls: Any) -> Mapping[str, object]:
    """What `dataclasses` keeps of a class, made by itself of one with the same fields."""
    body = {"__annotations__": _annotations(cls), "__module__": cls.__module__, **_fields(cls)}
    same = dataclass(init=False, repr=False, eq=False, match_args=False)
    return vars(same(type(cls.__name__, (), {"__doc__": "", **body})))


_OF_DATACLASSES: Mapping[str, Callable[[Any], object]] = MappingProxyType(
    {
        "__match_args__": _match_args,
        "__dataclass_fields__": lambda cls: _dataclass(cls)["__dataclass_fields__"],
        "__dataclass_params__": lambda cls: _dataclass(cls)["__dataclass_params__"],
    }
)

_FOR_OTHERS = ("__dataclass_fields__", "__dataclass_params__")
"""What only functions of `dataclasses` ask for."""


# --- the methods: in their texts, `_0` stands for the name of the first field, and so on ---


@cache
def _given_fields(cls: Any) -> tuple[tuple[str, ...], Callable[[object], tuple[object, ...]]]:
    """The fields that are handed to a class, and what reads them off an object."""
    names = tuple(name for name, one in _fields(cls).items() if one.init)
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda noun: tuple(getattr(noun, name) for name in names)


def _init(cls: Any) -> FunctionType:
    """Arguments in the order of the fields; what has no argument and no default stays unset."""
    names = {f"_{at}": name for at, name in enumerate(_fields(cls))}
    positional: dict[str, Field[Any]] = {}
    by_name: dict[str, Field[Any]] = {}
    lines: list[str] = []
    values: dict[str, object] = {"MISSING": MISSING}
    for number, one in zip(names, _fields(cls).values()):
        if one.init:
            (by_name if _is_keyword(one) else positional)[number] = one
        lines += _assignment(number, one, values)
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    optional = [_is_optional(one) for one in positional.values()]
    if optional != sorted(optional):
        raise TypeError(f"{cls.__name__} has a field without a default behind one that has one")
    arguments = ["self", *positional, *(["*", *by_name] if by_name else ())]
    init = _function(cls, "__init__", ", ".join(arguments), "; ".join(lines), names, values)
    init.__defaults__ = tuple(one.default for one in positional.values() if _is_optional(one))
    init.__kwdefaults__ = {
        names[number]: one.default for number, one in by_name.items() if _is_optional(one)
    }
    return init


def _is_keyword(one: Field[Any]) -> bool:
    """Whether its argument is given by name alone; `field` leaves MISSING where nothing is said."""
    return one.kw_only is True


def _is_optional(one: Field[Any]) -> bool:
    """Whether its argument may be left out: the default is MISSING where one is made each time."""
    return one.default is not MISSING or one.default_factory is not MISSING


def _assignment(name: str, one: Field[Any], values: dict[str, object]) -> Iterator[str]:
    """The line that sets a field, if there is one; `values` gets what it is set to."""
    if one.default_factory is not MISSING:
        values[f"make{name}"] = one.default_factory
        made = f"make{name}()"
        yield f"self.{name} = {f'{made} if {name} is MISSING else {name}' if one.init else made}"
    elif one.init:
        yield f"self.{name} = {name}"
    elif one.default is not MISSING:
        values[f"default{name}"] = one.default
        yield f"self.{name} = default{name}"


def _eq(cls: Any) -> FunctionType:
    compared = (name for name, one in _fields(cls).items() if one.compare)
    names = {f"_{at}": name for at, name in enumerate(compared)}
    ours, theirs = ("".join(f"{of}.{name}, " for name in names) for of in ("self", "other"))
    text = f"return ({ours}) == ({theirs}) if other.__class__ is self.__class__ else NotImplemented"
    return _function(cls, "__eq__", "self, other", text, names, {})


def _hash(cls: Any) -> FunctionType:
    hashed = (
        name
        for name, one in _fields(cls).items()
        if (one.compare if one.hash is None else one.hash)
    )
    names = {f"_{at}": name for at, name in enumerate(hashed)}
    text = f"return hash(({''.join(f'self.{name}, ' for name in names)}))"
    return _function(cls, "__hash__", "self", text, names, {})


@recursive_repr()
def _written(self: Any) -> str:
    cls = self.__class__
    shown = (name for name, one in _fields(cls).items() if one.repr)
    return f"{cls.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _function(
    cls: type,
    name: str,
    arguments: str,
    text: str,
    names: Mapping[str, str],
    values: dict[str, object],
) -> FunctionType:
    """A method with the fields' own names; `values` are its globals."""
    code = _compiled(arguments, text or "pass")
    code = code.replace(
        co_name=name,
        co_qualname=f"{cls.__qualname__}.{name}",
        co_names=tuple(names.get(each, each) for each in code.co_names),
        co_varnames=tuple(names.get(each, each) for each in code.co_varnames),
    )
    return FunctionType(code, values, name)


@cache
def _compiled(arguments: str, text: str) -> CodeType:
    scope: dict[str, Any] = {}
    exec(f"def method({arguments}): {text}", scope)
    return scope["method"].__code__
