"""A program as CUDA graphs: recorded for each layout of its arguments, replayed by one call.

In: the running function of a program on one GPU. Out: a function that does the same. The second
call of a layout is recorded, so that kernels are compiled and libraries have made what they keep. A
graph reads its arguments where they were when it was recorded, so they are copied there; results
are copied out, and are the caller's. Constants, which lie where they are, it reads and writes there
(a training step's parameters). All graphs of a program share memory, which is why no two run at a
time. Where memory runs out, the graphs of all programs are let go, and the call is made again.

What a step computes that writes constants (gradients, which the next step clears before it runs) is
handed out where the graph has left it. Who has it keeps that memory. As long as anybody does, no
graph that shares it runs: such a call is made without one, and from then on results are copied.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from anyshape.custom_operators import functional
from anyshape.errors import AnyshapeError, warn
from anyshape.ir.buffers import references
from anyshape.ir.program import (
    Allocate,
    Assertion,
    Assign,
    BindItem,
    BindNumber,
    BumpVersion,
    CheckStep,
    EagerCall,
    ExternCall,
    Free,
    Launch,
    Program,
    Step,
    View,
    ViewCall,
)
from anyshape.nouns import frozen, mutable
from anyshape.runtime.launch import bump_versions
from anyshape.user_kernels import NAMESPACE as USERS_KERNELS
from anyshape.version_counters import set_version

Run: TypeAlias = Callable[..., tuple[Any, ...]]
MOST_GRAPHS = 64
"""Of one program: the layouts that were used last."""
COPIED_BYTES = 2048
"""Results up to this size, such as a loss, are copied: callers keep many of them."""
RECORDED: tuple[type[Step], ...] = (
    *(Allocate, Free, View, ViewCall, Launch, ExternCall, Assertion, BindNumber, CheckStep),
)
"""Steps that give work to the device, or ask about sizes and numbers, which are part of a layout;
others wait for the device or are not known well enough."""
KNOWN_OPERATORS = tuple(
    f"{of}.{namespace}."
    for of in ("torch.ops", functional)
    for namespace in ("anyshape", USERS_KERNELS)
)
"""Operators that eager torch runs, which give work to the device and ask it nothing: ours
(``kernels/operators.py``), and launches of the program's own kernels."""


def why_not_recorded(program: Program) -> str | None:
    """Why the program is not recorded; None where it can be."""
    for step in program.flat_steps():
        if isinstance(step, BindItem):
            return f"it reads {step.buffer} on the host, and a graph would keep one call's number"
        if isinstance(step, EagerCall) and step.function.startswith(KNOWN_OPERATORS):
            continue
        if isinstance(step, EagerCall):
            return f"eager torch runs {step.function}, which may read numbers on the host"
        written = _written(step)
        if written is None and not isinstance(step, RECORDED):
            return f"it has a step of the kind {type(step).__name__}"
        if written is not None and program.buffers[written].role != "constant":
            return "it writes an argument"
    return None


def _written(step: Step) -> str | None:
    """What was handed in and is written, where the step says so."""
    match step:
        case BumpVersion(buffer=name) | Assign(target=name):
            return name
    return None


def _counted(step: Step) -> str | None:
    """The same where autograd counts it."""
    return _written(step) if isinstance(step, (Assign, BumpVersion)) and step.counted else None


def recorded(
    run: Run, program: Program, constants: Mapping[str, torch.Tensor]
) -> tuple[Run, Callable[[], str]]:
    """``run`` by way of graphs, of a program that can be recorded; and why the device has refused
    to record it, "" where it has not."""
    arguments = [name for name in program.inputs if name not in constants]
    used = {name for step in program.flat_steps() for name in step.mentions()}
    used.update(references(program.outputs))
    made = Recordings(
        run,
        frozenset(map(_storage, constants.values())),
        frozenset(n for n, name in enumerate(arguments) if name in used),
        tuple(constants[name] for name in map(_counted, program.flat_steps()) if name is not None),
    )
    return made, lambda: made.refused


