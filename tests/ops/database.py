"""Samples of torch's operator database, as its `sample_inputs` gives them.

That asks the whole stack of Python, twice, which test of torch's it is called from: 40 ms under
pytest, more than what most tests do with the samples. And `torch.manual_seed`, which it calls for
each sample, keeps the stack as text for devices that are not there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy
import torch
from torch.testing._internal.common_utils import SEED
from torch.testing._internal.opinfo.core import OpInfo, SampleInput


def samples_of(
    entry: OpInfo, dtype: torch.dtype, most: int, *, requires_grad: bool = False
) -> Iterator[SampleInput]:
    """The first samples of an operator on the CPU, at most so many, each drawn from the same seed."""
    made = iter(entry.sample_inputs_func(entry, "cpu", dtype, requires_grad))
    for _ in range(most):
        torch.default_generator.manual_seed(SEED)
        random.seed(SEED)
        numpy.random.seed(SEED)
        found = next(made, None)
        if found is None:
            return
        yield found
