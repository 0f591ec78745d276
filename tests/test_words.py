"""Names say what a thing is. Words that once stood for several things at a time (a position, an index, an
offset, a slot and a destination were all a "place") are in no name: of a module, a class, a function, an
argument, an attribute or a variable. The glossary of docs/architecture.md has the words that are used.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("anyshape", "benchmarks", "conformance", "docs", "examples")
HIDING = {
    "place": "position, index, offset, slot, destination, site",
    "places": "positions, indices, offsets, slots, destinations, sites",
    "placed": "what was done: moved, scattered, assigned",
    "unhappened": "rolled back",
    "freshness": "parameter guards",
    "steady": "guarded by a version",
    "ledger": "profitability",
    "young": "allocation age",
}
"""Each with what it may have stood for. `place` has one sense: an operator that writes `in_place`."""
HIDING_IN_THE_PRODUCT = HIDING | {
    "told": "reported, notified, guarded",
    "held": "contents, referenced",
    "light": "memory-bound, few operations",
    "apart": "disjoint, no alias, separate",
}
"""Names of tests are sentences, and those in their programs mean nothing."""
ONE_SENSE = frozenset({("in", "place")})


def words_of(name: str) -> list[str]:
    divided = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word.lower() for word in divided.split("_") if word]


def hiding(name: str, words: dict[str, str]) -> Iterator[str]:
    parts = words_of(name)
    for before, word in zip(("", *parts), parts, strict=False):
        if word in words and (before, word) not in ONE_SENSE:
            yield word


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node.lineno
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.keyword(arg=str(name)) | ast.alias(asname=str(name)):
                yield name, node.lineno


def found_in(path: Path, words: dict[str, str]) -> list[str]:
    named = [(path.stem, 0), *names_in(ast.parse(path.read_text()))]
    return [
        f"{path.relative_to(ROOT)}:{line}: {name} (not {word}: {words[word]})"
        for name, line in named
        for word in hiding(name, words)
    ]


@pytest.mark.parametrize("folder", [*PRODUCT, "tests"])
def test_names_say_what_a_thing_is(folder: str) -> None:
    words = HIDING if folder == "tests" else HIDING_IN_THE_PRODUCT
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    found = [line for path in paths for line in found_in(path, words)]
    assert not found, "\n".join(found)


def rows_without_columns(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names of rows in a function, or among the fields of a class, that names no column."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found = [(name, line) for name, line in names_in(node)]
            if not any("column" in word for name, _ in found for word in words_of(name)):
                yield from ((name, line) for name, line in found if _is_of_rows(name))


def _is_of_rows(name: str) -> bool:
    parts = words_of(name)
    return bool({"row", "rows"} & {*parts}) and "major" not in parts


def test_only_matrices_have_rows_in_targets() -> None:
    """A row is an operator's in the table; what a kernel reduces over is a fiber."""
    read = "def f(rows, n):\n    return rows\ndef g(row, column): pass\ndef h(row_major): pass"
    assert [*rows_without_columns(ast.parse(read))] == [("rows", 1), ("rows", 2)]
    found = {
        str(path.relative_to(ROOT)): [*rows_without_columns(ast.parse(path.read_text()))]
        for path in sorted((ROOT / "anyshape/targets").rglob("*.py"))
    }
    assert not {path: names for path, names in found.items() if names}


OF_PACKAGES = {
    "domain": ("capture", "dispatch"),
    "mirror": ("capture",),
    "mirrors": ("capture",),
    "specialization": ("dispatch", "kernels"),
    "widening": ("dispatch",),
    "fiber": ("targets",),
    "fibers": ("targets",),
    "arena": ("ir", "runtime", "schedule", "targets"),
}
"""Words of the glossary that are of one part: there alone do names have them."""


def test_words_of_one_part_are_in_no_name_elsewhere() -> None:
    words = dict.fromkeys(OF_PACKAGES, "what the glossary says")
    wrong = [
        line
        for path in sorted((ROOT / "anyshape").rglob("*.py"))
        for line in found_in(path, words)
        for word in words_of(line.rpartition("(not ")[2].partition(":")[0])
        if path.relative_to(ROOT / "anyshape").parts[0].removesuffix(".py") not in OF_PACKAGES[word]
    ]
    assert not wrong, "\n".join(wrong)


def test_each_kind_of_name_is_read() -> None:
    text = (
        "import a as place1\n"
        "class Place: pass\n"
        "def flag_place(k_places, *, _place): pass\n"
        "x.by_place = f(places=HELD_AT)\n"
        "in_place = detached_in_place = InPlace = replace = placement\n"
    )
    found = [
        name for name, _ in names_in(ast.parse(text)) if [*hiding(name, HIDING_IN_THE_PRODUCT)]
    ]
    assert sorted(found) == sorted(
        ["Place", "flag_place", "k_places", "_place", "by_place", "places", "HELD_AT"]
    )
