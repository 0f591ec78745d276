"""DDP and FSDP: compile first, then wrap.

DDP takes the compiled model: its hooks are on parameters and gradients, which stay the program's
own. FSDP's hooks are on modules: compile what lies between them, each block's `forward`. A block
settles after a few calls, since FSDP puts its parameters into other memory each time.
One process here, so that it runs anywhere; under torchrun each rank does the same. What all ranks
would say alike, the first says.
"""

import copy
import os

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import anyshape

os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
distributed.init_process_group(
    "gloo", rank=0, world_size=1, store=distributed.HashStore(),
)  # fmt: skip
torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
model = copy.deepcopy(plain)
compiled = anyshape.compile(model)
replicated = DistributedDataParallel(compiled)
for rows in (3, 5, 2):  # batches of any size
    x = torch.randn(rows, 8)
    for each in (replicated, plain):
        each.zero_grad()
        each(x).square().mean().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad)
print(compiled.stats())

sharded = copy.deepcopy(plain)
mesh = init_device_mesh("cpu", (1,))
linear = sharded[0]
linear.forward = anyshape.compile(linear.forward, fullgraph=True)
for layer in (sharded[0], sharded[2], sharded):
    fully_shard(layer, mesh=mesh)
for rows in (3, 5, 2, 7, 4, 1, 6):
    x = torch.randn(rows, 8)
    for each in (sharded, plain):
        each.zero_grad()
        each(x).square().mean().backward()
    for ours, theirs in zip(sharded.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad.full_tensor(), theirs.grad)
assert linear.forward.stats().specializations <= 4
print(linear.forward.stats())
distributed.destroy_process_group()
