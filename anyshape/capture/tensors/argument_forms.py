"""Calls whose arguments torch's own parser does not take: ``x.numel(3)``, ``x.triu(0.5)``.

In: a function or method of torch's, and its arguments as they lie on the virtual stack. Out:
nothing, or a graph break, so that eager raises. No table says what a signature is: torch is asked,
with tensors of a class of ours, of which it parses the arguments and calls nothing, once for each
form of arguments.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any

import torch

from anyshape.capture.guards.tensor_specs import TORCH_OF_DTYPE
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.numpy_scalars import is_numpy_number
from anyshape.capture.heap.values import ScalarValue, SizeValue, TensorValue, TextValue
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import TensorType

IN_C = types.MethodDescriptorType, types.BuiltinFunctionType, types.WrapperDescriptorType
NUMBERS = {int: 1, float: 0.5, complex: 0.5j}
AS_THEY_ARE = bool, str, type(None), type(...), torch.dtype, torch.device, torch.layout
ASK_FOR_INT = torch.Tensor.split, torch.functional.split, torch.tensordot
"""Functions in Python that ask for the class of a number."""
IN_C_OF: Mapping[Any, Any] = {
    torch.nn.functional.layer_norm: torch.layer_norm,
    torch.nn.functional.rms_norm: torch.rms_norm,
    torch.nn.functional.group_norm: torch.group_norm,
    torch.Tensor.unflatten: torch._C.TensorBase.unflatten,  # noqa: SLF001
}
"""Of functions in Python, what they hand their arguments on to as they are."""
FACTORIES = frozenset(
    getattr(torch, name)
    for name in (
        "arange empty empty_permuted empty_strided eye full linspace logspace ones rand randint "
        "randn randperm range tril_indices triu_indices zeros"
    ).split()
)
"""They are asked on a device without memory, where nothing is made or drawn."""
Form = Any
"""Of an argument: hashable, and equal for those that the parser cannot tell apart."""


class _Parsed(torch.Tensor):
    """A tensor for the sake of its class."""

    @classmethod
    def __torch_function__(cls, *call: object) -> None:
        """Instead of the function, whose arguments fit."""


class _Unknown(Exception):
    """An argument of another kind."""


_METHODS = frozenset(fn for fn in vars(torch.Tensor).values() if type(fn) is types.FunctionType)


def refuse_others(fn: Any, args: tuple[Any, ...]) -> None:
    """Breaks the graph where a method of tensors is called by name with what is no tensor."""
    if args and not (type(args[0]) is TensorValue or issubclass(type(args[0]), torch.Tensor)):
        if _is_method(fn):
            why = "it is a method of tensors"
            raise broken("operator-raises", what=fn.__name__, why=why)


def _is_method(fn: Any) -> bool:
    if type(fn) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return fn.__objclass__ is torch._C.TensorBase  # noqa: SLF001
    return type(fn) is types.FunctionType and fn in _METHODS


def refuse_forms(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Breaks the graph where torch raises ``TypeError``."""
    if not isinstance(fn, (*IN_C, types.FunctionType)):
        return
    try:
        forms = _form(args), _form(tuple(kwargs.values()))
    except _Unknown:
        return
    if fn not in FACTORIES and not any(map(_has_tensor, forms)):  # it would make one with memory
        return
    if fn in ASK_FOR_INT and any(map(is_numpys, (*forms[0][1], *forms[1][1]))):
        why = "an integer of numpy's is no int"
    else:
        why = _refusal(fn, *forms, tuple(kwargs))
    if why:
        raise broken("operator-raises", what=getattr(fn, "__name__", str(fn)), why=why)


def _form(arg: Any) -> Form:
    kind = type(arg)
    if kind is TensorValue:
        tensor = arg.value.type
        assert isinstance(tensor, TensorType)
        return TensorValue, TORCH_OF_DTYPE[tensor.dtype], tensor.rank
    if isinstance(arg, torch.Tensor):
        return TensorValue, arg.dtype, arg.dim()
    if kind is SizeValue or kind is ScalarValue:
        return arg.kind
    if kind in NUMBERS or is_numpy_number(arg, "i"):
        return kind
    if kind is TextValue:
        return ""
    if kind in AS_THEY_ARE:
        return kind, arg
    if isinstance(arg, (tuple, list)):
        return (list if isinstance(arg, list) else tuple), tuple([_form(part) for part in arg])
    raise _Unknown


def _has_tensor(form: Form) -> bool:
    return isinstance(form, tuple) and (form[:1] == (TensorValue,) or any(map(_has_tensor, form)))


@functools.lru_cache(maxsize=4096)
def _refusal(fn: Any, args: Form, named: Form, names: tuple[str, ...]) -> str:
    """What the parser says to arguments of these forms; nothing where it takes them."""
    given, options = _made(args), dict(zip(names, _made(named), strict=True))
    if fn in FACTORIES:
        options["device"] = "meta"
    try:
        if not isinstance(fn, IN_C):
            inspect.signature(fn).bind(*given, **options)
        in_c = IN_C_OF.get(fn, fn)
        if isinstance(in_c, IN_C):
            in_c(*given, **options)
    except TypeError as error:
        return str(error)
    except Exception as error:  # of one that looks at no class
        if is_interrupt(error):
            raise
    return ""


def _made(form: Form) -> Any:
    """An argument of this form."""
    match form:
        case kind, dtype, int(rank) if kind is TensorValue:
            return torch.empty((1,) * rank, dtype=dtype).as_subclass(_Parsed)
        case (kind, tuple(parts)) if kind in (tuple, list):
            return kind(map(_made, parts))
        case (_, value):
            return value
        case str():
            return form
        case type() if is_numpys(form):
            return form(1)
    return NUMBERS.get(form, True)


def is_numpys(form: Form) -> bool:
    """Is it the form of an integer of numpy's?"""
    return isinstance(form, type) and form not in (*NUMBERS, bool)
