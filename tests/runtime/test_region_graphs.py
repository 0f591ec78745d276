"""Which calls of a native region are recorded, and which are made again from what was recorded."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from typing import Any

import pytest
import torch

from anyshape.ir.code import Replayable
from anyshape.runtime import region_graphs
from anyshape.runtime.raised_in_c import RAISED
from anyshape.runtime.region_graphs import (
    DEFAULT_STREAM,
    LARGE_ARENA,
    MOST_GRAPHS,
    MOST_SEEN,
    MOST_STREAMS,
    PAYS,
    SIGHTS,
    Graph,
    Recorder,
    RegionGraphs,
)

SMALL = None


class Device:
    """Counts what a region did by itself (``ran``), what was recorded, and what was launched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[tuple[Any, ...]] = []
        self.recorded: list[int] = []
        self.launched: list[tuple[int, int]] = []
        self.stream, self.is_recording = 5, False
        self.refuses, self.refuses_launches, self.status = False, False, 0
        self.raises: BaseException | None = None
        monkeypatch.setattr(region_graphs, "current_stream", lambda device: self.stream)
        monkeypatch.setattr(region_graphs, "is_being_recorded", lambda: self.is_recording)
        monkeypatch.setattr(region_graphs, "launch_graph", self.launch)
        monkeypatch.setattr(Recorder, "recorded", lambda recorder, *given: self.record(*given))

    def run(self, *given: Any) -> int:
        self.ran.append(given)
        return self.status

    def record(self, device: int, stream: int, call: Any) -> Graph | None:
        if self.raises is not None:
            RAISED[threading.get_ident()] = self.raises
        if self.refuses or self.raises is not None:
            return None
        self.recorded.append(stream)
        return Graph(len(self.recorded))

    def launch(self, graph: int, stream: int) -> int:
        if self.refuses_launches:
            return 201
        self.launched.append((graph, stream))
        return 0

    def region(self, floats: int = 0, *, has_library: bool = True) -> RegionGraphs:
        return RegionGraphs(self.run, Replayable(0, floats, has_library))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def test_a_call_that_is_made_again_is_recorded_once_and_launched_from_then_on(device) -> None:
    region = device.region()
    for _ in range(SIGHTS + 5):
        assert region(SMALL, 100, 200, 64) == 0
    assert len(device.ran) == SIGHTS - 1
    assert device.recorded == [5] and device.launched == [(1, 5)] * 6
    assert region.count("graph") == 1 and region.count("replay") == 6


@pytest.mark.parametrize("other", [(SMALL, 100, 208, 64), (SMALL, 100, 200, 65)])
def test_another_address_or_size_is_another_call(device, other) -> None:
    region = device.region()
    for _ in range(SIGHTS):
        region(SMALL, 100, 200, 64)
    region(*other)
    assert device.ran[-1] == other[1:] and len(device.launched) == 1


def test_floats_are_told_by_their_bits(device) -> None:
    region = device.region(floats=2)
    for _ in range(SIGHTS):
        region(SMALL, 100, 1.0, 0.0)
    region(SMALL, 100, 1, -0.0)
    assert device.ran[-1] == (100, 1, -0.0) and len(device.launched) == 1
    for _ in range(SIGHTS):
        region(SMALL, 100, 1.0, float("nan"))
    assert len(device.launched) == 2


def test_another_stream_is_another_call(device) -> None:
    region = device.region()
    for _ in range(SIGHTS):
        region(SMALL, 100)
    device.stream = 6
    for _ in range(SIGHTS):
        region(SMALL, 100)
    assert device.recorded == [5, 6] and device.launched == [(1, 5), (2, 6)]


def test_what_libraries_are_told_to_do_is_part_of_a_call_that_calls_one(device) -> None:
    with_library, without = device.region(), device.region(has_library=False)
    for region in (with_library, without):
        for _ in range(SIGHTS):
            region(SMALL, 100)
    before = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = not before
    try:
        ran = len(device.ran)
        with_library(SMALL, 100)
        assert len(device.ran) == ran + 1
        without(SMALL, 100)
        assert len(device.ran) == ran + 1
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = before
    with_library(SMALL, 100)
    assert len(device.ran) == ran + 1
    flash = torch.backends.cuda.flash_sdp_enabled()
    torch.backends.cuda.enable_flash_sdp(not flash)
    with_library(SMALL, 100)
    torch.backends.cuda.enable_flash_sdp(flash)
    assert len(device.ran) == ran + 2


def test_flags_that_change_again_and_again_make_recordings_rarer(device) -> None:
    region = device.region()
    before = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    try:
        for turn in range(20 * SIGHTS):
            if turn % SIGHTS == 0:
                torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction ^= True
            region(SMALL, 100)
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = before
    assert len(region.graphs) == 1 and len(device.recorded) <= 5


