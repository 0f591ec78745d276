"""Samples of torch's operator database, as its `sample_inputs` gives them.

That asks the whole stack of Python, twice, which test of torch's it is called from: 40 ms under
pytest, more than what most tests do with the samples.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.testing._internal.common_utils import set_rng_seed
from torch.testing._internal.opinfo.core import OpInfo, SampleInput


def samples_of(
    entry: OpInfo, dtype: torch.dtype, most: int, *, requires_grad: bool = False
) -> Iterator[SampleInput]:
    """The first samples of an operator on the CPU, at most so many, each drawn from the same seed."""
    made = iter(entry.sample_inputs_func(entry, "cpu", dtype, requires_grad))
    for _ in range(most):
        set_rng_seed()
        found = next(made, None)
        if found is None:
            return
        yield found
