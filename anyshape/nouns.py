"""Classes of data: ``@frozen`` and ``@mutable``.

In: a class with annotated fields. Out: a dataclass with slots, for `dataclasses.fields` and
patterns as much as for a type checker; `replace` is that of `dataclasses`, with less work. The one
idea: methods of classes with equally many fields differ in names alone. So each is compiled once,
with numbers for names, and every class gets that code with its own names; `dataclass` compiles
three to seven functions for each of hundreds of classes, which was most of what importing the
compiler took.

``@frozen`` is ``dataclass(frozen=True)`` for a type checker, which refuses every assignment. At run
time nothing does: such an object is made in a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType
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
        cls = _with_fields(cls)
        hashes = eq and not _hashes_itself(cls)
        return _with_methods(cls, eq, _hash(cls) if hashes else MISSING)

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
        cls = _with_fields(cls, weakref_slot)
        return _with_methods(cls, eq, None if eq and not _hashes_itself(cls) else MISSING)

    return made if cls is None else made(cls)


def _with_fields(cls: type[T], weakref_slot: bool = False) -> type[T]:
    """A dataclass without methods."""
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # `dataclass` would take its signature apart for one
    bare = dataclass(init=False, repr=False, eq=False, slots=True, weakref_slot=weakref_slot)
    return bare(cls)


def _hashes_itself(cls: type) -> bool:
    """Whether the class defines its hash; Python writes None there for one that defines `==`."""
    own = cls.__dict__
    return "__hash__" in own and (own["__hash__"] is not None or "__eq__" not in own)


def _with_methods(cls: type[T], eq: bool, hashed: object) -> type[T]:
    """Adds the methods that the class does not define itself, and its hash, if one is given."""
    methods: dict[str, Callable[[Any], object]] = {"__init__": _init, "__repr__": _repr}
    if eq:
        methods["__eq__"] = _eq
    for name, make in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, make(cls))
    if hashed is not MISSING:
        cls.__hash__ = hashed  # type: ignore[method-assign, assignment]
    return cls


# --- the methods: in their texts, `_0` stands for the name of the first field, and so on ---


@cache
def _given_fields(cls: Any) -> tuple[tuple[str, ...], Callable[[object], tuple[object, ...]]]:
    """The fields that are handed to a class, and what reads them off an object."""
    names = tuple(one.name for one in fields(cls) if one.init)
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda noun: tuple(getattr(noun, name) for name in names)


def _init(cls: Any) -> FunctionType:
    """Arguments in the order of the fields; what has no argument and no default stays unset."""
    names = {f"_{at}": one.name for at, one in enumerate(fields(cls))}
    positional: list[tuple[str, Field[Any]]] = []
    by_name: list[tuple[str, Field[Any]]] = []
    lines: list[str] = []
    values: dict[str, object] = {"MISSING": MISSING}
    for number, one in zip(names, fields(cls)):
        if one.init:
            (by_name if one.kw_only else positional).append((number, one))
        lines += _assignment(number, one, values)
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ["self", *(number for number, _ in positional)]
    if by_name:
        arguments += ["*", *(number for number, _ in by_name)]
    init = _function(cls, "__init__", ", ".join(arguments), "; ".join(lines), names, values)
    init.__defaults__ = tuple(one.default for _, one in positional if _is_optional(one))
    init.__kwdefaults__ = {one.name: one.default for _, one in by_name if _is_optional(one)}
    return init


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
    compared = (one.name for one in fields(cls) if one.compare)
    names = {f"_{at}": name for at, name in enumerate(compared)}
    ours, theirs = ("".join(f"{of}.{name}, " for name in names) for of in ("self", "other"))
    text = f"return ({ours}) == ({theirs}) if other.__class__ is self.__class__ else NotImplemented"
    return _function(cls, "__eq__", "self, other", text, names, {})


def _hash(cls: Any) -> FunctionType:
    hashed = (one.name for one in fields(cls) if (one.compare if one.hash is None else one.hash))
    names = {f"_{at}": name for at, name in enumerate(hashed)}
    text = f"return hash(({''.join(f'self.{name}, ' for name in names)}))"
    return _function(cls, "__hash__", "self", text, names, {})


def _repr(cls: Any) -> Callable[[Any], str]:
    return _written


@recursive_repr()
def _written(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


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
