"""The verifier of programs: memory that is still needed is never written over, freed or exceeded.

In: a program, with or without native regions, and what is known about its sizes. Out: nothing, or
``Malformed`` with the steps and buffers of the first mistake.

The program is run on memory without contents. Each buffer lies in a range of a storage; a write
spoils every other buffer that may meet the range written, whoever shares it and why: a view, an
argument, a tenant of the arena, a donor. To read what is spoiled is the mistake, and an output is
read at the end. So nothing is asked about lifetimes, which is what the planner works out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import combinations
from typing import Literal

from anyshape.ir.buffers import Buffer, BufferRef, SizeInMemory, TensorArg, references
from anyshape.ir.byte_ranges import ByteRange, Sizes
from anyshape.ir.established import Established, established_in
from anyshape.ir.loops import Access, Kernel, Load, SizeParam
from anyshape.ir.program import (
    Allocate,
    Assertion,
    Assign,
    BindItem,
    BindNumber,
    BindSize,
    BumpVersion,
    Call,
    CheckStep,
    ExternCall,
    Free,
    KeepSize,
    Launch,
    LaunchList,
    LibraryCall,
    NativeNested,
    NativeRegion,
    Nested,
    Program,
    Step,
    View,
    ViewCall,
)
from anyshape.ir.slots import ranges_in
from anyshape.ir.verify import Malformed
from anyshape.ir.verify_bounds import verify_bounds
from anyshape.nouns import frozen, mutable
from anyshape.symbolic import Dim, Facts

Owner = Literal["argument", "program", "torch"]
"""Whose a memory is: it was handed in, it is the program's own, or an operator returned it, which
may have kept it."""


def verify_program(program: Program, facts: Facts) -> None:
    """Every buffer that a step reads, or that is returned, was written before and holds what was
    written; what is written fits its memory, which is the program's to write. No kernel's bound
    rests on a later check (``verify_bounds.py``)."""
    tested = _verify_memory(program, facts)
    verify_bounds(program, facts, tested)
    for body in (body for step in program.steps for body in step.inside()):
        verify_program(body.program, body.facts)


def verify_memory(program: Program, facts: Facts) -> None:
    """``verify_program`` without the bounds of kernels, which costs little: who planned the memory
    was told by the same facts, which remember."""
    _verify_memory(program, facts)
    for body in (body for step in program.steps for body in step.inside()):
        verify_memory(body.program, body.facts)


def _verify_memory(program: Program, facts: Facts) -> Established:
    """What is tested later is not asked: memory may be written past its end before a check fails,
    and a search among more facts may end without the answer that one among fewer has found."""
    tested = established_in(program, facts)
    _Run(program, tested, Sizes(tested.at(0)), program.buffers).run()
    return tested


@frozen
class _At:
    """A step, and where it is."""

    number: str
    step: Step

    def __str__(self) -> str:
        return f"step {self.number} ({_said(self.step)})"


@mutable(eq=False)
class _Live:
    """A buffer that has its name now.

    ``ranges``: where it may lie; one, but for what an operator may have returned of its argument.
    ``pointer``: where its first element is, None where only torch knows. ``spoiled``: the step that
    wrote over it, and which buffer. ``assigned``: of an argument, the step that gave it what the
    program leaves in it.
    """

    ranges: tuple[ByteRange, ...]
    pointer: Dim | None
    written: bool
    spoiled: tuple[_At, str] | None = None
    assigned: _At | None = None


@mutable(eq=False)
class _Storage:
    owner: Owner
    tenants: dict[ByteRange, set[str]] = field(default_factory=dict)  # those that are not spoiled
    read: _At | None = None  # the first step that read the contents


@frozen
class _Access:
    """Which parameters of a kernel are read and written; ``parts``: which are written in part."""

    reads: tuple[tuple[int, str], ...]
    writes: tuple[tuple[int, str], ...]
    parts: frozenset[str]


@mutable(eq=False)
class _Run:
    program: Program
    tested: Established
    sizes: Sizes
    buffers: Mapping[str, Buffer]
    live: dict[str, _Live] = field(default_factory=dict)
    storages: dict[str, _Storage] = field(default_factory=dict)
    gone: dict[str, _At] = field(default_factory=dict)
    accesses: dict[Kernel, _Access] = field(default_factory=dict)
    scope: set[str] | None = None  # inside a native region: what it is handed, and what it makes
    final: _At | None = None  # the first write into an argument that cannot be done twice
    again: tuple[_At, _At] | None = None  # a read of an argument, and a later write into it

    def run(self) -> None:
        for name in self.program.inputs:
            if name in self.buffers:
                self._new(name, "argument", written=True)
        for name, buffer in self.buffers.items():
            if buffer.role == "flag":
                self._new(name, "program", written=True)
        for number, step in enumerate(self.program.steps):
            self.sizes.facts = self.tested.at(number)
            self._step(_At(str(number), step))
        self.sizes.facts = self.tested.at(len(self.program.steps))
        for name in references(self.program.outputs):
            self._output(name)

    # --- steps ---

    def _step(self, at: _At) -> None:
        step = at.step
        if (self.final is not None or self.again is not None) and _may_fail(step):
            self._failing(at)
        match step:
            case Allocate():
                self._allocate(at, step)
            case Free():
                self._free(at, step)
            case Launch() | LaunchList():
                self._launches(at, step.launched())
            case LibraryCall():
                self._library_call(at, step)
            case Call():
                self._call(at, step)
            case View():
                self._view(at, step, step.offset)
            case ViewCall():
                self._view(at, step, None)
            case Assign():
                self._assign(at, step)
            case BindSize() | BumpVersion():
                self._named(at, step.buffer)
            case BindItem() | KeepSize() | Assertion():
                self._read(at, step.buffer)
            case NativeRegion():
                self._region(at, step)
            case Nested() | NativeNested():
                self._nested(at, step)

    def _failing(self, at: _At) -> None:
        """A segment that fails has not happened: eager torch runs it again from its beginning."""
        if self.final is not None:
            raise Malformed(f"{at} may fail after {self.final}, which cannot be done again")
        if self.again is not None:
            read, write = self.again
            raise Malformed(
                f"{at} may fail after {write}, and {read}, run again, would read what that wrote"
            )

    def _allocate(self, at: _At, step: Allocate) -> None:
        name = step.buffer
        if name not in self.buffers:
            raise Malformed(f"{at}: {name} is no buffer")
        if step.over is None:
            self._new(name, "program", written=False)
            return
        donor = self._named(at, step.over)
        self._hold(name, donor.ranges, donor.pointer, written=False)
        self._writable(at, name)

    def _free(self, at: _At, step: Free) -> None:
        for name in step.buffers:
            ranges = self._named(at, name).ranges
            self._forget(name, at)
            if self.scope is not None:  # a result of torch's own, which no Python name keeps alive
                for bytes_ in ranges:
                    tenants = self.storages[bytes_.storage].tenants.values()
                    for view in [view for names in tenants for view in names]:
                        self._forget(view, at)

    def _launch(self, at: _At, step: Launch) -> None:
        kernel, args = step.kernel, step.args
        count = len(kernel.params)
        if len(args) != count:
            raise Malformed(f"{at} has {len(args)} operands, not {count}")
        access = self.accesses.get(kernel)
        if access is None:
            access = self.accesses[kernel] = _access(kernel)
        reads = [(param, _name(args[n])) for n, param in access.reads]
        writes = [(param, _name(args[n])) for n, param in access.writes]
        for _, name in reads:
            self._read(at, name)
        for number, (param, name) in enumerate(writes):
            self._writable(at, name)
            for _, other in writes[:number]:
                if self._meet(name, other):
                    raise Malformed(_together(at, name, other))
            for source, other in reads:
                if source != param and self._meet(name, other):
                    safe = self._same_pointer(name, other)
                    safe = safe and reads_where_it_writes(step, source, param)
                    if not safe:
                        raise Malformed(f"{at} writes {name} where it reads {other}")
        for param, name in writes:
            if param in access.parts:
                self._holds(at, name)
            self._write(at, name, once=param in dict(reads))

    def _launches(self, at: _At, launches: tuple[Launch, ...]) -> None:
        """Several are done as if one came after the other, in any order."""
        for launch in launches:
            self._launch(at, launch)
        if len(launches) == 1:
            return
        writers = {name: launch for launch in launches for name in launch.writes()}
        for launch in launches:
            for name in launch.mentions():
                spoiled = self.live[name].spoiled
                by = name if spoiled is None or spoiled[0] is not at else spoiled[1]
                if writers.get(by, launch) is not launch:
                    raise Malformed(f"{at}: one launch touches {name}, another one writes {by}")

    def _library_call(self, at: _At, step: LibraryCall) -> None:
        call = step.call
        handed = [value.buffer for _, value in step.args if isinstance(value, TensorArg)]
        known = {*call.reads(), *call.outputs}
        for name in handed:
            if name not in known:
                raise Malformed(f"{at} is handed {name}, which its call does not name")
        self._call(at, call, gives_memory=step.gives_memory)

    def _call(self, at: _At, step: Call, *, gives_memory: bool = False) -> None:
        handed, made = tuple(step.reads()), tuple(step.defines())
        for name in made:
            if name not in self.buffers:
                raise Malformed(f"{at}: {name} is no buffer")
        for name in handed:
            self._read(at, name)
        if self.scope is not None and not gives_memory:
            for name in made:
                self._library_writes(at, name, handed)
            return
        for name in made:
            own = isinstance(step, ExternCall) and step.new_memory
            self._new(name, "program" if own else "torch", written=True)
            if step.may_alias:
                bases = dict.fromkeys(references(step.args[:1]))
                self._may_lie_in(name, tuple(r for b in bases for r in self.live[b].ranges))

    def _library_writes(self, at: _At, name: str, handed: tuple[str, ...]) -> None:
        """Libraries read all of their operands while they write."""
        self._writable(at, name)
        for other in handed:
            if self._meet(name, other):
                raise Malformed(f"{at} writes {name} where it reads {other}")
        self._write(at, name, once=True)

    def _view(self, at: _At, step: View | ViewCall, offset: Dim | None) -> None:
        """A view is as much written, or spoiled, as what it views."""
        bases = [self._named(at, name) for name in step.reads()]
        base, name = bases[0], step.output
        if name not in self.buffers:
            raise Malformed(f"{at}: {name} is no buffer")
        pointer = None
        if base.pointer is not None and offset is not None:
            pointer = base.pointer + offset * self.buffers[step.base].dtype.size_bytes
        self._hold(name, base.ranges, pointer, written=base.written)
        live = self.live[name]
        live.spoiled, live.assigned = base.spoiled, base.assigned
        if live.spoiled is not None:
            self._leave(name)

    def _assign(self, at: _At, step: Assign) -> None:
        """A copy into an argument, whose old contents nobody is to read any more."""
        target = step.target
        own = self._named(at, target)
        for name in step.reads():
            self._read(at, name)
            if self._meet(name, target):
                raise Malformed(f"{at} copies {name} to {target}, in whose memory it lies")
        owners = {self.storages[bytes_.storage].owner for bytes_ in own.ranges}
        if owners != {"argument"}:
            raise Malformed(f"{at} assigns to {target}, which is no argument")
        self._write(at, target, once=True)
        own.assigned = at

    def _nested(self, at: _At, step: Nested | NativeNested) -> None:
        """What bodies return may be what they are handed, but for native ones: those write into
        memory of the program's, while they read all that they are handed and what turns wrote.
        Bodies are verified by themselves."""
        handed, made = tuple(step.reads()), tuple(step.defines())
        for name in handed:
            self._read(at, name)
        if self.scope is not None:
            for name, other in combinations(made, 2):
                if self._meet(name, other):
                    raise Malformed(_together(at, name, other))
            for name in made:
                self._library_writes(at, name, handed)
            return
        ranges = tuple(r for name in handed for r in self.live[name].ranges)
        for name in made:
            self._new(name, "torch", written=True)
            self._may_lie_in(name, ranges)

    def _region(self, at: _At, step: NativeRegion) -> None:
        """The steps of a native region see what it is handed, its arena, and what they make."""
        for name in step.outer:
            self._named(at, name)
        arena = [
            f"slot {number} of the arena of step {at.number}" for number in range(len(step.slots))
        ]
        self.storages.update((storage, _Storage("program")) for storage in arena)
        tenants: list[dict[str, tuple[Dim, Dim]]] = [{} for _ in arena]
        for name, (slot, offset) in step.inner.items():
            if name not in self.buffers:
                raise Malformed(f"{at}: {name} is no buffer")
            tenants[slot][name] = offset, self.sizes.span(self.buffers[name])
        for storage, room, there in zip(arena, step.slots, tenants, strict=True):
            for name, bytes_ in ranges_in(room, storage, there, self.sizes):
                if bytes_ is None:
                    raise Malformed(f"{at}: {name} is not known to fit into {storage}")
                self._hold(name, (bytes_,), bytes_.start, written=False)
        self.scope = {*step.outer, *step.inner}
        last = {name: n for n, inner in enumerate(step.steps) for name in inner.mentions()}
        for number, inner in enumerate(step.steps):
            self._step(_At(f"{at.number}.{number}", inner))
            for name in inner.mentions():  # of what nobody mentions again, nothing is asked
                if name in step.inner and last[name] == number and name in self.live:
                    self._forget(name, at)
        inside, self.scope = self.scope - {*step.outer}, None
        for name in inside & self.live.keys():
            self._forget(name, at)

    def _output(self, name: str) -> None:
        live = self.live.get(name)
        if live is None:
            raise Malformed(f"the output {name} {self._absent(name)}")
        if live.spoiled is not None:
            by, writer = live.spoiled
            own = [self.storages[bytes_.storage].owner for bytes_ in live.ranges]
            if "argument" not in own:
                raise Malformed(f"{by} has written {writer} over the output {name}")
        if not live.written:
            raise Malformed(f"nothing has been written into the output {name}")

    # --- memory ---

    def _new(self, name: str, owner: Owner, *, written: bool) -> None:
        """The name of memory that nothing else lies in."""
        self.storages[name] = _Storage(owner)
        bytes_ = ByteRange(name, 0, self.sizes.span(self.buffers[name]))
        self._hold(name, (bytes_,), 0, written=written)

    def _hold(
        self, name: str, ranges: tuple[ByteRange, ...], pointer: Dim | None, *, written: bool
    ) -> None:
        self._leave(name)
        self.live[name] = _Live(ranges, pointer, written)
        if written:
            self._enter(name)
        if self.scope is not None:
            self.scope.add(name)

    def _may_lie_in(self, name: str, ranges: tuple[ByteRange, ...]) -> None:
        live = self.live[name]
        live.ranges, live.pointer = (*live.ranges, *ranges), None
        self._enter(name)

    def _enter(self, name: str) -> None:
        for bytes_ in self.live[name].ranges:
            self.storages[bytes_.storage].tenants.setdefault(bytes_, set()).add(name)

    def _leave(self, name: str) -> None:
        """Writes concern the buffer no more."""
        live = self.live.get(name)
        for bytes_ in live.ranges if live is not None else ():
            names = self.storages[bytes_.storage].tenants.get(bytes_)
            if names is not None:
                names.discard(name)

    def _forget(self, name: str, at: _At) -> None:
        self._leave(name)
        self.live.pop(name)
        self.gone[name] = at

    def _named(self, at: _At, name: str) -> _Live:
        """The buffer, if it has its name here."""
        live = self.live.get(name)
        if live is None:
            raise Malformed(f"{at} uses {name}, which {self._absent(name)}")
        handed = self.scope is None or name in self.scope
        if not handed:
            raise Malformed(f"{at} uses {name}, which its native region is not handed")
        return live

    def _absent(self, name: str) -> str:
        return f"is gone since {self.gone[name]}" if name in self.gone else "is not there yet"

    def _read(self, at: _At, name: str) -> None:
        live = self._holds(at, name)
        for bytes_ in live.ranges:
            storage = self.storages[bytes_.storage]
            storage.read = storage.read or at

    def _holds(self, at: _At, name: str) -> _Live:
        """The buffer, if it holds what was written there."""
        live = self._named(at, name)
        if live.spoiled is not None:
            by, writer = live.spoiled
            raise Malformed(f"{at} reads {name}, over which {by} has written {writer}")
        if live.assigned is not None:
            raise Malformed(f"{at} reads {name}, to which {live.assigned} has assigned")
        if not live.written:
            raise Malformed(f"{at} reads {name}, where nothing has been written")
        return live

    def _writable(self, at: _At, name: str) -> None:
        """Is the memory one that the program may write, and large enough?"""
        size = self.sizes.span(self.buffers[name])
        for bytes_ in self._named(at, name).ranges:
            owner = self.storages[bytes_.storage].owner
            if not (owner == "program" or (owner == "argument" and bytes_.storage == name)):
                raise Malformed(
                    f"{at} writes {name} into the memory of {bytes_.storage}, "
                    "which is not the program's own"
                )
            if not self.sizes.at_most(size, bytes_.size_bytes):
                raise Malformed(
                    f"{at} writes {name}, which is not known to fit into {bytes_.storage}"
                )

    def _write(self, at: _At, name: str, *, once: bool) -> None:
        """``once``: it could not be done a second time, should the segment fail later."""
        live = self.live[name]
        for bytes_ in live.ranges:
            storage = self.storages[bytes_.storage]
            others = [(r, names - {name}) for r, names in storage.tenants.items()]
            for other, names in others:
                if names and self.sizes.meet(other, bytes_):
                    storage.tenants[other] -= names
                    for spoiled in names:
                        self.live[spoiled].spoiled = at, name
            if storage.owner == "argument":
                self.final = self.final or (at if once else None)
                if storage.read is not None and self.again is None:
                    self.again = storage.read, at
        live.written, live.spoiled = True, None
        self._enter(name)

    def _meet(self, a: str, b: str) -> bool:
        x, *more = self.live[a].ranges
        y, *others = self.live[b].ranges
        if not more and not others:
            return x.storage == y.storage and self.sizes.meet(x, y)
        pairs = ((x, y) for x in self.live[a].ranges for y in self.live[b].ranges)
        return any(self.sizes.meet(x, y) for x, y in pairs)

    def _same_pointer(self, a: str, b: str) -> bool:
        x, y = self.live[a], self.live[b]
        alone = len(x.ranges) == len(y.ranges) == 1
        return alone and x.pointer is not None and x.pointer == y.pointer


def _together(at: _At, a: str, b: str) -> str:
    return f"{at} writes {a} and {b} in one buffer's memory"


def _name(arg: object) -> str:
    assert isinstance(arg, BufferRef | SizeInMemory)
    return arg.name


def _may_fail(step: Step) -> bool:
    """May the segment end at the step, as if it had not happened?"""
    steps = step.steps if isinstance(step, NativeRegion) else (step,)
    return any(inner.may_fail for inner in steps)


def _access(kernel: Kernel) -> _Access:
    pointers: dict[str, Access] = {p.name: p.access for p in kernel.pointers}
    pointers |= {p.name: "read" for p in kernel.params if isinstance(p, SizeParam) and p.in_memory}
    pointed = [(n, p.name) for n, p in enumerate(kernel.params) if p.name in pointers]
    parts = frozenset(
        store.pointer
        for store in kernel.stores
        if kernel.ordered or store.mask is not None or store.mode != "set"
    )
    return _Access(
        tuple(pair for pair in pointed if pointers[pair[1]] != "write"),
        tuple(pair for pair in pointed if pointers[pair[1]] != "read"),
        parts,
    )


def reads_where_it_writes(step: Launch, source: str, result: str) -> bool:
    """Does each cell of the kernel read of ``source`` only the element that it alone writes to
    ``result``, before it does? Both are parameters that start at one address."""
    kernel = step.kernel
    if kernel.reduction_axes or kernel.ordered or {source, result} & step.offsets.keys():
        return False
    if all(source != pointer.name for pointer in kernel.pointers):
        return False  # a size
    (part, source), (other, result) = map(kernel.part_of, (source, result))
    if part != other:
        return False
    if kernel.pointer(source).dtype.size_bytes != kernel.pointer(result).dtype.size_bytes:
        return False
    stores = [store for store in kernel.stores if store.pointer == result]
    if any(s.per != "cell" or s.mode != "set" or s.mask is not None for s in stores):
        return False
    loads = [e for e in kernel.elements if isinstance(e, Load) and e.pointer == source]
    return len({s.index for s in stores} | {e.index for e in loads}) == 1


SAID: Mapping[type[Step], str] = {
    CheckStep: "a check",
    NativeRegion: "a native region",
}


def _said(step: Step) -> str:
    """The step in a few words."""
    match step:
        case Allocate():
            return f"allocates {step.buffer}" + ("" if step.over is None else f" over {step.over}")
        case Free():
            return f"frees {', '.join(step.buffers)}"
        case Launch():
            names = [_name(step.args[index]) for index, _ in _access(step.kernel).writes]
            return f"a kernel that writes {', '.join(names)}"
        case LaunchList():
            return " beside ".join(map(_said, step.launches[:2]))
        case LibraryCall():
            return _said(step.call)
        case NativeNested():
            return _said(step.step)
        case Assign():
            return f"assigns to {step.target}"
        case View() | ViewCall():
            return f"{step.output} becomes a view of {step.base}"
        case Assertion():
            return f"fails where {step.buffer} is true"
        case Call():
            return f"{step.function} makes {', '.join(step.outputs) or 'nothing'}"
        case BindSize() | BindItem():
            return f"reads a number of {step.buffer}"
        case BumpVersion():
            return f"marks {step.buffer} as written"
        case BindNumber():
            return f"computes {step.function}"
    return SAID.get(type(step), f"a {type(step).__name__.lower()}")  # a loop, a branch
