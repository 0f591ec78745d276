"""What only eager tells of gradients: which of those that are differentiated again
(``create_graph=True``) require gradients, which leaves get some through them, and how what
``torch.autograd.grad`` gives lies in memory.

In: what capture has recorded. Out: eager's own answers. They follow from what each formula of
eager's reads, which no table here says, so the nodes in front run once more at the example sizes:
on tensors without memory ("meta"), or, as kernels choose how results lie, on zeros. Where these do
not run (data decides something), the segment ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from anyshape.capture.guards.no_alias import storage_of
from anyshape.capture.heap.values import Break
from anyshape.capture.recording.example_run import ExampleRun
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.tensors.meta import number_at, value_at
from anyshape.capture.tensors.reached import not_captured, requires
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Arg, Node, TensorType, Value
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.nouns import frozen
from anyshape.ops import OPS
from anyshape.ops.context import Undecided
from anyshape.ops.gradients.backward import GRADIENTS, SLICES_OF_A_PART
from anyshape.ops.layout import dense_order, strides_in_order
from anyshape.ops.shared_memory import base_of
from anyshape.symbolic import Condition, Dim, eq
from anyshape.torch_names import resolve
from anyshape.version_counters import version_of

UNKNOWN_SIZE = 2
HOST = "cpu"
ONE: Mapping[str, float] = MappingProxyType({"float": 1.0, "int": 1, "bool": True})


def is_differentiated_again(node: Node) -> bool:
    """Whether it computes gradients that are recorded."""
    return node.op == GRADIENTS and node.args[5] is True


def lie_behind_gradients(recorder: Recorder, values: Iterable[Value]) -> bool:
    """Whether such a node makes one of these values."""
    found = frozenset(values)
    nodes = filter(is_differentiated_again, recorder.builder.nodes)
    return any(not found.isdisjoint(node.outputs) for node in nodes)


def that_require(recorder: Recorder, made: Sequence[Value]) -> list[Value]:
    """Those of the gradients that eager records, of a node just made."""
    found = _run_again(recorder, made)
    return [value for value in made if found[value].requires_grad]


def that_get_one(
    recorder: Recorder,
    of: Sequence[Value],
    cotangents: Sequence[Value | None],
    leaves: Sequence[Value],
) -> list[Value]:
    """Those of the leaves that eager's `backward()` comes to."""
    seeds = [seed for seed in cotangents if seed is not None]
    found = _run_again(recorder, (*of, *seeds, *leaves))
    try:
        made = torch.autograd.grad(
            [found[value] for value in of],
            [found[value] for value in leaves],
            [None if seed is None else found[seed] for seed in cotangents],
            retain_graph=True,  # later gradients go through it, too
            allow_unused=True,
        )
    except Exception as error:
        if is_interrupt(error):
            raise
        raise not_captured("through gradients that eager refuses") from None
    return [leaf for leaf, gradient in zip(leaves, made, strict=True) if gradient is not None]


@frozen
class OwnMemory:
    """How a gradient lies that has its memory for itself: its dimensions, innermost first, and how
    often autograd has written it."""

    order: tuple[int, ...]
    version: int


def layouts(
    recorder: Recorder,
    of: Sequence[Value],
    cotangents: Sequence[Value | None],
    wanted: Sequence[Value],
    again: bool,
) -> list[OwnMemory | None]:
    """How eager lays these gradients out, at all sizes that are 0, 1 or more where those of the
    example are: that is guarded. None where one lies otherwise, or nobody can tell."""
    unknown: list[OwnMemory | None] = [None] * len(wanted)
    seeds = [seed for seed in cotangents if seed is not None]
    leading = (*of, *seeds, *wanted)
    run = recorder.runs.get(HOST)
    known = run if run is not None and run.goes_on(recorder.builder.nodes) else ExampleRun(HOST)
    if not _is_decided(recorder, _in_front_of(recorder, known, leading), leading):
        return unknown
    try:
        found = _run_again(recorder, leading, HOST)
        with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
            made = torch.autograd.grad(
                [found[value] for value in of],
                [found[value] for value in wanted],
                [None if seed is None else found[seed] for seed in cotangents],
                retain_graph=True,
                create_graph=again,
                allow_unused=True,
            )
    except (Break, Exception) as error:
        if is_interrupt(error):
            raise
        return unknown
    shared = recorder.runs[HOST].memory
    users = Counter(storage_of(gradient) for gradient in made if gradient is not None)
    users.update(storage for storage in [*users] if storage in shared)
    return [_own_memory(gradient, users) for gradient in made]


def _is_decided(recorder: Recorder, nodes: Sequence[Node], leading: Sequence[Value]) -> bool:
    """Whether what the layouts follow from, of nodes that have not run yet, is known when the
    segment is entered; it is guarded then."""
    read = (v for node in nodes for v in (*node.inputs(), *node.outputs))
    values = dict.fromkeys((*read, *leading))
    tensors = [value for value in values if isinstance(value.type, TensorType)]
    makers = recorder.builder.makers
    if any(value.tensor.device != HOST for value in tensors):
        return False
    handed_in = (value for value in tensors if value not in makers)
    if any(dense_order(v.shape, v.tensor.strides) is None for v in handed_in):
        return False
    conditions = dict.fromkeys(_deciding(nodes, tensors))
    try:
        known = all(recorder.cx.hint(condition) is not None for condition in conditions)
    except Undecided:
        return False
    return known and all(map(partial(_is_relied_on, recorder), conditions))


def _is_relied_on(recorder: Recorder, condition: Condition | bool) -> bool:
    """Whether it is in each call as in the example, by a guard."""
    return recorder.decide(condition) is recorder.cx.hint(condition)


