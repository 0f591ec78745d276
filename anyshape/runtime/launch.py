"""Links the host code of a program to kernels, library functions and constant tensors.

In: ``Code``, the program's constant tensors, and what loads functions. Out: ``Linked``, whose
``run`` takes the argument inputs and returns the outputs. Nothing is looked up by name once it is
linked.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import torch

from anyshape.eager import CheckFailed, DeviceError
from anyshape.errors import AnyshapeError
from anyshape.interrupts import is_interrupt
from anyshape.ir.code import Code, Function
from anyshape.ir.scalars import applied
from anyshape.known_builtins import generated
from anyshape.nouns import frozen, mutable
from anyshape.runtime.arenas import slots
from anyshape.runtime.raised_in_c import RAISED
from anyshape.runtime.region_graphs import RegionGraphs
from anyshape.torch_names import resolve
from anyshape.version_counters import set_version, version_of

LIBRARY = (
    *("aoti_torch_create_tensor_from_blob", "aoti_torch_new_tensor_handle"),
    *("aoti_torch_delete_tensor_object", "aoti_torch_empty_strided", "aoti_torch_copy_"),
    *("aoti_torch_get_data_ptr", "aoti_torch_get_strides"),
    *("aoti_torch_call_dispatcher", "_Znwm"),
    *(f"aoti_torch_dtype_{name}" for name in ("float16", "bfloat16", "float32", "float64")),
)
PRODUCTS = ("mm_out", "bmm_out", "addmm_out")
"""Stable C functions of torch that native regions call, and those that each kind of device has;
where one is missing, Python calls libraries."""
LIBRARIES = ("libtorch_cpu.so", "libtorch_cuda.so")
DEVICE_TYPES = {"cpu": 0, "cuda": 1}
"""As torch's C functions are told them."""


@frozen
class Loaded:
    """A function of this process: as Python calls it, and where it is, if C may call it too."""

    call: Callable[..., Any]
    address: int | None = None


Load = Callable[[Mapping[str, Function]], Mapping[str, Loaded]]
"""Builds what is not built yet and loads it: what each target has of its own."""


class WriteFailed(Exception):
    """An argument could not be written; others may have been."""


@frozen
class Linked:
    """A program that runs: ``run`` takes the tensors and numbers that ``parameters`` name."""

    run: Callable[..., tuple[Any, ...]]
    parameters: tuple[str, ...]
    code: Code
    regions: tuple[RegionGraphs, ...] = ()

    def __str__(self) -> str:
        return str(self.code)

    def count(self, kind: str) -> int:
        """Of calls of its native regions: how many are kept as a CUDA graph (``graph``), how often
        such a graph was launched (``replay``)."""
        return sum(region.count(kind) for region in self.regions)


def link(
    code: Code,
    constants: Mapping[str, torch.Tensor],
    load: Load,
    twin: Callable[[], Callable[..., Any]] | None = None,
    name: str = "host code",
) -> Linked:
    """Compiles what is not loaded yet and returns the running program. ``twin`` gives what runs in
    its place while a profiler records; ``name`` is what stacks of calls show as its file."""
    functions = load(code.functions) if code.functions else {}
    resolve = Resolver(code, constants, functions, twin)
    namespace = {name: resolve(*reference) for name, reference in code.host.names.items()}
    run = generated(code.host.text, f"<anyshape {name}>", namespace, "run")
    regions = tuple(each for each in namespace.values() if isinstance(each, RegionGraphs))
    return Linked(run, code.host.parameters, code, regions)


class Address(int):
    """Where something lies in memory, which lives as long as this number."""

    owner: ctypes.Array[Any]

    @classmethod
    def of(cls, owner: ctypes.Array[Any]) -> Self:
        """The address of what ctypes made."""
        made = cls(ctypes.addressof(owner))
        made.owner = owner
        return made


