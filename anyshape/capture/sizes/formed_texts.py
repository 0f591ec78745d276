"""What `str`, `repr`, `format` and the like make of sizes: a text that is formed in each call.

In: a function of C that forms texts, and its arguments. Out: a `TextValue` (see
`interpreter/size_texts.py`), or a constant where the program looks into texts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.values import Formed, ScalarValue, SizeValue, TensorValue, TextValue
from anyshape.capture.interpreter.size_texts import is_shown, is_text, numbers_in
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.interrupts import is_interrupt

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


def shown(
    domain: RecordingDomain, function: str, value: Any, specification: str = ""
) -> TextValue | None:
    """What `str`, `repr` or `format` makes of it, where that is not known while capturing."""
    if function not in FUNCTIONS:
        return None
    if type(value) is TextValue and function != "repr" and not specification:
        return value
    rest = (specification,) if specification else ()
    if rest and type(value) is not TensorValue:  # its number is not there yet
        if not all(_is_formed(format, (value, *rest), {}, example) for example in EXAMPLES):
            return None
    made = Formed(FUNCTIONS[function], (_kept(domain, value), *rest))
    if (
        issubclass(type(value), (tuple, list, dict))
        or is_text(value)
        or not _is_known(domain, value)
    ):
        return TextValue((made,))
    if domain.forms_texts and type(value) in (SizeValue, ScalarValue):
        domain.has_formed = True
        return TextValue((made,))
    return None


def formed(domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function of `FORMERS` makes of sizes and texts: a `TextValue`, or a constant where
    the program looks into texts; NotImplemented where it is not known not to raise."""
    values = (*args, *kwargs.values())
    numbers = [number for value in values for number in numbers_in(value)]
    if not numbers or (fn in READ and type(args[0]) is not str):
        return NotImplemented
    if not all(is_shown(domain.machine, value) for value in values):
        return NotImplemented
    if not all(_is_formed(fn, args, kwargs, example) for example in EXAMPLES):
        return NotImplemented
    if all(_is_known(domain, number) and not is_text(number) for number in numbers):
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
        if is_text(value):
            return text
        return value.kind(number if type(value) is SizeValue else fraction)

    try:
        made = fn(
            *(_mapped(at, arg) for arg in args),
            **{key: _mapped(at, value) for key, value in kwargs.items()},
        )
    except Exception as error:
        if is_interrupt(error):
            raise
        return False
    return type(made) is str


def _constant(domain: RecordingDomain, fn: Any, value: Any) -> Any:
    """With the sizes in it as plain numbers, guarded."""
    return _mapped(lambda number: domain.concrete(number, fn), value)


def _kept(domain: RecordingDomain, value: Any) -> Any:
    """As it is now, whatever is written into it later."""
    kept = _mapped(lambda number: number, value)
    return domain.created(kept) if issubclass(type(kept), (list, dict)) else kept


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The same with each symbolic number and text in it replaced."""
    if type(value) in (SizeValue, ScalarValue) or is_text(value):
        return function(value)
    if issubclass(type(value), dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    if issubclass(type(value), list):
        return [_mapped(function, item) for item in value]
    if issubclass(type(value), tuple) and any(True for _ in numbers_in(value)):
        return type(value)([_mapped(function, item) for item in value])
    return value


def _is_known(domain: RecordingDomain, value: Any) -> bool:
    """Whether it can be decided, by a guard on what is known at entry."""
    if type(value) is SizeValue:
        return domain.recorder.hint_of(value.expr) is not None
    if type(value) is ScalarValue and value.kind is float:
        return domain.recorder.scalar_hint(value.scalar) is not None
    return True
