"""Attributes of an exception from outside are read as the segment has written or deleted them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference


def deleted(x: Any, error: Any) -> Any:
    del error.extra
    return x + 1, hasattr(error, "extra"), getattr(error, "extra", None), [*vars(error)]


def written(x: Any, error: Any) -> Any:
    error.extra = 5
    error.args = (7,)
    try:
        text: Any = error.other
    except AttributeError as missing:
        text = str(missing)
    return x + 1, error.extra, error.args, text, error.__notes__, hasattr(error, "other")


class Own(ValueError):
    pass


class Ordered(OrderedDict[int, int]):
    pass


def test_what_was_deleted_of_a_class_of_cs_own_access_is_gone() -> None:
    fast = Compiled(deleted, Options(), ByReference)
    for _ in range(2):
        made = Ordered()
        made.extra = 1  # type: ignore[attr-defined]
        assert fast(torch.ones(2), made)[1:] == (False, None, [])
    assert not fast.mistakes


@pytest.mark.parametrize("kind", [ValueError, OSError, BaseException, Own])
@pytest.mark.parametrize("program", [deleted, written])
def test_what_was_written_is_read(program: Any, kind: Any) -> None:
    fast = Compiled(program, Options(), ByReference)
    for _ in range(2):
        results = []
        for fn in (program, fast):
            error = kind(1, 2)
            error.extra = 1
            error.add_note("seen")
            results.append((fn(torch.ones(2), error)[1:], vars(error)))
        assert results[0] == results[1]
    assert not fast.mistakes
