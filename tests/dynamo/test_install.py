"""`install()`: torch.compile with our own capture."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import anyshape
from anyshape.api import CompiledFunction
from anyshape.options import installs


@pytest.fixture
def own() -> Iterator[object]:
    """What `torch.compile` is before the test (a library may have wrapped torch's), and after it."""
    found = torch.compile
    yield found
    anyshape.uninstall()
    assert torch.compile is found


@pytest.fixture
def installed(own: object) -> None:
    anyshape.install()


@pytest.mark.usefixtures("installed")
def test_the_backend_by_name_is_our_own_capture() -> None:
    fast = torch.compile(lambda x: x * x.shape[0], backend="anyshape", fullgraph=True)
    for rows in (3, 1, 0, 5):
        assert torch.equal(fast(torch.ones(rows)), torch.full((rows,), float(rows)))
    stats = fast.stats()
    assert (stats.specializations, stats.calls) == (1, 4)


@pytest.mark.usefixtures("installed")
def test_a_decorator_with_arguments_and_a_module_in_place() -> None:
    @torch.compile(backend="anyshape", mode="reduce-overhead", dynamic=True)
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert isinstance(doubled, CompiledFunction) and doubled(torch.ones(2)).sum() == 4
    module = nn.Linear(3, 3)
    plain = copy.deepcopy(module)
    module.compile(backend="anyshape")
    x = torch.randn(2, 3)
    for twin in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(twin(x), plain(x))
    assert list(module.state_dict()) == list(plain.state_dict())


@pytest.mark.usefixtures("installed")
def test_another_backend_and_none_stay_torchs_own(own: Callable[..., Any]) -> None:
    assert not isinstance(torch.compile(lambda x: x, backend="eager"), CompiledFunction)
    assert not isinstance(torch.compile(lambda x: x), CompiledFunction)
    assert inspect.signature(torch.compile) == inspect.signature(own)


@pytest.mark.usefixtures("own")
def test_everything_takes_what_asks_for_no_backend() -> None:
    anyshape.install(everything=True)
    anyshape.install(everything=True)  # twice is once
    assert isinstance(torch.compile(lambda x: x + 1), CompiledFunction)
    assert isinstance(torch.compile(lambda x: x, backend="inductor"), CompiledFunction)
    assert not isinstance(torch.compile(lambda x: x, backend="eager"), CompiledFunction)


@pytest.mark.usefixtures("own")
def test_it_is_undone_under_the_wrapper_of_another_library(monkeypatch: Any) -> None:
    anyshape.install(everything=True)
    ours = torch.compile

    @functools.wraps(ours)
    def theirs(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(torch, "compile", theirs)
        assert isinstance(torch.compile(lambda x: x + 1), CompiledFunction)
        anyshape.uninstall()
        assert torch.compile is theirs
        assert not isinstance(torch.compile(lambda x: x + 1), CompiledFunction)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [("", ""), ("0", ""), ("1", "named"), ("yes", "named"), ("everything", "everything")],
)
def test_the_environment_may_ask_for_it(text: str, meaning: str) -> None:
    assert installs({"ANYSHAPE_INSTALL": text}) == meaning


@pytest.mark.parametrize("imports", ["anyshape, torch", "torch, anyshape"])
def test_importing_anyshape_does_what_the_environment_asks(imports: str) -> None:
    program = f"import {imports}; print(type(torch.compile).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ANYSHAPE_INSTALL": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "TorchCompile"
