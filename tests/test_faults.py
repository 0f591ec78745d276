"""A failure of our own compiler, in whichever stage: eager's result, and one warning that names the
stage and the user's line.
"""

from __future__ import annotations

import ctypes
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape import driver
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.segments import capturing
from anyshape.capture.tensors import tensor_ops
from anyshape.dispatch import specialize
from anyshape.errors import (
    INSTEAD,
    RAISED,
    AnyshapeError,
    AnyshapeWarning,
    PerformanceWarning,
)
from anyshape.ops.build import Builder
from anyshape.passes import pipeline
from anyshape.runtime import launch
from anyshape.targets.cpu import build
from anyshape.targets.cpu import target as cpu

X = torch.randn(3, 4)


def failing(module: str) -> Callable[..., Any]:
    """A function of a module of ours that raises as a mistake does: not by `raise`."""
    scope: dict[str, Any] = {"__name__": module}
    exec("def fails(*args, **kwargs):\n    return {}['injected']", scope)
    fails: Callable[..., Any] = scope["fails"]
    return fails


fails = failing("anyshape.somewhere")


def program(x: Tensor) -> Tensor:
    y = x * 2 + 1  # the line
    return y.softmax(-1)


def caught(x: Tensor) -> Tensor:
    try:
        return x * 2 + 1  # the line
    except Exception:
        return x


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def fresh_builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is loaded or cached: the C compiler has to run."""
    monkeypatch.setenv("ANYSHAPE_CACHE_DIR", str(tmp_path / "cache"))


STRICT: tuple[dict[str, Any], ...] = ({"fullgraph": True}, {"options": {"fallback": "error"}})


def the_warning(fn: Callable[..., Any], *args: Any, strict: Any = STRICT) -> str:
    """The one warning of three calls, all of them right; an error where nothing may run eagerly."""
    fast = anyshape.compile(fn)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.testing.assert_close(fast(*args), fn(*args), rtol=0, atol=0)
        explained = str(anyshape.explain(fn)(*args))
    ours = [w for w in seen if issubclass(w.category, AnyshapeWarning)]
    assert len(ours) == 2  # compiled, explained
    text = str(ours[0].message)
    assert (
        str(ours[1].message) in explained and text.splitlines()[:4] == explained.splitlines()[2:6]
    )
    assert ours[0].filename == __file__
    assert INSTEAD in text and "anyshape" in text and "torch 2" in text and "Python 3" in text
    assert 1 <= fast.stats().internal_errors <= 4  # operators of the program
    for settings in strict:
        fast = anyshape.compile(fn, **settings)
        for _ in range(2):
            with pytest.raises(AnyshapeError, match="^E901|^E602") as raised:
                fast(*args)
            assert RAISED in str(raised.value)
        assert fast.stats().internal_errors == 1
    return text


CAPTURE: dict[str, tuple[Any, str]] = {
    "an instruction": (tensor_ops, "binary"),
    "a read": (Recorder, "tensor"),
    "a location": (Recorder, "here"),
}


@pytest.mark.parametrize("fn", [program, caught])
@pytest.mark.parametrize("where", CAPTURE)
def test_a_mistake_in_capture(
    where: str, fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = CAPTURE[where]
    monkeypatch.setattr(owner, name, fails)
    text = the_warning(fn, X)
    assert text.startswith("E901") and "in capture" in text and "injected" in text
    if where == "an instruction":
        assert "# the line" in text


@pytest.mark.parametrize("fn", [program, caught])
@pytest.mark.parametrize("error", [KeyError, RuntimeError, TypeError, RecursionError])
def test_a_mistake_in_a_type_rule_does_not_reach_the_programs_handlers(
    fn: Callable[..., Any], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rule(*args: Any, **kwargs: Any) -> Any:
        raise error("injected")

    monkeypatch.setattr(Builder, "type_of", rule)
    text = the_warning(fn, X)
    assert "in capture" in text and "type rule of mul" in text and "# the line" in text


@pytest.mark.parametrize("name", [step.name for step in pipeline.INFERENCE.passes])
def test_a_mistake_in_a_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = tuple(
        dataclasses.replace(step, run=fails) if step.name == name else step
        for step in pipeline.INFERENCE.passes
    )
    monkeypatch.setattr(driver, "INFERENCE", dataclasses.replace(pipeline.INFERENCE, passes=passes))
    text = the_warning(program, X)
    assert f"in the pass {name}" in text and "# the line" in text


STAGES: dict[str, tuple[Any, str, str]] = {
    "schedule": (driver, "schedule", "scheduling"),
    "native regions": (cpu, "form_native_regions", "forming native regions"),
    "kernels": (cpu, "emit_c", "code generation"),
    "host code": (driver, "emit_host", "code generation"),
    "the C compiler": (build, "compile_c", "running the C compiler"),
    "loading": (build, "load_shared_object", "loading"),
    "binding": (launch, "Resolver", "loading"),
    "guards": (specialize, "entry_of", "the guards"),
    "rebuilding": (capturing, "finish", "capture"),
}


@pytest.mark.parametrize("where", STAGES)
def test_a_mistake_in_a_later_stage(
    where: str, fresh_builder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, stage = STAGES[where]
    monkeypatch.setattr(owner, name, fails)
    text = the_warning(program, X)
    assert f"in {stage}\n" in text and "injected" in text and "test_faults.py" in text


def test_code_that_the_c_compiler_refuses(
    fresh_builder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "emit_c", lambda *args: "this is no C")
    text = the_warning(program, X)
    assert text.startswith("E602 the C compiler failed") and "# the line" in text


@pytest.mark.parametrize("kills", [1, 2, 3])
def test_after_a_killed_c_compiler_later_calls_try_again_three_times_in_all(
    kills: int, fresh_builder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles: list[str] = []
    whole = build.compile_c

    def killed(compiler: str, source: str) -> bytes:
        compiles.append(source)
        if len(compiles) <= kills:
            raise AnyshapeError("E602", output="it was ended by SIGKILL")
        return whole(compiler, source)

    monkeypatch.setattr(build, "compile_c", killed)
    fast = anyshape.compile(program)
    with pytest.warns(AnyshapeWarning, match="E602(.|\n)*SIGKILL(.|\n)*next two calls") as seen:
        for size in (3, 0, 1, 5, 17):
            x = torch.randn(size, 4)
            torch.testing.assert_close(fast(x), program(x))
    assert len(seen) == 1 and seen[0].filename == __file__
    assert len(compiles) == min(kills + 1, 3) and fast.stats().specializations == (kills < 3)


def test_a_c_compiler_that_cannot_be_started_is_tried_again(
    fresh_builder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*args: Any, **kwargs: Any) -> Any:
        raise BlockingIOError("no more processes")

    fast = anyshape.compile(program)
    with monkeypatch.context() as patch:
        patch.setattr(build.subprocess, "run", no_process)
        with pytest.warns(AnyshapeWarning, match="E602(.|\n)*no more processes"):
            torch.testing.assert_close(fast(X), program(X))
    torch.testing.assert_close(fast(X), program(X))
    assert fast.stats().specializations == 1


def test_a_second_kind_of_failure_is_told_too(
    fresh_builder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(x: Tensor) -> Tensor:
        if x.sum() > 1e9:
            x = -x
        return x * 2 + 1

    monkeypatch.setattr(cpu, "emit_c", lambda *args: "this is no C")
    fast = anyshape.compile(broken)
    with pytest.warns(AnyshapeWarning, match="E602"):
        fast(X)
    monkeypatch.setattr(driver, "schedule", fails)
    with pytest.warns(AnyshapeWarning, match="E901(.|\n)*in scheduling"):
        fast(X.double())


def test_a_library_that_cannot_be_loaded(
    fresh_builder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "compile_c", lambda *args: b"no library")
    text = the_warning(program, X)
    assert "in loading" in text and "OSError" in text and "# the line" in text


def test_a_mistake_while_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def linked(*args: Any) -> Any:
        return dataclasses.replace(launch.link(*args), run=fails)

    monkeypatch.setattr(driver, "link", linked)
    text = the_warning(program, X)
    assert "in running" in text and "# the line" in text


def test_a_mistake_after_a_graph_break_runs_the_rest_natively(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken_twice(x: Tensor) -> Tensor:
        if x.sum() > 1e9:
            x = x[:1]
        return x * 2 + 1  # the line

    schedule = driver.schedule

    def second_fails(graph: Any, *args: Any) -> Any:
        second = any(node.op == "mul" for node in graph.nodes)
        return fails() if second else schedule(graph, *args)

    monkeypatch.setattr(driver, "schedule", second_fails)
    text = the_warning(broken_twice, X, strict=STRICT[1:])
    assert "in scheduling" in text and "# the line" in text


def test_a_mistake_between_writes_is_not_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(x: Tensor, log: list[int]) -> Tensor:
        log.append(1)
        x.add_(1)
        return x.sin()

    monkeypatch.setattr(driver, "schedule", fails)
    x, log = torch.zeros(3), []
    with pytest.warns(AnyshapeWarning, match="in scheduling"):
        anyshape.compile(writes)(x, log)
    assert log == [1] and x.tolist() == [1.0, 1.0, 1.0]


def test_the_programs_own_exceptions_stay_its_own() -> None:
    def own(x: Tensor, table: dict[str, int]) -> tuple[Tensor, list[str]]:
        seen = []
        for action in (
            lambda: table["absent"],
            lambda: x.nothing,
            lambda: [][0],
            lambda: 1 // 0,
            lambda: int("x"),
            lambda: undefined,  # noqa: F821
            lambda: x + "text",
            lambda: torch.sum(x, nothing=1),
            lambda: x.view(7, 7),
            lambda: len(5),
            lambda: next(iter(())),
        ):
            try:
                action()
            except Exception as error:
                seen.append(type(error).__name__)
        return x + 1, seen

    fast = anyshape.compile(own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PerformanceWarning)
        for _ in range(2):
            result, seen = fast(X, {})
            expected, names = own(X, {})
            torch.testing.assert_close(result, expected)
            assert seen == names


def test_the_load_of_a_kernel_that_lacks_a_function(
    fresh_builder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "load_shared_object", lambda binary: ctypes.CDLL(None))
    text = the_warning(program, X)
    assert "in loading" in text and "AttributeError" in text