def _handed_in(recorder: Recorder) -> list[Value]:
    entries = recorder.builder.inputs
    return [entry.value for entry in entries if isinstance(entry.value.type, TensorType)]


def _deciding(nodes: Sequence[Node], values: Sequence[Value]) -> Iterator[Condition | bool]:
    """What kernels and formulas ask of sizes to choose how results lie."""
    for value in values:
        for size in value.shape:
            yield from (eq(size, 0), eq(size, 1))
    for node in nodes:
        if node.op in SLICES_OF_A_PART:
            pairs = zip(node.output.shape, node.read[0].shape, strict=True)
            yield from (eq(part, whole) for part, whole in pairs)


def _own_memory(gradient: Any, users: Mapping[int, int]) -> OwnMemory | None:
    """None where others share its memory, or it has holes or repeats elements."""
    if gradient is None or users[storage_of(gradient)] > 1 or gradient.storage_offset():
        return None
    shape, strides = tuple(gradient.shape), gradient.stride()
    if not gradient.numel():  # strides say nothing of an order
        rows = strides == torch.empty(shape, device="meta").stride()
        return OwnMemory(tuple(reversed(range(len(shape)))), version_of(gradient)) if rows else None
    order = tuple(sorted(range(len(shape)), key=lambda d: (strides[d], shape[d] > 1, -d)))
    found = OwnMemory(order, version_of(gradient))
    return found if strides_in_order(shape, order) == strides else None


# ---- once more -----------------------------------------------------------------------------------
def _run_again(
    recorder: Recorder, wanted: Sequence[Value], device: str = "meta"
) -> dict[Value, Any]:
    """What stands for each value that leads to those that are wanted. What has run for gradients
    in front of these is not run again."""
    known = recorder.runs.get(device)
    tries = [ExampleRun(device)]
    if known is not None and known.nodes and known.goes_on(recorder.builder.nodes):
        tries.insert(0, known)
    for run in tries:  # anew where sizes are known by now to be others than they were taken for
        recorder.runs[device] = run
        try:
            with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
                _run_on(recorder, run, wanted)
            return run.found
        except Exception as error:
            del recorder.runs[device]
            if is_interrupt(error):
                raise
    raise not_captured("of gradients behind what needs data")


def _run_on(recorder: Recorder, run: ExampleRun, wanted: Sequence[Value]) -> None:
    sizes = defaultdict(lambda: UNKNOWN_SIZE, recorder.cx.hints)

    def number(dim: Dim) -> int:
        return number_at(recorder.cx.facts.simplify(dim), sizes)

    new = partial(_new, run.device)
    for value in _handed_in(recorder):
        if value not in run.found:
            leaf = _as_torch_lays_out(value, value_at(value, number, new))
            run.found[value] = leaf.requires_grad_(requires(value))
            run.note((value,))
    for node in _in_front_of(recorder, run, wanted):
        run_node(node, run.found, lambda arg: value_at(arg, number, new), run.device)
        run.note(node.outputs)
        run.nodes[id(node)] = node
    run.seen = tuple(recorder.builder.nodes)


def _in_front_of(recorder: Recorder, run: ExampleRun, wanted: Sequence[Value]) -> list[Node]:
    """The nodes that make these values, and write the memory that they lie in, but for those that
    have run. In front of what was seen then none is missing once all that is read stands there."""
    makers, nodes, seen = recorder.builder.makers, recorder.builder.nodes, len(run.seen)
    needed, bases = set(wanted), {base_of(value, makers, OPS) for value in wanted}
    missing = {value for value in wanted if value in makers and value not in run.found}
    found: list[Node] = []
    for position in reversed(range(len(nodes))):
        if position < seen and not missing:
            break
        node = nodes[position]
        missing.difference_update(node.outputs)
        if id(node) in run.nodes:
            continue
        row = OPS.get(node.op)
        writes = row is not None and row.mutates and base_of(node.read[0], makers, OPS) in bases
        if writes or not needed.isdisjoint(node.outputs):
            read = [*node.inputs()]
            needed.update(read)
            missing.update(v for v in read if v in makers and v not in run.found)
            bases.update(base_of(value, makers, OPS) for value in read)
            found.append(node)
    return found[::-1]


def _as_torch_lays_out(value: Value, made: torch.Tensor) -> torch.Tensor:
    """Torch takes a size of 0 for one of 1 when it counts strides."""
    order = None if made.numel() else dense_order(value.shape, value.tensor.strides)
    if order is None:
        return made
    return torch.empty_permuted(made.shape, order[::-1], dtype=made.dtype, device=made.device)


def _new(
    device: str, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    made = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    return made if device == "meta" else made.zero_()


def run_node(node: Node, found: dict[Value, Any], example: Any, device: str) -> None:
    """Runs the node in its grad mode; as ``runtime/eager_function.py`` writes it. A number that is
    known at run time alone is 1 where nothing is recorded (a rate, what an average is corrected
    by): which gradients require gradients, and how they lie, follows from no such number."""
    recorded = node.modes is None or node.modes.grad

    def argument(arg: Arg) -> Any:
        if not recorded and isinstance(arg, (Scalar, ScalarInput)):
            return ONE[arg.kind]
        if isinstance(arg, Value) and isinstance(arg.type, TensorType):
            return found[arg]
        if isinstance(arg, tuple):
            return tuple(map(argument, arg))
        return example(arg)

    named = {name: argument(arg) for name, arg in node.kwargs.items() if arg is not None}
    if "device" in named:
        named["device"] = device
    with torch.set_grad_enabled(recorded):
        made = resolve(OPS[node.op].torch)(*map(argument, node.args), **named)
    results = made if isinstance(made, (tuple, list)) else (made,)
    found.update(zip(node.outputs, results, strict=True))
