"""The graph becomes a program: kernels, library calls, views, allocations and checks, in order.

In: a graph of core rows. Out: a ``Program``. Nodes are grouped from the last to the first
(``fuse.py``), and each group becomes a launch (``build.py``, ``tile.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from itertools import chain, islice

from anyshape.ir.buffers import Buffer, BufferRef, Role, StepArg
from anyshape.ir.established import hoist_checks
from anyshape.ir.graph import (
    Arg,
    Graph,
    Node,
    ScalarType,
    TensorType,
    Value,
    checked,
    row_major,
    values_in,
)
from anyshape.ir.nesting import head_symbols
from anyshape.ir.program import (
    Allocate,
    Assertion,
    Assign,
    BindItem,
    BindNumber,
    BindSize,
    Body,
    Branch,
    BumpVersion,
    Call,
    CheckStep,
    EagerCall,
    ExternCall,
    Launch,
    Loop,
    Program,
    Step,
    View,
    ViewCall,
)
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.ir.variants import ChooseVariants, no_variants
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops import OPS
from anyshape.ops.layout import Shape, view_strides
from anyshape.ops.table import (
    Asserts,
    Assigns,
    Checks,
    Extern,
    OpDef,
    Regions,
    is_done_by_library,
)
from anyshape.ops.table import View as ViewLowering
from anyshape.schedule.alike import one_for_many
from anyshape.schedule.analysis import Analysis, Order, analyse, link_readers
from anyshape.schedule.build import draft_group
from anyshape.schedule.draft import Cell, Draft
from anyshape.schedule.fuse import grow
from anyshape.schedule.groups import Group, Part, Refusal
from anyshape.schedule.indices import Index, Refine, dot, terms_of
from anyshape.schedule.inplace import written_in_place
from anyshape.schedule.lower import Lowering, is_supported, view_index
from anyshape.schedule.steps import insert_frees, numbers_in, symbols_used
from anyshape.schedule.tile import finish
from anyshape.schedule.updates import write_where_assigned
from anyshape.symbolic import Dim, Expr, Symbol

NEVER_REFUSED = frozenset({"view_as_real", "view_dtype"})
"""Views without an index map that torch makes of every argument of their type."""
STEPS_WITH_BODIES: Mapping[str, type[Loop | Branch]] = {"loop": Loop, "branch": Branch}
"""The steps of the rows with regions, which are given the row's arguments."""


def schedule(
    graph: Graph, variants: ChooseVariants = no_variants, ops: Mapping[str, OpDef] = OPS
) -> Program:
    """The program that computes the graph; ``variants`` are how a device's target runs a kernel."""
    return _Plan(hoist_checks(graph), ops, variants=variants).program()


def refusals(graph: Graph, ops: Mapping[str, OpDef] = OPS) -> tuple[Refusal, ...]:
    """Which values were kept out of a kernel that reads them, and why."""
    plan = _Plan(hoist_checks(graph), ops)
    plan.program()
    return tuple(refusal for _, group in plan.groups for refusal in group.refusals)


@frozen
class _Strided:
    """A view as torch sees it: elements of the memory of ``base``."""

    base: Value
    strides: tuple[Dim, ...]
    offset: Dim


