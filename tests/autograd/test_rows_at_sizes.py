"""Gradients of rows from one compile, at sizes that the first call did not have: 0, 1, odd ones, and
arguments that are permuted or broadcast; beside torch's own in float64. A sample of the rows: all of
them take the same way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.autograd.test_rows import CASES, outputs, samples, scaled, tensors

NAMES = (
    *("mul", "logsumexp", "cumsum", "prod", "amax", "var", "gather", "bmm", "masked_fill", "cat"),
    *("nn.functional.normalize", "nn.functional.conv1d", "nn.functional.cross_entropy", "sort"),
)
ENTRIES = [entry for entry in CASES if entry.name in NAMES and not entry.variant_test_name]
Sizes = Callable[[int], int]


def ways(largest: int) -> dict[str, tuple[Sizes, str]]:
    """How each size is replaced, and how what has these sizes lies."""
    return {
        "same": (lambda d: d, ""),
        "odd": (lambda d: d + 2 if d > 1 else d, ""),
        "permuted": (lambda d: d, "permuted"),
        "broadcast": (lambda d: d + 1 if d > 1 else d, "broadcast"),
        "1": (lambda d: 1, ""),
        "largest 0": (lambda d: 0 if d == largest else d, ""),
        "0": (lambda d: 0, ""),
    }


def remade(value: Any, sizes: Sizes, lies: str, leaves: list[Tensor]) -> Any:
    """The same numbers again and again, as many as there are to be; ``leaves`` gets what requires
    gradients."""
    if isinstance(value, (list, tuple)):
        return type(value)([remade(item, sizes, lies, leaves) for item in value])
    if not isinstance(value, Tensor):
        return value
    shape = [*map(sizes, value.shape)]
    count = torch.Size(shape).numel()
    numbers = value.detach().flatten()
    made = numbers.repeat(count // max(len(numbers), 1) + 1)[:count].clone().view(shape)
    if not value.requires_grad:
        is_index = value.dtype is torch.int64
        return made % 2 if is_index else made
    if lies == "permuted" and len(shape) > 1:
        made = made.transpose(0, -1).contiguous().transpose(0, -1)
    is_repeated = lies == "broadcast" and shape and shape[0]
    leaves.append((made[:1].clone() if is_repeated else made).requires_grad_())
    return leaves[-1].expand(shape) if is_repeated else leaves[-1]


def found(run: Any, args: Any, kwargs: Any, way: tuple[Sizes, str]) -> list[Tensor | None]:
    """Results, then gradients."""
    leaves: list[Tensor] = []
    args, kwargs = (
        remade(args, *way, leaves),
        {k: remade(v, *way, leaves) for k, v in kwargs.items()},
    )
    made = run(*args, **kwargs)
    of = outputs(made)
    stream = torch.Generator().manual_seed(0)
    given = [torch.randn(t.shape, generator=stream, dtype=torch.float64) for t in of]
    results = [t.detach() for t in tensors(made)]
    return [*results, *torch.autograd.grad(of, leaves, given, allow_unused=True)]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_gradients_from_one_compile_are_torchs_own_at_other_sizes(entry: Any) -> None:
    def plain(*args: Any, **kwargs: Any) -> Any:
        return scaled(entry.op(*args, **kwargs))

    args, kwargs = next((a, k) for a, k in samples(entry) if all(t.dim() for t in tensors(a)))
    fast, compared = anyshape.compile(plain), 0
    largest = max(size for t in tensors(args) for size in t.shape)
    for way in ways(largest).values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = found(plain, args, kwargs, way)
            except (RuntimeError, IndexError, ValueError):
                continue  # eager refuses: so may we
            torch.testing.assert_close(
                found(fast, args, kwargs, way), expected, rtol=1e-6, atol=1e-8, equal_nan=True
            )
        compared += 1
    stats = fast.stats()
    assert compared >= 4 and stats.gradients and not stats.internal_errors
    assert stats.specializations <= 3
