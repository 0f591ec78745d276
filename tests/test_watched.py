"""What sees each operator of eager torch (a mode of the program's, hooks for saved tensors, tangents
of forward gradients) sees them in a compiled function too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import anyshape

SIZES = (3, 1, 0, 2, 17)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Linear(3, 5), nn.ReLU(), nn.Dropout(0.2), nn.Linear(5, 3))
    return nn.Sequential(*layers)


class DoublingFunctions(TorchFunctionMode):
    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = fn(*args, **(kwargs or {}))
        return made * 2 if getattr(fn, "__name__", "") == "relu" else made


class DoublingOperators(TorchDispatchMode):
    def __torch_dispatch__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = fn(*args, **(kwargs or {}))
        return made * 2 if "relu" in str(fn) else made


@contextmanager
def halved() -> Iterator[None]:
    saved = torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t / 2)
    with saved:
        yield


WATCHING: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "functions": DoublingFunctions,
    "operators": DoublingOperators,
    "saved tensors": halved,
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("where", ["around", "inside"])
@pytest.mark.parametrize("name", WATCHING)
def test_a_mode_sees_what_a_compiled_function_does(name: str, where: str, grad: bool) -> None:
    net = network()

    def program(x: Tensor) -> Tensor:
        y = net(x)
        if where == "inside":
            with WATCHING[name]():
                y = net(y)
        return net(y)

    def watched(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Any, ...]:
        torch.manual_seed(1)
        with torch.set_grad_enabled(grad):
            plain = function(x)
            if where == "inside":
                made = plain
            else:
                with WATCHING[name]():
                    made = function(x)
            gradients = torch.autograd.grad(made.sum(), net[0].weight) if grad else ()
        return plain, made, *gradients

    fast = anyshape.compile(program)
    for size in SIZES:
        x = torch.randn(size, 3)
        torch.testing.assert_close(watched(fast, x), watched(program, x))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_compiled_function_may_be_checkpointed(reentrant: bool) -> None:
    net = network()
    fast = anyshape.compile(net)

    def step(function: Any, x: Tensor) -> tuple[Tensor, Tensor | None]:
        torch.manual_seed(1)
        y = checkpoint(function, x, use_reentrant=reentrant)
        y.sum().backward()
        return y, x.grad

    for size in SIZES:
        ours, theirs = (torch.ones(size, 3, requires_grad=True) for _ in range(2))
        torch.testing.assert_close(step(fast, ours), step(net, theirs))
        torch.testing.assert_close(fast.eval()(ours), net.eval()(ours))
        net.train()


@pytest.mark.parametrize("grad", [True, False])
def test_forward_gradients_go_through_a_compiled_function(grad: bool) -> None:
    net = network().eval()
    fast = anyshape.compile(net)
    with torch.set_grad_enabled(grad):
        for size in SIZES:
            x, tangent = torch.randn(size, 3), torch.randn(size, 3)
            torch.testing.assert_close(fast(x), net(x))
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x, tangent)
                ours, theirs = (forward_ad.unpack_dual(f(dual)).tangent for f in (fast, net))
                assert ours is not None
                torch.testing.assert_close(ours, theirs)
    assert fast.stats().specializations == 1


def test_floating_point_operations_are_counted() -> None:
    net = network().eval()
    fast = anyshape.compile(net)
    with torch.no_grad():
        for size in SIZES[:2]:
            x, counts = torch.randn(size, 3), []
            fast(x)
            for function in (fast, net):
                with FlopCounterMode(display=False) as counter:
                    function(x)
                counts.append(counter.get_total_flops())
            assert counts[0] == counts[1] > 0


def test_a_default_device_below_another_mode_is_no_default_device_alone() -> None:
    fast = anyshape.compile(lambda x: torch.relu(x) + torch.ones(2))
    x = torch.ones(2)
    with torch.device("cpu"), torch.device("cpu"):
        assert fast(x).tolist() == [2, 2]
    with torch.device("cpu"), DoublingFunctions():
        assert fast(x).tolist() == [3, 3]
