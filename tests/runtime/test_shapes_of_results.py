"""What a library returns has the shape that kernels rely on, or the segment has not happened: a type
rule that is wrong must not make a kernel read past a buffer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import anyshape
from anyshape.eager import CheckFailed
from anyshape.ir.dtypes import float32
from anyshape.ir.graph import TensorType, Value
from anyshape.ops import table
from anyshape.ops.context import TypeContext
from anyshape.ops.rules import new
from anyshape.runtime import call_sizes, result_layouts
from anyshape.runtime.launch import with_strides
from anyshape.symbolic import Space

PROGRAMS: dict[str, tuple[str, int, Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "a kernel": (
        "conv2d", 0, lambda x, w: F.conv2d(x, w).relu(),
        (torch.randn(2, 3, 5, 5), torch.randn(4, 3, 2, 2)),
    ),
    "a kernel of a view": (
        "conv2d", 0, lambda x, w: F.conv2d(x, w)[1:].relu(),
        (torch.randn(2, 3, 5, 5), torch.randn(4, 3, 2, 2)),
    ),
    "one of several results": ("sort", 1, lambda x: x.sort(0)[1] + 1, (torch.randn(5),)),
    "a size that data decides": (
        "nonzero", 0, lambda x: x.nonzero() * 2, (torch.tensor([1, 0, 1]),),
    ),
}  # fmt: skip
"""By what reads the result: the row with the wrong rule, which result, the program, arguments."""


def grown(rule: Callable[..., Any], which: int, more: int = 1) -> Callable[..., Any]:
    """The rule with one element more, or less, in the last dimension of a result."""

    def wrong(cx: TypeContext, *args: Any, **kwargs: Any) -> Any:
        made = rule(cx, *args, **kwargs)
        types = list(made) if isinstance(made, tuple) else [made]
        *sizes, last = types[which].shape
        types[which] = new(cx, types[which], (*sizes, last + more))
        return tuple(types) if isinstance(made, tuple) else types[0]

    return wrong


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_type_rule_is_found_while_running(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, which, program, args = PROGRAMS[name]
    row = table.OPS[op]
    assert row.type is not None
    monkeypatch.setitem(table._rows, op, replace(row, type=grown(row.type, which)))
    with torch.no_grad():
        wanted, made = program(*args), anyshape.compile(program)(*args)
    assert made.shape == wanted.shape
    assert torch.equal(made, wanted)


def test_a_result_that_is_only_handed_out_is_not_asked_for_its_shape() -> None:
    fast = anyshape.compile(lambda x, y: x @ y)
    fast(torch.randn(3, 4), torch.randn(4, 5))
    (line,) = [line for line in str(fast.code()).splitlines() if "= with_strides(" in line]
    assert line.count("(") == 2  # the strides alone


def test_a_result_of_nothing_has_the_shape_too() -> None:
    empty = torch.empty(0, 3)
    assert with_strides(empty, (3, 1), (0, 3)) is empty
    with pytest.raises(CheckFailed):
        with_strides(empty, (3, 1), (2, 3))


def test_strides_of_a_smaller_shape_lay_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckFailed, match="another shape"):
        with_strides(torch.zeros(2, 3, 3), (6, 2, 1))
    x = torch.arange(24.0).view(2, 3, 4)
    for strides in ((1, 2, 6), (12, 1, 3), (4, 8, 1), (40, 12, 3)):  # dense ones, and one with gaps
        laid = with_strides(x, strides)
        assert torch.equal(laid, x) and laid.stride() == strides
    row = table.OPS["interpolate"]
    assert row.type is not None
    monkeypatch.setitem(table._rows, "interpolate", replace(row, type=grown(row.type, 0, -1)))
    fast = anyshape.compile(lambda x: F.interpolate(x, scale_factor=2.0))
    with torch.no_grad():
        for size in (3, 5):
            x = torch.randn(2, 3, size)
            assert torch.equal(fast(x), F.interpolate(x, scale_factor=2.0))


def test_each_dimension_of_a_result_tells_its_size_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each input that the program makes: a decoder has two for each layer."""
    asked: list[object] = []
    substitute = call_sizes.substitute

    def counting(dim: Any, values: Any) -> Any:
        asked.append(dim)
        return substitute(dim, values)

    monkeypatch.setattr(call_sizes, "substitute", counting)
    space = Space()
    sizes = [space.fresh("u", policy="unbacked", knowledge="midrun") for _ in range(40)]
    made = [
        Value(f"x_{n}", TensorType(float32, "cpu", (u, 4), (4, 1))) for n, u in enumerate(sizes)
    ]
    results = [
        Value(f"y_{n}", TensorType(float32, "cpu", (u + 1,), (1,))) for n, u in enumerate(sizes)
    ]
    inputs = [SimpleNamespace(value=value, kind="argument") for value in made]
    graph: Any = SimpleNamespace(inputs=inputs, outputs=tuple(results))
    shapes = [torch.Size([3 + n]) for n in range(len(sizes))]
    found = result_layouts.inputs_like(graph, {}, [], set(), None, shapes)
    assert [like.shape[0] for like in found] == [2 + n for n in range(len(sizes))]
    assert len(asked) <= 2 * len(sizes)
