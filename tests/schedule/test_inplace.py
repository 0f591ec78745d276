"""A row of a cache is written where the cache lies, and nobody can tell but by the time."""

import pytest
import torch
from torch import nn

import anyshape


def put(cache, at, row):
    cache.index_copy_(0, at, row)
    return cache * 2


def multiplies_views(cache, at, row):
    cache.index_copy_(0, at, row)
    n, m = cache.shape
    return (
        cache[:1] @ cache.mT,
        cache.reshape(m, n) @ cache,
        cache.view(n, 1, m).cumsum(2),
        cache[1:].sort(0),
    )


def put_twice(keys, values, at, row):
    keys[at] = row
    values[at] = row + keys.sum()
    return keys @ values.t()


def put_by_scatter(cache, at, row):
    cache.scatter_(0, at[:, None].expand(-1, row.shape[1]), row)
    return cache.sum(0)


def put_transposed(cache, at, row):
    cache.t().index_copy_(1, at, row.t())
    return cache + 1


def returns_the_cache(cache, at, row):
    cache[at] = row
    return cache, cache[1:]


def reads_first(cache, at, row):
    old = cache.sum(0)
    cache[at] = row
    return old + cache.sum(0)


def writes_what_it_reads(cache, at, row):
    cache[at] = cache[at + 0] + row
    return cache * 1


def adds(cache, at, row):
    cache.index_add_(0, at, row)
    return cache * 2


def keeps_a_copy(cache, at, row):
    written = cache.index_copy(0, at, row)
    cache.copy_(written)
    return written


def writes_twice(cache, at, row):
    cache[at] = row
    cache[at] = row * 2
    return cache.sum()


IN_PLACE = (put, put_by_scatter, multiplies_views)
COPIED = (reads_first, writes_what_it_reads, adds, keeps_a_copy)
PROGRAMS = (*IN_PLACE, *COPIED, put_transposed, returns_the_cache, writes_twice)


def results(fn, *given):
    """What the program gives back or raises, and what it leaves behind."""
    given = [x.clone(memory_format=torch.preserve_format) for x in given]
    versions = [x._version for x in given]
    try:
        found = fn(*given)
    except Exception as error:
        found = list(map(ord, type(error).__name__))
    changed = [x._version > v for x, v in zip(given, versions, strict=True)]
    return found, given, changed


def check(fast, fn, *given):
    torch.testing.assert_close(results(fast, *given), results(fn, *given))


@pytest.mark.parametrize("fn", PROGRAMS)
def test_results_and_caches_are_eagers(fn):
    fast = anyshape.compile(fn, fullgraph=True)
    for rows, positions in ((5, [3]), (7, [0, 6]), (1, [0]), (4, []), (3, [1, 1]), (40, [17, 2])):
        at = torch.tensor(positions, dtype=torch.int64)
        row = torch.randn(1, 3).expand(len(positions), 3)
        check(fast, fn, torch.randn(rows, 3), at, row)
        check(fast, fn, torch.randn(3, rows).t(), at, row)
        check(fast, fn, torch.randn(rows, 6)[:, ::2], at, row)
        check(fast, fn, torch.randn(3, rows + 2)[:, 1:-1].t(), at, row)


def test_two_caches_at_once():
    fast = anyshape.compile(put_twice, fullgraph=True)
    for rows in (5, 9):
        given = torch.randn(rows, 3), torch.randn(rows, 3), torch.tensor([2]), torch.randn(1, 3)
        check(fast, put_twice, *given)


@pytest.mark.parametrize("fn", IN_PLACE)
def test_an_index_out_of_range_raises_and_leaves_the_cache_as_eager_does(fn):
    fast = anyshape.compile(fn)
    check(fast, fn, torch.randn(5, 3), torch.tensor([1]), torch.randn(1, 3))
    check(fast, fn, torch.randn(5, 3), torch.tensor([9]), torch.randn(1, 3))


@pytest.mark.parametrize("fn", IN_PLACE)
def test_the_cache_is_not_copied(fn):
    fast = anyshape.compile(fn, fullgraph=True)
    fast(torch.randn(5, 3), torch.tensor([1]), torch.randn(1, 3))
    assert "Tensor_copy_" not in fast.code() and "write(bump_version, " in fast.code()


@pytest.mark.parametrize("fn", COPIED)
def test_what_cannot_be_done_twice_is_copied(fn):
    fast = anyshape.compile(fn, fullgraph=True)
    fast(torch.randn(5, 3), torch.tensor([1]), torch.randn(1, 3))
    assert "write(torch_Tensor_copy_, " in fast.code()


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 3))

    def forward(self, at, row):
        self.cache[at] = row
        return self.cache.sum(0)


def test_a_buffer_of_a_module():
    fast, plain = Cached(), Cached()
    compiled = anyshape.compile(fast, fullgraph=True)
    for position in (2, 5, 0):
        row = torch.randn(1, 3)
        at = torch.tensor([position])
        torch.testing.assert_close(compiled(at, row), plain(at, row))
    torch.testing.assert_close(fast.cache, plain.cache)


def test_inference_tensors_are_written_in_inference_mode_only():
    fast = anyshape.compile(put)
    with torch.inference_mode():
        cache = torch.zeros(5, 3)
        fast(cache, torch.tensor([1]), torch.ones(1, 3))
        assert cache.sum() == 3
    with pytest.raises(RuntimeError, match="inference tensor"):
        fast(cache, torch.tensor([1]), torch.ones(1, 3))
