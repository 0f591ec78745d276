"""`Tensor.register_hook` and `register_post_accumulate_grad_hook`.

    %y = mul(%x, 2); %z = add(%y, 1)          and a hook on %y
    ->
    %y0 = mul(%x, 2); %y = applied_function((%y0,), (%y0,), ...) { (%c, ...) -> (hook of %c,) }; ...

In: a call on a tensor that the segment has made. Out: a node right behind the one that makes it,
whose region is the hook, interpreted at once as the backward of a function of the program's own is
(``own_backwards.py``). A tensor that was handed in is given the very hook where the segment ends.
Hooks that leaves have already are interpreted where `backward()` has the gradients of those.
Where the handle is used, or the hook does more than to compute, the program breaks. Where such a
hook of a leaf may tell in which order leaves have their gradients, or what autograd hands it, eager
torch runs the graph in front as well: ``FunctionsAreSeen.ordered``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import Break, Call, TensorValue
from anyshape.capture.interpreter import value_opcodes
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.functions import Alone, Section
from anyshape.capture.tensors.aliases import is_any_written, memory_classes
from anyshape.capture.tensors.autograd_functions import fitted, left_native, refuse
from anyshape.capture.tensors.own_backwards import (
    open_section,
    region_of,
    section_nodes,
    stand_in,
)
from anyshape.capture.tensors.reached import rely_on_no_result
from anyshape.capture.tensors.tensor_ops import call_row
from anyshape.ir.graph import Node, Value
from anyshape.nouns import mutable, replace
from anyshape.ops.gradients.backward import APPLIED
from anyshape.ops.layout import is_contiguous
from anyshape.ops.table import OPS

HOOK: Any = torch.Tensor.register_hook
AFTER: Any = torch.Tensor.register_post_accumulate_grad_hook


def hooked(x: Any, hook: Any) -> None:
    """Interpreted like a program's own code."""
    section, cotangent = begun(x)
    try:
        with torch.no_grad():
            made = hook(cotangent)
    except Exception:
        refuse("whose backward raises")
    ended(section, made)


def without_gradient(x: Any, hook: Any) -> None:
    raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")


def begun(x: Any) -> Any:
    """What follows is what the hook does. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def ended(section: Any, made: Any) -> Any:
    """The hook has given this. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


@mutable(eq=False)
class Hooked:
    """Gradients of leaves that have hooks, while these run; ``finish`` is handed what they give.
    ``added_to``: what the leaves have for gradients by now. The rest says how much there was before
    them."""

    leaves: Sequence[TensorValue]
    made: list[TensorValue]
    finish: Callable[[Sequence[TensorValue], Sequence[TensorValue]], None]
    nodes: int
    checks: int
    effects: int
    writes: int
    layouts_read: bool
    given: tuple[Value, ...]
    added_to: Sequence[Value]


def asked(state: Any, every: Any) -> None:
    """Interpreted like a program's own code: the hooks of each leaf, in their order."""
    for number, hooks, gradient in every:
        try:
            with torch.no_grad():
                for hook in hooks.values():
                    made = hook(gradient)
                    if made is not None:
                        gradient = made
        except Exception:
            refuse("whose backward raises")
        took(state, number, gradient)
    all_asked(state)


def took(state: Any, number: Any, gradient: Any) -> None:
    """What the hooks of a leaf have given. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def all_asked(state: Any) -> None:
    """There are no more hooks. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def ask_leaves(
    domain: RecordingDomain,
    hooks: Mapping[int, Any],
    leaves: Sequence[TensorValue],
    made: list[TensorValue],
    finish: Callable[[Sequence[TensorValue], Sequence[TensorValue]], None],
    added_to: Sequence[Value],
) -> Call:
    """Eager asks one leaf after the other, in an order of its own; it is all the same where hooks
    only compute, and do not ask how a gradient lies. ``hooks``: by the number of the leaf."""
    recorder, heap = domain.recorder, domain.machine.heap
    nodes, checks = len(recorder.builder.nodes), len(recorder.builder.checks)
    given = tuple([gradient.value for gradient in made])
    before = nodes, checks, len(heap.effects), heap.old_writes, recorder.layouts_read, given
    recorder.layouts_read = False
    recorder.taken.update(given)
    recorder.modes = replace(recorder.modes, backward=True)
    domain.functions.inside += 1
    domain.functions.asked = domain.functions.asking = True
    every = tuple([(number, found, made[number]) for number, found in hooks.items()])
    return Call(asked, (Hooked(leaves, made, finish, *before, added_to), every))


