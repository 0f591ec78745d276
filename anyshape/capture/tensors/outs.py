"""Results written into tensors of the program's: `out=`, and what an operator writes.

In: the results, and the tensors that they are for. Out: copies as nodes, or a graph break.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from anyshape.capture.guards.tensor_specs import TORCH_OF_DTYPE
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import Break, TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors import storage
from anyshape.capture.tensors.tensor_ops import call_row
from anyshape.ir.graph import Value, values_in
from anyshape.ops.layout import is_contiguous
from anyshape.symbolic import Condition, all_of, eq


@contextmanager
def all_or_nothing(domain: RecordingDomain, written: Any) -> Iterator[None]:
    """Where it ends in a graph break, nothing of it stays recorded: it runs natively then, and
    random numbers are drawn once. Nor is anything known that was learned in it: its guards are
    taken back. What it has ``written`` are views or copies by then: either may be made larger."""
    mark = domain.recorder.mark()
    domain.recorder.cx.facts = mark.facts.fork()
    try:
        yield
    except Break:
        domain.recorder.rollback(mark)
        for value in values_in(domain.argument(written)):
            storage.way_of(domain.recorder, value)
        raise


def refuse_drawing_into(domain: RecordingDomain, shown: str, target: Value) -> None:
    """Ends the segment where a tensor given as ``out=`` is not known to be row-major: eager draws
    its numbers in the order of that memory."""
    if not is_contiguous(domain.recorder.cx, target.tensor):
        why = "random numbers are drawn in the order of the memory of its out="
        raise broken("operator-unknown", what=shown, why=why)


WRITES_A_VIEW = frozenset({torch.kron})
"""Into views of their `out=` with a version counter of their own."""


def into(domain: RecordingDomain, fn: Any, made: Any, out: Any) -> Any:
    """Writes results into the tensors given as `out=`, which must have their shapes and dtypes. Of
    another dtype eager casts some, computes others in that of `out`, and refuses the rest: abs,
    clamp, where, round. Few programs ask for it, and eager answers them."""
    shown = str(fn)
    pairs = list(zip(made, out, strict=True)) if isinstance(made, tuple) else [(made, out)]
    for new, old in pairs:
        if type(old) is not TensorValue or type(new) is not TensorValue:
            raise broken("unknown-call", f"{shown} with out=")
        if old.value.dtype is not new.value.dtype:
            raise broken("operator-unknown", what=shown, why="its out= has another dtype")
        if domain.recorder.modes.grad and any(t.value.tensor.requires_grad for t in (new, old)):
            why = "operators have no derivative with out="
            raise broken("operator-raises", what=shown, why=why)
    for new, old in pairs:
        _alike(domain, shown, old, new)
    for new, old in pairs:
        write(domain, shown, old, new, counted=fn not in WRITES_A_VIEW)
    return _named(shown, made, out) if isinstance(made, tuple) else out


def _named(shown: str, made: tuple[Any, ...], out: Any) -> Any:
    """The tensors that were written, under the names that eager gives them; what gives them none,
    as `unbind_copy`, gives back nothing at all."""
    named = getattr(torch.return_types, f"{type(made).__name__}_out", None)
    if named is None:
        raise broken("unknown-call", f"{shown} with out=")
    return named(tuple(out))


def _refuse_another_category(shown: str, old: TensorValue, new: TensorValue) -> None:
    if not torch.can_cast(TORCH_OF_DTYPE[new.value.dtype], TORCH_OF_DTYPE[old.value.dtype]):
        why = "what it writes to has a dtype of another category"
        raise broken("operator-raises", what=shown, why=why)


def _alike(
    domain: RecordingDomain, shown: str, old: TensorValue, new: TensorValue
) -> Condition | bool:
    """Whether both have one shape; a graph break where they do not."""
    cx, shapes = domain.recorder.cx, (old.value.shape, new.value.shape)
    alike = len(shapes[0]) == len(shapes[1]) and all_of(*map(eq, *shapes))
    if cx.known(alike) is False or not (isinstance(alike, bool) or cx.hint(alike) is not False):
        raise broken("operator-unknown", what=shown, why="it changes the shape of an argument")
    return alike


def write(
    domain: RecordingDomain, shown: str, old: TensorValue, new: TensorValue, *, counted: bool = True
) -> None:
    """Copies ``new`` into ``old``, which must have its shape and take its dtype. ``counted``: by
    the version of ``old``."""
    _refuse_another_category(shown, old, new)
    alike = _alike(domain, shown, old, new)
    domain.require(alike, f"{shown} changes the shape of an argument")
    call_row(domain, "copy_", old if counted else call_row(domain, "data", old), new)
