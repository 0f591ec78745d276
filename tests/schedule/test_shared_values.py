"""What a kernel shares with others it stores as they want it: one kernel writes what is made of it alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from programs import compile_sketch, same_as_reference

from anyshape.ir.dtypes import bfloat16, float64
from anyshape.ir.program import Launch


def launches(compiled):
    return [step for step in compiled.program.flat_steps() if isinstance(step, Launch)]


def rounded(b, x, y):
    """A product that is returned in bfloat16 and read in float32."""
    product = b.mul(x, y)
    return b.to_dtype(product, bfloat16), b.tanh(b.add(product, y))


def chained(b, x, y):
    """The same, through two operators."""
    product = b.mul(x, y)
    return b.neg(b.to_dtype(product, bfloat16)), b.tanh(b.add(product, y))


def both(b, x, y):
    """It is returned itself, too."""
    product = b.mul(x, y)
    return product, b.to_dtype(product, bfloat16), b.tanh(b.add(product, y))


@pytest.mark.parametrize(("program", "stores"), [(rounded, 2), (chained, 2), (both, 3)])
def test_one_kernel_stores_what_is_made_of_a_value_alone(program, stores):
    compiled = compile_sketch(program, "a b", "a b")
    (launch,) = launches(compiled)
    assert len(launch.kernel.stores) == stores
    for a, b in ((3, 5), (0, 4), (1, 1), (64, 33)):
        same_as_reference(compiled, torch.randn(a, b), torch.randn(a, b))


def powers(b, x, y):
    """A power of a number, and what is made of it, for every element."""
    power = b.pow(b.full((), 0.9, float64), b.to_dtype(b.sum(y), float64))
    return b.mul(x, b.to_dtype(b.add(b.neg(power), 1), x.dtype))


def test_costly_float64_work_on_one_number_is_not_done_for_each_element():
    compiled = compile_sketch(powers, "a b", "c")
    wide = [
        step
        for step in launches(compiled)
        if len(step.kernel.axes) and step.kernel.axes[0].extent != 1
    ]
    assert wide and not any(
        getattr(element, "op", "") == "pow" for step in wide for element in step.kernel.elements
    )
    for a, b, c in ((3, 5, 2), (64, 33, 7)):
        same_as_reference(compiled, torch.randn(a, b), torch.rand(c))
