"""In-place operators become pure ones, each as an input program and the program expected of it."""

from __future__ import annotations

import textwrap

import pytest
import torch

import anyshape
from anyshape.ir.parse import parse_graph
from anyshape.ir.text import print_graph
from anyshape.ir.verify import verify_graph
from anyshape.ops import OPS
from anyshape.passes.functionalize import functionalize

HEAD = """
# symbol s0: backed entry = 3
# symbol s1: backed entry = 4
# fact s1 >= 1

def graph(
    x_0,  # argument 'x' : float32[s0, s1]
):
"""

# name: (before, after)
PROGRAMS = {
    "a write to an argument is one assignment at the end": (
        """
        mul__0 = torch.Tensor.mul_(x_0, 2)  # mul_ : float32[s0, s1]
        neg_0 = torch.neg(x_0)  # neg : float32[s0, s1]
        return (neg_0,)
        """,
        """
        mul_0 = torch.mul(x_0, 2)  # mul : float32[s0, s1]
        neg_0 = torch.neg(mul_0)  # neg : float32[s0, s1]
        anyshape.eager.assign(x_0, mul_0)  # assign
        return (neg_0,)
        """,
    ),
    "a write through a view makes a new version of what it views": (
        """
        select_0 = torch.select(x_0, 1, 0)  # select : float32[s0] strides (s1)
        add__0 = torch.Tensor.add_(select_0, 1, alpha=1)  # add_ : float32[s0] strides (s1)
        mul_0 = torch.mul(x_0, 2)  # mul : float32[s0, s1]
        return (mul_0,)
        """,
        """
        select_0 = torch.select(x_0, 1, 0)  # select : float32[s0] strides (s1)
        add_0 = torch.add(select_0, 1, alpha=1)  # add : float32[s0]
        select_written_0 = anyshape.eager.select_written(x_0, add_0, 1, 0)  # select_written : float32[s0, s1]
        select_1 = torch.select(select_written_0, 1, 0)  # select : float32[s0] strides (s1)
        mul_0 = torch.mul(select_written_0, 2)  # mul : float32[s0, s1]
        anyshape.eager.assign(x_0, select_written_0)  # assign
        return (mul_0,)
        """,
    ),
    "who reads a view taken before the write reads the new version": (
        """
        mul_0 = torch.mul(x_0, 2)  # mul : float32[s0, s1]
        select_0 = torch.select(mul_0, 0, 0)  # select : float32[s1]
        zero__0 = torch.Tensor.zero_(mul_0)  # zero_ : float32[s0, s1]
        neg_0 = torch.neg(select_0)  # neg : float32[s1]
        return (neg_0,)
        """,
        """
        mul_0 = torch.mul(x_0, 2)  # mul : float32[s0, s1]
        select_0 = torch.select(mul_0, 0, 0)  # select : float32[s1]
        zeroed_0 = anyshape.eager.zeroed(mul_0)  # zeroed : float32[s0, s1]
        select_1 = torch.select(zeroed_0, 0, 0)  # select : float32[s1]
        neg_0 = torch.neg(select_1)  # neg : float32[s1]
        return (neg_0,)
        """,
    ),
    "a program that writes nothing stays as it is": (
        """
        exp_0 = torch.exp(x_0)  # exp : float32[s0, s1]
        return (exp_0,)
        """,
        """
        exp_0 = torch.exp(x_0)  # exp : float32[s0, s1]
        return (exp_0,)
        """,
    ),
}


def program(lines: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(lines).strip(), "    ")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_becomes_the_expected_one(name: str) -> None:
    before, after = PROGRAMS[name]
    found = functionalize(parse_graph(program(before)), OPS)
    verify_graph(found)
    spell = {row.name: row.torch for row in OPS.values()}.__getitem__
    assert print_graph(found, spell) == print_graph(parse_graph(program(after)), spell)


def test_results_of_one_view_are_made_anew_by_one_view() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = x.unbind(0)
        x.add_(1)
        return *parts, parts[0] + parts[1]

    fast = anyshape.compile(program)
    x = torch.ones(7, 2)
    assert torch.equal(fast(x)[-1], torch.full((2,), 4.0))
    (captured,) = fast.graphs()
    made = functionalize(parse_graph(captured), OPS)
    assert sum(node.op == "unbind" for node in made.nodes) <= 3


def test_a_diagonal_whose_length_is_said_in_two_ways_is_written(monkeypatch) -> None:
    """What the program hears of `var` ends the segment there, so that what follows is typed in
    another one, by other facts."""
    monkeypatch.setattr("warnings.showwarning", lambda *told, **named: None)

    def program(x):
        t = -x.diff(n=2)
        spread = t.float().var(-1)
        chosen = t[t != 0].mean()
        t.diagonal(1).add_(1)
        return t, spread, chosen

    fast = anyshape.compile(program)
    for rows, columns in ((4, 4), (2, 5), (1, 4), (3, 3)):
        x = torch.randn(columns, rows).T
        assert torch.equal(fast(x)[0], program(x)[0])
    assert fast.stats().internal_errors == 0
