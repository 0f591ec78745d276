"""Python loops whose turns depend on sizes, or that never end, are captured so far and no farther."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import AnyshapeError

SIZES = (3, 0, 1, 2, 17)


def root(x: Tensor) -> Tensor:
    n = 0
    while n * n < x.shape[0]:
        n += 1
    return x + n


def halvings(x: Tensor) -> Tensor:
    n, turns = x.shape[0], 0
    while n > 1:
        n, turns = n // 2, turns + 1
    return x * turns


def recursive(x: Tensor) -> Tensor:
    def halved(n: int) -> int:
        return 0 if n <= 1 else 1 + halved(n // 2)

    return x * halved(x.shape[0])


def long_over_sizes(x: Tensor) -> Tensor:
    n = 0
    while n * n < x.shape[0] * 10_000:
        n += 1
    return x + n


@pytest.mark.parametrize("function", [root, halvings, recursive, long_over_sizes])
def test_a_loop_over_a_size_is_unrolled_without_a_word(function: Callable[..., Tensor]) -> None:
    fast = anyshape.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in SIZES:
            x = torch.randn(size)
            assert torch.equal(fast(x), function(x)), size
    assert fast.stats().graph_breaks == 0
    assert fast.stats().specializations <= len(SIZES)


def test_the_turns_of_a_loop_over_a_size_are_not_forked_in_one_another() -> None:
    fast = anyshape.compile(long_over_sizes)
    fast(torch.randn(9))
    assert fast.stats().guarded < 20  # 300 turns: facts decide nearly all


def endless(x: Tensor, end: int = 1_000_000) -> Tensor:
    n = 0
    while True:
        n += 1
        if n * n > end:
            break
    return x + n


def test_a_loop_past_its_budget_ends_the_segment_and_is_right() -> None:
    fast = anyshape.compile(endless, options={"unroll_budget": 100})
    x = torch.randn(3)
    for _ in range(2):
        assert torch.equal(fast(x), endless(x))
    assert fast.stats().graph_breaks > 0


def test_an_endless_loop_says_what_it_is_and_where() -> None:
    fast = anyshape.compile(endless, fullgraph=True, options={"unroll_budget": 100})
    with pytest.raises(AnyshapeError, match="turns of its loops") as raised:
        fast(torch.randn(3))
    assert raised.value.code == "E220"
    assert "while True" in str(raised.value)
    assert "unroll_budget" in str(raised.value)


def test_the_example_contradicts_what_is_checked_of_data() -> None:
    """The first call has no elements, and goes on only with two of them: how often the loop turns
    is not what it is in that call."""

    def program(x: Tensor) -> Tensor:
        found = torch.argwhere(x)
        copied = found.contiguous() is found
        total = x + copied
        for number in x.flatten()[:3].tolist():
            total = total + number
        return total

    fast = anyshape.compile(program)
    for rows in (0, 1, 2, 0, 1):
        x = torch.arange(4.0 * rows).reshape(rows, 4) + 1
        assert torch.equal(fast(x), program(x))


ANSWERS = frozenset({"decide", "decide_or_check"})
DROPPED = {
    "capture/recording/gradients.py": "either answer has a rule; what counts is that it is known",
    "capture/sizes/beside_numpy.py": "what is relied on is asked behind it, and is known by then",
    "capture/tensors/storage.py": "a size below two is a number behind it, as it is known then",
    "ops/nn.py": "it is asked again whether the condition holds, and relied on only then",
}
"""Files that ask for a truth and do not look at it, and why they may."""


def test_no_answer_about_sizes_is_dropped() -> None:
    """`decide` follows what is known, which may deny what holds in the example: what relies on the
    example says `rely`, which breaks there."""
    package = Path(anyshape.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(map(text.__contains__, ANSWERS)) else ():
            call = node.value if isinstance(node, ast.Expr) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                if call.func.attr in ANSWERS:
                    found.add(str(path.relative_to(package)))
    assert found == {*DROPPED}
