"""What a call keeps for its backward half, and what may not have become of it by then.

In: residuals as the forward half left them, tensors that autograd gives back. Out: eager's errors
where a program has put something else there since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anyshape.ir.graph import TensorType
from anyshape.nouns import frozen
from anyshape.symbolic import Symbol, evaluate
from anyshape.torch_names import torch_dtype

VIEW_MODIFIED = "A view was created in no_grad mode and its base or another view"
REPLACED = (
    "the data of a tensor has been replaced (x.data = new) between a compiled call that reads it "
    "and its backward, so that formulas would read values of two times; replace it after backward()"
)
MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation"
)


@frozen
class SavedValue:
    """A residual: among the graph's inputs, or among what the forward half returns. ``checked``: a
    write to it since is refused. ``pinned``: eager keeps views of it alone, or other values, so
    that the memory it has now is read, whatever ``x.data = new`` puts there later. ``mixed``: some
    of eager's formulas read that and some what it had, so that other elements are refused."""

    of_inputs: bool
    position: int
    checked: bool = True
    pinned: bool = False
    mixed: bool = False
    type: TensorType | None = None

    def read(self, inputs: Sequence[Any], outs: Sequence[Any]) -> Any:
        found = (inputs if self.of_inputs else outs)[self.position]
        if not self.checked:
            return found.data
        return found.detach() if self.pinned else found


def refuse_reshaped(
    residuals: Sequence[SavedValue],
    symbols: Sequence[object],
    saved: Sequence[torch.Tensor],
    numbers: Sequence[Any],
) -> None:
    """Raises where ``x.data = new`` has put there what kernels do not know how to read."""
    sizes = {s: n for s, n in zip(symbols, numbers) if isinstance(s, Symbol)}
    for residual, tensor in zip(residuals, saved):
        kind = residual.type
        if kind is None or residual.pinned or not residual.of_inputs:
            continue
        shape, strides = ([evaluate(d, sizes) for d in dims] for dims in (kind.shape, kind.strides))
        steps = [step for size, step in zip(shape, strides) if size > 1]
        found = [step for size, step in zip(tensor.shape, tensor.stride()) if size > 1]
        alike = tensor.dtype == torch_dtype(kind.dtype) and list(tensor.shape) == shape
        alike = alike and tensor.device.type == kind.device.partition(":")[0]
        if not alike or (found != steps and tensor.numel()):
            raise RuntimeError(REPLACED)


def refuse_replaced(memory: torch.Tensor, tensor: torch.Tensor) -> None:
    """Raises where ``tensor.data = new`` has put other elements there than it had."""
    if memory.data_ptr() == tensor.data_ptr():
        return
    alike = memory.dtype == tensor.dtype and memory.shape == tensor.shape
    if not alike or not torch.equal(memory, tensor.detach()):
        raise RuntimeError(REPLACED)


@frozen(eq=False)
class SavedTensors:
    """Those of a call of which one has been written since, or is a view whose base has, and
    autograd's refusal of all of them."""

    context: Any
    refusal: RuntimeError

    def one_by_one(self, count: int) -> tuple[list[torch.Tensor], set[int]]:
        """The first so many, and the positions of those that have been written."""
        found: list[torch.Tensor] = []
        written: set[int] = set()
        for position, one in enumerate(self.context._raw_saved_tensors[:count]):
            try:
                found.append(one.unpack())
            except RuntimeError:
                found.append(one.data)
                written.add(position)
        return found, written
