"""Python functions of torch in a form that sizes nobody knows can go through.

Each stands in for the function named in `STAND_INS`, is interpreted like a program's own code (see
polyfills.py) and gives what that function gives for plain tensors.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.masked import _ops as masked


def input_mask(input: Any, *args: Any, mask: Any = None, **kwargs: Any) -> Any:
    """The mask in the input's shape: broadcast whether or not it has that shape already."""
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
            "input)"
        )
    return torch.broadcast_to(mask, input.shape).to(torch.bool)


def combine_input_and_mask(op: Any, input: Any, mask: Any, *args: Any) -> Any:
    """The input with the operator's identity where the mask is False; makes no class."""
    if mask is None:
        return input
    identity = masked._reduction_identity(op.__name__, input, *args)
    return torch.where(input_mask(input, mask=mask), input, identity)


def named_members(
    self: Any,
    get_members_fn: Any,
    prefix: str = "",
    recurse: bool = True,
    remove_duplicate: bool = True,
) -> Any:
    """All at once: a list needs no frames of generators, whoever iterates over it."""
    if recurse:
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
    else:
        modules = [(prefix, self)]
    known = set()
    found = []
    for place, module in modules:
        for key, value in get_members_fn(module):
            if value is None or id(value) in known:
                continue
            if remove_duplicate:
                known.add(id(value))
            found.append((f"{place}.{key}" if place else key, value))
    return iter(found)


def named_parameters(
    self: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
) -> Any:
    """The iterator itself."""
    members = lambda module: module._parameters.items()  # noqa: E731
    return self._named_members(
        members, prefix=prefix, recurse=recurse, remove_duplicate=remove_duplicate
    )


def named_buffers(
    self: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
) -> Any:
    """The iterator itself."""
    members = lambda module: module._buffers.items()  # noqa: E731
    return self._named_members(
        members, prefix=prefix, recurse=recurse, remove_duplicate=remove_duplicate
    )


def parameters(self: Any, recurse: bool = True) -> Any:
    """An iterator over a list."""
    return iter([value for _, value in self.named_parameters(recurse=recurse)])


def buffers(self: Any, recurse: bool = True) -> Any:
    """An iterator over a list."""
    return iter([value for _, value in self.named_buffers(recurse=recurse)])


def weights_have_changed(self: Any) -> bool:
    """What the weak references of a recurrent network refer to lies in its list of weights."""
    for kept, name in zip(self._flat_weights, self._flat_weights_names):
        if kept is not None and hasattr(self, name) and getattr(self, name) is not kept:
            return True
    return False


class Context(torch.autograd.function.FunctionCtx):
    """What the `forward` of an `autograd.Function` is handed where no gradient is wanted."""

    def __init__(self, count: int) -> None:
        self.needs_input_grad = (False,) * count


def apply_forward(cls: Any, *args: Any) -> Any:
    """The `forward` of an `autograd.Function` whose gradient nobody wants."""
    ctx = Context(len(args))
    with torch.no_grad():
        if cls.setup_context is torch.autograd.Function.setup_context:
            return cls.forward(ctx, *args)
        output = cls.forward(*args)
        cls.setup_context(ctx, args, output)
        return output


STAND_INS: Mapping[Any, Callable[..., Any]] = types.MappingProxyType(
    {
        masked._input_mask: input_mask,
        masked._combine_input_and_mask: combine_input_and_mask,
        torch.nn.RNNBase._weights_have_changed: weights_have_changed,
        torch.nn.Module._named_members: named_members,
        torch.nn.Module.named_parameters: named_parameters,
        torch.nn.Module.named_buffers: named_buffers,
        torch.nn.Module.parameters: parameters,
        torch.nn.Module.buffers: buffers,
    }
)
