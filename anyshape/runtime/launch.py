"""Links the host code of a program to kernels, library functions and constant tensors.

In: a ``Program``, its constant tensors, a ``Builder`` of kernels. Out: ``Linked``, whose ``run`` takes the
argument inputs and returns the outputs. Nothing is looked up by name once it is linked.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from anyshape.errors import AnyshapeError
from anyshape.ir.loops import Kernel, PointerParam, ScalarParam, SizeParam
from anyshape.ir.program import CheckStep, Program
from anyshape.runtime.build import Builder

EmitHost = Callable[[Program, Mapping[Kernel, str]], Any]
EmitKernel = Callable[[Kernel, str], str]


class CheckFailed(Exception):
    """A condition that the segment relied on is false; the segment has not happened."""

    def __init__(self, step: CheckStep) -> None:
        super().__init__(step.message)
        self.step = step


@dataclass(frozen=True, slots=True)
class Linked:
    """A program that runs. ``parameters`` name what ``run`` takes; ``host`` and ``kernels`` are text."""

    run: Callable[..., tuple[Any, ...]]
    parameters: tuple[str, ...]
    host: str
    kernels: Mapping[str, str]


def link(
    program: Program,
    constants: Mapping[str, torch.Tensor],
    builder: Builder,
    kernel_name: Callable[[Kernel], str],
    emit_kernel: EmitKernel,
    emit_host: EmitHost,
) -> Linked:
    """Compiles what is not loaded yet and returns the running program."""
    names = {kernel: kernel_name(kernel) for kernel in program.kernels()}
    texts = {name: emit_kernel(kernel, name) for kernel, name in names.items()}
    argtypes = {name: c_argument_types(kernel) for kernel, name in names.items()}
    functions = builder.functions(texts, argtypes) if texts else {}
    code = emit_host(program, names)
    resolve = _Resolver(constants, functions, names)
    namespace = {name: resolve(kind, what) for name, (kind, what) in code.names.items()}
    exec(compile(code.text, "<anyshape host code>", "exec"), namespace)
    return Linked(namespace["run"], code.parameters, code.text, texts)


def c_argument_types(kernel: Kernel) -> Sequence[type]:
    """The ctypes of a kernel's parameters, in order."""
    types: dict[type, Callable[[Any], type]] = {
        PointerParam: lambda _: ctypes.c_void_p,
        SizeParam: lambda _: ctypes.c_int64,
        ScalarParam: lambda p: ctypes.c_double if p.dtype.is_floating else ctypes.c_int64,
    }
    return [types[type(param)](param) for param in kernel.params]


@dataclass(frozen=True, slots=True)
class _Resolver:
    constants: Mapping[str, torch.Tensor]
    functions: Mapping[str, Any]
    kernel_names: Mapping[Kernel, str]

    def __call__(self, kind: str, what: Any) -> Any:
        match kind:
            case "function":
                return RUNTIME_FUNCTIONS.get(what) or resolve_dotted(what)
            case "kernel":
                return self.functions[self.kernel_names[what]]
            case "dtype":
                return getattr(torch, what.name)
            case "constant":
                return self.constants[what]
            case "pointer":
                return self.constants[what].data_ptr()
            case "module":
                return importlib.import_module(what)
            case "step":
                return what
        raise AnyshapeError("E901", what=f"unknown reference {kind!r} in host code")


def resolve_dotted(name: str) -> Any:
    """The object that dotted text names: ``torch.nn.functional.linear``, ``torch.Tensor.add``."""
    parts = name.split(".")
    for stop in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:stop]))
        except ModuleNotFoundError:
            continue
        for part in parts[stop:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


def check_failed(step: CheckStep) -> NoReturn:
    """Raises ``CheckFailed``; the trampoline runs the segment again in the concrete domain."""
    raise CheckFailed(step)


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor with the strides that eager would give it: itself, or a copy."""
    if tensor.numel() == 0 or _same_layout(tensor, strides):
        return tensor
    result = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)


def _same_layout(tensor: torch.Tensor, strides: tuple[int, ...]) -> bool:
    pairs = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def _empty_cpu(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype)


# torch's own short way to an uninitialised CPU tensor, a third of the cost; private, so with a substitute.
_fast_empty_cpu = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", _empty_cpu)  # noqa: SLF001

RUNTIME_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "anyshape.empty_cpu": _fast_empty_cpu,
    "anyshape.with_strides": with_strides,
    "anyshape.check_failed": check_failed,
    "anyshape.bump_version": torch.autograd.graph.increment_version,
}
