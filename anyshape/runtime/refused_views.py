"""A call that eager refuses, as what it views lies otherwise than types say, is not run.

In: a function, and a graph that makes views that may be refused where an argument has a stride of
its own in a dimension of one element (``passes/refused_views.py``). Eager torch makes them of
zeros, once for each combination of sizes and strides, before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from anyshape.eager import CheckFailed
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import HOST, Graph, TensorType, Value, row_major
from anyshape.nouns import mutable
from anyshape.runtime.chosen_layouts import is_odd
from anyshape.runtime.eager_function import eager_function
from anyshape.runtime.gradient_layouts import Form
from anyshape.runtime.result_layouts import MOST, inputs_like
from anyshape.symbolic import Expr

REFUSED = "view size is not compatible"
"""How torch's message begins."""


@mutable(eq=False)
class RefusedViews:
    """The views that ``graph`` makes."""

    graph: Graph
    constants: Mapping[str, torch.Tensor]
    known: dict[Form, bool] = field(default_factory=dict)

    def before(
        self, run: Callable[..., tuple[Any, ...]], whole: Graph
    ) -> Callable[..., tuple[Any, ...]]:
        """The function of the whole graph; it raises ``CheckFailed`` where eager refuses a view."""
        given = [entry.value for entry in whole.inputs if entry.kind == "argument"]
        read = {value for node in self.graph.nodes for value in node.inputs()}
        watched = [
            (position, value.tensor.strides == row_major(value.shape))
            for position, value in enumerate(given)
            if value in read and isinstance(value.type, TensorType) and _may_be_small(value.type)
        ]
        if not watched:
            return run
        telling = [position for position, value in enumerate(given) if _varies(value)]

        def running(*arguments: Any) -> tuple[Any, ...]:
            for position, in_rows in watched:
                if is_odd(arguments[position], in_rows):
                    if self._are_refused(arguments, telling):
                        raise CheckFailed("eager refuses a view for the strides of an argument")
                    break
            return run(*arguments)

        return running

    def _are_refused(self, arguments: Sequence[Any], telling: Sequence[int]) -> bool:
        """``telling``: the arguments whose sizes and strides differ from call to call."""
        key = tuple([_form(arguments[position]) for position in telling])
        if key not in self.known:
            if len(self.known) >= MOST:
                self.known.clear()
            self.known[key] = any(self._refuses(arguments, number) for number in (0, 1))
        return self.known[key]

    def _refuses(self, arguments: Sequence[Any], number: int) -> bool:
        """Of tensors like these, filled with a number. False where data decides sizes, or where
        eager refuses something else of it."""
        read = {value for node in self.graph.nodes for value in node.inputs()}
        devices = {v.type.device for v in read if isinstance(v.type, TensorType)} - {HOST}
        if devices and torch.cuda.is_current_stream_capturing():
            return False  # it would be part of the caller's CUDA graph
        try:
            inputs = inputs_like(self.graph, self.constants, arguments, read, number)
            with torch.no_grad(), torch.random.fork_rng(sorted(devices)):
                eager_function(self.graph, strict=True)(*inputs)
        except Exception as error:
            if is_interrupt(error):
                raise
            return str(error).startswith(REFUSED)
        return False


def _may_be_small(kind: TensorType) -> bool:
    return any(isinstance(n, Expr) or n < 2 for n in kind.shape)


def _varies(value: Value) -> bool:
    kind = value.type
    if not isinstance(kind, TensorType):
        return True
    return _may_be_small(kind) or any(isinstance(n, Expr) for n in kind.strides)


def _form(argument: Any) -> object:
    is_tensor = isinstance(argument, torch.Tensor)
    return (argument.shape, argument.stride()) if is_tensor else argument
