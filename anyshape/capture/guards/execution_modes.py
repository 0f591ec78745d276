"""The modes a program runs under, as one tuple: read from torch, changed virtually while
capturing, put back in effect at run time.

In: torch's global state. Out: `snapshot()`, the tuple that one guard compares; `Modes` for the
nodes of a graph; and the writes that bring the real state to a virtual one at the end of a
segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx._symbolic_trace import is_fx_symbolic_tracing
from torch.utils._device import DeviceContext

from anyshape.capture.guards.tensor_specs import DTYPE_OF_TORCH, device_text
from anyshape.ir.graph import Modes
from anyshape.nouns import frozen, replace

_C = torch._C
_saved_tensors_hooks = _C._autograd._top_saved_tensors_default_hooks

AutocastOff = _C._DisableAutocast  # a context in which no autocast casts
AUTOCAST_DEVICES = ("cpu", "cuda")


@frozen
class TorchModes:
    """Torch's global modes at one moment. `fields` are in the order of `snapshot`."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[bool, torch.dtype], ...]
    autocast_cache: bool
    default_dtype: torch.dtype
    default_device: torch.device | None
    deterministic: bool
    matmul_precision: str
    sdpa: tuple[bool, ...]
    checkpoint: int = 0  # which call of `torch.utils.checkpoint` is being captured
    backward: bool = False  # is the backward of an `autograd.Function` being captured?
    outer: TorchModes | None = None  # those around a context (`tensors/mode_contexts.py`)
    autocast_depth: int = 0  # blocks of autocast entered since capture began, less those left

    def of_nodes(self) -> Modes:
        """The record that nodes carry."""
        enabled = tuple(
            (device, DTYPE_OF_TORCH[dtype])
            for device, (on, dtype) in zip(AUTOCAST_DEVICES, self.autocast)
            if on
        )
        device = "cpu" if self.default_device is None else device_text(self.default_device)
        backends = tuple(name for name, on in zip(SDPA_BACKENDS, self.sdpa) if not on)
        return Modes(
            self.grad,
            self.inference,
            enabled,
            DTYPE_OF_TORCH[self.default_dtype],
            device,
            self.deterministic,
            self.matmul_precision,
            tuple(f"no {name}" for name in backends),
            self.checkpoint,
            self.backward,
        )


SDPA_BACKENDS = ("flash", "mem_efficient", "math", "cudnn", "overrideable")


def _function_modes() -> tuple[Any, ...]:
    return tuple(_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack()))


def _default_device() -> torch.device | None:
    """`torch.set_default_device` works by a function mode."""
    devices = [mode.device for mode in _function_modes() if type(mode) is DeviceContext]
    return devices[-1] if devices else None


def is_traced() -> bool:
    """Whether torch records each operator or call as a program of its own."""
    return _C._is_tracing() or is_fx_symbolic_tracing()


def is_watched() -> bool:
    """Whether each operator of eager torch is seen by what no graph carries along: a mode of the
    program's, hooks for saved tensors (checkpoints have some), tangents of forward gradients, the
    detection of anomalies, `torch.jit.trace`, `torch.fx.symbolic_trace`."""
    return bool(
        is_traced()
        or _saved_tensors_hooks(True) is not None
        or forward_ad._current_level >= 0
        or _C.is_anomaly_enabled()
        or _C._len_torch_dispatch_stack()
        or any(type(mode) is not DeviceContext for mode in _function_modes())
    )


def watching() -> str:
    """What sees each operator, if it is the program's; empty for torch's own tracers."""
    if is_traced():
        return ""
    if _saved_tensors_hooks(True) is not None:
        return "hooks for saved tensors (torch.utils.checkpoint sets some)"
    if forward_ad._current_level >= 0:
        return "forward gradients"
    if _C.is_anomaly_enabled():
        return "the detection of anomalies"
    dispatch = [_C._get_dispatch_stack_at(i) for i in range(_C._len_torch_dispatch_stack())]
    if any(mode.is_infra_mode() for mode in dispatch):  # fake tensors, make_fx, torch.export
        return ""
    modes = [*dispatch, *(mode for mode in _function_modes() if type(mode) is not DeviceContext)]
    return " and ".join(dict.fromkeys(type(mode).__qualname__ for mode in modes))