@frozen
class Resolver:
    code: Code
    constants: Mapping[str, torch.Tensor]
    functions: Mapping[str, Loaded]
    twin: Callable[[], Callable[..., Any]] | None = None

    def __call__(self, kind: str, what: Any) -> Any:
        match kind:
            case "function":
                return RUNTIME_FUNCTIONS.get(what) or resolve(what)
            case "kernel":
                return self.functions[what].call
            case "replayed":
                return RegionGraphs(self.functions[what[0]].call, what[1])
            case "table":
                return self._table(what)
            case "dtype":
                return getattr(torch, what.name)
            case "constant":
                return self.constants[what]
            case "pointer":
                return self.constants[what].data_ptr()
            case "flag address":
                return TRAPS.address(*what)
            case "module":
                return importlib.import_module(what)
            case "object":
                return what
            case "twin":
                return self.twin
        raise AnyshapeError("E901", stage="linking", why=f"unknown reference {kind!r}")

    def _table(self, name: str) -> Address:
        """Where the entries are; what is made for them lives as long as the table."""
        entries = self.code.tables[name]
        with torch.inference_mode(False):  # its tensors may be written in every mode
            addresses = [self.address(*entry) for entry in entries]
        table = (ctypes.c_void_p * max(len(entries), 1))(*addresses)
        pairs = [*zip(addresses, entries, strict=True)]
        owned = [a for a, (kind, _) in pairs if kind in ("tensor", "flag")]
        kept = [address for address in addresses if isinstance(address, Kept)]
        if owned or kept:
            weakref.finalize(table, delete_handles, owned, kept)
        table.made = addresses  # type: ignore[attr-defined]
        return Address.of(table)

    def address(self, kind: str, what: Any) -> int | None:
        if kind == "constant":
            return self.constants[what].data_ptr()
        if kind == "tensor":
            constant, shape, strides = what
            return new_handle(self.constants[constant], shape, strides)
        if kind == "flag":
            seen = TRAPS.flag(*what).seen
            assert seen is not None
            return new_handle(seen, (), ())
        if kind == "flag address":
            return TRAPS.address(*what)
        if kind == "kept":
            return Kept.of_sizes(what)
        if kind == "plan":
            return Address.of((ctypes.c_long * len(what))(*what))
        if kind == "text":
            return Address.of(ctypes.create_string_buffer(what.encode()))
        if kind == "library":
            return ctypes.cast(library_function(what), ctypes.c_void_p).value
        return self.functions[what].address


@functools.cache
def torch_libraries() -> tuple[ctypes.CDLL, ...]:
    """torch's own libraries; that of the CPU exports the BLAS that torch itself calls."""
    folder = Path(torch.__file__).parent / "lib"
    return tuple(ctypes.CDLL(str(folder / name)) for name in LIBRARIES if (folder / name).exists())


@functools.cache
def library_identity() -> str:
    """What changes when torch's own libraries do."""
    folder = Path(torch.__file__).parent / "lib"
    states = ((name, (folder / name).stat()) for name in LIBRARIES if (folder / name).exists())
    return "\n".join(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)


def library_function(symbol: str) -> Any:
    """A C function of torch's; AttributeError where no library exports one of that name."""
    for library in torch_libraries():
        try:
            return library[symbol]
        except AttributeError:
            pass
    raise AttributeError(symbol)


@functools.cache
def is_exported(symbol: str) -> bool:
    """Does this version of torch have the C function?"""
    try:
        return library_function(symbol) is not None
    except (OSError, AttributeError):
        return False


@functools.cache
def has_blas() -> bool:
    """Does torch's library export the products that native regions call?"""
    return all(map(is_exported, ("sgemm_", "dgemm_")))


