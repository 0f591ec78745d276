"""What a call keeps for its backward half, and what may not have become of it by then.

In: residuals as the forward half left them, tensors that autograd gives back. Out: eager's errors
where a program has put something else there since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from anyshape.nouns import frozen
from anyshape.version_counters import version_of

VIEW_MODIFIED = "A view was created in no_grad mode and its base or another view"
REPLACED = (
    "the data of a tensor has been replaced (x.data = new) between a compiled call that reads it "
    "and its backward, and gradients of its gradients, or of what was written too, would be of "
    "values of two times; replace it after backward()"
)
MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation"
)
DETACHED = (
    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is "
    "not supported, please use out-of-place `.detach()` instead"
)

CAN_UNPACK = hasattr(torch._C._autograd.SavedTensor, "unpack")
"""Whether this version of torch gives what was saved one by one, or refuses it. torch 2.11 gives or
refuses all of it, and its elements alone one by one: there versions are compared here."""


def versions_as_saved(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """How often each was written, as autograd notes it; of none where torch compares them."""
    return () if CAN_UNPACK else tuple(map(version_of, tensors))


def refuse_detached(kept: Iterable[torch.Tensor]) -> None:
    """Raises what eager's formulas do where one of the results that they keep is a leaf by now."""
    if any([tensor.is_leaf for tensor in kept]):
        raise RuntimeError(DETACHED)


@frozen
class SavedValue:
    """A residual: among the graph's inputs, or among what the forward half returns. ``checked``: a
    write to it since is refused. ``pinned``: eager keeps views of it alone, or other values, so
    that the memory it has now is read, whatever ``x.data = new`` puts there later."""

    of_inputs: bool
    position: int
    checked: bool = True
    pinned: bool = False

    def read(
        self, inputs: Sequence[Any], outs: Sequence[Any], memory: Mapping[int, torch.Tensor]
    ) -> Any:
        """``memory``: aliases of inputs."""
        found = (inputs if self.of_inputs else outs)[self.position]
        if not self.checked:
            return found.data
        return memory[self.position] if self.pinned else found


@frozen(eq=False)
class SavedTensors:
    """Those of a call of which one has been written since, or is a view whose base has, and
    autograd's refusal of all of them."""

    context: Any
    refusal: RuntimeError
    versions: tuple[int, ...]  # as they were saved

    def is_written(self, position: int) -> bool:
        return self._read(position)[1]

    def one_by_one(self, count: int) -> tuple[list[torch.Tensor], set[int]]:
        """The first so many, and the positions of those that have been written."""
        read = [self._read(position) for position in range(count)]
        return [tensor for tensor, _ in read], {p for p, (_, is_old) in enumerate(read) if is_old}

    def _read(self, position: int) -> tuple[torch.Tensor, bool]:
        """One of them, and whether it has been written. Raises autograd's refusal where nobody
        knows."""
        one = self.context._raw_saved_tensors[position]
        if CAN_UNPACK:
            try:
                return one.unpack(), False
            except RuntimeError:
                return one.data, True
        if not isinstance(one.data, torch.Tensor):  # a hook of the program's has packed it
            raise self.refusal
        return one.data, version_of(one.data) != self.versions[position]
