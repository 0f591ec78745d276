"""Strides of elementwise results against TensorIterator's own, over random layouts."""

from __future__ import annotations

import random

import pytest
import torch

import anyshape
from anyshape.ir.dtypes import float32, int64
from anyshape.ir.graph import TensorType, Value
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.layout import pointwise_strides, strides_in_order
from anyshape.ops.table import OPS
from anyshape.symbolic import Dim, Facts, Space, evaluate
from anyshape.tools.accuracy import strides_that_matter

CONVERTED = {
    "a sum": lambda x, y: x + y,
    "a comparison": lambda x, y: y < x,
    "a quotient": lambda x, y: y / x,
    "a choice": lambda x, y: torch.where(x > 0, x, y),
    "a clamp": lambda x, y: torch.clamp(x, y, y + 1),
}
OPERATORS = {1: torch.neg, 2: torch.sub, 3: torch.addcmul}


def fresh() -> TypeContext:
    space = Space()
    return TypeContext(space, Facts(space))


def random_layout(pick: random.Random, shape: list[int]) -> torch.Tensor:
    """A tensor of the shape with its dimensions in any order in memory, perhaps with holes."""
    rank = len(shape)
    order = pick.sample(range(rank), rank) if pick.random() < 0.7 else list(range(rank))
    room = [shape[d] + (pick.random() < 0.2) * pick.randint(1, 2) for d in order]
    whole = torch.empty(room).permute([order.index(d) for d in range(rank)])
    return whole[tuple(slice(0, size) for size in shape)]


def random_operands(pick: random.Random) -> list[torch.Tensor]:
    """One to three tensors that broadcast together, some like the one before."""
    shape = [pick.choice([1, 1, 2, 3, 4]) for _ in range(pick.randint(1, 5))]
    operands: list[torch.Tensor] = []
    for _ in range(pick.randint(1, 3)):
        own = random_layout(pick, [1 if pick.random() < 0.2 else size for size in shape])
        if pick.random() < 0.2:
            own = own[(0,) * pick.randint(0, len(shape))]
        if operands and pick.random() < 0.2:
            own = torch.empty_strided(operands[-1].shape, operands[-1].stride())
        operands.append(own)
    return operands


@pytest.mark.parametrize("seed", range(4))
def test_layouts_of_known_sizes_are_eagers_to_the_last_stride(seed: int) -> None:
    pick, cx = random.Random(seed), fresh()
    for _ in range(1000):
        operands = random_operands(pick)
        number = len(operands) == 1 and pick.random() < 0.3
        real = operands[0] + 1 if number else OPERATORS[len(operands)](*operands)
        types = [TensorType(float32, "cpu", tuple(t.shape), t.stride()) for t in operands]
        found = pointwise_strides(cx, tuple(real.shape), types, number)
        assert found == real.stride(), [(t.shape, t.stride()) for t in operands]


@pytest.mark.parametrize("seed", range(4))
def test_layouts_of_unknown_sizes_are_eagers_where_the_sizes_are_above_one(seed: int) -> None:
    pick = random.Random(seed)
    for _ in range(150):
        cx = fresh()
        rank = pick.randint(2, 4)
        known: list[Dim] = [1, 1, 2, 3]
        shape = [pick.choice([*known, None, None, None]) for _ in range(rank)]
        dims = [cx.space.symbol(f"s{d}") if n is None else n for d, n in enumerate(shape)]
        types = []
        for _ in range(2):
            own = tuple(1 if pick.random() < 0.2 else dim for dim in dims)
            order = pick.sample(range(rank), rank)
            types.append(TensorType(float32, "cpu", own, strides_in_order(own, order)))
        whole = cx.broadcast_shapes([t.shape for t in types])
        strides = pointwise_strides(cx, tuple(whole), types)
        for _ in range(4):
            env = {dim.symbol: pick.randint(2, 5) for dim in dims if not isinstance(dim, int)}
            number = lambda dim: dim if isinstance(dim, int) else evaluate(dim, env)
            real = [
                torch.empty_strided([*map(number, t.shape)], [*map(number, t.strides)])
                for t in types
            ]
            assert tuple(map(number, strides)) == (real[0] - real[1]).stride(), (env, types)


