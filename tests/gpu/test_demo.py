"""`anyshape demo` on a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from anyshape.tools import cli

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_models_are_right_with_one_specialization_each(dtype: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    assert cli.main(["demo", "--layers", "2", "--dtype", dtype, "--json", str(file)]) == 0
    assert json.loads(file.read_text())["device"] == "cuda:0"
