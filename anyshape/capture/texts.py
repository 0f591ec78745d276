"""Texts with sizes in them: `f"{x.shape} after {n} steps"` for a warning, a print or a key.

It is formed in each call: `TextValue` says of what. It can be joined to other texts, padded, put
into a format, shown by a deferred effect, and returned; whatever looks into it ends the segment.
Where that is so, capture begins anew, and a text of sizes that were known at entry is a constant,
guarded by those sizes, as everything that native code looks into.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anyshape.capture.values import Formed, OpaqueValue, ScalarValue, SizeValue, TextValue

if TYPE_CHECKING:
    from anyshape.capture.machine import Machine
    from anyshape.capture.symbolic_domain import SymbolicDomain

PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})
FUNCTIONS: Mapping[str, Callable[..., str]] = {"str": str, "repr": repr, "format": format}
READ = frozenset({operator.mod, str.__mod__, str.format, str.format_map})
"""Of what they form, the first argument is looked into."""
METHODS: Mapping[str, Callable[..., str]] = {
    name: getattr(str, name)
    for name in (
        *("capitalize", "casefold", "center", "expandtabs", "ljust", "lower", "lstrip", "replace"),
        *("removeprefix", "removesuffix", "rjust", "rstrip", "strip", "swapcase", "title"),
        *("upper", "zfill", "__str__", "__format__"),
    )
}
"""What makes one text of another, whatever it is."""
FORMERS = READ | {
    *METHODS.values(),
    *(format, operator.mul, hex, bin, oct, ascii, object.__str__, int.__repr__, float.__repr__),
    *(int.__format__, float.__format__),
}
"""All that forms a text of texts and numbers, and does nothing else."""
EXAMPLES = ((7, 0.5, "ab"), (0, float("nan"), ""), (-1, float("inf"), "{%d}"))
"""Numbers and texts that what is formed later must not refuse."""


def are_texts(*values: Any) -> bool:
    """Whether all are texts, plain ones or such as are formed in each call."""
    return all(type(value) is str or _is_text(value) for value in values)


def _is_text(value: Any) -> bool:
    kind = type(value)
    return kind is TextValue or (kind is OpaqueValue and value.kind is str)


def joined(texts: Sequence[Any]) -> TextValue:
    """One text of several."""
    parts: list[Any] = []
    for text in texts:
        if type(text) is OpaqueValue:
            parts.append(Formed(str, (text,)))
        else:
            parts += text.parts if type(text) is TextValue else (text,)
    return TextValue(tuple(part for part in parts if part != ""))


def is_shown_later(machine: Machine, value: Any) -> bool:
    """Whether it is a container with sizes in it, which native code may not look into."""
    if not machine.recording or type(value).__repr__ not in SHOWN_BY_C:
        return False
    return _is_shown(machine, value) and any(True for _ in _numbers(value))


SHOWN_BY_C = frozenset({tuple.__repr__, list.__repr__, dict.__repr__})


def _is_shown(machine: Machine, value: Any) -> bool:
    """Only constants, symbolic numbers and texts, all the way down: the text is CPython's."""
    kind = type(value)
    if kind in PLAIN or kind in (SizeValue, ScalarValue) or _is_text(value):
        return True
    if kind in (list, dict) and not machine.heap.is_created(value):
        return False
    if kind is dict:
        plain = all(type(key) in PLAIN for key in value)
        return plain and all(_is_shown(machine, item) for item in value.values())
    if kind is list or (isinstance(value, tuple) and kind.__repr__ is tuple.__repr__):
        return all(_is_shown(machine, item) for item in value)
    return kind.__module__ == "torch" and isinstance(value, tuple)  # a size without symbols


def _numbers(value: Any) -> Iterator[Any]:
    """The symbolic numbers and texts in it."""
    if type(value) in (SizeValue, ScalarValue) or _is_text(value):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)


def shown(
    domain: SymbolicDomain, function: str, value: Any, specification: str = ""
) -> TextValue | None:
    """What `str`, `repr` or `format` makes of it, where that is not known while capturing."""
    if function not in FUNCTIONS:
        return None
    if type(value) is TextValue and function != "repr" and not specification:
        return value
    rest = (specification,) if specification else ()
    made = Formed(FUNCTIONS[function], (_kept(domain, value), *rest))
    if isinstance(value, (tuple, list, dict)) or _is_text(value) or not _is_known(domain, value):
        return TextValue((made,))
    if domain.forms_texts and type(value) in (SizeValue, ScalarValue):
        domain.has_formed = True
        return TextValue((made,))
    return None


def formed(domain: SymbolicDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function of `FORMERS` makes of sizes and texts: a `TextValue`, or a constant where
    the program looks into texts; NotImplemented where it is not known not to raise."""
    values = (*args, *kwargs.values())
    numbers = [number for value in values for number in _numbers(value)]
    if not numbers or (fn in READ and type(args[0]) is not str):
        return NotImplemented
    if not all(_is_shown(domain.machine, value) for value in values):
        return NotImplemented
    if not all(_is_formed(fn, args, kwargs, example) for example in EXAMPLES):
        return NotImplemented
    if all(_is_known(domain, number) and not _is_text(number) for number in numbers):
        if not domain.forms_texts:
            known = {key: _constant(domain, fn, value) for key, value in kwargs.items()}
            return fn(*(_constant(domain, fn, value) for value in args), **known)
        domain.has_formed = True
    kept = {key: _kept(domain, value) for key, value in kwargs.items()}
    return TextValue((Formed(fn, tuple([_kept(domain, value) for value in args]), kept),))


def _is_formed(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], example: tuple[int, float, str]
) -> bool:
    """Whether it is a text, of these numbers and texts."""
    number, fraction, text = example

    def at(value: Any) -> Any:
        if _is_text(value):
            return text
        return number if type(value) is SizeValue else value.kind(fraction)

    try:
        made = fn(
            *(_mapped(at, arg) for arg in args),
            **{key: _mapped(at, value) for key, value in kwargs.items()},
        )
    except Exception:
        return False
    return type(made) is str


def _constant(domain: SymbolicDomain, fn: Any, value: Any) -> Any:
    """With the sizes in it as plain numbers, guarded."""
    return _mapped(lambda number: domain.concrete(number, fn), value)


def _kept(domain: SymbolicDomain, value: Any) -> Any:
    """As it is now, whatever is written into it later."""
    kept = _mapped(lambda number: number, value)
    return domain.created(kept) if isinstance(kept, (list, dict)) else kept


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The same with each symbolic number and text in it replaced."""
    if type(value) in (SizeValue, ScalarValue) or _is_text(value):
        return function(value)
    if isinstance(value, dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(function, item) for item in value]
    if isinstance(value, tuple) and any(True for _ in _numbers(value)):
        return type(value)([_mapped(function, item) for item in value])
    return value


def _is_known(domain: SymbolicDomain, value: Any) -> bool:
    """Whether it can be told, by a guard on what is known at entry."""
    if type(value) is SizeValue:
        return domain.recorder.hint_of(value.expr) is not None
    if type(value) is ScalarValue and value.kind is float:
        return domain.recorder.scalar_hint(value.scalar) is not None
    return True
