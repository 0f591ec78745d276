"""The typed way to make a graph: ``Builder.call`` binds, types and appends one node.

Capture, decompositions and passes all build with it, so that a graph cannot exist without types.
The builder knows no torch; the row's type rule (or its expansion, or the caller's fallback) gives
the types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any

from anyshape.ir.graph import (
    CHECK,
    Arg,
    Graph,
    Input,
    InputKind,
    Location,
    Modes,
    Node,
    ScalarType,
    TensorType,
    Type,
    Value,
    map_values,
    values_in,
)
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops.context import NoRow, TypeContext
from anyshape.ops.known_types import type_by_rule
from anyshape.ops.rules import has_complex_number, require_one_device
from anyshape.ops.table import OPS, OpDef, Pointwise, Scatter, Structural
from anyshape.symbolic import Condition, Dim, ge

COMPLEX_ROWS = frozenset(
    """
masked_index masked_index_put index_at_masks put_at_masks masked_select masked_elements
nonzero_tuple argwhere
matmul rmatmul mv einsum stack
overwrite filled zeroed true_divide where_method select_written slice_written
""".split()
)
"""Composite rows whose expansion is right for complex numbers as well."""
VIEWS = 4
"""So many views of one another are looked through."""


def refuse_complex(row: OpDef, args: tuple[Arg, ...]) -> None:
    """Other expansions are formulas of real numbers; complex ones are left to eager torch."""
    tensors = (value.type for value in values_in(args) if isinstance(value.type, TensorType))
    if any(each.dtype.is_complex for each in tensors) or has_complex_number(args):
        raise NoRow(f"{row.name} of complex numbers has no row")


@frozen
class BuilderMark:
    """How far a builder had come; see ``Builder.rollback``."""

    nodes: int
    inputs: int
    checks: int
    counters: Mapping[str, int]

    def keeping_inputs(self, now: BuilderMark) -> BuilderMark:
        """The mark with all inputs kept, and with the counters of input names as they are now."""
        named = {prefix: now.counters[prefix] for prefix in "pcx" if prefix in now.counters}
        return replace(self, inputs=now.inputs, counters={**self.counters, **named})


@mutable(eq=False)
class Builder:
    """Builds one graph. ``b.add(x, y)`` is ``b.call("add", x, y)``."""

    cx: TypeContext
    ops: Mapping[str, OpDef] = field(default_factory=lambda: OPS)
    nodes: list[Node] = field(default_factory=list)
    makers: dict[Value, Node] = field(default_factory=dict)  # of what nodes make
    inputs: list[Input] = field(default_factory=list)
    checks: list[tuple[int, Node]] = field(default_factory=list)
    location: Location | None = None
    modes: Modes | None = None
    type_fallback: Callable[[OpDef, tuple[Any, ...], Mapping[str, Any]], Any] | None = None
    prepare: Callable[[str, tuple[Any, ...], dict[str, Any]], Any] | None = None  # see `call`
    devices: set[str] = field(default_factory=set)
    """Of inputs, and of what nodes make."""
    _counters: dict[str, int] = field(default_factory=dict)
    _reserved: list[Graph] = field(default_factory=list)  # not counted yet
    _sized: dict[str, dict[Hashable, Any]] = field(default_factory=dict)
    """By row and arguments, types with sizes that were made for them."""
    _read: dict[Value | None, list[tuple[str, Hashable]]] = field(default_factory=dict)
    """Which of these read what lies in some memory, by what made it."""
    _memory: dict[Value, frozenset[Value | None]] = field(default_factory=dict)
    """What made the memory that views may lie in: None where it was there before."""

    def call(self, name: str, *args: Arg, **kwargs: Arg) -> Any:
        """Appends one application of row ``name``; returns its value, or a tuple of values.

        ``prepare(name, args, kwargs)`` gives other arguments; while there is one, rows are expanded
        as they are called, so that it sees what they are made of.
        """
        if self.prepare is not None:
            args, kwargs = self.prepare(name, args, kwargs)
        row = self.ops[name]
        keywords: Mapping[str, Arg]
        positional, keywords = row.signature.split(args, kwargs)
        if row.overload is not None:
            row = self.ops[row.overload(*positional, **keywords) or row.name]
        if row.expand is not None and row.alias == "none" and row.name not in COMPLEX_ROWS:
            refuse_complex(row, (*positional, *keywords.values()))
        if row.normalize is not None:
            positional, keywords = row.normalize(self.cx, *positional, **keywords)
        if row.expand is not None and (row.inline or self.prepare is not None):
            return row.expand(self, *positional, **keywords)
        if len(self.devices) > 1:
            self._refuse_other_devices(row, positional, keywords)
        types = self._types(row, positional, keywords)
        single = not isinstance(types, tuple)
        made: tuple[Type, ...] = (types,) if single else types
        if self.cx.may_require:
            self._require_sizes((*positional, *keywords.values()), made)
        return self.append(row.name, positional, keywords, made, single)

    def _refuse_other_devices(
        self, row: OpDef, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]
    ) -> None:
        """Raises OpError where eager refuses operands of several devices, which the rows that do
        the work know."""
        values = values_in((*args, *kwargs.values()))
        if len({v.type.device for v in values if isinstance(v.type, TensorType)}) < 2:
            return
        row = row if row.functional is None else self.ops[row.functional]
        if isinstance(row.lower, Pointwise | Structural | Scatter):
            require_one_device(row.name, args)
        elif row.expand is not None and row.type is not None:
            row.expand(self._scratch(), *args, **kwargs)

    def _require_sizes(self, args: tuple[Arg, ...], types: tuple[Type, ...]) -> None:
        """No result has a negative size: whatever computes one, eager raises."""
        trusted: set[Dim] = set()
        for value in values_in(args):
            if isinstance(value.type, TensorType):
                trusted.update(value.type.shape)
        for made in types:
            if isinstance(made, TensorType):
                for dim in made.shape:
                    if dim not in trusted and self.cx.known(ge(dim, 0)) is not True:
                        # Only now is it printed: an expression may be long.
                        self.cx.require(ge(dim, 0), f"a size of {dim} is negative")

    def _types(self, row: OpDef, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]) -> Any:
        """As ``type_of``; the same data, not written since, decides the same sizes."""
        if row.expand is not None or row.random:  # the rows that data sizes are core rows
            return self.type_of(row, args, kwargs)
        symbols = len(self.cx.space)
        sized = self._sized.get(row.name)
        if sized is None:
            made = self.type_of(row, args, kwargs)
            if len(self.cx.space) == symbols:
                return made
            sized = self._sized[row.name] = {}
            self._keep(row.name, args, kwargs, made)
            return made
        try:
            found = sized.get(self._data(args, kwargs))
        except TypeError:  # a slice among them
            return self.type_of(row, args, kwargs)
        if found is None:
            found = self.type_of(row, args, kwargs)
            if len(self.cx.space) != symbols:
                self._keep(row.name, args, kwargs, found)
        return found

    def _keep(self, name: str, args: tuple[Arg, ...], kwargs: Mapping[str, Arg], made: Any) -> None:
        """Remembers the type until something is written to what the row reads."""
        data = self._data(args, kwargs)
        with suppress(TypeError):  # a slice among them
            self._sized[name][data] = made
            for memory in self._memory_of((*args, *kwargs.values())):
                self._read.setdefault(memory, []).append((name, data))

    def _data(
        self, args: tuple[Arg, ...], kwargs: Mapping[str, Arg], views: int = VIEWS
    ) -> Hashable:
        """The arguments, each view as what it is a view of: equal where these read the same data
        at the same time."""
        viewed = partial(self._viewed, views=views)
        named = tuple((name, map_values(arg, viewed)) for name, arg in kwargs.items())
        return tuple(map_values(arg, viewed) for arg in args), named

    def _viewed(self, value: Value, views: int) -> Any:
        node = self.makers.get(value)
        row = None if node is None else self.ops.get(node.op)
        if not views or node is None or row is None or row.alias != "view" or len(node.outputs) > 1:
            return value
        return node.op, self._data(node.args, node.kwargs, views - 1)

    def _memory_of(self, args: tuple[Arg, ...]) -> set[Value | None]:
        """What made the memory of these tensors; None where it was there before."""
        found: set[Value | None] = set()
        for value in values_in(args):
            found.update(self._memory.get(value, (value if value in self.makers else None,)))
        return found

    def _written(self, row: OpDef | None, args: tuple[Arg, ...]) -> None:
        """Forgets the sizes of data that lies in the memory of these tensors; of what no row is
        there for, any memory may be written."""
        if row is None or row.guessed:
            self._sized.clear()
            self._read.clear()
            return
        for memory in self._memory_of(args):
            for name, data in self._read.pop(memory, ()):
                self._sized[name].pop(data, None)

    def type_of(self, row: OpDef, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]) -> Any:
        """The type (or tuple of types) of the row's results for these arguments."""
        if row.type is not None:
            return type_by_rule(self.cx, row, args, kwargs)
        if row.expand is not None:
            return self._type_of_expansion(row, args, kwargs)
        if self.type_fallback is None:
            raise LookupError(f"operator {row.name!r} has no type rule and no expansion")
        return self.type_fallback(row, args, kwargs)

    def _type_of_expansion(
        self, row: OpDef, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]
    ) -> Any:
        """Types the expansion in a builder that is thrown away; its checks are those of the row."""
        assert row.expand is not None
        made = row.expand(self._scratch(), *args, **kwargs)
        return tuple(v.type for v in made) if isinstance(made, tuple) else made.type

    def _scratch(self) -> Builder:
        return Builder(
            self.cx,
            self.ops,
            type_fallback=self.type_fallback,
            modes=self.modes,
            devices=self.devices,
        )

    def supposing(self) -> Builder:
        """For questions about arguments that the program does not have: what the answer relies on
        is neither guarded nor checked, so that what is not known is ``Undecided``."""
        asking = self._scratch()
        asking.cx = replace(self.cx, on_guard=None, on_check=None)
        return asking

    def append(
        self,
        name: str,
        args: tuple[Arg, ...],
        kwargs: Mapping[str, Arg],
        types: tuple[Type, ...],
        single: bool = True,
    ) -> Any:
        """Appends a node whose types are already known."""
        row = self.ops.get(name)
        given = (*args, *kwargs.values())
        shared = self._shared(row, given)
        if row is None or row.guessed or row.mutates:
            self._written(row, given)
        outputs = tuple(Value(self.fresh_name(name), t) for t in types)
        node = Node(name, args, kwargs, outputs, self.location, self.modes)
        self.nodes.append(node)
        for output in outputs:
            self.makers[output] = node
            if shared is not None:
                self._memory[output] = shared
            if output.type.__class__ is TensorType:
                self.devices.add(output.tensor.device)
        return outputs[0] if single else outputs

    def _shared(self, row: OpDef | None, args: tuple[Arg, ...]) -> frozenset[Value | None] | None:
        """The memory in which results may lie; None where they have memory of their own."""
        if row is not None and row.mutates and row.mutates[0] in row.signature.names[:1]:
            return frozenset(self._memory_of(args[:1]))
        if row is None or row.guessed or row.mutates or row.alias != "none":
            return frozenset(self._memory_of(args))
        return None

    def input(self, value_type: TensorType | ScalarType, kind: InputKind, source: str) -> Value:
        """A value that exists before the graph runs."""
        value = Value(
            self.fresh_name({"parameter": "p", "constant": "c"}.get(kind, "x")), value_type
        )
        self.inputs.append(Input(value, kind, source))
        if isinstance(value_type, TensorType):
            self.devices.add(value_type.device)
        return value

    def check(self, condition: Condition, message: str) -> None:
        """A condition to be tested while running, at this position of the program."""
        check = Node(CHECK, (condition, message), {}, (), self.location, self.modes)
        self.checks.append((len(self.nodes), check))

    def fresh_name(self, name: str) -> str:
        self._count_reserved()
        number = self._counters.get(name, 0)
        self._counters[name] = number + 1
        return f"{name}_{number}"

    def reserve(self, graph: Graph) -> None:
        """Fresh names will differ from the graph's (``add_3`` reserves ``add_0`` to ``add_3``)."""
        self._reserved.append(graph)  # nobody may want a fresh name

    def _count_reserved(self) -> None:
        while self._reserved:
            for name in _names(self._reserved.pop()):
                stem, _, number = name.rpartition("_")
                if stem and number.isdigit():
                    self._counters[stem] = max(self._counters.get(stem, 0), int(number) + 1)

    def mark(self) -> BuilderMark:
        self._count_reserved()
        return BuilderMark(
            len(self.nodes), len(self.inputs), len(self.checks), dict(self._counters)
        )

    def rollback(self, mark: BuilderMark) -> None:
        """Forgets what was added since ``mark`` (facts are the caller's: see ``Facts.fork``)."""
        self._sized.clear()
        self._read.clear()
        for output in (output for node in self.nodes[mark.nodes :] for output in node.outputs):
            self.makers.pop(output, None)
            self._memory.pop(output, None)
        del self.nodes[mark.nodes :]
        del self.inputs[mark.inputs :]
        del self.checks[mark.checks :]
        self._counters.clear()
        self._counters.update(mark.counters)

    def finish(self, outputs: tuple[Arg, ...]) -> Graph:
        """The graph built so far."""
        return Graph(
            self.cx.space,
            self.cx.facts,
            tuple(self.inputs),
            tuple(self._nodes_and_checks()),
            outputs,
            dict(self.cx.hints),
        )

    def _nodes_and_checks(self) -> Iterator[Node]:
        """In program order; each check stands behind as many nodes as preceded it."""
        checks = deque(self.checks)
        for number, node in enumerate(self.nodes):
            while checks and checks[0][0] <= number:
                yield checks.popleft()[1]
            yield node
        yield from (check for _, check in checks)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self.ops:
            return lambda *args, **kwargs: self.call(name, *args, **kwargs)
        raise AttributeError(f"no operator {name!r}")


def _names(graph: Graph) -> Iterator[str]:
    yield from (value.name for node in graph.nodes for value in node.outputs)
    yield from (entry.value.name for entry in graph.inputs)
