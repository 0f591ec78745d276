"""Library calls that C makes inside a native region: the very bits of the Python line at every size."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.runtime import launch

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
SIZES = [(2, 5), (0, 3), (1, 1), (3, 0), (2, 1), (1, 7), (2, 64)]

pytestmark = pytest.mark.skipif(not launch.has_library(), reason="torch exports no such functions")


class Block(torch.nn.Module):
    """Products of every kind, attention, and kernels between them."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)

        def weight(*shape: int) -> torch.nn.Parameter:
            return torch.nn.Parameter((torch.randn(*shape, generator=generator) / 4).to(dtype))

        self.joined, self.bias = weight(16, 48), weight(48)
        self.out, self.shift = weight(16, 16), weight(16)
        self.up, self.down = weight(32, 16), weight(16, 32)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, _ = x.shape
        flat = torch.addmm(self.bias, torch.tanh(x).view(-1, 16), self.joined)
        heads = flat.view(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4)
        query, key, value = heads[0], heads[1], heads[2]
        seen = F.scaled_dot_product_attention(query, key, value, mask, is_causal=mask is None)
        y = x + F.linear(seen.transpose(1, 2).reshape(batch, length, 16), self.out, self.shift)
        scores = torch.softmax(torch.bmm(y * 2, y.transpose(1, 2)), -1)
        y = y + torch.bmm(scores, y)
        return y + F.linear(F.silu(F.linear(y, self.up)), self.down)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
def test_a_block_gives_the_bits_of_the_python_lines(dtype: torch.dtype, masked: bool) -> None:
    block = Block(dtype)
    with torch.no_grad():
        fast = anyshape.compile(block, fullgraph=True)
        with mock.patch("anyshape.targets.cpu.target.has_library", lambda: False):
            plain = anyshape.compile(block, fullgraph=True)
            for batch, length in SIZES[:1]:
                plain(*arguments(batch, length, dtype, masked))
        for batch, length in SIZES:
            given = arguments(batch, length, dtype, masked)
            ours, theirs, eager = fast(*given), plain(*given), block(*given)
            assert torch.equal(ours, theirs)
            assert ours.stride() == eager.stride() or not ours.numel()
            torch.testing.assert_close(ours, eager, rtol=0.05, atol=0.05, equal_nan=True)
    assert fast.stats().specializations == 1


