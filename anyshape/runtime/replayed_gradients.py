"""Gradients by eager torch of a part of a graph that has run again.

In: results with their cotangents, the inputs of the part, and results of earlier parts that lie on
the way. Out: what the part adds to the gradient of each. The way on from an earlier result to the
inputs is not the part's, as the earlier part adds that itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from anyshape.nouns import frozen


@frozen(eq=False)
class Way:
    """Where autograd goes, as it is before any of the tensors counts as written: behind a write, a
    view has another node."""

    results: tuple[Any, ...]  # an edge each, or the tensor that has none
    cotangents: tuple[torch.Tensor, ...]
    inputs: tuple[Any, ...]
    earlier: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        handed: Mapping[torch.Tensor, torch.Tensor],
        inputs: Sequence[torch.Tensor],
        earlier: Sequence[torch.Tensor],
    ) -> Way:
        ends = (tuple(map(_edge, tensors)) for tensors in (handed, inputs, earlier))
        results, of_inputs, of_results = ends
        return cls(results, tuple(handed.values()), of_inputs, of_results)

    def gradients(self, create: bool) -> tuple[list[Any], list[Any]]:
        """Of the inputs, and of the earlier results; None where there is none. ``create``: they are
        differentiable."""
        of_results = self._gradients(self.earlier, create, keep=bool(self.inputs))
        edges = [edge for edge in self.earlier if isinstance(edge, GradientEdge)]
        hooks = [edge.node.register_prehook(_without(edge.output_nr)) for edge in edges]
        try:
            return self._gradients(self.inputs, create), of_results
        finally:
            for hook in hooks:
                hook.remove()

    def _gradients(self, ends: Sequence[Any], create: bool, keep: bool = False) -> list[Any]:
        if not ends:
            return []
        found = torch.autograd.grad(
            self.results,
            ends,
            self.cotangents,
            retain_graph=keep or create,
            create_graph=create,
            allow_unused=True,
        )
        return list(found)


def _edge(tensor: torch.Tensor) -> GradientEdge | torch.Tensor:
    return get_gradient_edge(tensor) if tensor.requires_grad else tensor


def _without(number: int) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A hook in front of a node, which takes away what comes for one of its results."""
    return lambda given: tuple([None if n == number else g for n, g in enumerate(given)])