def new_handle(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> int:
    """The address of a tensor that C knows, over the same memory, as if of this shape."""
    handle, rank = ctypes.c_void_p(), len(shape)
    sizes, steps = (ctypes.c_int64 * rank)(*shape), (ctypes.c_int64 * rank)(*strides)
    code = library_function(f"aoti_torch_dtype_{str(tensor.dtype).removeprefix('torch.')}")()
    about = (code, *device_code(tensor.device))
    device = (ctypes.c_int64(0), *map(ctypes.c_int32, about))
    make = library_function("aoti_torch_create_tensor_from_blob")
    data = ctypes.c_void_p(tensor.data_ptr())
    if make(data, ctypes.c_int64(rank), sizes, steps, *device, ctypes.byref(handle)):
        raise AnyshapeError("E901", stage="linking", why="torch made no tensor of a constant")
    assert handle.value is not None
    return handle.value


def device_code(device: torch.device) -> tuple[int, int]:
    """The type and the number of a device, as torch's C functions are told them."""
    return DEVICE_TYPES[device.type], -1 if device.type == "cpu" else device.index or 0


class Kept(Address):
    """Where native regions keep handles of tensors from one call to the next: after a flag, cells
    that begin with one each."""

    starts: tuple[int, ...]

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Kept:
        """``sizes`` of the flag and of the cells."""
        made = cls.of((ctypes.c_long * sum(sizes))())
        made.starts = tuple(itertools.accumulate(sizes))[:-1]
        return made

    def handles(self) -> Iterator[int]:
        """Those that are kept now."""
        return filter(None, (self.owner[start] for start in self.starts))


def delete_handles(handles: Sequence[int | None], kept: Sequence[Kept] = ()) -> None:
    """Forgets tensors that C knows."""
    for handle in (*handles, *(handle for each in kept for handle in each.handles())):
        library_function("aoti_torch_delete_tensor_object")(ctypes.c_void_p(handle))


@functools.cache
def has_library(kind: str = "cpu") -> bool:
    """Does torch export the stable C functions that native regions on such a device call?"""
    products = (f"aoti_torch_{kind}_{name}" for name in PRODUCTS)
    return all(map(is_exported, (*LIBRARY, *products)))


def check_failed(message: str) -> NoReturn:
    """Raises ``CheckFailed``; the trampoline runs the segment again in the concrete domain."""
    raise CheckFailed(message)


def native_region_failed() -> NoReturn:
    """Raises what Python raised inside a native region. Else a check failed, or a library cannot
    take a size: eager does it instead."""
    error = RAISED.pop(threading.get_ident(), None)
    if error is not None:
        raise error
    raise CheckFailed("an index is out of range, or a size past 2**31 - 1")


def check_false(condition: torch.Tensor) -> None:
    """Raises ``CheckFailed`` where the one element is true."""
    if condition.item():
        raise CheckFailed("an index is out of range")


def trap_if(condition: torch.Tensor, site: str) -> None:
    """Notes on the device whether the condition holds; ``raise_traps`` tells later, unless it is on
    the CPU."""
    if condition.device.type == "cpu":
        return check_false(condition)
    TRAPS.note(condition, site)
    return None


@frozen
class Flag:
    """A truth that a device sets and the host reads without waiting: one byte of pinned memory,
    and ``seen``, the same byte as a tensor of the device, where torch makes one of it."""

    device: torch.device
    pinned: torch.Tensor
    seen: torch.Tensor | None
    own: torch.Tensor

    @classmethod
    def on(cls, device: torch.device) -> Flag:
        """One that is not set."""
        pinned = torch.zeros((), dtype=torch.bool, pin_memory=True)
        own = torch.zeros((), dtype=torch.bool, device=device)
        with torch.cuda.device(device):
            seen = torch.as_tensor(_SharedByte(pinned), device=device)
        mapped = seen.data_ptr() == pinned.data_ptr() and seen.device == own.device
        return cls(device, pinned, seen if mapped else None, own)

    def set_where(self, condition: torch.Tensor) -> None:
        """Set from here on where the one element is true."""
        if self.seen is not None:
            torch.logical_or(self.seen, condition, out=self.seen)
            return
        torch.logical_or(self.own, condition, out=self.own)
        self.pinned.copy_(self.own, non_blocking=True)

    def clear(self) -> None:
        """Waits for the device."""
        torch.cuda.synchronize(self.device)
        self.own.zero_()
        self.pinned.zero_()


class _SharedByte:
    """Pinned memory as Numba's CUDA array interface describes it: devices address it as the host
    does."""

    def __init__(self, pinned: torch.Tensor) -> None:
        self.__cuda_array_interface__ = {
            "shape": (),
            "typestr": "|b1",
            "data": (pinned.data_ptr(), False),
            "version": 2,
        }


@mutable
class Traps:
    """Flags of this process's devices, one a site; a flag stays set until it is raised."""

    flags: dict[tuple[torch.device, str], Flag] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, condition: torch.Tensor, site: str) -> None:
        self.flag(condition.device, site).set_where(condition.view(()))

    def flag(self, device: torch.device, site: str) -> Flag:
        """That of the site."""
        found = self.flags.get((device, site))
        if found is None:
            with self.lock, torch.inference_mode(False):
                found = self.flags.setdefault((device, site), Flag.on(device))
        return found

    def address(self, device: str, site: str) -> int:
        """Where the site's flag lies, which lives as long as this process."""
        seen = self.flag(torch.device(device), site).seen
        assert seen is not None
        return seen.data_ptr()

    def raise_traps(self) -> None:
        """Raises ``DeviceError`` for the first flag that has arrived."""
        for (_, site), flag in self.flags.items():
            if flag.pinned.item():
                flag.clear()
                raise DeviceError(
                    f"an index was out of range on the device, at {site}. Results of that call and "
                    "of what followed are not valid; ANYSHAPE reports it at the first call after it"
                )


