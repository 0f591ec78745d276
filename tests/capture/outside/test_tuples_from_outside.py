"""Tuples that native code returns hold other tensors at the next call: none of them is a constant."""

from __future__ import annotations

import collections
import re

import pytest
import torch

import anyshape

Pair = collections.namedtuple("Pair", "first second")


@torch.compiler.disable
def plain(x):
    return x * 2, x + 1


@torch.compiler.disable
def named(x):
    return Pair(x * 2, x + 1)


@torch.compiler.disable
def struct_sequence(x):
    return torch.max(x, 1)


@torch.compiler.disable
def nested(x):
    return (x * 2, (x + 1, 3)), [x]


@pytest.mark.parametrize("native", [plain, named, struct_sequence, nested, torch.linalg.qr])
def test_a_tuple_from_native_code_is_returned_afresh(native) -> None:
    def program(x):
        made = native(x)
        return made, x * 3

    fast = anyshape.compile(program)
    for shape in ((3, 4), (5, 7), (4, 4)):
        x = torch.randn(shape)
        ours, eager = fast(x), program(x)
        assert type(ours[0]) is type(eager[0])
        torch.testing.assert_close(leaves(ours), leaves(eager))


def leaves(value):
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def test_several_results_have_torchs_names() -> None:
    def program(x):
        values, positions = x.max(1)
        top = x.topk(2)
        return values, positions, top.values, top[1], x.sort(0)[0], torch.median(x, 1).indices, top

    fast = anyshape.compile(program, fullgraph=True)
    for shape in ((3, 4), (5, 7)):
        x = torch.randn(shape)
        ours, eager = fast(x), program(x)
        assert type(ours[-1]) is torch.return_types.topk
        torch.testing.assert_close(leaves(ours), leaves(eager))
    assert fast.stats().specializations == 1


@pytest.mark.parametrize("kind", [tuple, torch.Size])
def test_numbers_in_a_tuple_become_symbolic_when_a_second_value_is_seen(kind: type) -> None:
    def program(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return x.reshape(shape) * shape[0]

    fast = anyshape.compile(program)
    for shape in ((2, 6), (3, 4), (4, 3), (12, 1), (1, 12), (6, 2)):
        x = torch.randn(12)
        torch.testing.assert_close(fast(x, kind(shape)), program(x, kind(shape)))
    assert fast.stats().specializations == 2


def test_a_frame_whose_merged_branch_returned_goes_back_to_its_own_code() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear_cross_entropy(x, weight, target, reduction="none")

    fast = anyshape.compile(program)
    for n, k in ((4, 2), (1, 2), (3, 5)):
        tensors = torch.randn(n, 2), torch.randn(3, k, 2), torch.rand(n, 3, k)
        for t in tensors:
            for dim in range(t.dim()):
                anyshape.mark_unbacked(t, dim)
        torch.testing.assert_close(fast(*tensors), program(*tensors))


HANDED_ON = {
    "classes": ((int, "a"), (str, "b")),
    "classes inside": ((1, (int,)), (2, (str,))),
    "modules": ((re, 1), (collections, 1)),
    "patterns": ((re.compile("a"),), (re.compile("b"),)),
    "matches": (re.search("a", "ab"), re.search("b", "ab")),
    "code": (leaves.__code__, test_several_results_have_torchs_names.__code__),
}


@pytest.mark.parametrize("way", [{"fullgraph": True}, {"options": {"break_every": 1}}], ids=str)
@pytest.mark.parametrize("kind", HANDED_ON)
def test_what_is_handed_on_is_what_lies_there_now(kind, way) -> None:
    def program(x, given):
        return x + 1, given, [given], (given, 1)

    def reading(x, givens):
        return x + 1, givens[0], [*givens], (givens[0], 1)

    for fn, wrapped in ((program, lambda v: v), (reading, lambda v: [v])):
        fast = anyshape.compile(fn, **way)
        for value in (*HANDED_ON[kind], *HANDED_ON[kind]):
            _, alone, listed, paired = fast(torch.ones(2), wrapped(value))
            assert alone is value and listed[0] is value and paired[0] is value


def test_a_loop_over_tuples_of_classes_goes_on() -> None:
    def program(x):
        made = x + 1
        fields, seen, bases = [("x", int), ("y", str)], [], []
        for item in fields:
            seen.append(item[0])

            class Made(item[1]):
                pass

            bases.append(Made.__bases__[0])
        return seen, bases, made * 2

    fast = anyshape.compile(program, options={"break_every": 1})
    for length in (2, 3):
        assert fast(torch.ones(length))[:2] == (["x", "y"], [int, str])
