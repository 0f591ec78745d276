"""In-place operators and writes through views become pure operators and final assignments.

    %v = select(%x, 0, 1); add_(%v, 1); return %x * 2
    ->
    %v = select(%x, 0, 1); %n = add(%v, 1); %x1 = select_written(%x, %n, 0, 1); %y = mul(%x1, 2)
    assign(%x, %x1); return %y

Each value is a chain of views over a base. A write makes a new version of the base by walking the
chain back; whoever reads an older view of that base gets it anew from the newest version. Inputs
that were written get one ``assign`` at the end; outputs that view a written input are views of the
input itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from anyshape.ir.graph import Arg, Graph, Node, TensorType, Type, Value, map_values
from anyshape.ir.shortcuts import only_where
from anyshape.nouns import mutable, replace
from anyshape.ops.build import Builder
from anyshape.ops.context import NoRow, OpError, Undecided
from anyshape.ops.inplace import ASSIGNMENTS
from anyshape.ops.shared_memory import OWN_COUNTERS, lies_in_argument
from anyshape.ops.table import OpDef
from anyshape.ops.write_back import WrittenThrough
from anyshape.passes.nested_writes import assigns_inside, commit_behind
from anyshape.passes.outputs import escaping
from anyshape.passes.rebuild import Reader


def _is_written(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    return any(_writes(node, ops) for node in graph.nodes)


@only_where(_is_written)
def functionalize(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The graph without in-place operators."""
    reader = Reader.of(graph)
    builder = Builder(reader.cx, ops)
    builder.reserve(graph)
    shown, leaves = escaping(graph, ops), dict(_leaves(graph, ops))
    return _Functionalizer(graph, ops, builder, reader, shown, leaves).run()


