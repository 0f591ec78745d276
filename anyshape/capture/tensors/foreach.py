"""Operators on lists of tensors, and optimizers' steps in one operator, a tensor at a time.

    torch._foreach_addcdiv_(params, averages, roots, scales)
    ->
    for p, a, r, s in zip(params, averages, roots, scales): p.addcdiv_(a, r, value=s)

Scheduling makes few kernels of them again. On the CPU torch itself does them one by one, so that
results are the same to the bit; a fused step computes in float32, rounds what it stores, and counts
no versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import Call, TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors.outs import all_or_nothing
from anyshape.capture.tensors.tensor_methods import call_torch

Handler = Callable[[RecordingDomain, tuple[Any, ...], dict[str, Any]], Any]
PREFIX = "_foreach_"
OTHER_NAMES: Mapping[str, Any] = {
    "norm": torch.linalg.vector_norm,
    "maximum": torch.clamp_min,
    "minimum": torch.clamp_max,
}
"""Where what is done to a tensor has another name, or another one where the operand is a number."""
GIVES_ITS_LIST = getattr(torch, "_foreach_zero_")([torch.zeros(())]) is not None  # noqa: B009
"""Whether what is done in place gives the list it was handed; older versions of torch give None."""
LAST_BY_NAME = frozenset({"addcmul", "addcdiv"})
"""The number that comes last there is an option of the operator on one tensor."""


def _handler(name: str) -> Handler | None:
    """What `torch._foreach_name` does; None where there is no such operator on one tensor."""
    plain = name.removesuffix("_")
    one = OTHER_NAMES.get(plain) if name == "norm" else getattr(torch.Tensor, name, None)
    if one is None:
        return None

    def handle(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first, *rest = map(domain.seen, args)
        if not isinstance(first, (list, tuple)):
            raise _unknown(name)
        if not first:
            why = "eager refuses a list of no tensors"
            raise broken("operator-raises", what=f"torch.{PREFIX}{name}", why=why)
        options = {key: domain.seen(value) for key, value in kwargs.items()}
        if plain in LAST_BY_NAME and len(rest) == 3:
            options["value"] = rest.pop()
        written = tuple(first) if name.endswith("_") else ()
        with all_or_nothing(domain, written):  # eager may refuse the last before it writes one
            made = [
                _call(domain, name, one, x, [_part(name, arg, i, len(first)) for arg in rest],
                      {key: _part(name, value, i, len(first)) for key, value in options.items()})
                for i, x in enumerate(first)
            ]  # fmt: skip
        if name.endswith("_"):
            return args[0] if GIVES_ITS_LIST else None
        return tuple(made)

    return handle


def _part(name: str, arg: Any, index: int, count: int) -> Any:
    """What of an argument belongs to the tensor at a position."""
    if not isinstance(arg, (list, tuple)):
        if type(arg) is TensorValue and arg.value.tensor.rank:
            raise _unknown(name)
        return arg
    if len(arg) != count:
        raise _unknown(name)
    return arg[index]


def _call(
    domain: RecordingDomain,
    name: str,
    one: Any,
    x: Any,
    rest: list[Any],
    options: dict[str, Any],
) -> Any:
    plain = name.removesuffix("_")
    number = plain in ("maximum", "minimum") and type(rest[0]) is not TensorValue
    if number and name != plain:
        raise _unknown(name)
    made = call_torch(domain, OTHER_NAMES[plain] if number else one, (x, *rest), options)
    if made is NotImplemented:
        raise _unknown(name)
    return made


def _unknown(name: str) -> Any:
    return broken("unknown-call", f"torch.{PREFIX}{name}")


# ---- steps in one operator -----------------------------------------------------------------------
def _wide(x: Any) -> Any:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def unscaled(grad: Any, grad_scale: Any, found_inf: Any) -> Any:
    """The gradient of a loss that was not scaled, which is stored, too."""
    if grad_scale is None:
        return _wide(grad)
    wide = _wide(grad) / grad_scale
    store(grad, wide, found_inf)
    return wide


def store(target: Any, new: Any, found_inf: Any) -> None:
    """Nothing is written where a gradient is infinite."""
    target.data.copy_(new if found_inf is None else torch.where(found_inf == 1, target, new))


def fused_adam(
    params: Any, grads: Any, averages: Any, squares: Any, greatest: Any, steps: Any,
    lr: Any, beta1: Any, beta2: Any, weight_decay: Any, eps: Any, amsgrad: Any, maximize: Any,
    decoupled: Any, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    """ATen's kernel, a tensor at a time. Nothing is read by the host, so that all that is stored of
    a parameter is one kernel's."""
    if isinstance(lr, torch.Tensor):
        lr = lr.double()
    for i, param in enumerate(params):
        new, grad = _wide(param), unscaled(grads[i], grad_scale, found_inf)
        average, square = _wide(averages[i]), _wide(squares[i])
        step = steps[i].double()
        size = (-lr / (1 - beta1**step)).to(new.dtype)
        correction = (1 - beta2**step).sqrt().to(new.dtype)
        if maximize:
            grad = -grad
        if decoupled:
            new = new * (1 - lr * weight_decay)
        elif weight_decay != 0:
            grad = grad.add(new, alpha=weight_decay)
        average = average.lerp(grad, 1 - beta1)
        square = (square * beta2).addcmul(grad, grad, value=1 - beta2)
        most = square
        if amsgrad:
            most = torch.maximum(_wide(greatest[i]), square)
            store(greatest[i], most, found_inf)
        root = most.sqrt() / correction + eps
        store(averages[i], average, found_inf)
        store(squares[i], square, found_inf)
        store(param, new + size * average / root, found_inf)


