"""Functions of torch on lists of tensors: what they give, what they write, and which list it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

NAMES = sorted(name for name in dir(torch) if name.startswith("_foreach_"))
FORMS: dict[str, Callable[[list[torch.Tensor]], tuple[Any, ...]]] = {
    "alone": lambda others: (),
    "number": lambda others: (2.0,),
    "list": lambda others: (others,),
    "list, number": lambda others: (others, 0.5),
    "lists": lambda others: (others, others),
}


def _lists(kind: type) -> tuple[Any, list[torch.Tensor]]:
    return (
        kind([torch.tensor([[0.25, 0.5], [0.75, 0.375]]), torch.tensor([[0.75]])]),
        [torch.tensor([[0.5, 0.125], [0.25, 0.5]]), torch.tensor([[0.25]])],
    )


def _forms(function: Any) -> list[str]:
    """The forms in which eager takes the function."""
    taken = []
    for key, form in FORMS.items():
        given, others = _lists(list)
        try:
            function(given, *form(others))
        except (TypeError, RuntimeError):
            continue
        taken.append(key)
    return taken


@pytest.mark.parametrize("name", NAMES)
def test_gives_what_eager_gives(name: str, kind: type = list) -> None:
    function = getattr(torch, name)
    forms = _forms(function)
    assert forms, f"no form of {name} is known to this test"

    def program(lists: list[Any], others: list[torch.Tensor]) -> list[Any]:
        return [function(x, *FORMS[key](others)) for key, x in zip(forms, lists, strict=True)]

    given, others = [_lists(kind)[0] for _ in forms], _lists(list)[1]
    mine = [_lists(kind)[0] for _ in forms]
    expected, found = program(given, others), anyshape.compile(program)(mine, others)
    for a, b, x, y in zip(found, expected, mine, given, strict=True):
        assert type(a) is type(b)
        assert (a is x) == (b is y)
        torch.testing.assert_close(a, b, equal_nan=True)
        torch.testing.assert_close(x, y, equal_nan=True)


@pytest.mark.parametrize("name", ["_foreach_add_", "_foreach_mul"])
def test_of_a_tuple(name: str) -> None:
    test_gives_what_eager_gives(name, tuple)


@pytest.mark.filterwarnings("ignore")
def test_no_tensors_are_refused_as_in_eager_and_nothing_else_of_the_program_is_lost() -> None:
    functions = [getattr(torch, n) for n in ("_foreach_add_", "_foreach_norm", "_foreach_zero_")]
    given = [(2.0,), (), ()]

    def program(x: torch.Tensor, count: int) -> list[str]:
        said = []
        for function, others in zip(functions, given, strict=True):
            try:
                function([x] * count, *others)
                said.append("")
            except RuntimeError as error:
                said.append(str(error))
        return said

    fast = anyshape.compile(program)
    for size, count in ((3, 0), (2, 1), (1, 0)):
        mine, eagers = torch.ones(size), torch.ones(size)
        assert fast(mine, count) == program(eagers, count)
        assert torch.equal(mine, eagers)
    assert not fast.stats().internal_errors
