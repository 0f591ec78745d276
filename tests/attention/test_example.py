"""The example runs as a user runs it, and says that its results agree."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "paged_decode.py"


def test_example_shows_pages_and_agrees_with_plain_tensors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    text = capsys.readouterr().out
    assert "A:  7 words in pages 0* 1*" in text
    assert "C:  8 words in pages 0* " in text
    assert float(re.search(r"plain tensors: (\S+)", text)[1]) < 1e-5
