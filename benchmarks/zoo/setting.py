"""Where and in which dtype entries run: the device, the dtype of all that floats, attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import anyshape


@dataclass(frozen=True, slots=True)
class Setting:
    """``attention`` is transformers' name of an implementation; nothing: the model's own.
    ``gradients``: those of parameters are compared, of a sum over all results. ``whole``: a graph
    break, or a graph that eager torch has to run, is an error."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    attention: str = ""
    gradients: bool = False
    whole: bool = False

    def __str__(self) -> str:
        more = "gradients" * self.gradients, "fullgraph" * self.whole
        return " ".join(filter(None, (self.device, str(self.dtype)[6:], self.attention, *more)))

    def compiled(self, program: Callable[..., object]) -> Callable[..., object]:
        """The entry's program as ANYSHAPE compiles it in this setting."""
        if self.whole:
            return anyshape.compile(program, fullgraph=True, options={"fallback": "error"})
        return anyshape.compile(program)

    def program(self, made: Callable[..., object]) -> Callable[..., object]:
        """The entry's program as it runs in this setting."""
        if not isinstance(made, nn.Module) or self == PLAIN:
            return made
        if self.attention and hasattr(made, "set_attn_implementation"):
            made.set_attn_implementation(self.attention)
        return made.to(device=self.device, dtype=self.dtype)

    def argument(self, value: object) -> object:
        """An argument with its tensors where the program has its own."""
        if self == PLAIN:
            return value
        match value:
            case Tensor():
                floats = value.is_floating_point()
                moved = value.detach().to(self.device, self.dtype if floats else value.dtype)
                return moved.requires_grad_(value.requires_grad)
            case list() | tuple() if not hasattr(value, "_fields"):
                return type(value)(self.argument(each) for each in value)
            case dict():
                return {key: self.argument(each) for key, each in value.items()}
        return value


PLAIN = Setting()
"""As entries are built."""