def _leaves(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[tuple[Value, str]]:
    """What factories make with ``requires_grad=True``, each with its factory's name."""
    for node in graph.nodes:
        row = ops.get(node.op)
        if row is not None and row.guessed and not row.differentiable:
            made = (v for v in node.outputs if isinstance(v.type, TensorType))
            yield from ((value, row.name) for value in made if value.tensor.requires_grad)


def _writes(node: Node, ops: Mapping[str, OpDef]) -> bool:
    return (node.op in ops and bool(ops[node.op].mutates)) or assigns_inside(node)


@mutable(eq=False)
class _View:
    """How a value is seen: ``node`` applied to ``parent`` (itself seen somehow)."""

    parent: Value
    node: Node


@mutable(eq=False)
class _Functionalizer:
    graph: Graph
    ops: Mapping[str, OpDef]
    builder: Builder
    reader: Reader
    shown: frozenset[Value]  # in whose memory results lie
    leaves: Mapping[Value, str]  # that the graph makes, each with what makes it
    views: dict[Value, _View] = field(default_factory=dict)
    newest: dict[Value, Value] = field(default_factory=dict)  # base -> its newest version
    seen: set[Value] = field(default_factory=set)  # bases that are written not by `.data` alone
    version: dict[Value, int] = field(default_factory=dict)  # base -> how often it was written
    fresh: dict[Value, tuple[int, Value]] = field(default_factory=dict)  # view -> as of a version
    over_inputs: dict[Value, Value] = field(default_factory=dict)  # view -> of the written input
    same: dict[Value, Value] = field(
        default_factory=dict
    )  # result of an in-place row -> its target

    def run(self) -> Graph:
        for position, node in enumerate(self.graph.nodes):
            self.reader.stand_at(position)
            self._node(node)
        self.reader.stand_at(len(self.graph.nodes))
        self._assign_inputs()
        outputs = tuple(map_values(output, self._output) for output in self.graph.outputs)
        nodes = tuple(self.builder.nodes)
        return replace(self.graph, nodes=nodes, outputs=outputs)

    def _node(self, node: Node) -> None:
        row = self.ops.get(node.op)
        self.builder.location, self.builder.modes = node.location, node.modes
        if row is not None and row.mutates:
            self._write(node, row)
            return
        if node.regions:
            self._run_regions(node)
            return
        source = node.args[0] if node.args else None
        if isinstance(source, Value) and lies_in_argument(self.reader.whole, node, row):
            source = self._target(source)
            for output in node.outputs:
                self.views[output] = _View(source, node)
            if self.version.get(self._base(source), 0):
                self._refuse_hidden_memory(node)
            current = self._current(source)
            if current.type != source.type:
                version = self.version[self._base(source)]
                for output, made in zip(node.outputs, self._over(node, current), strict=True):
                    self.fresh[output] = (version, made)
                return
        as_typed = row is not None and (row.random or self._shows_copy(node, row))
        self.builder.nodes.append(self._reading(node, self._laid_as_typed if as_typed else None))
        for output in node.outputs:
            if output in self.views:
                self.fresh[output] = (self.version.get(self._base(output), 0), output)

    def _shows_copy(self, node: Node, row: OpDef) -> bool:
        """Is it a copy for the sake of how its argument lies, whose memory somebody sees? Of the
        newest version, which may lie otherwise, it would be a view: two copies would share one."""
        return row.alias == "maybe" and not self.shown.isdisjoint(node.outputs)

    def _reading(self, node: Node, read: Callable[[Value], Value] | None = None) -> Node:
        read = read or self._current
        args = tuple(map_values(arg, read) for arg in node.args)
        kwargs = {name: map_values(arg, read) for name, arg in node.kwargs.items()}
        return replace(node, args=args, kwargs=kwargs)

    def _laid_as_typed(self, value: Value) -> Value:
        """As of now, laid out as it is in eager: numbers are drawn in the order of memory, and
        layouts say what is a copy."""
        current = self._current(value)
        if not isinstance(value.type, TensorType) or current.tensor.strides == value.tensor.strides:
            return current
        return self.builder.append("clone", (current,), {}, (value.type,))

    def _write(self, node: Node, row: OpDef) -> None:
        """The functional row's result becomes the newest version of what the node writes."""
        if row.functional is None:
            raise WrittenThrough(f"{row.name} writes in place and has no functional row")
        reading = self._reading(node)
        try:
            result = self.builder.call(row.functional, *reading.args, **reading.kwargs)
        except NoRow as missing:  # of complex numbers, for one
            raise WrittenThrough(str(missing)) from missing
        bound = dict(zip((p.name for p in row.signature.parameters), node.args, strict=False))
        target = bound[row.mutates[0]]
        assert isinstance(target, Value)
        target = self._target(target)
        self._assign(target, self._as_type(result, target))
        for output in node.outputs:
            self.same[output] = target

    def _run_regions(self, node: Node) -> None:
        """What regions read lies as their inputs' types say; what they write is written here."""
        made, written = commit_behind(node, self.builder.fresh_name)
        self.builder.nodes.append(self._reading(made, self._laid_as_typed))
        for target, contents in written:
            self._assign(self._target(target), contents)

    def _as_type(self, value: Value, target: Value) -> Value:
        """In-place operators keep their target's dtype and shape."""
        if value.dtype is not target.dtype:
            value = self.builder.call("to_dtype", value, target.dtype)
        if value.shape != target.shape:
            value = self.builder.call("expand", value, target.shape)
        return value

    def _target(self, value: Value) -> Value:
        return self.same.get(value, value)

    def _base(self, value: Value) -> Value:
        value = self._target(value)
        while value in self.views:
            value = self.views[value].parent
        return value

    def _current(self, value: Value) -> Value:
        """The value as of now: derived anew from the newest version of a base that was written."""
        value = self._target(value)
        base = self._base(value)
        version = self.version.get(base, 0)
        if version == 0:
            return value
        if value is base:
            return self.newest[base]
        if self.fresh.get(value, (-1, value))[0] == version:
            return self.fresh[value][1]
        view = self.views[value]
        self._refuse_hidden_memory(view.node)
        again = self._over(view.node, self._current(view.parent))
        self.fresh.update(zip(view.node.outputs, ((version, made) for made in again), strict=True))
        return self.fresh[value][1]

    def _over(self, node: Node, source: Value) -> tuple[Value, ...]:
        """The view once more, over another source."""
        args = (source, *(map_values(arg, self._current) for arg in node.args[1:]))
        types = tuple(value.type for value in node.outputs)
        before = node.args[0]
        if isinstance(before, Value) and source.type != before.type:
            types = self._types_over(node, args, types)
        made: tuple[Value, ...] = self.builder.append(
            node.op, args, node.kwargs, types, single=False
        )
        return made

    def _refuse_hidden_memory(self, node: Node) -> None:
        """A view that no index map describes may show memory beside its argument."""
        row = self.ops[node.op]
        if row.alias == "view" and row.lower is None and row.write_back is None:
            raise WrittenThrough(f"{row.name} of what is written shows what lies around it")

    def _types_over(
        self, node: Node, args: tuple[Arg, ...], types: tuple[Type, ...]
    ) -> tuple[Type, ...]:
        """The types of a view of what lies in memory otherwise; as they were, where such a view
        would need facts that nobody has: then it is no view of memory, but an index."""
        try:
            made = self.builder.type_of(self.ops[node.op], args, node.kwargs)
        except (OpError, Undecided):
            return types
        return made if isinstance(made, tuple) else (made,)

    def _assign(self, target: Value, new: Value) -> None:
        """``target`` (a view chain) now holds ``new``: the base gets a new version."""
        value = target
        seen = True
        while value in self.views:
            view = self.views[value]
            seen = seen and view.node.op not in OWN_COUNTERS
            row = self.ops.get(view.node.op)
            if row is None or row.write_back is None:
                raise WrittenThrough(f"a write through {view.node.op} cannot be undone")
            parent = self._current(view.parent)
            position = view.node.outputs.index(value)
            new = row.write_back(self.builder, parent, new, view.node, position)
            value = view.parent
        if seen:
            self.seen.add(value)
        self._refuse_leaf(value)
        self.newest[value] = self._laid_out(new, value)
        self.version[value] = self.version.get(value, 0) + 1
        self.fresh[target] = (self.version[value], self._reuse(target, new))

    def _refuse_leaf(self, base: Value) -> None:
        """What was made with ``requires_grad=True`` is written as what is detached of it: another
        tensor in its place would be no leaf."""
        maker = self.leaves.get(base)
        if maker is not None:
            raise WrittenThrough(f"{maker} makes a leaf, which is written")

    def _laid_out(self, new: Value, target: Value) -> Value:
        """A tensor made here stays in the layout that it was made in, whatever is written to it."""
        if new.type == target.type or any(entry.value is target for entry in self.graph.inputs):
            return new
        return self.builder.append("clone", (new,), {}, (target.type,))

    def _reuse(self, target: Value, new: Value) -> Value:
        return new if target not in self.views else self._derive(target)

    def _derive(self, value: Value) -> Value:
        self.fresh.pop(value, None)
        return self._current(value)

    def _assign_inputs(self) -> None:
        """One assignment for each written input, after everything that reads the old contents.

        What is assigned may itself view a written input (``x.copy_(y); y.copy_(old_x)``): copied
        first. An overwriting that is assigned whole needs no copy of its own otherwise.
        """
        written = [e.value for e in self.graph.inputs if self.version.get(e.value, 0)]
        views = self._view_nodes()
        copied = {n.output: n.args[1] for n in self.builder.nodes if n.op == "overwrite"}
        newest = (self.newest[value] for value in written)
        sources = (self._whole_source(copied.get(value), value) for value in newest)
        values = [self._independent(value, written, views) for value in sources]
        for target, value in zip(written, values, strict=True):
            row = ASSIGNMENTS[target in self.seen]
            self.builder.append(row, (target, value), {}, (), single=False)

    def _whole_source(self, source: Arg, target: Value) -> Value:
        """The source, where it has the elements of the target as they are: none converted or
        repeated; else the target."""
        if not isinstance(source, Value) or source.dtype is not target.dtype:
            return target
        pairs = zip(source.shape, target.shape)
        same = self.builder.cx.same
        whole = len(source.shape) == len(target.shape) and all(same(a, b) for a, b in pairs)
        return source if whole else target

    def _view_nodes(self) -> dict[Value, tuple[Value, ...]]:
        """What each value in the graph being written may be a view of, or may be: regions may give
        back what they are handed."""
        found: dict[Value, tuple[Value, ...]] = {}
        for node in self.builder.nodes:
            row = self.ops.get(node.op)
            if node.regions:
                found.update(dict.fromkeys(node.outputs, node.read))
            elif row is not None and row.alias != "none" and node.read:
                found.update(dict.fromkeys(node.outputs, node.read[:1]))
        return found

    def _independent(
        self, value: Value, written: list[Value], views: Mapping[Value, tuple[Value, ...]]
    ) -> Value:
        reached = {value: None}
        for base in (waiting := [value]):  # grows while it is read
            waiting += [below for below in views.get(base, ()) if below not in reached]
            reached |= dict.fromkeys(waiting)
        return (
            self.builder.call("clone", value) if not reached.keys().isdisjoint(written) else value
        )

    def _output(self, value: Value) -> Value:
        """Outputs that are, or view, a written input refer to the input itself."""
        value = self._target(value)
        base = self._base(value)
        inputs = {entry.value for entry in self.graph.inputs}
        if base not in inputs or not self.version.get(base, 0):
            return self._current(value)
        return self._over_input(value)

    def _over_input(self, value: Value) -> Value:
        if value not in self.views:
            return value
        if value not in self.over_inputs:
            view = self.views[value]
            made = self._over(view.node, self._over_input(view.parent))
            self.over_inputs.update(zip(view.node.outputs, made, strict=True))
        return self.over_inputs[value]
