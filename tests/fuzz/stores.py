"""A call whose stores at indices that come twice keep the last value.

In: operators that run in a ``with`` of it. Out: of ``x[i] = y`` the last value in the order of the
indices stays. Torch says of such a store only that one of the values does; eager's follows the
memory of all three tensors, and a compiled one does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

STORES = {
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default,
    torch.ops.aten._index_put_impl_.default,
    torch.ops.aten._unsafe_index_put.default,
}


class LastStored(TorchDispatchMode):
    """While it is on, all that is stored at one place is the last of it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in STORES and not _adds(*args[3:], **kwargs):
            written, indices, values = args[:3]
            args = written, indices, _last_of_each(written, indices, values), *args[3:]
        return func(*args, **kwargs)


def _adds(accumulate: bool = False, unsafe: bool = False) -> bool:
    return accumulate


def _last_of_each(written: Tensor, indices: Any, values: Tensor) -> Tensor:
    """The values, where each is the last of those stored at the same place; as they are where they
    cannot be stored."""
    offsets = torch.arange(written.numel(), device=written.device).view(written.shape)
    try:
        targets = torch.ops.aten.index(offsets, indices)
        stored = values.expand(targets.shape)
    except (IndexError, RuntimeError):
        return values
    last = {offset: number for number, offset in enumerate(targets.flatten().tolist())}
    numbers = [last[offset] for offset in targets.flatten().tolist()]
    return stored.reshape(-1)[numbers].view(targets.shape)
