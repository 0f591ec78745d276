"""`install()` has `torch.compile(..., backend="anyshape")` use our own capture, so that all that
anyshape promises holds there; if asked, every `torch.compile`.

What is put in torch's place holds what it replaced, so that `uninstall()` needs nothing else.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

import torch

from anyshape.api import compile
from anyshape.torch_arguments import NAME


class TorchCompile:
    """Stands where `torch.compile` stood."""

    def __init__(self, original: Callable[..., Any], *, everything: bool) -> None:
        functools.update_wrapper(self, original)
        self.__signature__ = inspect.signature(original)
        self.original = original
        self.everything = everything
        self.removed = False

    def __call__(self, model: Callable[..., Any] | None = None, **settings: Any) -> Any:
        if self.removed:
            return self.original(model, **settings)
        backend = settings.get("backend") or _default_backend()
        named = getattr(backend, "__name__", backend)
        if named != NAME and not (self.everything and _is_usual(named)):
            return self.original(model, **settings)
        return compile(model, **{**settings, "backend": NAME})


def _default_backend() -> Any:
    return torch.compiler.get_default_backend()


def _is_usual(named: Any) -> bool:
    """Whether the backend is the one of who asks for none, and not another one by name."""
    return named == "inductor"


def install(*, everything: bool = False) -> None:
    """From now on `torch.compile(..., backend="anyshape")`, and what calls it with that name
    (`nn.Module.compile`, transformers, diffusers, accelerate), is `anyshape.compile`.

    `everything`: so is `torch.compile` with no backend, or with "inductor". `uninstall` undoes it;
    what was compiled stays as it is. accelerate, if it is installed, learns the name.
    """
    uninstall()
    torch.compile = TorchCompile(torch.compile, everything=everything)
    _name_in_accelerate()


def uninstall() -> None:
    """`torch.compile` is what it was before. Where another library has wrapped it since (Lightning
    does), its wrapper stays, around what was there before."""
    installed: Any = torch.compile
    if isinstance(installed, TorchCompile):
        torch.compile = installed.original
    while installed is not None:
        if isinstance(installed, TorchCompile):
            installed.removed = True
        installed = getattr(installed, "__wrapped__", None)


def _name_in_accelerate() -> None:
    """accelerate takes only names of backends that are in its enumeration."""
    if importlib.util.find_spec("accelerate") is None:
        return
    backends = importlib.import_module("accelerate.utils.dataclasses").DynamoBackend
    name = NAME.upper()
    if name in backends.__members__:
        return
    member = str.__new__(backends, name)
    member._name_, member._value_ = name, name
    backends._member_map_[name] = backends._value2member_map_[name] = member
    backends._member_names_.append(name)