def in_order(domain: RecordingDomain, why: str) -> Break:
    """Capture is to begin again, and autograd to ask the hooks, in an order of its own."""
    domain.functions.inside += 1
    domain.functions.asking = True
    return left_native(domain, why)


def _took(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    state, number, given = args
    leaf, before = state.leaves[number], state.made[number]
    gradient = fitted(domain, leaf, given)
    if gradient.value.tensor.requires_grad:
        raise left_native(domain, "beside a hook that gives what requires gradients")
    if gradient.value is before.value:
        return
    is_kept = is_contiguous(domain.recorder.cx, leaf.value.tensor)
    if not is_kept or given.value.dtype is not leaf.value.dtype:
        raise left_native(domain, "beside a hook that gives a gradient of another kind")
    # autograd keeps it laid out as the leaf, in memory of its own
    kept = call_row(domain, "clone", gradient, memory_format=torch.contiguous_format)
    state.made[number] = kept


def _all_asked(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    state: Hooked = args[0]
    recorder, heap = domain.recorder, domain.machine.heap
    if (len(heap.effects), heap.old_writes) != (state.effects, state.writes):
        raise left_native(domain, "beside a hook that does more than to compute")
    nodes, checks = recorder.builder.nodes[state.nodes :], len(recorder.builder.checks)
    if recorder.layouts_read or not all(map(_only_computes, nodes)):
        raise left_native(domain, "beside a hook that draws or writes, or asks how a gradient lies")
    if checks > state.checks:
        domain.functions.asking = False
        raise left_native(domain, "beside a hook that asks data")
    recorder.layouts_read = state.layouts_read
    recorder.taken.difference_update(state.given)
    recorder.modes = replace(recorder.modes, backward=False)
    memory = memory_classes(recorder)
    added_to = {memory.of(value) for value in state.added_to}
    if any(memory.of(value) in added_to for node in nodes for value in node.inputs()):
        # eager has added to some of them by then
        raise left_native(domain, "beside a hook that reads what gradients are added to")
    domain.functions.asking = False
    state.finish(state.leaves, state.made)
    domain.functions.inside -= 1  # a break in there begins capture again


def _only_computes(node: Node) -> bool:
    """Does it make a new tensor, whatever the order in which it runs, and however what it reads
    lies?"""
    row = OPS.get(node.op)
    if row is None or row.resource is not None or row.mutates or row.alias != "none":
        return False
    return not (row.guessed or row.by_layout or row.random)


def _register_hook(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recorder = domain.recorder
    x, *rest = args
    if kwargs or len(rest) != 1 or type(x) is not TensorValue:
        raise _left(domain, HOOK.__qualname__, x)
    if not x.value.tensor.requires_grad:
        return Call(without_gradient, args)
    if not _leaves_no_handle(domain):
        raise _left(domain, f"{HOOK.__qualname__} whose handle the program keeps", x)
    if recorder.depth or recorder.modes.checkpoint:
        raise _left(domain, HOOK.__qualname__, x)
    if recorder.source_of(x.value) is not None:
        return _at_the_end(domain, torch.Tensor.register_hook, *args)
    if domain.functions.refused:
        raise _left(domain, f"{HOOK.__qualname__} {domain.functions.refused}", x)
    retained = x.value in domain.functions.retained
    if domain.functions.inside or retained or not _is_alone(domain, x.value):
        raise _left(domain, HOOK.__qualname__, x)
    domain.functions.inside += 1
    return Call(hooked, args)


def _left(domain: RecordingDomain, what: str, x: Any) -> Break:
    """The break where autograd does it. What the segment has made of the tensor is to go through
    it, as far as autograd sees."""
    own = type(x) is TensorValue and domain.recorder.source_of(x.value) is None
    domain.functions.watched |= own and x.value.tensor.requires_grad
    return broken("left-to-autograd", what)


def _register_after(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    left = broken("left-to-autograd", AFTER.__qualname__)
    if kwargs or len(args) != 2 or type(args[0]) is not TensorValue or domain.recorder.depth:
        raise left
    real = domain.recorder.real_tensor(args[0])
    if real is None or not (real.requires_grad and real.is_leaf and _leaves_no_handle(domain)):
        raise left
    if not args[0].value.tensor.requires_grad:  # it is frozen by now
        raise left
    rely_on_no_result(domain, args[0])
    _at_the_end(domain, AFTER, *args)


def retain_grad(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Tensor.retain_grad`: `backward()` is asked for the gradient of what the segment has made; a
    leaf keeps its own anyway."""
    x, recorder, functions = args[0], domain.recorder, domain.functions
    if type(x) is not TensorValue or not x.value.tensor.requires_grad:
        raise _left(domain, "Tensor.retain_grad", x)
    if x.value in functions.leaves or x.value in functions.retained:
        return
    inside = functions.inside or recorder.depth or recorder.modes.checkpoint
    if inside or functions.refused or x.python is not None or x.attributes:
        raise _left(domain, "Tensor.retain_grad", x)
    maker = recorder.builder.makers.get(x.value)
    if maker is None or maker.op == APPLIED or not _is_alone(domain, x.value):
        raise _left(domain, "Tensor.retain_grad", x)  # it is kept as hooks have made it
    functions.retained[x.value] = x


def _at_the_end(domain: RecordingDomain, register: Any, x: TensorValue, hook: Any) -> None:
    """Of what was handed in. It is not written after that, and no gradient of it is taken here."""
    domain.identify(x)
    domain.machine.heap.log(register, x, (hook,))
    functions, end = domain.functions, len(domain.recorder.builder.nodes)
    functions.hooked.add(x.value)
    functions.alone.append(Alone((), (x.value,), frozenset(), end))


def _leaves_no_handle(domain: RecordingDomain) -> bool:
    """Whether nobody looks at what the call gives."""
    frame = domain.machine.current()
    handler, _ = frame.instructions[frame.index]
    return handler is value_opcodes.pop_top


def _is_alone(domain: RecordingDomain, value: Value) -> bool:
    """Whether an operator has made the tensor as a new one, and nobody has written to it."""
    builder = domain.recorder.builder
    maker = builder.makers.get(value)
    if maker is None or OPS[maker.op].alias != "none" or OPS[maker.op].mutates:
        return False
    return not is_any_written(domain.recorder, [value])


def _begun(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    (x,) = args
    cotangent = stand_in(domain, x.value)
    stand_ins = {0: cotangent.value}
    section = Section((x,), (x,), several=False, results={0: x.value}, stand_ins=stand_ins)
    return open_section(domain, section), cotangent


def _ended(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    section, made = args
    (x,), (value,) = section.args, section.stand_ins.values()
    given = value if made is None else fitted(domain, x, made).value
    nodes = section_nodes(domain, section)
    region, captured = region_of(domain, section, nodes, (given,))
    _insert(domain, *_insertion_point(domain, x.value, captured), captured, region)
    domain.functions.inside -= 1


def _insertion_point(
    domain: RecordingDomain, value: Value, captured: tuple[Value, ...]
) -> tuple[int, Value]:
    """The number of the node that makes the tensor, and what it makes, before any hook: the first
    one is asked first. What the hook reads has been computed by then."""
    nodes = domain.recorder.builder.nodes
    made_at = {v: number for number, node in enumerate(nodes) for v in node.outputs}
    while _is_hook(nodes[made_at[value]]):
        value = nodes[made_at[value]].read[0]
    position = made_at[value]
    if any(made_at.get(v, -1) > position or v is value for v in captured):
        raise left_native(domain, "a hook of which reads what was computed since")
    return position, value


def _is_hook(node: Node) -> bool:
    return node.op == APPLIED and node.args[0] == node.args[1]


def _insert(
    domain: RecordingDomain, position: int, known: Value, captured: tuple[Value, ...], region: Any
) -> None:
    """The node takes over the value that everybody knows the tensor by."""
    recorder, functions = domain.recorder, domain.functions
    builder = recorder.builder
    maker = builder.nodes[position]
    raw = Value(builder.fresh_name(known.name), known.type)
    outputs = tuple(raw if v is known else v for v in maker.outputs)
    builder.nodes[position] = maker = replace(maker, outputs=outputs)
    modes = replace(recorder.node_modes(), grad=True)
    args = (raw,), (raw,), captured
    node = Node(APPLIED, args, {}, (known,), builder.location, modes, (region,))
    builder.nodes.insert(position + 1, node)
    builder.makers.update({**dict.fromkeys(outputs, maker), known: node})
    builder.checks[:] = [(at + (at > position), check) for at, check in builder.checks]
    for call in functions.alone:
        call.end += call.end > position
    for applied in functions.calls:
        applied.end += applied.end > position
    kept = known, *captured
    functions.alone.append(Alone((), kept, frozenset(), position + 2, unsaved=captured))


HANDLERS: dict[Any, Callable[..., Any]] = {
    HOOK: _register_hook,
    AFTER: _register_after,
    begun: _begun,
    ended: _ended,
    took: _took,
    all_asked: _all_asked,
}
