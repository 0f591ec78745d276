"""Operators whose result, or whose refusal, depends on a size: each program is compiled once and called
at sizes on both sides, backed and unbacked. Results, what is written in place, strides, and the type
of what is raised are eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

Program = Callable[..., Any]


def floats(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).sin() + 0.1


def stats(channels: int) -> tuple[Tensor, Tensor]:
    return torch.linspace(-1, 1, channels), torch.linspace(1, 2, channels)


def normed(*shape: int) -> tuple[Tensor, ...]:
    """A picture, its running statistics, weight and bias."""
    return floats(*shape), *stats(shape[1]), *stats(shape[1])


def first_labels(*shape: int) -> Tensor:
    """The first class, wherever a picture of this shape has one."""
    return torch.zeros(shape[0], *shape[2:], dtype=torch.int64)


def attempt(program: Program, args: tuple[Any, ...]) -> Any:
    try:
        return program(*args)
    except Exception as error:
        return type(error)


def copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.clone() if isinstance(a, Tensor) else a for a in args)


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, type):
        assert ours is theirs, (ours, theirs)
        return
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=1e-5)
    if isinstance(theirs, Tensor) and theirs.numel():
        sizes = zip(theirs.shape, ours.stride(), theirs.stride(), strict=True)
        assert all(a == b for n, a, b in sizes if n > 1), (ours.stride(), theirs.stride())


PROGRAMS: dict[str, tuple[Program, list[tuple[Any, ...]]]] = {
    "hsplit into two needs an even size": (
        lambda x: torch.hsplit(x, 2),
        [(floats(2, 4),), (floats(2, 3),), (floats(2, 0),), (floats(1, 1),), (floats(1, 2),)],
    ),
    "fill takes one value": (
        lambda x, v: (torch.fill(x, v), x.clone().fill_(v)),
        [(floats(2, 3), v) for v in (floats(), floats(1), floats(3), floats(0))],
    ),
    "pad by reflection": (
        lambda x: F.pad(x, (1, 2), mode="reflect"),
        [(floats(2, 3, 5),), (floats(0, 3, 5),), (floats(2, 0, 5),), (floats(2, 3, 2),)],
    ),
    "pad by replication": (
        lambda x: F.pad(x, (-1, -2), mode="replicate"),
        [(floats(2, 5),), (floats(2, 4),), (floats(2, 3),), (floats(2, 2),), (floats(0, 5),)],
    ),
    "circular padding goes around once": (
        lambda x: F.pad(x, (2, 1), mode="circular"),
        [(floats(2, 3),), (floats(2, 2),), (floats(2, 1),), (floats(2, 0),), (floats(0, 3),)],
    ),
    "a negative norm of nothing": (
        lambda x: torch.linalg.vector_norm(x, -1, dim=1),
        [(floats(2, 3),), (floats(2, 1),), (floats(0, 3),), (floats(2, 0),)],
    ),
    "a scalar takes one place": (
        lambda x, i: torch.index_select(x, 0, i),
        [(floats(), torch.tensor([0])), (floats(), torch.tensor([0, 0])),
         (floats(), torch.tensor([1])), (floats(), torch.empty(0, dtype=torch.int64))],
    ),
    "gather of a scalar": (
        lambda x, i: torch.gather(x, 0, i),
        [(floats(), torch.tensor([0, 0])), (floats(), torch.tensor([0])),
         (floats(), torch.tensor([1])), (floats(), torch.empty(0, dtype=torch.int64))],
    ),
    "gather with a scalar": (
        lambda x, i: torch.gather(x, 0, i),
        [(floats(3), torch.tensor(2)), (floats(3), torch.tensor(3)), (floats(0), torch.tensor(0))],
    ),
    "places are integers": (
        lambda x, i: torch.gather(x, 0, i),
        [(floats(3), torch.zeros(n, dtype=torch.uint8)) for n in (0, 1, 2)],
    ),
    "index_select past the end": (
        lambda x, i: torch.index_select(x, 1, i),
        [(floats(2, n), torch.tensor([0, 2])) for n in (3, 2, 1, 0)],
    ),
    "an index of nothing may have any rank": (
        lambda x, i: torch.gather(x, 0, i),
        [(floats(3), torch.zeros(s, dtype=torch.int64)) for s in ((0, 2), (2, 0), (1, 1), (2, 3))],
    ),
    "a tensor says where to narrow": (
        lambda x, i: torch.narrow(x, 0, i, 2) * 2,
        [(floats(n), torch.tensor(i)) for n in (0, 1, 2, 17) for i in (0, 1, -2, -1, 15)],
    ),
    **{
        f"cross entropy, {kind}, {reduction}, smoothed by {smoothing}": (
            lambda x, y, w, r=reduction, s=smoothing: F.cross_entropy(
                x, y, w, reduction=r, label_smoothing=s
            ),
            [(floats(*shape), labels(*shape), torch.ones(shape[1]))
             for shape in ((3, 4, 2), (3, 0, 2), (0, 4, 2), (0, 0, 2), (3, 0, 0), (3, 1, 1))],
        )
        for kind, labels in (("shares", floats), ("labels", first_labels))
        for reduction in ("none", "mean", "sum")
        for smoothing in (0.0, 0.2)
    },
    "attention lies as its query": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k),
        [(floats(*shape), floats(*shape)) for shape in ((2, 3, 5, 4), (1, 1, 5, 4), (0, 3, 5, 4))],
    ),
    "attention of heads that were transposed": (
        lambda q, k: F.scaled_dot_product_attention(q.transpose(1, 2), k, k, is_causal=True),
        [(floats(b, n, h, d), floats(b, h, n, d))
         for b, n, h, d in ((2, 5, 3, 4), (1, 5, 3, 4), (2, 1, 3, 4), (2, 5, 3, 2))],
    ),
    "attention whose sizes nothing ties together": (
        lambda q, k, v: [
            (y, y.is_contiguous(), y + 1)
            for y in (
                F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)),
                F.scaled_dot_product_attention(q.mT.contiguous().mT.transpose(1, 2), k, v, is_causal=True)
                if k.shape[1:3] == q.shape[1:3] else q,
            )
        ],
        [(floats(b, n, h, d), floats(c, m, g, d), floats(c, m, g, e))
         for b, n, h, d, c, m, g, e in ((2, 5, 3, 4, 2, 7, 3, 4), (2, 5, 3, 4, 2, 5, 3, 6), (2, 5, 3, 4, 1, 5, 3, 4),
                                        (2, 5, 3, 4, 2, 5, 1, 4), (3, 4, 2, 2, 3, 4, 2, 2))],
    ),
    **{
        f"{k} pieces": (lambda x, k=k: x.tensor_split(k), [(floats(n),) for n in (4, 0, 1)])
        for k in (2, 0, -1)
    },
    **{
        f"scatter_reduce by {reduce}": (
            lambda x, i, y, reduce=reduce: (
                torch.scatter_reduce(x, 0, i, y, reduce, include_self=False),
                torch.scatter_reduce(x.int(), 0, i, (y * 9).int(), reduce, include_self=False),
                torch.scatter_reduce(x, 0, i, y, reduce),
            ),
            [(floats(n) - 0.5, torch.arange(k) // 2, floats(k) * -1)
             for n, k in ((4, 5), (1, 2), (3, 0), (0, 0), (17, 17), (2, 9))],
        )
        for reduce in ("sum", "mean", "prod", "amax", "amin")
    },
    "a cross product along the first dimension of three": (
        lambda x, y: torch.cross(x, y),
        [(floats(2, 3), floats(2, 3)), (floats(3, 3), floats(3, 3)), (floats(3, 2), floats(3, 2)),
         (floats(2, 2), floats(2, 2)), (floats(0, 3), floats(0, 3))],
    ),
    "no channels, no elements": (
        F.batch_norm,
        [(floats(n), torch.zeros(c), torch.ones(c)) for n, c in ((0, 0), (0, 3), (1, 0), (3, 3))],
    ),
    "bilinear of no features": (
        lambda x, y, w: F.bilinear(x, y, w),
        [(floats(n, i), floats(m, 2), floats(4, i, 2))
         for n, m, i in ((3, 3, 2), (1, 1, 1), (0, 0, 2), (3, 3, 0), (1, 3, 2))],
    ),
    "batch norm moves its statistics": (
        lambda x, mean, var, w, b: (F.batch_norm(x, mean, var, w, b, True, 0.3), mean, var),
        [normed(3, 2, 4), normed(1, 2, 4), normed(0, 2, 4), normed(3, 2, 0), normed(1, 2, 1),
         normed(2, 0, 3), normed(2, 1, 1)],
    ),
    "instance norm moves its statistics": (
        lambda x, mean, var, w, b: (F.instance_norm(x, mean, var, w, b, True, 0.3), mean, var),
        [normed(3, 2, 4), normed(1, 2, 4), normed(3, 2, 0), normed(1, 2, 1), normed(2, 0, 3),
         normed(0, 2, 4)],
    ),
    "instance norm of no pictures": (
        lambda x, mean, var: (F.instance_norm(x, mean, var), mean, var),
        [normed(n, 2, k)[:3] for n, k in ((3, 4), (0, 4), (3, 0), (0, 0), (3, 1))],
    ),
    "group norm of one value": (
        lambda x: F.group_norm(x, 2),
        [(floats(3, 4, 2),), (floats(1, 2, 1),), (floats(1, 2, 2),), (floats(0, 2, 1),)],
    ),
    "an empty picture is not unshuffled": (
        lambda x: F.pixel_unshuffle(x, 2) + 1,
        [(floats(1, 3, 4, 6),), (floats(0, 3, 4, 6),), (floats(2, 3, 0, 6),), (floats(1, 1, 2, 3),)],
    ),
    "the covariance of one row is a number": (
        torch.cov,
        [(floats(3, 5),), (floats(1, 5),), (floats(0, 5),), (floats(3, 1),), (floats(3, 0),),
         (floats(1, 1),), (floats(0, 0),)],
    ),
    "diag_embed is row-major": (
        lambda x: torch.diag_embed(x, 1, 0, 1),
        [(floats(2, 3),), (floats(2, 0),), (floats(1, 1),), (floats(0, 2),)],
    ),
    "a sum of no products of integers": (
        lambda x, p, q: torch.addbmm(x, p, q, beta=0.5),
        [(torch.ones(3, 5, dtype=torch.int64), torch.ones(n, 3, k, dtype=torch.int64),
          torch.ones(n, k, 5, dtype=torch.int64)) for n, k in ((2, 4), (0, 4), (2, 0), (1, 1))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("backed", [True, False], ids=["backed", "unbacked"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_results_and_refusals_are_eagers(name: str, backed: bool) -> None:
    program, calls = PROGRAMS[name]
    fast = anyshape.compile(program)
    for call in calls:
        ours, theirs = copies(call), copies(call)
        for t in ours:
            for dim in range(0 if backed else t.dim()):
                anyshape.mark_unbacked(t, dim)
        assert_same(attempt(fast, ours), attempt(program, theirs))
        assert_same(ours, theirs)


FORMATS = (torch.contiguous_format, torch.channels_last, torch.preserve_format)
CASTS: dict[str, Program] = {
    "float": lambda x, f: x.float(memory_format=f),
    "double": lambda x, f: x.double(memory_format=f),
    "bool": lambda x, f: x.bool(memory_format=f),
    "to": lambda x, f: x.to(torch.float32, memory_format=f),
}


@pytest.mark.parametrize("name", CASTS)
@pytest.mark.parametrize("memory_format", FORMATS, ids=str)
def test_casts_by_name_know_memory_formats(name: str, memory_format: torch.memory_format) -> None:
    cast = CASTS[name]
    fast = anyshape.compile(lambda x: cast(x, memory_format))
    for shape in ((2, 3, 4, 5), (1, 3, 2, 2), (2, 2, 3, 3)):
        x = floats(*shape)
        for y in (x, x.to(memory_format=torch.channels_last), x.permute(1, 0, 3, 2)):
            ours, theirs = fast(y), cast(y, memory_format)
            assert_same(ours, theirs)
            assert (ours is y) == (theirs is y)


DROPOUTS = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
)


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_trains_by_default_where_eagers_does(name: str) -> None:
    function = getattr(F, name)
    x = floats(3, 4, 5, 2) if name != "dropout1d" else floats(3, 4, 5)
    torch.manual_seed(3)
    ours = anyshape.compile(lambda x: function(x))(x)
    torch.manual_seed(3)
    assert torch.equal(ours, function(x))


def test_addr_of_bools_is_logical() -> None:
    def program(x: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return torch.addr(x, u, v, beta=3, alpha=2), torch.addr(x, u, v, beta=0, alpha=0)

    fast = anyshape.compile(program)
    for n, m in ((3, 4), (1, 1), (0, 2)):
        tensors = floats(n, m) > 0.5, floats(n) > 0, floats(m) > 0
        for ours, theirs in zip(fast(*tensors), program(*tensors), strict=True):
            assert_same(ours, theirs)


def test_normalize_by_a_negative_norm_of_nothing_is_refused() -> None:
    fast = anyshape.compile(lambda x: F.normalize(x, p=-1.0))
    torch.testing.assert_close(fast(floats(2, 3)), F.normalize(floats(2, 3), p=-1.0))
    with pytest.raises(RuntimeError, match="empty"):
        fast(floats(2, 0))


THE_VERY: dict[str, Program] = {
    "atleast_1d": lambda x: torch.atleast_1d(x)[...] + (torch.atleast_1d(x) is x),
    "cartesian_prod": lambda x: torch.cartesian_prod(x),
    "flatten": lambda x: x.flatten(),
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
    "dropout of nothing": lambda x: F.dropout(x, 0.0, inplace=True),
    "torch.dropout": lambda x: torch.dropout(x, 0.5, False),
    "positive": lambda x: +x,
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, torch.ones(1))[0],
    "sum_to_size": lambda x: x.sum_to_size(x.shape[0]),
    "expand": lambda x: x.expand(x.shape[0]),
    "view": lambda x: x.view(-1),
    "alias": lambda x: x[...],
    "permute": lambda x: x.permute(0),
}


@pytest.mark.parametrize("name", THE_VERY)
def test_what_eager_gives_back_is_the_very_argument(name: str) -> None:
    program = THE_VERY[name]
    fast = anyshape.compile(lambda x: (program(x), program(x) is x))
    for n in (3, 2, 5, 0):
        x = floats(n)
        (ours, inside), theirs = fast(x), program(x)
        assert (ours is x) == inside == (theirs is x)
        assert_same(ours, theirs)


QUOTIENTS: dict[str, Program] = {
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor_divide": lambda x, y: x // y,
    "of a number": lambda x, y: 3.3 // y,
    "by a number": lambda x, y: x // 0.3,
    "truncated, by a number": lambda x, y: torch.div(x, 0.3, rounding_mode="trunc"),
    "by one element": lambda x, y: x // y[0],
    "in place": lambda x, y: x.clone().div_(y, rounding_mode="floor"),
    "remainder": lambda x, y: x % y,
    "remainder by a number": lambda x, y: x % 0.3,
}


@pytest.mark.parametrize("name", QUOTIENTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_quotients_of_small_floats_are_eagers_to_the_bit(name: str, dtype: torch.dtype) -> None:
    program = QUOTIENTS[name]
    fast = anyshape.compile(program)
    pick = torch.Generator().manual_seed(0)
    x = (torch.randn(5000, generator=pick) * 500).to(dtype)
    y = (torch.randn(5000, generator=pick) * 3).to(dtype)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1, -1], dtype=dtype)
    x[1:50], y[1:50] = special.repeat(7), special.repeat_interleave(7)
    ours, theirs = fast(x, y), program(x, y)
    same = (ours == theirs) & (ours.signbit() == theirs.signbit())
    assert bool((same | ours.isnan() & theirs.isnan()).all())


COMPOSED: dict[str, Program] = {
    "a product summed": lambda x, v: torch.einsum("ij,kj->ik", x, x),
    "a product not summed": lambda x, v: torch.einsum("ij,j->ij", x, v),
    "inner": torch.inner,
    "tensordot": lambda x, v: torch.tensordot(x, x, 1),
    "multi_dot": lambda x, v: torch.linalg.multi_dot([x, x, x]),
    "matrix_power": lambda x, v: torch.linalg.matrix_power(x, 3),
    "matrix times vector": torch.mv,
    "covariance": lambda x, v: torch.cov(x),
    "correlation": lambda x, v: torch.corrcoef(x),
    "pseudo-inverse": lambda x, v: torch.linalg.pinv(x),
    "recurrent cell": lambda x, v: torch.rnn_tanh_cell(x, x, x, x),
    "convolution over time": lambda x, v: torch.conv_tbc(x[None], x[None], v),
}


@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.filterwarnings("ignore")
def test_autocast_casts_what_operators_are_made_of(name: str) -> None:
    def program(x: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return COMPOSED[name](x, v)

    fast = anyshape.compile(program)
    for n in (3, 4, 2):
        x = floats(n, n) + torch.eye(n)
        ours, theirs = fast(x, floats(n)), program(x, floats(n))
        assert ours.dtype is theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2, equal_nan=True)


PRODUCTS: dict[str, Program] = {
    "einsum": lambda x, y: torch.einsum("ik,kj->ij", x, y),
    "einsum of three": lambda x, y: torch.einsum("ik,kj,kl->ijl", x, y, y),
    "einsum to a number": lambda x, y: torch.einsum("ik,kj,ji->", x, y, (x @ y).t()),
    "inner": lambda x, y: torch.inner(x, y.t()),
    "tensordot": lambda x, y: torch.tensordot(x, y, 1),
    "tensordot over two": lambda x, y: torch.tensordot(x, y.t(), 2),
    "outer tensordot": lambda x, y: torch.tensordot(x, y, 0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", PRODUCTS)
def test_autocast_leaves_products_of_one_element_alone(name: str, dtype: torch.dtype) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return PRODUCTS[name](x, y)

    fast = anyshape.compile(program, options={"fallback": "error"})
    for n, k, m in ((2, 3, 2), (1, 1, 1), (1, 2, 1), (2, 1, 2), (1, 0, 1), (0, 1, 2)):
        if name == "tensordot over two":
            m = n
        x, y = floats(n, k).to(dtype), floats(k, m).to(dtype)
        torch.testing.assert_close(fast(x, y), program(x, y), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("depth", [(), (1,), (3,)])
def test_pictures_in_both_orders_are_not_copied(depth: tuple[int, ...]) -> None:
    wanted = torch.channels_last_3d if depth else torch.channels_last

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        made = x * 2
        made.contiguous(memory_format=wanted).add_(1)
        return made, x.contiguous(memory_format=wanted)

    fast = anyshape.compile(program)
    for shape in ((2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 1, 1, 1), (2, 3, 1, 5)):
        x = floats(*shape[:2], *depth, *shape[2:])
        ours, theirs = fast(x), program(x)
        assert (ours[1] is x) == (theirs[1] is x)
        assert_same(ours, theirs)


def test_a_slice_of_a_tensor_of_data_size_is_written() -> None:
    def program(x: Tensor) -> Tensor:
        made = torch.zeros(int(x.bool().sum()), 2)
        made[1:].add_(1)
        return made

    fast = anyshape.compile(program)
    for n in (3, 0, 1, 17):
        assert_same(fast(torch.ones(n)), program(torch.ones(n)))
    assert fast.stats().eager_ops == 0


def test_as_many_chunks_as_a_number_that_changes_says() -> None:
    fast = anyshape.compile(lambda x, count: x.chunk(count), options={"fallback": "error"})
    for size, count in ((3, 2), (4, 3), (0, 3), (0, 2), (8, 2), (1, 4), (17, 5)):
        ours, theirs = fast(x := floats(size, 2), count), x.chunk(count)
        assert len(ours) == len(theirs)
        assert all(map(torch.equal, ours, theirs))


def test_of_nothing_weights_are_counted() -> None:
    def program(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        kept = x > 0
        whole = torch.bincount(x, weights, 2)
        return whole / 2, torch.bincount(x[kept], weights=weights[kept]) + 1

    fast = anyshape.compile(program)
    for n in (3, 0, 1, 0, 17):
        x, weights = torch.arange(n) % 3, torch.rand(n, dtype=torch.float64)
        for ours, theirs in zip(fast(x, weights), program(x, weights)):
            assert_same(ours, theirs)


@pytest.mark.parametrize("chosen", ([1.0, 2.0], [0.0, 0.0], []))
def test_differences_of_what_data_makes_empty_are_that_tensor(chosen: list[float]) -> None:
    def differences(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept, written = x[x > 0], x[x > 0]
        behind = written.diff()
        written.add_(1)
        return kept, kept.diff(), behind

    def seen(made: tuple[Tensor, Tensor, Tensor]) -> object:
        return made[0] is made[1], made[2]._version, [t.shape for t in made]

    x = torch.tensor(chosen)
    assert seen(anyshape.compile(differences)(x)) == seen(differences(x))


def test_a_write_through_the_storage_of_data_is_not_counted() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        counted, uncounted = x * 1, x * 2
        counted.as_strided((2,), (1,)).add_(1)
        uncounted.data.as_strided((2,), (1,)).add_(1)
        return counted, uncounted

    x = torch.ones(4)
    made = anyshape.compile(program)(x)
    assert [t._version for t in made] == [t._version for t in program(x)] == [1, 0]
    assert all(map(torch.equal, made, program(x)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.empty_strided((len(x), 5, 5), (2, 1)),
        lambda x: x.new_empty_strided((len(x),), (2, 1)),
        lambda x: torch.empty_strided((len(x), 2), 2),
        lambda x: x.as_strided((1, 1), (1,)),
    ],
)
def test_strides_of_another_count_than_sizes_are_refused(program: Program) -> None:
    fast = anyshape.compile(program)
    for n in (3, 1):
        (ours, eager) = (attempt(f, (torch.ones(n),)) for f in (fast, program))
        assert isinstance(eager, type) and ours is eager
    assert not fast.stats().internal_errors
