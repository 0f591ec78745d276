"""`nn.Module`'s tables of parameters, buffers and children, changed by the program itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference


def deleted(module: nn.Module) -> bool:
    del module._parameters["weight"]
    return hasattr(module, "weight")


def popped(module: nn.Module) -> bool:
    module._parameters.pop("weight")
    return hasattr(module, "weight")


def moved(module: nn.Module) -> Any:
    weight = module._parameters.pop("weight")
    module._buffers["weight"] = weight
    return module.weight is weight


def cleared(module: nn.Module) -> bool:
    module._parameters.clear()
    return hasattr(module, "weight") or hasattr(module, "bias")


def added(module: nn.Module) -> tuple[bool, bool]:
    first = hasattr(module, "other")
    module._parameters["other"] = module._parameters["weight"]
    return first, module.other is module.weight


def put_back(module: nn.Module) -> bool:
    weight = module._parameters.pop("weight")
    gone = not hasattr(module, "weight")
    module._parameters["weight"] = weight
    return gone and module.weight is weight


CHANGES: tuple[Callable[[Any], Any], ...] = (deleted, popped, moved, cleared, added, put_back)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("break_every", [0, 1, 3])
def test_as_eager(change: Callable[[Any], Any], inside: bool, break_every: int) -> None:
    def program(x: Tensor, module: Any) -> Any:
        found = change(nn.Linear(3, 3) if inside else module)
        return found, x + 1

    fast = Compiled(program, Options(break_every=break_every), ByReference)
    for _ in range(2):
        module, eager = nn.Linear(3, 3), nn.Linear(3, 3)
        found, expected = fast(torch.ones(2), module), program(torch.ones(2), eager)
        assert found[0] == expected[0]
        for name in ("_parameters", "_buffers"):
            assert list(getattr(module, name)) == list(getattr(eager, name))


def test_pruning_that_fails_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> None:
        raise ValueError("no mask")

    def program(module: nn.Module) -> list[str]:
        with pytest.raises(ValueError, match="no mask"):
            prune.l1_unstructured(module, name="weight", amount=0.9)
        return sorted(name for name, _ in module.named_parameters())

    monkeypatch.setattr(prune.L1Unstructured, "compute_mask", fails)
    assert anyshape.compile(program)(nn.Linear(5, 7)) == ["bias", "weight"]
