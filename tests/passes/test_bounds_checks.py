"""An index out of range raises what eager raises; a range that is known costs no test."""

import pytest
import torch

import anyshape
from anyshape.ir.dtypes import float32, int64
from anyshape.ir.graph import TensorType
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.passes.bounds_checks import check_bounds
from anyshape.symbolic import Facts, Space, any_of, eq, ge

TABLE = torch.arange(15.0).reshape(5, 3)

READS = {
    "embedding": lambda i: torch.nn.functional.embedding(i, TABLE) + 1,
    "index_select": lambda i: torch.index_select(TABLE, 0, i) * 2,
    "gather": lambda i: torch.gather(TABLE, 0, i[:, None].expand(-1, 3)) * 2,
    "index": lambda i: TABLE[i] * 2,
    "two indices": lambda i: TABLE[i, i - 2] * 2,
    "index_add": lambda i: torch.index_add(TABLE, 0, i, TABLE[: i.shape[0]]) * 2,
    "scatter": lambda i: torch.scatter(TABLE, 0, i[:, None].expand(-1, 3), 1.0) * 2,
}


def outcome(fn, index):
    try:
        return fn(index)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", READS)
def test_every_read_and_write_is_in_range_or_raises_as_eager(name):
    fast = anyshape.compile(READS[name])
    for values in ([2, 3], [4, 4], [5, 1], [-1, 2], [-5, 1], [-6, 2], [2**40, 1], []):
        index = torch.tensor(values, dtype=torch.int64)
        expected, found = outcome(READS[name], index), outcome(fast, index)
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(found, expected)
        else:
            assert found == expected
    assert fast.stats().graph_breaks == 0


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[torch.zeros(3, dtype=torch.int64)] * 2,
        lambda x: x[torch.full((x.shape[1],), 2, dtype=torch.int64)] * 2,
        lambda x: x[torch.arange(x.shape[1]).flip(0)[:, None], torch.arange(2)] * 2,
    ],
)
def test_indices_that_are_numbers_or_a_range_are_compared_by_the_host(read):
    fast = anyshape.compile(read)
    for shape in ((4, 3), (3, 3), (2, 3), (0, 3), (0, 0), (5, 1), (2, 2)):
        expected, found = outcome(read, torch.ones(shape)), outcome(fast, torch.ones(shape))
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(found, expected)
        else:
            assert found == expected
    assert "native_region_failed" not in fast.code().split("def run")[0]
    variants = fast._lazy.machinery._specializations()
    nodes = [n.op for v in variants for n in v.compiled.stages[-1][1].nodes]
    assert "check_false" not in nodes and "check" in nodes


def test_a_device_reads_nothing_where_there_may_be_nothing():
    """What is out of range is read at 0 there, as the host does not wait: unless no index exists."""
    space = Space()
    n, m = space.fresh("n"), space.fresh("m")
    builder = Builder(TypeContext(space, Facts(space)), OPS)
    x = builder.input(TensorType(float32, "cuda:0", (n,), (1,)), "argument", "x")
    positions = builder.input(TensorType(int64, "cuda:0", (m,), (1,)), "argument", "positions")
    made = check_bounds(builder.finish((builder.index_select(x, 0, positions),)), OPS)
    tested = [node.args[0] for node in made.nodes if node.op == "check"]
    assert tested == [any_of(eq(m, 0), ge(n, 1))]
    assert [node.op for node in made.nodes][-3:] == ["trap_if", "where", "index_select"]


def test_nothing_is_written_before_the_check():
    def write(x, i):
        x.add_(1)
        return TABLE[i] + x

    fast = anyshape.compile(write)
    fast(torch.zeros(2, 3), torch.tensor([0, 1]))
    x = torch.zeros(2, 3)
    with pytest.raises(IndexError):
        fast(x, torch.tensor([0, 9]))
    assert torch.equal(x, torch.ones(2, 3)), "eager added one, once"


def test_a_known_range_needs_no_check():
    def last_rows(x):
        rows = x.size(0) - 1 - torch.arange(x.size(0))
        each_twice = torch.cat([x, x])[:, 0].argsort() // 2
        some = x.flatten().argsort() % 3
        return x[rows], x.gather(1, x.argmax(1, keepdim=True)), x[each_twice], TABLE[:, some]

    fast = anyshape.compile(last_rows, fullgraph=True)
    x = torch.randn(4, 3)
    torch.testing.assert_close(fast(x), last_rows(x))
    assert (
        "check_false" not in fast.graphs()[0]
        and "native_region_failed" not in fast.code().split("def run")[0]
    )
    variant = next(iter(fast._lazy.machinery._specializations()))
    final = variant.compiled.stages[-1][1]
    assert not [node for node in final.nodes if node.op == "check_false"]


def test_a_failed_check_gives_back_the_random_numbers_it_drew():
    def noisy(x, i):
        noise = torch.randn(3)
        return TABLE[i] + x + noise

    fast = anyshape.compile(noisy)
    fast(torch.zeros(2, 3), torch.tensor([0, 1]))
    torch.manual_seed(3)
    with pytest.raises(IndexError):
        noisy(torch.zeros(2, 3), torch.tensor([0, 9]))
    expected = torch.randn(4)
    torch.manual_seed(3)
    with pytest.raises(IndexError):
        fast(torch.zeros(2, 3), torch.tensor([0, 9]))
    assert torch.equal(torch.randn(4), expected)
