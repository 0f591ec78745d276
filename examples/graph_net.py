"""A graph-network layer that drops weak edges and lonely nodes: numbers of nodes and edges differ
from call to call, and those that are left are known to the data alone. One graph for all.

python examples/graph_net.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import anyshape


class GraphLayer(nn.Module):
    """Messages along the edges that matter, means at their targets, and a pooled mean of the nodes
    that got any.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * width, 1)
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU())
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.LayerNorm(width))

    def forward(self, nodes: Tensor, edges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From nodes (n, width), edges (2, e): the new nodes, the edges that were kept, a mean."""
        ends = torch.cat([nodes[edges[0]], nodes[edges[1]]], -1)
        strong = self.gate(ends).squeeze(-1) > 0
        kept = edges[:, strong]
        messages = self.message(ends[strong])
        degree = torch.bincount(kept[1], minlength=nodes.shape[0])
        total = torch.zeros_like(nodes).index_add(0, kept[1], messages)
        mean = total / degree.clamp(min=1)[:, None]
        nodes = nodes + self.update(torch.cat([nodes, mean], -1))
        reached = nodes[degree > 0]
        return nodes, kept, reached.sum(0) / max(reached.shape[0], 1)


def inputs(nodes: int, edges: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random graph."""
    return (
        torch.randn(nodes, 32, generator=generator),
        torch.randint(0, max(nodes, 1), (2, edges), generator=generator),
    )


def main() -> None:
    torch.manual_seed(0)
    model = GraphLayer().eval()
    fast = anyshape.compile(model, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for nodes, edges in ((10, 30), (0, 0), (1, 0), (1, 1), (5, 0), (200, 1500)):
            given = inputs(nodes, edges, generator)
            made = fast(*given)
            torch.testing.assert_close(made, model(*given), rtol=1e-4, atol=1e-5)
            print(f"{nodes} nodes, {edges} edges: {made[1].shape[1]} edges kept")
    print(fast.stats())


if __name__ == "__main__":
    main()
