"""Functions of TorchScript that are called: captured as the Python functions they were made of.

In: a call of a ``torch.jit.ScriptFunction``. Out: a call of its Python function, as torch.compile
has it, too; or a graph break where the two would not do the same. TorchScript makes the numbers
that it is handed those that the function says it takes, its powers of integers and what it rounds
are floats, it copies lists and dictionaries, and functions may ask whether it runs them.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import PROXIES, Call
from anyshape.capture.recording.domain import RecordingDomain

_CALL = vars(torch.jit.ScriptFunction)["__call__"]
SCRIPT_CALL = getattr(_CALL, "__func__", _CALL)
"""What the class calls; torch.testing puts a Python function in its place."""
NUMBERS = {"int": int, "float": float, "bool": bool}
OTHERWISE = frozenset({"is_scripting", "is_tracing", "round", "pow"})
"""What a function may call that answers otherwise in Python."""
SIZES = frozenset({"size", "shape", "len", "numel", "dim", "ndim", "stride", "item", "int"})
"""Where integers come from, besides arguments."""


def call_scripted(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of the Python function; raises a ``Break`` where that is another one."""
    script, *given = args
    function = getattr(script, "_torchdynamo_inline", None)
    if type(function) is FunctionType and is_the_same(domain, function, tuple(given), kwargs):
        return Call(function, tuple(given), kwargs)
    raise broken("unknown-call", f"the TorchScript function {script.name}")


def is_the_same(
    domain: RecordingDomain, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Does Python do with these arguments what TorchScript does?"""
    code = function.__code__
    if not OTHERWISE.isdisjoint(code.co_names) or has_powers_of_integers(function):
        return False
    named = dict(zip(code.co_varnames[: code.co_argcount], args)) | kwargs
    for name, value in named.items():
        said = function.__annotations__.get(name)
        number = NUMBERS.get(said) if isinstance(said, str) else said
        kind = domain.type_of(value) if type(value) in PROXIES else type(value)
        if number in NUMBERS.values() and kind is not number or issubclass(kind, (list, dict)):
            return False
    return True


def has_powers_of_integers(function: FunctionType) -> bool:
    """May there be one?"""
    said = {NUMBERS.get(a) if isinstance(a, str) else a for a in function.__annotations__.values()}
    if int not in said and SIZES.isdisjoint(function.__code__.co_names):
        return False
    powers = ("**", "**=")
    return any(
        i.opname == "BINARY_OP" and i.argrepr in powers for i in dis.get_instructions(function)
    )


HANDLERS: Mapping[Any, Callable[..., Any]] = {SCRIPT_CALL: call_scripted}