TRAPS = Traps()


@functools.cache
def is_seen(device: str) -> bool:
    """Does the host see what the device sets, without a copy?"""
    return Flag.on(torch.device(device)).seen is not None


def number(function: str, operands: tuple[Any, ...]) -> int | float:
    """A row of ``SCALAR_FUNCTIONS``; raises ``CheckFailed`` where Python raises."""
    made = applied(function, operands)
    if made is None:
        raise CheckFailed("a number that data decides is out of range")
    return made


def write(function: Callable[..., Any], *args: Any) -> None:
    """Calls what writes an argument; raises ``WriteFailed`` where it raises."""
    try:
        function(*args)
    except Exception as error:
        if is_interrupt(error):
            raise
        raise WriteFailed from error


def bump_version(tensor: torch.Tensor) -> None:
    """Tells autograd that a kernel wrote into the tensor; raises where eager torch must not."""
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        tensor.copy_(tensor)
    torch.autograd.graph.increment_version(tensor)


def bump_versions(tensors: Sequence[torch.Tensor]) -> None:
    """As ``bump_version``, of each as often as it is given."""
    if any(map(torch.is_inference, tensors)):
        for tensor in tensors:
            bump_version(tensor)
    else:
        torch.autograd.graph.increment_version(tensors)


def with_counters_of_their_own(
    results: Sequence[Any], groups: Sequence[Sequence[int]]
) -> tuple[Any, ...]:
    """The results, where those at these positions are other tensors of the same memory; those of
    one group have one version counter."""
    made = list(results)
    for group in groups:
        first = results[group[0]].data
        others = {id(results[group[0]]): first}
        for position in group:
            result = results[position]
            if id(result) not in others:
                others[id(result)] = _in_memory_of(first, result)
            made[position] = others[id(result)]
    return tuple(made)


