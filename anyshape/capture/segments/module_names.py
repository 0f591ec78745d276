"""The qualified name of the module whose code a virtual frame runs: `layers.3.mlp.gate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from anyshape.capture.interpreter.frame import Frame


def module_name(fn: Callable[..., Any], frame: Frame | None) -> str:
    """The name of the innermost module among the callers of `frame`, as the outermost one (that of
    `fn`, if it has one) calls it; its class where that does not know it, is it, or is a module
    whose `__init__` has not yet called that of `nn.Module`."""
    modules = list(_modules(frame))
    if not modules:
        return ""
    owner = getattr(fn, "__self__", fn)
    root = owner if isinstance(owner, nn.Module) else modules[-1]
    inside = root.named_modules(remove_duplicate=False) if "_modules" in vars(root) else ()
    names = {id(module): name for name, module in inside}
    return names.get(id(modules[0])) or type(modules[0]).__name__


def _modules(frame: Frame | None) -> Iterator[nn.Module]:
    """From the innermost caller outwards: the modules whose methods run."""
    while frame is not None:
        receiver: Any = frame.locals[0] if frame.code.argument_count else None
        if issubclass(type(receiver), nn.Module) and frame.code.local_names[0] == "self":
            yield receiver
        frame = frame.back
