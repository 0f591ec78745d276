"""Results that eager has in a copy of an argument's storage get such a storage.

In: a function whose results lie as their types say, and the graph that makes some of them by
operators that copy storages (``passes/copied_storages.py``). Eager torch runs that graph, and is
asked once for each combination of sizes, strides and places whether its results begin elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Graph
from anyshape.nouns import mutable
from anyshape.runtime.eager_function import eager_function
from anyshape.runtime.gradient_layouts import Form, storage_of
from anyshape.runtime.result_layouts import MOST, inputs_like
from anyshape.version_counters import set_version, version_of

Tensor = torch.Tensor
Extent = tuple[int, int]
"""Where a tensor begins in its storage, and how long that is, in elements."""


@mutable(eq=False)
class CopiedStorages:
    """The results at ``positions``, which ``graph`` makes."""

    graph: Graph
    positions: tuple[int, ...]
    constants: Mapping[str, Tensor]
    extents: dict[Form, Sequence[Extent]] = field(default_factory=dict)
    _eager: Callable[..., Any] | None = None

    def after(self, run: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        """The function, whose results lie in copies of storages as eager's do."""
        return lambda *arguments: self.with_storages(arguments, run(*arguments))

    def with_storages(self, arguments: Sequence[Any], made: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results of a call; as they are where data decides sizes, or where what lies in their
        memory is no such result."""
        results = [made[position] for position in self.positions]
        exactly = tuple(map(_described, arguments)), tuple([t.shape for t in results])
        if self.extents.get(exactly) == [*map(_extent, results)]:
            return made
        own = {storage_of(t) for t in results}
        moved = {id(t) for t in results}
        if any(storage_of(t) in own for t in _tensors((*arguments, *made)) if id(t) not in moved):
            return made
        likes = self._eagerly(arguments, results)
        if likes is None:
            return made
        if len(self.extents) >= MOST:
            self.extents.clear()
        self.extents[exactly] = [*map(_extent, likes)]
        if self.extents[exactly] == [*map(_extent, results)]:
            return made
        with torch.no_grad():
            for like, result in zip(likes, results, strict=True):
                like.copy_(result)
        for like, result in zip(likes, results, strict=True):
            set_version(like, version_of(result))
        others = {id(result): like for result, like in zip(results, likes, strict=True)}
        return tuple([others.get(id(t), t) for t in made])

    def _eagerly(
        self, arguments: Sequence[Any], results: Sequence[Tensor]
    ) -> Sequence[Tensor] | None:
        """What eager makes of the arguments, and of zeros where the program has made something."""
        if self._eager is None:
            self._eager = eager_function(self.graph)
        given = [p for p, entry in enumerate(self.graph.inputs) if entry.kind == "argument"]
        made_inside = {self.graph.inputs[p].value for p in given[len(arguments) :]}
        shapes = [t.shape for t in results]
        try:
            inputs = inputs_like(self.graph, self.constants, arguments, made_inside, 0, shapes)
            for position, argument in zip(given, arguments):
                is_tensor = isinstance(argument, Tensor)
                inputs[position] = argument.detach() if is_tensor else argument
            with torch.no_grad():
                likes: Sequence[Tensor] = self._eager(*inputs)
        except Exception as error:  # of a size that data decides
            if is_interrupt(error):
                raise
            return None
        return likes if [t.shape for t in likes] == shapes else None


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


def _extent(tensor: Tensor) -> Extent:
    length = tensor.untyped_storage().nbytes() // tensor.element_size()
    return int(tensor.storage_offset()), length


def _described(argument: Any) -> object:
    if not isinstance(argument, Tensor):
        return argument
    return argument.shape, argument.stride(), *_extent(argument)
