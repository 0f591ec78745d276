"""`_json` in Python, interpreted (polyfills.py): the standard library has the same there, so that
what encoding asks of the program is interpreted too.

What C would do otherwise (subclasses of containers, what it refuses) is left to it: `left_to_c`.
"""

from __future__ import annotations

import json.decoder
import json.encoder
import json.scanner
from collections import Counter, OrderedDict, defaultdict
from typing import Any

from anyshape.capture.heap.values import ABSENT
from anyshape.capture.interpreter.intrinsic_names import find, is_subtype
from anyshape.capture.python.pickle_polyfills import left_to_c

_make_iterencode = vars(json.encoder)["_make_iterencode"]
_make_scanner = vars(json.scanner)["py_make_scanner"]
_parse_object, _parse_array = (vars(json.decoder)[name] for name in ("JSONObject", "JSONArray"))
_scan_string = vars(json.decoder)["scanstring"]
_NAMES = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
_DICTS = (dict, OrderedDict, defaultdict, Counter)
_tuple_iter, _tuple_len = tuple.__iter__, tuple.__len__
DEEPEST = 100
"""C counts what lies in what against the recursion limit."""


def make_encoder(
    markers: Any,
    default: Any,
    encode: Any,
    indent: Any,
    key_separator: Any,
    item_separator: Any,
    sort_keys: Any,
    skipkeys: Any,
    allow_nan: Any,
) -> Any:
    sort_keys, skipkeys, allow_nan = bool(sort_keys), bool(skipkeys), bool(allow_nan)

    def asked(value: Any) -> Any:
        found = default(value)
        require_plain(found, 0)
        return found

    def number(value: Any) -> Any:
        text = float.__repr__(value)
        if text not in _NAMES:
            return text
        if not allow_nan:
            left_to_c("json.Encoder")
        return _NAMES[text]

    iterencode = _make_iterencode(
        *(markers, asked, encode, indent, number, key_separator, item_separator),
        *(sort_keys, skipkeys, True),
    )

    def encoder(value: Any, level: Any) -> Any:
        require_plain(value, 0)
        try:
            return [*iterencode(value, level)]
        except BaseException:
            left_to_c("json.Encoder")

    return encoder


def require_plain(value: Any, depth: int) -> None:
    """C asks other subclasses of containers for less of what lies in them."""
    kind = type(value)
    if depth > DEEPEST:
        left_to_c("json.Encoder")
    if kind in _DICTS:
        for item in value.values():
            require_plain(item, depth + 1)
    elif kind is list or kind is tuple or _is_record(kind):
        for item in value:
            require_plain(item, depth + 1)
    elif is_subtype(kind, list) or is_subtype(kind, tuple) or is_subtype(kind, dict):
        left_to_c("json.Encoder")


def _is_record(kind: Any) -> Any:
    """Whether it is a named tuple, say, that counts and iterates as a tuple does."""
    if not is_subtype(kind, tuple) or find(kind, "__bool__") is not ABSENT:
        return False
    return find(kind, "__iter__") is _tuple_iter and find(kind, "__len__") is _tuple_len


class _Context:
    """What a scanner of Python is made of: what one of C was made of."""

    def __init__(self, scanner: Any) -> None:
        self.parse_object, self.parse_array = _parse_object, _parse_array
        self.parse_string = _scan_string
        self.strict = scanner.strict
        self.object_hook = scanner.object_hook
        self.object_pairs_hook = scanner.object_pairs_hook
        self.parse_float, self.parse_int = scanner.parse_float, scanner.parse_int
        self.parse_constant = scanner.parse_constant
        self.memo: dict[str, str] = {}


def scan(scanner: Any, string: Any, idx: Any) -> Any:
    try:
        return _make_scanner(_Context(scanner))(string, idx)
    except BaseException:
        left_to_c("json.Scanner")