def test_while_the_program_records_something_nothing_is_recorded_or_launched(device) -> None:
    region = device.region()
    device.is_recording = True
    for _ in range(SIGHTS + 2):
        region(SMALL, 100)
    assert not device.recorded
    device.is_recording = False
    region(SMALL, 100)
    assert device.launched == [(1, 5)]
    device.is_recording = True
    region(SMALL, 100)
    assert device.launched == [(1, 5)] and len(device.ran) == SIGHTS + 3


def test_regions_with_large_memory_run_as_they_did(device) -> None:
    region = device.region()
    large = [torch.empty(LARGE_ARENA // 2, dtype=torch.uint8) for _ in range(2)]
    for _ in range(SIGHTS + 2):
        region([*large, torch.empty(1)], 100)
    assert not device.recorded and device.ran == [(100,)] * (SIGHTS + 2)
    for _ in range(SIGHTS):
        region(large, 100)
    assert device.recorded


@pytest.mark.parametrize("raised", [None, RuntimeError("a module is loaded")])
def test_what_cannot_be_recorded_runs_and_is_not_tried_again(device, raised) -> None:
    region = device.region()
    device.refuses, device.raises = True, raised
    for _ in range(SIGHTS + 2):
        assert region(SMALL, 100) == 0
    device.refuses, device.raises = False, None
    for _ in range(SIGHTS + 2):
        region(SMALL, 100)
    assert not device.recorded and len(device.ran) == 2 * SIGHTS + 4 and not RAISED


def test_an_interrupt_under_a_recording_is_the_programs(device) -> None:
    region = device.region()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        device.raises = error
    finally:
        signal.signal(signal.SIGINT, before)
    for _ in range(SIGHTS - 1):
        region(SMALL, 100)
    with pytest.raises(KeyboardInterrupt):
        region(SMALL, 100)
    assert not RAISED


def test_where_the_driver_refuses_to_launch_a_graph_the_region_runs(device) -> None:
    region = device.region()
    for _ in range(SIGHTS):
        region(SMALL, 100)
    device.refuses_launches = True
    region(SMALL, 100)
    assert len(device.ran) == SIGHTS


def test_a_call_that_fails_is_not_counted(device) -> None:
    region = device.region()
    device.status = 2
    for _ in range(SIGHTS + 2):
        assert region(SMALL, 100) == 2
    assert not device.recorded and not region.seen


def test_each_thread_has_to_make_a_call_itself_before_it_records_it(device) -> None:
    """Libraries make what they keep for a thread at its first call, which cannot be recorded."""
    region = device.region()
    for _ in range(SIGHTS - 1):
        region(SMALL, 100)
    thread = threading.Thread(target=region, args=(SMALL, 100))
    thread.start()
    thread.join()
    assert not device.recorded
    region(SMALL, 100)
    assert device.recorded


def test_tables_are_bounded_and_graphs_that_were_of_no_use_make_the_next_ones_rarer(device) -> None:
    region = device.region()
    for address in range(MOST_GRAPHS + 1):
        for _ in range(SIGHTS):
            region(SMALL, address)
    assert len(region.graphs) == MOST_GRAPHS and region.sights == 2 * SIGHTS
    for address in range(1000, 1000 + 2 * MOST_SEEN):
        region(SMALL, address)
    assert len(region.seen) <= MOST_SEEN and len(device.recorded) == MOST_GRAPHS + 1
    used = device.region()
    for address in range(MOST_GRAPHS + 1):
        for _ in range(SIGHTS + PAYS):
            used(SMALL, address)
    assert used.sights == SIGHTS
    assert used.count("graph") == MOST_GRAPHS
    assert used.count("replay") == (MOST_GRAPHS + 1) * (PAYS + 1)


def test_a_process_has_so_many_graphs_and_no_more(device, monkeypatch) -> None:
    monkeypatch.setattr(Recorder, "has_room", lambda *given: len(device.recorded) < 2)
    region = device.region()
    for address in (1, 2, 3) * (SIGHTS + 1):
        region(SMALL, address)
    assert len(device.recorded) == 2 and len(device.launched) == 4
    monkeypatch.setattr(Recorder, "has_room", lambda *given: True)
    region(SMALL, 3)
    assert len(device.recorded) == 3 and not region.refused


def test_graphs_that_live_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(region_graphs, "MOST_IN_ALL", 1)
    recorder = Recorder()
    graph = Graph(1)
    recorder.graphs.add(graph)
    assert not recorder.has_room(0, 5)
    del graph
    gc.collect()
    assert recorder.has_room(0, 5)
    recorder.sides = {(0, stream): None for stream in range(1, 1 + MOST_STREAMS)}
    assert recorder.has_room(0, 1) and not recorder.has_room(0, 1 + MOST_STREAMS)
    assert recorder.has_room(0, DEFAULT_STREAM) and recorder.has_room(1, DEFAULT_STREAM)


def test_graphs_are_let_go_of_with_their_region(device, monkeypatch) -> None:
    region = device.region()
    for _ in range(SIGHTS):
        region(SMALL, 100)
    (graph,) = map(weakref.ref, region.graphs.values())
    del region
    gc.collect()
    assert graph() is None
