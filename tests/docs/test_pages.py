"""The pages are true where a machine can tell: files, tests, targets and commands exist, examples run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from anyshape.tools import cli

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (ROOT / "README.md", ROOT / "tests" / "README.md", *(ROOT / "docs").glob("*.md"))
}
CLAIMS = (ROOT / "docs" / "claims.md").read_text()
every_page = pytest.mark.parametrize("name", PAGES)


@every_page
def test_links_lead_to_files(name: str) -> None:
    page = PAGES[name]
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    assert [x for x in links if "://" not in x and not (page.parent / x).exists()] == []


@every_page
def test_paths_in_code_are_there(name: str) -> None:
    roots = ("anyshape", "tests", "docs", "benchmarks", "examples", "conformance")
    quoted = re.findall(r"`([^`\n]+)`", PAGES[name].read_text())
    words = [w.split("::")[0].rstrip(":") for text in quoted for w in text.split()]
    paths = [w for w in words if w.split("/")[0] in roots and "/" in w]
    plain = [w for w in paths if not re.search(r"[A-Z*{<]{2}|[*{<]", w.removesuffix("README.md"))]
    assert [p for p in plain if not (ROOT / p).exists()] == []


def test_the_map_names_files_and_what_stands_in_them() -> None:
    """`a/b.py` is a file of the package, `a/b.py: name` one that says the name, and a name alone is
    said somewhere."""
    page = PAGES["docs/architecture.md"].read_text()
    texts = {path.as_posix(): path.read_text() for path in (ROOT / "anyshape").rglob("*.py")}
    for file, names in re.findall(r"`(?!tests/)([\w/]+\.py)(?:: ?([^`]+))?`", page):
        found = [text for path, text in texts.items() if path.endswith("/" + file)]
        assert found, file
        for name in re.findall(r"\w+", names):
            assert any(re.search(rf"\b{name}\b", text) for text in found), (file, name)
    words = {word for text in texts.values() for word in re.findall(r"\w+", text)}
    named = re.findall(r"`([A-Za-z_][\w.]*)(?:\(\))?`", page)
    assert [name for name in named if name.split(".")[-1] not in words] == []


@every_page
def test_targets_of_make_are_there(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"(?:`|\$ )make (?:PYTHON=\S+ )?([a-z-]+)", PAGES[name].read_text())
    assert [t for t in targets if f"\n{t}:" not in makefile] == []


def test_commands_of_anyshape_are_understood() -> None:
    text = "\n".join(page.read_text() for page in PAGES.values())
    commands = re.findall(
        r"(?:`|\$ )anyshape ((?:demo|options|errors|cache|breaks|doctor)[^`#\n]*)", text
    )
    assert len(commands) > 3
    for command in commands:
        cli.parser().parse_args(shlex.split(command))


def chosen() -> Iterator[tuple[list[str], str]]:
    """The files and the expression of each pytest command of the page of claims."""
    for command in re.findall(r"`pytest ([^`]+)`", CLAIMS):
        words = shlex.split(command)
        files = [w for w in words if w.startswith("tests")]
        yield files, words[words.index("-k") + 1] if "-k" in words else ""


@pytest.mark.parametrize(("files", "expression"), chosen())
def test_each_claim_selects_tests(files: list[str], expression: str) -> None:
    """Each word of each -k is part of the name of a test in the files that the command names."""
    paths = [p for f in files for p in ((ROOT / f).rglob("test_*.py") if (ROOT / f).is_dir() else [ROOT / f])]  # fmt: skip
    names = [n for p in paths for n in (p.stem, *re.findall(r"def (test_\w+)", p.read_text()))]
    for word in re.findall(r"\w+", re.sub(r"\b(and|or|not)\b", " ", expression)):
        assert any(word in name for name in names), word


def blocks(name: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGES[name].read_text(), re.DOTALL | re.MULTILINE)


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 2))
    with torch.no_grad():
        exec(blocks("README.md")[0], {"model": model, "tokens": torch.ones(2, 300).long()})
    assert "compiled whole, once" in capsys.readouterr().out


def test_the_example_about_sizes_says_what_comes_out() -> None:
    scope: dict[str, object] = {}
    shown = {}
    for line in blocks("docs/sizes.md")[0].splitlines():
        code, _, comment = line.partition("  #")
        if line.startswith(("facts.", "(")) and comment:
            shown[re.split(r"[;:] ", comment)[0].strip()] = eval(code, scope)
        else:
            exec(line, scope)
    assert shown.pop("one normal form") is True
    for text, value in shown.items():
        assert text.strip('"') == str(value) or text == repr(value).replace("'", '"')


def test_the_glossary_has_at_most_forty_words_each_once() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = page.split("| word | meaning |")[1].split("\n\n")[0].splitlines()[2:]
    words = [word.strip() for row in rows for word in row.split("|")[1].split(",")]
    assert 30 < len(words) <= 40
    assert len(set(words)) == len(words)
