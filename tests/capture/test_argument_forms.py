"""What torch's parser of arguments does not take is a ``TypeError`` in what is compiled, too: of
every method and function of torch that is captured."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.capture.tensors import torchmap
from anyshape.capture.tensors.tensor_methods import HANDLERS

FORMS: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]] = [
    ((), {}),
    ((3,), {}),
    ((0.5,), {}),
    (("x",), {}),
    ((None,), {}),
    ((True,), {}),
    ((3, 3, 3, 3, 3), {}),
    ((0, 0.5), {}),
    (((0, 1),), {}),
    ((), {"nonsense": 1}),
    ((0,), {"dim": 0}),
]


def captured(owner: Any) -> list[Callable[..., Any]]:
    found = {name: getattr(owner, name, None) for name in dir(owner)}
    known = HANDLERS.keys() | torchmap.ROWS.keys()
    return [fn for fn in found.values() if callable(fn) and fn in known]


def raised(program: Callable[[Tensor], Any]) -> type[Exception] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program(torch.rand(3, 3))
    except Exception as error:
        return type(error)
    return None


FUNCTIONS = 4
"""Of so many functions that follow each other, `make test` gives each form to one: another one for
each form, so that each function has two or three forms."""


@pytest.mark.parametrize("owner", [Tensor, torch])
@pytest.mark.parametrize("number", range(len(FORMS)), ids=lambda n: str(FORMS[n]))
def test_what_the_parser_refuses_is_a_type_error(owner: Any, number: int) -> None:
    assert wrongly_taken(captured(owner)[number % FUNCTIONS :: FUNCTIONS], FORMS[number]) == []


@pytest.mark.slow
@pytest.mark.parametrize("owner", [Tensor, torch])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_whatever_the_parser_refuses_is_a_type_error(owner: Any, form: Any) -> None:
    assert wrongly_taken(captured(owner), form) == []


def wrongly_taken(functions: Sequence[Callable[..., Any]], form: Any) -> list[str]:
    """The functions that are compiled though torch's parser refuses the form."""
    args, options = form
    wrong = []
    for fn in functions:

        def program(x: Tensor, fn: Any = fn) -> Any:
            return fn(x, *args, **options)

        if raised(program) is TypeError:
            fast = anyshape.compile(program, options={"cache": False})
            if raised(fast) is not TypeError:
                wrong.append(fn.__name__)
    return wrong


def test_methods_are_called_with_what_fits() -> None:
    def program(x: Tensor, n: int) -> tuple[Any, ...]:
        made = x.triu(1), x.triu(n), x.sum(0), x.sum((0, 1), True), x.sum(dim=-1, keepdim=True)
        return *made, x.view(-1, x.shape[0]), x.new_zeros(x.shape), x.new_full((n,), x.shape[0] / 2)

    fast = anyshape.compile(program, fullgraph=True)
    for n in (2, 3):
        x = torch.rand(n, n)
        for a, b in zip(fast(x, n), program(x, n), strict=True):
            torch.testing.assert_close(a, b)


WITHOUT_TENSORS: Sequence[Callable[[Tensor], Any]] = [
    lambda x: torch.full(len(x), 2),
    lambda x: torch.zeros((3.0, len(x))),
    lambda x: torch.randn(0.5),
    lambda x: torch.randint(0, 5, len(x)),
    lambda x: torch.eye(3.0),
    lambda x: torch.linspace(0, 5, 3.0),
    lambda x: torch.arange(len(x), 0.5, dtype="x"),
    lambda x: torch.empty_strided((len(x),), 2),
    lambda x: torch.nn.functional.layer_norm(x, 3),
    lambda x: torch.nn.functional.rms_norm(x, x.shape[1]),
    lambda x: x.unflatten(0, 3),
    lambda x: torch.tensordot(x, x, ([0], 0)),
    lambda x: torch.tensordot(x, x, ([0.0], [0])),
]


def test_factories_and_functions_in_python_refuse_what_the_parser_behind_them_refuses() -> None:
    for number, program in enumerate(WITHOUT_TENSORS):
        fast = anyshape.compile(program)
        assert (number, raised(fast)) == (number, raised(program)) == (number, TypeError)
        assert not fast.stats().internal_errors


def test_a_factory_is_asked_without_a_draw() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.rand(len(x)) + torch.randperm(len(x)) + torch.randint(5, (len(x),))

    fast = anyshape.compile(program)
    for n in (3, 1, 0):
        torch.manual_seed(n)
        wanted = program(torch.ones(n)), torch.rand(())
        torch.manual_seed(n)
        assert all(map(torch.equal, (fast(torch.ones(n)), torch.rand(())), wanted))


@pytest.mark.parametrize("name", ["__rmul__", "__sub__", "add", "to", "numel", "norm"])
def test_methods_of_tensors_refuse_what_is_no_tensor(name: str) -> None:
    """Their rows would take numbers."""

    def program(x: Tensor) -> Any:
        return getattr(Tensor, name)(2, *((3,) if name not in ("to", "numel") else ()))

    fast = anyshape.compile(program)
    assert raised(fast) is raised(program) is not None
    assert fast.stats().internal_errors == 0


def test_a_tensor_of_another_layout_is_made_as_eager_makes_it() -> None:
    def program(x: Tensor, *, pinned: bool) -> tuple[Any, ...]:
        n, sparse = len(x), torch.sparse_coo
        strided = torch.zeros(n, layout=x.layout, pin_memory=pinned)
        like = torch.zeros_like(x, layout=sparse)
        made = torch.zeros(n, layout=sparse), like, x.new_empty((n, 2), layout=sparse)
        return *(one.layout for one in made), torch.add(x, made[0].to_dense()), strided.layout

    fast = anyshape.compile(program)
    for n in (3, 0, 1):
        x = torch.rand(n)
        assert str(fast(x, pinned=False)) == str(program(x, pinned=False))
    if not torch.cuda.is_available():  # eager torch refuses it there
        with pytest.raises(RuntimeError, match="pin"):
            fast(torch.rand(2), pinned=True)
