"""Native regions on a GPU as CUDA graphs: calls that were made before, addresses and all.

    region(arena, x, w, 64)   ->   launch(graph of arena, x, w, 64)

In: the C function of a native region. Out: a function that does the same. What a region gives the
device follows from what it is handed (addresses, sizes, numbers), the stream, and what torch's
libraries are told to do. So a call that was made a few times is recorded, and the next such call
is one launch: 2.5 us for all of a region's kernels, where each costs 3.6 us of the host and a
product 12. Nothing is copied and no memory is kept but what libraries take for themselves: between
calls all of it is the caller's and torch's, whose allocator gives equal calls equal addresses. A
call with other addresses is another one, and runs as it did.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field
from typing import Any, TypeAlias, TypeVar

import torch

from anyshape.interrupts import is_interrupt
from anyshape.ir.code import Replayable
from anyshape.nouns import frozen, mutable
from anyshape.runtime.cuda_driver import (
    begin_recording,
    end_recording,
    forget_graph,
    launch_graph,
    new_stream,
)
from anyshape.runtime.raised_in_c import RAISED

Key: TypeAlias = tuple[Any, ...]
T = TypeVar("T")
SIGHTS = 3
"""Of a call before it is recorded, which takes as long as it takes to make it some eight times."""
PAYS = 8
"""Replays that a recording is worth. Where one had fewer when it was given up, the next ones are
made after twice as many sights."""
MOST_GRAPHS, MOST_SEEN = 16, 64
"""Of one native region: those that were made last."""
MOST_IN_ALL = 256
"""Of a process: each of 32 steps has 140 KB of the device's memory and 200 KB of the host's."""
LARGE_ARENA = 1 << 26
"""Bytes: where there are more the device takes longer than its launches, and what libraries return
may be as large, which graphs would keep."""
MOST_STREAMS = 4
"""Of a process and the program's own, whose calls are recorded: libraries have memory of their own
for each, 32 MB for products on an H200. Default streams always are."""
DEFAULT_STREAM = 0
FLAGS = (
    *("_get_float32_matmul_precision", "_get_deterministic_algorithms"),
    *("_get_cublas_allow_fp16_reduced_precision_reduction",),
    *("_get_cublas_allow_bf16_reduced_precision_reduction",),
    *("_get_cublas_allow_fp16_accumulation", "_get_blas_preferred_backend"),
    *("_get_sm_carveout_experimental", "_get_cudnn_deterministic", "_get_cudnn_enabled"),
    *("_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled"),
    *("_get_cudnn_sdp_enabled", "_get_overrideable_sdp_enabled", "_get_fa3_sdp_enabled"),
    *("_get_math_sdp_allow_fp16_bf16_reduction",),
)
"""What torch's libraries are told to do, by the functions of torch that say so."""
_READS = tuple(getattr(torch._C, name) for name in FLAGS if hasattr(torch._C, name))
_sdp_order: Callable[[], list[int]] = getattr(torch._C, "_get_sdp_priority_order", list)


def library_flags() -> Key:
    """What torch's libraries are told to do now."""
    return (*[read() for read in _READS], *_sdp_order())


def current_stream(device: int) -> int:
    """The address of the device's current stream."""
    return torch._C._cuda_getCurrentRawStream(device)


def is_being_recorded() -> bool:
    """Does the program record what it gives the current stream?"""
    return torch.cuda.is_current_stream_capturing()


@mutable(eq=False, weakref_slot=True)
class Graph:
    """A call that was recorded, what libraries were told to do then, how often it was made again;
    who launches it holds the lock."""

    address: int
    flags: Key = ()
    replays: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@mutable(eq=False)
