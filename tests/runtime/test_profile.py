"""What torch's profilers see: segments, kernels and libraries by name, with the user's lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import profile

import anyshape

HERE = Path(__file__).name


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x @ self.weight) * 2
        return y.softmax(-1)


def lines(*texts: str) -> list[str]:
    """`file:line` of the lines of this file with these texts."""
    source = Path(__file__).read_text().split("\n")
    return [f"{HERE}:{1 + next(i for i, s in enumerate(source) if t in s)}" for t in texts]


@pytest.fixture
def seen() -> dict[str, int]:
    """How often each event was seen in two calls of the model."""
    fast, x = anyshape.compile(Model()), torch.randn(3, 4)
    with torch.no_grad():
        expected = fast(x)
        with profile() as profiler:
            for _ in range(2):
                torch.testing.assert_close(fast(x), expected)
        assert fast.stats().specializations == 1
    return {event.key: event.count for event in profiler.key_averages()}


def test_the_segment_is_one_event(seen: dict[str, int]) -> None:
    (place,) = lines("y = torch.relu(x")
    assert seen[f"anyshape: Model {place}"] == 2


def test_a_kernel_is_an_event_with_its_operators_and_the_users_lines(seen: dict[str, int]) -> None:
    (kernel,) = [name for name in seen if name.startswith("kernel_")]
    assert "exp" in kernel and "relu" in kernel and seen[kernel] == 2
    assert kernel.endswith("+".join(lines("y = torch.relu(x", "return y.softmax")))


def test_a_library_call_is_an_event_with_the_users_line(seen: dict[str, int]) -> None:
    (place,) = lines("y = torch.relu(x")
    assert seen[f"torch.mm {place}"] == 2


def test_a_name_may_be_given() -> None:
    fast = anyshape.compile(lambda x: x + 1, name="the step")
    with profile() as profiler:
        fast(torch.ones(3))
    assert any("anyshape: the step" in event.key for event in profiler.key_averages())


def test_a_stack_of_calls_names_the_function() -> None:
    fast = anyshape.compile(Model())
    with torch.no_grad():
        fast(torch.randn(3, 4))
    (variant,) = fast.stats.__self__._lazy.machinery._variants()
    assert variant.compiled.linked.run.__code__.co_filename == "<anyshape Model>"


def test_a_trace_for_perfetto_has_them(tmp_path: Path) -> None:
    fast = anyshape.compile(lambda x: (x + 1).sin())
    with profile() as profiler:
        fast(torch.ones(3))
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(str(event.get("name")).startswith("kernel_") for event in events)


def test_without_a_profiler_the_twin_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*args: object) -> None:
        raise AssertionError("made")

    monkeypatch.setattr("anyshape.driver.Driver._labelled", made)
    assert torch.equal(anyshape.compile(lambda x: x + 1)(torch.ones(2)), torch.full((2,), 2.0))