def arguments(batch: int, length: int, dtype: torch.dtype, masked: bool) -> tuple[Tensor, ...]:
    x = torch.randn(batch, length, 16).to(dtype)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    return (x, mask) if masked else (x,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_of_a_block_is_left_to_python(dtype: torch.dtype) -> None:
    block = Block(dtype)
    with torch.no_grad():
        fast = anyshape.compile(block, fullgraph=True)
        fast(*arguments(2, 5, dtype, True))
    text = fast.code().partition("\n\n")[0]
    assert "torch_" not in text and "region_" in text
    assert fast.stats().externs == 7


@contextmanager
def failing(symbol: str) -> Iterator[list[int]]:
    """What is linked inside finds a C function that fails; the list counts its calls."""
    calls: list[int] = []

    def fail(*_: object) -> int:
        calls.append(1)
        return 1

    broken = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(fail)
    address = launch.Resolver.address

    def found(self: launch.Resolver, kind: str, what: object) -> int | None:
        if (kind, what) == ("library", symbol):
            return ctypes.cast(broken, ctypes.c_void_p).value
        return address(self, kind, what)

    with mock.patch.object(launch.Resolver, "address", found):
        yield calls


@pytest.mark.parametrize(
    "symbol",
    [
        "aoti_torch_cpu_addmm_out",
        "aoti_torch_cpu_bmm_out",
        "aoti_torch_call_dispatcher",
        "aoti_torch_create_tensor_from_blob",
    ],
)
def test_where_a_library_call_fails_the_segment_has_not_happened(symbol: str) -> None:
    block = Block(torch.bfloat16)

    def program(x: Tensor, log: Tensor) -> Tensor:
        log += 1
        return block(x)

    with torch.no_grad(), warnings.catch_warnings(), failing(symbol) as calls:
        warnings.simplefilter("error")
        fast = anyshape.compile(program, fullgraph=True)
        for turn in range(3):
            x, log = torch.randn(2, 5, 16).bfloat16(), torch.zeros(3)
            torch.testing.assert_close(fast(x, log), block(x), rtol=0, atol=0)
            assert log.tolist() == [1.0, 1.0, 1.0] and len(calls) == turn + 1


def test_eager_raises_where_a_library_call_would() -> None:
    def program(table: Tensor, index: Tensor, w: Tensor) -> Tensor:
        rows = torch.tanh(table)[index]
        return F.linear(torch.sin(F.linear(rows, w)), w)

    with torch.no_grad():
        fast = anyshape.compile(program, fullgraph=True)
        table, w = torch.randn(4, 8).bfloat16(), torch.randn(8, 8).bfloat16()
        good, bad = torch.tensor([0, 3]), torch.tensor([0, 4])
        torch.testing.assert_close(fast(table, good, w), program(table, good, w), rtol=0, atol=0)
        with pytest.raises(IndexError, match="out of bounds|out of range"):
            fast(table, bad, w)
        torch.testing.assert_close(fast(table, good, w), program(table, good, w), rtol=0, atol=0)


def test_threads_may_be_in_one_region_at_once() -> None:
    block = Block(torch.bfloat16)
    wrong: list[object] = []
    given = [torch.randn(1 + i % 3, 3 + i, 16).bfloat16() for i in range(8)]
    with torch.no_grad():
        fast = anyshape.compile(block, fullgraph=True)
        expected = [fast(x) for x in given]

    def work(index: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                if not torch.equal(fast(given[index]), expected[index]):
                    wrong.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and fast.stats().specializations == 1


def test_what_is_returned_is_no_part_of_the_arena() -> None:
    def program(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        hidden = F.linear(torch.tanh(x), w)
        seen = F.scaled_dot_product_attention(hidden[None], hidden[None], hidden[None])[0]
        mixed = F.linear(torch.sin(seen), w)
        return torch.exp(mixed), mixed[1:], hidden.transpose(0, 2), seen.transpose(0, 1)[..., ::2]

    with torch.no_grad():
        fast = anyshape.compile(program, fullgraph=True)
        w = torch.randn(8, 8).bfloat16()
        x = torch.randn(4, 5, 8).bfloat16()
        first = fast(x, w)
        kept = [out.clone() for out in first]
        for _ in range(3):
            fast(torch.randn(4, 5, 8).bfloat16(), w)
        for out, before, eager in zip(first, kept, program(x, w), strict=True):
            assert torch.equal(out, before)
            assert out.untyped_storage().nbytes() == eager.untyped_storage().nbytes()
            torch.testing.assert_close(out, eager, rtol=0.02, atol=0.02)


def test_strides_that_torch_returns_are_made_those_that_eager_has() -> None:
    """Another backend is chosen for a query without rows of stride 1: its result lies otherwise."""

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen = F.scaled_dot_product_attention(q.sin(), k.sin(), v.sin())
        return torch.cos(seen) + 1

    with torch.no_grad():
        fast = anyshape.compile(program, fullgraph=True)
        for length in (5, 0, 1, 33):
            q, k, v = torch.randn(3, 2, 4, length, 8).unbind()
            torch.testing.assert_close(fast(q, k, v), program(q, k, v), check_stride=length > 1)
        assert fast.stats().specializations == 1
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            q, k, v = torch.randn(3, 2, 4, 9, 8).unbind()
            torch.testing.assert_close(fast(q, k, v), program(q, k, v), check_stride=True)


def test_a_library_result_that_is_handed_out_stays_with_python() -> None:
    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(F.linear(x, w))
        seen = F.scaled_dot_product_attention(y, y, y)
        return seen, torch.sin(F.linear(torch.cos(seen), w))

    with torch.no_grad():
        fast = anyshape.compile(program, fullgraph=True)
        for length in (5, 1, 0, 16):
            x, w = torch.randn(2, 3, length, 8), torch.randn(8, 8)
            for ours, eager in zip(fast(x, w), program(x, w), strict=True):
                torch.testing.assert_close(ours, eager)


def test_equal_layers_share_the_functions_of_their_steps() -> None:
    blocks = torch.nn.Sequential(*(Block(torch.bfloat16) for _ in range(6)))
    with torch.no_grad():
        fast = anyshape.compile(blocks, fullgraph=True)
        x = torch.randn(2, 5, 16).bfloat16()
        torch.testing.assert_close(fast(x), blocks(x), rtol=0.05, atol=0.1)
        one = anyshape.compile(blocks[0], fullgraph=True)
        one(x)
    functions = [code.code().count("\nlong step_") for code in (fast, one)]
    assert functions == [0, 0]  # all that they do is done by the steps that programs share
    assert fast.code().count("if region_") <= 2
