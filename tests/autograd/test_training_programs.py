"""Training programs as people write them, beside eager for six calls: results, parameters, buffers,
gradients (which object, how it lies), version counters, states of optimizers, the random state.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from tests.autograd import later_training_programs
from tests.autograd.training_programs import CLASSES, INPUTS, PROGRAMS

COUNTS = (4, 2, 5, 1, 4, 3)
EXACT = {"rtol": 1e-7, "atol": 1e-8}  # in float64, after six steps


pytestmark = pytest.mark.usefixtures("doubles")


def parts(value: Any) -> Any:
    """What is compared of something that was trained, or of a result."""
    if isinstance(value, nn.Module):
        return [p for named in (value.named_parameters, value.named_buffers) for p in named()]
    if isinstance(value, torch.optim.Optimizer):
        return value.state_dict()
    return [parts(each) for each in value] if isinstance(value, list) else value


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield [*map(str, value)]
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from flat(each)
    else:
        yield value


def told(value: Any, before: dict[int, Any]) -> Any:
    """What eager tells of a tensor besides its values; ``before``: gradients of the last call."""
    if not isinstance(value, Tensor):
        return value if not isinstance(value, float) else "a float"
    known = value.dtype, value.shape, value.requires_grad, value.is_leaf, value._version
    if not value.is_leaf or value.grad is None:
        return known
    wide = [n for n, stride in zip(value.shape, value.grad.stride()) if n > 1] and [
        stride for n, stride in zip(value.shape, value.grad.stride()) if n > 1
    ]
    return *known, wide, before.get(id(value)) is value.grad


def test_all_programs_are_known() -> None:
    assert later_training_programs.functional_steps.__name__ in PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_trains_as_in_eager(name: str) -> None:
    make, whole = PROGRAMS[name]
    runs: list[list[Any]] = []
    for compiled in (True, False):
        torch.manual_seed(0)
        step, watched = make()
        if compiled:
            step = fast = anyshape.compile(step)
        log: list[Any] = []
        before: dict[int, Any] = {}
        for seed, count in enumerate(COUNTS):
            stream = torch.Generator().manual_seed(seed)
            x = torch.randn(count, INPUTS, generator=stream)
            y = torch.randint(0, CLASSES, (count,), generator=stream)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = step(x, y)
            seen = [*flat([made, parts(watched)])]
            tensors = [each for each in seen if isinstance(each, Tensor)]
            grads = {id(t): t.grad for t in tensors if t.is_leaf and t.grad is not None}
            numbers = [each for each in seen if isinstance(each, float)]
            values = [t.detach().clone() for t in (*tensors, *grads.values())]
            log.append(([told(each, before) for each in seen], values, numbers))
            before = grads
        runs.append([log, torch.get_rng_state()])
    (ours, our_state), (theirs, their_state) = runs
    for (told_of_ours, *found), (told_of_theirs, *expected) in zip(ours, theirs, strict=True):
        assert told_of_ours == told_of_theirs
        torch.testing.assert_close(found, expected, equal_nan=True, **EXACT)
    assert torch.equal(our_state, their_state)
    stats = fast.stats()
    assert stats.internal_errors == 0
    if whole:
        assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
