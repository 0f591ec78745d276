"""What is known of the function that is compiled, before it is called: its parameters, where it is
written, and whether torch's stance allows it to be compiled.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from anyshape.declare import Parameters
from anyshape.ir.graph import Location


def parameters_of(fn: Callable[..., Any]) -> Parameters:
    """The names of parameters, for guards to be read and for declarations."""
    called = fn.forward if isinstance(fn, torch.nn.Module) else fn
    if type(called) is types.FunctionType and not called.__dict__:  # nothing says otherwise
        return Parameters.of_code(called.__code__)
    try:
        return Parameters.of(inspect.signature(called))
    except (TypeError, ValueError):
        return Parameters(())


def own_line(fn: Callable[..., Any]) -> Location | None:
    """Where the function is written."""
    code = getattr(getattr(fn, "forward", fn), "__code__", None)
    if code is None:
        return None
    return Location(code.co_filename, code.co_firstlineno, 0, 0, code.co_qualname)


def current_stance() -> str:
    """`torch.compiler.set_stance`, read without importing torch._dynamo."""
    module = sys.modules.get("torch._dynamo.eval_frame")
    stance = getattr(module, "_stance", None)
    return getattr(stance, "stance", "default")
