"""What does not run as one compiled whole is told once: what, where, and what it costs."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import anyshape
from anyshape.errors import PerformanceWarning


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x[:1] * 3


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.ModuleDict({"gate": Gate()})

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp["gate"](x + 1)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity(), Layer(), Layer()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def told(run: Callable[[], Any]) -> list[str]:
    """The texts of what is told of speed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in caught if w.category is PerformanceWarning]


def test_the_first_break_names_the_module_the_line_and_the_cost() -> None:
    fast = anyshape.compile(Model())

    def run() -> None:
        for rows in (2, 3, 2):
            fast(torch.ones(rows, 3))

    with torch.no_grad():
        (text,) = told(run)
    assert text.startswith("E230 graph break in layers.1.mlp.gate: this branch depends on")
    assert "return x * 2 if x.sum() > 0 else x[:1] * 3" in text and "test_slow_paths.py:" in text
    assert "us a call" in text and "anyshape breaks tensor-branch" in text
    assert fast.stats().graph_breaks > 1


def test_a_module_handed_to_a_function_is_named_from_itself() -> None:
    with torch.no_grad():
        (text,) = told(lambda: anyshape.compile(lambda m, x: m(x))(Model(), torch.ones(2, 3)))
    assert "in layers.1.mlp.gate" in text


def test_each_function_tells_of_its_own() -> None:
    def run() -> None:
        for _ in range(2):
            anyshape.compile(Gate())(torch.ones(2))

    assert len(told(run)) == 2


def test_a_break_that_the_program_asks_for_is_not_told() -> None:
    @torch.compiler.disable
    def asked(x: Tensor) -> Tensor:
        return x * 2

    assert told(lambda: anyshape.compile(lambda x: asked(x) + 1)(torch.ones(2))) == []


def test_a_written_file_is_told_as_an_effect() -> None:
    file = io.StringIO()

    def program(x: Tensor) -> Tensor:
        file.write("called")
        return x * 2

    (text,) = told(lambda: anyshape.compile(program)(torch.ones(2)))
    assert "StringIO.write has an effect outside" in text


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_mode_under_which_it_runs_natively_is_told_once() -> None:
    fast = anyshape.compile(lambda x: x + 1)

    def run() -> None:
        with Watching():
            for _ in range(3):
                fast(torch.ones(2))

    (text,) = told(run)
    assert "<lambda> under Watching run natively" in text
    assert told(lambda: fast(torch.ones(2))) == []


def test_tracers_of_torch_are_not_told() -> None:
    fast = anyshape.compile(lambda x: x + 1)
    assert told(lambda: torch.jit.trace(fast, torch.ones(2))) == []
    assert told(lambda: torch.fx.experimental.proxy_tensor.make_fx(fast)(torch.ones(2))) == []


def test_explain_lists_and_does_not_tell() -> None:
    assert told(lambda: anyshape.explain(Gate())(torch.ones(2))) == []


def on_meta() -> Tensor:
    return torch.ones(2, device="meta")


def test_the_first_graph_that_eager_torch_runs_is_told_with_its_reason() -> None:
    fast = anyshape.compile(lambda x: (x + 1) * 2)

    def run() -> None:
        for _ in range(3):
            fast(on_meta())

    (text,) = told(run)
    assert text.startswith("E231 eager torch runs this graph of 2 operators: a tensor lies on meta")
    assert "test_slow_paths.py:" in text


@pytest.mark.parametrize(
    ("program", "calls", "verdict"),
    [
        (lambda x: x + 1, 0, "not called yet"),
        (lambda x: x + 1, 2, "compiled whole, once"),
        (Gate(), 1, "compiled in 2 pieces: 1 graph break"),
    ],
)
def test_stats_begin_with_a_verdict(program: Callable[..., Any], calls: int, verdict: str) -> None:
    fast = anyshape.compile(program)
    for _ in range(calls):
        fast(torch.ones(3))
    lines = str(fast.stats()).split("\n")
    assert lines[0].startswith(verdict)
    assert f"calls {calls}" in [" ".join(line.split()[:2]) for line in lines]


def test_one_process_of_many_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = anyshape.dispatch.ranks.distributed
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    for rank, count in ((0, 1), (1, 0)):
        monkeypatch.setattr(distributed, "get_rank", lambda rank=rank: rank)
        assert len(told(lambda: anyshape.compile(Gate())(torch.ones(2)))) == count
