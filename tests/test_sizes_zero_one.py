"""Zero and one are ordinary sizes: each program at 0, 1, 2, 3 and 17 in every combination.

Each program runs twice: with sizes undeclared (backed), and with all of them declared (unbacked).
`same` programs have one rank, one number of outputs and one branch at every size, and so make one
specialization, and one more for each kind of size that eager refuses (`backed`); `differing` ones
do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from anyshape.errors import GraphBreakError

SIZES = (3, 0, 1, 2, 17)


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@dataclass(frozen=True)
class Program:
    """A function, and the declared shape of each argument; names are sizes of all kinds.

    `dtypes`: "i" arguments are indices below 2 or, with `below`, below the size of that name.
    """

    run: Callable[..., Any]
    shapes: tuple[str, ...]
    backed: int = 1  # specializations when nothing is declared; 0: any number
    kinds: str = ""  # a letter an argument: f float, i index, b bool
    below: str = ""  # indices are below this size
    sizes: tuple[int, ...] = SIZES


def program(run: Callable[..., Any], *shapes: str, **more: Any) -> Program:
    return Program(run, shapes, **more)


W = torch.linspace(-1, 1, 2 * 3 * 3 * 3).reshape(2, 3, 3, 3)
TABLE = torch.linspace(-1, 1, 34).reshape(17, 2)


def rope(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10.0 ** -torch.arange(half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1
    )


def causal(x: Tensor) -> Tensor:
    n = x.shape[-1]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    return torch.softmax((x[:, None] * x[..., None]).masked_fill(~mask, -math.inf), -1)


SAME: dict[str, Program] = {
    "roll": program(lambda x: x.roll(1, 0), "n m"),
    "roll flat": program(lambda x: x.roll(2), "n m"),
    "logsumexp": program(lambda x: x.logsumexp(0), "n m"),
    "logsumexp last": program(lambda x: x.logsumexp(-1), "n 3"),
    "mse_loss": program(lambda x, y: F.mse_loss(x, y), "n m", "n m"),
    "mse_loss none": program(lambda x, y: F.mse_loss(x, y, reduction="none"), "n m", "n m"),
    "l1_loss": program(lambda x, y: F.l1_loss(x, y, reduction="sum"), "n m", "n m"),
    "smooth_l1_loss": program(lambda x, y: F.smooth_l1_loss(x, y), "n m", "n m"),
    "batch_norm": program(
        lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)), "n 3 m"
    ),
    "group_norm": program(lambda x: F.group_norm(x, 2), "n 4 m"),
    "layer_norm": program(lambda x: F.layer_norm(x, (4,)), "n m 4"),
    "sdpa": program(F.scaled_dot_product_attention, "b 2 q 4", "b 2 k 4", "b 2 k 4"),
    "broadcast": program(lambda x, y: x + y, "n", "m", backed=0),
    "broadcast both ways": program(lambda x, y: x * y, "n 1", "1 m"),
    "broadcast an unknown with a row": program(lambda x, y: x * y, "n m", "m"),
    "sum": program(lambda x: x.sum(0), "n m"),
    "sum of all": program(lambda x: x.sum(), "n m"),
    "mean": program(lambda x: x.mean(0), "n m"),
    "prod": program(lambda x: x.prod(1), "n m"),
    "var": program(lambda x: x.var(0, correction=0), "n m"),
    "all": program(lambda x: (x > 0).all(0), "n m"),
    "any": program(lambda x: (x > 0).any(), "n m"),
    "slice to an unknown": program(lambda x, y: x[: y.shape[0]], "n", "m"),
    "slice from an unknown": program(lambda x, y: x[y.shape[0] :], "n", "m"),
    "slice to minus an unknown": program(lambda x, y: x[: -y.shape[0]], "n", "m", backed=0),
    "slice from minus an unknown": program(lambda x, y: x[-y.shape[0] :], "n", "m", backed=0),
    "slice by a constant": program(lambda x: x[1:-1], "n m"),
    "slice by a step": program(lambda x: x[::2], "n m"),
    "last": program(lambda x: x[-1], "n m", backed=2),
    "select": program(lambda x: x.select(1, 0), "m n", backed=2),
    "reshape": program(lambda x: x.reshape(-1), "n m"),
    "reshape with -1": program(lambda x: x.reshape(x.shape[0], -1, 2), "n 4", backed=2),
    "flatten": program(lambda x: x.flatten(0, 1), "n m 2"),
    "unflatten": program(lambda x: x.unflatten(1, (2, -1)), "n 4"),
    "expand": program(lambda x: x.expand(3, -1, -1), "n m"),
    "expand to an unknown": program(lambda x, y: x.expand(y.shape[0], -1), "1 m", "n"),
    "cat": program(lambda x, y: torch.cat([x, y]), "n m", "k m"),
    "cat with an empty": program(lambda x, y: torch.cat([x, torch.zeros(0), y]), "n m", "k m"),
    "stack": program(lambda x, y: torch.stack([x, y], 1), "n m", "n m"),
    "max_pool2d": program(
        lambda x: F.max_pool2d(x, 2, stride=1, padding=1), "b 3 h w"),
    "avg_pool2d": program(
        lambda x: F.avg_pool2d(x, 3, padding=1), "b 3 h w", backed=3),
    "adaptive_avg_pool2d": program(
        lambda x: F.adaptive_avg_pool2d(x, 1), "b 3 h w"),
    "conv2d": program(lambda x: F.conv2d(x, W, padding=1), "b 3 h w", backed=3),
    "conv1d": program(lambda x: F.conv1d(x, W[..., 0], padding=1), "b 3 w", backed=2),
    "interpolate nearest": program(
        lambda x: F.interpolate(x, scale_factor=2.0), "b 2 h w"),
    "interpolate bilinear": program(
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), "b 2 h w"
    ),
    "unfold": program(lambda x: F.unfold(x, 2, padding=1), "b 2 h w"),
    "fold": program(
        lambda x: F.fold(F.unfold(x, 2, padding=1), x.shape[2:], 2, padding=1), "b 2 h w"
    ),
    "tensor unfold": program(lambda x: x.unfold(0, 2, 1), "n m", backed=2),
    "einsum": program(lambda x, y: torch.einsum("bij,bjk->bik", x, y), "b i j", "b j k"),
    "matmul": program(lambda x, y: x @ y, "i j", "j k"),
    "bmm": program(torch.bmm, "b i j", "b j k"),
    "linear": program(lambda x: F.linear(x, TABLE), "n m 2"),
    "topk": program(lambda x: x.topk(1, -1)[0], "n m", backed=2),
    "sort": program(lambda x: x.sort(-1)[0], "n m"),
    "argsort": program(lambda x: x.argsort(dim=0, stable=True), "n m"),
    "cumsum": program(lambda x: x.cumsum(0), "n m"),
    "scatter": program(lambda x, i: x.scatter(0, i, 1.0), "n m", "k m", kinds="fi", below="n"),
    "scatter_add": program(
        lambda x, i, y: x.scatter_add(0, i, y), "n m", "k m", "k m", kinds="fif", below="n"
    ),
    "gather": program(lambda x, i: x.gather(0, i), "n m", "k m", kinds="fi", below="n"),
    "index": program(lambda x, i: x[i], "n m", "k", kinds="fi", below="n"),
    "index_select": program(
        lambda x, i: x.index_select(0, i), "n m", "k", kinds="fi", below="n"
    ),
    "index_put": program(
        lambda x, i: x.index_put((i,), torch.tensor(5.0)), "n m", "k", kinds="fi", below="n"
    ),
    "one_hot": program(lambda i: F.one_hot(i, 4), "n m", kinds="i"),
    "embedding": program(lambda i: F.embedding(i, TABLE), "n m", kinds="i"),
    "cross_entropy": program(
        lambda x, i: F.cross_entropy(x, i), "n 4", "n", kinds="fi"
    ),
    "nll_loss": program(
        lambda x, i: F.nll_loss(x.log_softmax(-1), i, reduction="sum"), "n 4", "n", kinds="fi"
    ),
    "dropout": program(lambda x: F.dropout(x, 0.5, training=False) * 2, "n m"),
    "rope": program(rope, "b n 4"),
    "causal mask": program(causal, "b n"),
    "masked_fill": program(lambda x, m: x.masked_fill(m, 0.0), "n m", "n m", kinds="fb"),
    "where": program(lambda m, x: torch.where(m, x, -x), "n m", "n m", kinds="bf"),
    "tril": program(lambda x: x.tril(), "n m"),
    "softmax": program(lambda x: x.softmax(0), "n m"),
    "log_softmax": program(lambda x: x.log_softmax(-1), "n m"),
    "flip": program(lambda x: x.flip(0, 1), "n m"),
    "pad": program(lambda x: F.pad(x, (1, 2)), "n m"),
    "transpose": program(lambda x: x.t().contiguous() + 1, "n m"),
    "repeat": program(lambda x: x.repeat(2, 3), "n m"),
    "repeat_interleave": program(lambda x: x.repeat_interleave(2, 0), "n m"),
    "arange": program(lambda x: torch.arange(x.shape[0]) + x.shape[1], "n m"),
    "full": program(lambda x: x.new_full((x.shape[1], x.shape[0]), 2.0), "n m"),
    "diagonal": program(lambda x: x.diagonal() * 2, "n m"),
    "norm": program(lambda x: torch.linalg.vector_norm(x, dim=-1), "n m"),
    "normalize": program(lambda x: F.normalize(x, dim=-1), "n m"),
    "cdist of sizes": program(lambda x, y: (x[:, None] - y[None]).square().sum(-1), "n 3", "m 3"),
    "meshgrid": program(lambda x, y: torch.meshgrid(x, y, indexing="ij")[0] + 1, "n", "m"),
    "nonzero": program(lambda x: (x > 0).nonzero(), "n m"),
    "masked_select": program(lambda x: x[x > 0], "n m"),
    "clamp by a size": program(lambda x: x.clamp(max=x.shape[0]), "n m"),
    "divided by a size": program(lambda x: x / (x.shape[0] + 1) ** 0.5, "n m"),
    "amax": program(lambda x: x.amax(0), "n m", backed=2),
    "argmax": program(lambda x: x.argmax(0), "n m", backed=2),
    "max of a dimension": program(lambda x: x.max(1), "n m", backed=2),
    "min of all": program(lambda x: x.min(), "n m", backed=3),
    "median": program(lambda x: x.median(0), "n m"),
    "std": program(lambda x: x.std(1), "n m"),
    "quantile": program(lambda x: x.quantile(0.5, 0), "n m"),
    "slice by two unknowns": program(lambda x, y, z: x[y.shape[0] : z.shape[0]], "n", "m", "k"),
    "slice by two of minus": program(
        lambda x, y, z: x[-y.shape[0] : -z.shape[0]], "n", "m", "k", backed=4
    ),
    "slice by a difference": program(lambda x, y: x[: x.shape[0] - y.shape[0]], "n", "m", backed=2),
    "narrow": program(lambda x, y: x.narrow(0, 0, y.shape[0]), "n", "m", backed=2),
    "select by an unknown": program(lambda x, y: x[y.shape[0]], "n", "m", backed=2),
    "select by minus an unknown": program(lambda x, y: x[-y.shape[0]], "n 2", "m", backed=4),
    "reshape with -1 first": program(lambda x: x.reshape(-1, x.shape[1]), "n m", backed=2),
    "reshape to another's": program(lambda x, y: x.reshape(y.shape), "n 2", "k", backed=2),
    "expand_as": program(lambda x, y: x.expand_as(y), "n 1", "n m"),
    "expand an unknown": program(lambda x, y: x.expand(y.shape[0]), "n", "m", backed=3),
    "cat of columns": program(lambda x, y: torch.cat([x, y], 1), "n m", "n k"),
    "max_pool1d": program(lambda x: F.max_pool1d(x, 2), "b 3 w", backed=4),
    "max_pool2d with places": program(
        lambda x: F.max_pool2d(x, 2, return_indices=True), "b 3 h w", backed=5
    ),
    "adaptive_max_pool2d": program(lambda x: F.adaptive_max_pool2d(x, 2), "b 3 h w"),
    "conv2d with a stride": program(
        lambda x: F.conv2d(x, W, stride=2, padding=2, dilation=2), "b 3 h w", backed=3
    ),
    "conv_transpose2d": program(
        lambda x: F.conv_transpose2d(x, W.transpose(0, 1), stride=2), "b 3 h w"
    ),
    "interpolate to another's": program(
        lambda x, y: F.interpolate(x, size=y.shape[-2:]), "b 2 h 3", "h w"
    ),
    "interpolate bicubic": program(
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"), "b 2 h w"
    ),
    "interpolate area": program(lambda x: F.interpolate(x, size=2, mode="area"), "b 2 h w"),
    "einsum of three": program(
        lambda x, y: torch.einsum("ij,jk,k->i", x, y, y.sum(0)), "i j", "j k"
    ),
    "einsum of a diagonal": program(lambda x: torch.einsum("bij,bij->b", x, x), "b i j"),
    "topk by an unknown": program(lambda x, y: x.topk(y.shape[0], -1), "n m", "k", backed=2),
    "cummax": program(lambda x: x.cummax(0), "n m"),
    "logcumsumexp": program(lambda x: x.logcumsumexp(0), "n m"),
    "scatter_reduce": program(
        lambda x, i, y: x.scatter_reduce(0, i, y, "amax"), "n m", "k m", "k m", kinds="fif", below="n"
    ),
    "index_add": program(
        lambda x, i, y: x.index_add(0, i, y), "n m", "k", "k m", kinds="fif", below="n"
    ),
    "one_hot by data": program(lambda i: F.one_hot(i), "n m", kinds="i"),
    "cross_entropy of each": program(
        lambda x, i: F.cross_entropy(x, i, reduction="none", label_smoothing=0.1), "n 4", "n", kinds="fi"
    ),
    "kl_div": program(
        lambda x, y: F.kl_div(x, y.softmax(-1), reduction="batchmean"), "n m", "n m"
    ),
    "layer_norm of an unknown": program(lambda x: F.layer_norm(x, (x.shape[-1],)), "n m"),
    "sdpa, causal": program(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), "b 2 q 4", "b 2 k 4"
    ),
    "sdpa with a mask": program(
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, attn_mask=m),
        "b 2 q 4", "b 2 k 4", "q k", kinds="ffb",
    ),
    "sdpa in groups": program(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), "b 4 q 4", "b 2 k 4"
    ),
    "roll by an unknown": program(lambda x, y: x.roll(y.shape[0], 0), "n m", "k"),
    "pad by reflection": program(
        lambda x: F.pad(x, (1, 1), mode="reflect"), "b n m", backed=5
    ),
    "bincount": program(lambda i: torch.bincount(i), "n", kinds="i"),
    "unique": program(
        lambda i: torch.unique(i, return_inverse=True, return_counts=True), "n m", kinds="i"
    ),
    "cdist": program(lambda x, y: torch.cdist(x, y), "n 3", "m 3"),
    "tril_indices": program(lambda x: torch.tril_indices(x.shape[0], x.shape[1]), "n m"),
}  # fmt: skip


def names(shapes: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(word for s in shapes for word in s.split() if word.isalpha()))


def cases(p: Program) -> Iterator[dict[str, int]]:
    """Every combination of sizes, but of four names at most 125, spread evenly."""
    found = names(p.shapes)
    every = list(itertools.product(p.sizes, repeat=len(found)))
    step = 1 if len(every) <= 125 else len(every) // 100 | 1
    for sizes in every[::step]:
        yield dict(zip(found, sizes, strict=True))


def arguments(p: Program, sizes: dict[str, int]) -> list[Tensor]:
    made = []
    generator = torch.Generator().manual_seed(sum(sizes.values()))
    for shape, kind in zip(p.shapes, p.kinds or "f" * len(p.shapes), strict=True):
        dims = [sizes[w] if w.isalpha() else int(w) for w in shape.split()]
        high = sizes[p.below] if p.below else 2
        made.append(
            torch.randn(dims, generator=generator) if kind == "f"
            else torch.randint(max(high, 1), dims, generator=generator) if kind == "i"
            else torch.rand(dims, generator=generator) < 0.5
        )  # fmt: skip
    return made


def outcome(run: Callable[..., Any], given: list[Tensor]) -> Any:
    """The result, or the type of what is raised."""
    try:
        return run(*given)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)


def declared(p: Program, **settings: Any) -> Any:
    parameters = [f"a{i}" for i in range(len(p.shapes))]
    scope = {"run": p.run}
    exec(f"def named({', '.join(parameters)}): return run({', '.join(parameters)})", scope)
    shapes = dict(zip(parameters, p.shapes, strict=True))
    return anyshape.compile(scope["named"], shapes=shapes, **settings)


def mistakes(p: Program, fast: Any) -> list[str]:
    """The sizes at which the compiled program is not eager's."""
    wrong = []
    for sizes in cases(p):
        given = arguments(p, sizes)
        expected = outcome(p.run, [x.clone() for x in given])
        found = outcome(fast, given)
        try:
            if isinstance(expected, type):
                assert found is expected, found
            else:
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
        except AssertionError as error:
            wrong.append(f"{sizes}: {str(error).splitlines()[0]}")
    return wrong


