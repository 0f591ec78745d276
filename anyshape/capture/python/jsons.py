"""Calls of `_json`, which is C and would ask the program's objects: the Python of the standard
library is interpreted in its place (`json_polyfills.py`), as for pickles.

In: a class of `_json`, or a scanner, and the arguments, while recording. Out: a call of the
polyfill, where the standard library's own encoder or decoder makes it; else the call is C's.
"""

from __future__ import annotations

import _json
import json
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.copied_modules import original_class
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


# The code of a copy is another object, and equal.
def _is_called_by(machine: Interpreter, code: Any) -> bool:
    if not machine.recording or machine.domain.leaves_work_to_c:
        return False
    return machine.frame is not None and machine.frame.code.code == code


def _made_encoder(machine: Interpreter, args: Args, kwargs: dict[str, Any]) -> Any:
    made = made_by_copy(machine, _json.make_encoder, args, kwargs)
    return machine.native(_json.make_encoder, args, kwargs) if made is NotImplemented else made


def made_by_copy(machine: Interpreter, cls: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    """What `cls(*args, **kwargs)` is, of the encoder or of what C has made once more of it for a
    program that imports `_json` anew; NotImplemented of all else."""
    encodes = cls is _json.make_encoder or original_class(cls) is _json.make_encoder
    if encodes and _is_called_by(machine, _ENCODING) and len(args) == 9 and not kwargs:
        return Call(json_polyfills.make_encoder, args)
    return NotImplemented


def _scanned(machine: Interpreter, scanner: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    if _is_called_by(machine, _DECODING) and len(args) == 2 and type(args[0]) is str:
        if type(args[1]) is int and not kwargs and _asks_nobody(machine, scanner):
            _refuse_as_c_does(machine, scanner, args)
        return Call(json_polyfills.scan, (scanner, *args), kwargs)
    return machine.native(scanner, args, kwargs)


def _asks_nobody(machine: Interpreter, scanner: Any) -> bool:
    """Whether C makes numbers and containers without the program."""
    known = {name: getattr(scanner, name) for name in _ASKED}
    if machine.domain.is_outside(scanner):
        known = {name: machine.heap.attribute(scanner, name, known[name]) for name in known}
    constant = known["parse_constant"]
    looks_up = type(constant) is BuiltinFunctionType and type(constant.__self__) is dict
    hooks = known["object_hook"], known["object_pairs_hook"]
    return (
        looks_up
        and constant.__name__ == "__getitem__"
        and hooks == (None, None)
        and known["parse_float"] is float
        and known["parse_int"] is int
    )


def _refuse_as_c_does(machine: Interpreter, scanner: Any, args: Args) -> None:
    """Raises what C raises of such a text, if it does; how deep C may go depends on who calls."""
    try:
        scanner(*args)
    except RecursionError:
        raise broken("unknown-call", "json.Scanner") from None
    except Exception as error:
        machine.heap.create(error)
        raise


_ASKED = "strict object_hook object_pairs_hook parse_float parse_int parse_constant".split()
HANDLERS: Mapping[Any, Callable[..., Any]] = {_json.make_encoder: _made_encoder}
OBJECT_CALLS: Mapping[type, Callable[..., Any]] = {_json.make_scanner: _scanned}
