"""CUDA graphs of programs without a GPU: what happens to them where memory runs out."""

from __future__ import annotations

import threading

import pytest
import torch

from anyshape.targets.triton import graphs
from anyshape.targets.triton.graphs import Recordings


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
    made = Recordings(run, frozenset())
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
        recordings = holding(run) if held else Recordings(run, frozenset())
        with pytest.raises(torch.OutOfMemoryError):
            recordings(torch.zeros(3))
        assert run.calls == calls
        assert recordings(torch.zeros(4))[0].tolist() == [1] * 4  # the next call works


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
