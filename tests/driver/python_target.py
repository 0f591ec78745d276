"""A target that prints kernels as loops in Python: slow, whole, and small enough to read.

``docs/how-to-target.md`` follows it. It serves the memory of the CPU and prints no C. Reductions,
scans and scatters it refuses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anyshape.ir.loops import Const, Element, Kernel, Load, Op, PointerParam, Position, Store
from anyshape.ir.program import Launch
from anyshape.options import Options
from anyshape.runtime.launch import Loaded
from anyshape.symbolic import Dim, to_python
from anyshape.targets.table import Targets
from anyshape.targets.target import Target

MEMORY = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "int64": ctypes.c_int64,
    "bool": ctypes.c_bool,
}
OPERATORS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "neg": "-{}",
    "gt": "{} > {}",
    "lt": "{} < {}",
    "where": "{1} if {0} else {2}",
}


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A kernel as the text of a Python function of addresses and numbers."""

    text: str


def print_kernel(launch: Launch, name: str, device: str) -> PythonFunction:
    kernel = launch.kernel
    if kernel.reduction_axes or kernel.ordered:
        raise NotImplementedError("rows, and cells in order")
    return PythonFunction("\n".join(_lines(kernel, name)) + "\n")


def _lines(kernel: Kernel, name: str) -> Iterator[str]:
    yield f"def {name}({', '.join(param.name for param in kernel.params)}):"
    for pointer in kernel.pointers:
        yield f"    {pointer.name} = memory({pointer.name}, {_memory(pointer)!r})"
    indent = "    "
    for axis in kernel.axes:
        yield f"{indent}for {axis.name} in range({_size(axis.extent)}):"
        indent += "    "
    for number, element in enumerate(kernel.elements):
        yield f"{indent}v{number} = {_value(element)}"
    for store in kernel.stores:
        yield f"{indent}{_store(store)}"


def _memory(pointer: PointerParam) -> str:
    if pointer.dtype.name not in MEMORY:
        raise NotImplementedError(str(pointer.dtype))
    return pointer.dtype.name


def _size(dim: Dim) -> str:
    return to_python(dim, lambda symbol: symbol.name)


def _value(element: Element) -> str:
    match element:
        case Const(value=value):
            return repr(value)
        case Position(index=index):
            return _size(index)
        case Load(pointer=pointer, index=index, mask=None):
            return f"{pointer}[{_size(index)}]"
        case Op(op=op, args=args) if op in OPERATORS:
            return OPERATORS[op].format(*(f"v{arg}" for arg in args))
    raise NotImplementedError(str(element))


def _store(store: Store) -> str:
    if store.mode != "set" or store.mask is not None:
        raise NotImplementedError("scatters")
    return f"{store.pointer}[{_size(store.index)}] = v{store.value}"


def memory(address: int, kind: str) -> ctypes.Array[ctypes.c_float]:
    """The elements from an address on; how many there are the kernel knows."""
    return ctypes.cast(address, ctypes.POINTER(MEMORY[kind]))


def load(wanted: Mapping[str, PythonFunction], options: Options) -> Mapping[str, Loaded]:
    """Callables by name; each text says its own name."""
    loaded = {}
    for name, function in wanted.items():
        namespace = {"memory": memory}
        exec(compile(function.text, f"<{name}>", "exec"), namespace)
        loaded[name] = Loaded(namespace[name])
    return loaded


PYTHON = Target("cpu", PythonFunction, print_kernel, load, allocator="anyshape.empty_cpu")
TARGETS = Targets({"cpu": PYTHON})
