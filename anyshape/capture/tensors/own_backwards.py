"""`autograd.Function` where eager autograd takes the gradients: captured with its own backward.

In: a call of `apply`. Out: what its `forward` computes, in nodes that record nothing, and a node
``applied_function`` that gives the results. Its region is the function's own `backward`,
interpreted at once, with a tensor that stands for each gradient that will come.

What `backward` does besides computing gradients belongs to another time, and how a gradient lies is
not known yet; where a `backward` does such a thing, or asks that, the function is left to autograd
(``FunctionsAreSeen``). So it is where it reads what may have changed by then (``later_reads.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from anyshape.capture.heap.values import TensorValue
from anyshape.capture.recording import gradients
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.functions import Alone, Section
from anyshape.capture.tensors import autograd_functions
from anyshape.capture.tensors.aliases import Classes, memory_classes
from anyshape.capture.tensors.autograd_functions import (
    FunctionsAreSeen,
    fitted,
    left_native,
    may_require,
    refuse,
    require_fresh,
    run_forward,
    saved_tensors,
)
from anyshape.capture.tensors.later_reads import leave_section, watch_section
from anyshape.capture.tensors.reached import Reached, requires
from anyshape.capture.tensors.tensor_ops import call_row
from anyshape.ir.graph import (
    Arg,
    Graph,
    Input,
    Node,
    TensorType,
    Value,
    map_values,
    row_major,
    values_in,
)
from anyshape.nouns import replace
from anyshape.ops.gradients.backward import APPLIED
from anyshape.ops.table import OPS


# ---- the call ------------------------------------------------------------------------------------
def apply_with_backward(start: Any, cls: Any, *args: Any) -> Any:
    """Interpreted like a program's own code. ``start``: how many nodes there are."""
    ctx, made, left_alone, saved, materializes = run_forward(cls, args)
    section, cotangents = opened(ctx, args, made, left_alone, saved, materializes, start)
    try:
        with torch.no_grad():
            if cls.backward is torch.autograd.Function.backward:
                given = cls.vjp(ctx, *cotangents)
            else:
                given = cls.backward(ctx, *cotangents)
    except Exception:
        refuse("whose backward raises")
    return closed(section, given)


