"""A fixed tenth of torch's operator database, as `make conformance` checks all of it: no entry is
worse than docs/operators.md says, and none raises or gives another result than eager.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's operator database imports expecttest")

from conformance import cases, check, report

PAGE = Path(__file__).parent.parent / "docs" / "operators.md"
KIND = "|".join((*check.KINDS, "none"))
ROW = re.compile(rf"^\| (\S+) \| ({KIND}) \|", re.MULTILINE)
EXPECTED = dict(ROW.findall(PAGE.read_text()))
GRADIENT = re.compile(r"^\| (\S+) \| \S+ \| \d+ \| \d+ \| (\S+) \|", re.MULTILINE)
TENTH = {cases.name_of(entry): entry for entry in cases.ENTRIES[4::10]}


@pytest.mark.parametrize("name", TENTH)
def test_no_operator_is_worse_than_the_page_says(name: str) -> None:
    outcomes = check.check_entry(TENTH[name], cases.STRUCTURES, cases.DERIVED)
    if not outcomes:
        pytest.skip("the entry has none of the checker's dtypes")
    found, expected = report.kind_of(outcomes), EXPECTED[name]
    known = min(check.KINDS.index(expected), check.KINDS.index("break"))
    assert check.KINDS.index(found) <= known, report.detail_of(outcomes)


def test_the_page_has_every_operator() -> None:
    assert set(map(cases.name_of, cases.ENTRIES)) == set(EXPECTED)


def test_the_page_says_how_each_gradient_is_made() -> None:
    told = dict(GRADIENT.findall(PAGE.read_text()))
    assert told == {name: report.gradient_of(name) for name in EXPECTED}
    assert set(told.values()) == set(report.GRADIENTS)
