"""A read-only proxy from outside is itself where C is handed it: only `|` and `%` take the mapping
that it shows."""

from __future__ import annotations

import operator
from collections import ChainMap, Counter, OrderedDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.capture.by_reference import compiled

PROXY = MappingProxyType
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "dict.__or__": dict.__or__,
    "dict.__ror__": lambda proxy, table: dict.__ror__(table, proxy),
    "dict.__or__ of a proxy": lambda proxy, table: dict.__or__(table, proxy),
    "Counter.__ror__": lambda proxy, table: Counter.__ror__(Counter(table), proxy),
    "list.__add__": lambda proxy, table: list.__add__([*table], proxy),
    "tuple.__add__": lambda proxy, table: tuple.__add__((*table,), proxy),
    "__or__": PROXY.__or__,
    "__ror__": PROXY.__ror__,
    "__or__ of a number": lambda proxy, table: PROXY.__or__(proxy, len(table)),
    "__ror__ of a number": lambda proxy, table: PROXY.__ror__(proxy, len(table)),
    "__or__ of a ChainMap": lambda proxy, table: PROXY.__or__(proxy, ChainMap(table)),
    "__or__ of an OrderedDict": lambda proxy, table: PROXY.__or__(proxy, OrderedDict(table)),
    "|": operator.or_,
    "| reflected": lambda proxy, table: table | proxy,
    "|=": operator.ior,
    "|= with": lambda proxy, table: operator.ior(dict(table), proxy),
    "+=": operator.iadd,
    "+": lambda proxy, table: [*table] + proxy,
    "+ reflected": operator.add,
    "+= with": lambda proxy, table: operator.iadd([*table], proxy),
    "%": lambda proxy, table: "%(a)s" % proxy,
    "&": lambda proxy, table: {*table} & proxy,
}


def outcome(call: Callable[[Any, Any], Any], proxy: Any, table: Any) -> Any:
    try:
        found = call(proxy, table)
    except TypeError as error:
        return str(error)
    return type(found).__name__, found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_c_takes_and_refuses_them_as_in_python(name: str) -> None:
    fast = compiled(lambda x, *given: (x + 1, outcome(CALLS[name], *given)), fullgraph=False)
    for shown, table in (({"a": 1}, {"b": 2}), ({"a": 3, "c": 4}, {}), ({"a": 1}, {"a": 2})):
        wanted = outcome(CALLS[name], PROXY(shown), dict(table))
        assert fast(torch.ones(1), PROXY(shown), dict(table))[1] == wanted


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made", [lambda p: {**p}, lambda p: dict(**p)], ids=["braces", "dict"])
def test_sizes_behind_a_proxy_are_numbers_behind_a_break(made: Callable[[Any], Any]) -> None:
    table: dict[str, int] = {"a": 1}
    proxy = PROXY(table)

    def program(x: Tensor) -> Any:
        table["b"] = x.shape[0]
        return x, [1, made(proxy)]

    fast = compiled(program, fullgraph=False, break_every=1)
    for size in (2, 3, 4):
        found = fast(torch.ones(size))[1]
        assert found == [1, {"a": 1, "b": size}]
        assert type(found[1]["b"]) is int
