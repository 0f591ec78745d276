"""Calls of `_json`, which is C and would ask the program's objects: the Python of the standard
library is interpreted in its place (`json_polyfills.py`), as for pickles.

In: a class of `_json`, or a scanner, and the arguments, while recording. Out: a call of the
polyfill, where the standard library's own encoder or decoder makes it; else the call is C's.
"""

from __future__ import annotations

import _json
import json
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.values import Call
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.python import json_polyfills

Args = tuple[Any, ...]
_ENCODING = json.JSONEncoder.iterencode.__code__
_DECODING = json.JSONDecoder.raw_decode.__code__
CODES = frozenset(
    {json_polyfills.make_encoder.__code__, json_polyfills.scan.__code__}
    | {c for c in json_polyfills.make_encoder.__code__.co_consts if hasattr(c, "co_code")}
)


def _is_called_by(machine: Interpreter, code: Any) -> bool:
    if not machine.recording or machine.domain.leaves_work_to_c:
        return False
    return machine.frame is not None and machine.frame.code.code is code


def _made_encoder(machine: Interpreter, args: Args, kwargs: dict[str, Any]) -> Any:
    if _is_called_by(machine, _ENCODING) and len(args) == 9 and not kwargs:
        return Call(json_polyfills.make_encoder, args)
    return machine.native(_json.make_encoder, args, kwargs)


def _scanned(machine: Interpreter, scanner: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    if _is_called_by(machine, _DECODING) and len(args) == 2 and type(args[0]) is str:
        return Call(json_polyfills.scan, (scanner, *args), kwargs)
    return machine.native(scanner, args, kwargs)


HANDLERS: Mapping[Any, Callable[..., Any]] = {_json.make_encoder: _made_encoder}
OBJECT_CALLS: Mapping[type, Callable[..., Any]] = {_json.make_scanner: _scanned}
