"""The dense expert that every token passes, in two halves, so that other work fits between them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from anyshape.moe.activation import silu_mul
from anyshape.moe.experts import Activation, hold


class SharedExpert(nn.Module):
    """The dense expert that every token passes: down(act(gate(x)) * up(x)), in two halves.

    gate and up are two weights [F, D] (as Hugging Face keeps them) or one [2F, D] with `up=None`.
    """

    gate: Tensor
    up: Tensor | None
    down: Tensor

    def __init__(
        self, gate: Tensor, up: Tensor | None, down: Tensor, activation: Activation
    ) -> None:
        super().__init__()
        hold(self, gate=gate, up=up, down=down)
        self.activation = activation

    def first_half(self, tokens: Tensor) -> Tensor:
        """Gate, up and activation: [T, F]."""
        gate = functional.linear(tokens, self.gate)
        if self.up is None:
            return silu_mul(gate, **self.activation.keywords())
        return silu_mul((gate, functional.linear(tokens, self.up)), **self.activation.keywords())

    def second_half(self, hidden: Tensor) -> Tensor:
        """Down: [T, D]."""
        return functional.linear(hidden, self.down)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.second_half(self.first_half(tokens))
