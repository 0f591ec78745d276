"""errors.py: codes, templates, and the text that a user sees."""

from __future__ import annotations

import pickle
import re
import string
from dataclasses import dataclass
from pathlib import Path

import pytest

import anyshape
from anyshape.errors import CODES, AnyshapeError, GraphBreakError, Template
from anyshape.tools.cli import errors_page

SOURCE = "def forward(x, idx):\n    chunks = [x[i] for i in idx.tolist()]\n\tγ = f(é, x)\n"


@dataclass(frozen=True)
class At:
    file: str
    line: int | None
    function: str | None = None
    column: int | None = None
    end_column: int | None = None


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def test_an_error_shows_the_users_line_with_a_caret_then_why_then_hint(model: str) -> None:
    error = AnyshapeError("E214", name="idx", location=At(model, 2, "forward", 28, 40))
    assert str(error) == (
        "E214 the length of this list depends on tensor data\n"
        "  --> model.py:2, in forward\n"
        "    2 |     chunks = [x[i] for i in idx.tolist()]\n"
        "      |                             ^^^^^^^^^^^^\n"
        "why:  idx is a tensor; its values are not known while compiling\n"
        "hint: index with the tensor itself, or bound the length with anyshape.check(...)"
    )


def test_columns_are_utf8_bytes_and_tabs_stay_tabs(model: str) -> None:
    line = SOURCE.splitlines()[2]
    start = len(line[: line.index("é")].encode())
    text = str(
        AnyshapeError(
            "E201", what="w", why="", hint="", location=At(model, 3, None, start, start + 2)
        )
    )
    assert text.splitlines()[-1] == "      | \t" + " " * (line.index("é") - 1) + "^"


def test_a_place_without_columns_or_without_source_still_names_the_line(model: str) -> None:
    assert "^" not in str(AnyshapeError("E210", location=At(model, 2)))
    assert "--> gone.py:7, in f" in str(AnyshapeError("E210", location=At("gone.py", 7, "f", 1, 2)))


def test_own_texts_win_over_the_template_and_an_unfilled_template_is_no_second_error() -> None:
    assert AnyshapeError("E214", why="because").why == "because"
    assert AnyshapeError("E214").why == CODES["E214"].why


def test_braces_in_values_are_left_alone() -> None:
    assert AnyshapeError("E402", op="aten.add", message="got {x}").what == "aten.add: got {x}"


def test_an_error_survives_pickling() -> None:
    error = GraphBreakError("E210", location=At("gone.py", 7))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is GraphBreakError
    assert str(again) == str(error)


@pytest.mark.parametrize("template", CODES.values(), ids=CODES.keys())
def test_every_template_fills(template: Template) -> None:
    text = template.what + template.why + template.hint
    names = {name.split("!")[0] for _, name, _, _ in string.Formatter().parse(text) if name}
    values = {name: "v" for name in names}
    for text in (template.what, template.why, template.hint):
        assert "{v" not in text.format(**values)


def test_every_code_that_the_compiler_raises_is_in_the_table() -> None:
    package = Path(anyshape.__file__).parent
    used = {
        (code, path.name)
        for path in package.rglob("*.py")
        for code in re.findall(r"""["'](E\d{3})["']""", path.read_text(encoding="utf-8"))
    }
    assert {(code, name) for code, name in used if code not in CODES} == set()


def test_the_errors_page_is_made_from_the_table() -> None:
    page = Path(anyshape.__file__).parents[1] / "docs" / "errors.md"
    assert page.read_text(encoding="utf-8") == errors_page(), (
        "run `anyshape errors > docs/errors.md`"
    )
