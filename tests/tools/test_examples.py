"""The examples run as a user runs them."""

from __future__ import annotations

import runpy

import pytest

from anyshape.tools.models import EXAMPLES


@pytest.mark.parametrize("name", ["resnet", "two_tower", "jepa"])
def test_an_example_compiles_once_and_checks_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "specializations=1" in capsys.readouterr().out
