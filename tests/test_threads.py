"""Threads, forks and copies: many callers of one compiled function, and counts that add up."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import anyshape

THREADS = 8
SIZES = (3, 1, 7, 0, 2, 33, 5, 16)


def at_once(work: Callable[[int], object]) -> None:
    """Runs ``work(0)`` to ``work(7)`` at once; what one of them raises is raised here."""
    start, errors = threading.Barrier(THREADS), []

    def run(index: int) -> None:
        try:
            start.wait(30)
            with torch.no_grad():
                work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def softmax_of_rows(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1) + x.sum()


def test_first_calls_that_race_give_one_specialization_and_all_are_counted() -> None:
    fast = anyshape.compile(softmax_of_rows, fullgraph=True)

    def work(index: int) -> None:
        for rows in (*SIZES[index:], *SIZES[:index]):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(fast(x), softmax_of_rows(x), rtol=1e-4, atol=1e-5)

    at_once(work)
    stats = fast.stats()
    assert (stats.specializations, stats.recompiles) == (1, 0)
    assert stats.calls == THREADS * len(SIZES)
    assert len(fast.graphs()) == 1


def test_racing_specializations_are_one_for_each_dtype() -> None:
    fast = anyshape.compile(softmax_of_rows, fullgraph=True)
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

    def work(index: int) -> None:
        for step in range(8):
            x = torch.randn(SIZES[step], 4).to(dtypes[(index + step) % 4])
            torch.testing.assert_close(fast(x), softmax_of_rows(x), rtol=2e-2, atol=2e-2)

    at_once(work)
    assert fast.stats().specializations == len(dtypes)


def test_threads_with_breaks_keep_their_own_frames() -> None:
    def program(x: Tensor, log: list[float]) -> Tensor:
        for scale in (1.0, 2.0):
            log.append(float(x.sum()))
            if log[-1] > 0:
                x = x + scale
            else:
                x = x * scale - 1
        return x

    fast = anyshape.compile(program)

    def work(index: int) -> None:
        for rows in SIZES:
            x = torch.full((rows, 2), float(index - 4))
            ours, theirs = [], []
            torch.testing.assert_close(fast(x, ours), program(x, theirs))
            assert ours == theirs

    at_once(work)


def test_threads_that_write_their_own_arguments() -> None:
    def program(x: Tensor) -> Tensor:
        x.add_(1)
        return x[:1] * 2

    fast = anyshape.compile(program)

    def work(index: int) -> None:
        x, y = torch.zeros(index + 1, 3), torch.zeros(index + 1, 3)
        for _ in range(20):
            torch.testing.assert_close(fast(x), program(y))
        assert torch.equal(x, y)

    at_once(work)


def test_grad_mode_and_default_dtype_belong_to_the_thread_that_calls() -> None:
    fast = anyshape.compile(lambda x: torch.relu(x) * 2)

    def work(index: int) -> None:
        for _ in range(10):
            x = torch.ones(index + 1, requires_grad=True)
            with torch.set_grad_enabled(index % 2 == 0):
                assert fast(x).requires_grad is (index % 2 == 0)

    at_once(work)


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 2)).eval()


@torch.no_grad()
def test_a_state_dict_goes_out_and_back_in(module: nn.Module) -> None:
    fast, x = anyshape.compile(module), torch.randn(3, 4)
    before, saved = fast(x), {name: t.clone() for name, t in fast.state_dict().items()}
    for parameter in fast.parameters():
        parameter.mul_(1.5)
    torch.testing.assert_close(fast(x), module(x))
    assert not torch.allclose(fast(x), before)
    assert not fast.load_state_dict(saved).missing_keys
    torch.testing.assert_close(fast(x), before)
    fast.load_state_dict({k: v.clone() for k, v in saved.items()}, assign=True)
    torch.testing.assert_close(fast(x), before)


@torch.no_grad()
def test_copies_compile_for_themselves_and_share_nothing(module: nn.Module) -> None:
    fast, x = anyshape.compile(module), torch.randn(3, 4)
    expected = fast(x)
    for twin in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert type(twin).__name__ == type(module).__name__
        torch.testing.assert_close(twin(x), expected)
        twin[0].weight.zero_()
        assert twin.stats().calls == 1
        torch.testing.assert_close(twin(x), copy.deepcopy(twin)(x))
    torch.testing.assert_close(fast(x), expected)
    assert fast.stats().specializations == 1


@torch.no_grad()
def test_a_compiled_function_is_pickled_by_name() -> None:
    again = pickle.loads(pickle.dumps(anyshape.compile(softmax_of_rows)))
    x = torch.randn(3, 4)
    torch.testing.assert_close(again(x), softmax_of_rows(x), rtol=1e-4, atol=1e-5)
    assert again.stats().calls == 1
