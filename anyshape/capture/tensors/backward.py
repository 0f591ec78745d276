"""`backward()` while capturing, and the attribute `.grad`.

In: the tensors that are differentiated. Out: one node `gradients`, whose results are added to the
`.grad` of the leaves that were reached, by autograd's own rules: a new object where there was none,
else a write into the one that there is. Leaves are tensors handed in, without a `grad_fn`; their
hooks are interpreted where they only compute (``tensor_hooks.py``). Whatever else autograd would
call or walk through ends the segment, and is native then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape.capture.guards.overlaps import refuse_overlaps
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import Break, Call, TensorValue
from anyshape.capture.recording import gradients
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors import autograd_functions, second_gradients, tensor_hooks
from anyshape.capture.tensors.aliases import is_any_written
from anyshape.capture.tensors.autograd_functions import Walk
from anyshape.capture.tensors.leaves import decided_flag, is_written_nowhere
from anyshape.capture.tensors.reached import (
    Reached,
    differentiated,
    not_captured,
    rely_on_leaf,
    rely_on_no_result,
    taken_leaves,
)
from anyshape.capture.tensors.tensor_ops import call_row
from anyshape.ir.graph import Value
from anyshape.nouns import replace
from anyshape.ops.gradients.backward import gone_through
from anyshape.ops.layout import numel
from anyshape.symbolic import all_of, eq


# ---- the attribute -------------------------------------------------------------------------------
def grad(domain: RecordingDomain, x: TensorValue, name: str = "grad") -> TensorValue | None:
    """`x.grad`, as it is now."""
    heap, recorder = domain.machine.heap, domain.recorder
    if domain.functions.section is not None or domain.functions.asking:
        raise autograd_functions.left_native(domain, "whose backward reads a .grad")
    if x.value in domain.functions.leaves:
        return (x.attributes or {}).get("grad")
    if x.value in domain.functions.retained:
        return (domain.functions.retained[x.value].attributes or {}).get("grad")
    known = heap.slots.get((id(x.value), "grad"))
    if known is not None:
        return known[1]
    recorder.choices.refuse_identity(x)
    source, real = recorder.source_of(x.value), recorder.real_tensor(x)
    if source is None or real is None:
        if x.value.tensor.requires_grad:  # what was retained of a result
            raise broken("tensor-attribute", "grad")
        return None
    if x.value.tensor.requires_grad:
        rely_on_no_result(domain, x)
    found = real.grad
    grad_source = recorder.sources.child(source, "attr", "grad")
    if found is None:
        recorder.guard(grad_source, "equals", None)
        return None
    if found.requires_grad:
        raise broken("tensor-attribute", "grad")
    return recorder.tensor(found, grad_source, x.value.shape)


def set_grad(domain: RecordingDomain, x: TensorValue, name: str, new: Any) -> None:
    """`x.grad = new`, for what autograd takes."""
    if domain.recorder.source_of(x.value) is None or not _is_taken(domain, x, new):
        raise broken("python-effect", "setting grad of a tensor")
    _store(domain, x, new)


def _store(domain: RecordingDomain, x: TensorValue, new: TensorValue | None) -> None:
    if x.value in domain.functions.leaves:
        x.attributes = {**(x.attributes or {}), "grad": new}
        return
    domain.identify(x)
    domain.machine.heap.set_tensor_slot(x, x.value, "grad", new)


def _is_taken(domain: RecordingDomain, x: TensorValue, new: Any) -> bool:
    if new is None:
        return True
    if type(new) is not TensorValue or new.value is x.value:
        return False
    ours, given = x.value.tensor, new.value.tensor
    if (ours.dtype, ours.device, ours.rank) != (given.dtype, given.device, given.rank):
        return False
    return domain.recorder.decide(all_of(*map(eq, ours.shape, given.shape)))


# ---- the call ------------------------------------------------------------------------------------
def _by_name(
    domain: RecordingDomain, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments; what flags follow from (`retain_graph=step < last`) is relied on."""
    given = dict(zip(names, args, strict=False)) | kwargs
    return {name: decided_flag(domain, value) for name, value in given.items()}