@pytest.mark.parametrize("name", SAME)
def test_declared_sizes_make_one_graph_and_one_specialization(name: str) -> None:
    p = SAME[name]
    fast = declared(p, fullgraph=True)
    assert mistakes(p, fast) == []
    stats = fast.stats()
    assert (stats.specializations, stats.graph_breaks) == (1, 0)


@pytest.mark.parametrize("name", SAME)
def test_undeclared_sizes_make_one_specialization_where_nothing_differs(name: str) -> None:
    p = SAME[name]
    fast = anyshape.compile(p.run, fullgraph=True)
    assert mistakes(p, fast) == []
    if p.backed:
        assert fast.stats().specializations == p.backed, fast.recompiles()


# --- where rank, number of outputs or branches differ ---

DIFFERING: dict[str, Program] = {
    "chunk": program(lambda x: [c + 1 for c in x.chunk(3)], "n m", backed=4),
    "split": program(lambda x: [c * 2 for c in x.split(2)], "n m", backed=4),
    "unbind": program(lambda x: [c * 2 for c in x.unbind(0)], "n m", backed=5),
    "squeeze": program(lambda x: x.squeeze(0) * 2, "n m"),
    "squeeze all": program(lambda x: x.squeeze() * 2, "n m", backed=4),
    "branch on a size": program(lambda x: x.sum(0) if x.shape[0] > 2 else x * 2, "n m"),
    "branch on two sizes": program(lambda x, y: x if x.shape[0] < y.shape[0] else y[None], "n", "m"),
    "a loop over a size": program(lambda x: sum([x[i] * i for i in range(x.shape[0])]), "n m", backed=5),
    "iteration": program(lambda x: [row + 1 for row in x], "n m", backed=5),
    "a list of a size": program(lambda x: [x] * x.shape[0], "n", backed=5),
}  # fmt: skip


