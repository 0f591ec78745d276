"""The judge on stores at indices that come twice: any of the values may stay, and no other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.fuzz.oracle import call, differences, wrong
from tests.fuzz.stores import LastStored
from tests.fuzz.test_found import at, over

TWICE = {
    "rows": over(
        "4 4",
        "x0[x0.argsort(-1)] = x0[x0.argmax(-1)]",
        "x0,",
        layouts="plain reversed-rows transposed",
    ),
    "rows in another order": over(
        "4 4",
        "t = torch.ops.aten.slice(x0, 0, 0, x0.shape[0])",
        "t[x0.argsort(0)] = t[x0.argmax(-1)]",
        "t * 2, x0",
        layouts="gaps plain transposed",
    ),
    "cubes": at(
        over(
            "a a a",
            "x0[x0.argsort(1)] = x0[x0.long() % 2]",
            "x0 + 1,",
            layouts="plain permuted",
        ),
        (5, 5, 5),
        (2, 2, 7),
        (3, 3, 3),
    ),
}


@pytest.mark.parametrize("name", TWICE)
def test_any_of_the_values_may_stay(name: str) -> None:
    assert wrong(TWICE[name]) == []


@pytest.mark.parametrize("seed", range(3))
def test_the_last_one_stays(seed: int) -> None:
    torch.manual_seed(seed)
    x, i, y = torch.zeros(3, 2), torch.randint(-3, 3, (4, 5)).T, torch.randn(4, 5, 2).mT.mT
    wanted = x.clone()
    for row, column in torch.cartesian_prod(torch.arange(5), torch.arange(4)).tolist():
        wanted[i[row, column]] = y.transpose(0, 1)[row, column]
    with LastStored():
        x[i] = y.transpose(0, 1)
        added = torch.zeros(3).index_put((i,), torch.ones(()), accumulate=True)
        chosen = torch.zeros(3).index_put((torch.tensor([True, False, True]),), torch.ones(2))
    assert torch.equal(x, wanted)
    assert added.sum() == 20
    assert chosen.tolist() == [1, 0, 1]


def test_a_value_that_nobody_stored_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    program = TWICE["rows"]

    def off(x: Tensor) -> tuple[Tensor]:
        x[x.argsort(-1)] = x[x.argmax(-1)] + 1
        return (x,)

    monkeypatch.setattr("tests.fuzz.oracle.anyshape.compile", lambda *_, **__: off)
    assert any("values" in problem for problem in wrong(program, concrete=False))


def test_each_value_stays_what_it_was_without_repeats() -> None:
    def program(x: Tensor) -> Tensor:
        return x.index_put((torch.tensor([2, 0]),), torch.tensor([[1.0, 2.0]]).T)

    plain = call(program, [torch.zeros(3, 2)])
    with LastStored():
        stored = call(program, [torch.zeros(3, 2)])
    assert list(differences(stored, plain, exact=True)) == []
