"""Torch-level rows become core rows and externs.

    %y = softmax(%x, -1)   ->   %m = amax(%x, (1,), True); %e = exp(sub(%x, %m)); ...

A row with an expansion and no lowering is replaced by what it expands to, again and again. The
value that stands for a result keeps the type that the torch-level row gave it: its logical strides
are eager's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anyshape.ir.graph import HOST, Arg, Graph, Modes, Node, TensorType, Value
from anyshape.nouns import frozen, replace
from anyshape.ops.build import Builder
from anyshape.ops.context import Undecided
from anyshape.ops.table import OpDef
from anyshape.passes.rebuild import Reader, Rebuilding, rebuild


def decompose(
    graph: Graph,
    ops: Mapping[str, OpDef],
    whole: Callable[[OpDef], bool] = lambda row: False,
    lowered: bool = False,
    named: bool = False,
) -> Graph:
    """Expands rows until every node has a lowering, is left to a library or stays ``whole``.
    ``lowered``: expands those that have a lowering as well. ``named``: what an expansion makes last
    has the name of the result that it stands for."""
    reader = Reader.of(graph)
    builder = Builder(reader.cx, ops)
    builder.reserve(graph)
    return rebuild(graph, _Decomposer(builder, ops, whole, lowered, named).expand, reader=reader)


def expand_for_gradients(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Expands the rows whose gradient is that of their expansion. Their results keep their names:
    by these they are found in the captured graph (``autograd/stages.py: named_in``)."""
    return decompose(graph, ops, whole=lambda row: row.vjp != "expansion", lowered=True, named=True)


@frozen
class _Decomposer:
    builder: Builder
    ops: Mapping[str, OpDef]
    whole: Callable[[OpDef], bool]
    lowered: bool
    named: bool

    def expand(self, node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        row, builder = self.ops.get(node.op), self.builder
        if row is None or self.whole(row):
            return out.emit(node)
        start = len(builder.nodes)
        builder.location, builder.modes = node.location, node.modes
        refuse_data(builder, row, node.args, node.kwargs)
        self._write(builder.nodes[start:], out)
        del builder.nodes[start:]
        if row.expand is None or (row.lower is not None and not self.lowered):
            return out.emit(node)
        if node.modes is not None:
            cx = builder.cx
            cx.default_dtype, cx.default_device = (
                node.modes.default_dtype,
                node.modes.default_device,
            )
        try:
            made = row.expand(builder, *node.args, **node.kwargs)
        except Undecided:  # sizes that nobody relies on would decide what it is made of
            made = NotImplemented
        if made is NotImplemented:
            del builder.nodes[start:]
            return out.emit(node)
        results = made if isinstance(made, tuple) else (made,)
        body = builder.nodes[start:]
        del builder.nodes[start:]
        return self._inline(body, results, node, out, row.alias == "none")

    def _inline(
        self,
        body: list[Node],
        results: tuple[Arg, ...],
        node: Node,
        out: Rebuilding,
        fresh: bool,
    ) -> tuple[Arg, ...]:
        """Writes the expansion, itself expanded; its results get the types of ``node``'s outputs,
        and memory of their own if they are to be ``fresh``.
        """
        start = len(out.nodes)
        self._write(body, out)
        rewritten = (out.rewrite(result) for result in results)
        made = tuple(
            self._typed(new, old, out, start, fresh, node.modes)
            for new, old in zip(rewritten, node.outputs, strict=True)
        )
        if not self.named:
            return made
        return tuple(
            self._renamed(new, old, out, start) if made.count(new) == 1 else new
            for new, old in zip(made, node.outputs)
        )

    def _write(self, body: list[Node], out: Rebuilding) -> None:
        """Writes nodes, themselves expanded."""
        for inner in body:
            made = self.expand(out.with_new_inputs(inner), out)
            for old, new in zip(inner.outputs, made, strict=True):
                if old is not new:
                    out.substitutes[old] = new

    def _typed(
        self, new: Arg, old: Value, out: Rebuilding, start: int, fresh: bool, modes: Modes | None
    ) -> Arg:
        """``new``, made after ``start``, with eager's strides where the expansion's differ."""
        if not isinstance(new, Value) or not isinstance(new.type, TensorType):
            return new
        if not isinstance(old.type, TensorType) or (new.type == old.type and not fresh):
            return new
        maker = _maker(new, out, start)
        made = replace(new.type, strides=old.type.strides)
        if maker is None or self._is_view(out.nodes[maker]):
            if not fresh or (new.type == old.type and not self._views_earlier(new, out, start)):
                return new
            copy = Value(self.builder.fresh_name(old.name), made)
            return out.emit(Node("clone", (new,), {}, (copy,), modes=modes))[0]
        if new.type != old.type:
            return _made_instead(new, Value(new.name, made), maker, out)
        return new

    def _renamed(self, new: Arg, old: Value, out: Rebuilding, start: int) -> Arg:
        """``new``, made after ``start``, with the name of ``old``, where nothing reads it yet."""
        if not isinstance(new, Value):
            return new
        maker = _maker(new, out, start)
        if maker is None or any(new in node.inputs() for node in out.nodes[maker + 1 :]):
            return new
        return _made_instead(new, Value(old.name, new.type), maker, out)

    def _is_view(self, node: Node) -> bool:
        row = self.ops.get(node.op)
        return row is not None and row.alias != "none"

    def _views_earlier(self, value: Value, out: Rebuilding, start: int) -> bool:
        """Does a chain of views made after ``start`` end in what was made before?"""
        maker = _maker(value, out, start)
        while maker is not None and self._is_view(out.nodes[maker]):
            maker = _maker(next(out.nodes[maker].inputs()), out, start)
        return maker is None


def refuse_data(b: Builder, row: OpDef, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]) -> None:
    """Checks of the data that eager refuses and the expansion of the row would take."""
    if row.refuses is None:
        return
    refused = row.refuses(b, *args, **kwargs)
    for bad in refused if isinstance(refused, tuple) else (refused,):
        check_false(b, bad)


def check_false(b: Builder, bad: Value) -> None:
    """A check that none of these is true: by the host, or by the device that holds them."""
    dims = tuple(range(len(bad.shape)))
    row = "check_false" if bad.tensor.device == HOST else "trap_if"
    b.call(row, b.call("any", bad, dims, False) if dims else bad)


def _made_instead(old: Value, new: Value, maker: int, out: Rebuilding) -> Value:
    """Has the node make ``new``."""
    node = out.nodes[maker]
    outputs = tuple(new if output is old else output for output in node.outputs)
    out.nodes[maker] = replace(node, outputs=outputs)
    out.substitutes[old] = new
    return new


def _maker(value: Value, out: Rebuilding, start: int) -> int | None:
    """Where the node is that makes the value, if it came after ``start``."""
    positions = range(len(out.nodes) - 1, start - 1, -1)
    return next((i for i in positions if value in out.nodes[i].outputs), None)
