"""docs/breaks is made from the catalogue, and its programs do what the pages say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import anyshape
from anyshape.capture.heap.breaks import BREAKS
from anyshape.tools import cli
from anyshape.tools.break_pages import EXAMPLES, pages

FOLDER = Path(anyshape.__file__).parents[1] / "docs" / "breaks"
SHOWN = [name for name, example in EXAMPLES.items() if example.program]
MENDED = [name for name, example in EXAMPLES.items() if example.instead]


def function_of(text: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"torch": torch}
    exec(text, names)
    return names["f"]


def test_the_pages_are_made_from_the_catalogue() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert found == pages(), "run `anyshape breaks --write docs/breaks`"


def test_every_break_has_a_page() -> None:
    assert list(EXAMPLES) == list(BREAKS)


@pytest.mark.parametrize("name", SHOWN)
def test_a_program_breaks_as_its_page_says(name: str) -> None:
    explained = anyshape.explain(function_of(EXAMPLES[name].program))(torch.ones(2, 3))
    assert name in [found.id for found in explained.breaks]


@pytest.mark.parametrize("name", MENDED)
def test_the_other_program_compiles_whole(name: str) -> None:
    program = function_of(EXAMPLES[name].instead)
    fast = anyshape.compile(program, fullgraph=True)
    for rows in (2, 1, 0, 5):
        x = torch.ones(rows, 3)
        torch.testing.assert_close(fast(x), program(x))


def test_the_command_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["breaks", "tensor-branch"]) == 0
    assert capsys.readouterr().out == pages()["tensor-branch.md"]
    assert cli.main(["breaks"]) == 0
    assert "[tensor-branch]" in capsys.readouterr().out
    assert cli.main(["breaks", "tensor-brunch"]) == 2
    assert "did you mean 'tensor-branch'" in capsys.readouterr().err
