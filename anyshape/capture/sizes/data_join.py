"""Branches that data decides: both sides run, and what each has written is kept where its side is
the one that the condition says.

    if bad == 0: p.add_(g); n += 1
    ->
    old = p.clone(); p.add_(g); new = p.clone(); p.copy_(old); p.copy_(where(bad == 0, new, old))
    n = select(bad == 0, n + 1, n)

In: a number that data decides, at a jump of a frame. Out: the frame at the meeting point, as in
`join.py`; or `NotJoined`, with nothing done. A side may write tensors, attributes and entries of
dicts that were there before, and leave another tensor than the other one (`choices.py`). What costs
as much as a product is computed on no side in vain, and what cannot be taken back (a draw, an
effect) is done on none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor

from anyshape.capture.guards.execution_modes import TorchModes
from anyshape.capture.heap.effects import Effect
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.undo import made_since, raises_older
from anyshape.capture.heap.unread_writes import is_key
from anyshape.capture.heap.values import NULL, PROXIES, ScalarValue, TensorValue
from anyshape.capture.interpreter.domain import Interpreter, Mark
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.liveness import is_live, live_slots
from anyshape.capture.recording.autocast import without_autocast
from anyshape.capture.recording.choices import BranchSite, Choice
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.marks import RecorderMark
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.recording.refused_calls import is_in_vain
from anyshape.capture.sizes import beside_numpy, numbers, sides, written_containers
from anyshape.capture.sizes.merging import Merger, NotJoined, NotMerged
from anyshape.capture.sizes.written_containers import Containers
from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import Node, Value
from anyshape.ir.scalars import Operand, Scalar
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops import OPS
from anyshape.ops.context import TypeContext, Undecided
from anyshape.ops.shared_memory import OWN_COUNTERS, base_of, lies_in_argument
from anyshape.symbolic import Dim, eq
from anyshape.version_counters import move_version

Destination: TypeAlias = "tuple[int, str, Any]"
"""What Python has written: the id of an object, how, and the name or the key."""
ATTRIBUTE, ENTRY = object.__setattr__, dict.__setitem__


@mutable
class Side:
    """How one side ended, what it wrote by destination, and how often which tensors."""

    returned: bool
    value: Any
    locals: list[Any]
    stack: list[Any]
    modes: TorchModes
    written: dict[Destination, tuple[Any, Any]]
    tensors: Counter[Value]
    containers: Containers
    moved: list[Effect]  # version counters, inside
    copied: dict[int, Any]  # see `join.Side`


def branch(domain: RecordingDomain, condition: Operand, frame: Frame) -> Any:
    """The truth of `condition` for a jump of `frame`, which has been moved to the meeting point."""
    recorder, forks = domain.recorder, domain.forks
    name, _ = frame.code.opcodes[frame.index - 1]
    here = frame is domain.machine.frame and sides.decides(name)
    if not here or recorder.is_dropped or recorder.depth >= sides.DEEPEST or forks.left <= 0:
        raise NotJoined("it is no branch that both sides of which may run")
    if (frame.code.code, frame.index - 1) in forks.kept:
        raise NotJoined("which of two tensors there is, is seen")
    with sides.running(domain, frame, "data"):
        forks.left -= 1
        made = _fork(domain, condition, frame, name)
    forks.joined += 1
    return made


def _fork(domain: RecordingDomain, condition: Operand, frame: Frame, name: str) -> Any:
    machine, recorder = domain.machine, domain.recorder
    index = frame.index - 1
    meeting, ends = sides.meeting_of(domain, frame.code, index)
    continuation = frame.continuation
    mark, record = machine.checkpoint(), recorder.mark()
    outer, may_check = recorder.premise, recorder.cx.on_check
    recorder.cx.on_check = None
    recorder.depth += 1
    done = False
    try:
        fork = _Fork(domain, condition, frame, name, ends, mark, record, outer, index)
        state = fork.joined(meeting)
        done = True
    finally:
        recorder.depth -= 1
        recorder.premise, recorder.cx.on_check = outer, may_check
        if not done:
            machine.rollback(mark)
            recorder.rollback(record)
        machine.release(mark)
    recorder.restore_facts(record)
    for guard in recorder.sizes[record.sizes :]:  # it holds in each call, whatever data decides
        recorder.cx.facts.assume(guard.condition, "a guard")
    frame.continuation = continuation
    return sides.go_on(machine, frame, name, meeting, state)


@mutable
class _Fork:
    """One branch while its sides run."""

    domain: RecordingDomain
    condition: Operand
    frame: Frame
    name: str
    ends: frozenset[int]
    mark: Mark
    record: RecorderMark
    outer: Operand | None
    position: int  # of the jump
    new: dict[Value, Value] = field(default_factory=dict)
    """What has been written there where the condition is true."""

    def joined(self, meeting: int) -> sides.State:
        """Runs both; puts together what there is then."""
        machine, recorder = self.domain.machine, self.domain.recorder
        nodes = recorder.builder.nodes
        start = len(nodes)
        yes = self._side(outcome=True)
        machine.rollback(self.mark)
        self._put_back(start, yes.tensors)
        between = recorder.mark()
        no = self._side(outcome=False)
        missing = {destination: target for destination, (target, _) in no.written.items()}
        missing = {
            destination: target
            for destination, target in missing.items()
            if destination not in yes.written
        }
        inside = {key: each for key, each in no.containers.items() if key not in yes.containers}
        before: dict[Destination, Any] = {}
        if missing or inside:  # what there was, is read; then the side runs once more
            machine.rollback(self.mark)
            before = {
                destination: _read(machine, target, destination)
                for destination, target in missing.items()
            }
            yes.containers.update(written_containers.read(inside, yes.copied))
            recorder.rollback(between)
            no = self._side(outcome=False)
        if yes.returned is not no.returned or yes.modes != no.modes:
            raise NotJoined("the sides end in different instructions or modes")
        second = between.builder.nodes
        _count_once(recorder, second, yes.tensors)
        self._choose(second, no.tensors)
        for effect in yes.moved:
            machine.heap.log(effect.fn, effect.target, effect.args)
        self._correct_versions(yes.tensors, no.tensors)
        return self._merged(yes, no, before, meeting)

    def _side(self, *, outcome: bool) -> Side:
        machine, recorder, frame = self.domain.machine, self.domain.recorder, self.frame
        recorder.restore_facts(self.record)
        recorder.cx.facts = recorder.cx.facts.fork()
        recorder.modes = self.record.modes
        recorder.premise = _both(self.outer, self.condition if outcome else _not(self.condition))
        heap, first = machine.heap, len(recorder.builder.nodes)
        known, effects = len(heap.created), len(heap.effects)
        target = frame.instructions[frame.index - 1][1]
        sides.enter(machine, frame, self.name, outcome is ("IF_TRUE" in self.name), target)
        returned, value = sides.run_until(machine, frame, self.ends)
        nodes = recorder.builder.nodes[first:]
        _refuse_nodes(recorder, nodes)
        copied: dict[int, Any] = {}
        containers = _written_containers(machine, self.mark.journal, known, copied)
        tensors: Counter[Value] = Counter()
        for write in older_writes(recorder, first):
            tensors[write.memory] += write.counts
        _refuse_kept(recorder, first, tensors)
        written: dict[Destination, tuple[Any, Any]] = {}
        moved: list[Effect] = []
        for effect in heap.effects[effects:]:
            if effect.fn is move_version:
                moved.append(effect)
                continue
            destination = _destination_of(effect.fn, effect.target, effect.args)
            written[destination] = effect.target, sides.snapshot(effect.args[1], copied)
        return Side(
            returned,
            sides.snapshot(value, copied) if outcome else value,
            [sides.snapshot(v, copied) if outcome else v for v in frame.locals],
            [sides.snapshot(v, copied) if outcome else v for v in frame.stack],
            recorder.modes,
            written,
            tensors,
            containers,
            moved,
            copied,
        )

    # ---- tensors ---------------------------------------------------------------------------------
    def _put_back(self, start: int, written: Sequence[Value] | Counter[Value]) -> None:
        """Keeps what the first side has written, and puts back what was there."""
        recorder = self.domain.recorder
        with _plainly(recorder):
            old = {x: _inserted(recorder, start, partial(_copy_of, recorder, x)) for x in written}
            self.new = {x: _copy_of(recorder, x) for x in written}
            for x in written:
                recorder.call("copy_", recorder.call("data", x), old[x])
                recorder.written[x] = None

    def _choose(self, second: int, written: Counter[Value]) -> None:
        """What is there from now on."""
        recorder = self.domain.recorder
        with _plainly(recorder):
            for x in written:
                if x not in self.new:
                    copy = partial(_copy_of, recorder, x)
                    self.new[x] = _inserted(recorder, second, copy)
            flags = {
                device: recorder.call("full", (), self.condition, bool_, device)
                for device in dict.fromkeys(x.tensor.device for x in self.new)
            }
            for x, new in self.new.items():
                here = recorder.call("data", x)
                chosen = recorder.call("where", flags[x.tensor.device], new, here)
                recorder.call("copy_", here, chosen)
                recorder.written[x] = None

    def _correct_versions(self, yes: Counter[Value], no: Counter[Value]) -> None:
        """What was written as often as by the side that does more, was so by the other one."""
        most = {x: max(yes[x], no[x]) for x in self.new}
        moves = {x: (yes[x] - times, no[x] - times) for x, times in most.items()}
        correct_versions(self.domain, self.condition, self.outer, moves)

    # ---- objects ---------------------------------------------------------------------------------
    def _merged(
        self, yes: Side, no: Side, before: Mapping[Destination, Any], meeting: int
    ) -> sides.State:
        machine = self.domain.machine
        at = self.frame.code.code, self.position
        made_inside = machine.heap.is_made_inside
        merger = _Merger(self.domain.recorder, self.condition, yes.copied, made_inside, at)
        merger.settled.update(yes.containers)
        now = {key: no.containers.get(key, each) for key, each in yes.containers.items()}
        written_containers.merge(machine, yes.containers, now, merger.value)
        for destination, (target, _) in (yes.written | no.written).items():
            b = _read(machine, target, destination)
            a = yes.written[destination][1] if destination in yes.written else before[destination]
            merged = merger.value(a, b)
            if merged is not b:
                _write(machine, target, destination, merged)
        if yes.returned:
            return sides.State(True, merger.value(yes.value, no.value), [], [])
        if len(yes.stack) != len(no.stack):
            raise NotJoined("stacks of different heights")
        live = live_slots(self.frame.code)[meeting]
        locals_ = [
            merger.value(a, b) if is_live(live, slot, a) or is_live(live, slot, b) else NULL
            for slot, (a, b) in enumerate(zip(yes.locals, no.locals))
        ]
        return sides.State(False, None, locals_, [*map(merger.value, yes.stack, no.stack)])


def correct_versions(
    domain: RecordingDomain,
    condition: Operand,
    outer: Operand | None,
    moves: Mapping[Value, tuple[int, int]],
) -> None:
    """Moves version counters by the first number where the condition holds, else by the second;
    by none where ``outer`` does not."""
    recorder, heap = domain.recorder, domain.machine.heap
    together: dict[tuple[int, int], list[TensorValue]] = {}
    for x, (yes, no) in moves.items():
        proxy = recorder.proxy_of(x)
        if proxy is not None and yes != no:
            together.setdefault((yes, no), []).append(proxy)
    for pair, tensors in together.items():
        chosen: Operand = Scalar("int", "select", (condition, *pair))
        operands = (True if outer is None else outer, chosen, 0)
        times = recorder.wrap(recorder.call("number", "select", operands))
        for tensor in tensors:
            heap.log(move_version, tensor, (times,))


def _not(condition: Operand) -> Operand:
    return Scalar("bool", "not", (condition,))


def _both(a: Operand | None, b: Operand) -> Operand:
    return b if a is None else Scalar("bool", "and", (a, b))


# ---- tensors -------------------------------------------------------------------------------------
@contextmanager
def _plainly(recorder: Recorder) -> Iterator[None]:
    """No gradient is recorded, and nothing cast."""
    with without_autocast(recorder):
        inside = recorder.modes
        recorder.modes = replace(inside, grad=False)
        try:
            yield
        finally:
            recorder.modes = inside


def _copy_of(recorder: Recorder, x: Value) -> Value:
    """What is there now; to read it moves no version counter."""
    made: Value = recorder.call("clone", recorder.call("data", x))
    return made


def _inserted(recorder: Recorder, position: int, make: Callable[[], Value]) -> Value:
    """What `make` records, as if it had been recorded at the position."""
    nodes = recorder.builder.nodes
    count = len(nodes)
    made = make()
    moved = nodes[count:]
    del nodes[count:]
    nodes[position:position] = moved
    return made


def _refuse_nodes(recorder: Recorder, nodes: Sequence[Node]) -> None:
    """On a side that is not taken, nothing raises; nor are gradients recorded, which it could make
    NaN of."""
    for node in nodes:
        if node.modes is not None and node.modes.grad:
            if any(map(_requires, node.outputs)):
                raise NotJoined(f"gradients of {node.op} are recorded")
        try:
            in_vain = is_in_vain(recorder.builder, node)
        except Undecided:
            in_vain = True
        if in_vain:
            raise NotJoined(f"{node.op} costs much, or may raise")


@frozen
class _Write:
    """A node's position, the value whose memory it writes, and whether that one's version counter
    moves."""

    position: int
    memory: Value
    counts: bool


def older_writes(recorder: Recorder, first: int) -> Iterator[_Write]:
    """What the nodes from the first on write of what was there before them."""
    nodes, makers = recorder.builder.nodes, recorder.builder.makers
    made = {value for node in nodes[first:] for value in node.outputs}
    for position, node in enumerate(nodes[first:], first):
        if not OPS[node.op].mutates:
            continue
        target = next(node.inputs())
        counts = node.modes is None or node.modes.counted
        while target in makers and _shows_its_argument(recorder, makers[target], target in made):
            counts = counts and makers[target].op not in OWN_COUNTERS
            target = next(makers[target].inputs())
        if target not in made:
            yield _Write(position, target, counts)


def _shows_its_argument(recorder: Recorder, node: Node, is_made_inside: bool) -> bool:
    """What may be a copy is taken for a view where the side has made it, as then there is no copy
    to put back."""
    row = OPS[node.op]
    if row.mutates or row.alias != "maybe":
        return bool(row.mutates) or row.alias == "view"
    if is_made_inside or lies_in_argument(recorder.cx, node, row):
        return True
    if row.views_where is not None:
        raise NotJoined("a side writes what may be a copy")
    return False


def _refuse_kept(recorder: Recorder, first: int, written: Counter[Value]) -> None:
    """What the segment has made, and a gradient that is to come may keep, is written on no side:
    eager refuses that gradient where the side is taken, and only there. Version counters of
    arguments are corrected behind the segment."""
    makers = recorder.builder.makers
    inside = {x for x, times in written.items() if times and recorder.proxy_of(x) is None}
    if not inside:
        return
    for node in recorder.builder.nodes[:first]:
        row = OPS[node.op]
        if node.modes is None or not node.modes.grad or (row.alias == "view" and not row.mutates):
            continue
        if any(_requires(v) and v not in recorder.spent for v in node.outputs):
            if any(base_of(v, makers, OPS) in inside for v in (*node.inputs(), *node.outputs)):
                raise NotJoined(f"a side writes what the gradient of {node.op} may read")


def _requires(value: Value) -> bool:
    return bool(getattr(value.type, "requires_grad", False))


def _count_once(recorder: Recorder, second: int, first: Counter[Value]) -> None:
    """A tensor that both sides have written is written as often as by the one that does more."""
    builder, left = recorder.builder, first.copy()
    for write in [*older_writes(recorder, second)]:
        if not write.counts or left[write.memory] <= 0:
            continue
        left[write.memory] -= 1
        node = builder.nodes[write.position]
        assert node.modes is not None
        modes = replace(node.modes, counted=False)
        builder.nodes[write.position] = node = replace(node, modes=modes)
        builder.makers.update(dict.fromkeys(node.outputs, node))


# ---- objects -------------------------------------------------------------------------------------
def _written_containers(
    machine: Interpreter, journal: int, known: int, copied: dict[int, Any]
) -> Containers:
    """Of what was there before, a side may write what the heap has a log of, and lists and dicts
    that the trace has made."""
    heap = machine.heap
    fresh, undone = made_since(heap.created, known), (heap.journal or [])[journal:]
    if raises_older(undone, fresh):
        raise NotJoined("a side raises what was raised before")
    return written_containers.written_in(machine, undone, fresh, copied)


def _destination_of(fn: Any, target: Any, args: tuple[Any, ...]) -> Destination:
    """What one write of the log writes."""
    if fn is ATTRIBUTE and type(target) not in PROXIES and args[0] in vars(target):
        return id(target), "attribute", args[0]
    if fn is ENTRY and type(target) in (dict, defaultdict) and is_key(args[0]):
        return id(target), "entry", args[0]
    raise NotJoined(f"a side writes to a {bare_name(type(target))}")


def _read(machine: Interpreter, target: Any, destination: Destination) -> Any:
    _, how, key = destination
    if how == "attribute":
        return machine.heap.instance_attribute(target, vars(target), key)
    return machine.heap.item_or_null(target, key)


def _write(machine: Interpreter, target: Any, destination: Destination, value: Any) -> None:
    _, how, key = destination
    if how == "attribute":
        machine.heap.set_instance_attribute(target, vars(target), key, value)
    else:
        machine.native(ENTRY, (target, key, value), {})


class _Merger(Merger):
    """Numbers are chosen when the program runs; both sides have been computed by then."""

    def __init__(
        self,
        recorder: Recorder,
        condition: Operand,
        copied: dict[int, Any],
        made_inside: Callable[[Any], bool],
        site: BranchSite,
    ) -> None:
        facts = recorder.cx.facts
        of_sizes: Any = condition  # which `_number` alone reads
        super().__init__(
            recorder,
            of_sizes,
            facts,
            facts,
            {},
            {},
            by_data=True,
            copied=copied,
            made_inside=made_inside,
        )
        self.site = site
        self.chosen: dict[tuple[Value, Value], TensorValue] = {}
        self.settled: set[int] = set()  # containers that are merged by themselves

    def value(self, a: Any, b: Any, depth: int = 6) -> Any:
        if id(b) in self.settled and self.copied.get(id(a), a) is b:
            return b
        return super().value(a, b, depth)

    def _number(self, a: Any, b: Any) -> Any:
        if isinstance(a, TensorValue) or isinstance(b, TensorValue):
            if not isinstance(a, TensorValue) or not isinstance(b, TensorValue):
                raise NotMerged("a tensor on one side only")
            return b if a.value is b.value else self._tensor(a, b)
        x, y = numbers.operand(a), numbers.operand(b)
        kind = beside_numpy.class_of(b)
        if x is None or y is None or beside_numpy.class_of(a) is not kind:
            raise NotMerged("numbers of different kinds")
        if Scalar("int", "value", (x,)) == Scalar("int", "value", (y,)) and type(x) is type(y):
            return b
        chosen = (self.condition, x, y)
        if numbers.is_int(b) and kind is not bool:
            made = self.recorder.wrap(self.recorder.call("number", "select", chosen))
            return numbers.size(made.expr, kind)
        if kind is bool:
            return ScalarValue(Scalar("bool", "select", chosen), bool)
        return ScalarValue(Scalar("float", "select", chosen), float, is_wide=kind is not float)

    def _tensor(self, a: TensorValue, b: TensorValue) -> TensorValue:
        """One tensor or the other, as long as nobody can tell (``choices.py``)."""
        known = self.chosen.get((a.value, b.value))
        if known is not None:
            return known
        if not {a.python, b.python} <= {None, Tensor} or a.attributes or b.attributes:
            raise NotMerged("tensors of other classes, or with attributes")
        _refuse_unlike(self.recorder, a.value, b.value)
        device = b.value.tensor.device
        with _plainly(self.recorder):
            flag = self.recorder.call("full", (), self.condition, bool_, device)
            made = self.recorder.call("where", flag, a.value, b.value)
        _refuse_unlike(self.recorder, made, b.value)
        choice = Choice(self.condition, a, b, self.site)
        self.chosen[a.value, b.value] = proxy = self.recorder.choices.add(made, choice)
        return proxy


def _refuse_unlike(recorder: Recorder, a: Value, b: Value) -> None:
    """The two are alike but for their elements."""
    x, y, cx = a.tensor, b.tensor, recorder.cx
    if (x.dtype, x.device, x.rank) != (y.dtype, y.device, y.rank):
        raise NotMerged("tensors of different kinds")
    if x.requires_grad or y.requires_grad:
        raise NotMerged("tensors that require gradients")
    pairs = [*zip(x.shape, y.shape), *zip(x.strides, y.strides)]
    if not all(_are_equal(cx, p, q) for p, q in pairs):
        raise NotMerged("tensors of different shapes")


def _are_equal(cx: TypeContext, a: Dim, b: Dim) -> bool:
    """Whether two sizes are; guarded where they are in the example."""
    same = eq(a, b)
    known = cx.known(same)
    if known is not None or not cx.hint(same):
        return known is True
    try:
        return cx.decide(same)
    except Undecided:
        return False
