"""Links the host code of a program to kernels, library functions and constant tensors.

In: ``Code``, the program's constant tensors, a ``Builder``. Out: ``Linked``, whose ``run`` takes the
argument inputs and returns the outputs. Nothing is looked up by name once it is linked.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from anyshape.errors import AnyshapeError
from anyshape.ir.code import Code
from anyshape.ir.program import CheckStep
from anyshape.runtime.build import Builder


class CheckFailed(Exception):
    """A condition that the segment relied on is false; the segment has not happened."""

    def __init__(self, step: CheckStep) -> None:
        super().__init__(step.message)
        self.step = step


@dataclass(frozen=True, slots=True)
class Linked:
    """A program that runs: ``run`` takes the tensors and numbers that ``parameters`` name."""

    run: Callable[..., tuple[Any, ...]]
    parameters: tuple[str, ...]
    code: Code

    def __str__(self) -> str:
        return str(self.code)


def link(code: Code, constants: Mapping[str, torch.Tensor], builder: Builder) -> Linked:
    """Compiles what is not loaded yet and returns the running program."""
    functions = builder.functions(code.functions) if code.functions else {}
    resolve = _Resolver(code, constants, functions)
    namespace = {name: resolve(*reference) for name, reference in code.host.names.items()}
    exec(compile(code.host.text, "<anyshape host code>", "exec"), namespace)
    return Linked(namespace["run"], code.host.parameters, code)


@dataclass(frozen=True, slots=True)
class _Resolver:
    code: Code
    constants: Mapping[str, torch.Tensor]
    functions: Mapping[str, Any]

    def __call__(self, kind: str, what: Any) -> Any:
        match kind:
            case "function":
                return RUNTIME_FUNCTIONS.get(what) or resolve_dotted(what)
            case "kernel":
                return self.functions[what]
            case "table":
                return self._table(what)
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
        raise AnyshapeError("E901", stage="linking", why=f"unknown reference {kind!r}")

    def _table(self, name: str) -> ctypes.Array[ctypes.c_void_p]:
        entries = self.code.tables[name]
        return (ctypes.c_void_p * max(len(entries), 1))(*(self._address(*e) for e in entries))

    def _address(self, kind: str, what: Any) -> int | None:
        if kind == "constant":
            return self.constants[what].data_ptr()
        function = library_function(what) if kind == "library" else self.functions[what]
        return ctypes.cast(function, ctypes.c_void_p).value


@functools.cache
def torch_library() -> ctypes.CDLL:
    """torch's own library, which exports the BLAS that torch itself calls."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


def library_function(symbol: str) -> Any:
    """A C function of torch's library; AttributeError where it exports none of that name."""
    return torch_library()[symbol]


@functools.cache
def has_blas() -> bool:
    """Does torch's library export the products that stretches call?"""
    try:
        return all(map(library_function, ("sgemm_", "dgemm_")))
    except (OSError, AttributeError):
        return False


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


def stretch_failed() -> NoReturn:
    """A check inside a stretch failed, or a size is past what BLAS can take: eager does it instead."""
    raise CheckFailed(CheckStep(True, "an index is out of range, or a size past 2**31 - 1"))  # type: ignore[arg-type]


def check_false(condition: torch.Tensor) -> None:
    """Raises ``CheckFailed`` where the one element is true."""
    if condition.item():
        raise CheckFailed(CheckStep(True, "an index is out of range"))  # type: ignore[arg-type]


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor with the strides that eager would give it: itself, or a copy."""
    if tensor.stride() == strides or tensor.numel() == 0 or _same_layout(tensor, strides):
        return tensor
    result = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)


def as_guessed(
    tensor: torch.Tensor, strides: tuple[int, ...], shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """The result of an operator whose type was guessed; raises ``CheckFailed`` where it has another
    shape or dtype."""
    if tensor.shape != shape or tensor.dtype is not dtype:
        raise CheckFailed(CheckStep(True, "an operator without a row did not as its meta kernel"))  # type: ignore[arg-type]
    return with_strides(tensor, strides)


def keep_apart(made: int, tensors: tuple[torch.Tensor, ...]) -> None:
    """Raises ``CheckFailed`` where one of the first ``made`` shares memory with another."""
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    if len({*storages[:made]}) < made or not {*storages[:made]}.isdisjoint(storages[made:]):
        raise CheckFailed(CheckStep(True, "an operator without a row returned a view"))  # type: ignore[arg-type]


def _same_layout(tensor: torch.Tensor, strides: tuple[int, ...]) -> bool:
    pairs = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def _empty_cpu(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype)


# torch's own short way to an uninitialised CPU tensor, a third of the cost; private, so with a substitute.
_fast_empty_cpu = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", _empty_cpu)

RUNTIME_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "anyshape.empty_cpu": _fast_empty_cpu,
    "anyshape.with_strides": with_strides,
    "anyshape.as_guessed": as_guessed,
    "anyshape.keep_apart": keep_apart,
    "anyshape.check_failed": check_failed,
    "anyshape.stretch_failed": stretch_failed,
    "anyshape.check_false": check_false,
    "anyshape.bump_version": torch.autograd.graph.increment_version,
}
