"""Texts of containers, of `str.format` and `re.sub`, interpreted (polyfills.py): their parts are
asked for theirs one after the other, as C does."""

from __future__ import annotations

from typing import Any

from anyshape.capture.interpreter.intrinsic_names import native


def format_fields(fields: Any) -> Any:
    """`text.format(...)`, cut into texts and what stands between them."""
    text = ""
    for literal, value, conversion, spec in fields:
        text = text + literal
        if conversion is not None:
            value = repr(value) if conversion == "r" else str(value) if conversion else value
            text = text + format(value, spec)
    return text


def percent_of(text: Any, values: Any) -> Any:
    """`text % values` of what lies in an object of a subclass of `tuple`, whose methods C does not
    ask."""
    return text % values


def repr_of_list(values: Any) -> Any:
    parts: list[Any] = []
    while len(parts) < native(len, values):
        parts.append(repr(native(list.__getitem__, values, len(parts))))
    return "[" + ", ".join(parts) + "]"


def repr_of_tuple(values: Any) -> Any:
    parts = [repr(value) for value in native(list, values)]
    return "(" + ", ".join(parts) + (",)" if len(parts) == 1 else ")")


def repr_of_dict(values: Any) -> Any:
    parts = []
    for key, value in [*values.items()]:
        parts.append(": ".join([repr(key), repr(value)]))
    return "{" + ", ".join(parts) + "}"


def repr_of_set(values: Any) -> Any:
    parts = [repr(value) for value in native(list, values)]
    return "{" + ", ".join(parts) + "}"


def repr_of_frozenset(values: Any) -> Any:
    parts = [repr(value) for value in native(list, values)]
    return "frozenset({" + ", ".join(parts) + "})"


def show_one_by_one(show: Any, values: Any, asked: Any, separator: Any, end: Any) -> None:
    for index, value in enumerate(values):
        if index:
            show(separator, end="")
        show(str(value) if asked[index] else value, end="")
    show(end=end)


def substitute(pattern: Any, function: Any, text: Any, count: Any) -> Any:
    return substitute_counted(pattern, function, text, count)[0]


def substitute_counted(pattern: Any, function: Any, text: Any, count: Any) -> Any:
    """Between what `function` makes of the matches lies what does not match."""
    parts = []
    end = done = 0
    for match in native(list, pattern.finditer(text)):
        if count and done >= count:
            break
        first, last = match.span()
        if end < first:
            parts.append(text[end:first])
        made = function(match)
        if made is not None:
            parts.append(made)
        end = last
        done += 1
    if end < len(text):
        parts.append(text[end:])
    return text[:0].join(parts), done


SUBSTITUTIONS = {"sub": substitute, "subn": substitute_counted}
