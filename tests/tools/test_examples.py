"""The examples run as a user runs them."""

from __future__ import annotations

import runpy

import pytest

from anyshape.tools.models import EXAMPLES

MODELS = ("resnet", "two_tower", "jepa")
SIZED_BY_DATA = (
    "top_p",
    "beam_search",
    "packer",
    "nms",
    "segment_softmax",
    "graph_net",
)


@pytest.mark.parametrize("name", [*MODELS, *SIZED_BY_DATA])
def test_an_example_compiles_once_and_checks_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    counts = dict(line.split()[:2] for line in shown.split("\n") if len(line.split()) > 1)
    assert (counts["specializations"], counts["graph_breaks"]) == ("1", "0")
