"""Which parameters a Triton kernel may write through: never fewer than it does."""

from __future__ import annotations

import pytest

from anyshape.kernel_writes import may_write

tl = pytest.importorskip("triton.language")


def helper(x, y):
    """Stands for another kernel's function."""


class Helpers:
    load = helper


def copies(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32) + tl.load(y + i)
    tl.store(out + i, v, mask=i < n)


def moved_pointers(x, out, n):
    x += tl.program_id(0) * n
    p = q = out + tl.arange(0, 16)
    for k in range(0, n, 16):
        v = tl.load(x + k + tl.arange(0, 16))
        tl.store(pointer=q, value=v)
        q += 16
        tl.atomic_add(p, v)


def by_turns(x, y, z, n):
    a, b = x, y
    for k in range(n):
        a, b = b, a
    tl.store(a, tl.load(z))


def chosen(x, y, z, n):
    p = x if n > 1 else y
    tl.store(tl.multiple_of(p, 16) + n, tl.load(z))


def block_pointers(x, out, n):
    p = tl.make_block_ptr(out, (n,), (1,), (0,), (16,), (0,))
    tl.store(tl.advance(p, (16,)), tl.load(x + tl.arange(0, 16)))


def descriptors(x, out, n):
    p = tl.make_tensor_descriptor(out, (n,), (1,), (16,))
    p.store([0], tl.load(x + tl.arange(0, 16)))


def handed_on(x, y, out):
    v = helper(x, tl.load(y))
    tl.store(out, v)


def of_a_module_of_the_programs(x, out):
    tl.store(out, Helpers.load(x, 1))


def another_language(x, y, out, tl):
    tl.store(out, tl.load(y))


def over_written_language(x, out):
    tl = helper
    tl.load(x)


def in_parts(x, out, n):
    found = (x, out)
    tl.store(found[n], 1)


def a_scope(x, out):
    f = lambda: tl.store(out, tl.load(x))
    f()


def reads_inside_of_an_address(x, index, out):
    tl.store(out + tl.load(index), tl.load(x))


EXPECTED = {
    copies: {"out"},
    moved_pointers: {"out"},
    by_turns: {"x", "y"},
    chosen: {"x", "y"},
    block_pointers: {"out"},
    descriptors: {"out"},
    handed_on: {"x", "out"},
    of_a_module_of_the_programs: {"x", "out"},
    another_language: {"y", "out"},
    over_written_language: {"x"},
    in_parts: {"x", "out"},
    a_scope: None,
    reads_inside_of_an_address: {"out"},
    len: None,
}


@pytest.mark.parametrize("function", EXPECTED, ids=lambda f: f.__name__)
def test_what_may_be_written(function) -> None:
    found, expected = may_write(function), EXPECTED[function]
    if expected is None:
        assert found is None
    else:
        numbers = {"n", "tl", "BLOCK"}  # no tensor is one
        assert found is not None and found - numbers == expected
