"""The sizes of an argument as it is first read: declared, marked, or a backed symbol each.

In: a tensor, the source it came from, and the recorder. Out: its shape, the binding of the symbols
that its dimensions give, and what marks state of them as facts and guards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from anyshape.capture.guards.declared import Stated
from anyshape.capture.guards.guard_code import DimsBinding, SizeGuard
from anyshape.capture.guards.marks import Mark, marks_of
from anyshape.capture.guards.tensor_specs import TensorSpec
from anyshape.capture.heap.sources import Source
from anyshape.errors import AnyshapeError
from anyshape.symbolic import Condition, Dim, Expr, Symbol, eq, evaluate, ge, le

if TYPE_CHECKING:
    from anyshape.capture.recording.recorder import Recorder


def argument_shape(recorder: Recorder, tensor: torch.Tensor, source: Source) -> tuple[Dim, ...]:
    """The sizes of an argument; what is declared of a dimension wins over marks."""
    marks = marks_of(tensor)
    given = recorder.declared
    declared = {} if given is None else given.sizes(source, tensor.dim())
    shape: list[Dim] = []
    bound: list[Symbol | None] = []
    for dim, size in enumerate(tensor.shape):
        entry = _Dimension(recorder, f"{source.text}.size({dim})", size)
        if dim in declared:
            assert given is not None
            shape.append(given.resolve(declared[dim], entry.declared))
        else:
            shape.append(entry.undeclared(marks.get(dim)))
        bound.append(entry.symbol)
    recorder.bindings.append(DimsBinding(source, "shape", tuple(bound)))
    return tuple(shape)


def argument_strides(recorder: Recorder, tensor: torch.Tensor, source: Source) -> tuple[Dim, ...]:
    """Of an argument with holes or overlaps: a symbol each, but for 0 and 1."""
    symbols = [recorder.space.fresh("t") for _ in tensor.stride()]
    recorder.bindings.append(DimsBinding(source, "stride", tuple(s.symbol for s in symbols)))
    strides: list[Dim] = []
    for dim, (symbol, stride) in enumerate(zip(symbols, tensor.stride())):
        assert symbol.symbol is not None
        recorder.symbol_names[symbol.symbol] = f"{source.text}.stride({dim})"
        recorder.hints[symbol.symbol] = stride
        if stride in (0, 1):
            recorder.rely(eq(symbol, stride))
            strides.append(stride)
        else:
            strides.append(symbol)
            recorder.number_input(symbol, recorder.sources.child(source, "stride", dim), "stride")
    order = TensorSpec.of(tensor).order  # the guard on the tensor holds it
    for outer, inner in zip(order, order[1:]):
        ordered = ge(strides[outer], strides[inner])
        recorder.learn(ordered, recorder.location())
    return tuple(strides)


def with_own_strides(
    recorder: Recorder,
    tensor: torch.Tensor,
    source: Source,
    shape: tuple[Dim, ...],
    strides: tuple[Dim, ...],
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """The shape and strides with 1, guarded, for each size that is 1, and its own stride where that
    is not the one of its type. Other sizes are guarded not to be 1."""
    sizes, steps = [*shape], [*strides]
    for dim, stride in enumerate(tensor.stride()):
        one = eq(shape[dim], 1)
        if recorder.cx.hint(one) is None or not recorder.decide(one):  # none: it is declared
            continue
        sizes[dim] = 1
        if recorder.cx.hint(eq(strides[dim], stride)) is False:
            steps[dim] = _own_stride(recorder, tensor, source, strides, dim)
    simplified = recorder.cx.facts.simplify
    return tuple(map(simplified, sizes)), tuple(map(simplified, steps))


def _own_stride(
    recorder: Recorder,
    tensor: torch.Tensor,
    source: Source,
    strides: tuple[Dim, ...],
    dim: int,
) -> Dim:
    """That of a dimension of one element: 0, 1, the one of another dimension, or a symbol, which
    none of them is."""
    own = tensor.stride(dim)
    read = recorder.measured(own, recorder.sources.child(source, "stride", dim)).expr
    of_others = [strides[d] for d, size in enumerate(tensor.shape) if size != 1]
    for other in (0, 1, *of_others):
        alike = eq(read, other)
        if recorder.cx.hint(alike) is not None and recorder.decide(alike):
            return other
    return read


class _Dimension:
    """One dimension of one argument, and the symbol that it binds, if it binds one."""

    def __init__(self, recorder: Recorder, text: str, size: int) -> None:
        self.recorder = recorder
        self.text = text
        self.size = size
        self.symbol: Symbol | None = None

    def declared(self, name: str) -> Expr:
        """The symbol of a declared name."""
        return self._bind(self.recorder.space.fresh(f"u_{name}", policy="unbacked"))

    def undeclared(self, mark: Mark | None) -> Dim:
        """A symbol, or the constant that it is to be."""
        recorder = self.recorder
        unbacked = mark is not None and mark.kind == "unbacked"
        symbol = self._bind(
            recorder.space.fresh("u", policy="unbacked") if unbacked else recorder.space.fresh("s")
        )
        if mark is not None:
            symbol = self._mark(symbol, mark)
        if unbacked or recorder.dynamic and (mark is None or mark.kind != "static"):
            return symbol
        recorder.rely(eq(symbol, self.size))
        return self.size

    def _bind(self, symbol: Expr) -> Expr:
        found = symbol.symbol
        assert found is not None
        self.recorder.symbol_names[found] = self.text
        self.recorder.hints[found] = self.size
        self.symbol = found
        return symbol

    def _mark(self, symbol: Expr, mark: Mark) -> Expr:
        """Relies on what a mark states of a size; gives the first size of its name, if it has
        one."""
        recorder = self.recorder
        if mark.kind == "dynamic":
            assert self.symbol is not None
            recorder.marked.append((self.symbol, mark, self.text))
        first = symbol if mark.name is None else recorder.named_sizes.setdefault(mark.name, symbol)
        stated: list[tuple[Condition | bool, str]] = [
            (ge(symbol, mark.minimum), f"min={mark.minimum}"),
            (True if mark.maximum is None else le(symbol, mark.maximum), f"max={mark.maximum}"),
            (True if first is symbol else eq(symbol, first), f"name={mark.name!r}"),
        ]
        for condition, rule in stated:
            if isinstance(condition, bool) or recorder.cx.known(condition):
                continue
            if not evaluate(condition, recorder.hints):
                why = f"{recorder.spelled(first)} is {evaluate(first, recorder.hints)}"
                raise AnyshapeError("E317", dim=self.text, value=self.size, mark=rule, why=why)
            guard = SizeGuard(condition, recorder.location(), recorder.symbol_names)
            recorder.entry_sizes.append(guard)
            recorder.learn(condition, Stated(f"marked: {rule}"))
        return first
