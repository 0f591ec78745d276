"""Operators without a row that write an argument: torch's own form of them that writes nothing.

In: an `aten` operator by name and its arguments. Out: a `Twin`, the operator that returns the new
values after its other results (`embedding_renorm` of `embedding_renorm_`,
`_native_batch_norm_legit_functional` of `native_batch_norm`), and which arguments they belong to.
The schemas say both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from anyshape.capture.breaks import broken
from anyshape.eager import is_written, written_names

OWN = frozenset({"aten", "prims", "quantized", "mkldnn", "inductor"})
UNSAID: Mapping[str, str] = MappingProxyType({"native_batch_norm": "_native_batch_norm_legit"})
"""Operators that write though their schemas do not say so: the name of the form that says it."""
RESIZERS = frozenset({"resize_", "resize_as_", "set_"})
"""What changes an argument's shape, which no copy into it can."""
ATEN = "torch.ops.aten."


@dataclass(frozen=True, slots=True)
class Twin:
    """`operator(*arguments)` gives `results` results, then the new value of each argument that is
    at one of the places `written`. Where `returns_written`, the call gives back the first of them.
    """

    operator: Any
    results: int
    written: tuple[int, ...]
    returns_written: bool


def writes_nothing(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a call of a writing operator has nothing to write to, or is not training."""
    operator = _default(_form(name))
    if operator is None:
        return False
    parameters = list(operator._schema.arguments)[: len(args)]
    given = dict(zip((p.name for p in parameters), args))
    written = [given[p.name] for p in parameters if is_written(p)]
    return bool(written) and (
        given.get("training") is False or any(a is None or a.__class__ is bool for a in written)
    )


def twin_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Twin | None:
    """The form without writes, or None where torch has none for these arguments."""
    last = _form(name)
    in_place = last.endswith("_") and not last.endswith("__")
    operator = _default(last)
    twin = _default(last.removesuffix("_") if in_place else f"{last}_functional")
    if last in RESIZERS or operator is None or twin is None or kwargs:
        return None
    parameters = operator._schema.arguments
    places = tuple(i for i, p in enumerate(parameters) if is_written(p))
    new = len(twin._schema.returns) - len(places)
    if not places or new < 0 or not places[-1] < len(args) <= len(parameters):
        return None
    return Twin(twin, new, places, in_place)


def custom_writer(fn: Any) -> Any:
    """The overload that is called, if it is none of torch's own and writes arguments."""
    if isinstance(fn, torch._ops.OpOverloadPacket):
        overloads = [getattr(fn, name) for name in fn.overloads()]
    else:
        overloads = [fn] if isinstance(fn, torch._ops.OpOverload) else []
    writers = [o for o in overloads if o.namespace not in OWN and written_names(o)]
    if writers and len(overloads) > 1:
        name = fn._qualified_op_name
        raise broken("operator-unknown", what=name, why="which of its overloads writes is not said")
    return writers[0] if writers else None


def _form(name: str) -> str:
    """The name of the `aten` operator whose schema says what it writes."""
    plain = name.removeprefix(ATEN)
    last = plain.partition(".")[0] if plain != name else name.rpartition(".")[2]
    return UNSAID.get(last, last)


def _default(name: str) -> Any:
    packet = getattr(torch.ops.aten, name, None)
    return None if packet is None else getattr(packet, "default", None)
