"""What a device notes for later is set by the kernel that finds it, in a byte that the host sees.

    launch k(..., %bad); launch any(%bad, %found); assert later %found
    ->
    launch k'(..., flag)        k' stores True to the flag where k stored True to %bad

Otherwise it takes two launches more, of which the last reads the host's memory. In: the steps of a
program, before launches share a launch. Out: the same, fewer. Several cells may set one flag: all
of them store the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from anyshape.ir.buffers import Buffer, BufferRef
from anyshape.ir.dtypes import bool_
from anyshape.ir.loops import Kernel, Load, Reduce, Store
from anyshape.ir.program import (
    Allocate,
    Assertion,
    Free,
    Launch,
    NativeNested,
    NativeRegion,
    Nested,
    Program,
    Step,
    references,
)
from anyshape.ir.variants import Variants
from anyshape.nouns import mutable, replace
from anyshape.symbolic import Dim

CHANGED = (Assertion, Nested, NativeRegion, NativeNested)
"""Steps that are another one here, or hold some."""


def with_flags(
    program: Program, variants: Callable[[Kernel], Variants], seen: Callable[[str], bool]
) -> Program:
    """See the module; of the programs inside it, too. ``seen``: does the host see what this device
    sets?"""
    if not [step for step in program.steps if isinstance(step, CHANGED)]:
        return program  # most programs, and each is asked about
    inner = program.with_bodies(
        lambda body: replace(body, program=with_flags(body.program, variants, seen))
    )
    made = _Flags([*inner.steps], dict(inner.buffers), {*references(inner.outputs)}, variants)
    for step in inner.steps:
        if isinstance(step, Assertion) and step.deferred and seen(made.buffers[step.buffer].device):
            made.set_by_its_maker(step)
    return replace(inner, steps=tuple(made.steps), buffers=made.buffers)


@mutable
class _Flags:
    steps: list[Step]
    buffers: dict[str, Buffer]
    outputs: set[str]
    variants: Callable[[Kernel], Variants]

    def set_by_its_maker(self, assertion: Assertion) -> None:
        """Nothing where something else reads the condition, or no kernel makes it."""
        maker = self._maker(assertion.buffer, assertion)
        if maker is None:
            return
        flag = self._flag(assertion)
        gone, cells = {assertion.buffer}, self._all_cells(maker)
        above = None if cells is None else self._maker(cells, maker)
        made = None if above is None else self._setting(above, cells, flag)
        if above is not None and made is not None and cells is not None:
            self._become(above, made)
            self._become(maker, None)
            gone.add(cells)
        else:
            made = self._setting(maker, assertion.buffer, flag)
            if made is None:
                return
            self._become(maker, made)
        self._become(assertion, None)
        self.buffers[flag.name] = flag
        self._forget(gone)

    def _maker(self, name: str, reader: Step) -> Launch | None:
        """The launch that writes the buffer, if nothing but ``reader`` reads it."""
        if name in self.outputs:
            return None
        about = [s for s in self.steps if name in (*s.mentions(), *s.defines())]
        launches = [s for s in about if isinstance(s, Launch) and s is not reader]
        others = [s for s in about if not isinstance(s, (Launch, Allocate, Free)) and s != reader]
        return launches[0] if len(launches) == 1 and not others else None

    def _all_cells(self, launch: Launch) -> str | None:
        """The buffer of which the launch tells whether any element is true."""
        kernel = launch.kernel
        match kernel.elements, kernel.stores, kernel.axes, kernel.reduction_axes:
            case (Load(mask=None) as load, Reduce(combine="any", arg=0)), (_,), (), (axis,):
                pass
            case _:
                return None
        given = dict(zip((p.name for p in kernel.params), launch.args, strict=True))
        buffer, extent = given[load.pointer], axis.extent
        if not isinstance(buffer, BufferRef) or launch.offsets or str(load.index) != axis.name:
            return None
        count: object = extent if isinstance(extent, int) else given.get(str(extent))
        elements: Dim = math.prod(self.buffers[buffer.name].shape, start=1)
        return buffer.name if count == elements else None

    def _setting(self, launch: Launch, name: str | None, flag: Buffer) -> Launch | None:
        """The launch that sets the flag where it stored True to the buffer."""
        kernel, args = launch.kernel, launch.args
        positions = [n for n, arg in enumerate(args) if arg == BufferRef(name or "")]
        if len(positions) != 1 or kernel.ordered or kernel.parts != 1:
            return None
        pointer = kernel.params[positions[0]].name
        loads = any(isinstance(e, Load) and e.pointer == pointer for e in kernel.elements)
        own = [store for store in kernel.stores if store.pointer == pointer]
        if loads or len(own) != 1 or own[0].mask is not None or own[0].mode != "set":
            return None
        if kernel.elements[own[0].value].dtype is not bool_ or pointer in launch.offsets:
            return None
        stores = tuple(_set(s) if s is own[0] else s for s in kernel.stores)
        made = replace(kernel, stores=stores)
        given = (*args[: positions[0]], BufferRef(flag.name), *args[positions[0] + 1 :])
        return replace(launch, kernel=made, args=given, variants=self.variants(made))

    def _flag(self, assertion: Assertion) -> Buffer:
        device, count = self.buffers[assertion.buffer].device, len(self.buffers)
        site = str(assertion.location or "an unknown line")
        return Buffer(f"flag_{count}", bool_, device, (), (), "flag", site=site)

    def _become(self, step: Step, made: Step | None) -> None:
        (position,) = (n for n, each in enumerate(self.steps) if each is step)
        self.steps[position : position + 1] = [] if made is None else [made]

    def _forget(self, names: set[str]) -> None:
        """Memory of what nothing touches any more."""
        steps: Sequence[Step] = self.steps
        self.steps = []
        for step in steps:
            if isinstance(step, Allocate) and step.buffer in names:
                continue
            if isinstance(step, Free) and not names.isdisjoint(step.buffers):
                step = replace(step, buffers=tuple(n for n in step.buffers if n not in names))
                if not step.buffers:
                    continue
            self.steps.append(step)
        for name in names:
            del self.buffers[name]


def _set(store: Store) -> Store:
    return replace(store, index=0, mask=store.value)
