"""The targets, and which of them serves a device.

``driver.py`` asks here and knows no device: who prints a kernel, who forms native regions, and who
loads what was printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from anyshape.ir.code import DeviceFunction, Function
from anyshape.ir.loops import Kernel
from anyshape.ir.program import Program
from anyshape.ir.variants import Variants
from anyshape.nouns import frozen
from anyshape.on_use import OnUse
from anyshape.options import Options
from anyshape.runtime.launch import TRAPS, Loaded
from anyshape.schedule.placement import SizesInMemory
from anyshape.symbolic import Facts
from anyshape.targets.cpu.target import CPU
from anyshape.targets.target import Run, Target, built_when_loaded, loaded_on_use

if TYPE_CHECKING:
    from anyshape.targets.triton import target as triton
else:
    triton = OnUse("anyshape.targets.triton.target")

CUDA = loaded_on_use("cuda", DeviceFunction, lambda: triton.TRITON, allocator="anyshape.empty_cuda")
HOST = CPU.kind
"""The device of Python and of this process's memory."""


@frozen
class Targets:
    """The targets by torch's names of their devices."""

    by_kind: Mapping[str, Target] = field(
        default_factory=lambda: MappingProxyType({each.kind: each for each in (CPU, CUDA)})
    )

    def of(self, device: str) -> Target | None:
        """The target of a device as types name it (``cuda:1``); None where there is none."""
        return self.by_kind.get(device.partition(":")[0])

    def prepare(self, options: Options) -> None:
        """Raises AnyshapeError where the host's target can build nothing."""
        self.by_kind[HOST].prepare(options)

    def variants(self, kernel: Kernel, device: str) -> Variants:
        """How a kernel is walked on a device; nothing where no target serves it."""
        target = self.of(device)
        return () if target is None else target.variants(kernel)

    def sizes_in_memory(self, device: str) -> SizesInMemory | None:
        """What libraries of a device do with sizes in memory; None where no kernel reads any."""
        target = self.of(device)
        return None if target is None else target.sizes_in_memory

    def listed(self, program: Program, options: Options) -> Program:
        """Each target makes lists of launches of its own."""
        for target in self._serving(program):
            program = target.listed(program, options)
        return program

    def group(self, program: Program, facts: Facts) -> Program:
        """Each target forms native regions of its own steps."""
        for target in self._serving(program):
            program = target.group(program, facts)
        return program

    def _serving(self, program: Program) -> Iterator[Target]:
        """The host's target, and those of the devices that memory of the program lies on."""
        buffers = (one for inside in program.nested() for one in inside.buffers.values())
        kinds = {HOST, *(buffer.device.partition(":")[0] for buffer in buffers)}
        return (target for kind, target in self.by_kind.items() if kind in kinds)

    def allocators(self, devices: Iterable[str]) -> dict[str, str]:
        """Short ways to new memory, by device: the host, and one other device at most, which is
        the current one then."""
        others = {device for device in devices if device != HOST}
        short = {HOST, *(others if len(others) == 1 else ())}
        found = {device: self.of(device) for device in short}
        return {d: target.allocator for d, target in found.items() if target and target.allocator}

    def recorded(
        self, run: Run, program: Program, constants: Mapping[str, torch.Tensor]
    ) -> tuple[Run, Callable[[], str]]:
        """The program as its one device replays it; where that cannot be, as it is. And why the
        device does not, as far as is known when it is asked; "" where it does."""
        devices = {buffer.device for buffer in program.buffers.values()}
        target = self.of(devices.pop()) if len(devices) == 1 else None
        if target is None:
            return run, lambda: "its tensors lie on several devices"
        why = target.why_not_recorded(program)
        return target.recorded(run, program, constants) if why is None else (run, lambda: why)

    def schedules(
        self, function: Function, sizes: Mapping[str, int] | None, options: Options
    ) -> Iterable[str]:
        """What a loaded function has run with so far, where its target chooses at the launch; for
        these sizes, by parameter, where they are given."""
        for target in self.by_kind.values():
            if isinstance(function, target.function):
                yield from target.schedules(function, sizes, options)

    def measured(self, function: Function, options: Options) -> Iterable[str]:
        """The schedules of a loaded function that its target has measured, with their times."""
        for target in self.by_kind.values():
            if isinstance(function, target.function):
                yield from target.measured(function, options)

    def builds_late(self, function: Function) -> bool:
        """Is the function built when it is first called?"""
        for target in self.by_kind.values():
            if isinstance(function, target.function):
                return target.expect is not built_when_loaded
        return False

    def expect(self, function: Function, arguments: tuple[Any, ...], options: Options) -> None:
        """The function, which is loaded, will soon be called with such arguments."""
        for target in self.by_kind.values():
            if isinstance(function, target.function):
                target.expect(function, arguments, options)

    def awaken(self, devices: Iterable[str], options: Options) -> None:
        """A graph is going to be translated whose values lie on these devices."""
        targets = {target.kind: target for device in devices if (target := self.of(device))}
        for target in targets.values():
            target.awaken(options)

    def identity(self, devices: Iterable[str], options: Options) -> str | None:
        """What decides the code of a graph on these devices, besides the graph, the options and
        our own source; None where one of their targets does not say."""
        kinds = sorted({HOST, *(device.partition(":")[0] for device in devices)})
        targets = {kind: self.of(kind) for kind in kinds}
        said = [t and t.identity(options) for t in targets.values()]
        return None if None in said else "\n".join(map(str, (*kinds, *said)))

    def start(self, wanted: Mapping[str, Function], options: Options) -> None:
        """Each target begins to build what it will be asked to load."""
        for target, own in self._shared(wanted):
            target.start(own, options)

    def load(self, wanted: Mapping[str, Function], options: Options) -> Mapping[str, Loaded]:
        """Every function by its name, each loaded by its own target; where there are several, all
        begin to build first."""
        shared = [*self._shared(wanted)]
        for target, own in shared if len(shared) > 1 else ():
            target.start(own, options)
        loaded: dict[str, Loaded] = {}
        for target, own in shared:
            loaded |= target.load(own, options)
        return loaded

    def _shared(
        self, wanted: Mapping[str, Function]
    ) -> Iterable[tuple[Target, dict[str, Function]]]:
        for target in self.by_kind.values():
            own = {name: f for name, f in wanted.items() if isinstance(f, target.function)}
            if own:
                yield target, own


TARGETS = Targets()


def on_device(run: Run, devices: frozenset[str]) -> Run:
    """``run`` with the program's one GPU as the current device, and with what the device found
    since the last call raised first."""
    gpus = devices - {HOST}
    if not gpus:
        return run
    index = torch.device(min(gpus)).index or 0

    def running(*arguments: Any) -> tuple[Any, ...]:
        TRAPS.raise_traps()
        if len(gpus) > 1 or torch._C._cuda_getDevice() == index:
            return run(*arguments)
        with torch.cuda.device(index):
            return run(*arguments)

    return running
