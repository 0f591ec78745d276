"""Text means what the expression means: Python runs it, C runs it, Triton's rules too."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyshape.symbolic import (
    Facts,
    Space,
    all_of,
    any_of,
    broadcast,
    eq,
    evaluate,
    ge,
    le,
    lt,
    maximum,
    minimum,
    ne,
    to_python,
)
from anyshape.targets.cpu.sizes import to_c
from anyshape.targets.triton.sizes import to_triton
from tests.symbolic.trees import Undefined, built, environments, signed_symbols, tree, value

NAMES = ("x", "y", "z")


class Truncating(int):
    """An integer scalar of a kernel: // and % round to zero."""

    def __floordiv__(self, other):
        q = abs(int(self)) // abs(int(other))
        return Truncating(-q if (self < 0) != (other < 0) else q)

    def __mod__(self, other):
        return Truncating(int(self) - int(self // other) * int(other))

    def __add__(self, other):
        return Truncating(int(self) + int(other))

    def __sub__(self, other):
        return Truncating(int(self) - int(other))

    def __mul__(self, other):
        return Truncating(int(self) * int(other))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other):
        return Truncating(int(other) - int(self))

    def __rfloordiv__(self, other):
        return Truncating(other) // self

    def __rmod__(self, other):
        return Truncating(other) % self

    def __neg__(self):
        return Truncating(-int(self))


class FakeTriton:
    @staticmethod
    def where(condition, yes, no):
        return yes if condition else no

    minimum, maximum = staticmethod(min), staticmethod(max)


@settings(max_examples=300, deadline=None)
@given(tree(NAMES), st.lists(environments(NAMES), min_size=5, max_size=5))
def test_python_and_triton_text_mean_the_expression(node, envs):
    symbols = signed_symbols(NAMES)
    try:
        dim = built(node, symbols)
    except Undefined:
        return
    python = compile(to_python(dim), "<python>", "eval")
    triton = compile(to_triton(dim), "<triton>", "eval")
    for env in envs:
        try:
            expected = value(dim, {symbols[name].symbol: size for name, size in env.items()})
        except Undefined:
            continue
        assert eval(python, {}, env) == expected
        scalars = {name: Truncating(size) for name, size in env.items()}
        assert eval(triton, {"tl": FakeTriton}, scalars) == expected


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_text_means_the_expression(tmp_path):
    draw = random.Random(7)
    symbols = signed_symbols(NAMES)
    dims = [dim for _ in range(300) if not isinstance(dim := random_dim(draw, symbols), int)]
    lines = [
        f"long long f{i}(long long x, long long y, long long z) {{ return {to_c(dim)}; }}"
        for i, dim in enumerate(dims)
    ]
    source, library = tmp_path / "dims.c", tmp_path / "dims.so"
    source.write_text("\n".join(lines))
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source], check=True
    )
    loaded = ctypes.CDLL(str(library))
    for i, dim in enumerate(dims):
        function = loaded[f"f{i}"]
        function.restype = ctypes.c_longlong
        function.argtypes = [ctypes.c_longlong] * 3
        for _ in range(6):
            sizes = [draw.randint(-7, 9) for _ in NAMES]
            try:
                expected = value(dim, {symbols[n].symbol: x for n, x in zip(NAMES, sizes)})
            except Undefined:
                continue
            assert function(*sizes) == expected, (to_c(dim), sizes)


def random_dim(draw, symbols):
    def node(depth):
        if depth == 0 or draw.random() < 0.2:
            return draw.choice(NAMES) if draw.random() < 0.7 else draw.choice((-3, 1, 2, 4, 2**33))
        op = draw.choice(("+", "-", "*", "//", "%", "min", "max", "broadcast"))
        divisor = draw.choice((-4, 2, 3, 8)) if op in ("//", "%") else node(depth - 1)
        return (op, node(depth - 1), divisor)

    try:
        return built(node(3), symbols)
    except Undefined:
        return 0


@pytest.fixture
def s():
    space = Space()
    return [space.fresh("s") for _ in range(3)]


def test_sizes_divide_with_the_target_s_own_operator(s):
    assert to_c(s[0] // 4) == "(s0 / 4)"
    assert to_triton((s[0] + s[1]) % 8) == "((s0 + s1) % 8)"
    assert to_python(-(s[0] // 4) + s[1] * (s[0] % 3)) == "s1*(s0%3) - s0//4"


def test_facts_tell_where_plain_division_will_do(s):
    facts = Facts(s[0].space)
    facts.assume(ge(s[0], s[1]))
    dim = (s[0] - s[1]) // 4
    assert "%" in to_c(dim)
    assert to_c(dim, nonnegative=lambda d: facts.known(ge(d, 0)) is True) == "((s0 - s1) / 4)"


def test_a_divisor_is_tested_in_c_unless_it_is_said_not_to_be_zero(s):
    assert to_c(s[0] // s[1]) == "(s0 / (s1 ? s1 : 1))"
    assert to_c(s[0] % (s[1] + s[2])) == "(s0 % ((s1 + s2) ? (s1 + s2) : 1))"
    assert to_c(s[0] // s[1], not_zero=lambda d: d is s[1]) == "(s0 / s1)"
    assert to_triton(s[0] // s[1]) == "(s0 // s1)"


def test_names_are_the_caller_s(s):
    dim = 2 * s[0] + s[1] // 4
    assert to_python(dim, lambda symbol: f"n[{symbol.name!r}]") == "2*n['s0'] + n['s1']//4"
    assert to_python(7) == "7"


def test_a_broadcast_is_spelled_with_conditionals(s):
    dim = broadcast(*s)
    names = {"s0": 1, "s1": 1, "s2": 6}
    assert eval(to_python(dim), {}, names) == 6
    assert to_c(dim).count("?") == 2
    assert str(dim) == "broadcast(s0, s1, s2)"


def test_conditions_are_text_too(s):
    a, b, c = s
    condition = all_of(lt(a, b), any_of(eq(c, 1), ne(a % 4, 0)), le(minimum(a, 5), maximum(b, c)))
    for x, y, z in [(0, 1, 1), (4, 9, 1), (4, 9, 2), (5, 9, 0), (9, 2, 1)]:
        sizes = {a.symbol: x, b.symbol: y, c.symbol: z}
        names = {"s0": x, "s1": y, "s2": z}
        expected = evaluate(condition, sizes)
        assert eval(to_python(condition), {}, names) is expected
        assert bool(eval(to_triton(condition), {"tl": FakeTriton}, names)) is expected
    assert "&&" in to_c(condition) and "||" in to_c(condition)
    assert to_python(True) == "True" and to_c(False) == "0"


def test_relations_read_as_one_would_write_them(s):
    a, b = s[:2]
    assert str(ge(a, 4)) == "s0 >= 4"
    assert str(eq(2 * a, b + 3)) == "2*s0 == s1 + 3"
    assert str(lt(a, b)) == "s0 + 1 <= s1"
    assert str(any_of(eq(a, 1), all_of(eq(b, 1), ge(a, 2)))) == "s0 == 1 or (s1 == 1 and s0 >= 2)"
