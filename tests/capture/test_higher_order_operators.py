"""`torch.cond`, `while_loop` and the other operators that are handed functions, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import anyshape

pytestmark = pytest.mark.filterwarnings("ignore")


class Choice(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def forward(self, chosen: Tensor, x: Tensor) -> Any:
        return torch.cond(chosen, lambda y: self.a(y), lambda y: self.b(y).sin(), (x,))


def test_the_side_that_cond_takes_gets_its_gradients() -> None:
    torch.manual_seed(0)
    model = Choice()
    fast = anyshape.compile(model)
    for chosen in (True, False, True):
        gradients = []
        for run in (model, fast):
            model.zero_grad()
            x = torch.ones(1, 2, requires_grad=True)
            run(torch.tensor(chosen), x).sum().backward()
            gradients.append([x.grad, *(p.grad for p in model.parameters())])
        for expected, found in zip(*gradients, strict=True):  # zeros or none: eager runs a copy
            nothing = torch.zeros(())
            assert torch.allclose(*(nothing if g is None else g for g in (expected, found)))
    assert not fast.stats().internal_errors


def test_cond_by_a_size_breaks_nothing() -> None:
    def program(x: Tensor) -> Any:
        return torch.cond(x.shape[0] > 3, lambda y: y + 1, lambda y: y - 1, (x,))

    fast = anyshape.compile(program, fullgraph=True)
    for size in (2, 5, 3, 4, 0):
        assert torch.equal(fast(torch.ones(size)), program(torch.ones(size)))
    assert not fast.stats().graph_breaks


def nested(first: bool, second: bool, x: Tensor) -> Any:
    w = x * 3

    def outer(y: Tensor) -> Any:
        return torch.cond(torch.tensor(second), lambda z: z * 10 + w, lambda z: -z, [y])

    return torch.cond(torch.tensor(first), outer, lambda y: y + w, [x])


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_cond_inside_of_cond_reads_what_lies_around(first: bool, second: bool) -> None:
    x = torch.ones(2)
    assert torch.equal(anyshape.compile(nested)(first, second, x), nested(first, second, x))


def loop(x: Tensor) -> Any:
    return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))


@torch.compiler.nested_compile_region
def region(x: Tensor) -> Tensor:
    return x.sin() + 1


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "while_loop": loop,
    "map": lambda x: torch_map(lambda y, z: y.sin() + z, x, torch.ones(2)),
    "scan": lambda x: scan(lambda a, b: (a + b, a * b), x[0], x, dim=0),
    "nested_compile_region": lambda x: region(region(x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_operators_that_are_handed_functions_are_eagers(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(lambda x: program(x + 1))
    for x in (torch.ones(3, 2), torch.rand(4, 2)):
        expected, found = program(x + 1), fast(x)
        torch.testing.assert_close(found, expected)
    assert not fast.stats().internal_errors


def test_a_nested_region_is_captured_with_what_calls_it() -> None:
    fast = anyshape.compile(lambda x: region(x) * 2, fullgraph=True)
    assert torch.allclose(fast(torch.ones(3)), region(torch.ones(3)) * 2)


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.ones(2) > 0, torch.sin, torch.cos, (torch.ones(2),)),
        ("yes", torch.sin, torch.cos, (torch.ones(2),)),
        (torch.tensor(True), 1, torch.cos, (torch.ones(2),)),
        (torch.tensor(True), torch.sin, torch.cos, (3,)),
        (torch.tensor(True), torch.sin, torch.cos, torch.ones(2)),
    ],
)
def test_cond_refuses_what_eager_refuses(arguments: Any) -> None:
    raised = []
    for run in (torch.cond, anyshape.compile(lambda *given: torch.cond(*given))):
        with pytest.raises(RuntimeError) as error:
            run(*arguments)
        raised.append(str(error.value))
    assert raised[0] == raised[1]
