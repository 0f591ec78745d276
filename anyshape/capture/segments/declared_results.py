"""Declared sizes of results: proved while capturing, where the facts show them.

In: a captured result and the declaration of the call. Out: whether each declared size is proved;
else each call tests it.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.guards.declared import DeclaredSizes
from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording.recorder import Recorder
from anyshape.declare import Pattern
from anyshape.symbolic import eq


def prove_returned(recorder: Recorder, result: Any) -> bool:
    """Whether a captured result is proved to have its declared sizes; else each call tests it."""
    sizes = recorder.declared
    assert sizes is not None
    patterns = sizes.binding.declaration.returned
    return all([_prove(recorder, sizes, pattern, result) for pattern in patterns])


def _prove(recorder: Recorder, sizes: DeclaredSizes, pattern: Pattern, result: Any) -> bool:
    try:
        value = pattern.path.read(result)
    except (LookupError, AttributeError, TypeError):
        return False
    if type(value) is not TensorValue:
        return False
    shape = value.value.tensor.shape
    if len(shape) < pattern.rank or pattern.exact and len(shape) != pattern.rank:
        return False
    declared = sizes.shape(pattern, len(shape))
    return declared is not None and all(
        recorder.cx.known(eq(shape[dim], size)) is True for dim, size in declared
    )
