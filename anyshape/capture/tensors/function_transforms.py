"""`torch.func.grad` and `grad_and_value`, where nothing outside can tell them from
`torch.autograd.grad` of leaves.

    torch.func.grad(f)(x)
    ->
    leaf = x.detach().requires_grad_(); y = f(leaf); torch.autograd.grad(y, leaf)

In: a call of the function that does it in torch. Out: the call of ``differentiated``, which is
interpreted like a program's own code. A transform is another thing where what is handed in, or what
``f`` reads besides, requires gradients; where ``f`` does more than to compute; where it asks for
gradients itself; and where what it gives besides its value may be what was there before. There, and
where the segment would end inside, capture begins again and torch's own runs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch._functorch import apis, eager_transforms
from torch.utils import _pytree as pytree

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.effects import ENTRY, Effect, without_overwritten
from anyshape.capture.heap.undo import made_since, raises_older
from anyshape.capture.heap.values import Break, Call, TensorValue
from anyshape.capture.recording import spans
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.spans import Span
from anyshape.capture.sizes.merging import NotJoined
from anyshape.capture.sizes.written_containers import written_in
from anyshape.capture.tensors.aliases import writes_older
from anyshape.capture.tensors.leaves import leaf_made
from anyshape.capture.tensors.reached import requires
from anyshape.ir.graph import Value
from anyshape.nouns import frozen
from anyshape.ops.gradients.backward import AS_LEAF, GRADIENTS
from anyshape.ops.table import OPS


@frozen
class Opened:
    """When the transform began, and how many own functions, hooks and checkpoints there were."""

    span: Span
    functions: tuple[int, ...]


# ---- what stands for the call --------------------------------------------------------------------
def differentiated(func: Any, argnums: Any, has_aux: Any, args: Any, kwargs: Any) -> Any:
    """Interpreted like a program's own code."""
    opened = begun()
    with torch.enable_grad():
        seen, named = pytree.tree_map(inside, (args, kwargs))
        leaves, spec = pytree.tree_flatten(picked(seen, argnums))
        for leaf in leaves:
            watched(leaf)
        try:
            made = func(*seen, **named)
        except Exception:
            refused()
        if has_aux and not (isinstance(made, tuple) and len(made) == 2):
            refused()
        output, aux = made if has_aux else (made, ())
        others, spec_of_aux = pytree.tree_flatten(aux)
        ended(opened, leaves, output, others)
        if output.requires_grad:
            found = torch.autograd.grad(output, leaves, allow_unused=True, materialize_grads=True)
        else:
            found = tuple([torch.zeros_like(leaf) for leaf in leaves])
    gradients = pytree.tree_unflatten(found, spec)
    if not has_aux:
        return gradients, output.detach()
    outside = [x.detach() if x.requires_grad else x for x in others]
    return gradients, (output.detach(), pytree.tree_unflatten(outside, spec_of_aux))


def inside(x: Any) -> Any:
    """What the function sees of an argument."""
    return x.detach() if isinstance(x, torch.Tensor) else x


def picked(args: Any, argnums: Any) -> Any:
    """The arguments that are differentiated."""
    return args[argnums] if type(argnums) is int else tuple([args[i] for i in argnums])


def watched(x: Any) -> Any:
    """Makes it a leaf. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def refused() -> Any:
    """It is left to torch. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def begun() -> Any:
    """What follows is inside of the transform. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


def ended(opened: Any, leaves: Any, output: Any, others: Any) -> Any:
    """The function is left: this is its value, and what it gives besides. See ``HANDLERS``."""
    raise AssertionError("capture handles this function")


# ---- handlers ------------------------------------------------------------------------------------
def _differentiate(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recorder = domain.recorder
    busy = recorder.depth or recorder.modes.checkpoint or domain.functions.transforms
    if kwargs or len(args) != 5 or busy or not recorder.takes_gradients:
        return NotImplemented
    _, argnums, has_aux, given, _ = args
    chosen = (argnums,) if type(argnums) is int else argnums
    if type(chosen) is not tuple or type(has_aux) is not bool or not chosen:
        return NotImplemented
    known = all(type(i) is int and 0 <= i < len(given) for i in chosen)
    if not known or len({*chosen}) < len(chosen):
        return NotImplemented
    return Call(differentiated, args)


def _watched(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if type(args[0]) is not TensorValue or not leaf_made(domain, args[0]):
        raise _left("of what has no gradients")


def _refused(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise _left("of what raises")


def _left(why: str) -> Break:
    """The break, inside of a transform: capture begins again, and torch's own runs."""
    return broken("left-to-autograd", f"torch.func.grad {why}")