def snapshot() -> tuple[Any, ...]:
    """The global modes as a flat tuple, for one comparison at the entry of compiled code."""
    depth = _C._len_torch_function_stack()
    return (
        _C.is_grad_enabled(),
        _C.is_inference_mode_enabled(),
        _C._is_any_autocast_enabled() and _autocast(),
        torch.get_default_dtype(),
        _default_device() if depth else None,
        _C._get_deterministic_algorithms(),
        _C._get_float32_matmul_precision(),
        depth and tuple(map(type, _function_modes())),
        _C._len_torch_dispatch_stack(),
        _saved_tensors_hooks(True) is not None,
        forward_ad._current_level,
        _C.is_anomaly_enabled(),
        _C._is_tracing(),
        _C._get_flash_sdp_enabled(),
        _C._get_mem_efficient_sdp_enabled(),
        _C._get_math_sdp_enabled(),
        _C._get_cudnn_sdp_enabled(),
        _C._get_overrideable_sdp_enabled(),
    )


Read = tuple[Callable[..., Any], Any, Any]
"""A function of torch's, what it is handed (`NOTHING`, or one thing), and what it gave."""
NOTHING = object()
_READS: tuple[tuple[Callable[..., Any], Any] | None, ...] = (
    (_C.is_grad_enabled, NOTHING),
    (_C.is_inference_mode_enabled, NOTHING),
    (_C._is_any_autocast_enabled, NOTHING),
    (torch.get_default_dtype, NOTHING),
    None,  # of function modes, of which there are none
    (_C._get_deterministic_algorithms, NOTHING),
    (_C._get_float32_matmul_precision, NOTHING),
    (_C._len_torch_function_stack, NOTHING),
    (_C._len_torch_dispatch_stack, NOTHING),
    (_saved_tensors_hooks, True),
    (vars(forward_ad).__getitem__, "_current_level"),
    (_C.is_anomaly_enabled, NOTHING),
    (_C._is_tracing, NOTHING),
    (_C._get_flash_sdp_enabled, NOTHING),
    (_C._get_mem_efficient_sdp_enabled, NOTHING),
    (_C._get_math_sdp_enabled, NOTHING),
    (_C._get_cudnn_sdp_enabled, NOTHING),
    (_C._get_overrideable_sdp_enabled, NOTHING),
)
"""In the order of `snapshot`: what it reads where nothing is in effect that takes more."""
_AUTOCAST, _FUNCTION_MODES, _HOOKS = 2, 7, 9


def reads_of(modes: tuple[Any, ...]) -> list[Read] | None:
    """The reads that together say whether `snapshot()` would be this; None under autocast, function
    modes and hooks for saved tensors, of which it says more."""
    if modes[_AUTOCAST] or modes[_FUNCTION_MODES] or modes[_HOOKS]:
        return None
    given = [None if index == _HOOKS else value for index, value in enumerate(modes)]
    pairs = zip(_READS, given, strict=True)
    return [(*read, value) for read, value in pairs if read is not None]


def _autocast() -> tuple[Any, ...]:
    return tuple(
        (_C.is_autocast_enabled(device), _C.get_autocast_dtype(device))
        for device in AUTOCAST_DEVICES
    )


def current_modes() -> TorchModes:
    """Torch's modes now."""
    return TorchModes(
        _C.is_grad_enabled(),
        _C.is_inference_mode_enabled(),
        _autocast(),
        _C.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        _default_device() if _C._len_torch_function_stack() else None,
        _C._get_deterministic_algorithms(),
        _C._get_float32_matmul_precision(),
        (
            _C._get_flash_sdp_enabled(),
            _C._get_mem_efficient_sdp_enabled(),
            _C._get_math_sdp_enabled(),
            _C._get_cudnn_sdp_enabled(),
            _C._get_overrideable_sdp_enabled(),
        ),
    )


def _with_autocast(
    modes: TorchModes, device: str, change: Callable[[bool, torch.dtype], tuple[bool, torch.dtype]]
) -> TorchModes:
    if device not in AUTOCAST_DEVICES:
        return modes
    index = AUTOCAST_DEVICES.index(device)
    entries = list(modes.autocast)
    entries[index] = change(*entries[index])
    return replace(modes, autocast=tuple(entries))


def _autocast_of(modes: TorchModes, device: str) -> tuple[bool, torch.dtype]:
    if device not in AUTOCAST_DEVICES:
        return _C.is_autocast_enabled(device), _C.get_autocast_dtype(device)
    return modes.autocast[AUTOCAST_DEVICES.index(device)]


def _sdpa(index: int) -> Callable[[TorchModes, bool], TorchModes]:
    def change(modes: TorchModes, on: bool) -> TorchModes:
        return replace(modes, sdpa=modes.sdpa[:index] + (on,) + modes.sdpa[index + 1 :])

    return change


