"""Launches of the program's own Triton kernels: nodes of operators that are made for them.

In: the `run` of what `triton.jit`, `triton.autotune` or their interpreter made, called with sizes
and tensors that nobody knows. Out: a node of `user_kernels.py`. A grid may be a function of the
arguments, which is interpreted here, once for each configuration of a tuned kernel. A launch sees
the memory of tensors and nothing else of them: autograd records none of it, and no version counts
it, as in eager torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.values import PROXIES, Call, SizeValue, TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.sizes import numbers
from anyshape.capture.tensors.meta import eager_call
from anyshape.symbolic import le, maximum, minimum
from anyshape.user_kernels import (
    AXES,
    NUMBERS,
    READ,
    TENSOR,
    Launch,
    function_of,
    launch_now,
    operator_of,
    written_by,
)

RUNS = frozenset(
    {
        ("triton.runtime.jit", "JITFunction.run"),
        ("triton.runtime.interpreter", "InterpretedFunction.run"),
        ("triton.runtime.autotuner", "Autotuner.run"),
        ("triton.runtime.autotuner", "Heuristics.run"),
    }
)
"""Nothing here imports Triton."""
WRAPPERS = frozenset({("torch._library.triton", "wrap_triton")})
"""What has tracers of torch's own see a launch, and is the kernel itself for all others."""
LARGEST_POWER = 20
"""Of two: as many elements has a block of Triton's at most."""
INT64 = range(-(1 << 63), 1 << 63)


def _run(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of one of `RUNS`. What only compiles a kernel is none, and Triton itself refuses what
    has too many arguments."""
    kernel, *given = args
    launches = kwargs.get("warmup") is False and len(given) <= len(kernel.arg_names)
    return Call(launch, args, kwargs) if launches else NotImplemented


def _with_grid(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return Call(with_grid, args, kwargs)


def _wrap(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else kwargs["triton_kernel"]


# ---- interpreted ---------------------------------------------------------------------------------
def with_grid(kernel: Any, grid: Any) -> Any:
    """`kernel[grid]`."""
    return lambda *args, **kwargs: kernel.run(*args, grid=grid, warmup=False, **kwargs)


def launch(kernel: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> Any:
    """What `run` does; the kernel that it gives back where there is a GPU is None here."""
    inner, tuned = kernel, None
    heuristics: dict[str, Any] = {}
    while not isinstance(inner.fn, FUNCTION):
        if hasattr(inner, "configs"):
            tuned = inner
        elif hasattr(inner, "values"):
            heuristics = {**heuristics, **inner.values}
        inner = inner.fn
    named = {**dict(zip(kernel.arg_names, args)), **kwargs}
    for parameter in inspect.signature(inner.fn).parameters.values():
        if parameter.default is not parameter.empty:
            named.setdefault(parameter.name, parameter.default)
    if not callable(grid):
        grids = [grid]
    elif tuned is None:
        grids = [grid(with_heuristics(named, heuristics))]
    else:
        chosen = [{**named, **one.all_kwargs()} for one in tuned.configs]
        grids = [grid(with_heuristics(each, heuristics)) for each in chosen]
    sizes = [size for one in grids for size in (*one, *(1,) * (AXES - len(one)))]
    names = (*kernel.arg_names[: len(args)], *kwargs)
    launch_now(kernel, names, len(args), sizes, [*args, *kwargs.values()])


def with_heuristics(named: Any, heuristics: Any) -> Any:
    """With what the kernel's heuristics make of its arguments."""
    for name, made in heuristics.items():
        named[name] = made(named)
    return named


FUNCTION = type(launch)


# ---- native --------------------------------------------------------------------------------------
def _next_power_of_2(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Triton's own works on bits, of which an unknown size has none: the sum of powers below it
    and of 1. A block of Triton's has no more elements than the last one."""
    (size,) = (*args, *kwargs.values())
    if type(size) is not SizeValue:
        return NotImplemented
    inside = (le(0, size.expr), le(size.expr, 1 << LARGEST_POWER))
    if not all(domain.recorder.decide(condition) for condition in inside):
        return NotImplemented
    below = ((1 << n) * minimum(maximum(size.expr - (1 << n), 0), 1) for n in range(LARGEST_POWER))
    return numbers.size(sum(below, minimum(size.expr, 1)))


def _launched(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    kernel, names, positional, sizes, values = args
    mirror = domain.machine.heap.mirror
    sizes, values = [*mirror(sizes)], [*mirror(values)]
    own: list[Any] = []  # each tensor once
    positions = tuple(_position(own, value) for value in values)
    written = _written(kernel, dict(zip(names, positions, strict=True)), own)
    types = tuple(_type(domain, value, n in written) for n, value in enumerate(own))
    constants = tuple(value for value, kind in zip(own, types, strict=True) if kind is None)
    for value in constants:
        _refuse_unknown(domain, kernel, value)
    about = Launch(tuple(names), positional, positions, types, constants, len(sizes) // AXES)
    given = [_memory(domain, x) for x, kind in zip(own, types, strict=True) if kind is not None]
    eager_call(domain, operator_of(kernel, about), (*sizes, *given), {})


def _written(kernel: Any, positions: Mapping[str, int], own: list[Any]) -> set[int]:
    """The positions of tensors that the launch may write: all of them where its source does not say
    which, or says none: it may have found an address in memory."""
    tensors = {n for n, value in enumerate(own) if type(value) is TensorValue}
    names = written_by(kernel)
    said = tensors if names is None else {positions[n] for n in positions if n in names} & tensors
    return said or tensors


def _position(own: list[Any], value: Any) -> int:
    """Where a value is among those of a launch; it is added unless it is a tensor of theirs."""
    if type(value) is TensorValue:
        for n, other in enumerate(own):
            if type(other) is TensorValue and other.value is value.value:
                return n
    own.append(value)
    return len(own) - 1


def _memory(domain: RecordingDomain, value: Any) -> Any:
    """A tensor that counts no versions of the one given, and records nothing."""
    return domain.getattr(value, "data") if type(value) is TensorValue else value


def _type(domain: RecordingDomain, value: Any, is_written: bool) -> str | None:
    """What a schema calls it; None for what is the same at each launch."""
    if type(value) is TensorValue:
        return TENSOR if is_written else READ
    cls = domain.type_of(value) if type(value) in PROXIES else type(value)
    if cls is int and type(value) is int and value not in INT64:
        return None
    return NUMBERS.get(cls)


def _refuse_unknown(domain: RecordingDomain, kernel: Any, value: Any) -> None:
    """What was made in this call, or holds tensors, is not the same at each launch."""
    made = type(value) in PROXIES or id(value) in domain.machine.heap.created
    try:
        hash(value)
    except TypeError:
        made = True
    if made or isinstance(value, torch.Tensor):
        what = f"the Triton kernel {function_of(kernel).__name__}"
        raise broken("operator-unknown", what=what, why=f"it is handed {bare_name(type(value))}")


HANDLERS: Mapping[Any, Callable[..., Any]] = {launch_now: _launched}
NAMED: Mapping[tuple[str, str], Callable[..., Any]] = {
    **dict.fromkeys(RUNS, _run),
    **dict.fromkeys(WRAPPERS, _wrap),
    ("triton.runtime.jit", "KernelInterface.__getitem__"): _with_grid,
    ("triton", "next_power_of_2"): _next_power_of_2,
}
"""By module and name."""
