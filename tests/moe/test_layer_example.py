"""The example runs as a user runs it, and says that its results agree."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "moe_layer.py"


def test_example_prints_what_happened_to_each_token(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    text = capsys.readouterr().out
    assert text.count("-> |out|") == 10
    assert "20 rows, no padding" in text
    assert "11 of 11 results agree" in text