class RegionGraphs:
    """A native region: ``run`` is its C function. ``seen`` are calls that were not recorded yet,
    and how often each thread has made them; ``sights``: how often one is made before it is;
    ``earlier``: how often graphs were launched that were given up since."""

    run: Callable[..., int]
    about: Replayable
    graphs: OrderedDict[Key, Graph] = field(default_factory=OrderedDict)
    seen: OrderedDict[Key, int] = field(default_factory=OrderedDict)
    sights: int = SIGHTS
    refused: bool = False
    earlier: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, memory: torch.Tensor | list[torch.Tensor] | None, *given: Any) -> int:
        """The status of C's. ``memory`` is that of the arena, a list where it is large."""
        if type(memory) is list and sum(each.nbytes for each in memory) > LARGE_ARENA:
            return self.run(*given)
        key = self._key(given)
        graph = self.graphs.get(key)
        if graph is None or graph.flags != self._flags():
            return self._first(key, given)
        if is_being_recorded() or self._launched(graph, key):
            return self.run(*given)
        return 0

    def _key(self, given: tuple[Any, ...]) -> Key:
        """Floats by their bits: 0.0 and -0.0 are two."""
        floats = self.about.floats
        if floats:
            given = (*given[:-floats], *[float(number).hex() for number in given[-floats:]])
        return (current_stream(self.about.device), *given)

    def _flags(self) -> Key:
        return library_flags() if self.about.has_library else ()

    def _launched(self, graph: Graph, key: Key) -> int:
        """The driver's status, which has launched nothing where it is not 0."""
        with graph.lock:
            graph.replays += 1
            return launch_graph(graph.address, key[0])

    def _first(self, key: Key, given: tuple[Any, ...]) -> int:
        """A call that is not recorded; it is, where this thread has made it often enough."""
        if self.refused:
            return self.run(*given)
        sight = (threading.get_ident(), *key)  # libraries have made what they keep for a thread
        times, where = self.seen.get(sight, 0), (self.about.device, key[0])
        if times + 1 >= self.sights and RECORDER.has_room(*where) and not is_being_recorded():
            self.seen.pop(sight, None)
            flags = self._flags()
            graph = RECORDER.recorded(*where, lambda: self.run(*given))
            if graph is not None and not self._launched(graph, key):
                graph.flags = flags
                self._keep(key, graph)
                return 0
            self._refused()
        status = self.run(*given)
        if not status:
            with self.lock:
                _remember(self.seen, sight, times + 1, MOST_SEEN)
        return status

    def _refused(self) -> None:
        """Nothing is recorded from here on. What Python raised under a recording does not matter:
        the call is made without one; but for an interrupt, which was meant for the program."""
        self.refused = True
        error = RAISED.pop(threading.get_ident(), None)
        if error is not None and is_interrupt(error):
            raise error

    def _keep(self, key: Key, graph: Graph) -> None:
        with self.lock:
            replaced = self.graphs.get(key)  # it was recorded under other flags
            given_up = _remember(self.graphs, key, graph, MOST_GRAPHS) or replaced
            if given_up is not None:
                self.earlier += given_up.replays
                self.sights *= 2 if given_up.replays < PAYS else 1

    def count(self, kind: str) -> int:
        """The graphs that are kept (``graph``), or how often one was launched (``replay``)."""
        with self.lock:
            graphs = list(self.graphs.values())
            if kind == "graph":
                return len(graphs)
            return self.earlier + sum(graph.replays for graph in graphs)


def _remember(table: OrderedDict[Key, T], key: Key, value: T, most: int) -> T | None:
    """As the last of the table; its first, if that makes room for it."""
    table[key] = value
    table.move_to_end(key)
    return table.popitem(last=False)[1] if len(table) > most else None


@frozen
class Side:
    """Where calls of a stream are recorded: a stream of ours, so that what libraries keep for it
    serves these graphs alone, which run one after the other; and the pool of the memory that they
    take while something is recorded, which nobody else is given."""

    stream: torch.cuda.Stream
    pool: torch.cuda.MemPool


@mutable
class Recorder:
    """Records calls, of this process, one at a time."""

    sides: dict[tuple[int, int], Side | None] = field(default_factory=dict)
    graphs: weakref.WeakSet[Graph] = field(default_factory=weakref.WeakSet)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def recorded(self, device: int, stream: int, call: Callable[[], int]) -> Graph | None:
        """What the call gives the stream, which it has not been given; None where that could not
        be recorded."""
        with self.lock:
            side = self._side(device, stream)
            address = None if side is None else _recorded(side, call)
        if address is None:
            return None
        graph = Graph(address)
        weakref.finalize(graph, forget_graph, address).atexit = False
        self.graphs.add(graph)
        return graph

    def has_room(self, device: int, stream: int) -> bool:
        """May one more graph be kept, and of this stream?"""
        own = sum(known != DEFAULT_STREAM for _, known in self.sides)
        known = stream == DEFAULT_STREAM or (device, stream) in self.sides or own < MOST_STREAMS
        return known and len(self.graphs) < MOST_IN_ALL

    def _side(self, device: int, stream: int) -> Side | None:
        if (device, stream) not in self.sides:
            self.sides[device, stream] = _new_side(device)
        return self.sides[device, stream]


RECORDER = Recorder()
"""Of this process."""


def _new_side(device: int) -> Side | None:
    """None where the allocator has no pools, or the driver no more streams."""
    own = torch.cuda.memory.get_allocator_backend() == "native"
    stream = new_stream() if own and hasattr(torch.cuda, "MemPool") else None
    if stream is None:
        return None
    return Side(torch.cuda.ExternalStream(stream, device), torch.cuda.MemPool())


def _recorded(side: Side, call: Callable[[], int]) -> int | None:
    """The address of a graph that can be launched."""
    stream = side.stream.cuda_stream
    with torch.cuda.stream(side.stream), torch.cuda.use_mem_pool(side.pool):
        if not _gives_memory(side.pool) or begin_recording(stream):
            return None
        try:
            status = call()
        finally:
            graph = end_recording(stream)
    if status and graph is not None:
        forget_graph(graph)
    return None if status else graph


def _gives_memory(pool: torch.cuda.MemPool) -> bool:
    """Is what is allocated now the pool's? Not without the allocator's caching, nor inside of a
    pool that the program uses."""
    made = torch.empty(1, dtype=torch.uint8, device="cuda").data_ptr()
    segments = ((each["address"], each["total_size"]) for each in pool.snapshot())
    return any(begin <= made < begin + size for begin, size in segments)
