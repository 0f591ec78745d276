"""Two processes that train together, in each way that torch has: `python -m tests.autograd.processes
RANK FILE NAME...` is one of them. Each compiles its whole step, and compares with eager's."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import anyshape

WORLD = 2


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def replicated(net: nn.Sequential) -> nn.Module:
    return DistributedDataParallel(net)


def sharded(net: nn.Sequential) -> nn.Module:
    mesh = init_device_mesh("cpu", (WORLD,))
    for part in (net[0], net[2], net):
        fully_shard(part, mesh=mesh)
    return net


def split(net: nn.Sequential) -> nn.Module:
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(net, init_device_mesh("cpu", (WORLD,)), plan)


WAYS: dict[str, Callable[[nn.Sequential], nn.Module]] = {
    function.__name__: function for function in (replicated, sharded, split)
}


def step_of(net: nn.Module) -> Callable[[Tensor], Tensor]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def run(rank: int, name: str) -> None:
    nets = [WAYS[name](copy.deepcopy(model())) for _ in range(2)]
    plain, fast = step_of(nets[0]), anyshape.compile(step_of(nets[1]))
    for turn, rows in enumerate((3, 5, 2, 3)):
        seed = turn if name == "split" else turn * WORLD + rank  # the same batch, or one of its own
        x = torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(whole(fast(x)), whole(plain(x)))
        for ours, theirs in zip(nets[1].parameters(), nets[0].parameters()):
            torch.testing.assert_close(whole(ours.grad), whole(theirs.grad))
            torch.testing.assert_close(whole(ours), whole(theirs))
    assert fast.stats().internal_errors == 0


def main() -> None:
    rank, path, *names = int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
    store = distributed.FileStore(str(path), WORLD)
    distributed.init_process_group("gloo", rank=rank, world_size=WORLD, store=store)
    try:
        for name in names:
            run(rank, name)
            distributed.barrier()
            print("right", name, flush=True)
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
