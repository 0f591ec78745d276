"""One call of a graph that records gradients, and what its backward may need again.

In: what the call was given, and what it has made. Out: its inputs as they were, or what has become
of them since: written in place, or given other data.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from anyshape.nouns import frozen, mutable
from anyshape.runtime.halves import Layout, Part
from anyshape.runtime.random_state import RandomState
from anyshape.runtime.saved_by_eager import saved_behind
from anyshape.runtime.saved_values import REPLACED, SavedValue, refuse_detached
from anyshape.version_counters import version_of


@frozen(eq=False)
class Result:
    """One that requires gradients, as the program was handed it. Nobody holds it here."""

    handed: Callable[[], torch.Tensor | None]
    mark: object  # that the node of autograd has that made it
    version: int
    memory: list[torch.Tensor]  # an alias of it, while it lives, where its data may be asked for

    @classmethod
    def of(cls, tensor: torch.Tensor, mark: object, *, is_kept: bool) -> Result:
        memory = [tensor.detach()] if is_kept else []
        handed = weakref.ref(tensor, lambda _: memory.clear())
        return cls(handed, mark, version_now(tensor), memory)

    def is_replaced(self) -> bool:
        """Has the program put other data into it?"""
        tensor = self.handed()
        return tensor is not None and not all(m.is_set_to(tensor) for m in self.memory)

    def as_it_was(self) -> torch.Tensor | None:
        """None where it is gone, or written in place."""
        tensor = self.handed()
        return None if tensor is None or version_now(tensor) != self.version else tensor

    def now(self) -> torch.Tensor | None:
        """What has its place in autograd's graph: None where it is gone, or another one by a write
        in place that is recorded, or by ``detach_``."""
        tensor = self.handed()
        return tensor if getattr(_node_of(tensor), "mark", None) is self.mark else None


@mutable(eq=False)
class Call:
    """One call: what it was given, and what its backward may need again."""

    arguments: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outs: list[Any] = field(default_factory=list)
    aliases: Mapping[int, torch.Tensor] = field(default_factory=dict)  # of leaves with hooks
    numbers: tuple[Any, ...] = ()
    versions: tuple[int, ...] = ()
    shapes: tuple[torch.Size, ...] = ()
    copies: dict[int, torch.Tensor] = field(default_factory=dict)
    memory: dict[int, torch.Tensor] = field(default_factory=dict)  # that the inputs lie in
    saved: list[tuple[int, torch.Tensor, int]] = field(default_factory=list)
    results: dict[int, Result] = field(default_factory=dict)
    random_state: RandomState | None = None
    mark: object = field(default_factory=object)

    def living(self, positions: Sequence[int]) -> dict[int, torch.Tensor]:
        """Those results that somebody has still, whatever they hold by now."""
        found = {position: self.results[position].now() for position in positions}
        return {position: tensor for position, tensor in found.items() if tensor is not None}

    def written(self, positions: Sequence[int]) -> list[int]:
        """Those of them that hold something else."""
        return [p for p in positions if self.results[p].as_it_was() is None]

    def refuse_replaced_results(
        self,
        read: Sequence[tuple[int, int]],
        saved: Sequence[torch.Tensor],
        kept: Sequence[int],
    ) -> None:
        """Raises where the program has put other data into one of the results that are read, or
        that these formulas of eager's have ``kept`` themselves."""
        if any([self.results[position].is_replaced() for position in kept]):
            raise RuntimeError(REPLACED)
        for number, position in read:
            tensor = self.results[position].as_it_was()
            if tensor is not None and not saved[number].is_set_to(tensor):
                raise RuntimeError(REPLACED)

    def is_modified(self) -> bool:
        """Has an input been written since, of which there is no copy?"""
        return next(self.modified(), None) is not None

    def modified(self) -> Iterator[int]:
        """The positions of those inputs."""
        for position, (tensor, version) in enumerate(zip(self.inputs, self.versions)):
            if position not in self.copies and version_now(tensor) != version:
                yield position

    def written_since(self) -> list[int]:
        """The positions of outputs that are saved and have been written since."""
        return [p for p, counter, version in self.saved if version_now(counter) != version]

    def as_saved(self, one: SavedValue, part: Part, layout: Layout) -> torch.Tensor:
        """What a part saves: of another one's outputs not the tensor itself, which would hold that
        part's node, and be held by it."""
        found = one.read(self.inputs, self.outs, self.memory)
        is_result = not one.of_inputs and one.position in layout.differentiable
        return found.detach() if is_result and one.position not in part.outputs else found

    def is_replaced(self, positions: Sequence[int]) -> bool:
        """Has the program put other data into one of these inputs since (``x.data = new``)?"""
        memory, inputs = self.memory, self.inputs
        return not all([memory[i].is_set_to(inputs[i]) for i in positions])

    def watch_data(
        self,
        positions: Sequence[int],
        results: Mapping[int, torch.Tensor],
        gradients: Sequence[Any],
        untied: Sequence[Any],
    ) -> None:
        """Who goes through these gradients is refused where one of these inputs, or of these
        results, has got other data by then, or ``detach_`` was called on one of these: eager's
        formulas would read them, and those of what ran again do not. ``untied``: the gradients as
        those have made them."""
        watched = [(self.inputs[i], self.memory[i]) for i in positions]
        watched += [(t, m) for i, t in results.items() for m in self.results[i].memory]

        def refuse(_: Sequence[Any]) -> None:
            detached = [tensor for tensor in results.values() if tensor.is_leaf]
            kept = saved_behind(tuple(untied)) if detached else ()
            refuse_detached(t for one in kept for t in detached if one.is_set_to(t))
            if not all([memory.is_set_to(given) for given, memory in watched]):
                raise RuntimeError(REPLACED)

        for gradient in gradients:
            if gradient is not None and gradient.grad_fn is not None:
                gradient.grad_fn.register_prehook(refuse)

    def replaced(self) -> dict[int, torch.Tensor]:
        """All such inputs, each as it was: what lies in the memory that it had."""
        return {
            position: memory.detach()
            for position, memory in self.memory.items()
            if position not in self.copies and not memory.is_set_to(self.inputs[position])
        }


def _node_of(tensor: torch.Tensor | None) -> Any:
    """Of a view that may not be used any more since its base was written, none."""
    try:
        return None if tensor is None else tensor.grad_fn
    except RuntimeError:
        return None


def version_now(tensor: Any) -> int:
    return version_of(tensor) if isinstance(tensor, torch.Tensor) else 0


def counter_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without memory that has the version counter of this one."""
    made = tensor.detach()
    made.data = _EMPTY
    return made


_EMPTY = torch.empty(0)
