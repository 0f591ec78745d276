"""An iterator over a container that grew in the same native region, at a break: it goes on where it was,
not where the container ended before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape


@torch.compiler.disable
def breaks() -> None:
    pass


def over_it(x: torch.Tensor, kept: Any) -> Any:
    kept.append(x + 1)
    kept.append(x + 2)
    found = [x]
    for v in kept:
        breaks()
        found.append(v * len(found))
    return found


def counted(x: torch.Tensor, kept: Any) -> Any:
    kept.append(x + 1)
    kept.append(x + 2)
    found = [x]
    for i, v in enumerate(kept):
        breaks()
        found.append(v + i)
    return found


def in_pairs(x: torch.Tensor, kept: Any) -> Any:
    kept.append(x + 1)
    kept.append(x + 2)
    found = []
    for a, b in zip(kept, reversed(kept), strict=True):
        breaks()
        found.append(a - 2 * b)
    return found


class Reader:
    def __init__(self, kept: Any) -> None:
        self.kept = kept
        self.rest = iter(())


def kept_by_an_object(x: torch.Tensor, kept: Any) -> Any:
    reader = Reader(kept)
    breaks()
    reader.rest = iter(reader.kept)
    kept.append(x + 1)
    first = next(reader.rest)
    kept.append(x + 2)
    breaks()
    return first, [v * 2 for v in reader.rest]


@pytest.mark.parametrize(
    ("program", "kind"),
    [(p, k) for p in (over_it, counted, in_pairs) for k in (list, deque)]
    + [(kept_by_an_object, list)],
)
def test_an_iterator_goes_on_where_it_was(program: Callable[..., Any], kind: type) -> None:
    fast = anyshape.compile(program)
    for n, before in ((5, 0), (2, 1), (0, 0), (1, 2), (3, 0)):
        x = torch.randn(n)
        wanted = program(x, kind(x - i for i in range(before)))
        found = fast(x, kind(x - i for i in range(before)))
        torch.testing.assert_close(found, wanted)