def value(t: torch.Tensor) -> Value:
    dtype = int64 if t.dtype is torch.int64 else float32
    return Value("v", TensorType(dtype, "cpu", tuple(t.shape), t.stride()))


@pytest.mark.parametrize("seed", range(2))
def test_layouts_of_what_is_indexed_are_eagers(seed: int) -> None:
    pick, cx = random.Random(seed), fresh()
    for _ in range(800):
        rank = pick.randint(1, 5)
        x = random_layout(pick, [pick.choice([1, 2, 3, 4]) for _ in range(rank)])
        whole = [pick.randint(1, 3) for _ in range(pick.randint(0, 3))]
        places: list[torch.Tensor | None] = [None] * rank
        for d in pick.sample(range(rank), pick.randint(1, min(3, rank))):
            own = [1 if pick.random() < 0.2 else size for size in whole][pick.choice([0, 0, 1]) :]
            spread = random_layout(pick, own) if own[-1:] != [1] else torch.empty(own)
            places[d] = torch.empty_strided(own, spread.stride(), dtype=torch.int64).fill_(0)
        real = torch.ops.aten.index.Tensor(x, places)
        indices = tuple(None if i is None else value(i) for i in places)
        found = OPS["index"].type(cx, value(x), indices)
        assert found.shape == tuple(real.shape)
        made = torch.empty_strided(found.shape, found.strides)
        assert strides_that_matter(made) == strides_that_matter(real), (value(x), indices)


@pytest.mark.parametrize("name", CONVERTED)
def test_an_operand_that_is_converted_has_the_strides_of_its_copy(name: str) -> None:
    fast = anyshape.compile(CONVERTED[name])
    for n in (3, 2):
        repeated = torch.arange(1, 5, dtype=torch.int8).expand(n, 4)
        columns = torch.ones(4, n).t()
        for x, y in ((repeated, columns), (columns, repeated)):
            ours, eager = fast(x, y), CONVERTED[name](x, y)
            assert ours.stride() == eager.stride()
            assert torch.equal(ours, eager)


@torch.no_grad()
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x[:, ::2].flip(-1),
        lambda x: x[:, ::2] * 2,
        lambda x: x[:, ::3].clone(),
        lambda x: x[:, ::2].transpose(0, 1) + 1,
        lambda x: x.unfold(1, 2, 2) * 1,
    ],
)
def test_every_other_row_of_a_tensor_with_holes_keeps_its_order(program) -> None:
    fast = anyshape.compile(program)
    for shape in ((3, 6, 6), (2, 5, 5), (2, 2, 4), (4, 7, 3), (17, 9, 5)):
        for x in (torch.randn(shape)[..., 1:-1], torch.randn(shape)[:, :, 1:].transpose(0, 1)):
            ours, eager = fast(x), program(x)
            assert torch.equal(ours, eager)
            assert strides_that_matter(ours) == strides_that_matter(eager), x.stride()


@pytest.mark.parametrize("seed", range(3))
def test_what_einsum_gives_lies_in_memory_as_eagers(seed: int) -> None:
    pick = random.Random(seed)
    sizes = dict(zip("abcdef", (2, 3, 4, 5, 6, 7)))
    for _ in range(60):
        letters = pick.sample("abcdef", pick.randint(1, 5))
        terms = [
            "".join(pick.sample(letters, pick.randint(1, len(letters))))
            for _ in range(pick.choice([2, 2, 2, 3]))
        ]
        seen = sorted(set("".join(terms)))
        result = "".join(pick.sample(seen, pick.randint(0, len(seen))))
        equation = f"{','.join(terms)}->{result}"
        operands = [random_layout(pick, [sizes[c] for c in term]).fill_(1) for term in terms]
        builder = Builder(fresh())
        made = builder.call("einsum", equation, tuple(map(value, operands)))
        real = torch.einsum(equation, *operands)
        found = torch.empty_strided(made.type.shape, made.type.strides)
        assert strides_that_matter(found) == strides_that_matter(real), equation
