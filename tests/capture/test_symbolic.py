"""What a captured program computes and gives back: values, shapes, numbers, objects, effects."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from tests.capture.by_reference import agree, compiled, same


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def lengths(*sizes: int, width: int = 4) -> list[tuple[Tensor]]:
    return [(torch.randn(n, width),) for n in sizes]


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "arithmetic": lambda x: (x + 1) * 2 - x / 3 + (-x) ** 2,
    "reflected": lambda x: 1 - x + 2 / (x.abs() + 1) + 2**x,
    "comparisons": lambda x: (x > 0) & (x <= 1) | ~(x != x),
    "methods": lambda x: x.relu().sum(-1, keepdim=True).expand_as(x).contiguous(),
    "functions": lambda x: F.softmax(F.gelu(torch.tanh(x)), dim=-1),
    "varargs": lambda x: x.view(-1, 2, 2).permute(1, 0, 2).reshape(2, -1),
    "shape": lambda x: (x.shape, x.size(0), x.dim(), x.numel(), x.shape[0] * 2 + 1, len(x)),
    "product of sizes": lambda x: x.reshape(math.prod(x.shape)) * math.prod(x.shape, start=0.5),
    "floats of sizes": lambda x: x * (x.shape[0] ** -0.5) + math.sqrt(x.shape[0]) + x.shape[0] / 3,
    "int of a float": lambda x: x[: int(x.shape[0] * 0.5)],
    "casts": lambda x: (
        x.to(torch.float64),
        x.half().float(),
        x.long(),
        x.type_as(x.double()),
        x.to(x),
    ),
    "slices": lambda x: (
        x[1:],
        x[:-1],
        x[::2],
        x[..., 1:3],
        x[:, None],
        x[-1:],
        x[: x.shape[0] // 2],
    ),
    "index by tensor": lambda x: x[torch.arange(x.shape[0]) // 2],
    "none and ellipsis": lambda x: x[None, ..., 0],
    "stack and cat": lambda x: (torch.cat([x, x * 2], -1), torch.stack([x, x])),
    "split": lambda x: (x.chunk(2, -1), x.split([1, 3], -1), x.unbind(-1)),
    "creation": lambda x: torch.zeros(x.shape[0], 3) + torch.arange(3) + torch.ones_like(x[:, :3]),
    "full of a size": lambda x: torch.full((2,), x.shape[0]) + torch.tensor(x.shape[0]),
    "constant": lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "where and masks": lambda x: torch.where(x > 0, x, 0.0).masked_fill(x < -1, float("-inf")),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "properties": lambda x: (x.T, x.mT, x.dtype, x.device, x.ndim, x.is_cuda, x.requires_grad),
    "dict and list": lambda x: {"a": [x, {"b": x + 1}], "c": (x.shape[0], None, "text")},
    "generator": lambda x: sum(x + i for i in range(3)),
    "comprehension": lambda x: [x * i for i in range(3) if i != 1],
    "sorted and zip": lambda x: [a * b for a, b in zip(sorted([3, 1, 2]), [x, x + 1, x + 2])],
    "f-string of a constant": lambda x: {f"layer.{i}": x + i for i in range(2)},
    "isinstance": lambda x: x + 1 if isinstance(x, Tensor) and torch.is_tensor(x) else None,
    "finfo": lambda x: x.clamp(min=torch.finfo(x.dtype).min / 2),
    "identity": lambda x: x.to(torch.float32) is x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_capture_is_right_for_every_length(name: str) -> None:
    fast = agree(PROGRAMS[name], *lengths(6, 2, 4, 64))
    assert fast.stats().specializations == 1, fast.recompiles()


@pytest.mark.parametrize("name", ["arithmetic", "methods", "slices", "stack and cat", "shape"])
def test_zero_and_one_are_ordinary_lengths(name: str) -> None:
    fast = agree(PROGRAMS[name], *lengths(5, 1, 0))
    assert fast.stats().specializations == 1, fast.recompiles()


def test_two_arguments_of_equal_length_are_guarded_only_where_they_meet() -> None:
    apart = agree(
        lambda x, y: (x * 2, y * 3), *[(torch.ones(a), torch.ones(b)) for a, b in ((3, 3), (3, 5))]
    )
    assert apart.stats().specializations == 1
    met = compiled(lambda x, y: x + y)
    met(torch.ones(3), torch.ones(3))
    met(torch.ones(5), torch.ones(5))
    assert met.stats().specializations == 1
    same(met(torch.ones(5), torch.ones(1)), torch.full((5,), 2.0))


def test_layouts_are_specializations_and_lengths_are_not() -> None:
    calls = [(torch.randn(n, m),) for n, m in ((3, 4), (5, 2))]
    calls += [(torch.randn(n, m).t(),) for n, m in ((3, 4), (5, 2))]
    calls += [(torch.randn(n, 8)[:, ::2],) for n in (3, 5)]
    assert agree(lambda x: x * 2 + 1, *calls).stats().specializations == 3


def test_numbers_are_constants_until_a_second_value_is_seen() -> None:
    x = torch.randn(3)
    for values in ((1, 2, 3, 50), (0.5, 1.5, 2.5, -1.0)):
        fast = agree(lambda x, n: x * n + n, *((x, value) for value in values))
        assert fast.stats().specializations == 2, fast.recompiles()


def test_bools_and_strings_are_constants() -> None:
    def program(x: Tensor, mode: str, flag: bool) -> Tensor:
        return getattr(torch, mode)(x) if flag else x

    calls = [(torch.randn(3), mode, flag) for mode in ("sin", "cos") for flag in (True, False)]
    assert agree(program, *calls).stats().specializations == 4


@dataclass
class Box:
    items: list[Any] = field(default_factory=list)
    total: Any = None


class Cache:
    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys: Tensor | None = None


def test_objects_made_inside_are_made_anew_in_each_call() -> None:
    def program(x: Tensor) -> Any:
        box = Box()
        box.items.append(x + 1)
        box.items.append(box)
        box.total = OrderedDict(a=x.shape[0])
        return box

    fast = compiled(program)
    first, second = fast(torch.ones(2)), fast(torch.zeros(5))
    assert first is not second and type(first) is Box
    assert first.items[1] is first and second.items[1] is second
    assert (first.total["a"], second.total["a"]) == (2, 5)
    same(second.items[0], torch.ones(5))
    assert fast.stats().specializations == 1


def test_a_function_made_inside_closes_over_this_calls_tensors() -> None:
    def program(x: Tensor) -> Callable[[Tensor], Tensor]:
        scale = x * 2
        return lambda y: y * scale

    fast = compiled(program)
    for n in (3, 4):
        same(fast(torch.ones(n))(torch.ones(n)), torch.full((n,), 2.0))


def test_an_argument_that_is_returned_is_the_very_argument() -> None:
    def program(x: Tensor, items: list[Tensor]) -> Any:
        return x, items, [x]

    fast = compiled(program)
    for _ in range(2):
        x, items = torch.ones(2), [torch.ones(1)]
        a, b, c = fast(x, items)
        assert a is x and b is items and c[0] is x


def test_writes_to_outside_objects_are_replayed_in_order() -> None:
    def program(x: Tensor, cache: Cache, log: list[Any], table: dict[str, Any]) -> int:
        cache.keys = x if cache.keys is None else torch.cat([cache.keys, x])
        log.append(x.shape[0])
        log.append(cache.keys)
        table["length"] = len(log)
        table["last"] = log[-1]
        return len(log)

    def run(fn: Callable[..., Any]) -> list[Any]:
        cache, log, table = Cache(), [], {}
        results = [fn(torch.full((n,), float(n)), cache, log, table) for n in (2, 3, 4, 5)]
        return [results, log, table, cache.keys]

    fast = compiled(program)
    same(run(fast), run(program))


def test_outside_objects_are_not_touched_when_capture_breaks_off() -> None:
    def program(x: Tensor, log: list[int]) -> Tensor:
        log.append(1)
        raise ValueError("no")

    log: list[int] = []
    fast = compiled(program)
    for turn in (1, 2):
        with pytest.raises(ValueError, match="no"):
            fast(torch.ones(2), log)
        assert log == [1] * turn


def test_writes_in_place_reach_the_argument() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        x[0] = y[0]
        x[:, 1:] *= 2
        return x.sum()

    for n in (2, 5):
        ours, theirs = torch.zeros(n, 3), torch.zeros(n, 3)
        y = torch.ones(n, 3)
        same(compiled(program)(ours, y), program(theirs, y))
        same(ours, theirs)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.register_buffer("shift", torch.ones(4))
        self.calls = 0

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        self.calls += 1
        return self.norm(F.silu(self.linear(x))) * scale + self.shift


def test_a_module_is_captured_with_its_children_and_counts_its_calls() -> None:
    block = Block()
    fast = compiled(block)
    for n in (3, 1, 7):
        x = torch.randn(n, 4)
        found = fast(x, scale=2.0)
        torch.testing.assert_close(found, block(x, scale=2.0))
    assert block.calls == 6


def test_no_grad_inside_is_followed_and_left() -> None:
    def program(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            fixed = x * weight
        return fixed, x * weight

    weight = torch.ones(3, requires_grad=True)
    fast = compiled(program)
    with torch.enable_grad():
        fixed, free = fast(torch.ones(3), weight)
        assert torch.is_grad_enabled()
    assert not fixed.requires_grad and free.requires_grad


def test_autocast_inside_gives_eagers_dtypes() -> None:
    def program(x: Tensor, weight: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.linear(x, weight)
            z = torch.softmax(y, -1)
        return y, z, F.linear(x, weight), torch.is_autocast_enabled("cpu")

    agree(program, *[(torch.randn(n, 4), torch.randn(4, 4)) for n in (3, 5)])


def test_a_print_is_deferred_and_repeated_in_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Tensor) -> Tensor:
        print("length", x.shape[0])
        return x + 1

    fast = compiled(program)
    for n in (2, 3):
        fast(torch.ones(n))
    assert capsys.readouterr().out == "length 2\nlength 3\n"


def test_is_compiling_is_true_inside() -> None:
    fast = compiled(lambda x: (x + 1, torch.compiler.is_compiling(), torch.compiler.is_exporting()))
    assert fast(torch.ones(1))[1:] == (True, False)


def test_an_operator_without_a_row_is_typed_by_its_meta_kernel() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x) + torch.special.bessel_j1(x[:, :1])

    assert agree(program, *lengths(3, 1, 6)).stats().specializations == 1


def test_an_item_of_a_tensor_is_a_number_without_a_break() -> None:
    fast = agree(lambda x: x * x.sum().item() + x.argmax().item(), *lengths(3, 5))
    assert fast.stats().graph_breaks == 0


def test_sizes_that_data_decides_stay_symbolic() -> None:
    fast = agree(lambda x: (x.nonzero() * 2, x[x > 0] + 1), *lengths(3, 5))
    assert (fast.stats().specializations, fast.stats().graph_breaks) == (1, 0)


def only_checked(x: Tensor) -> Tensor:
    torch._check(x.shape[0] == 5)
    return x


def only_raised(x: Tensor) -> Tensor:
    if x.shape[0] != 5:
        raise RuntimeError("five")
    return x


@pytest.mark.parametrize(
    "program",
    [only_checked, only_raised, lambda x: x.sum_to_size(5)],
    ids=["check", "raise", "sum"],
)
def test_a_check_holds_where_nothing_is_computed(program: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(program)
    for n in (5, 3, 0, 5):
        x = torch.ones(n)
        anyshape.mark_unbacked(x, 0)
        if n == 5:
            assert fast(x) is x
        else:
            with pytest.raises(RuntimeError):
                fast(x)


@pytest.mark.parametrize("unbacked", [False, True])
def test_shapes_are_compared_by_one_condition(unbacked: bool) -> None:
    def program(x: Tensor, y: Tensor) -> Any:
        return x - 1, x.shape != y.shape, (*x.shape, 1) == (*y.shape, 1), x.shape == y.shape[:1]

    fast = anyshape.compile(program)
    for p, q in (((2, 3), (2, 3)), ((2, 3), (2, 1)), ((1, 3), (2, 3)), ((0, 3), (0, 3))):
        x, y = torch.ones(p), torch.ones(q)
        expected = program(x, y)
        for t in (x, y) if unbacked else ():
            anyshape.mark_unbacked(t, 0)
            anyshape.mark_unbacked(t, 1)
        torch.testing.assert_close(fast(x, y), expected)
    if unbacked:
        assert (fast.stats().graph_breaks, fast.stats().specializations) == (0, 1)


def scattered(x: Tensor, chosen: Tensor) -> Tensor:
    index = torch.cat([torch.nonzero(chosen)[:, 0], torch.arange(x.size(0))])
    rows = int(index.max()) + 1 if index.numel() > 0 else 0
    return x.new_zeros(rows, 3).index_add(0, index, x.new_ones(index.size(0), 3))


def test_a_branch_on_a_size_of_data_is_decided_by_a_size_that_is_enough() -> None:
    """No element of `index` is known, but there are as many as rows of `x`, and more."""
    fast = anyshape.compile(scattered)
    for rows in (4, 7, 1):
        x, chosen = torch.randn(rows, 3), torch.arange(rows) % 2
        assert fast(x, chosen).equal(scattered(x, chosen))
    assert (fast.stats().graph_breaks, fast.stats().specializations) == (0, 1)
    assert fast(x[:0], chosen[:0]).equal(scattered(x[:0], chosen[:0]))


@pytest.mark.parametrize("wanted", [torch.contiguous_format, torch.channels_last])
def test_a_memory_format_is_told_without_the_strides_of_a_batch_of_one(wanted: Any) -> None:
    def program(x: Tensor) -> Tensor:
        heads = x[..., :8].reshape(x.size(0), x.size(1), 2, 4).transpose(1, 2)
        return heads.to(torch.float32, memory_format=wanted)

    fast = anyshape.compile(program)
    for batch, length in ((2, 7), (1, 9), (3, 1), (1, 1), (0, 5), (4, 0)):
        x = torch.randn(batch, length, 24)
        same(fast(x), program(x))
    assert fast.stats().specializations == 1
