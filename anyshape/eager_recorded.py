"""Operators without a gradient rule, as rows run them: torch's autograd records the one call.

In: a function by its dotted name, its arguments, and which tensors among them have gradients. Out:
its results, and behind them a handle: a tensor that carries what autograd keeps, for
``recorded_gradients``. What autograd keeps is never memory that the program may write again: the
caller's tensors are kept as they lie, and a later write to one raises as in eager torch; others are
copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks

from anyshape.eager import CheckFailed
from anyshape.nouns import frozen, mutable
from anyshape.torch_names import MEMORY_FORMATS, resolve

Tensor = torch.Tensor


@frozen
class Recorded:
    """What autograd goes from (None of a result without gradients), and to."""

    edges: tuple[GradientEdge | None, ...]
    leaves: tuple[Tensor, ...]


@mutable(eq=False)
class Kept:
    """A tensor that autograd saves."""

    tensor: Tensor
    version: int | None = None  # of the caller's memory, when it was saved

    def read(self) -> Tensor:
        if self.version is not None and self.tensor._version != self.version:
            raise RuntimeError(MODIFIED)
        return self.tensor


MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation"
)


@mutable(eq=False)
class Recorder:
    """One call. ``wanted`` and ``callers`` count the tensors among the arguments, in order: those
    that gradients are wanted of, and those in the caller's memory. ``isolated``: the function may
    keep tensors in ways that autograd does not see, so that all it is handed is copied."""

    wanted: Sequence[int]
    callers: Sequence[int]
    isolated: bool
    leaves: list[Tensor] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    callers_storages: set[int] = field(default_factory=set)  # storages of the caller
    written: set[int] = field(default_factory=set)  # storages that the program may write again
    count: int = 0

    def given(self, arg: Any) -> Any:
        """The argument as the function gets it."""
        if isinstance(arg, tuple):
            return tuple(map(self.given, arg))
        if not isinstance(arg, Tensor):
            is_format = isinstance(arg, str) and arg in MEMORY_FORMATS
            return getattr(torch, arg) if is_format else arg
        position = self.count
        self.count += 1
        made = arg.detach()
        if position in self.callers:
            self.callers_storages.add(_storage(made))
        elif self.isolated:
            made = _copied(made)
        else:
            self.written.add(_storage(made))
        if position in self.wanted:
            self.leaves.append(made.requires_grad_())
        return made

    def save(self, tensor: Tensor) -> Kept:
        """What autograd saves, as it does."""
        kept = Kept(tensor, tensor._version if _storage(tensor) in self.callers_storages else None)
        self.kept.append(kept)
        return kept

    def finish(self, parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The results in memory that nothing else lies in, and the handle."""
        numbers = [p for p in parts if p.is_floating_point() or p.is_complex()]
        if self.leaves and not all(p.requires_grad for p in numbers):
            raise CheckFailed("a result of an operator without a rule has no gradients")
        edges = tuple([get_gradient_edge(part) if part.requires_grad else None for part in parts])
        taken = {*self.callers_storages, *self.written}
        outs = []
        for part in parts:
            shares = self.isolated or _storage(part) in taken
            outs.append(part.detach().clone() if shares else part.detach())
            taken.add(_storage(outs[-1]))
        self.written.update(map(_storage, outs))
        copies: dict[tuple[Any, ...], Tensor] = {}
        for kept in self.kept:
            self._copy(kept, copies)
        handle = torch.zeros((), dtype=torch.uint8)
        handle.__dict__["recorded"] = Recorded(edges, tuple(self.leaves))
        return (*outs, handle)

    def _copy(self, kept: Kept, copies: dict[tuple[Any, ...], Tensor]) -> None:
        """Copies, once each, what lies in memory that the program may write again."""
        t = kept.tensor
        if kept.version is not None or _storage(t) not in self.written:
            return
        key = (_storage(t), t.storage_offset(), t.shape, t.stride(), t.dtype)
        if key not in copies:
            copies[key] = _copied(t.detach())
        kept.tensor = copies[key]


def recorded(
    function: str,
    args: tuple[Any, ...],
    names: tuple[str, ...],
    options: tuple[Any, ...],
    wanted: tuple[int, ...],
    callers: tuple[int, ...],
) -> tuple[Tensor, ...]:
    """The results of the function, and the handle. Positional arguments, the names of the others
    and those."""
    recorder = Recorder(wanted, callers, _is_outside(function))
    given = recorder.given(args)
    named = dict(zip(names, recorder.given(options)))
    if named.get("memory_format", "") is None:  # torch wants it left out
        del named["memory_format"]
    with torch.enable_grad(), saved_tensors_hooks(recorder.save, Kept.read):
        result = resolve(function)(*given, **named)
    parts = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return recorder.finish(parts)


recorded_draw = recorded
"""Of functions that draw."""
recorded_guess = recorded
"""Of functions whose types are guessed."""


def recorded_gradients(handle: Tensor, cotangents: tuple[Any, ...]) -> tuple[Tensor, ...] | Tensor:
    """The gradients of what was wanted, by these cotangents of the results, None where absent."""
    record: Recorded = handle.__dict__["recorded"]
    pairs = [(edge, g) for edge, g in zip(record.edges, cotangents) if edge and g is not None]
    found: Sequence[Tensor | None] = [None] * len(record.leaves)
    if pairs:
        found = torch.autograd.grad(
            [edge for edge, _ in pairs],
            record.leaves,
            [g for _, g in pairs],
            retain_graph=True,  # the program may be gone through again
            allow_unused=True,
        )
    made = tuple([_dense(g, leaf) for g, leaf in zip(found, record.leaves)])
    return made if len(made) != 1 else made[0]


def _dense(gradient: Tensor | None, leaf: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros(leaf.shape, dtype=leaf.dtype, device=leaf.device)
    if gradient.layout is not torch.strided:
        return gradient.to_dense()
    return gradient.contiguous().resolve_conj().resolve_neg()


def _copied(tensor: Tensor) -> Tensor:
    """A copy that lies as the tensor does, holes and repetitions included: backward formulas ask
    whether it is contiguous, and go by what the forward one has answered."""
    copy = tensor.clone()
    if copy.stride() == tensor.stride() or not tensor.numel():
        return copy
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * step for size, step in steps)
    return tensor.as_strided((extent,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _is_outside(function: str) -> bool:
    """Whether it is the program's own operator, and none of torch's."""
    inside = ("torch.", "anyshape.")
    return not function.startswith(inside) or (
        function.startswith("torch.ops.") and not function.startswith("torch.ops.aten.")
    )
