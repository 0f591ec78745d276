"""Torch-level rows become core rows, each as an input program and the program expected of it."""

from __future__ import annotations

import textwrap

import pytest

from anyshape.ir.parse import parse_graph
from anyshape.ir.text import print_graph
from anyshape.ir.verify import verify_graph
from anyshape.ops import OPS
from anyshape.passes.decompose import decompose

HEAD = """
# symbol s0: backed entry = 3
# symbol s1: backed entry = 4

def graph(
    x_0,  # argument 'x' : float32[s0, s1]
):
"""

# name: (before, after)
PROGRAMS = {
    "a softmax is two reductions and three maps": (
        """
        softmax_0 = torch.nn.functional.softmax(x_0, 1, 3, None)  # softmax : float32[s0, s1]
        return (softmax_0,)
        """,
        """
        amax_or_empty_0 = anyshape.eager.amax_or_empty(x_0, (1,), True)  # amax_or_empty : float32[s0, 1]
        sub_0 = torch.sub(x_0, amax_or_empty_0, alpha=1)  # sub : float32[s0, s1]
        exp_0 = torch.exp(sub_0)  # exp : float32[s0, s1]
        sum_0 = torch.sum(exp_0, (1,), True, dtype=None)  # sum : float32[s0, 1]
        div_0 = torch.div(exp_0, sum_0, rounding_mode=None)  # div : float32[s0, s1]
        return (div_0,)
        """,
    ),
    "a row with a kernel of its own stays": (
        """
        gelu_0 = torch.nn.functional.gelu(x_0, approximate='none')  # gelu : float32[s0, s1]
        return (gelu_0,)
        """,
        "",
    ),
    "a row that a library runs stays": (
        """
        permute_0 = torch.permute(x_0, (1, 0))  # permute : float32[s1, s0] strides (1, s1)
        mm_0 = torch.mm(x_0, permute_0)  # mm : float32[s0, s0]
        return (mm_0,)
        """,
        "",
    ),
}


def program(lines: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(lines).strip(), "    ")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_becomes_the_expected_one(name: str) -> None:
    before, after = PROGRAMS[name]
    found = decompose(parse_graph(program(before)), OPS)
    verify_graph(found)
    spell = {row.name: row.torch for row in OPS.values()}.__getitem__
    assert print_graph(found, spell) == print_graph(parse_graph(program(after or before)), spell)
