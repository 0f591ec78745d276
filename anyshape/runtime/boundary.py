"""Where compiled gradients meet autograd: one ``autograd.Function`` whose halves are programs.

In: the two halves of a graph (``autograd/partition.py``), as functions that run. Out: a function of
the graph's arguments that gives its outputs, those that require gradients with a ``grad_fn``.
Residuals go through ``save_for_backward``, so that a later write to one raises as in eager; numbers
lie beside them. Where a gradient is itself to be differentiated, or its program cannot be made,
eager torch runs the captured graph again from the inputs that were kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from anyshape.errors import AnyshapeError
from anyshape.ir.graph import Graph
from anyshape.runtime.eager_function import eager_function
from anyshape.runtime.rollback import version_of, written_inputs

Run = Callable[..., tuple[Any, ...]]
_C = torch._C


@dataclass(frozen=True, slots=True)
class Place:
    """A residual: among the graph's inputs, or among what the forward half returns."""

    of_inputs: bool
    position: int

    def read(self, inputs: Sequence[Any], outs: Sequence[Any]) -> Any:
        return (inputs if self.of_inputs else outs)[self.position]


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions: ``wanted`` among the inputs, ``differentiable`` among the ``outputs`` that the
    program has. ``residuals`` are read by the backward half, ``watched`` are saved for their
    versions alone; ``numbers`` is where the numbers begin in what the forward half returns."""

    outputs: int
    wanted: tuple[int, ...]
    differentiable: tuple[int, ...]
    residuals: tuple[Place, ...]
    watched: tuple[Place, ...]
    numbers: int


@dataclass(slots=True, eq=False)
class Boundary:
    """``run`` takes the graph's argument inputs in order and returns its outputs, flat.

    ``make_backward(absent)`` gives the backward half where these of ``differentiable`` get no
    cotangent, and which of ``wanted`` it has gradients of. It may raise ``AnyshapeError``.
    """

    graph: Graph
    constants: Mapping[str, torch.Tensor]
    layout: Layout
    forward: Run
    make_backward: Callable[[tuple[int, ...]], tuple[Run, tuple[int, ...]]]
    random: bool = False
    halves: dict[tuple[int, ...], tuple[Run, tuple[int, ...]] | None] = field(default_factory=dict)
    reruns: int = 0
    _written: tuple[int, ...] = ()
    _constant_inputs: tuple[tuple[int, torch.Tensor], ...] = ()
    _eager: Run | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        writes = written_inputs(self.graph)
        self._written = tuple(sorted({*writes.before, *writes.behind}))
        self._constant_inputs = tuple(
            (position, self.constants[entry.value.name])
            for position, entry in enumerate(self.graph.inputs)
            if entry.kind != "argument"
        )

    def run(self, *arguments: Any) -> tuple[Any, ...]:
        """Raises ``CheckFailed``; then nothing has been written."""
        call = Call(arguments, self.inputs(arguments))
        wanted = [call.inputs[i] for i in self.layout.wanted]
        if torch.is_grad_enabled():
            made = Differentiated.apply(self, call, *wanted)
        else:  # the program turns gradients on by itself
            with torch.enable_grad():
                made = Differentiated.apply(self, call, *wanted)
        outs = call.outs[: self.layout.outputs]
        call.outs = []
        made = made if isinstance(made, tuple) else (made,)
        for position, tensor in zip(self.layout.differentiable, made):
            outs[position] = tensor
        return tuple(outs)

    def inputs(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """All inputs of the graph, parameters and constants included."""
        found = list(arguments)
        for position, tensor in self._constant_inputs:
            found.insert(position, tensor)
        return tuple(found)

    def backward(self, absent: tuple[int, ...]) -> tuple[Run, tuple[int, ...]] | None:
        """The half for these absent cotangents; None where there can be none."""
        found = self.halves.get(absent, _UNKNOWN)
        if found is _UNKNOWN:
            with self._lock:
                if absent not in self.halves:
                    try:
                        self.halves[absent] = self.make_backward(absent)
                    except AnyshapeError:
                        self.halves[absent] = None
                found = self.halves[absent]
        return found

    def again(self, call: Call, cotangents: Sequence[Any]) -> list[Any]:
        """The gradients of those wanted by eager torch, from the inputs that were kept."""
        self.reruns += 1
        for position, (tensor, version) in enumerate(zip(call.inputs, call.versions)):
            if position not in call.copies and _version(tensor) != version:
                raise RuntimeError(MODIFIED)
        if self._eager is None:
            self._eager = eager_function(self.graph)
        create = torch.is_grad_enabled()
        with torch.enable_grad():
            inputs = list(call.inputs)
            for position, copy in call.copies.items():
                inputs[position] = copy.clone()
            wanted = [inputs[i].view_as(inputs[i]) for i in self.layout.wanted]
            for position, tensor in zip(self.layout.wanted, wanted):
                inputs[position] = tensor
            outs = self._replayed(call, inputs)
            pairs = [
                (outs[position], g)
                for position, g in zip(self.layout.differentiable, cotangents)
                if g is not None
            ]
            results = torch.autograd.grad(
                [out for out, _ in pairs],
                wanted,
                [g for _, g in pairs],
                create_graph=create,
                allow_unused=True,
            )
        return list(results)

    def _replayed(self, call: Call, inputs: Sequence[Any]) -> tuple[Any, ...]:
        assert self._eager is not None
        if call.random_state is None:
            outs: tuple[Any, ...] = self._eager(*inputs)
            return outs
        now = torch.get_rng_state()
        torch.set_rng_state(call.random_state)
        try:
            outs = self._eager(*inputs)
            return outs
        finally:
            torch.set_rng_state(now)


_UNKNOWN: Any = object()
MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation"
)


@dataclass(slots=True, eq=False)
class Call:
    """One call: what it was given, and what its backward may need again."""

    arguments: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outs: list[Any] = field(default_factory=list)
    numbers: tuple[Any, ...] = ()
    versions: tuple[int, ...] = ()
    copies: dict[int, torch.Tensor] = field(default_factory=dict)
    random_state: torch.Tensor | None = None


class Differentiated(torch.autograd.Function):
    """A graph as autograd sees it: what requires gradients in, differentiable outputs out."""

    @staticmethod
    def forward(ctx: Any, boundary: Boundary, call: Call, *wanted: torch.Tensor) -> Any:
        layout = boundary.layout
        ctx.set_materialize_grads(False)
        call.copies = {i: call.inputs[i].detach().clone() for i in boundary._written}
        if boundary.random:
            call.random_state = torch.get_rng_state()
        call.versions = tuple([_version(tensor) for tensor in call.inputs])
        outs = list(boundary.forward(*call.arguments))
        call.numbers = tuple(outs[layout.numbers :])
        for position in layout.differentiable:
            if outs[position]._is_view():
                outs[position] = outs[position].data
        read = [place.read(call.inputs, outs) for place in layout.residuals]
        watched = [place.read(call.inputs, outs) for place in layout.watched]
        ctx.save_for_backward(*read, *watched)
        ctx.boundary, ctx.call = boundary, call
        call.outs = outs
        made = tuple([outs[position] for position in layout.differentiable])
        return made if len(made) != 1 else made[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        boundary, call = ctx.boundary, ctx.call
        layout = boundary.layout
        saved = ctx.saved_tensors[: len(layout.residuals)]
        absent = tuple([p for p, g in zip(layout.differentiable, cotangents) if g is None])
        half = None if torch.is_grad_enabled() else boundary.backward(absent)
        if half is None:
            return None, None, *boundary.again(call, cotangents)
        run, given = half
        handed = [g.contiguous() for g in cotangents if g is not None]
        found = _without_autocast(run, (*saved, *call.numbers, *handed))
        gradients: list[Any] = [None] * len(layout.wanted)
        for position, gradient in zip(given, found):
            gradients[position] = gradient
        return None, None, *gradients


def _version(tensor: Any) -> int:
    return version_of(tensor) if isinstance(tensor, torch.Tensor) else 0


def _without_autocast(run: Run, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Casts are nodes of the graph already."""
    if not _C._is_any_autocast_enabled():
        return run(*given)
    with _C._DisableAutocast():
        return run(*given)
