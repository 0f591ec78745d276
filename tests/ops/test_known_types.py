"""What a row's rule said of types is not worked out again, until facts say more of their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import anyshape
from anyshape.ir import text
from anyshape.ir.graph import ScalarType
from anyshape.ir.scalars import ScalarInput
from anyshape.ops import known_types
from anyshape.ops.context import TypeContext
from anyshape.symbolic import Facts, Space, ge


def decoder(layers: int) -> nn.Module:
    made = (nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(layers))
    return nn.Sequential(*made).eval()


def first_call(layers: int) -> None:
    fast = anyshape.compile(decoder(layers), fullgraph=True, options={"cache": False})
    with torch.no_grad():
        fast(torch.ones(5, 8))


def test_equal_layers_ask_each_rule_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[object] = []
    answered = known_types.answered

    def counting(cx: Any, question: Any, args: Any, kwargs: Any, work: Callable[[], Any]) -> Any:
        return answered(cx, question, args, kwargs, lambda: (worked.append(question), work())[1])

    monkeypatch.setattr(known_types, "answered", counting)
    counts = []
    for layers in (3, 12):
        worked.clear()
        first_call(layers)
        counts.append(len(worked))
    assert 0 < counts[1] <= counts[0] + 4


def test_types_of_equal_layers_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a graph is the key of what is kept on disk."""
    written: list[object] = []
    type_text = text.type_text

    def counting(kind: Any) -> str:
        written.append(kind)
        return type_text(kind)

    fast = anyshape.compile(decoder(12), fullgraph=True)
    with torch.no_grad():
        fast(torch.ones(5, 8))
    monkeypatch.setattr(text, "type_text", counting)
    (captured,) = fast.graphs()
    inputs = 1 + 4 * 12  # whose lines are written one by one
    assert captured.count(" = torch.") == 3 * 12
    assert len(written) <= inputs + 3


def asked_twice(change: Callable[[TypeContext], None], *args: Any) -> int:
    """How often a question about these is worked out that is asked before and after the change."""
    space = Space()
    size = space.fresh("s")
    cx = TypeContext(space, Facts(space))
    worked: list[None] = []
    for number in range(2):
        given = tuple(size if arg == "size" else arg for arg in args)
        known_types.answered(cx, "row", given, {}, lambda: worked.append(None))
        if not number:
            change(cx)
    return len(worked)


def test_an_answer_is_worked_out_again_when_facts_about_its_sizes_grow() -> None:
    def learn(cx: TypeContext) -> None:
        (size,) = cx.space
        cx.facts.assume(ge(size, 2))

    def learn_of_another(cx: TypeContext) -> None:
        cx.facts.assume(ge(cx.space.fresh("t"), 2))

    def fork(cx: TypeContext) -> None:
        cx.facts = cx.facts.fork()

    assert asked_twice(learn, "size") == 2
    assert asked_twice(learn_of_another, "size") == 1
    assert asked_twice(fork, "size") == 2
    assert asked_twice(lambda cx: None, "size", slice("size", None), ("size",)) == 1


def test_what_a_rule_may_do_is_part_of_the_question() -> None:
    def may_check(cx: TypeContext) -> None:
        cx.on_check = lambda condition, message: None

    def takes_apart(cx: TypeContext) -> None:
        cx.wanted = 3

    def other_dtype(cx: TypeContext) -> None:
        cx.default_dtype = anyshape.ir.dtypes.float64

    assert [asked_twice(change) for change in (may_check, takes_apart, other_dtype)] == [2, 2, 2]


def test_what_made_a_size_or_learned_a_fact_is_worked_out_each_time() -> None:
    space = Space()
    cx = TypeContext(space, Facts(space))
    sizes = [known_types.answered(cx, "row", (), {}, cx.fresh_size) for _ in range(2)]
    assert sizes[0] is not sizes[1]


def test_numbers_of_two_tensors_of_one_type_are_two() -> None:
    """A bool that is read makes no size: its type names the number itself."""

    def program(x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        first, second = flags.unbind()
        return x + torch.where(first, 1, 2) * first.item() + second.item() * 10

    fast = anyshape.compile(program)
    for flags in ([True, False], [False, True], [True, True]):
        given = torch.ones(3), torch.tensor(flags)
        torch.testing.assert_close(fast(*given), program(*given))
    space = Space()
    cx = TypeContext(space, Facts(space))

    def read() -> ScalarType:
        return ScalarType("bool", ScalarInput("n", "bool"))

    found = [known_types.answered(cx, "item", (), {}, read) for _ in range(2)]
    assert found[0] is not found[1]


@pytest.mark.parametrize("others", [(1, True), (1, 1.0), (0, False)])
def test_equal_numbers_of_other_types_are_other_questions(others: tuple[Any, Any]) -> None:
    space = Space()
    cx = TypeContext(space, Facts(space))
    found = [known_types.answered(cx, "row", (n,), {}, lambda n=n: type(n)) for n in others]
    assert found == [type(n) for n in others]
