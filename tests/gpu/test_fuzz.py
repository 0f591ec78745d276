"""The fuzzer's programs on a GPU do what eager does there; `python -m tests.fuzz 10000 --ways "on a GPU"` runs more."""

from __future__ import annotations

import pytest
import torch

from tests.fuzz.workers import WAYS, differences_of, program_of, warm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("batch", range(8))
def test_random_programs_do_what_eager_does(batch: int) -> None:
    warm()
    seeds = range(8 * batch, 8 * batch + 8)
    found = dict(differences_of(seeds, WAYS["on a GPU"], level="0"))
    wrong = {seed: problems for seed, problems in found.items() if problems}
    assert not wrong, "\n".join(f"{s}: {p[0]}\n{program_of(s).source}" for s, p in wrong.items())