def _deeper(modes: TorchModes, blocks: int) -> TorchModes:
    return replace(modes, autocast_depth=modes.autocast_depth + blocks)


# What these C functions of torch do to the virtual modes: function -> (modes, *args) -> (new
# modes, what the call returns).
Setter = Callable[..., TorchModes]
SETTERS: Mapping[Any, Setter] = {
    _C._set_grad_enabled: lambda modes, on: replace(modes, grad=on),
    _C.set_autocast_enabled: lambda modes, device, on: _with_autocast(
        modes, device, lambda _, d: (on, d)
    ),
    _C.set_autocast_dtype: lambda modes, device, dtype: _with_autocast(
        modes, device, lambda on, _: (on, dtype)
    ),
    _C.set_autocast_cache_enabled: lambda modes, on: replace(modes, autocast_cache=on),
    _C._set_default_dtype: lambda modes, dtype: replace(modes, default_dtype=dtype),
    _C._set_float32_matmul_precision: lambda modes, value: replace(modes, matmul_precision=value),
    _C._set_sdp_use_flash: lambda modes, on: _sdpa(0)(modes, on),
    _C._set_sdp_use_mem_efficient: lambda modes, on: _sdpa(1)(modes, on),
    _C._set_sdp_use_math: lambda modes, on: _sdpa(2)(modes, on),
    _C._set_sdp_use_cudnn: lambda modes, on: _sdpa(3)(modes, on),
    _C._set_sdp_use_overrideable: lambda modes, on: _sdpa(4)(modes, on),
    _C.autocast_increment_nesting: lambda modes: _deeper(modes, 1),
    _C.autocast_decrement_nesting: lambda modes: _deeper(modes, -1),
    _C.clear_autocast_cache: lambda modes: modes,
}

GETTERS: Mapping[Any, Callable[..., Any]] = {
    _C.is_grad_enabled: lambda modes: modes.grad,
    torch.is_grad_enabled: lambda modes: modes.grad,
    _C.is_inference_mode_enabled: lambda modes: modes.inference,
    _C.is_autocast_enabled: lambda modes, device="cuda": _autocast_of(modes, device)[0],
    _C.get_autocast_dtype: lambda modes, device: _autocast_of(modes, device)[1],
    _C.is_autocast_cache_enabled: lambda modes: modes.autocast_cache,
    _C._is_any_autocast_enabled: lambda modes: any(on for on, _ in modes.autocast),
    torch.get_default_dtype: lambda modes: modes.default_dtype,
    _C._get_float32_matmul_precision: lambda modes: modes.matmul_precision,
    _C._get_deterministic_algorithms: lambda modes: modes.deterministic,
    _C._get_flash_sdp_enabled: lambda modes: modes.sdpa[0],
    _C._get_mem_efficient_sdp_enabled: lambda modes: modes.sdpa[1],
    _C._get_math_sdp_enabled: lambda modes: modes.sdpa[2],
    _C._get_cudnn_sdp_enabled: lambda modes: modes.sdpa[3],
    _C._get_overrideable_sdp_enabled: lambda modes: modes.sdpa[4],
}


def apply(modes: TorchModes) -> None:
    """Make torch's real modes these (grad, autocast, default dtype, matmul precision, sdpa
    backends), so many blocks of autocast deeper than they are."""
    _C._set_grad_enabled(modes.grad)
    for device, (on, dtype) in zip(AUTOCAST_DEVICES, modes.autocast):
        _C.set_autocast_enabled(device, on)
        _C.set_autocast_dtype(device, dtype)
    _C.set_autocast_cache_enabled(modes.autocast_cache)
    _C._set_default_dtype(modes.default_dtype)
    _C._set_float32_matmul_precision(modes.matmul_precision)
    _C._set_sdp_use_flash(modes.sdpa[0])
    _C._set_sdp_use_mem_efficient(modes.sdpa[1])
    _C._set_sdp_use_math(modes.sdpa[2])
    _C._set_sdp_use_cudnn(modes.sdpa[3])
    _C._set_sdp_use_overrideable(modes.sdpa[4])
    for _ in range(modes.autocast_depth):
        _C.autocast_increment_nesting()
    for _ in range(-modes.autocast_depth):
        if _C.autocast_decrement_nesting() == 0:  # as the end of the outermost block does
            _C.clear_autocast_cache()


@contextmanager
def real(modes: TorchModes) -> Iterator[None]:
    """Torch's real modes are these inside of it."""
    before = current_modes()
    apply(modes)
    try:
        yield
    finally:
        apply(replace(before, autocast_depth=-modes.autocast_depth))
