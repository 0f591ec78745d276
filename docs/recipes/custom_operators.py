"""Custom operators in the middle of what is compiled.

`torch.library.custom_op` with `register_fake` is one node of the graph: what is around it is
fused up to it, and nothing breaks. triton_kernel.py launches a Triton kernel in one.
"""

import torch

import anyshape


@torch.library.custom_op("recipes::clipped", mutates_args=())
def clipped(x: torch.Tensor, limit: float) -> torch.Tensor:
    return x.clamp(-limit, limit)  # here: call into C++, or launch a Triton kernel


@clipped.register_fake
def _(x: torch.Tensor, limit: float) -> torch.Tensor:
    return torch.empty_like(x)


def program(x: torch.Tensor) -> torch.Tensor:
    y = (x * 3).sin() * 2
    return clipped(y, 0.5).exp() + 1


fast = anyshape.compile(program, fullgraph=True)
with torch.no_grad():
    for rows in (3, 1, 0, 50):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(fast(x), program(x))
stats = fast.stats()
assert (stats.specializations, stats.graph_breaks, stats.eager_ops) == (1, 0, 1)
print(stats)
