"""What the fuzzer found of programs that ended the process, or ours, or raised what eager does not,
shrunk. Each runs in a process of its own: a crash is a difference."""

from __future__ import annotations

import pytest

from tests.fuzz.programs import Fuzzed
from tests.fuzz.test_found import at, over
from tests.fuzz.workers import WAYS, differences_alone

FOUND = {
    "a write to a reshape of what is empty, where the mask is no loop's": at(
        over(
            "a a a",
            "t, u = x0.split([1, x0.shape[0] - 1])",
            "u *= -1",
            "u.reshape(t.shape[2], -1).mul_(-1)",
            "x0 + 1",
        ),
        (1, 1, 1),
        (3, 1, 1),
    ),
    "alternatives that hold in a part what is asked of them": at(
        over(
            "2 a b, a b 4",
            "t = x1[:, ::2]",
            "u = t.reshape(-1) if t.is_contiguous() else t * 2",
            "t",
            layouts="plain plain offset",
        ),
        (1, 0, 3),
        (5, 5, 5),
        (1, 6, 1),
        (8, 8, 3),
        (2, 5, 3),
    ),
    "a flattened complex tensor of no elements, written through its imaginary part": at(
        over(
            "a b",
            "t = torch.complex(x0, x0).mT.reshape(-1)",
            "t.imag.zero_()",
            "try:\n    u = x0 + t\nexcept RuntimeError:\n    u = x0 + 1",
            "t.view(torch.int32), t, u",
        ),
        (0, 3, 2),
        (3, 0, 2),
        (4, 3, 2),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_found_crashes(name: str) -> None:
    program: Fuzzed = FOUND[name]
    problems = differences_alone(program, WAYS["plain"], "0")
    assert not problems, "\n".join((program.source, *problems))