def opened(
    ctx: Any, args: Any, made: Any, left_alone: Any, saved: Any, materializes: Any, start: Any
) -> Any:
    """Behind `forward`: the nodes that follow are those of `backward`. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def closed(section: Any, given: Any) -> Any:
    """What `apply` gives, where `backward` has given this. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def _opened(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    ctx, handed, made, left_alone, saved, materializes, start = args
    recorder = domain.recorder
    handed = tuple(domain.seen(handed))
    several = type(made) is tuple
    outputs = list(domain.seen(made)) if several else [made]
    kept_alone = {x.value for x in domain.seen(left_alone) if type(x) is TensorValue}
    to_save = saved_tensors(domain, saved)
    require_fresh(domain, outputs, handed, start)
    if recorder.premise is not None or any(on for on, _ in recorder.modes.autocast):
        raise left_native(domain, "under autocast, or on a side of what data decides")
    results = {
        position: x.value
        for position, x in enumerate(outputs)
        if type(x) is TensorValue and x.value.dtype.is_floating and x.value not in kept_alone
    }
    if len(results) > 1 and not materializes:
        raise left_native(domain, "that may be handed no gradient (set_materialize_grads)")
    if not results:
        raise left_native(domain, "none of whose results has a gradient")
    stand_ins = {position: stand_in(domain, value) for position, value in results.items()}
    section = open_section(
        domain,
        Section(
            args=handed,
            made=tuple(outputs),
            several=several,
            results=results,
            stand_ins={position: x.value for position, x in stand_ins.items()},
            saved=tuple(x.value for x in to_save),
            borrowed=_borrowed(domain, results.values(), start),
            ctx=ctx,
        ),
    )
    cotangents = [
        stand_ins[position] if position in stand_ins else _zeros(domain, x, bool(materializes))
        for position, x in enumerate(outputs)
    ]
    return section, tuple(cotangents)


def open_section(domain: RecordingDomain, section: Section) -> Section:
    """What is interpreted from here on runs at another time."""
    recorder, heap = domain.recorder, domain.machine.heap
    section.start = len(recorder.builder.nodes)
    section.checks = len(recorder.builder.checks)
    section.effects, section.writes = len(heap.effects), heap.old_writes
    section.mark = heap.checkpoint()
    section.taken, section.layouts_read = recorder.taken, recorder.layouts_read
    recorder.taken, recorder.layouts_read = set(section.stand_ins.values()), False
    watch_section(domain, section)
    return section


def stand_in(domain: RecordingDomain, result: Value) -> TensorValue:
    """What stands for the gradient of a result: row by row, as it is handed to a region."""
    kind = result.tensor
    wanted = replace(kind, strides=row_major(kind.shape), requires_grad=False, wrapped_number=False)
    return TensorValue(Value(domain.recorder.builder.fresh_name("cotangent"), wanted))


def _zeros(domain: RecordingDomain, made: Any, materializes: bool) -> TensorValue | None:
    if type(made) is not TensorValue or not materializes:
        return None
    zeros: TensorValue = call_row(domain, "zeros_like", made)
    return zeros


def _borrowed(domain: RecordingDomain, results: Iterable[Value], start: int) -> frozenset[Value]:
    """The results that lie in memory that was there before. Two in the same are refused."""
    recorder = domain.recorder
    memory, builder = memory_classes(recorder), recorder.builder
    before = [entry.value for entry in builder.inputs]
    before += [value for node in builder.nodes[:start] for value in node.outputs]
    known = {memory.of(value) for value in before}
    found = [memory.of(value) for value in results]
    if len(set(found)) < len(found):
        raise left_native(domain, "whose results share memory")
    return frozenset(value for value in results if memory.of(value) in known)


def _closed(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    section, given = args
    made = _gradients(domain, section, given)
    nodes = section_nodes(domain, section)
    node = _applied(domain, section, nodes, made)
    results = tuple(section.results.values())
    raw = tuple(zip(results, node.outputs, strict=True))
    read = tuple(values_in(node.args[2]))
    kept = (*section.saved, *read, *node.outputs)
    unsaved = tuple(value for value in read if value not in section.saved)
    end, ctx = len(domain.recorder.builder.nodes), section.ctx
    call = Alone(raw, kept, section.borrowed, end, ctx, dict(ctx.__dict__), unsaved)
    domain.functions.alone.append(call)
    domain.functions.inside -= 1
    outputs = list(section.made)
    for position, result in zip(section.results, node.outputs):
        gradients.require(result)
        outputs[position] = TensorValue(result)
    return tuple(outputs) if section.several else outputs[0]


def section_nodes(domain: RecordingDomain, section: Section) -> list[Node]:
    """The nodes of what was interpreted since the section was opened, taken out of the graph."""
    recorder, heap = domain.recorder, domain.machine.heap
    leave_section(domain, section)
    heap.release(section.mark)
    if (len(heap.effects), heap.old_writes) != (section.effects, section.writes):
        raise left_native(domain, "whose backward does more than to compute gradients")
    nodes, sized = recorder.builder.nodes[section.start :], recorder.layouts_read
    recorder.taken, recorder.layouts_read = section.taken, section.layouts_read
    _refuse_nodes(domain, section, nodes, sized)
    del recorder.builder.nodes[section.start :]
    return nodes


def _gradients(domain: RecordingDomain, section: Section, given: Any) -> list[tuple[Value, Arg]]:
    """Each argument that requires gradients, with what `backward` has given for it."""
    parts = list(domain.seen(given)) if type(given) is tuple else [given]
    count = len(section.args)
    if len(parts) < count or any(part is not None for part in parts[count:]):
        raise left_native(domain, "whose backward gives another number of gradients")
    found: list[tuple[Value, Arg]] = []
    for x, part in zip(section.args, parts):
        if may_require(x):
            found.append((x.value, None if part is None else fitted(domain, x, part).value))
        elif part is not None and type(x) is not TensorValue:
            raise left_native(domain, "whose backward gives a gradient of what is no tensor")
    return found


def _refuse_nodes(
    domain: RecordingDomain, section: Section, nodes: Sequence[Node], sized: bool
) -> None:
    """What runs at another time has one meaning whenever it runs: it writes what it has made itself
    alone, and asks neither data nor how a gradient lies."""
    recorder = domain.recorder
    if sized:
        raise left_native(domain, "whose backward asks how a gradient lies")
    if len(recorder.builder.checks) > section.checks:
        raise left_native(domain, "whose backward tests data")
    memory = memory_classes(recorder)
    own = {memory.of(value) for node in nodes for value in node.outputs}
    before = [value for node in recorder.builder.nodes[: section.start] for value in node.outputs]
    before += [entry.value for entry in recorder.builder.inputs]
    own -= {memory.of(value) for value in (*before, *section.stand_ins.values())}
    for node in nodes:
        row = OPS.get(node.op)
        if row is None or row.resource is not None or row.name == "as_strided":
            raise left_native(domain, f"whose backward calls {node.op}")
        if row.mutates and memory.of(node.read[0]) not in own:
            raise left_native(domain, "whose backward writes in place what it did not make")
        if not all(isinstance(v.type, TensorType) for v in (*node.outputs, *node.read)):
            raise left_native(domain, "whose backward asks for a number in a tensor")


def _applied(
    domain: RecordingDomain,
    section: Section,
    nodes: Sequence[Node],
    made: Sequence[tuple[Value, Arg]],
) -> Node:
    builder = domain.recorder.builder
    results = tuple(section.results.values())
    region, captured = region_of(domain, section, nodes, tuple(g for _, g in made))
    types = tuple(replace(v.tensor, requires_grad=False) for v in results)
    args = tuple(x for x, _ in made), results, captured
    builder.modes = domain.recorder.node_modes()
    domain.recorder.here()
    found: tuple[Value, ...] = builder.append(APPLIED, args, {}, types, single=False)
    builder.nodes[-1] = node = replace(builder.nodes[-1], regions=(region,))
    builder.makers.update(dict.fromkeys(found, node))
    return node


def region_of(
    domain: RecordingDomain, section: Section, nodes: Sequence[Node], made: tuple[Arg, ...]
) -> tuple[Graph, tuple[Value, ...]]:
    """The graph of `backward`, and what it reads of the graph around it. Its nodes run in the grad
    mode in which the gradients are taken."""
    builder = domain.recorder.builder
    stand_ins = tuple(section.stand_ins.values())
    own = {*stand_ins, *(value for node in nodes for value in node.outputs)}
    read = [*(value for node in nodes for value in node.read), *values_in(made)]
    captured = tuple(dict.fromkeys(value for value in read if value not in own))
    inner = {
        value: Value(value.name, replace(value.tensor, requires_grad=False)) for value in captured
    }

    def inside(value: Value) -> Value:
        return inner.get(value, value)

    inputs = tuple(Input(value, "argument", "") for value in (*stand_ins, *inner.values()))
    rewritten = tuple(
        replace(
            node,
            args=tuple(map_values(arg, inside) for arg in node.args),
            kwargs={name: map_values(arg, inside) for name, arg in node.kwargs.items()},
            modes=None,
        )
        for node in nodes
    )
    outputs = tuple(map_values(arg, inside) for arg in made)
    facts, hints = domain.recorder.cx.facts.fork(), dict(domain.recorder.cx.hints)
    return Graph(builder.cx.space, facts, inputs, rewritten, outputs, hints), captured


# ---- the end of the segment ----------------------------------------------------------------------
def refuse_seen_memory(domain: RecordingDomain, outputs: Sequence[Arg]) -> None:
    """What functions have saved is as it was then, and nobody sees that their results lie in memory
    that others lie in. Raises ``FunctionsAreSeen``."""
    leaves = domain.functions.leaves
    if any(value in leaves for value in values_in(tuple(outputs))):
        raise FunctionsAreSeen("beside a leaf that is handed out")
    retained = domain.functions.retained
    left = [v for v in values_in(tuple(outputs)) if requires(v)]
    if retained and not Reached.of(domain, left).values.isdisjoint(retained):
        raise FunctionsAreSeen("beside what retains its gradient and is handed out")
    if not domain.functions.alone:
        return
    memory = memory_classes(domain.recorder)
    handed_out = {memory.of(value) for value in values_in(tuple(outputs))}
    outside = {memory.of(entry.value) for entry in domain.recorder.builder.inputs}
    for call in domain.functions.alone:
        kept = {memory.of(value) for value in call.kept}
        lent = {memory.of(raw) for raw, _ in call.results if raw in call.borrowed}
        given = {memory.of(result) for raw, result in call.results if raw in call.borrowed}
        if not (outside | handed_out).isdisjoint(map(memory.of, call.unsaved)):
            raise FunctionsAreSeen("whose backward reads what others may write by then")
        if call.is_ctx_written:
            raise FunctionsAreSeen("whose context is written afterwards")
        if _writes(domain, memory, call.end, kept | lent):
            raise FunctionsAreSeen("whose tensors are written in place")
        if not handed_out.isdisjoint(given) and not lent.isdisjoint(outside | handed_out):
            raise FunctionsAreSeen("that gives a view of what was there before")
        raw_alone = {memory.of(raw) for raw, _ in call.results} - lent
        if not handed_out.isdisjoint(raw_alone):
            raise FunctionsAreSeen("whose forward hands out its result")


def _writes(domain: RecordingDomain, memory: Classes, end: int, kept: set[Any]) -> bool:
    for node in domain.recorder.builder.nodes[end:]:
        row = OPS.get(node.op)
        targets = values_in(node.args[:1]) if row is not None and row.mutates else ()
        if any(memory.of(value) in kept for value in targets):
            return True
    return False


HANDLERS: dict[Any, Callable[..., Any]] = {
    **autograd_functions.HANDLERS,
    opened: _opened,
    closed: _closed,
}
