"""Gradients by eager torch of a part of a graph that has run again.

In: results with their cotangents, the inputs of the part, and results of earlier parts that lie on
the way. Out: what the part adds to the gradient of each. The way on from an earlier result to the
inputs is not the part's, as the earlier part adds that itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
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


@frozen(eq=False)
class StandIns:
    """Tensors in the places of those that differentiable gradients are to be of: views of them.
    With ``alone``, leaves, and what is made of these is ``tied`` to the others."""

    alone: bool
    pairs: list[tuple[GradientEdge, torch.Tensor]] = field(default_factory=list)

    def of(self, tensor: torch.Tensor, data: torch.Tensor | None = None) -> torch.Tensor:
        """``data``: what it holds, if that is not what it holds by now."""
        if not tensor.requires_grad:
            return tensor
        made = tensor.detach().requires_grad_() if self.alone else tensor.view_as(tensor)
        if data is not None:
            made.data = data
        if self.alone:
            self._stands_for(get_gradient_edge(made), tensor)
        return made

    def holding(self, data: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """In the place of a tensor that was written since, with a version counter of its own."""
        if not self.alone:
            made: torch.Tensor = _Holding.apply(tensor, data)
            return made
        made = data.detach().requires_grad_()
        self._stands_for(get_gradient_edge(made), tensor)
        return made

    def ends_at(self, edge: GradientEdge, result: torch.Tensor) -> None:
        """What runs again has made one of its results, in whose place the program has its own: by
        formulas that keep that one, gradients are of it, and gradients of them end there."""
        edge.node.register_prehook(_without(edge.output_nr))
        self._stands_for(edge, result)

    def _stands_for(self, edge: GradientEdge, tensor: torch.Tensor) -> None:
        """For its place in autograd's graph as of now: a write that is recorded gives the tensor
        another one."""
        self.pairs.append((edge, _Holding.apply(tensor, tensor)))

    def tied(self, gradients: Sequence[Any]) -> list[Any]:
        positions = [i for i, g in enumerate(gradients) if g is not None and g.requires_grad]
        found = list(gradients)
        if not (self.alone and positions):
            return found
        made = [gradients[i] for i in positions]
        several = _Tied.apply(made, self.pairs, *(tensor for _, tensor in self.pairs))
        for position, one in zip(positions, several):
            found[position] = one
        return found


class _Holding(torch.autograd.Function):
    """Other numbers, with the place of a tensor in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return data.detach()

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, None]:
        return cotangents[0], None


class _Tied(torch.autograd.Function):
    """Gradients by a graph that ends at stand-ins, as autograd sees them: made of the tensors in
    whose places those stand. It is gone through by itself, as often as is asked for."""

    @staticmethod
    def forward(
        ctx: Any,
        made: Sequence[torch.Tensor],
        pairs: Sequence[tuple[GradientEdge, torch.Tensor]],
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.made, ctx.pairs = [*map(get_gradient_edge, made)], pairs
        return tuple([g.detach() for g in made])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        create = torch.is_grad_enabled()
        again = StandIns(create, [*ctx.pairs] if create else [])
        several = [(g, c) for g, c in zip(ctx.made, cotangents) if c is not None]
        if not several:
            return (None, None, *(None for _ in ctx.pairs))
        found = torch.autograd.grad(
            [g for g, _ in several],
            [edge for edge, _ in ctx.pairs],
            [again.of(c) if create else c for _, c in several],
            retain_graph=True,
            create_graph=create,
            allow_unused=True,
        )
        return (None, None, *again.tied(found))


def shaped_as(cotangent: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """The cotangent, or zeros where data have made a result of another shape."""
    return cotangent if cotangent.shape == result.shape else torch.zeros_like(result)


def _edge(tensor: torch.Tensor) -> GradientEdge | torch.Tensor:
    return get_gradient_edge(tensor) if tensor.requires_grad else tensor


def _without(number: int) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A hook in front of a node, which takes away what comes for one of its results."""
    return lambda given: tuple([None if n == number else g for n, g in enumerate(given)])
