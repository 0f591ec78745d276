"""What is compiled, seen by torch's own tracers: opaque or right, never an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import anyshape


def doubled(x: Tensor) -> Tensor:
    return x.sin() * 2


class Around(nn.Module):
    """A module with a compiled one inside, and a compiled function."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = anyshape.compile(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
        self.function = anyshape.compile(doubled)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.inner(x)) + 1


def dynamo(module: nn.Module, x: Tensor) -> Callable[..., Any]:
    return torch.compile(module, backend="eager", fullgraph=True)


def exported(module: nn.Module, x: Tensor, *, strict: bool = False) -> Callable[..., Any]:
    rows = {0: torch.export.Dim.DYNAMIC}
    return torch.export.export(module, (x,), dynamic_shapes=(rows,), strict=strict).module()


TRACERS: dict[str, Callable[[nn.Module, Tensor], Callable[..., Any]]] = {
    "torch.jit.trace": torch.jit.trace,
    "torch.fx": lambda module, x: torch.fx.symbolic_trace(module),
    "make_fx": lambda module, x: make_fx(module)(x),
    "make_fx symbolic": lambda module, x: make_fx(
        module, tracing_mode="symbolic", _allow_non_fake_inputs=True
    )(x),
    "torch.compile": dynamo,
    "torch.export": exported,
    "torch.export strict": lambda module, x: exported(module, x, strict=True),
}


@pytest.mark.parametrize("called_before", [False, True])
@pytest.mark.parametrize("tracer", TRACERS)
def test_a_tracer_sees_the_operators_of_what_is_compiled(tracer: str, called_before: bool) -> None:
    module, x = Around(), torch.randn(2, 3)
    with torch.no_grad():
        if called_before:
            module(x)
        traced = TRACERS[tracer](module, x)
        for rows in (2, 5):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(traced(x), module(x))


def test_fx_calls_a_compiled_module_by_its_name() -> None:
    graph = torch.fx.symbolic_trace(Around()).graph
    called = [node.target for node in graph.nodes if node.op == "call_module"]
    assert called == ["inner.0", "inner.1"]


def test_what_torch_export_gives_compiles_whole() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    fast = anyshape.compile(exported(module, torch.randn(2, 3)))
    with torch.no_grad():
        for rows in (2, 5):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(fast(x), module(x))
    stats = fast.stats()
    assert (stats.specializations, stats.graph_breaks) == (1, 0)


@pytest.mark.parametrize("tracer", TRACERS)
def test_so_it_sees_those_of_a_module_whose_forward_is_compiled(tracer: str) -> None:
    module, x = nn.Linear(3, 4), torch.randn(2, 3)
    plain = nn.Linear(3, 4)
    plain.load_state_dict(module.state_dict())
    module.forward = anyshape.compile(module.forward)  # type: ignore[method-assign]
    with torch.no_grad():
        traced = TRACERS[tracer](module, x)
        for rows in (2, 5):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(traced(x), plain(x))