def fused_sgd(
    params: Any, grads: Any, buffers: Any, weight_decay: Any, momentum: Any, lr: Any,
    dampening: Any, nesterov: Any, maximize: Any, is_first_step: Any, grad_scale: Any = None,
    found_inf: Any = None,
) -> None:  # fmt: skip
    """ATen's kernel, a tensor at a time."""
    if isinstance(lr, torch.Tensor):
        lr = lr.item()
    for i, param in enumerate(params):
        old, grad = _wide(param), unscaled(grads[i], grad_scale, found_inf)
        if maximize:
            grad = -grad
        if weight_decay != 0:
            grad = grad.add(old, alpha=weight_decay)
        if momentum != 0:
            momentum_buffer = grad if is_first_step else _wide(buffers[i]) * momentum
            if not is_first_step:
                momentum_buffer = momentum_buffer.add(grad, alpha=1 - dampening)
            store(buffers[i], momentum_buffer, found_inf)
            grad = grad.add(momentum_buffer, alpha=momentum) if nesterov else momentum_buffer
        store(param, old.add(grad, alpha=-lr), found_inf)


def unscale(grads: Any, found_inf: Any, inv_scale: Any) -> None:
    """ATen's kernel: what is not finite is seen before it is multiplied."""
    finite = found_inf == 0
    for grad in grads:
        finite = finite & torch.isfinite(grad).all()
        grad.mul_(inv_scale)
    found_inf.copy_(torch.where(finite, found_inf, 1.0))


def update_scale(
    scale: Any, growth_tracker: Any, found_inf: Any, growth_factor: Any, backoff_factor: Any,
    growth_interval: Any,
) -> Any:  # fmt: skip
    """ATen's kernel: the factor is a double, and the scale stays finite."""
    infinite = found_inf != 0
    grows = growth_tracker + 1 == growth_interval
    wide = scale.double()
    larger = (wide * growth_factor).to(scale.dtype)
    larger = torch.where(grows & torch.isfinite(larger), larger, scale)
    scale.copy_(torch.where(infinite, (wide * backoff_factor).to(scale.dtype), larger))
    growth_tracker.copy_(torch.where(infinite | grows, 0, growth_tracker + 1))
    return scale


def _polyfill(polyfill: Callable[..., Any], **fixed: Any) -> Handler:
    def handle(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return Call(polyfill, args, {**kwargs, **fixed})

    return handle


HANDLERS: dict[Any, Handler] = {
    function: handler
    for function, handler in (
        (getattr(torch, name), _handler(name.removeprefix(PREFIX)))
        for name in dir(torch)
        if name.startswith(PREFIX)
    )
    if handler is not None
} | {
    torch._fused_adam_: _polyfill(fused_adam, decoupled=False),
    torch._fused_adamw_: _polyfill(fused_adam, decoupled=True),
    torch._fused_sgd_: _polyfill(fused_sgd),
    torch._amp_foreach_non_finite_check_and_unscale_: _polyfill(unscale),
    torch._amp_update_scale_: _polyfill(update_scale),
}
