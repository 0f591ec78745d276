"""C code watches what it works on: a list that is written while it is sorted is refused."""

from __future__ import annotations

from functools import cmp_to_key

import pytest
import torch

from tests.capture.by_reference import compiled


def sorting(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    values = [2, 1]

    def compare(a: int, b: int) -> int:
        values.append(3)
        values.pop()
        return a - b

    try:
        values.sort(key=cmp_to_key(compare))
    except ValueError as error:
        return x + 1, str(error)
    return x, "sorted"


@pytest.mark.parametrize("whole", [True, False])
def test_a_list_that_is_written_while_it_is_sorted_is_refused(whole: bool) -> None:
    x = torch.ones(3)
    fast = compiled(sorting, fullgraph=whole)
    assert fast(x)[1] == sorting(x)[1]
    assert fast.stats().internal_errors == 0
