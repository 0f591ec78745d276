"""An index out of range raises what eager raises; a range that is known costs no test."""

import pytest
import torch

import anyshape

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