def _in_memory_of(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A view that lies as another tensor of the same storage."""
    if like.dtype is not tensor.dtype:
        return like.data
    return tensor.as_strided(like.shape, like.stride(), like.storage_offset())


def with_strides(
    tensor: torch.Tensor, strides: tuple[int, ...], shape: tuple[int, ...] | None = None
) -> torch.Tensor:
    """The tensor with the strides that eager would give it: itself, or a copy. Raises
    ``CheckFailed`` where it has another shape than is relied on. A stride of 0 is of what is empty:
    a product with a size of 0, which says nothing."""
    if shape is not None and tensor.shape != shape:
        raise CheckFailed(OTHER_SHAPE)
    if tensor.stride() == strides or _same_layout(tensor, strides):
        return tensor
    if 0 in strides and tensor.numel() == 0:
        return tensor
    if tensor.numel() and _overlap(tensor.shape, strides):  # they are of another shape
        raise CheckFailed(OTHER_SHAPE)
    result = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    result.copy_(tensor)
    set_version(result, version_of(tensor))
    return result


OTHER_SHAPE = "a library returned another shape than its type rule says"


def _overlap(shape: torch.Size, strides: tuple[int, ...]) -> bool:
    """Whether elements may lie in the same place, so that one is written over another."""
    end = 1
    for stride, size in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride < end:
            return True
        end = stride * (size - 1) + end
    return False


def as_guessed(
    tensor: torch.Tensor, strides: tuple[int, ...], shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """The result of an operator whose type was guessed; raises ``CheckFailed`` where it has another
    shape, dtype or layout."""
    right = tensor.shape == shape and tensor.dtype is dtype
    if not right or not (
        tensor.stride() == strides or tensor.numel() == 0 or _same_layout(tensor, strides)
    ):
        raise CheckFailed("an operator without a row did not as its meta kernel")
    return tensor


def parts(result: Any) -> tuple[torch.Tensor, ...]:
    """The tensors that an operator returned, one or several."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def require_new_memory(made: int, tensors: tuple[torch.Tensor, ...]) -> None:
    """Raises ``CheckFailed`` where one of the first ``made`` is None or shares memory with
    another."""
    if any(tensor is None for tensor in tensors[:made]):
        raise CheckFailed("an operator without a row did not as its meta kernel")
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    if len({*storages[:made]}) < made or not {*storages[:made]}.isdisjoint(storages[made:]):
        raise CheckFailed("an operator without a row returned a view")


def counted_nonzero(
    input: torch.Tensor, *, as_tuple: Literal[False] = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.nonzero``, laid out as it lays it out, in memory for as many positions as there are
    elements, and one int64 that says how many there are. What lies behind them is none."""
    positions = torch.nonzero(input)
    room = torch.full((input.numel() * input.dim(),), -(1 << 62), device=input.device)
    room[: positions.numel()].view(positions.shape[1], positions.shape[0]).copy_(positions.t())
    return room, torch.tensor([positions.shape[0]], device=input.device)


def _same_layout(tensor: torch.Tensor, strides: tuple[int, ...]) -> bool:
    pairs = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def _empty_cpu(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype)


# torch's own short way to an uninitialised CPU tensor, a third of the cost; private.
_fast_empty_cpu = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", _empty_cpu)


def _empty_cuda(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


_fast_empty_cuda = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", _empty_cuda)
"""An uninitialised tensor on the current device."""

RUNTIME_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "anyshape.empty_cpu": _fast_empty_cpu,
    "anyshape.with_strides": with_strides,
    "anyshape.as_guessed": as_guessed,
    "anyshape.require_new_memory": require_new_memory,
    "anyshape.parts": parts,
    "anyshape.counted_nonzero": counted_nonzero,
    "anyshape.check_failed": check_failed,
    "anyshape.native_region_failed": native_region_failed,
    "anyshape.slots": slots,
    "anyshape.check_false": check_false,
    "anyshape.trap_if": trap_if,
    "anyshape.empty_cuda": _fast_empty_cuda,
    "anyshape.bump_version": bump_version,
    "anyshape.write": write,
    "anyshape.number": number,
    "anyshape.record": torch.profiler.record_function,
}
