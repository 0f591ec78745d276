"""Where a rank stands among others, and the collectives a layer needs, on torch.distributed alone.

In: process groups. Out: a `Mesh` of two axes: `tp` ranks share the work of a token, `ep` ranks
share the experts. An axis without a group has one rank, and its collectives are the identity. Every
wait ends by the timeout of its group; what ranks must agree on is compared, so that a disagreement
is an error (E152) on all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from anyshape.errors import AnyshapeError
from anyshape.kernels import checks
from anyshape.moe.watch import Watch

# How long a rank waits for another. Longer than a first call, in which each rank compiles and tunes
# kernels.
TIMEOUT = timedelta(minutes=5)

# torch 2.13 renamed it and warns.
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True, slots=True)
class Axis:
    """The ranks along one axis of a mesh; `group=None` is this rank alone."""

    group: dist.ProcessGroup | None = None

    @property
    def size(self) -> int:
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def rank(self) -> int:
        return 0 if self.group is None else dist.get_rank(self.group)

    @property
    def is_gloo(self) -> bool:
        return self.group is not None and dist.get_backend(self.group) == "gloo"

    def gather(self, x: Tensor) -> Tensor:
        """x [...] of equal shapes -> [size, ...]."""
        if self.group is None:
            return x[None]
        out = x.new_empty((self.size, *x.shape))
        dist.all_gather_into_tensor(out.view(-1), x.contiguous().view(-1), group=self.group)
        return out

    def reduce(self, x: Tensor) -> Tensor:
        """The sum over the ranks, in place."""
        if self.group is not None:
            dist.all_reduce(x, group=self.group)
        return x

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """x [size, ...] -> the sum over the ranks of x[rank]."""
        if self.group is None:
            return x[0]
        out = x.new_empty(x.shape[1:])
        reduce_scatter_single(out.view(-1), x.contiguous().view(-1), group=self.group)
        return out

    def start_exchange(
        self, x: Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Callable[[], Tensor]:
        """Sends rows of x [sum(sent), ...] to their ranks; what comes back waits for the rows that
        come here [sum(received), ...]."""
        if self.group is None:
            return lambda: x
        rows = x.contiguous()
        out = x.new_empty((sum(received), *x.shape[1:]))
        work = dist.all_to_all_single(
            out, rows, list(received), list(sent), group=self.group, async_op=True
        )

        def wait() -> Tensor:
            work.wait()
            return out

        return wait

    def transpose(self, x: Tensor) -> Tensor:
        """x [size, ...] -> [size, ...]: row i is what rank i had for this rank."""
        if self.group is None:
            return x
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        dist.all_to_all_single(out, x.contiguous(), group=self.group)
        return out


@dataclass(frozen=True, slots=True)
class Mesh:
    """The two axes of this rank; in those of `of_world`, consecutive ranks share a `tp` group."""

    tp: Axis = Axis()
    ep: Axis = Axis()
    timeout: timedelta = TIMEOUT
    watch: Watch = field(default_factory=Watch, compare=False, repr=False)

    @classmethod
    def of_groups(
        cls,
        tp: dist.ProcessGroup | None,
        ep: dist.ProcessGroup | None,
        timeout: timedelta = TIMEOUT,
    ) -> Mesh:
        """A mesh of groups that exist already (those of a DeviceMesh, say), with their timeout."""
        return cls(Axis(tp), Axis(ep), timeout)

    @classmethod
    def of_world(cls, *, tp: int = 1, ep: int = 1, timeout: timedelta = TIMEOUT) -> Mesh:
        """All ranks of the default group as `ep` rows of `tp` ranks. Every rank must call it.

        Makes new groups, in which a rank waits at most `timeout` for the others.
        """
        world = dist.get_world_size()
        if tp < 1 or ep < 1 or tp * ep != world:
            checks.fail("tp * ep", f"{world}, the number of ranks", f"{tp} * {ep}")
        rows = [list(range(row * tp, (row + 1) * tp)) for row in range(ep)]
        columns = [list(range(column, world, tp)) for column in range(tp)]
        return cls(Axis(_own_group(rows, timeout)), Axis(_own_group(columns, timeout)), timeout)

    def axes(self) -> tuple[Axis, Axis]:
        return self.tp, self.ep

    def watch_for(self, x: Tensor) -> None:
        """Ends the process with E154 if `x`, for which the GPU waits for other ranks, is not there
        within the timeout. Nothing on the CPU, where gloo raises an error, nor while a CUDA graph
        is recorded.
        """
        alone = self.tp.group is None and self.ep.group is None
        if alone or not x.is_cuda or torch.cuda.is_current_stream_capturing():
            return
        point = torch.cuda.current_stream(x.device).record_event()
        self.watch.mark(point, self.timeout.total_seconds())


def _own_group(partition: Sequence[list[int]], timeout: timedelta) -> dist.ProcessGroup | None:
    """The group of this rank in a partition of all ranks; None for a group of one."""
    if len(partition[0]) == 1:
        return None
    groups = [dist.new_group(ranks, timeout=timeout) for ranks in partition]
    rank = dist.get_rank()
    return next(group for group, ranks in zip(groups, partition, strict=True) if rank in ranks)


def agree(
    axis: Axis, what: str, names: Sequence[str], values: Sequence[int], device: torch.device
) -> None:
    """Raises E152 on every rank of `axis` if `values` differ. A collective and a host sync."""
    if axis.group is None:
        return
    table = axis.gather(torch.tensor(values, dtype=torch.int64, device=device)).tolist()
    compare(what, names, table)


def compare(what: str, names: Sequence[str], table: Sequence[Sequence[int]]) -> None:
    """Raises E152 if a column of `table` (a row a rank) is not constant."""
    for name, column in zip(names, zip(*table, strict=True), strict=True):
        if len(set(column)) > 1:
            listed = ", ".join(f"rank {rank} has {value}" for rank, value in enumerate(column))
            raise AnyshapeError("E152", subject=what, name=name, listed=listed)


class HostCopy:
    """A small tensor on its way to the host; other work fits in before `wait()`."""

    def __init__(self, x: Tensor, timeout: timedelta) -> None:
        self._host, self._timeout = x, timeout
        self._event: torch.cuda.Event | None = None
        if x.is_cuda:
            self._host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
            self._host.copy_(x, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def wait(self) -> list[int]:
        """The values; E154 if the ranks they come from have not answered within the timeout."""
        deadline = time.monotonic() + self._timeout.total_seconds()
        while self._event is not None and not self._event.query():
            if time.monotonic() > deadline:
                raise AnyshapeError("E154", seconds=self._timeout.total_seconds())
        return self._host.tolist()
