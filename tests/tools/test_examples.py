"""The examples run as a user runs them."""

from __future__ import annotations

import runpy

import pytest

from anyshape.tools.models import EXAMPLES


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_compiles_once_and_checks_itself(
    path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert "specializations=1" in capsys.readouterr().out
