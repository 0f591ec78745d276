"""Whether a result requires gradients, where one argument alone does: what only lends its shape, or is
only compared, gives none. Every operator of torch's database that a row has, beside eager.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

import anyshape
from anyshape.ops import SPELLINGS
from tests.ops.database import samples_of

SAMPLES, ARGUMENTS = 2, 3
ENTRIES = [
    entry
    for entry in op_db
    if f"torch.{entry.name}" in SPELLINGS or f"torch.Tensor.{entry.name}" in SPELLINGS
    if entry.supports_autograd and torch.float32 in entry.supported_dtypes("cpu")
]
PARTS = 8


def with_one_leaf(given: Any, chosen: int) -> tuple[Any, int]:
    """The arguments, of whose floats that one is a leaf, and how many floats there are."""
    count = 0

    def made(value: Any) -> Any:
        nonlocal count
        if isinstance(value, Tensor) and value.is_floating_point():
            count += 1
            return value.detach().clone().requires_grad_(count - 1 == chosen)
        if type(value) in (list, tuple):
            return type(value)(map(made, value))
        return {k: made(v) for k, v in value.items()} if type(value) is dict else value

    return made(given), count


def flags(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.requires_grad
    return [flags(each) for each in value] if isinstance(value, (list, tuple)) else None


def differing(entry: Any) -> Iterator[tuple[str, int, Any, Any]]:
    def run(x: Any, args: Any, kwargs: Any) -> Any:
        return flags(entry.op(x, *args, **kwargs))

    for sample in samples_of(entry, torch.float32, SAMPLES):
        given = (sample.input, sample.args, sample.kwargs)
        _, count = with_one_leaf(given, -1)
        for chosen in range(min(count, ARGUMENTS) if count > 1 else 0):
            try:
                expected = run(*with_one_leaf(given, chosen)[0])
            except Exception:  # eager refuses the sample
                continue
            found = anyshape.compile(run)(*with_one_leaf(given, chosen)[0])
            if found != expected:
                yield entry.name, chosen, found, expected


@pytest.mark.parametrize("part", range(PARTS))
def test_a_result_requires_gradients_where_eagers_does(part: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [each for entry in ENTRIES[part::PARTS] for each in differing(entry)]
    assert found == []


def test_labels_expanded_as_scores_get_no_gradients() -> None:
    """As networks that judge have them, one frozen between two: a step of a GAN was eager's whole,
    for the label that both expand."""
    label = torch.ones(())

    @anyshape.compile
    def step(x: Tensor, w: Tensor, v: Tensor) -> tuple[bool, bool]:
        label.expand_as(x * w).sub(x * w).square().mean().backward()
        with torch.no_grad():
            w.sub_(w.grad, alpha=0.1)
        made = label.expand_as(x * v)
        (made - x * v * w.detach()).square().mean().backward()
        return made.requires_grad, label.requires_grad

    for rows in (4, 1, 3):
        w, v = (torch.full((3,), value, requires_grad=True) for value in (0.5, 2.0))
        assert step(torch.randn(rows, 3), w, v) == (False, False)
    assert (step.stats().segments, step.stats().eager_graphs) == (1, ())
