"""Each function of the compiler, made to raise where it is first called: eager's result, a warning
with the user's line, a count, and an error where nothing may run eagerly.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.dispatch.specialize import Specializer
from anyshape.errors import AnyshapeError, AnyshapeWarning

PACKAGE = str(Path(anyshape.__file__).parent)
STRICT: tuple[dict[str, Any], ...] = ({"fullgraph": True}, {"options": {"fallback": "error"}})


def failing() -> Callable[[], Any]:
    """A function of a module of ours that raises as a mistake does, not by ``raise``."""
    scope: dict[str, Any] = {"__name__": "anyshape.injected"}
    exec("def fails(base=2.0):\n    return base ** 10000", scope)
    fails: Callable[[], Any] = scope["fails"]
    return fails


fails = failing()


class Block(torch.nn.Module):
    """A program of many kinds of instructions and operators."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scales = {"low": 0.5, "high": 2.0}

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = x.shape
        parts = [self.linear(x) * scale for scale in self.scales.values()]
        try:
            joined = torch.cat(parts).reshape(2, rows, columns).mT.reshape(2, -1)
        except Exception:
            joined = x
        y = x.clone()
        y[positions] = 1.0 if rows > 2 else 0.0
        if rows == columns:
            y = y * 2
        total = sum(part.sum() for part in parts)
        return joined[:, ::2] + total, torch.where(y > 0, y, y.cumsum(0)).var(0)


@dataclass
class Fault:
    """While specializations are made: notes the functions called, or fails in one of them."""

    target: CodeType | None = None
    called: dict[CodeType, None] = field(default_factory=dict)
    raised: bool = False

    def trace(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
            return
        if code.co_name == "__del__":  # Python itself swallows what it raises
            return
        self.called[code] = None
        if code is self.target:
            self.raised = True
            fails()

    @contextmanager
    def while_compiling(self) -> Iterator[None]:
        variant = Specializer.specialization

        def traced(*args: Any) -> Any:
            before = sys.gettrace()
            sys.settrace(self.trace)
            try:
                return variant(*args)
            finally:
                sys.settrace(before)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Specializer, "specialization", traced)
            yield


@pytest.fixture(scope="module")
def program() -> Callable[..., Any]:
    torch.manual_seed(0)
    return Block()


X, POSITIONS = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 2])


def functions(program: Callable[..., Any]) -> list[CodeType]:
    """All that is called while the program is compiled, in the order of first calls."""
    fault = Fault()
    with fault.while_compiling(), torch.no_grad():
        anyshape.compile(program)(X, POSITIONS)
    return list(fault.called)


def run(program: Callable[..., Any], code: CodeType, settings: dict[str, Any]) -> tuple[Any, ...]:
    """(results or the error, the texts of our warnings, the count, whether it did fail)."""
    fault = Fault(code)
    fast = anyshape.compile(program, **settings)
    with warnings.catch_warnings(record=True) as seen, fault.while_compiling(), torch.no_grad():
        warnings.simplefilter("always")
        try:
            result = fast(X, POSITIONS)
        except Exception as error:
            result = error
    texts = [str(w.message) for w in seen if issubclass(w.category, AnyshapeWarning)]
    return result, texts, fast.stats().internal_errors, fault.raised


def wrong(program: Callable[..., Any], code: CodeType, expected: Any) -> list[str]:
    """What is not as it should be when this function fails."""
    name = f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_qualname}"
    result, texts, count, failed = run(program, code, {})
    if not failed:
        return []
    found = []
    if isinstance(result, Exception):
        found.append(f"raises {result!r}"[:300])
    else:
        same = [
            g.shape == w.shape and g.allclose(w, atol=1e-6, equal_nan=True)
            for g, w in zip(result, expected)
        ]
        found += [] if all(same) else ["a wrong result"]
    if not texts or count < len(texts):
        found.append(f"{count} internal errors, {texts}")
    for text in texts:
        if not text.startswith("E901") or "  --> " not in text or "OverflowError" not in text:
            found.append(f"says {text}")
    for settings in STRICT:
        result, texts, count, failed = run(program, code, settings)
        if not failed:  # nothing of data is expected where a break is an error, for one
            told = not isinstance(result, Exception)
        else:
            told = isinstance(result, AnyshapeError) and result.code == "E901" and count > 0
        if not told:
            found.append(f"{settings}: {result!r:.300}")
    return [f"{name}: {text}" for text in found]


def faults_of(program: Callable[..., Any], step: int) -> list[str]:
    with torch.no_grad():
        expected = program(X, POSITIONS)
    codes = functions(program)
    assert len(codes) > 700
    return [text for code in codes[::step] for text in wrong(program, code, expected)]


def test_a_function_that_fails_is_told(program: Callable[..., Any]) -> None:
    assert faults_of(program, 40) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_every_function_that_fails_is_told(program: Callable[..., Any]) -> None:
    assert faults_of(program, 1) == []
