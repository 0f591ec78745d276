"""What has another value in each call makes no specialization for each value: after a few, its
value is relied on no more, and the program breaks where it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.options import Options
from tests.capture.by_reference import agree

MOST = Options().max_variants


def tensors(count: int) -> list[tuple[Tensor]]:
    stream = torch.Generator().manual_seed(0)
    return [(torch.rand(n, 3, generator=stream) + 0.1,) for n in range(1, count)]


def test_a_loop_as_long_as_data_says_is_two_specializations_and_then_a_cycle() -> None:
    def looped(x: Tensor) -> Tensor:
        for i in range(int(x.sum().item())):
            x = x * 0.5 + i
        return x

    fast = agree(looped, *tensors(25), fullgraph=False)
    assert fast.stats().specializations <= 7


def test_a_loop_as_long_as_an_argument_says_stays_compiled_at_any_length() -> None:
    def looped(x: Tensor, count: int) -> Tensor:
        for i in range(count):
            x = x * 0.5 + i
        return x

    lengths = (1, 2, 3, 4, 0, 5, 9, 30, 7, 3, 12, 2, 17)
    fast = agree(looped, *((torch.ones(2), n) for n in lengths), fullgraph=False)
    assert fast.stats().specializations <= 12 and not fast.warned


def test_a_loop_over_a_dimension_stays_compiled_at_any_size() -> None:
    def recurrent(x: Tensor) -> Tensor:
        state = torch.zeros(3)
        for t in range(x.shape[0]):
            state = torch.tanh(state + x[t])
        return state

    fast = agree(recurrent, *tensors(20), fullgraph=False)
    assert fast.stats().specializations <= 11 and not fast.warned


@pytest.mark.parametrize("spec", ["", ".3f"])
def test_a_text_made_of_data_is_handed_on_unread(spec: str) -> None:
    def told(x: Tensor) -> tuple[Tensor, str, dict[str, str]]:
        text = format(x.sum().item(), spec)
        y = x + 1
        return y, f"sum {text}", {"text": text}

    fast = agree(told, *tensors(20), fullgraph=False)
    assert not fast.warned and fast.stats().specializations <= 2 * MOST


def test_what_is_asked_of_a_text_made_of_data_is_answered_natively() -> None:
    def asked(x: Tensor) -> tuple[object, ...]:
        text = f"{x.sum().item():.2f}"
        x = x * 2
        parts = [text, "a", text]
        if text.startswith("1"):
            x = x + 1
        known = {text: 1, "a": 2}
        found = (
            *("." in text, text in "1.50", text in parts, text == "1.50", len(text), text[0]),
            *("-".join(parts), text.upper(), text * 2, "<%s>" % text, known[text], float(text)),
            *(isinstance(text, str), type(text) is str, sorted(parts), list(text)[:1]),
        )
        return x, found, "{} {text}".format(text, text=text)

    fast = agree(asked, *tensors(16), fullgraph=False)
    assert not fast.warned


def test_a_float_that_is_formatted_is_no_specialization_for_each_value() -> None:
    def logged(x: Tensor, rate: float) -> tuple[Tensor, str]:
        return x * rate, f"rate {rate}"

    calls = [(torch.ones(3), 1 / n) for n in range(1, 20)]
    fast = agree(logged, *calls, fullgraph=False)
    assert not fast.warned and fast.stats().specializations <= 2 * MOST


def test_values_are_relied_on_where_a_break_is_an_error() -> None:
    fast = agree(lambda x, n: [x * i for i in range(n)], *((torch.ones(2), n) for n in range(7)))
    assert fast.stats().graph_breaks == 0


UNUSUAL = (
    *(1.5, 2.5, math.nan, 0.0, -0.0, -1.5, math.nan, 3.5, math.inf, 1e30, -math.inf, -1e30, 0.5),
    -3.0,
)


@pytest.mark.parametrize(
    "function",
    [
        lambda k: k**2,
        lambda k: k**3,
        lambda k: k**0.5,
        lambda k: k**-1,
        math.sqrt,
        math.log,
        math.acos,
        math.sin,
        math.exp,
        lambda k: 1 / k,
        lambda k: k % 2.0,
        lambda k: math.copysign(2.0, k**3),
        lambda k: f"{k**3}",
        int,
        round,
        math.floor,
        lambda k: list(range(int(k * 2) % 5)),
        lambda k: k // 1,
        lambda k: divmod(k, 2),
    ],
    ids=lambda function: getattr(function, "__name__", ""),
)
@pytest.mark.filterwarnings("ignore")
def test_a_function_of_a_float_is_that_of_this_call_after_any_other(
    function: Callable[[float], Any],
) -> None:
    def program(x: Tensor, k: float) -> Any:
        return x * 2, function(k)

    def told(run: Callable[..., Any], k: float) -> str:
        try:
            return repr(run(torch.ones(2), k)[1])
        except (ArithmeticError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    fast = anyshape.compile(program)
    for k in UNUSUAL:
        assert told(fast, k) == told(program, k), k
    assert not fast.stats().internal_errors
