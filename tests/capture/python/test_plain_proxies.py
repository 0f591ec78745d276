"""Proxies go through plain Python without native code ever touching one: results are those of the numbers they hide.

The domain here hides real ints in `SizeValue` and floats and bools in `ScalarValue`, computes on them, and hides the results again.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from anyshape.capture.heap.values import (
    PROXIES,
    Break,
    OpaqueValue,
    ProxyLeak,
    ScalarValue,
    SizeValue,
)
from anyshape.capture.interpreter.domain import Domain
from anyshape.capture.python.language import python_machine

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "divmod": divmod, "<": operator.lt, "<=": operator.le, "==": operator.eq,
    "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg, "+": operator.pos, "~": operator.invert, "abs": abs, "round": round, "index": operator.index,
    "int": int, "float": float, "bool": bool, "str": str, "repr": repr, "hash": hash, "not": operator.not_,
}  # fmt: skip


def hide(value: Any) -> Any:
    if type(value) is int:
        return SizeValue(value)
    if type(value) in (float, bool):
        return ScalarValue(value, type(value))
    if type(value) is tuple:
        return tuple([hide(item) for item in value])
    return value


def show(value: Any) -> Any:
    """The numbers behind proxies, deep inside containers."""
    if type(value) is SizeValue:
        return value.expr
    if type(value) is ScalarValue:
        return value.scalar
    if isinstance(value, tuple):
        shown = [show(item) for item in value]
        return type(value)(*shown) if hasattr(value, "_fields") else tuple(shown)
    if isinstance(value, (list, deque, set)):
        return type(value)(show(item) for item in value)
    if isinstance(value, dict):
        return {show(key): show(item) for key, item in value.items()}
    if type(value) is slice:
        return slice(show(value.start), show(value.stop), show(value.step))
    return value


class Hiding(Domain):
    records = True

    def unary(self, op: str, a: Any) -> Any:
        result = UNARY[op](show(a))
        return result if op in ("str", "repr", "hash") else hide(result)

    def binary(self, op: str, a: Any, b: Any) -> Any:
        return hide(OPERATORS[op](show(a), show(b)))

    compare = binary

    def branch(self, value: Any, frame: Any) -> bool:
        return bool(show(value))

    def getattr(self, value: Any, name: str) -> Any:
        return hide(getattr(show(value), name))

    def getitem(self, value: Any, key: Any) -> Any:
        return value[show(key)]

    def setitem(self, value: Any, key: Any, new: Any) -> Any:
        value[show(key)] = new

    def delitem(self, value: Any, key: Any) -> Any:
        del value[show(key)]

    def format(self, value: Any, spec: str) -> Any:
        return format(show(value), spec)

    def type_of(self, value: Any) -> type:
        return type(show(value))

    def instantiate(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if cls is range:
            return range(*[show(arg) for arg in args])
        return NotImplemented

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if fn is range or getattr(fn, "__module__", "") == "math" or fn in (round, pow):
            return (
                hide(fn(*[show(arg) for arg in args]))
                if fn is not range
                else range(*map(show, args))
            )
        return fn(*args, **kwargs)


class Pair(NamedTuple):
    a: Any
    b: Any


class Box:
    limit = 10

    def __init__(self, n):
        self.n = n
        self.items = [n] * 2

    def __add__(self, other):
        return Box(self.n + (other.n if isinstance(other, Box) else other))

    def __radd__(self, other):
        return Box(other + self.n)

    def __eq__(self, other):
        return isinstance(other, Box) and self.n == other.n

    def __lt__(self, other):
        return self.n < other.n

    def __bool__(self):
        return self.n > 3

    def __len__(self):
        return self.n

    def __call__(self, k, *, scale=1):
        return self.n * k * scale

    @property
    def half(self):
        return self.n // 2


def arithmetic(n, m):
    a = n
    a += m
    a *= 2
    a -= 1
    a //= m
    return (
        a,
        -n,
        +n,
        ~n,
        n - m * 2,
        n / m,
        n % m,
        n**2,
        n << 1,
        n >> 1,
        n & m,
        n | m,
        n ^ m,
        divmod(n, m),
        abs(-n),
        10 - n,
        2**m,
        round(n / m),
    )


def comparisons(n, m):
    return (
        n < m,
        n <= m,
        n == m,
        n != m,
        n > m,
        n >= m,
        n == 5,
        5 == n,
        1 < n < 10,
        not n > m,
        n is n,
        n is None,
    )


def branches(n, m):
    out = []
    if n > m:
        out.append("gt")
    while m < n:
        m = m + 1
        out.append(m)
    out.append("even" if n % 2 == 0 else "odd")
    out.append((n and m, n or m, not n, n > 9 or m, n > 2 and "big"))
    assert n, "never"
    return out


def containers(n, m):
    shape = (n, m, 7)
    sizes = [*shape, n * m]
    table = {"n": n, "nested": {"m": [m, n]}}
    sizes.append(n + 1)
    sizes.insert(0, m)
    sizes.extend(shape)
    sizes += [m]
    first, *rest = sizes
    table.update(k=sizes[1:3], **{"z": n})
    popped = table.pop("z")
    table.setdefault("new", []).append(n)
    return (
        shape[::-1],
        sizes,
        table,
        first,
        rest,
        popped,
        [n] * 3,
        (n,) + shape,
        sizes[-1],
        list(reversed(shape)),
        deque(shape),
        OrderedDict(a=n),
    )


def equality_of_shapes(n, m):
    shape = (n, m)
    return (
        shape == (5, 3),
        shape != (5, 3),
        shape == (5, 4),
        [n] == [5],
        {"a": n} == {"a": 5},
        (n, "x") == (5, "x"),
        shape < (5, 4),
        shape == (n, m),
        [shape] == [(5, 3)],
        shape >= (5, 2),
    )


def membership(n, m):
    return (
        n in (1, 5),
        n not in [3, m],
        5 in (n, m),
        n in [],
        "x" in ("x", n),
        (n, m) in [(5, 3)],
        n in range(3),
        n in range(9, 0, -2),
        m in range(0),
    )


def builtins_of_numbers(n, m):
    return (
        min(n, m), max(n, m, 4), min([n, m]), max((n, m), key=lambda v: -v), sum([n, m, 1]), sum((n, m), start=2), sorted([n, m, 4]),
        sorted([n, m], reverse=True), any([n > 9, m > 2]), all(v > 1 for v in (n, m)), int(n), float(n), bool(n), abs(m - n), pow(n, 2),
        operator.mul(n, m), operator.index(n), functools.reduce(operator.mul, (n, m, 2)), functools.reduce(lambda a, b: a + b, [n, m], 0),
    )  # fmt: skip


def iteration(n, m):
    total = 0
    for i in range(n):
        total += i
    pairs = list(zip((n, m), [m, n]))
    return (
        total, pairs, list(enumerate([n, m], start=m)), list(map(lambda v: v + 1, [n, m])), list(filter(lambda v: v > 3, [n, m])),
        [v * 2 for v in (n, m)], {k: v for k, v in zip("ab", (n, m))}, list(itertools.accumulate([n, m, n])), list(itertools.chain([n], (m,))),
        tuple(v for v in (n, m) if v > 3), dict(a=n, **{"b": m}), list(range(m, n)), [*range(m)], list(itertools.starmap(operator.add, [(n, m)])),
    )  # fmt: skip


def indexing(n, m):
    items = list(range(10))
    items[m] = "set"
    del items[n]
    return (
        items,
        items[m],
        items[: n - 1],
        items[m:n],
        items[-m],
        "abcdefgh"[n],
        (1, 2, 3, 4)[m],
        items[slice(m, n)],
        items[n:][0],
    )


def text(n, m):
    return (
        f"{n}x{m}",
        f"{n:>4}|{n!r}|{n / m:.2f}",
        str(n),
        repr(m),
        "{} {:03d}".format("a", 5),
        f"{n=}",
        "-".join(str(v) for v in (n, m)),
        format(n, "x"),
    )


def types_of(n, m):
    return (
        isinstance(n, int),
        isinstance(n / m, float),
        isinstance(n > m, bool),
        isinstance(n, (str, list)),
        type(n) is int,
        type(n).__name__,
        isinstance(n, str),
        hasattr(n, "real"),
        getattr(n, "real", None),
    )


def functions(n, m, k=2):
    def inner(a, *args, scale=m, **kwargs):
        return a * scale + sum(args) + kwargs.get("extra", 0)

    def counter():
        nonlocal k
        k += n
        return k

    return (
        inner(n),
        inner(n, m, extra=1),
        inner(*[n, m], scale=2),
        counter(),
        counter(),
        (lambda v=n: v + 1)(),
        functools.partial(inner, n)(m),
    )


def objects(n, m):
    a, b = Box(n), Box(m)
    a.extra = n * m
    setattr(b, "late", n)
    c = a + b
    d = 1 + a
    return (
        c.n,
        d.n,
        a == Box(n),
        a == b,
        b < a,
        bool(a),
        bool(b),
        not b,
        a(m, scale=2),
        a.half,
        a.items,
        vars(b)["late"],
        a.extra,
        min(a, b).n,
        getattr(a, "n"),
        a.limit,
        (a and 1),
        Pair(n, m),
        Pair(n, m).a,
        Pair(a=n, b=m)._replace(a=m),
    )


def generators(n, m):
    def count(limit):
        i = m
        while i < limit:
            got = yield i
            i += 1 if got is None else got

    g = count(n + 4)
    return (
        next(g),
        g.send(m),
        list(g),
        sum(count(n)),
        [x for x in count(n)],
        max(count(n)),
        list(zip(count(n), "ab")),
    )


def exceptions(n, m):
    try:
        if n > m:
            raise ValueError("bigger", n)
    except ValueError as error:
        caught = error.args
    try:
        [1, 2][n]
    except IndexError as error:
        caught += (str(error),)
    return caught


def matching(n, m):
    out = []
    for value in (n, (n, m), [n], {"k": m}, None):
        match value:
            case 5:
                out.append("five")
            case (5, x):
                out.append(x)
            case [x]:
                out.append(("one", x))
            case {"k": x}:
                out.append(x)
            case _:
                out.append("other")
    return out


def unpacking(n, m):
    (a, b), c = (n, m), [m]
    d, *e = n, m, 1
    a, b = b, a
    return a, b, c, d, e, [*(n, m)], {**{"a": n}}


PROGRAMS = [
    arithmetic, comparisons, branches, containers, equality_of_shapes, membership, builtins_of_numbers, iteration, indexing, text, types_of,
    functions, objects, generators, exceptions, matching, unpacking,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_hidden_numbers_give_the_same_results(program: Callable[..., Any]) -> None:
    result = python_machine(Hiding()).run(program, SizeValue(5), SizeValue(3))
    assert show(result) == program(5, 3)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_rollback_gives_them_again(program: Callable[..., Any]) -> None:
    machine = python_machine(Hiding())
    frame = machine.call(program, (SizeValue(5), SizeValue(3)), {})
    machine.begin(frame)
    mark = machine.checkpoint()
    try:
        first = show(machine.resume())
    except Break as refusal:
        assert refusal.reason == "fork"
        first = program(5, 3)
    machine.rollback(mark)
    machine.release(mark)
    assert first == show(machine.resume()) == program(5, 3)


LEAKS = [
    len,
    hash,
    iter,
    bool,
    int,
    str,
    list,
    math.sqrt,
    "".join,
    {}.get,
    [0].__getitem__,
    operator.neg,
    "{}".format,
]


@pytest.mark.parametrize("proxy", [SizeValue(5), ScalarValue(1.5)], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("native", LEAKS, ids=lambda fn: getattr(fn, "__name__", "fn"))
def test_native_code_cannot_use_a_proxy(native: Any, proxy: Any) -> None:
    with pytest.raises((ProxyLeak, TypeError)):
        native(proxy)


def test_comparing_a_proxy_natively_is_loud() -> None:
    for act in (
        lambda p: p == 1,
        lambda p: p < 1,
        lambda p: 1 + p,
        lambda p: p.shape,
        lambda p: p in [1],
        lambda p: f"{p}",
    ):
        with pytest.raises(ProxyLeak):
            act(SizeValue(3))


def test_a_leak_in_a_program_is_a_break() -> None:
    def program(n):
        return math.comb(n, 2)

    class Naive(Hiding):
        def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return fn(*args, **kwargs)

    with pytest.raises(Break, match="proxy-leak"):
        python_machine(Naive()).run(program, SizeValue(5))


def test_every_proxy_class_is_loud() -> None:
    assert {cls.__name__ for cls in PROXIES} == {
        *("SizeValue", "ScalarValue", "TensorValue", "OpaqueValue", "TextValue")
    }


@pytest.mark.parametrize("named", [True, False], ids=["super(c, x)", "super()"])
def test_super_of_a_proxy_is_a_break(named: bool) -> None:
    class Text(str):
        def doubled(self) -> str:
            return (super(Text, self) if named else super()).__add__(self)

    machine = python_machine(Domain())
    proxy = OpaqueValue(None, Text)
    with pytest.raises(Break):
        machine.run(Text.doubled, proxy)
