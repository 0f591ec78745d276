"""Results get eager's strides at sizes of 0 and 1, and begin where eager's do in their storage.

In: a function whose results lie as their types say, and graphs that make some of them
(``passes/ambiguous_layouts.py``). Where a size on the way is below 2, eager runs such a graph on
zeros, on the program's devices, once for each pattern of sizes; so does the result lie then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from types import MappingProxyType
from typing import Any, TypeAlias

import torch

from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import HOST, Graph, Node, ScalarType, TensorType, Value, row_major, values_in
from anyshape.nouns import mutable
from anyshape.ops import OPS
from anyshape.ops.row_major_results import DECIDED_BY_ONES
from anyshape.runtime.call_sizes import hidden_sizes, sizes_of_call, small_sizes
from anyshape.runtime.eager_function import eager_function
from anyshape.runtime.gradient_layouts import Form, Own, form_of, order_of, storage_of
from anyshape.runtime.turned_results import Laid, described, turned
from anyshape.symbolic import Dim, Expr, Symbol, evaluate
from anyshape.torch_names import torch_dtype
from anyshape.version_counters import set_version, version_of

Tensor = torch.Tensor
Run = Callable[..., tuple[Any, ...]]
Strides: TypeAlias = "tuple[tuple[int, ...], ...]"
MOST = 256
"""Of how many exact sizes strides are remembered."""


def offsets_as_eager(run: Run, offsets: EagerOffsets) -> Run:
    """The function of a graph whose results begin where eager's do."""
    with_offsets = offsets.with_offsets
    if not offsets.where_empty:
        return lambda *arguments: with_offsets(arguments, run(*arguments))
    positions = offsets.positions

    def running(*arguments: Any) -> tuple[Any, ...]:
        made = run(*arguments)
        for position in positions:
            if not made[position].numel():
                return with_offsets(arguments, made)
        return made

    return running


def without_views(run: Run, positions: Sequence[int], bases: Sequence[int]) -> Run:
    """The function, whose results at these positions are views of nothing: of a view that was made
    without gradients, autograd would refuse a write that has some. ``bases``: those of which others
    are views, which a write to them must not reach."""
    if not positions and not bases:
        return run

    def running(*arguments: Any) -> tuple[Any, ...]:
        made = run(*arguments)
        views = [made[p] for p in positions if made[p]._is_view()] if positions else []
        views += [made[p] for p in bases]
        return _detached(made, views) if views else made

    return running


def _detached(made: tuple[Any, ...], views: Sequence[Tensor]) -> tuple[Any, ...]:
    others = {id(t): t.detach() for t in views if not t.requires_grad}
    return tuple([others.get(id(t), t) for t in made]) if others else made


def _turns_all(node: Node) -> bool:
    """May dimensions of several elements lie otherwise for the stride of one of a single element,
    which the result need not have?"""
    row = OPS.get(node.op)
    return node.op in DECIDED_BY_ONES or (row is not None and row.image_order is not None)


