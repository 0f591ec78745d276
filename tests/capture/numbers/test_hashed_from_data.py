"""Where C code hashes or adds numbers that data decides, the segment ends: no element is lost or
counted twice, whatever iterator it came from.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


def classes(x: Tensor) -> list[int]:
    return (x.argsort() % 3).tolist()


def rest_of(x: Tensor) -> tuple[Any, ...]:
    iterator = iter(classes(x))
    return next(iterator, None), set(iterator), next(iterator, "end")


def updated(x: Tensor) -> tuple[Any, ...]:
    names: dict[Any, Any] = {0: "z"}
    names.update(zip(classes(x), "abcdefg"))
    merged, kept = {7: "x"}, OrderedDict()
    merged |= zip(classes(x), "abcdefg")
    kept |= zip(classes(x), "abcdefg")
    return names, merged, kept


def counted(x: Tensor) -> tuple[Any, ...]:
    kept = Counter(a=3)
    kept.update(["a", *classes(x)])
    kept.update(iter(["a", *classes(x)]))
    return kept, Counter(["a", 1, *classes(x)]), Counted(["a", *classes(x)])


def combined(x: Tensor) -> tuple[Any, ...]:
    seen = {0, 7}
    seen.symmetric_difference_update(iter([0, 5, *classes(x)[:1]]))
    return seen, {0, 9}.difference(iter(classes(x))), {1, 2} | {*iter(classes(x))}


def replaced(x: Tensor) -> list[int]:
    kept = classes(x)[:]
    kept[1:2] = iter(classes(x))
    return kept


class Counted(Counter[Any]):
    pass


class Kinds(set[Any]):
    pass


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "set": lambda x: (set(iter(classes(x))), frozenset(iter(classes(x))), Kinds(iter(classes(x)))),
    "dict": lambda x: (dict(zip(classes(x), "abcdefg")), {**dict(zip(classes(x), "abcdefg"))}),
    "default": lambda x: defaultdict(int, zip(classes(x), "abcdefg")),
    "keys": lambda x: (dict.fromkeys(iter(classes(x)), 1), dict.fromkeys(zip(classes(x), "abc"))),
    "bytes": lambda x: bytes(iter(classes(x))),
    "groups": lambda x: [list(g) for _, g in itertools.groupby(classes(x), lambda i: i > 1)],
    "numbers": lambda x: (math.gcd(*iter(classes(x))), math.fsum(iter(x.double().tolist()))),
    "slice": replaced,
    "exhausted": lambda x: Counter(map(abs, classes(x))),
    "rest": rest_of,
    "updated": updated,
    "counted": counted,
    "combined": combined,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_c_code_hashes_of_an_iterator_is_all_of_it(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    for size in (3, 1, 0, 2, 7, 3):
        x = torch.randn(size, generator=torch.Generator().manual_seed(size))
        ours, theirs = fast(x), program(x)
        assert ours == theirs
        assert repr(ours) == repr(theirs)  # the order of what is inserted


def test_bools_of_sizes_are_compared_as_bools() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        rows, columns = x.shape[0] > 1, x.shape[1] > 1
        return rows == columns, rows != columns, x + (rows == columns)

    fast = anyshape.compile(program, fullgraph=True)
    for shape in itertools.product((2, 1, 3), (3, 1, 2)):
        x = torch.zeros(shape)
        assert fast(x)[:2] == program(x)[:2]
        assert torch.equal(fast(x)[2], program(x)[2])
    assert fast.stats().specializations == 1
