"""`autograd.Function` where gradients are recorded and the segment differentiates them itself.

In: a call of `apply`. Out: what its `forward` computes, in nodes that record nothing, and a node
`function_result` for each result that requires gradients. `backward()` goes from its tensors to
such results as to leaves, has the function's own `backward` interpreted with their cotangents, and
goes on from the function's arguments (``walk``).

Where a segment ends before all of them are differentiated, or where eager torch does what is not
known here, capture begins again without this (``FunctionsAreSeen``): first with the functions' own
backwards in the graph (``own_backwards.py``), and where that is not known either, `apply` runs
natively.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import Break, Call, OpaqueValue, TensorValue
from anyshape.capture.recording import gradients
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.functions import Applied, Functions
from anyshape.capture.tensors import torch_polyfills
from anyshape.capture.tensors.aliases import memory_classes
from anyshape.capture.tensors.reached import Reached, differentiated, requires, taken_leaves
from anyshape.capture.tensors.tensor_ops import call_row
from anyshape.ir.graph import Arg, Value, values_in
from anyshape.nouns import mutable, replace
from anyshape.ops.gradients.backward import FUNCTION_RESULT
from anyshape.ops.table import OPS
from anyshape.symbolic import all_of, eq
from anyshape.torch_names import torch_dtype

NOT_HERE = "whose gradients are taken outside of the segment"


class FunctionsAreSeen(BaseException):
    """A function was captured whose gradients the segment does not take; ``why`` not. ``ordered``:
    what hooks of leaves do may tell in which order these have their gradients."""

    def __init__(self, why: str, ordered: bool = False) -> None:
        self.why, self.ordered = why, ordered


# ---- the call ------------------------------------------------------------------------------------
class Recorded(torch_polyfills.Context):
    """What `forward` and `backward` are handed."""

    def __init__(self, needed: tuple[bool, ...]) -> None:
        self.needs_input_grad = needed

    @property
    def saved_tensors(self) -> Any:
        return getattr(self, "to_save", ())


def apply_recorded(start: Any, cls: Any, *args: Any) -> Any:
    """Interpreted like a program's own code. ``start``: how many nodes there are."""
    ctx, made, left_alone, saved, materializes = run_forward(cls, args)
    return applied(cls, ctx, args, made, left_alone, saved, materializes, start)


def run_forward(cls: Any, args: Any) -> Any:
    """What `forward` gives, and what it has said to its ctx. Interpreted, too."""
    ctx = Recorded(needed(args))
    with torch.no_grad():
        if cls.setup_context is torch.autograd.Function.setup_context:
            made = cls.forward(ctx, *args)
        else:
            made = cls.forward(*args)
            cls.setup_context(ctx, args, made)
    left_alone = getattr(ctx, "non_differentiable", ())
    if getattr(ctx, "dirty_tensors", ()):
        refuse("that writes an argument (mark_dirty)")
    if hasattr(ctx, "saved_for_forward"):
        refuse("with save_for_forward")
    saved = getattr(ctx, "to_save", ())
    return ctx, made, left_alone, saved, getattr(ctx, "materialize_grads", True)


def needed(args: Any) -> Any:
    """Which arguments require gradients. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def refuse(why: str) -> Any:
    """The function is to run natively. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def applied(
    cls: Any,
    ctx: Any,
    args: Any,
    made: Any,
    left_alone: Any,
    saved: Any,
    materializes: Any,
    start: Any,
) -> Any:
    """What `apply` gives. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def _apply(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`autograd.Function.apply`: without gradients its `forward`."""
    recorder = domain.recorder
    if kwargs:
        return NotImplemented
    if not recorder.modes.grad or not any(map(may_require, args)):
        return Call(torch_polyfills.apply_forward, args)
    if domain.functions.refused:
        raise broken("left-to-autograd", f"autograd.Function.apply {domain.functions.refused}")
    if recorder.depth or recorder.modes.checkpoint:
        return NotImplemented
    if not all(type(x) is TensorValue or not may_require(x) for x in args):
        return NotImplemented
    domain.functions.inside += 1
    apply = domain.functions.apply or apply_recorded
    return Call(apply, (len(recorder.builder.nodes), *args))


def may_require(value: Any) -> bool:
    """Whether it is a tensor that requires a gradient, or one that nothing is known of."""
    if type(value) is TensorValue:
        return bool(value.value.tensor.requires_grad)
    if type(value) is OpaqueValue:
        return issubclass(value.kind, torch.Tensor)
    return issubclass(type(value), torch.Tensor) and value.requires_grad