def structure(value: Any) -> Any:
    """What may not differ within one specialization."""
    if isinstance(value, Tensor):
        return value.dim()
    if isinstance(value, list | tuple):
        return [structure(item) for item in value]
    return value


@pytest.mark.parametrize("name", DIFFERING)
def test_undeclared_sizes_make_one_specialization_for_each_outcome(name: str) -> None:
    p = DIFFERING[name]
    fast = anyshape.compile(p.run, fullgraph=True)
    assert mistakes(p, fast) == []
    outcomes = {repr(structure(outcome(p.run, arguments(p, sizes)))) for sizes in cases(p)}
    assert fast.stats().specializations <= max(len(outcomes), p.backed), fast.recompiles()


@pytest.mark.parametrize("name", DIFFERING)
def test_declared_sizes_are_right_through_a_break(name: str) -> None:
    p = DIFFERING[name]
    fast = declared(p)
    assert mistakes(p, fast) == []
    assert fast.stats().graph_breaks >= 1


@pytest.mark.parametrize("name", DIFFERING)
def test_declared_sizes_with_fullgraph_are_an_error_whose_hint_removes_it(name: str) -> None:
    p = DIFFERING[name]
    sizes = dict(zip(names(p.shapes), (3, 2), strict=False))
    given = arguments(p, sizes)
    checks: list[str] = []
    for _ in range(4):
        parameters = ", ".join(f"a{i}" for i in range(len(p.shapes)))
        body = "".join(f"    {check}\n" for check in checks)
        scope = {"run": p.run, "anyshape": anyshape}
        exec(f"def named({parameters}):\n{body}    return run({parameters})", scope)
        shapes = {f"a{i}": shape for i, shape in enumerate(p.shapes)}
        fast = anyshape.compile(scope["named"], shapes=shapes, fullgraph=True)
        try:
            torch.testing.assert_close(fast(*given), p.run(*given))
        except GraphBreakError as error:
            assert error.hint.startswith("anyshape.check("), error
            checks.append(error.hint.partition(", or")[0])
        else:
            break
    else:
        pytest.fail(f"the hints do not remove it: {checks}")
    assert checks, "it was an error at first"
    assert fast.stats().specializations == 1


