"""Native regions on a GPU: which steps C does there, and how it does them.

In: a program, of which one GPU's steps are grouped as the CPU's are. Out: a ``PrintedRegion``, a
plan that the same C function follows (``targets/cpu/native.py``): kernels are launched by way of
their ``records.py``, on the stream that is the caller's when the region begins; products are
torch's own, by its stable C functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import torch

from anyshape.costs import COSTS
from anyshape.ir.buffers import Buffer, BufferRef, TensorArg
from anyshape.ir.code import PrintedRegion, Replayable
from anyshape.ir.loops import Kernel, PointerParam, ScalarParam
from anyshape.ir.program import (
    Allocate,
    Assertion,
    ExternCall,
    Free,
    Launch,
    LibraryCall,
    NativeRegion,
    Program,
    Step,
    View,
)
from anyshape.nouns import mutable, replace
from anyshape.runtime.launch import device_code, is_seen
from anyshape.symbolic import Facts
from anyshape.targets.cpu.native import RegionPrinter
from anyshape.targets.cpu.native_calls import DELETE, DISPATCH, SHARE
from anyshape.targets.cpu.native_part import Part, Slot
from anyshape.targets.cpu.native_regions import Native, form_native_regions, is_float
from anyshape.targets.cpu.region_steps import LIBRARY_FAILED
from anyshape.targets.triton.library import gpu_call

STREAM = "aoti_torch_get_current_cuda_stream"
LAUNCH_FAILED = 4


def form_gpu_regions(program: Program, facts: Facts, kind: str = "cuda") -> Program:
    """Groups the steps of the one device of this kind; with several, Python enters each."""
    devices = {b.device for inside in program.nested() for b in inside.buffers.values()}
    own = [device for device in devices if device.partition(":")[0] == kind]
    if len(own) != 1:
        return program
    native = Native(
        partial(as_native, own[0]),
        long_steps=COSTS.long_gpu_region_steps,
        most_steps=COSTS.gpu_region_steps,
        separate_slots=True,
    )
    return form_native_regions(program, facts, native)


def as_native(device: str, step: Step, buffers: Mapping[str, Buffer]) -> Step | None:
    """The step as C does it on this device, None where it cannot."""
    touched: Iterable[str] = step.buffers if isinstance(step, Free) else step.mentions()
    if any(name not in buffers or buffers[name].device != device for name in touched):
        return None
    match step:
        case Allocate() | Free() | Launch() | View():
            return step
        case Assertion(deferred=True) if is_seen(device):
            return step
        case ExternCall():
            return gpu_call(step, buffers, device.partition(":")[0])
    return None


def emit_gpu_region(
    region: NativeRegion,
    program: Program,
    kernel_names: Mapping[Kernel, str],
    placeholder: str,
    stream: str = STREAM,
) -> PrintedRegion:
    """``stream`` is the function of torch's library that says which is the current one."""
    names = (name for step in region.steps for name in step.mentions())
    device = torch.device(next(program.buffers[name].device for name in names))
    printed = _Printer(
        *(region, program.buffers, kernel_names, placeholder, False, False),
        device=device_code(device),
        where=device,
        current=stream,
    ).emit()
    return replace(printed, replayable=_replayable(region, device.index or 0))


def _replayable(region: NativeRegion, device: int) -> Replayable | None:
    """None of a few steps, whose launches cost as little."""
    calls = sum(isinstance(step, LibraryCall) for step in region.steps)
    launches = sum(isinstance(step, Launch) for step in region.steps)
    if launches + calls * COSTS.replayed_call < COSTS.replayed_steps:
        return None
    return Replayable(device, sum(map(is_float, region.scalars)), calls > 0)


@mutable(eq=False)
class _Printer(RegionPrinter):
    """``where``: the device; ``stream``: the slot of its current stream, once that is read."""

    where: torch.device = torch.device("cuda")
    current: str = STREAM
    stream: Slot | None = None

    def _launch(self, step: Launch) -> None:
        part = Part()
        stream = part(self._stream())
        launcher = part(self._entry(("kernel", self.kernel_names[step.kernel])))
        words = []
        for param, arg in zip(step.kernel.params, step.args, strict=True):
            if isinstance(arg, BufferRef):
                offset = step.offsets.get(param.name, 0) * self.buffers[arg.name].dtype.size_bytes
                pointer = part(self.pointers[arg.name])
                words.append(f"(long)({self._moved(pointer, offset, part)})")
            else:
                assert not isinstance(param, PointerParam)
                number = self._number(arg, part)
                is_float = isinstance(param, ScalarParam) and param.dtype.is_floating
                words.append(f"(long)anyshape_bits({number})" if is_float else number)
        part.lines += [
            f"long words[] = {{{', '.join(words)}}};",
            f"if ((*(long (**)(void *, void *, long *)){launcher})({launcher}, {stream}, words))"
            f" return {LAUNCH_FAILED};",
        ]
        self._do_part(part)

    def _assertion(self, step: Assertion) -> None:
        """Set from here on where the one element is true; ``raise_traps`` tells later."""
        part, site = Part(), (self.where, str(step.location or "an unknown line"))
        flag = part(self._entry(("flag", site)))
        condition = part(self._tensor(TensorArg(step.buffer, (), ())))
        names = SHARE, DELETE, DISPATCH
        share, delete, call = (part(self._entry(("library", name))) for name in names)
        given = (f"anyshape_share({share}, {handle})" for handle in (flag, condition, flag))
        part.lines += [
            f"unsigned long stack[] = {{{', '.join(given)}}};",
            f"if (((int (*)(const char *, const char *, unsigned long *)){call})"
            f'("aten::logical_or", "out", stack)) return {LIBRARY_FAILED};',
            f"((int (*)(void *)){delete})((void *)stack[0]);",
        ]
        self._do_part(part)

    def _stream(self) -> Slot:
        """The slot of the current stream, which is read before the first launch."""
        if self.stream is None:
            self.stream = self._new_pointer_slot("stream", -1)
            self.late.add(self.stream)
            part = Part()
            read = part(self._entry(("library", self.current)))
            call = f"((int (*)(int, void **)){read})({self.where.index or 0}, &{part(self.stream)})"
            part.lines.append(f"if ({call}) return {LIBRARY_FAILED};")
            self._do_part(part)
        return self.stream