@mutable(eq=False)
class EagerLayouts:
    """How the results at ``positions`` lie, which ``graph`` makes. What was ``learned`` for a
    pattern of sizes is None where data decides, and empty where it is no order of dimensions, or
    where some type is ``spaced`` by other sizes than its own: then the strides are those of these
    very sizes (``exact``). ``turns_all``: some operator lays its result out as an image, or as it
    multiplies, so that a stride of a dimension of one element decides those of a result without
    such a size.
    ``where_empty``: positions of those that lie so only where they have sizes of 0 and of 1.
    ``hidden``: sizes inside that may be 0 and 1 where those of arguments and results are not."""

    graph: Graph
    positions: tuple[int, ...]
    constants: Mapping[str, Tensor]
    always: bool = False
    learned: dict[Form, tuple[Own, ...] | None] = field(default_factory=dict)
    exact: dict[Form, Strides | None] = field(default_factory=dict)
    layouts: dict[Form, tuple[Laid, ...] | None] = field(default_factory=dict)
    _eager: Callable[..., Any] | None = None
    on_host: bool = True
    spaced: bool = False
    turns_all: bool = False
    where_empty: frozenset[int] = frozenset()
    hidden: tuple[Expr, ...] = ()
    insides: dict[Form, Form] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: Graph,
        positions: tuple[int, ...],
        constants: Mapping[str, Tensor],
        inside: bool = False,
        where_empty: frozenset[int] = frozenset(),
    ) -> EagerLayouts:
        """``inside``: sizes that values inside alone have count, too. ``always``: some value may
        have a size of 0 or 1 in every call; ``on_host``: all lie there."""
        hidden = hidden_sizes(graph) if inside else ()
        read = (v for node in graph.nodes for v in (*node.outputs, *node.inputs()))
        kinds = [v.type for v in read if not isinstance(v.type, ScalarType)]
        always = bool(hidden) or any(n == 0 or n == 1 for kind in kinds for n in kind.shape)
        on_host = all(kind.device == HOST for kind in kinds)
        results = (v.type for v in values_in(graph.outputs) if isinstance(v.type, TensorType))
        spaced = not all(map(_is_dense, results))
        turns_all = any(map(_turns_all, graph.nodes))
        return cls(
            *(graph, positions, constants, always),
            on_host=on_host,
            spaced=spaced,
            turns_all=turns_all,
            where_empty=where_empty,
            hidden=hidden,
        )

    def laid_out(self, arguments: Sequence[Any], made: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results of a call, those at ``positions`` with eager's strides."""
        results = [made[position] for position in self.positions]
        found = self._strides(arguments, results)
        if found is None:
            return made
        given = {id(a) for a in arguments}
        others: dict[int, Tensor] = {}
        for tensor, strides in zip(results, found, strict=True):
            if tensor.stride() == strides or id(tensor) in given:
                continue
            if _same_elements(tensor, strides):
                _restride(tensor, strides)
            elif id(tensor) not in others:
                others.update(self._turned(tensor, strides, arguments, made))
        return tuple([others.get(id(t), t) for t in made]) if others else made

    def _turned(
        self,
        tensor: Tensor,
        strides: tuple[int, ...],
        arguments: Sequence[Any],
        made: tuple[Any, ...],
    ) -> Mapping[int, Tensor]:
        """Copies of the tensor and of all results in its memory, in eager's places, by what they
        are copies of; nothing where an argument, or what is no such result, lies there too."""
        if not tensor.storage_offset() and not _shares(tensor, (*arguments, *made)):
            return {id(tensor): _copied(tensor, strides)}
        results = [made[position] for position in self.positions]
        of_results = {id(t) for t in results}
        if _shares(tensor, (*arguments, *(t for t in made if id(t) not in of_results))):
            return {}
        laid = self._layouts(arguments, [t.shape for t in results])
        if laid is None:
            return {}
        own = storage_of(tensor)
        group = {id(t): (t, like) for t, like in zip(results, laid) if storage_of(t) == own}
        tensors, layouts = zip(*group.values())
        return dict(zip(group, turned(tensors, layouts) or ()))

    def _layouts(
        self, arguments: Sequence[Any], shapes: Sequence[torch.Size]
    ) -> tuple[Laid, ...] | None:
        """How eager's results lie; None where data decides that."""
        exactly = _exactly(arguments)
        if exactly not in self.layouts:
            if self._is_recorded():
                return None
            if len(self.layouts) >= MOST:
                self.layouts.clear()
            found = self._made(arguments, shapes)
            self.layouts[exactly] = None if found is None else described(found)
        return self.layouts[exactly]

    def _strides(self, arguments: Sequence[Any], results: Sequence[Tensor]) -> Strides | None:
        """Eager's; None where data decides them. A call with the sizes of one before asks nothing
        else."""
        exactly = _exactly(arguments), _exactly(results)
        known = self.exact.get(exactly, ())  # there is a result, so that no answer is empty
        if known != ():
            return known
        shapes = [t.shape for t in results]
        # of results: views of a part have gaps
        key = form_of(arguments), form_of(results), self._inside(arguments, shapes)
        if self._is_recorded() and not self.learned.get(key):
            return None
        if len(self.exact) >= MOST:
            self.exact.clear()
        found = self.exact[exactly] = self._found(key, arguments, shapes)
        return found

    def _found(
        self, key: Form, arguments: Sequence[Any], shapes: Sequence[torch.Size]
    ) -> Strides | None:
        """By the pattern of sizes, where it has been learned and tells; else by asking eager."""
        if key not in self.learned:
            asked = self._asked(arguments, shapes)
            orders = () if self.spaced or asked is None else _orders(shapes, asked)
            self.learned[key] = None if asked is None else orders
            return asked
        layouts = self.learned[key]
        if not layouts:
            return None if layouts is None else self._asked(arguments, shapes)
        return tuple([own.strides(n) for own, n in zip(layouts, shapes, strict=True)])

    def _inside(self, arguments: Sequence[Any], shapes: Sequence[torch.Size]) -> Form:
        """Which sizes inside are 0 and 1."""
        if not self.hidden:
            return ()
        exactly = *_exactly(arguments), *shapes
        if exactly not in self.insides:
            if len(self.insides) >= MOST:
                self.insides.clear()
            self.insides[exactly] = small_sizes(self.hidden, self.graph, arguments, shapes)
        return self.insides[exactly]

    def _is_recorded(self) -> bool:
        """Would what eager torch runs now be part of a CUDA graph of the caller's?"""
        return not self.on_host and torch.cuda.is_current_stream_capturing()

    def _asked(self, arguments: Sequence[Any], shapes: Sequence[torch.Size]) -> Strides | None:
        made = self._made(arguments, shapes)
        return None if made is None else tuple([t.stride() for t in made])

    def _made(
        self, arguments: Sequence[Any], shapes: Sequence[torch.Size]
    ) -> Sequence[Tensor] | None:
        # some operators refuse a divisor of 0; an index past the end is no exception on a GPU, but
        # the end of its context
        for number in (0, 1) if self.on_host else (0,):
            try:
                made = self._eagerly(arguments, number, shapes)
            except Exception as error:
                if is_interrupt(error):
                    raise
                continue
            return made if [t.shape for t in made] == shapes else None
        return None

    def _eagerly(
        self, arguments: Sequence[Any], number: int, shapes: Sequence[torch.Size]
    ) -> Sequence[Tensor]:
        """What eager torch makes of tensors like these, filled with a number."""
        if self._eager is None:
            self._eager = eager_function(self.graph)
        read = {value for node in self.graph.nodes for value in node.inputs()}
        given = (self.graph, self.constants, arguments, read, number, shapes)
        inputs = inputs_like(*given, unknown=number)  # how results lie depends on sizes alone
        devices = {t.device for t in inputs if isinstance(t, Tensor) and t.is_cuda}
        with torch.no_grad(), torch.random.fork_rng(devices):  # nothing is drawn for the program
            made: Sequence[Tensor] = self._eager(*inputs)
        return made


@mutable(eq=False)
class EagerOffsets:
    """Where the results at ``positions`` begin in their storage, which ``graph`` makes by views,
    and whether they are views; found by torch without memory, for each combination of sizes.
    All but the ``moved`` ones begin where they should. The ``lent`` ones may be views of an
    argument where that is empty: a write to them is one to the argument then. ``where_empty``: all
    are new memory but where one of them is empty."""

    graph: Graph
    positions: tuple[int, ...]
    moved: frozenset[int]
    lent: frozenset[int]
    where_empty: bool
    constants: Mapping[str, Tensor]
    found: dict[Form, Sequence[Tensor] | None] = field(default_factory=dict)
    _eager: Callable[..., Any] | None = None

    def with_offsets(self, arguments: Sequence[Any], made: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results of a call, those at ``positions`` in a storage as eager's, and views where
        eager's are."""
        if self.lent and not all([made[p].numel() for p in self.lent]):
            made = self._shared(arguments, made)
        if not self.moved and not any([made[p]._is_view() for p in self.positions]):
            return made
        exactly = _exactly(arguments)
        if exactly not in self.found:
            if len(self.found) >= MOST:
                self.found.clear()
            self.found[exactly] = self._asked(arguments)
        likes = self.found[exactly]
        if likes is None:
            return made
        others: dict[int, Tensor] = {}
        given = {id(argument) for argument in arguments}
        for position, like in zip(self.positions, likes, strict=True):
            tensor = made[position]
            begins = like.storage_offset()
            if tensor.shape != like.shape or (position in self.lent and not tensor.numel()):
                continue
            moves = position in self.moved and tensor.storage_offset() != begins
            if moves and not _shares(tensor, (*arguments, *made)):
                others[id(tensor)] = _moved(tensor, like)
            elif tensor._is_view() and not like._is_view() and id(tensor) not in given:
                others[id(tensor)] = tensor if tensor.requires_grad else tensor.detach()
        return tuple([others.get(id(t), t) for t in made]) if others else made

    def _shared(self, arguments: Sequence[Any], made: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results, empty ones as eager makes them of the arguments, unless data decides how."""
        given = [p for p, entry in enumerate(self.graph.inputs) if entry.kind == "argument"]
        try:
            inputs = self._inputs(arguments)
            for position, argument in zip(given, arguments):  # behind them: what the program makes
                inputs[position] = argument
            views = self._eagerly(inputs)
        except KeyError:
            return made
        results = list(made)
        for position, view in zip(self.positions, views, strict=True):
            result = results[position]
            if position in self.lent and not result.numel() and not result.requires_grad:
                results[position] = view
        return tuple(results)

    def _inputs(self, arguments: Sequence[Any]) -> list[Any]:
        return inputs_like(self.graph, self.constants, arguments, frozenset(), None)

    def _eagerly(self, inputs: Sequence[Any]) -> Sequence[Tensor]:
        if self._eager is None:
            self._eager = eager_function(self.graph)
        made: Sequence[Tensor] = self._eager(*inputs)
        return made

    def _asked(self, arguments: Sequence[Any]) -> Sequence[Tensor] | None:
        """Results without memory; None where data decides where they lie."""
        try:
            with torch.no_grad():
                return self._eagerly(self._inputs(arguments))
        except Exception as error:
            if is_interrupt(error):
                raise
            return None


def inputs_like(
    graph: Graph,
    constants: Mapping[str, Tensor],
    arguments: Sequence[Any],
    read: Set[Value],
    number: int | None,
    results: Sequence[torch.Size] = (),
    unknown: int | None = None,
) -> list[Any]:
    """What the graph is handed: tensors like the arguments, those that are ``read`` filled with a
    number, the others without memory. The shapes of ``results`` tell sizes that data decides;
    ``unknown`` stands for other numbers of data. KeyError where there is none."""
    sizes = sizes_of_call(graph, arguments, results)
    given, inputs = iter(arguments), []
    for entry in graph.inputs:
        value = entry.value
        like = constants[value.name] if entry.kind != "argument" else next(given, None)
        if isinstance(value.type, ScalarType):
            inputs.append(_number_from_data(value.type, sizes, unknown) if like is None else like)
        else:
            inputs.append(_filled(sizes, value, like, number if value in read else None))
    return inputs


def _is_dense(kind: TensorType) -> bool:
    """Is the stride of each dimension that does not repeat the product of those inside it?"""
    left = [(n, stride) for n, stride in zip(kind.shape, kind.strides, strict=True) if stride != 0]
    step: Dim = 1
    while left:
        inner = next((pair for pair in left if pair[1] == step), None)
        if inner is None:
            return False
        left.remove(inner)
        step = step * inner[0]
    return True


def _orders(shapes: Sequence[torch.Size], strides: Strides) -> tuple[Own, ...]:
    """The orders of dimensions that give these strides; none if some has none."""
    found = []
    for shape, steps in zip(shapes, strides, strict=True):
        own = order_of(shape, steps)
        if own.strides(shape) != steps:
            return ()
        found.append(own)
    return tuple(found)


def _filled(sizes: Mapping[Symbol, int], value: Value, like: Any, number: int | None) -> Any:
    """A tensor of the type, or laid out as the one that is given; without memory where there is no
    number."""
    kind = value.tensor
    if like is None:
        shape = [_number(dim, sizes) for dim in kind.shape]
        dense = kind.strides == row_major(kind.shape)
        strides = None if dense else [_number(dim, sizes) for dim in kind.strides]
        like = torch.empty(shape, device="meta")
        like = like if strides is None else torch.empty_strided(shape, strides, device="meta")
    shape, strides, dtype = like.shape, like.stride(), torch_dtype(kind.dtype)
    if number is None:
        return torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
    filled = torch.full((reach,), number, dtype=dtype, device=kind.device)
    return filled.as_strided(shape, strides)


def _number_from_data(
    kind: ScalarType, sizes: Mapping[Symbol, int], unknown: int | None
) -> int | float | bool:
    """The number that the program reads from data, or what stands for one that no size tells."""
    if isinstance(kind.expr, Expr) and kind.expr.symbols <= sizes.keys():
        return int(evaluate(kind.expr, sizes))
    if unknown is None:
        raise KeyError(kind.expr)
    return NUMBERS[kind.kind](unknown)


NUMBERS: Mapping[str, Callable[[int], int | float | bool]] = MappingProxyType(
    {"int": int, "float": float, "bool": bool}
)


def _exactly(arguments: Sequence[Any]) -> Form:
    """Sizes and strides of a call."""
    return tuple([(a.shape, a.stride()) if isinstance(a, Tensor) else a for a in arguments])


def _number(dim: Dim, sizes: Mapping[Symbol, int]) -> int:
    return int(evaluate(dim, sizes)) if isinstance(dim, Expr) else dim


def _same_elements(tensor: Tensor, strides: tuple[int, ...]) -> bool:
    """Does no element depend on which of the two strides it has?"""
    pairs = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return not tensor.numel() or all(size < 2 or a == b for size, a, b in pairs)


def _shares(tensor: Tensor, others: Sequence[Any]) -> bool:
    own = storage_of(tensor)
    tensors = (t for t in others if isinstance(t, Tensor) and t is not tensor)
    return any(storage_of(t) == own for t in tensors)


def _restride(tensor: Tensor, strides: tuple[int, ...]) -> None:
    version = version_of(tensor)
    with torch.no_grad():
        tensor.as_strided_(tensor.shape, strides)
    set_version(tensor, version)


def _copied(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    made = tensor.new_empty_strided(tensor.shape, strides).copy_(tensor)
    set_version(made, version_of(tensor))
    return made


def _moved(tensor: Tensor, like: Tensor) -> Tensor:
    """In a storage as long as that of ``like``, where that lies there."""
    length = like.untyped_storage().nbytes() // like.element_size()
    storage = tensor.new_empty((length,))
    made = storage.as_strided(like.shape, like.stride(), like.storage_offset()).copy_(tensor)
    set_version(made, version_of(tensor))
    return made if like._is_view() or made.requires_grad else made.detach()
