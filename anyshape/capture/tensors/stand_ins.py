"""The tables of this room, by what is called: functions of Python, and of C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.tensors import (
    backward,
    checkpoints,
    copies,
    foreach,
    function_transforms,
    mode_contexts,
    own_backwards,
    tensor_hooks,
    triton_launches,
)

FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    **own_backwards.HANDLERS,
    **tensor_hooks.HANDLERS,
    **mode_contexts.FUNCTIONS,
    **checkpoints.HANDLERS,
    **copies.FUNCTIONS,
    **backward.HANDLERS,
    **triton_launches.HANDLERS,
    **function_transforms.HANDLERS,
}
NATIVE: Mapping[Any, Callable[..., Any]] = {**mode_contexts.NATIVE, **foreach.HANDLERS}
