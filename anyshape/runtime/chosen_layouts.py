"""Which results of a call are laid out as eager's, and by what: where a size on the way is 0 or 1.

In: a function whose results lie as their types say, and what knows how eager's lie
(``runtime/result_layouts.py``). Out: the function with results that lie as eager's. Where all sizes
are 2 or more, a call costs a look at a few shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from anyshape.ir.graph import Graph, ScalarType, TensorType, Value, row_major
from anyshape.nouns import frozen
from anyshape.runtime.result_layouts import MOST, EagerLayouts, Run
from anyshape.symbolic import Dim, Expr

Tensor = torch.Tensor


def layouts_as_eager(
    run: Run, graph: Graph, usual: EagerLayouts | None, odd: EagerLayouts | None
) -> Run:
    """``run``, which is that of the graph, with results that lie as eager's. ``usual``: of the
    results that lie otherwise at some sizes; ``odd``: of those that do so where an argument has a
    stride of its own in a dimension of one element, or of none, or where their sizes are 0
    and 1."""
    by_own_sizes = _by_own_sizes(graph, odd)
    if usual is None and not by_own_sizes and (odd is None or not odd.turns_all):
        return run
    given = [entry.value for entry in graph.inputs if entry.kind == "argument"]
    choice = _Choice.of(graph, given, (usual, odd), by_own_sizes)
    always = choice.turns_all or (usual is not None and usual.always)
    asked = choice.positions, choice.read, choice.returned
    first, then = _deciding(graph, given, asked, usual is not None)

    def laid_out(*arguments: Any) -> tuple[Any, ...]:
        made = run(*arguments)
        if always:
            return choice.laid_out(arguments, made)
        for position in first:  # in every call: as little as can be
            shape = arguments[position].shape
            if 1 in shape or 0 in shape:
                return choice.laid_out(arguments, made)
        for position in then:
            shape = made[position].shape
            if 1 in shape or 0 in shape:
                return choice.laid_out(arguments, made)
        return made

    return laid_out


@frozen(eq=False)
class _Choice:
    """Which of the two lays a call's results out, if any does. ``positions`` of results whose own
    sizes say whether ``odd`` may, ``read`` of arguments and ``returned`` of results whose sizes say
    whether ``usual`` does; ``in_rows``: of each argument, whether its type is row-major."""

    usual: EagerLayouts | None
    odd: EagerLayouts | None
    in_rows: Sequence[bool | None]
    positions: Sequence[int]
    read: Sequence[int]
    returned: Sequence[int]

    @classmethod
    def of(
        cls,
        graph: Graph,
        given: Sequence[Value],
        layouts: tuple[EagerLayouts | None, EagerLayouts | None],
        by_own_sizes: Sequence[int],
    ) -> _Choice:
        return cls(
            *layouts,
            in_rows=[_is_row_major(value.type) for value in given],
            positions=by_own_sizes,
            read=_of_other_sizes(given, range(len(given))),
            returned=_of_other_sizes(graph.outputs, range(len(graph.outputs))),
        )

    @property
    def turns_all(self) -> bool:
        return self.odd is not None and self.odd.turns_all

    def laid_out(self, arguments: tuple[Any, ...], made: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.odd is not None and self._is_for_odd(arguments, made):
            return self.odd.laid_out(arguments, made)
        if self.usual is not None and (
            self.usual.always or _is_small(arguments, self.read) or _is_small(made, self.returned)
        ):
            return self.usual.laid_out(arguments, made)
        return made

    def _is_for_odd(self, arguments: tuple[Any, ...], made: tuple[Any, ...]) -> bool:
        if self.turns_all and _any_is_odd(self.in_rows, arguments):
            return True
        small = False
        for position in self.positions:
            shape = made[position].shape
            empty, of_one = 0 in shape, 1 in shape
            if empty and of_one:
                return True
            small = small or empty or of_one
        return small and _any_is_odd(self.in_rows, arguments)


def _by_own_sizes(graph: Graph, odd: EagerLayouts | None) -> Sequence[int]:
    """The results whose own sizes say whether ``odd`` may lay any out, but for the empty ones."""
    if odd is None:
        return ()
    return _of_other_sizes(graph.outputs, [p for p in odd.positions if p not in odd.where_empty])


def empty_as_eager(run: Run, graph: Graph, odd: EagerLayouts | None) -> Run:
    """``run`` with those results laid out that lie otherwise only where they are empty."""
    if odd is None or not odd.where_empty:
        return run
    positions = _of_other_sizes(graph.outputs, sorted(odd.where_empty))

    def laid_out(*arguments: Any) -> tuple[Any, ...]:
        made = run(*arguments)
        for position in positions:
            shape = made[position].shape
            if 0 in shape and 1 in shape:
                return odd.laid_out(arguments, made)
        return made

    return laid_out


def _deciding(
    graph: Graph,
    given: Sequence[Any],
    positions: tuple[Sequence[int], Sequence[int], Sequence[int]],
    usual: bool,
) -> tuple[Sequence[int], Sequence[int]]:
    """The arguments and the results of which one has a size below 2 wherever there is anything to
    do: results of which only the sizes of arguments tell are left out."""
    by_own_sizes, read, returned = positions
    if not usual:
        return (), by_own_sizes
    one_of: dict[frozenset[Dim], int] = {}  # sizes that are known to be equal are looked at once
    for position in read:
        one_of.setdefault(_equal(graph, _sizes(given[position])), position)
    outputs: Sequence[Any] = graph.outputs
    sizes = {p: _equal(graph, _sizes(outputs[p])) for p in (*by_own_sizes, *returned)}
    then = [p for p, own in sizes.items() if not any(map(own.issubset, one_of))]
    return tuple(one_of.values()), then


def _equal(graph: Graph, sizes: frozenset[Dim]) -> frozenset[Dim]:
    return frozenset(map(graph.facts.simplify, sizes))


def _sizes(value: Value) -> frozenset[Dim]:
    """Those that may be below 2."""
    return frozenset(n for n in value.tensor.shape if isinstance(n, Expr) or n < 2)


def _of_other_sizes(values: Sequence[Any], positions: Iterable[int]) -> tuple[int, ...]:
    """Of the tensors at these positions those that tell whether a size of any is below 2."""
    found: dict[frozenset[Dim], int] = {}
    for position in positions:
        value = values[position]
        if isinstance(value, Value) and isinstance(value.type, TensorType):
            sizes = _sizes(value)
            if sizes:
                found.setdefault(sizes, position)
    return tuple(found.values())


def _is_row_major(kind: TensorType | ScalarType) -> bool | None:
    """Of a tensor's type; None where it is none."""
    return kind.strides == row_major(kind.shape) if isinstance(kind, TensorType) else None


def _any_is_odd(in_rows: Sequence[bool | None], arguments: Sequence[Any]) -> bool:
    """Has an argument with a size below 2 strides that are not row-major, by its type (``in_rows``)
    or in this call?"""
    for is_row_major, tensor in zip(in_rows, arguments, strict=True):
        if is_row_major is not None and is_odd(tensor, is_row_major):
            return True
    return False


def is_odd(tensor: Tensor, is_row_major: bool) -> bool:
    """Has it a size below 2, and strides that are not row-major, by its type or in this call?"""
    shape = tensor.shape
    if 1 in shape or 0 in shape:
        return not is_row_major or not _lies_in_rows(shape, tensor.stride())
    return False


@functools.lru_cache(MOST)
def _lies_in_rows(shape: torch.Size, strides: tuple[int, ...]) -> bool:
    """Calls of one size after the other ask this, each of all of its arguments."""
    return strides == row_major(shape)


def _is_small(tensors: Sequence[Tensor], positions: Sequence[int]) -> bool:
    """Has one of them a size below 2?"""
    for position in positions:
        shape = tensors[position].shape
        if 1 in shape or 0 in shape:
            return True
    return False
