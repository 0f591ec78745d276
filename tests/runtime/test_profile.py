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
    (location,) = lines("y = torch.relu(x")
    assert seen[f"anyshape: Model {location}"] == 2


def test_a_kernel_is_an_event_with_its_operators_and_the_users_lines(seen: dict[str, int]) -> None:
    (kernel,) = [name for name in seen if name.startswith("kernel_")]
    assert "exp" in kernel and "relu" in kernel and seen[kernel] == 2
    assert kernel.endswith("+".join(lines("y = torch.relu(x", "return y.softmax")))


def test_a_library_call_is_an_event_with_the_users_line(seen: dict[str, int]) -> None:
    (location,) = lines("y = torch.relu(x")
    assert seen[f"torch.mm {location}"] == 2


def test_a_graph_that_eager_torch_runs_is_seen_as_well() -> None:
    with torch.device("meta"):
        model, x = Model(), torch.randn(3, 4)
    fast = anyshape.compile(model)
    fast(x)
    assert fast.stats().eager_graphs
    with profile() as profiler:
        fast(x)
    seen = {event.key for event in profiler.key_averages()}
    (product, softmax) = lines("y = torch.relu(x", "return y.softmax")
    named = {key.partition(" ")[0].rpartition(".")[2]: key.partition(" ")[2] for key in seen}
    assert (named["matmul"], named["relu"], named["softmax"]) == (product, product, softmax)
    assert any(key.startswith("anyshape: ") for key in seen)


def test_both_halves_of_a_training_step_are_seen() -> None:
    fast = anyshape.compile(Model())
    fast(torch.randn(3, 4)).sum().backward()
    with profile() as profiler:
        fast(torch.randn(3, 4)).sum().backward()
    assert fast.stats().gradients == 1
    segments = [e for e in profiler.key_averages() if e.key.startswith("anyshape: Model")]
    assert sum(event.count for event in segments) == 2


def test_a_name_may_be_given() -> None:
    fast = anyshape.compile(lambda x: x + 1, name="the step")
    with profile() as profiler:
        fast(torch.ones(3))
    assert any("anyshape: the step" in event.key for event in profiler.key_averages())


def test_a_stack_of_calls_names_the_function() -> None:
    fast = anyshape.compile(Model())
    with torch.no_grad():
        fast(torch.randn(3, 4))
    (variant,) = fast.stats.__self__._lazy.machinery._specializations()
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


def test_memory_is_counted_where_it_is_allocated() -> None:
    fast, x = anyshape.compile(Model()), torch.randn(3, 4)
    with torch.no_grad():
        fast(x)
        with profile(profile_memory=True) as profiler:
            fast(x)
    allocated = {event.key: event.cpu_memory_usage for event in profiler.key_averages()}
    (segment,) = [name for name in allocated if name.startswith("anyshape: ")]
    assert allocated[segment] == 3 * 4 * 4  # of a float32 result; what is in between is let go


def test_the_line_is_the_users_and_not_one_of_torchs_modules() -> None:
    layer = nn.Linear(4, 4)
    fast = anyshape.compile(lambda x: layer(x) + 1)
    with torch.no_grad():
        fast(torch.randn(3, 4))
        with profile() as profiler:
            fast(torch.randn(3, 4))
    (location,) = lines("lambda x: layer(x) + 1")
    assert any(f"linear {location}" in event.key for event in profiler.key_averages())


def microseconds(line: str) -> float:
    (text,) = [part for part in line.split(", ") if part.endswith(" us")]
    return float(text.removesuffix(" us"))


def test_kernels_called_with_arguments_are_timed() -> None:
    fast, weight = anyshape.compile(lambda x, w: (x * 2 @ w).relu().sum(0)), torch.randn(64, 30)
    for rows, schedule in ((2000, "folded columns"), (3, "columns")):
        scaled, total = fast.kernels(torch.randn(rows, 64), weight).splitlines()
        assert f", {2 * 4 * 64 * rows} bytes, " in scaled and scaled.endswith(", cells")
        assert f", {4 * 30 * (rows + 1)} bytes, " in total and total.endswith(f", {schedule}")
        for line in (scaled, total):
            assert microseconds(line) > 0 and "% of a copy's speed" in line
    assert not any(" us" in line for line in fast.kernels().splitlines())


def test_launches_whose_sizes_data_decides_are_timed_as_well() -> None:
    fast = anyshape.compile(lambda x: x[x > 0].exp().sum())
    lines = fast.kernels(torch.linspace(-1.0, 1.0, 4000)).splitlines()
    assert lines and all(microseconds(line) > 0 for line in lines)
    positions = 8 * 2000  # of what is positive
    assert f", {4 * 4000 + positions + 4} bytes, " in lines[-1]


def test_kernels_of_both_halves_are_timed() -> None:
    fast, x = anyshape.compile(Model()), torch.randn(3, 4)
    fast(x).sum().backward()
    timed = [line for line in fast.kernels(x).splitlines() if " us" in line]
    assert timed and len(timed) < fast.stats().kernels  # the backward half was not called again


def test_a_region_is_an_event_and_leaves_results_and_errors_alone() -> None:
    def body(x: Tensor) -> Tensor:
        with anyshape.profile("the middle"):
            return x.exp() + 1

    fast, x = anyshape.compile(body), torch.randn(5)
    torch.testing.assert_close(fast(x), body(x))
    with profile() as profiler:
        with anyshape.profile("around"):
            fast(x)
        with pytest.raises(KeyError), anyshape.profile("failing"):
            raise KeyError
    seen = {event.key for event in profiler.key_averages()}
    assert {"around", "failing"} <= seen