@frozen
class Recording:
    """A graph, the tensors that it reads in place of arguments, and those that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[torch.Tensor]
    outputs: tuple[torch.Tensor, ...]


@mutable(eq=False, weakref_slot=True)
class Recordings:
    """The graphs of one program. ``constants``: their memory. ``used``: which of the arguments are
    read. ``written``: the constants that a call writes, as often as it does. ``seen``: layouts that
    were run once, and are recorded next. ``handed``: results that lie in the memory of the graphs;
    ``copies``: none do from now on, as a caller has kept one. ``last``: the stream of the last
    replay."""

    run: Run
    constants: frozenset[int]
    used: frozenset[int]
    written: tuple[torch.Tensor, ...] = ()
    graphs: OrderedDict[tuple[Any, ...], Recording] = field(default_factory=OrderedDict)
    seen: OrderedDict[tuple[Any, ...], None] = field(default_factory=OrderedDict)
    pool: Any = None
    side: torch.cuda.Stream | None = None
    ready: torch.cuda.Event | None = None
    refused: str = ""
    handed: list[StorageWeakRef] = field(default_factory=list)
    copies: bool = False
    last: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.copies = not self.written
        LIVE.add(self)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        try:
            return self._called(arguments)
        except torch.OutOfMemoryError:
            if torch.cuda.is_current_stream_capturing() or not released():
                raise
        return self.run(*arguments)  # nothing was written: that comes after all that takes memory

    def release(self) -> bool:
        """Lets go of its graphs and their memory, unless one of them is at work in a thread; false
        where there are none."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            found = bool(self.graphs)
            self._forget()
            return found
        finally:
            self.lock.release()

    def _forget(self) -> None:
        """What was handed out keeps its graph, which nothing replays any more."""
        self.graphs.clear()
        self.seen.clear()
        self.handed.clear()
        self.pool = None

    def _called(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.refused or torch.cuda.is_current_stream_capturing():
            return self.run(*arguments)
        if any(map(_overlaps, self._read(arguments))):
            return self.run(*arguments)
        key = tuple(map(_layout, arguments))
        with self.lock:
            if self._is_kept():
                self._forget()
                self.copies = True
            found = self.graphs.get(key)
            if found is None and key not in self.seen:
                self._remember(self.seen, key, None)
                return self.run(*arguments)
            return self._replay(key, found, arguments)

    def _remember(self, table: OrderedDict[Any, Any], key: tuple[Any, ...], made: Any) -> None:
        table[key] = made
        if len(table) > MOST_GRAPHS:
            table.popitem(last=False)

    def _is_kept(self) -> bool:
        """Has anybody still got what was handed out?"""
        if self.handed:
            self.handed = [ref for ref in self.handed if not ref.expired()]
        return bool(self.handed)

    def _read(self, arguments: tuple[Any, ...]) -> list[torch.Tensor]:
        """The tensors that a graph reads."""
        return [
            a for n, a in enumerate(arguments) if n in self.used and isinstance(a, torch.Tensor)
        ]

    def _replay(
        self, key: tuple[Any, ...], found: Recording | None, arguments: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        current = torch.cuda.current_stream()
        if self.ready is not None:
            current.wait_event(self.ready)
        if self.last is not None and self.last != current:
            current.wait_stream(self.last)  # what was handed out was read there
        made = found or self._record(arguments, current)
        if made is None:
            return self.run(*arguments)
        copied = [None if self._hands_out(o) else _empty_like(o) for o in made.outputs]
        if found is None:
            self._remember(self.graphs, key, made)
        else:
            self.graphs.move_to_end(key)
            if made.inputs:
                torch._foreach_copy_(made.inputs, [*map(_once, self._read(arguments))])
        bump_versions(self.written)
        made.graph.replay()
        pairs = [(t, o) for t, o in zip(copied, made.outputs) if t is not None]
        if pairs:
            torch._foreach_copy_([_once(t) for t, _ in pairs], [_once(o) for _, o in pairs])
        if self.ready is None:
            self.ready = torch.cuda.Event()
        self.ready.record(current)
        self.last = current
        return tuple(
            self._handed_out(made, o) if t is None else t for t, o in zip(copied, made.outputs)
        )

    def _hands_out(self, output: torch.Tensor) -> bool:
        return not self.copies and output.untyped_storage().nbytes() > COPIED_BYTES

    def _handed_out(self, made: Recording, output: torch.Tensor) -> torch.Tensor:
        """A result where the graph has left it: its storage keeps the graph, and so the memory."""
        given = _unowned(output)
        storage = given.untyped_storage()
        storage.graph = made.graph  # type: ignore[attr-defined] # any object may have one
        self.handed.append(StorageWeakRef(storage))
        return given

    def _record(self, arguments: tuple[Any, ...], current: torch.cuda.Stream) -> Recording | None:
        """Records a call; the graph has not run then, and nothing counts as written."""
        versions = [0 if tensor.is_inference() else tensor._version for tensor in self.written]
        inside = [
            _copied(a) if n in self.used and isinstance(a, torch.Tensor) else a
            for n, a in enumerate(arguments)
        ]
        graph = torch.cuda.CUDAGraph()
        try:
            outputs = self._captured(graph, inside, current)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._refuse(str(error))
            return None
        finally:
            for tensor, version in zip(self.written, versions, strict=True):
                set_version(tensor, version)
        inputs = [*map(_once, self._read(tuple(inside)))]
        given = (_storage(a) for a in inside if isinstance(a, torch.Tensor))
        if not _are_new(outputs, {*self.constants, *given}):
            self._refuse("a result is no tensor of its own")
            return None
        return Recording(graph, inputs, tuple(map(_unowned, outputs)))

    def _refuse(self, reason: str) -> None:
        """No call is recorded from here on, which is said once."""
        self.refused = reason
        warn(AnyshapeError("E234", reason=reason, remedy="use the default mode"))

    def _captured(
        self, graph: torch.cuda.CUDAGraph, inside: list[Any], current: torch.cuda.Stream
    ) -> tuple[Any, ...]:
        if self.pool is None or self.side is None:
            self.pool, self.side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                outputs = self.run(*inside)
            finally:
                graph.capture_end()
        current.wait_stream(self.side)
        return outputs


LIVE: weakref.WeakSet[Recordings] = weakref.WeakSet()
"""Of this process."""


def released() -> bool:
    """Gives the memory of all graphs back to torch's allocator; false where there was none."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # none is being replayed
    found = [each.release() for each in [*LIVE]]
    return any(found)


def _layout(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return argument.shape, argument.stride()
    return argument.hex() if isinstance(argument, float) else argument  # 0.0 and -0.0 are two


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout in memory of its own."""
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout and contents in memory of its own."""
    made = _empty_like(tensor)
    _once(made).copy_(_once(tensor))
    return made


def _unowned(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, which the tensor does not keep from being given to the next graph: what
    callers have of results does not lie there when that runs."""
    reach = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    storage = torch._C._construct_storage_from_data_pointer(
        *(tensor.data_ptr(), tensor.device, reach * tensor.element_size() if tensor.numel() else 0)
    )
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(storage, 0, tensor.shape, tensor.stride())


def _once(tensor: torch.Tensor) -> torch.Tensor:
    """Each element once: without what is repeated along a dimension of stride 0."""
    if 0 not in tensor.stride():
        return tensor
    shape = [min(n, 1) if s == 0 else n for n, s in zip(tensor.shape, tensor.stride())]
    return tensor.as_strided(shape, tensor.stride())


def _overlaps(tensor: torch.Tensor) -> bool:
    """May two elements lie at one address, other than along a dimension of stride 0?"""
    steps = sorted((s, n) for n, s in zip(tensor.shape, tensor.stride()) if s != 0 and n > 1)
    reach = 0  # of the last element so far
    for step, count in steps:
        if step <= reach:
            return True
        reach += step * (count - 1)
    return False


def _are_new(outputs: tuple[Any, ...], used: set[int]) -> bool:
    """Is each output a tensor in memory of its own, none of which is used?"""
    own: list[int] = [_storage(o) for o in outputs if isinstance(o, torch.Tensor)]
    return len({*own}) == len(outputs) and used.isdisjoint(own)
