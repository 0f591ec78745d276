"""Numbers that a module keeps in tensors: data, unless the program needs to know them.

n_frames = torch.ceil((length - self.kernel_size) / self.stride + 1).to(torch.int64)
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from anyshape.ops.ranges import LARGEST, MOST_ROUNDINGS

LENGTHS = (40, 41, 7, 100, 5, 3, 4, 2, 1)


class Framed(nn.Module):
    """Pads as neural audio codecs do, so that the last frame is whole."""

    def __init__(self, kernel: int = 7, stride: int = 2) -> None:
        super().__init__()
        self.stride = nn.Buffer(torch.tensor(stride))
        self.kernel = nn.Buffer(torch.tensor(kernel))
        self.left = nn.Buffer(self.kernel - self.stride)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-1]
        frames = (length - self.kernel + self.left) / self.stride + 1
        frames = torch.ceil(frames).to(torch.int64) - 1
        right = frames * self.stride + self.kernel - self.left - length
        most, more = max(self.left, right), 0
        if length <= most:
            more = most - length + 1
            x = F.pad(x, (0, more))
        x = F.pad(x, (self.left, right), mode="reflect")
        return x[..., : x.shape[-1] - more] * 2


def waves(length: int) -> Tensor:
    return torch.randn(2, 3, length, generator=torch.Generator().manual_seed(length))


def test_a_size_through_numbers_of_buffers_is_a_size() -> None:
    program = Framed()
    fast = anyshape.compile(program, fullgraph=True)
    for length in LENGTHS:
        torch.testing.assert_close(fast(waves(length)), program(waves(length)))
    assert fast.stats().specializations == 2  # where the kernel is longer than the wave
    assert fast.stats().host_syncs == 0


def test_another_number_in_the_buffer_is_another_program() -> None:
    program = Framed()
    fast = anyshape.compile(program)
    for stride in (2, 3, 2, 4, 5, 1):
        with torch.no_grad():
            program.stride.fill_(stride)
            program.left.copy_(program.kernel - program.stride)
        for length in (40, 41):
            torch.testing.assert_close(fast(waves(length)), program(waves(length)))


def test_a_buffer_that_the_call_has_written_is_not_read_as_it_was() -> None:
    class Counted(Framed):
        def forward(self, x: Tensor) -> Tensor:
            self.left += 1
            made = super().forward(x)
            self.left -= 1
            return made

    program, twin = Counted(), Counted()
    fast = anyshape.compile(program)
    for length in (40, 41, 9, 3):
        torch.testing.assert_close(fast(waves(length)), twin(waves(length)))


def test_a_counter_is_data_where_that_is_enough() -> None:
    class Warming(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = nn.Buffer(torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            scale = min(int(self.step) / 3, 1.0)
            self.step += 1
            return x * scale

    program, twin = Warming(), Warming()
    fast = anyshape.compile(program, fullgraph=True)
    for length in (4, 5, 6, 7, 8, 9):
        torch.testing.assert_close(fast(waves(length)), twin(waves(length)))
    assert fast.stats().specializations == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 49, 320, 1000, 65535, 2**20 + 1, LARGEST])
def test_a_rounded_quotient_of_floats_is_the_exact_one(dtype: torch.dtype, divisor: int) -> None:
    """What ``content_rounded`` claims, at numbers next to whole quotients and at random ones."""
    generator = torch.Generator().manual_seed(divisor)
    near = torch.arange(-(LARGEST // divisor), LARGEST // divisor + 1)[:, None] * divisor
    near = (near[:: max(1, len(near) // 4096)] + torch.tensor([-1, 0, 1])).flatten()
    some = torch.randint(-LARGEST, LARGEST + 1, (20_000,), generator=generator)
    ends = torch.tensor([-LARGEST, LARGEST, 0, 1, -1])
    numbers = torch.cat([near, some, ends]).clamp(-LARGEST, LARGEST)
    floats = numbers.to(dtype) / torch.tensor(divisor).to(dtype)
    exact = numbers
    for moved in (1, LARGEST // divisor // 2, -(LARGEST // divisor // 2) - 2)[: MOST_ROUNDINGS - 1]:
        floats, exact = floats + moved, exact + moved * divisor
        within = exact.abs() <= LARGEST
        floats, exact = floats[within], exact[within]
        assert torch.equal(
            torch.floor(floats).to(torch.int64), exact.div(divisor, rounding_mode="floor")
        )
        assert torch.equal(
            torch.ceil(floats).to(torch.int64), -(-exact).div(divisor, rounding_mode="floor")
        )


@pytest.mark.parametrize("more", [0, 2**24 + 1])
def test_a_length_that_floats_cannot_hold_is_left_to_data(more: int) -> None:
    """float32 has 24 bits: eager's own count of frames is not the exact one there."""

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stride = nn.Buffer(torch.tensor(3))

        def forward(self, x: Tensor) -> Tensor:
            frames = (torch.ceil(x.shape[0] / self.stride) + more).to(torch.int64) - more
            return x[:4] + (1 if frames * 3 > max(x.shape[0], self.stride) else 0)

    program = Counts()
    fast = anyshape.compile(program)
    for length in (5, 6, 7, 2**24 + 1, 2**24 + 2, 2**24 + 3, 3 * 2**24 + 1):
        x = torch.zeros(1).expand(length)
        torch.testing.assert_close(fast(x), program(x))


def test_a_quotient_of_a_length_that_floats_cannot_hold_is_eagers() -> None:
    def program(x: Tensor) -> Tensor:
        frames = torch.ceil(torch.tensor(x.shape[0]) / 3).to(torch.int64)
        return x[:4] + (1 if frames * 3 > x.shape[0] else 0)

    fast = anyshape.compile(program)
    for length in (5, 6, 3 * 2**24 + 1):  # a third of the last is 2**24 in float32
        x = torch.zeros(1).expand(length)
        torch.testing.assert_close(fast(x), program(x))


def decided_twice(x: Tensor) -> Tensor:
    first, second = x.sum(), x.prod()
    if first > 100:
        print(end="")  # no side of a branch that data decides may do so: a graph break
    if second == 0:
        return x.double().sin()
    if second < 0:
        return x.float() - second
    return x + second


def test_what_code_before_a_break_left_in_a_variable_is_no_number_of_the_program() -> None:
    fast = anyshape.compile(decided_twice)
    for numbers in ((1, 4), (2, 3), (5, 6), (0, 9), (-1, 7), (4, 4), (0, 1), (-2, 5), (6, 6)):
        x = torch.tensor(numbers)
        torch.testing.assert_close(fast(x), decided_twice(x))
    guards = str(fast.guards())
    assert "the number in second ==" not in guards
    assert guards.count("= the number in second:") == 1  # one number, however often it is asked
    assert "the number in second)" in guards
