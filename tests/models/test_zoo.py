"""A few programs of the zoo (benchmarks/zoo), as different as may be: right at every size."""

from __future__ import annotations

import pytest

from benchmarks.zoo.catalogue import ENTRIES
from benchmarks.zoo.judge import examine

CHOSEN = {  # name: specializations at most
    "DistilBertForTokenClassification": 1,
    "MambaForCausalLM": 99,
    "ConvNextV2Model": 1,
    "Wav2Vec2ForCTC": 99,
    "filter and top k": 1,
    "RaggedBags": 1,
    "GraphAttention": 1,
    "LSTMTagger": 99,
    "BeamSearch": 1,
    "sliding windows": 1,
    "losses": 1,
    "structured returns": 1,
    "LossesWhereFound": 1,
    "WithinASetting": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_programs_of_users_are_right_at_every_size(name: str) -> None:
    entry = next(entry for entry in ENTRIES if entry.name == name)
    finding = examine(entry, timed=False)
    assert finding.right, (finding.failure, finding.wrong)
    assert finding.specializations <= CHOSEN[name], finding.recompiles
