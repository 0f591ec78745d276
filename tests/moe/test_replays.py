"""Launches that are made again: by a kernel that is called as Triton's are, and writes memory by its address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.kernels.replays import Replayed, current_recorder


@dataclass
class Descriptor:
    """As Triton's, of which a launch reads the base's address."""

    base: Any
    shape: list[int]


class Compiled:
    """A kernel that adds `number` to `count` floats."""

    function, packed_metadata = 1, (4, 1, 0)

    def __init__(self) -> None:
        self.runs = 0

    def run(self, *given: Any) -> None:
        *about, target, source, count, number = given
        assert about == [2, 1, 1, 0, 1, (4, 1, 0), None, None, None]
        self.runs += 1
        target, source = (
            a.base.data_ptr() if isinstance(a, Descriptor)
            else a.data_ptr() if isinstance(a, Tensor) else a
            for a in (target, source)
        )  # fmt: skip
        put, read = ((ctypes.c_float * count).from_address(a) for a in (target, source))
        for n in range(count):
            put[n] = read[n] + number


class Kernel:
    def __init__(self) -> None:
        self.compiled = Compiled()

    def __call__(self, *values: Any) -> None:
        self.compiled.run(2, 1, 1, 0, 1, (4, 1, 0), None, None, None, *values)
        if recorder := current_recorder():
            recorder.launched(self.compiled, (2,), values)


def counted(function: Callable[..., Any]) -> tuple[Replayed, list[int]]:
    calls: list[int] = []
    return Replayed(lambda *given: calls.append(1) or function(*given)), calls


def check(function: Callable[..., Any], *cases: tuple[Any, ...], recorded: int) -> None:
    """Twice each case, with other tensors; the function itself was called for each kind once."""
    replayed, calls = counted(function)
    for _ in range(3):
        for case in cases:
            given = [torch.randn_like(a) if isinstance(a, Tensor) else a for a in case]
            own = [a.clone() if isinstance(a, Tensor) else a for a in given]
            torch.testing.assert_close(replayed(*given), function(*own))
            torch.testing.assert_close(given, own)
    assert len(calls) == recorded


def add(kernel: Kernel, x: Tensor, number: float) -> Tensor:
    out = torch.empty_like(x)
    kernel(out, x, x.numel(), number)
    return out


def test_a_kernel_and_its_result() -> None:
    kernel = Kernel()
    check(lambda x: add(kernel, x, 2.0), (torch.zeros(5),), recorded=1)


def test_each_kind_of_arguments_is_recorded() -> None:
    kernel = Kernel()
    cases = [
        (torch.zeros(5), 1.0),
        (torch.zeros(6), 1.0),
        (torch.zeros(5), 2.0),
        (torch.zeros(1, 5), 1.0),
    ]
    check(lambda x, number: add(kernel, x, number), *cases, recorded=4)


def test_operators_of_torch_between_kernels() -> None:
    kernel = Kernel()

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        product = torch.mm(add(kernel, x, 1.0), y.t())
        return product, add(kernel, product.contiguous(), 3.0).sum(0)

    check(function, (torch.zeros(3, 4), torch.zeros(2, 4)), recorded=1)


def test_parts_of_tensors() -> None:
    kernel = Kernel()

    def function(x: Tensor) -> Tensor:
        out = torch.zeros(2, 6)
        kernel(out[1, 2:], x.view(4, 3)[1:], 4, 1.0)
        kernel(out.as_strided((2,), (1,)), x[6:], 2, 5.0)
        return out[:, 1:]

    check(function, (torch.zeros(12),), recorded=1)


def test_descriptors() -> None:
    kernel = Kernel()

    def function(x: Tensor) -> Tensor:
        out = torch.empty(2, 6)
        kernel(Descriptor(out, [2, 6]), Descriptor(x[1:], [2, 6]), 12, 1.0)
        return out

    check(function, (torch.zeros(3, 6),), recorded=1)


def test_memory_between_kernels_is_one_allocation() -> None:
    kernel = Kernel()

    def function(x: Tensor) -> Tensor:
        first, second = torch.empty(5), torch.empty(700)
        kernel(first, x, 5, 1.0)
        kernel(second[300:], x, 5, 2.0)
        kernel(second, first, 5, 1.0)
        out = torch.empty(2, 5)
        kernel(out, second, 5, 1.0)
        kernel(out[1], second[300:], 5, 1.0)
        return out

    check(function, (torch.zeros(5),), recorded=1)
    replayed, x = Replayed(function), torch.zeros(5)
    replayed(x)
    with torch.profiler.profile() as seen:
        replayed(x)
    assert [event.name for event in seen.events()].count("aten::empty") == 2


def test_arguments_that_are_written() -> None:
    kernel = Kernel()

    def function(x: Tensor, y: Tensor) -> None:
        kernel(x, y, 5, 1.0)
        x.mul_(y)
        y.copy_(x)

    check(function, (torch.zeros(5), torch.zeros(5)), recorded=1)


def test_arguments_that_share_memory() -> None:
    """What is recorded follows from which tensor it was, not from where that lay."""
    kernel = Kernel()
    replayed, _ = counted(lambda x, y: add(kernel, y, 1.0) + x)
    both = torch.randn(64)
    x, y = both[:4], both[32:36]
    torch.testing.assert_close(replayed(x, y), y + 1 + x)
    for _ in range(2):
        x, y = torch.randn(4), torch.randn(4)
        torch.testing.assert_close(replayed(x, y), y + 1 + x)
    torch.testing.assert_close(replayed(x, x), x + 1 + x)


def test_what_memory_is_kept() -> None:
    """None: neither arguments nor results nor what lies between them."""
    import gc
    import weakref

    kernel = Kernel()
    replayed, _ = counted(lambda x: add(kernel, add(kernel, x, 1.0), 1.0))
    x = torch.randn(5)
    held = [weakref.ref(x.untyped_storage()), weakref.ref(x)]
    del x
    x = torch.randn(5)
    held += [weakref.ref(x), weakref.ref(replayed(x))]
    del x
    gc.collect()
    assert not any(ref() is not None for ref in held)


@pytest.mark.parametrize("begin", [0, 1])
def test_where_memory_begins_is_part_of_the_kind(begin: int) -> None:
    replayed, calls = counted(lambda x: torch.full((1,), float(x.data_ptr() % 16)))
    memory = torch.zeros(64)
    for n in range(0, 12, 4):
        assert replayed(memory[begin + n :][:4]).item() == memory[begin:].data_ptr() % 16
    assert len(calls) == 1
    other = memory[begin + 1 :][:4]
    assert replayed(other).item() == other.data_ptr() % 16
    assert len(calls) == 2


def number_read(x: Tensor) -> Tensor:
    return x * x.sum().item()


def memory_from_its_begin(x: Tensor) -> Tensor:
    return x.as_strided((2,), (1,), 1) + 0


OUTSIDE = torch.arange(5.0)


def tensor_from_outside(x: Tensor) -> Tensor:
    return x + OUTSIDE[0]


@pytest.mark.parametrize("function", [number_read, memory_from_its_begin, tensor_from_outside])
def test_what_cannot_be_made_again_is_called(function: Callable[..., Any]) -> None:
    check(function, (torch.zeros(5),), recorded=3)


def test_tensors_of_other_classes_and_listeners_are_not_replayed() -> None:
    class Own(Tensor):
        pass

    calls: list[int] = []
    listening = [False]
    replayed = Replayed(lambda x: calls.append(1) or x + 1, lambda: listening[0])
    for _ in range(2):
        assert type(replayed(torch.zeros(3).as_subclass(Own))) is Own
    replayed(torch.zeros(3))
    replayed(torch.zeros(3))
    assert len(calls) == 3
    listening[0] = True
    replayed(torch.zeros(3))
    assert len(calls) == 4


def test_zeros_of_both_signs_and_nan_are_kinds() -> None:
    replayed, calls = counted(lambda x, number: x * number)
    x = torch.ones(3)
    for number in (0.0, -0.0, 0.0, -0.0):
        assert torch.equal(replayed(x, number).signbit(), (x * number).signbit())
    for _ in range(3):
        assert replayed(x, float("nan")).isnan().all()
    assert len(calls) == 3


def test_casts_of_autocast_are_not_written_down() -> None:
    replayed, _ = counted(torch.mm)
    for enabled in (True, False, True, False):
        x = torch.randn(4, 4)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            made = replayed(x, x)
            assert made.dtype is (torch.bfloat16 if enabled else torch.float32)
            assert torch.equal(made, torch.mm(x, x))
