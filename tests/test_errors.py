"""errors.py: codes, templates, and the text that a user sees."""

from __future__ import annotations

import os
import pickle
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import anyshape
from anyshape.errors import CODES, AnyshapeError, GraphBreakError, Template
from anyshape.options import from_user
from anyshape.tools import models
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


def test_a_location_without_columns_or_without_source_still_names_the_line(model: str) -> None:
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


def test_every_code_of_the_table_is_raised_somewhere() -> None:
    package = Path(anyshape.__file__).parent
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for path in package.rglob("*.py")
        if path.name != "errors.py"
    )
    assert [c for c in CODES if f'"{c}"' not in text and c != "E901"] == []


@torch.library.custom_op("anyshape_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    """An operator that has no row."""
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def many_turns(x: torch.Tensor) -> torch.Tensor:
    for _ in range(100):
        x = x + 1
    return x


def many_turns_and_its_argument(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return many_turns(x), x.view(-1)


def unknown_call(x: torch.Tensor) -> torch.Tensor:
    return x * len(os.listdir("."))


def of_a_size_from_data(x: torch.Tensor) -> torch.Tensor:
    return x[0] if x.nonzero().shape[0] > 1 else x


def disabled(x: torch.Tensor) -> torch.Tensor:
    return torch.compiler.disable(many_turns)(x)


def compiled_with(fn: Callable[..., Any], **options: Any) -> Callable[[], Any]:
    return lambda: anyshape.compile(fn, fullgraph=True, options=options)(torch.ones(3))


RAISED: dict[str, Callable[[], Any]] = {
    "E101": lambda: from_user(options={"speed": 1}),
    "E102": lambda: from_user(options={"verify": 1}),
    "E103": lambda: from_user("fast"),
    "E104": lambda: anyshape.compile(3),
    "E106": lambda: models.find("lama"),
    "E201": compiled_with(disabled),
    "E210": compiled_with(lambda x: x[0] if x.sum() > 0 else x),
    "E211": compiled_with(unknown_call),
    "E212": compiled_with(of_a_size_from_data),
    "E214": compiled_with(lambda x: f"{x}"),
    "E220": compiled_with(many_turns, unroll_budget=50),
    "E401": compiled_with(lambda x: torch.ops.anyshape_tests.doubled(x), fallback="error"),
}


@pytest.mark.parametrize("code", RAISED)
def test_an_error_of_this_code_says_what_and_what_to_do(code: str) -> None:
    with pytest.raises(AnyshapeError) as caught:
        RAISED[code]()
    error = caught.value
    assert error.code == code and error.what and error.hint
    assert "{" not in error.what.replace("options={", "") and str(error).startswith(code)
    if code >= "E2":
        assert "test_errors.py" in str(error)


def test_the_errors_page_is_made_from_the_table() -> None:
    page = Path(anyshape.__file__).parents[1] / "docs" / "errors.md"
    assert page.read_text(encoding="utf-8") == errors_page(), (
        "run `anyshape errors > docs/errors.md`"
    )


@pytest.mark.parametrize(
    ("why", "program", "argument"),
    [
        ("gradients are recorded", many_turns_and_its_argument, {"requires_grad": True}),
        ("lies on meta", many_turns, {"device": "meta"}),
    ],
)
def test_a_graph_that_eager_torch_runs_is_refused_when_asked_for(
    why: str, program: Callable[[torch.Tensor], Any], argument: dict[str, Any]
) -> None:
    x = torch.ones(3, **argument)
    strict = anyshape.compile(program, fullgraph=True, options={"fallback": "error"})
    with pytest.raises(AnyshapeError, match=f"E401.*(?s:.*){why}"):
        strict(x)
    relaxed = anyshape.compile(program, fullgraph=True)
    relaxed(x)
    assert relaxed.stats().eager_ops >= 100
    with torch.no_grad():
        assert torch.equal(strict(torch.ones(3))[0], program(torch.ones(3))[0])
