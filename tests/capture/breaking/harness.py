"""Programs with graph breaks, and what is compared when one runs: result, sharing, what it printed,
warned and logged, what it wrote, and the modes that it left.

A program takes one tensor. It runs at several sizes, twice, natively and compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import logging
import random
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from anyshape.errors import AnyshapeWarning
from tests.capture.by_reference import compiled

SUBJECTS = ("containers", "control", "generators", "objects", "state", "tensors")
SHAPES = ((3, 4), (1, 4), (0, 4), (17, 4), (6, 2))
STATE = ("COUNT", "TABLE", "HIST", "GT", "GTL")  # globals that programs write


@dataclass(frozen=True)
class Program:
    name: str
    fn: Callable[[torch.Tensor], Any]
    grad: bool


def program(*, grad: bool = False) -> Callable[..., Any]:
    """Marks a program; with `grad`, its argument requires gradients."""

    def mark(fn: Callable[..., Any]) -> Callable[..., Any]:
        fn.breaking = Program(fn.__name__, fn, grad)
        return fn

    return mark


def programs() -> dict[str, Program]:
    """All programs, by subject and name."""
    found = {}
    for subject in SUBJECTS:
        module = importlib.import_module(f"tests.capture.breaking.{subject}")
        for name, value in vars(module).items():
            if isinstance(getattr(value, "breaking", None), Program):
                found[f"{subject}.{name}"] = value.breaking
    return found


def native(x: torch.Tensor) -> float:
    """The sum of a tensor, by way of numpy: a graph break."""
    return float(x.sum().numpy())


def arguments(grad: bool) -> Iterator[torch.Tensor]:
    """One tensor of each shape."""
    for shape in SHAPES:
        count = torch.Size(shape).numel()
        yield torch.linspace(-1, 2, count).reshape(shape).requires_grad_(grad)


@contextlib.contextmanager
def _state_kept(scope: dict[str, Any]) -> Iterator[None]:
    """Puts back the globals that programs write, and the random states."""
    before = {name: _copied(scope[name]) for name in STATE if name in scope}
    states = torch.get_rng_state(), random.getstate()
    try:
        yield
    finally:
        scope.update(before)
        torch.set_rng_state(states[0])
        random.setstate(states[1])


def _copied(value: Any) -> Any:
    return (
        value.clone()
        if isinstance(value, torch.Tensor)
        else value
        if isinstance(value, int)
        else type(value)(value)
    )


@contextlib.contextmanager
def _logged() -> Iterator[io.StringIO]:
    handler, logger = logging.StreamHandler(io.StringIO()), logging.getLogger("probe")
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        yield handler.stream
    finally:
        logger.removeHandler(handler)


def observed(fn: Callable[..., Any], scope: dict[str, Any], x: torch.Tensor) -> dict[str, Any]:
    """Everything that a run of `fn` on `x` shows."""
    printed = io.StringIO()
    version = x._version
    with _state_kept(scope), _logged() as log, contextlib.redirect_stdout(printed):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result: Any = fn(x)
            except Exception as error:
                result = (type(error), str(error)[:80])
        written = {name: _copied(scope[name]) for name in STATE if name in scope}
    ours = [str(w.message) for w in caught if issubclass(w.category, AnyshapeWarning)]
    assert not any("E901" in text for text in ours), ours
    tensors = [*_tensors(result), x]
    return {
        "result": list(result) if isinstance(result, types.GeneratorType) else result,
        "sharing": [[_shared(a, b) for b in tensors] for a in tensors],
        "printed": printed.getvalue(),
        "warned": [str(w.message) for w in caught if w.category is UserWarning],
        "logged": log.getvalue(),
        "argument": x.detach(),
        "writes": x._version - version,
        "written": written,
        "modes": (
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
        ),
    }


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in _tensors(item)] if isinstance(value, (list, tuple)) else []


def _shared(a: torch.Tensor, b: torch.Tensor) -> tuple[bool, bool]:
    stored = bool(a.numel() and b.numel())
    return a is b, stored and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def check_same(found: Any, wanted: Any, path: str = "") -> None:
    """The same values of the same types, tensors with the same strides."""
    assert type(found) is type(wanted), (path, found, wanted)
    if isinstance(wanted, torch.Tensor):
        assert found.requires_grad == wanted.requires_grad, path
        assert found.is_inference() == wanted.is_inference(), path
        torch.testing.assert_close(
            found.detach(),
            wanted.detach(),
            rtol=1e-5,
            atol=1e-6,
            equal_nan=True,
            check_stride=True,
            msg=lambda m: f"{path}: {m}",
        )
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted), path
        for key in wanted:
            check_same(found[key], wanted[key], f"{path}[{key!r}]")
    elif hasattr(wanted, "__iter__") and not isinstance(wanted, (str, bytes, bytearray, set)):
        assert len(found) == len(wanted), (path, found, wanted)
        for index, (a, b) in enumerate(zip(found, wanted, strict=True)):
            check_same(a, b, f"{path}[{index}]")
    elif dataclasses.is_dataclass(wanted) and not isinstance(wanted, type):
        check_same(vars(found), vars(wanted), path)
    elif isinstance(wanted, float):
        assert abs(found - wanted) <= 1e-4 * max(1.0, abs(wanted)) or found != found, path
    else:
        assert found == wanted, (path, found, wanted)


def check(made: Program) -> int:
    """Runs a program natively and compiled, and compares; gives the number of its breaks."""
    fast = compiled(made.fn, fullgraph=False)
    scope = made.fn.__globals__
    with torch.set_grad_enabled(made.grad):
        for _ in range(2):
            for x in arguments(made.grad):
                given, taken = (x.detach().clone().requires_grad_(made.grad) for _ in range(2))
                wanted = observed(made.fn, scope, given)
                check_same(observed(fast, scope, taken), wanted, f"{tuple(x.shape)}: ")
    return fast.stats().graph_breaks
