"""Hooks of modules with `always_call=True` are called where the forward raises, as in eager torch,
whose own code leaves them out where it is answered that it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

import anyshape


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor, where: str = "") -> Tensor:
        y = self.inner(x)
        if where == "here":
            raise KeyError("here")
        return y + torch.ones(y.shape[0] + 7, 5) if where == "in torch" else y * 2


Seen = list[Any]


def on_the_module(module: Fails, seen: Seen) -> Any:
    module.register_forward_hook(
        lambda own, args, named, result: seen.append((sorted(named), result is None)),
        with_kwargs=True,
        always_call=True,
    )
    return module.inner.register_forward_hook(
        lambda own, args, result: seen.append("inner"), always_call=True
    )


def raising(module: Fails, seen: Seen) -> Any:
    def hook(own: nn.Module, args: Any, result: Any) -> None:
        seen.append("raises")
        raise ValueError("of the hook")

    module.register_forward_hook(hook, always_call=True)
    return on_the_module(module, seen)


def on_all_modules(module: Fails, seen: Seen) -> Any:
    return register_module_forward_hook(
        lambda own, args, result: seen.append(type(own).__name__), always_call=True
    )


CALLS = ((2, 4, ""), (3, 4, "here"), (3, 5, ""), (2, 4, "in torch"), (1, 4, ""))


@pytest.mark.parametrize("register", [on_the_module, raising, on_all_modules])
@pytest.mark.filterwarnings("ignore")
def test_hooks_that_are_always_called_are_called_where_the_forward_raises(
    register: Callable[[Fails, Seen], Any],
) -> None:
    module, seen = Fails(), []  # type: tuple[Fails, Seen]

    def outcomes(fn: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        for rows, columns, where in CALLS:
            try:
                ended: Any = fn(torch.ones(rows, columns), where=where).sum().item()
            except (KeyError, RuntimeError, ValueError) as error:
                ended = str(error)
            found.append((ended, [*seen]))
            seen.clear()
        return found

    handle = register(module, seen)
    try:
        natively = outcomes(module)
        compiled: Any = anyshape.compile(module)
        assert outcomes(compiled) == natively
        assert natively[1][1]
        assert compiled.stats().internal_errors == 0
    finally:
        handle.remove()