@torch.no_grad()
def test_sizes_may_decide_whether_attention_groups_its_heads() -> None:
    def attend(q: Tensor, k: Tensor) -> Tensor:
        grouped = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q, k, k, enable_gqa=grouped)

    fast = anyshape.compile(attend, fullgraph=True)
    for heads, length in ((2, 3), (4, 1), (2, 0), (6, 17)):
        q, k = torch.randn(1, heads, length, 8), torch.randn(1, 2, length, 8)
        torch.testing.assert_close(fast(q, k), attend(q, k))
    # of nothing eager broadcasts no batch, so that batches of arguments must be equal there
    assert fast.stats().specializations == 3


def test_a_slice_of_a_table_is_as_long_as_asked_for_though_the_first_length_is_1() -> None:
    """BERT's token types: `min(n, 512)` elements are expanded to n."""

    def program(x: Tensor, table: Tensor) -> Tensor:
        rows, length = x.shape
        return table[:, :length].expand(rows, length) + x

    fast = anyshape.compile(program, fullgraph=True)
    for rows, length in ((2, 1), (2, 5), (1, 1), (3, 8)):
        x, table = torch.ones(rows, length), torch.arange(8.0)[None]
        torch.testing.assert_close(fast(x, table), program(x, table))
    assert fast.stats().specializations == 1