def tensor_backward(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`loss.backward(gradient, retain_graph, create_graph, inputs)`."""
    names = ("self", "gradient", "retain_graph", "create_graph", "inputs")
    given = _by_name(domain, names, args, kwargs)
    seeds = (given.pop("gradient", None),)
    return _backward(domain, (given.pop("self"),), seeds, given)


def backward(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.autograd.backward(tensors, grad_tensors, retain_graph, create_graph, _, inputs)`."""
    names = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
    given = _by_name(domain, names, args, kwargs)
    tensors, seeds = _several(domain, given.pop("tensors")), given.pop("grad_tensors", None)
    if type(seeds) is TensorValue or seeds is None:
        seeds = (seeds,) * len(tensors)
    return _backward(domain, tensors, tuple(domain.seen(seeds)), given)


def autograd_grad(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.autograd.grad(outputs, inputs, ...)`; `.grad` of leaves is left alone."""
    names = (
        *("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs"),
        *("allow_unused", "is_grads_batched", "materialize_grads"),
    )
    given = _by_name(domain, names, args, kwargs)
    if not domain.recorder.takes_gradients:
        return NotImplemented
    tensors = _several(domain, given.pop("outputs"))
    wanted = _several(domain, given.pop("inputs"))
    seeds = given.pop("grad_outputs", None)
    seeds = (None,) * len(tensors) if seeds is None else _several(domain, seeds)
    given.pop("only_inputs", None)
    zeros, unused = given.pop("materialize_grads", False), given.pop("allow_unused", None)
    again = _is_recorded(domain, given)
    found, retain = _walked(domain, tensors, seeds, given, again)
    if found.results or _retained(domain, found):
        raise not_captured("through an autograd.Function, or what retains its gradient")
    if not all(type(x) is TensorValue and x.value.tensor.requires_grad for x in wanted):
        raise not_captured("for what requires no gradients")
    reachable = set(found.leaves)
    for x in wanted:
        if _is_on_the_way(domain, x, found):
            reachable.add(x.value)
        else:
            rely_on_leaf(domain, x)
    reached = [x for x in wanted if x.value in reachable]
    if len(reached) < len(wanted) and not (unused or zeros):
        raise not_captured("for what it does not reach")
    made = _read(domain, tensors, seeds, reached, found, retain, again) if reached else ()
    results: dict[Value, Any]
    results = {x.value: TensorValue(value) for x, value in zip(reached, made, strict=True)}
    for x in wanted:
        if x.value not in results:
            results[x.value] = call_row(domain, "zeros_like", x) if zeros else None
    return tuple([results[x.value] for x in wanted])


def _read(
    domain: RecordingDomain,
    tensors: tuple[Any, ...],
    seeds: tuple[Any, ...],
    reached: list[TensorValue],
    found: Reached,
    retain: bool,
    again: bool,
) -> tuple[Value, ...]:
    """The gradients, of which the program may see how they lie where eager tells."""
    recorder, functions = domain.recorder, domain.functions
    known: list[second_gradients.OwnMemory | None] = [None] * len(reached)
    if functions.lays_out and functions.section is None:
        of = [x.value for x in tensors]
        given = [None if seed is None else seed.value for seed in seeds]
        leaves = [x.value for x in reached]
        known = second_gradients.layouts(recorder, of, given, leaves, again)
    orders = tuple([None if one is None else one.order for one in known])
    made = _taken(domain, tensors, seeds, reached, found, retain, again, orders)
    if again:
        for value in second_gradients.that_require(recorder, made):
            gradients.require(value)
    for value, one in zip(made, known, strict=True):
        if one is None:
            recorder.taken.add(value)
        elif one.version:
            functions.versions[value] = one.version
    return made


def _is_on_the_way(domain: RecordingDomain, x: TensorValue, found: Reached) -> bool:
    """Whether gradients surely go through what the program has made and that nothing else writes
    or watches."""
    functions, maker = domain.functions, domain.recorder.builder.makers.get(x.value)
    if maker is None or x.value not in found.values or x.python is not None:
        return False
    if functions.calls or functions.alone or functions.watched:
        return False
    return is_written_nowhere(domain, x.value)


def _is_recorded(domain: RecordingDomain, options: dict[str, Any]) -> bool:
    """Whether the gradients are to be differentiated again, as ``create_graph`` says."""
    again = options.pop("create_graph", None)
    if not again:
        return False
    modes, functions = domain.recorder.modes, domain.functions
    inside = modes.checkpoint or functions.section is not None or functions.inside
    if again is not True or inside or not modes.grad or options.get("retain_graph") is False:
        raise not_captured("with these arguments")
    options["retain_graph"] = True
    return True


def _several(domain: RecordingDomain, tensors: Any) -> tuple[Any, ...]:
    return (tensors,) if type(tensors) is TensorValue else tuple(domain.seen(tensors))


def _backward(
    domain: RecordingDomain, tensors: tuple[Any, ...], seeds: tuple[Any, ...], options: Any
) -> Any:
    ends = options.pop("inputs", None)
    ends = None if ends is None else _several(domain, ends)
    found, retain = _walked(domain, tensors, seeds, options)
    retained = _retained(domain, found)
    if ends is not None:
        at = {x.value for x in ends if type(x) is TensorValue}
        if retained or found.results or len(at) < len(ends) or not at.issubset(found.leaves):
            raise not_captured("with these inputs")
        found.ends_early = len(at) < len(found.leaves)
        found.leaves = [value for value in found.leaves if value in at]
    finish = functools.partial(_accumulate_all, domain)
    if found.results and not retained:
        return Call(autograd_functions.walk, (Walk(tensors, seeds, retain, finish),))
    hooks: dict[int, Any] = {}
    leaves = taken_leaves(domain, found, hooks)
    if not leaves or (hooks and retained):
        raise not_captured("of what the program made a leaf")
    # what cannot be added to ends the segment in front of the call
    try:
        added_to = [value for leaf in leaves for value in _added_to(domain, leaf)]
    except Break:
        if not hooks:
            raise
        raise tensor_hooks.in_order(domain, "beside a gradient that is not added to here") from None
    rows = [tuple(reversed(range(x.value.tensor.rank))) for x in retained]
    orders = *[None for _ in leaves], *rows
    made = _taken(domain, tensors, seeds, [*leaves, *retained], found, retain, orders=orders)
    results = [TensorValue(gradient) for gradient in made]
    for x, gradient in zip(retained, results[len(leaves) :], strict=True):
        _keep(domain, x, gradient)
    if hooks:
        return tensor_hooks.ask_leaves(domain, hooks, leaves, results, finish, added_to)
    finish(leaves, results[: len(leaves)])


def _retained(domain: RecordingDomain, found: Reached) -> list[TensorValue]:
    """Whose gradients are kept, of what is gone through; the segment ends where that is not all in
    one node, or what is kept is written."""
    kept = [x for value, x in domain.functions.retained.items() if value in found.values]
    if kept and (found.results or is_any_written(domain.recorder, [x.value for x in kept])):
        domain.functions.left = "beside a gradient that is retained"
        raise not_captured("which retains gradients")
    return kept


def _keep(domain: RecordingDomain, x: TensorValue, gradient: TensorValue) -> None:
    """What `retain_grad` does with a gradient: it never writes the one that there is."""
    before = (x.attributes or {}).get("grad")
    if before is not None:
        gradient = _unrecorded(domain, "add", before, gradient)
    x.attributes = {**(x.attributes or {}), "grad": gradient}


def _accumulate_all(
    domain: RecordingDomain, leaves: Sequence[TensorValue], made: Sequence[TensorValue]
) -> None:
    for leaf, gradient in zip(leaves, made, strict=True):
        _accumulate(domain, leaf, gradient)


def _walked(
    domain: RecordingDomain,
    tensors: tuple[Any, ...],
    seeds: tuple[Any, ...],
    options: Any,
    again: bool = False,
) -> tuple[Reached, bool]:
    """What is gone through, and whether it may be again. ``again``: the gradients are recorded."""
    recorder = domain.recorder
    retain = options.pop("retain_graph", None)
    if recorder.depth or any(options.values()) or retain not in (None, False, True):
        raise not_captured("with these arguments")
    if len(seeds) != len(tensors):
        raise not_captured("with these arguments")
    for x, seed in zip(tensors, seeds):
        _refuse_unfit(domain, x, seed)
    found = Reached.of(domain, [x.value for x in tensors])
    found.refuse_spent(recorder.spent)
    behind = second_gradients.lie_behind_gradients(recorder, found.values)
    replaced, nodes = recorder.replaced, recorder.builder.nodes
    if (again or behind) and replaced.meets_other_flags(nodes, (), found.values):
        raise replaced.seen()  # eager is asked below with the flags of now
    if behind:
        if found.results:
            raise not_captured("through an autograd.Function")
        of, given = [x.value for x in tensors], [None if s is None else s.value for s in seeds]
        found.leaves = second_gradients.that_get_one(recorder, of, given, found.leaves)
    return found, bool(retain)


def _taken(
    domain: RecordingDomain,
    tensors: tuple[Any, ...],
    seeds: tuple[Any, ...],
    leaves: list[TensorValue],
    found: Reached,
    retain: bool,
    again: bool = False,
    orders: tuple[tuple[int, ...] | None, ...] = (),
) -> tuple[Value, ...]:
    """The node."""
    made = differentiated(
        domain,
        [x.value for x in tensors],
        [None if seed is None else seed.value for seed in seeds],
        [leaf.value for leaf in leaves],
        retain,
        again=again,
        orders=orders if any(order is not None for order in orders) else None,
    )
    recorder, wanted = domain.recorder, {leaf.value for leaf in leaves}
    if retain:
        return made
    if wanted.issuperset(found.leaves) and not found.ends_early:
        recorder.spent.update(found.values)  # all of it, recorded gradients too
    else:
        roots = {x.value for x in tensors}
        recorder.spent |= gone_through(recorder.builder.nodes[:-1], roots, wanted)
    return made


def _refuse_unfit(domain: RecordingDomain, x: Any, seed: Any) -> None:
    """What eager raises for, natively."""
    recorder = domain.recorder
    if type(x) is not TensorValue or not x.value.tensor.requires_grad:
        raise not_captured("of what requires no gradients")
    if seed is None:
        if not recorder.decide(eq(numel(x.value.shape), 1)):
            raise not_captured("of what is no single number")
        return
    fits = type(seed) is TensorValue and seed.value.dtype is x.value.dtype
    if not fits or seed.value.tensor.requires_grad or seed.value.tensor.rank != x.value.tensor.rank:
        raise not_captured("with this gradient")
    if not recorder.decide(all_of(*map(eq, x.value.shape, seed.value.shape))):
        raise not_captured("with this gradient")


def _added_to(domain: RecordingDomain, leaf: TensorValue) -> tuple[Value, ...]:
    """What the leaf has for a gradient by now, if it has one, and another can be added to it."""
    before = grad(domain, leaf)
    if before is None:
        return ()
    if type(before) is not TensorValue or before.python not in (None, torch.Tensor):
        raise not_captured("into a tensor of a class of the program's")
    if before.value.tensor.requires_grad:
        raise not_captured("into what requires gradients itself")
    refuse_overlaps(domain.recorder.builder, "add_", (before.value, leaf.value), {})
    return (before.value,)


def _accumulate(domain: RecordingDomain, leaf: TensorValue, gradient: TensorValue) -> None:
    """What autograd does with a gradient at a leaf."""
    before = grad(domain, leaf)
    if before is None:
        _store(domain, leaf, gradient)
    else:
        _unrecorded(domain, "add_", before, gradient)


def _unrecorded(domain: RecordingDomain, name: str, *args: TensorValue) -> Any:
    recorder = domain.recorder
    modes = recorder.modes
    recorder.modes = replace(modes, grad=False)
    try:
        return call_row(domain, name, *args)
    finally:
        recorder.modes = modes


HANDLERS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.backward: tensor_backward,
    torch.autograd.backward: backward,
    torch.autograd.grad: autograd_grad,
}
