"""Operators without a row that write an argument: torch's own form of them that writes nothing.

In: an `aten` operator by name and its arguments. Out: a `Twin`, the operator that returns the new
values after its other results (`embedding_renorm` of `embedding_renorm_`,
`_native_batch_norm_legit_functional` of `native_batch_norm`), and which arguments they belong to.
The schemas say both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload

from anyshape.capture.heap.breaks import broken
from anyshape.custom_operators import Functional, is_written, written_names
from anyshape.ir.graph import TensorType
from anyshape.nouns import frozen
from anyshape.ops.context import NoRow, TypeContext

OWN = frozenset({"aten", "prims", "quantized", "mkldnn", "inductor"})
UNSAID: Mapping[str, str] = MappingProxyType({"native_batch_norm": "_native_batch_norm_legit"})
"""Operators that write though their schemas do not say so: the name of the form that says it."""
HIDDEN = frozenset({"batch_norm", "instance_norm", "cudnn_batch_norm", "miopen_batch_norm"})
"""Those of which no form says it."""
RESIZERS = frozenset({"resize_", "resize_as_", "set_"})
"""What changes an argument's shape, which no copy into it can."""
ALPHA_DROPOUTS = frozenset({"alpha_dropout", "feature_alpha_dropout"})
ATEN = "torch.ops.aten."


@frozen
class Writer:
    """A function that writes arguments: by `operator`'s schema, which is None where no schema says
    which."""

    name: str
    operator: OpOverload | None

    @property
    def is_custom(self) -> bool:
        """Whether it is none of torch's own."""
        return self.operator is not None and self.operator.namespace not in OWN


@frozen
class Twin:
    """`operator(*arguments)` gives `results` results, then the new value of each argument at one of
    the positions `written`. Where `returns_written`, the call gives back the first of them."""

    operator: OpOverload
    results: int
    written: tuple[int, ...]
    returns_written: bool


def gives_only_what_it_writes(fn: Any) -> bool:
    """Is it a custom operator that gives nothing back, as one that gives its arguments' new
    values?"""
    return isinstance(fn, Functional) and not fn.operator._schema.returns


def written_types(
    cx: TypeContext, fn: Functional, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[TensorType, ...]:
    """Of such an operator: the new values lie as the arguments do."""
    operator = fn.operator
    given = dict(zip((p.name for p in operator._schema.arguments), args)) | dict(kwargs)
    written = [given[n].tensor for n in written_names(operator) if given.get(n) is not None]
    for x in written:
        if any(s == 0 and n != 1 for n, s in zip(x.shape, x.strides, strict=True)):
            raise NoRow("it writes a tensor of which elements share memory")
    return tuple(TensorType(x.dtype, x.device, x.shape, x.strides) for x in written)


def writer_of(fn: Any, name: str) -> Writer | None:
    """What the schemas of a callable say that it writes; None if nothing. A name that says so
    against them is taken at its word."""
    overloads, last = _overloads(fn, name), _form(name)
    custom = bool(overloads) and overloads[0].namespace not in OWN
    plain = [o for o in overloads if o._overloadname == "default" and not custom]
    writers = [o for o in plain or overloads if written_names(o) and _writes_tensors(o)]
    if custom and writers and len(overloads) > 1:
        raise broken("operator-unknown", what=name, why="which of its overloads writes is not said")
    if writers:
        return Writer(last, writers[0])
    in_place = last.endswith("_") and not last.endswith("__")
    return Writer(last, None) if in_place or last in HIDDEN else None


def writes_nothing(writer: Writer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of a writing operator has nothing to write to, or is not training."""
    if writer.operator is None:
        return False
    parameters = writer.operator._schema.arguments
    given = {**dict(zip((p.name for p in parameters), args)), **kwargs}
    written = [given[p.name] for p in parameters if is_written(p) and p.name in given]
    return bool(written) and (
        given.get("training") is False or any(a is None or a.__class__ is bool for a in written)
    )


def twin_of(writer: Writer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Twin | None:
    """The form without writes, or None where torch has none for these arguments."""
    last, operator = writer.name, _default(writer.name)
    in_place = last.endswith("_") and not last.endswith("__")
    twin = _default(last.removesuffix("_") if in_place else f"{last}_functional")
    if last in RESIZERS or operator is None or twin is None:
        return None
    parameters = operator._schema.arguments
    if not kwargs.keys() <= {p.name for p in twin._schema.arguments}:
        return None
    positions = tuple(i for i, p in enumerate(parameters) if is_written(p))
    new = len(twin._schema.returns) - len(positions)
    if not positions or new < 0 or not positions[-1] < len(args) <= len(parameters):
        return None
    return Twin(twin, new, positions, in_place)


def times_written(name: str, p: object) -> int:
    """How often the in-place form of a function writes its argument: alpha dropouts, given the
    probability ``p``, multiply and then add, unless all is dropped."""
    return 2 if name.removeprefix("nn_") in ALPHA_DROPOUTS and p not in (1, 1.0) else 1


def _overloads(fn: Any, name: str) -> list[Any]:
    """The operators that a callable may be, without torch's own that write into `out=`."""
    if isinstance(fn, torch._ops.OpOverload):
        return [fn]
    packet = fn if isinstance(fn, torch._ops.OpOverloadPacket) else None
    if packet is not None and packet._qualified_op_name.partition("::")[0] not in OWN:
        return [getattr(packet, text) for text in packet.overloads()]
    packet = getattr(torch.ops.aten, _form(name), packet)
    found = [] if packet is None else [getattr(packet, text) for text in packet.overloads()]
    return [o for o in found if not any(part.is_out for part in o._schema.arguments)]


def _writes_tensors(operator: Any) -> bool:
    written = (p for p in operator._schema.arguments if is_written(p))
    return any("Tensor" in str(p.type) for p in written)


def _form(name: str) -> str:
    """The name of the `aten` operator whose schema says what it writes."""
    plain = name.removeprefix(ATEN)
    last = plain.partition(".")[0] if plain != name else name.rpartition(".")[2]
    return UNSAID.get(last, last)


def _default(name: str) -> Any:
    packet = getattr(torch.ops.aten, name, None)
    return None if packet is None else getattr(packet, "default", None)
