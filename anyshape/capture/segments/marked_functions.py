"""Python functions that are marked: to be called natively as a whole, or compiled by torch."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch._higher_order_ops import utils as hops

AUTOGRAD = frozenset(
    {
        torch.Tensor.register_hook,
        torch.Tensor.register_post_accumulate_grad_hook,
        torch.Tensor.backward,
        torch.autograd.backward,
        torch.autograd.grad,
    }
)
"""Python functions that meddle with autograd's own graph."""
WHOLE: frozenset[Any] = frozenset({getattr(hops, "_hop_compile_and_call", None)} - {None})
"""What compiles the functions that `while_loop` and the like are handed, and runs them."""
HIDING: types.CodeType = torch._compile._disable_dynamo(lambda: None).__code__
"""Of what hides a function from Dynamo alone."""


def is_disabled(fn: types.FunctionType) -> bool:
    """Whether the program says, or its kind, that it is to be called natively as a whole."""
    marked = bool(fn.__dict__ and fn.__dict__.get("_torchdynamo_disable"))
    return (marked and not _is_hidden_from_dynamo(fn)) or fn in AUTOGRAD or fn in WHOLE


def _is_hidden_from_dynamo(fn: types.FunctionType) -> bool:
    """Whether Dynamo has wrapped a function of torch's optimizers, for its own sake: it does where
    anything in the process is compiled by it (`TorchPatcher`), and gives a reason."""
    return _is_of_optimizers(fn) and fn.__dict__.get("_torchdynamo_disable_msg") is not None


def _is_of_optimizers(fn: types.FunctionType) -> bool:
    return str(fn.__module__).startswith("torch.optim.")  # a program may have no module's name


def compiled_by_torch(fn: types.FunctionType) -> Any:
    """What `torch.compile` has wrapped in `fn`, which is what the program means by it; so is what
    optimizers hide from Dynamo alone."""
    if not fn.__dict__:
        return None
    hidden = fn.__code__ is HIDING and _is_of_optimizers(fn)
    return fn.__dict__.get("__wrapped__" if hidden else "_torchdynamo_orig_callable")