def _needed(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return tuple(map(may_require, domain.seen(args[0])))


def _refuse(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise left_native(domain, args[0])


def _applied(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    cls, ctx, given, made, left_alone, saved, materializes, start = args
    recorder = domain.recorder
    given = tuple(domain.seen(given))
    several = type(made) is tuple
    outputs = list(domain.seen(made)) if several else [made]
    kept = {x.value for x in domain.seen(left_alone) if type(x) is TensorValue}
    to_save = saved_tensors(domain, saved)
    require_fresh(domain, outputs, given, start)
    results: dict[int, Value] = {}
    number = len(domain.functions.calls)
    for position, x in enumerate(outputs):
        if type(x) is not TensorValue:
            if x is not None:
                raise left_native(domain, "that gives what is no tensor")
            continue
        if not x.value.dtype.is_floating or x.value in kept:
            continue
        outputs[position] = call_row(domain, FUNCTION_RESULT, x, number)
        gradients.require(outputs[position].value)
        results[position] = outputs[position].value
    kept_alone = (*(x.value for x in to_save), *results.values())
    end = len(recorder.builder.nodes)
    call = Applied(cls, ctx, given, tuple(outputs), results, kept_alone, end, bool(materializes))
    domain.functions.calls.append(call)
    domain.functions.inside -= 1
    return tuple(outputs) if several else outputs[0]


def saved_tensors(domain: RecordingDomain, saved: Any) -> list[TensorValue]:
    found = [x for x in domain.seen(saved) if x is not None]
    if not all(type(x) is TensorValue for x in found):
        raise left_native(domain, "that saves what is no tensor")
    return found


def require_fresh(
    domain: RecordingDomain, outputs: Sequence[Any], given: Sequence[Any], start: int
) -> None:
    """Autograd says of a tensor that it is the function's, wherever it was before, and once."""
    fresh = {v for node in domain.recorder.builder.nodes[start:] for v in node.outputs}
    fresh |= {x.value for x in given if type(x) is TensorValue}
    made = [x.value for x in outputs if type(x) is TensorValue]
    if not fresh.issuperset(made) or len(set(made)) < len(made):
        raise left_native(domain, "that gives a tensor twice, or one that was there before")


def left_native(domain: RecordingDomain, why: str) -> Break:
    """Capture is to begin again, and leave calls of `apply` to autograd."""
    domain.functions.left = why
    return broken("left-to-autograd", f"autograd.Function.apply {why}")


def why_native(functions: Functions) -> str:
    """Why a segment that ends now may not have captured what it has of functions; "" if it may."""
    if functions.left:
        return functions.left
    if functions.inside:
        return "whose forward or backward breaks the graph"
    return "" if all(call.is_spent for call in functions.calls) else NOT_HERE


def refuse_unspent(domain: RecordingDomain, outputs: Sequence[Arg]) -> None:
    """At the end of a segment every function that was captured has been differentiated, by all that
    is handed out of what it led to."""
    recorder = domain.recorder
    if why := why_native(domain.functions):
        raise FunctionsAreSeen(why)
    left = [v for v in values_in(tuple(outputs)) if requires(v) and v not in recorder.spent]
    if domain.functions.calls and Reached.of(domain, left).results:
        raise FunctionsAreSeen(NOT_HERE)


# ---- backward ------------------------------------------------------------------------------------
@mutable(eq=False)
class Walk:
    """What `backward()` has come to: the cotangents of results, and the gradients of leaves, as far
    as there are some. ``pending`` are tensors that it has not gone through, with a cotangent each.
    """

    tensors: tuple[TensorValue, ...]
    seeds: tuple[TensorValue | None, ...]
    retain: bool
    finish: Callable[[list[TensorValue], list[TensorValue]], None]
    found: dict[Value, TensorValue] = field(default_factory=dict)
    leaves: dict[Value, TensorValue] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)  # functions, by their number
    values: set[Value] = field(default_factory=set)  # all that is gone through


def walk(state: Any) -> None:
    """Interpreted like a program's own code: the functions that `backward()` reaches, the one that
    was called last first."""
    number = enter(state)
    while number >= 0:
        cls, ctx, cotangents = latest(state, number)
        with torch.no_grad():
            if cls.backward is torch.autograd.Function.backward:
                made = cls.vjp(ctx, *cotangents)
            else:
                made = cls.backward(ctx, *cotangents)
        number = took(state, number, made)


def enter(state: Any) -> Any:
    """Goes to the first functions; the number of the next one, -1 where there is none."""
    raise AssertionError("capture handles this function")


def latest(state: Any, number: Any) -> Any:
    """The function, its context and its cotangents."""
    raise AssertionError("capture handles this function")


def took(state: Any, number: Any, made: Any) -> Any:
    """What its `backward` has given; the number of the next one."""
    raise AssertionError("capture handles this function")


def _enter(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    state: Walk = args[0]
    recorder = domain.recorder
    recorder.modes = replace(recorder.modes, backward=True)
    return _go_from(domain, state, list(zip(state.tensors, state.seeds)))


def _latest(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    state, number = args
    call = domain.functions.calls[number]
    _refuse_written(domain, call)
    cotangents: list[TensorValue | None] = [None] * len(call.made)
    for position, made in enumerate(call.made):
        value = call.results.get(position)
        cotangents[position] = None if value is None else state.found.get(value)
        if cotangents[position] is None and call.materializes and made is not None:
            cotangents[position] = call_row(domain, "zeros_like", made)
    return call.function, call.ctx, tuple(cotangents)


def _took(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    state, number, made = args
    call = domain.functions.calls[number]
    given = list(domain.seen(made)) if type(made) is tuple else [made]
    count = len(call.args)
    if len(given) < count or any(g is not None for g in given[count:]):
        raise left_native(domain, "whose backward gives another number of gradients")
    of: list[tuple[TensorValue, Any]] = []
    for x, gradient in zip(call.args, given):
        if may_require(x):
            of.append((x, _NONE if gradient is None else fitted(domain, x, gradient)))
        elif gradient is not None and type(x) is not TensorValue:
            raise left_native(domain, "whose backward gives a gradient of what is no tensor")
    call.is_spent = not state.retain
    state.waiting.discard(number)
    return _go_from(domain, state, of)


def fitted(domain: RecordingDomain, x: TensorValue, gradient: Any) -> TensorValue:
    """As autograd takes it: of the argument's size, in its dtype."""
    wanted = x.value.tensor
    if type(gradient) is not TensorValue or not gradient.value.dtype.is_floating:
        raise left_native(domain, "whose backward gives what is no gradient")
    given = gradient.value.tensor
    fits = given.rank == wanted.rank and given.device == wanted.device
    if not fits or not domain.recorder.decide(all_of(*map(eq, given.shape, wanted.shape))):
        raise left_native(domain, "whose backward gives a gradient of another size")
    if given.dtype is not wanted.dtype:
        gradient = call_row(domain, "to_dtype", gradient, torch_dtype(wanted.dtype))
    return gradient


def _go_from(
    domain: RecordingDomain, state: Walk, pending: Sequence[tuple[TensorValue, Any]]
) -> int:
    """From these tensors to the functions and leaves behind them; the function that is next. At the
    end leaves are given what was found."""
    recorder = domain.recorder
    every = Reached.of(domain, [x.value for x, _ in pending])
    every.refuse_spent(recorder.spent)
    state.values |= every.values
    numbers = {
        v: number for number, c in enumerate(domain.functions.calls) for v in c.results.values()
    }
    state.waiting |= {numbers[value] for value in every.results}
    given = [(x, g) for x, g in pending if g is not _NONE]
    if given:
        _differentiate(domain, state, given)
    if state.waiting:
        return max(state.waiting)
    recorder.modes = replace(recorder.modes, backward=False)
    if not state.retain:
        recorder.spent.update(state.values)
    order = [entry.value for entry in recorder.builder.inputs]
    order += domain.functions.leaves
    reached = sorted(state.leaves, key=order.index)
    state.finish([state.leaves[v] for v in reached], [state.found[v] for v in reached])
    return -1


def _differentiate(
    domain: RecordingDomain, state: Walk, given: Sequence[tuple[TensorValue, Any]]
) -> None:
    """The node, and what it gives added to what was found."""
    found = Reached.of(domain, [x.value for x, _ in given])
    leaves = taken_leaves(domain, found)
    wanted = [*(leaf.value for leaf in leaves), *found.results]
    made = differentiated(
        domain,
        [x.value for x, _ in given],
        [None if g is None else g.value for _, g in given],
        wanted,
        state.retain,
        more=bool(state.waiting),
    )
    state.leaves.update({leaf.value: leaf for leaf in leaves})
    for value, gradient in zip(wanted, made, strict=True):
        new, before = TensorValue(gradient), state.found.get(value)
        state.found[value] = new if before is None else call_row(domain, "add", before, new)


def _refuse_written(domain: RecordingDomain, call: Applied) -> None:
    """What it was handed, has saved and has given is as it was then."""
    recorder = domain.recorder
    memory = memory_classes(recorder)
    given = (x.value for x in call.args if type(x) is TensorValue and may_require(x))
    kept = {memory.of(value) for value in (*call.saved, *given)}
    for node in recorder.builder.nodes[call.end :]:
        row = OPS.get(node.op)
        targets = values_in(node.args[:1]) if row is not None and row.mutates else ()
        if any(memory.of(value) in kept for value in targets):
            raise left_native(domain, "whose tensors are written in place")


_NONE: Any = object()
"""The gradient of a tensor that has none; None is that of a number, 1."""

HANDLERS: dict[Any, Callable[..., Any]] = {
    torch_polyfills.APPLY: _apply,
    needed: _needed,
    refuse: _refuse,
    applied: _applied,
    enter: _enter,
    latest: _latest,
    took: _took,
}
