"""Everything that a program can see of a tensor besides its numbers, and calls of torch's functions
made from their schemas.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from anyshape.tools.accuracy import strides_that_matter

FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


def facets(value: Any, args: Sequence[Any]) -> Any:
    """What there is to see of a result of a call with these arguments."""
    if isinstance(value, Tensor):
        return of_tensor(value, [a for a in args if isinstance(a, Tensor)])
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value), [facets(part, args) for part in value]
    return type(value), repr(value)


def of_tensor(t: Tensor, args: Sequence[Tensor]) -> Mapping[str, Any]:
    strided = t.layout is torch.strided
    return {
        "class": type(t),
        "dtype": t.dtype,
        "shape": tuple(t.shape),
        "strides": strides_that_matter(t) if strided else None,
        "offset": t.storage_offset() if strided and t.numel() else None,
        "contiguous": [t.is_contiguous(memory_format=f) for f in formats_of(t)] if strided else [],
        "requires_grad": t.requires_grad,
        "is_leaf": t.is_leaf,
        "version": None if t.is_inference() else t._version,
        "is": [i for i, a in enumerate(args) if a is t],
        "memory of": [i for i, a in enumerate(args) if share(a, t)] if strided else [],
    }


def formats_of(t: Tensor) -> tuple[torch.memory_format, ...]:
    return (FORMATS[0], *FORMATS[t.dim() - 3 : t.dim() - 2]) if t.dim() in (4, 5) else FORMATS[:1]


def share(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def outcome(program: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The facets of what it gives, and of the arguments then; or the class of what it raises."""
    torch.manual_seed(0)
    try:
        made = program(*args)
    except Exception as error:
        return type(error)
    return facets(made, args), [facets(arg, args) for arg in args]


def differences(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Each facet that differs, with its path."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs: Any = [(key, ours[key], theirs[key]) for key in theirs]
    elif alike(ours, theirs):
        pairs = list(zip(range(len(theirs)), ours, theirs))
    else:
        pairs = []
        if ours != theirs:
            yield f"{at}: {ours}, eager's is {theirs}"
    for key, a, b in pairs:
        yield from differences(a, b, f"{at}.{key}")


def alike(a: Any, b: Any) -> bool:
    return isinstance(b, (list, tuple)) and type(a) is type(b) and len(a) == len(b)


# ---- calls made from schemas ---------------------------------------------------------------------
NUMBERS = {"n": 3, "m": 2, "steps": 4, "high": 5, "low": 1, "start": 1, "end": 4, "step": 1}


def argument(parameter: Any, x: Tensor) -> Any:
    """An argument of the parameter's type."""
    kind, name = str(parameter.type), parameter.name
    if kind == "Tensor":
        return x
    if kind in ("List[int]", "List[SymInt]"):
        order = range(x.dim())
        return {"physical_layout": [*order], "stride": [*x.stride()]}.get(name, [*x.shape])
    if kind in ("int", "SymInt", "number", "float"):
        return NUMBERS.get(name, 2)
    raise NotImplementedError(kind)


def positional(schema: Any, x: Tensor) -> list[Any] | None:
    """Arguments for the parameters that must be given, None where one is of no known type."""
    needed = [p for p in schema.arguments if not p.has_default_value() and not p.kwarg_only]
    try:
        return [argument(p, x) for p in needed]
    except NotImplementedError:
        return None


def functions_with(parameter: str) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """(name, function, schema) of each function and method of torch that has such a parameter."""
    for name in sorted(dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, name)
        if name.startswith("_") or not isinstance(packet, torch._ops.OpOverloadPacket):
            continue
        for overload in packet.overloads():
            schema = getattr(packet, overload)._schema
            if any(p.name == parameter for p in schema.arguments) and "out" not in overload:
                for owner in (torch, torch.Tensor):
                    if function := getattr(owner, name, None):
                        yield f"{name}.{overload} of {owner.__name__}", function, schema


@contextlib.contextmanager
def restored(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    """One of torch's settings with this value."""
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


def numbered(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers from 0.5 on, which no conversion to a bool or an integer loses."""
    pick = random.Random(len(shape))
    count = torch.Size(shape).numel()
    return torch.tensor([pick.uniform(0.5, 9.5) for _ in range(count)]).reshape(shape).to(dtype)
