"""A second opinion where values differ from eager's: is eager itself any nearer to the truth?

In: a call, our results and eager's. The call is run by eager twice more: in float64, and with
memory that nobody has written filled by a known pattern. Ours is excused where its error against
float64 is at most twice eager's and one unit in the last place, and where eager shows such memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from conformance import cases
from conformance.cases import Example

SMALL = (torch.float32, torch.float16, torch.bfloat16)
MOST_ERROR = {torch.float32: 1e-2, torch.float16: 5e-2, torch.bfloat16: 2e-1}
"""Relative errors of eager's beyond these mean that the run in float64 did something else."""

Run = Callable[[Example], Any]
Close = Callable[[Tensor, Tensor], bool]


def excused(run: Run, example: Example, ours: Any, theirs: Any, close: Close) -> bool:
    """May these results differ? `run` is eager's, under one seed; None where it raises."""
    pairs = list(zip(cases.tensors_of(ours), cases.tensors_of(theirs), strict=True))
    doubled = cases.mapped(_doubled, example)
    exact = _results(run, doubled, len(pairs))
    with _filled_memory():
        filled = _results(run, cases.mapped(cases.copied, example), len(pairs))
    return all(
        close(a, b) or _undefined(a, b, c, close) or _as_right(a, b, d)
        for (a, b), c, d in zip(pairs, filled, exact, strict=True)
    )


def _doubled(t: Tensor) -> Tensor:
    t = cases.copied(t)
    return t.double() if t.dtype in SMALL else t


def _results(run: Run, example: Example, count: int) -> list[Tensor | None]:
    made = run(example)
    found = [*cases.tensors_of(made), *cases.tensors_of(example)]
    return [*found] if made is not None and len(found) == count else [None] * count


@contextmanager
def _filled_memory() -> Iterator[None]:
    """Memory that an operator makes and does not write holds NaN, or the greatest integer."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _undefined(ours: Tensor, theirs: Tensor, filled: Tensor | None, close: Close) -> bool:
    """Do they differ only where eager's own result depends on what memory held?"""
    if filled is None or filled.shape != theirs.shape or filled.dtype != theirs.dtype:
        return False
    same = (theirs == filled) | ((theirs != theirs) & (filled != filled))
    return not bool(same.all()) and close(ours[same], theirs[same])


def _as_right(ours: Tensor, theirs: Tensor, exact: Tensor | None) -> bool:
    """Is our relative error at most twice eager's and one unit in the last place?"""
    if exact is None or exact.shape != theirs.shape or theirs.dtype not in SMALL:
        return False
    known = exact.isfinite() & theirs.isfinite()
    if not torch.equal(known, exact.isfinite() & ours.isfinite()):
        return False
    truth = exact[known].double()
    size = truth.norm() or 1.0
    error, own = ((t[known].double() - truth).norm() / size for t in (ours, theirs))
    limit = 2 * own + torch.finfo(theirs.dtype).eps
    return bool(own <= MOST_ERROR[theirs.dtype] and error <= limit)