@mutable(eq=False)
class _Plan:
    graph: Graph
    ops: Mapping[str, OpDef]
    around: frozenset[Symbol] = frozenset()  # sizes that data has decided around a region
    variants: ChooseVariants = no_variants
    found: Analysis = field(init=False)
    groups: list[tuple[Order, Group]] = field(default_factory=list)
    strided: dict[Value, _Strided] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    views: dict[Value, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    bound: set[Symbol] = field(default_factory=set)
    launches: dict[Hashable, Launch] = field(
        default_factory=dict
    )  # by the draft's form, and device

    def program(self) -> Program:
        """Groups, then their steps in order."""
        self.found = analyse(self.graph, self.ops, self.around)
        self.found.homes = written_in_place(self.found)
        self._find_copies()
        link_readers(self.found)
        self._group()
        self.found.stand_at(0)
        for entry in self.graph.inputs:
            role: Role = "input" if entry.kind == "argument" else "constant"
            if isinstance(entry.value.type, TensorType):
                self._buffer(entry.value, role)
        for order, work in sorted(self._works(), key=lambda item: item[0]):
            self._emit(work, order[0])
        self.found.stand_at(len(self.graph.nodes))
        outputs = tuple(map(self._output, self.graph.outputs))
        inputs = tuple(entry.value.name for entry in self.graph.inputs)
        shape = self.found.sizes.shape
        few = one_for_many(self.steps, self.buffers, self.variants)
        written = write_where_assigned(few, self.buffers, outputs, shape)
        steps = insert_frees(written, self.buffers, outputs)
        return Program(self.buffers, inputs, steps, outputs, self._entry_symbols(steps, outputs))

    # --- which views need memory of their own ---

    def _find_copies(self) -> None:
        """Views that a library, eager torch or the caller needs, and that torch cannot stride."""
        found = self.found
        wanted = [v for output in self.graph.outputs for v in _tensors(output)]
        shown = dict.fromkeys(found.with_viewed_by_steps(wanted))
        for value in shown:
            for position in islice(self._copied_below(value), 1):
                self._copy(position)
        self._share_copies(shown)
        for position in range(len(found.nodes)):
            if found.kinds[position] == "step":
                wanted.extend(self._read_by(position))
        for value in wanted:  # grows while it is read
            while found.is_view(value) and value not in self.strided:
                strided = self._stride(value)
                if strided is not None and self._enters(value, strided):
                    self.strided[value] = strided
                    break
                step = self._copy(found.producer[value] if strided else self._cannot_stride(value))
                if step is not None:
                    wanted.extend(self._read_by(step))
        found.link_sources()

    def _copy(self, position: int) -> int | None:
        """The view gets memory of its own, by a kernel; by eager torch where kernels cannot hold
        its elements: then it is a step, whose position is returned."""
        found = self.found
        if is_supported(found.nodes[position]):
            found.copies.add(position)
            return None
        found.kinds[position] = "step"
        return position

    def _cannot_stride(self, value: Value) -> int:
        """What is to be copied, so that the view has strides: the view itself, in one kernel; the
        lowest view without strides where eager torch copies."""
        found = self.found
        if is_supported(found.nodes[found.producer[value]]):
            return found.producer[value]
        below = reversed(list(self.found.views_below(value)))
        return next(found.producer[view] for view in below if self._stride(view) is None)

    def _read_by(self, position: int) -> Iterator[Value]:
        """The tensors that the node reads."""
        inputs = self.found.nodes[position].inputs()
        return (value for value in inputs if isinstance(value.type, TensorType))

    def _copied_below(self, value: Value) -> Iterator[int]:
        """What copies in eager in the chain of views of a result: reshapes, though later facts make
        them views, since what the caller gets shares no memory with what they read; and what a
        kernel looks through (``flip``), where the result begins in the middle of the copy."""
        for view in self.found.views_below(value):
            position = self.found.producer[view]
            node = self.found.nodes[position]
            source = node.args[0]
            assert isinstance(source, Value)
            if self.ops[node.op].alias == "none" and view is not value:
                strided = self._stride_over(value, view, self._whole(view))
                if strided is None or strided.offset != 0:
                    yield position
            if node.op != "reshape":
                continue
            self.found.stand_at(position)
            if self._reshaped(source.tensor, source, view) is None:
                yield position

    def _share_copies(self, outputs: Iterable[Value]) -> None:
        """Outputs that eager makes views of one copy are views of one copy here."""
        roots: dict[Value, list[Value]] = {}
        for value in filter(self.found.is_view, outputs):
            chain = list(self.found.views_below(value))
            root = next((v for v in reversed(chain) if self._stride(v) is None), None)
            if root is not None:
                roots.setdefault(root, []).append(value)
        for root, values in roots.items():
            if len(values) > 1:
                self._copy(self.found.producer[root])

    def _enters(self, value: Value, strided: _Strided) -> bool:
        """Can torch make the view? One that enters memory not our own midway is made step by step,
        which needs strides for each step.
        """
        if strided.offset == 0 or self.found.kind_of(strided.base) in ("kernel", "view"):
            return True
        return all(
            view in self.strided or self._stride(view) is not None
            for view in self.found.views_below(value)
        )

    def _stride(self, value: Value) -> _Strided | None:
        """The view as strides over its base, None where the memory is not laid out so."""
        return self._stride_over(value, None, None) or self._stride_by_step(value)

    def _stride_over(
        self, value: Value, under: Value | None, below: _Strided | None
    ) -> _Strided | None:
        """The view over its base, or over the view ``under`` it, whose strides are ``below``."""
        found = self.found
        found.stand_at(found.producer[value])
        axes = [found.symbols.axis(n) for n in range(len(value.shape))]
        shape = found.sizes.shape(value.shape)
        extents = {a.symbol: s for a, s in zip(axes, shape, strict=True) if a.symbol is not None}
        draft = Draft(found.symbols)
        lowering = Lowering(self.ops, found.cx, found.sizes, draft, extents, _no_read)
        index: Index = tuple(axes)
        base = value
        try:
            while found.is_view(base) and base is not under:
                node = found.nodes[found.producer[base]]
                if self.ops[node.op].alias == "none":
                    return None
                base, index = view_index(lowering, node, index)
        except Refine:
            return None
        if below is None:
            below = self._whole(base)
        position = dot(index, below.strides) + below.offset
        steps = terms_of(position, extents)
        if steps is None:
            return None
        strides = tuple(0 if a.symbol is None else steps.get(a.symbol, 0) for a in axes)
        offset = found.sizes.simplify(position - dot(axes, strides))
        if any(isinstance(s, int) and s < 0 for s in strides):
            return None
        return _Strided(below.base, strides, offset)

    def _whole(self, base: Value) -> _Strided:
        """The memory of a value that is no view, as it lies there."""
        found = self.found
        return _Strided(base, found.sizes.shape(found.memory_of(base).tensor.strides), 0)

    def _stride_by_step(self, value: Value) -> _Strided | None:
        """The view over what it is a view of: merged and split dims as the types have them."""
        found = self.found
        node = found.nodes[found.producer[value]]
        found.stand_at(found.producer[value])
        first = node.args[0]
        assert isinstance(first, Value)
        shape, wanted = (found.sizes.shape(v.shape) for v in (first, value))
        below = self._stride(first) if self.found.is_view(first) else self._whole(first)
        if below is None or self.ops[node.op].alias == "none":
            return None
        if node.op not in ("reshape", "unsqueeze", "squeeze"):
            return self._stride_over(value, first, below)
        seen = replace(first.tensor, shape=shape, strides=below.strides)
        strides = self._reshaped(seen, first, value)
        return None if strides is None else _Strided(below.base, strides, below.offset)

    def _reshaped(self, seen: TensorType, source: Value, view: Value) -> Shape | None:
        """The strides of a view in another shape of ``source``, which lies in memory as ``seen``;
        None where eager copies. Where capture found one that is not found again, its type tells."""
        shape = self.found.sizes.shape
        strides = view_strides(self.found.cx, seen, shape(view.shape))
        lies_as_typed = shape(seen.strides) == shape(source.tensor.strides)
        if strides is None and lies_as_typed and view.tensor.strides != row_major(view.shape):
            return shape(view.tensor.strides)
        return strides

    # --- groups and their order ---

    def _group(self) -> None:
        found = self.found
        for position in range(len(found.nodes) - 1, -1, -1):
            node = found.nodes[position]
            kind = found.kinds[position]
            wanted = kind in ("kernel", "scatter") or position in found.copies
            if not wanted or found.scheduled[position] or not found.readers[node.output]:
                continue
            parts: tuple[Part, ...] = ("update", "copy") if kind == "scatter" else ("whole",)
            if node.output in found.homes:
                parts = ("update",)
            for part in parts:
                group = grow(found, position, part)
                self.groups.append((found.order[position], group))

    def _works(self) -> Iterator[tuple[tuple[Order, int], Group | Node]]:
        """Everything to do, with its order."""
        found = self.found
        for number, (order, group) in enumerate(self.groups):
            yield (order, -number), group
        binding = set(found.binders.values())
        for position, node in enumerate(found.nodes):
            if found.kinds[position] == "step" and (position in binding or self._wanted(node)):
                yield (found.order[position], 0), node

    def _wanted(self, node: Node) -> bool:
        row = self.ops.get(node.op)
        needed = any(self.found.readers[output] for output in node.outputs)
        scalar = any(isinstance(output.type, ScalarType) for output in node.outputs)
        if needed or scalar or row is None or row.resource is not None:
            return True
        return row.raises or is_done_by_library(row)

    # --- steps ---

    def _emit(self, work: Group | Node, order: Order) -> None:
        if isinstance(work, Group):
            self.found.stand_at(self.found.producer[work.seed])
            self._launch(work)
        else:
            self.found.stand_at(int(order))
            self._call(work)

    def _launch(self, group: Group) -> None:
        for stored in group.stored if group.part != "update" else ():
            self._allocate(stored.value)
        drafted = draft_group(self.found, group)
        device = next(value.tensor.device for value in drafted.buffers.values())
        form = (drafted.form, device)
        launch = self.launches.get(form)
        if launch is None:
            launch = finish(drafted, self.found.sizes)
            launch = replace(launch, variants=self.variants(launch.kernel, device))
            self.launches[form] = launch
        args = (
            BufferRef(drafted.buffers[arg.name].name) if isinstance(arg, BufferRef) else arg
            for arg in launch.args
        )
        self.steps.append(replace(launch, args=tuple(args)))

    def _allocate(self, value: Value) -> None:
        self._buffer(value, "output" if self._handed_out(value) else "temp")
        self.steps.append(Allocate(value.name))

    def _handed_out(self, value: Value) -> bool:
        return len(self.found.nodes) in self.found.readers.get(value, ())

    def _buffer(self, value: Value, role: Role) -> None:
        t = value.tensor
        # An argument's sizes give symbols their values, those too that are known to be another's.
        shape = t.shape if role == "input" else self.found.sizes.shape(t.shape)
        strides = self.found.sizes.shape(t.strides)
        self.buffers[value.name] = Buffer(value.name, t.dtype, t.device, shape, strides, role)

    def _call(self, node: Node) -> None:
        row = self.ops.get(node.op)
        match None if row is None else row.lower:
            case Assigns() as how:
                self._assign(node, how)
            case Checks():
                self.steps.append(CheckStep(*checked(node), node.location))
            case Regions():
                self._nest(node)
            case Asserts(deferred=deferred):
                condition = self._tensor(node.args[0])
                self.steps.append(Assertion(condition, deferred, node.location))
            case _ if any(isinstance(output.type, ScalarType) for output in node.outputs):
                self._bind_number(node.outputs[0], tuple(map(self._arg, node.args)))
            case Extern(function=function, memory=memory):
                make = partial(ExternCall, new_memory=memory is not None)
                self._result(node, row, make, function)
            case _ if node.op in NEVER_REFUSED:
                self._viewed(node.output)
            case _:
                self._result(node, row, EagerCall, node.op if row is None else row.torch)

    def _nest(self, node: Node) -> None:
        """The regions become programs of their own."""
        bodies = tuple(self._body(node, region) for region in node.regions)
        tensors = [output for output in node.outputs if isinstance(output.type, TensorType)]
        for output in tensors:
            self._buffer(output, "result")
        given = tuple(map(self._arg, node.args))
        numbers = tuple(map(_number_of, node.outputs[len(tensors) :]))
        outputs = tuple(output.name for output in tensors)
        self.steps.append(STEPS_WITH_BODIES[node.op](given, bodies, outputs, numbers))
        self.bound.update(number for number in numbers if isinstance(number, Symbol))
        for output in tensors:
            self._bind_sizes(output)

    def _body(self, node: Node, region: Graph) -> Body:
        known = self.around | self.bound
        plan = _Plan(hoist_checks(region, known), self.ops, known, self.variants)
        program = plan.program()
        heads = head_symbols(node, region)
        around = tuple(s for s in program.symbols if s not in heads)
        return Body(program, region.facts, around)

    def _assign(self, node: Node, how: Assigns) -> None:
        target, *sources = node.args
        if node.args[1] in self.found.homes:
            self.steps.append(BumpVersion(self._tensor(target), how.counted))
            return
        args = tuple(map(self._arg, sources))
        self.steps.append(Assign(how.function, self._tensor(target), args, how.counted))

    def _result(
        self, node: Node, row: OpDef | None, make: Callable[..., Call], function: str
    ) -> None:
        """A call of a function of torch's, and the sizes that only it knows."""
        args = tuple(map(self._arg, node.args))
        kwargs = {name: self._arg(arg) for name, arg in node.kwargs.items()}
        for output in node.outputs:
            self._buffer(output, "result")
        outputs = tuple(output.name for output in node.outputs)
        restride = row is None or row.alias == "none" or isinstance(row.lower, ViewLowering)
        guessed = row is not None and row.guessed
        self.steps.append(make(function, args, kwargs, outputs, restride, node.location, guessed))
        for output in node.outputs:
            self._bind_sizes(output)

    def _bind_number(self, value: Value, args: tuple[StepArg, ...]) -> None:
        target = _number_of(value)
        if isinstance(target, Symbol):
            self.bound.add(target)
        if isinstance(args[0], BufferRef):
            self.steps.append(BindItem(target, args[0].name))
        else:
            function, operands = args
            assert isinstance(function, str) and isinstance(operands, tuple)
            self.steps.append(BindNumber(target, function, operands))

    def _bind_sizes(self, value: Value) -> None:
        """Sizes that only the call knows."""
        for dim, size in enumerate(value.shape):
            symbol = size.symbol if isinstance(size, Expr) else None
            known = self.bound | self.around
            if symbol is not None and symbol.knowledge == "midrun" and symbol not in known:
                self.bound.add(symbol)
                self.steps.append(BindSize(symbol, value.name, dim))

    def _arg(self, arg: Arg) -> StepArg:
        if isinstance(arg, Value):
            if isinstance(arg.type, ScalarType):
                return arg.type.expr
            return BufferRef(self._tensor(arg))
        if isinstance(arg, tuple):
            return tuple(self._arg(item) for item in arg)
        if isinstance(arg, slice):
            return slice(*(self._arg(part) for part in (arg.start, arg.stop, arg.step)))
        return self.found.sizes.simplify(arg) if isinstance(arg, Expr) else arg

    def _output(self, output: Arg) -> StepArg:
        """What is handed out; a view that requires no gradients, as what it is of does, is detached
        from it."""
        if isinstance(output, tuple):
            return tuple(map(self._output, output))
        if not isinstance(output, Value) or isinstance(output.type, ScalarType):
            return self._arg(output)
        self._make_as_eager(output)
        name = self._tensor(output)
        wanted = output.tensor.requires_grad
        if wanted or not any(
            self._base_of(v).requires_grad for v in self.found.views_below(output)
        ):
            return BufferRef(name)
        detached = f"{name}_detached"
        if detached not in self.buffers:
            self.buffers[detached] = replace(self.buffers[name], name=detached, role="result")
            self.steps.append(ViewCall("torch.detach", (BufferRef(name),), {}, detached))
        return BufferRef(detached)

    def _make_as_eager(self, output: Value) -> None:
        """Views that are handed out are made by torch's own functions, one after the other: what no
        element depends on, as the stride of a dimension of one element, is eager's then too."""
        chain = list(self.found.views_below(self.found.memory_of(output)))
        rows = [self.ops[self.found.nodes[self.found.producer[view]].op] for view in chain]
        if all(row.alias == "view" or row.name == "reshape" for row in rows):
            for view in reversed(chain):
                if view not in self.views and view.name not in self.buffers:
                    self.views[view] = self._viewed(view)

    def _base_of(self, view: Value) -> TensorType:
        return next(self.found.nodes[self.found.producer[view]].inputs()).tensor

    def _tensor(self, value: Arg) -> str:
        """The name of a tensor that holds the value; views are made when first needed."""
        assert isinstance(value, Value)
        value = self.found.memory_of(value)
        if value.name in self.buffers:
            return value.name
        name = self.views.get(value)
        if name is None:
            name = self.views[value] = self._make_view(value)
        return name

    def _make_view(self, value: Value) -> str:
        strided = self.strided[value]
        base = self._tensor(strided.base)
        begins = strided.offset == 0 or self.buffers[base].role in ("temp", "output")
        if not begins and not self._is_fresh(strided.base):
            return self._narrowed(value)
        self._buffer(value, "result")
        # What eager would copy lies as its base does here, but for dimensions of one element; where
        # there is none, no step leads from one to the next.
        typed = zip(value.shape, value.tensor.strides, strided.strides)
        empty = 0 in self.found.sizes.shape(value.shape)
        strides = tuple(own if empty or size == 1 else step for size, own, step in typed)
        self.buffers[value.name] = replace(self.buffers[value.name], strides=strides)
        self.steps.append(View(value.name, base, strided.offset))
        return value.name

    def _is_fresh(self, value: Value) -> bool:
        """Does a library make the value in memory of its own, which begins with it?"""
        position = self.found.producer.get(value)
        row = None if position is None else self.ops.get(self.found.nodes[position].op)
        return row is not None and isinstance(row.lower, Extern) and row.lower.memory == "whole"

    def _narrowed(self, value: Value) -> str:
        """A view that enters its base midway, by torch's own functions, one after the other."""
        node = self.found.nodes[self.found.producer[value]]
        first = node.args[0]
        assert isinstance(first, Value)
        if self.found.is_view(first) and first not in self.strided:
            strided = self._stride(first)
            assert strided is not None
            self.strided[first] = strided
        return self._viewed(value)

    def _viewed(self, value: Value) -> str:
        """The view by torch's own function."""
        node = self.found.nodes[self.found.producer[value]]
        first, *rest = node.args
        args = (BufferRef(self._tensor(first)), *(self._arg(arg) for arg in rest))
        kwargs = {name: self._arg(arg) for name, arg in node.kwargs.items()}
        self._buffer(value, "result")
        function = self.ops[node.op].torch
        self.steps.append(ViewCall(function, args, kwargs, value.name))
        return value.name

    def _entry_symbols(
        self, steps: tuple[Step, ...], outputs: tuple[StepArg, ...]
    ) -> tuple[Symbol, ...]:
        numbers = (
            n for step in steps for arg in step.arguments(self.buffers) for n in numbers_in(arg)
        )
        return symbols_used(chain(numbers, numbers_in(outputs)), self.bound)


def _number_of(value: Value) -> Symbol | ScalarInput:
    """What has a value once the number does."""
    assert isinstance(value.type, ScalarType)
    number = value.type.expr
    source = number.args[0] if isinstance(number, Scalar) else number
    target = source.symbol if isinstance(source, Expr) else source
    assert isinstance(target, (Symbol, ScalarInput))
    return target


def _tensors(output: Arg) -> Iterator[Value]:
    for value in values_in(output):
        if isinstance(value.type, TensorType):
            yield value


def _no_read(value: Value, index: Index, *, whole: bool = False) -> Cell:
    raise AssertionError("views read nothing")