def _begun(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    domain.functions.transforms += 1
    return Opened(spans.begun(domain), _functions(domain))


def _functions(domain: RecordingDomain) -> tuple[int, ...]:
    """How many own functions, hooks and checkpoints there have been."""
    found = domain.functions
    counts = (len(found.calls), len(found.alone), len(found.hooked), found.inside)
    return (*counts, domain.recorder.checkpointed)


def _ended(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    opened, leaves, output, others = args
    span = opened.span
    made = {v for node in domain.recorder.builder.nodes[span.nodes :] for v in node.outputs}
    written = _writes_objects(domain, span, made)
    domain.machine.heap.release(span.journal)
    own = {x.value for x in domain.seen(leaves)}
    if written or _functions(domain) != opened.functions:
        raise _left("of what has effects")
    if not _only_computes(domain, span.nodes, own):
        raise _left("of what does more than to compute")
    if not _is_new(domain, output, made) or output.value.tensor.rank:
        raise _left("of what is no single number")
    if not all(_is_new(domain, x, made) for x in domain.seen(others)):
        raise _left("where what is given besides was there before")
    domain.functions.transforms -= 1


def _writes_objects(domain: RecordingDomain, span: Span, made: set[Value]) -> bool:
    """Whether objects that were there before are other ones now: what `functional_call` puts into a
    module it takes out again."""
    machine, heap = domain.machine, domain.machine.heap
    fresh = made_since(heap.created, span.created)
    undone = (heap.journal or [])[span.journal :]
    try:
        if raises_older(undone, fresh) or written_in(machine, undone, fresh, {}):
            return True
    except NotJoined:
        return True
    left = without_overwritten(heap.effects[span.effects :], heap.real, ())
    return not all(_puts_back(effect, made) for effect in left)


def _puts_back(effect: Effect, made: set[Value]) -> bool:
    """Whether an entry of a dict is a tensor that was there before."""
    if effect.fn is not ENTRY or effect.kwargs:
        return False
    value = effect.args[1]
    known = isinstance(value, torch.Tensor) or type(value) is TensorValue
    return known and getattr(value, "value", None) not in made


def _is_new(domain: RecordingDomain, x: Any, made: set[Any]) -> bool:
    """Whether the function has made the tensor, in memory of its own."""
    if type(x) is not TensorValue or x.python is not None or x.value not in made:
        return False
    row = OPS.get(domain.recorder.builder.makers[x.value].op)
    return row is not None and row.alias == "none" and not row.mutates


def _only_computes(domain: RecordingDomain, start: int, leaves: set[Value]) -> bool:
    """Whether the nodes differentiate nothing, write only what they have made, and read and make
    nothing that requires gradients but for the leaves and what is computed of them."""
    nodes = domain.recorder.builder.nodes
    inside = nodes[start:]
    if any(node.op not in OPS or node.op == GRADIENTS for node in inside):
        return False
    if {node.output for node in inside if node.op == AS_LEAF} != leaves:
        return False
    known = set(leaves)
    for node in inside:
        if node.op != AS_LEAF:
            read = set(filter(requires, node.inputs()))
            made = set(filter(requires, node.outputs))
            if not read <= known or (made and not read):
                return False
            known |= made
    return not writes_older(domain.recorder, start)


def _wrappers(transform: Callable[..., Any]) -> list[CodeType]:
    """The code of the function and of those that it defines."""
    code = transform.__code__
    return [code, *(each for each in code.co_consts if isinstance(each, CodeType))]


ENTERED = frozenset(
    [
        *_wrappers(apis.grad),
        *_wrappers(apis.grad_and_value),
        eager_transforms.grad_impl.__code__,
    ]
)
"""Code of torch's around the call, which is interpreted."""
HANDLERS: dict[Any, Callable[..., Any]] = {
    eager_transforms.grad_and_value_impl: _differentiate,
    watched: _watched,
    refused: _refused,
    begun: _begun,
    ended: _ended,
}
