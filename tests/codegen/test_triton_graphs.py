"""CUDA graphs of programs without a GPU: what happens to them where memory runs out, what they write."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch

from anyshape.errors import PerformanceWarning
from anyshape.ir.program import Program
from anyshape.targets.triton import graphs
from anyshape.targets.triton.graphs import Recordings, recorded
from anyshape.version_counters import set_version


class Runs:
    """A program that runs out of memory as often as it is told."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.calls += 1
        if self.calls <= self.failures:
            raise torch.OutOfMemoryError("out of memory")
        return (x + 1,)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(graphs, "LIVE", type(graphs.LIVE)())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def holding(run) -> Recordings:
    """With a graph of some layout."""
    made = Recordings(run, frozenset(), frozenset({0}))
    made.graphs["a layout"] = made.seen["a layout"] = None
    return made


def test_graphs_of_all_programs_are_let_go_and_the_call_is_made_again():
    run, other = Runs(1), holding(Runs(0))
    recordings = holding(run)
    (made,) = recordings(torch.zeros(3))
    assert made.tolist() == [1, 1, 1] and run.calls == 2
    assert not recordings.graphs and not other.graphs


def test_it_is_an_error_where_nothing_can_be_let_go_or_that_does_not_suffice():
    for run, held, calls in ((Runs(1), False, 1), (Runs(2), True, 2)):
        recordings = holding(run) if held else Recordings(run, frozenset(), frozenset({0}))
        with pytest.raises(torch.OutOfMemoryError):
            recordings(torch.zeros(3))
        assert run.calls == calls
        assert recordings(torch.zeros(4))[0].tolist() == [1] * 4  # the next call works


def test_what_the_device_refuses_to_record_is_said_once_and_runs(monkeypatch):
    def captured(self, graph, inside, current):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Recordings, "_captured", captured)
    for name in ("CUDAGraph", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    program = Program({}, ("x",), (), (), ())
    run, why = recorded(Runs(0), program, {})
    assert run(torch.zeros(3))[0].tolist() == [1] * 3 and why() == ""
    with pytest.warns(PerformanceWarning, match="E234.*not permitted when stream is capturing"):
        assert run(torch.zeros(3))[0].tolist() == [1] * 3
    assert why() == "operation not permitted when stream is capturing"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(torch.zeros(3))[0].tolist() == [1] * 3


def test_graphs_that_another_thread_is_using_are_kept():
    other, run = holding(Runs(0)), Runs(1)
    recordings = holding(run)
    begun, end = threading.Event(), threading.Event()

    def use():
        with other.lock:
            begun.set()
            end.wait(30)

    thread = threading.Thread(target=use)
    thread.start()
    assert begun.wait(30)
    recordings(torch.zeros(3))
    end.set()
    thread.join()
    assert other.graphs and not recordings.graphs


def test_what_is_let_go_is_no_longer_listed():
    recordings = holding(Runs(0))
    assert list(graphs.LIVE) == [recordings]
    del recordings
    assert not list(graphs.LIVE)


class Graph:
    """Replays what was recorded as a GPU does: where its tensors lay then, and counts no versions."""

    def replay(self):
        versions = [t._version for t in self.written]
        for output, made in zip(self.outputs, self.run(*self.inside), strict=True):
            output.copy_(made)
        for tensor, version in zip(self.written, versions, strict=True):
            set_version(tensor, version)


class Event:
    def record(self, stream):
        pass


@pytest.fixture
def recording(monkeypatch):
    """Recording runs the program, whose writes are taken back: a GPU does nothing then."""

    def captured(recordings, graph, inside, current):
        kept = [t.clone() for t in recordings.written]
        graph.run, graph.inside, graph.written = recordings.run, inside, recordings.written
        graph.outputs = recordings.run(*inside)
        for tensor, before in zip(recordings.written, kept):
            tensor.data.copy_(before)
        return graph.outputs

    monkeypatch.setattr(Recordings, "_captured", captured)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    stream = type("Stream", (), {"wait_event": lambda self, event: None})()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)


def test_a_constant_is_written_once_a_call_and_counted_once(recording):
    weight = torch.zeros(3)

    def run(old, x):
        weight.add_(x)
        return (weight * 2,)

    recordings = Recordings(run, frozenset({graphs._storage(weight)}), frozenset({1}), (weight,))
    repeated = torch.zeros(1).as_strided((2, 2), (0, 0))  # nothing reads it
    kept = []
    for n in range(1, 6):
        (made,) = recordings(repeated, torch.ones(3))
        kept.append(made)
        assert weight.tolist() == [n] * 3 and weight._version == n
    assert len(recordings.graphs) == 1
    assert [made.tolist() for made in kept] == [[2.0 * n] * 3 for n in range(1, 6)]
    recordings(repeated, torch.ones(1))  # of another shape
    assert weight.tolist() == [6] * 3


def test_what_cannot_be_recorded_is_run_and_nothing_counts_twice(recording, monkeypatch):
    weight = torch.zeros(3)

    def run(x):
        weight.add_(x)
        return (weight,)  # is no tensor of the graph's own

    recordings = Recordings(run, frozenset({graphs._storage(weight)}), frozenset({0}), (weight,))
    for n in range(1, 5):
        recordings(torch.ones(3))
        assert weight.tolist() == [n] * 3 and weight._version == n
    assert recordings.refused and not recordings.graphs


class Step:
    """Writes its weight, and gives a large gradient and a loss."""

    def __init__(self) -> None:
        self.weight, self.calls = torch.zeros(1000), 0

    def run(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.calls += 1
        self.weight.add_(x[:1].expand(1000))
        return self.weight * 2, self.weight[:1].clone()

    def recordings(self) -> Recordings:
        constants = frozenset({graphs._storage(self.weight)})
        return Recordings(self.run, constants, frozenset({0}), (self.weight,))


def test_gradients_are_handed_out_where_the_graph_leaves_them(recording):
    step = Step()
    recordings, losses, positions = step.recordings(), [], set()
    for n in range(1, 7):
        gradient, loss = recordings(torch.ones(1 + n % 2))
        assert gradient.eq(2.0 * n).all() and step.weight.eq(n).all()
        losses.append(loss)
        if n > 4:
            positions.add(gradient.data_ptr())
            assert gradient.untyped_storage().graph in [
                made.graph for made in recordings.graphs.values()
            ]
        del gradient
    assert not recordings.copies and len(recordings.graphs) == len(positions) == 2
    assert [loss.item() for loss in losses] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("what", ["itself", "a view", "its memory"])
def test_no_graph_runs_into_what_somebody_has_kept(recording, what):
    step = Step()
    recordings, kept = step.recordings(), []
    for n in range(1, 9):
        gradient, _ = recordings(torch.ones(1))
        assert gradient.eq(2.0 * n).all() and step.weight.eq(n).all()
        if n > 3:  # the first three were not kept
            kept.append(
                gradient
                if what == "itself"
                else gradient[500:]
                if what == "a view"
                else torch.empty(0).set_(gradient.untyped_storage(), 0, (1000,), (1,))
            )
        del gradient
    assert recordings.copies and recordings.graphs
    assert all(made.eq(2.0 * n).all() for n, made in enumerate(kept, 4))


def test_graphs_that_are_let_go_leave_what_they_have_handed_out(recording):
    step = Step()
    recordings = step.recordings()
    for _ in range(3):
        gradient = None
        gradient, _ = recordings(torch.ones(1))
    assert recordings.release()
    for _ in range(3):
        recordings(torch.ones(1))
    assert gradient.eq(6).all()
