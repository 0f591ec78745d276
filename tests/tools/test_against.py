"""What two checkouts are compared by: medians of the ratios of neighbours, and what is over 5 %."""

from __future__ import annotations

import pytest

from benchmarks.against import Figures, geometric_mean, ratio, report


def test_a_ratio_is_the_median_of_those_of_the_turns():
    assert ratio([(1.0, 1.0), (2.0, 2.2), (10.0, 30.0)]) == pytest.approx(1.1)


def test_ratios_that_undo_each_other_are_no_change():
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)


def test_only_rows_that_both_sides_have_are_compared():
    figures = Figures()
    figures.add({"a": 1.0, "b": 2.0}, {"b": 3.0, "c": 4.0}, "head, ")
    assert dict(figures.pairs) == {"head, b": [(2.0, 3.0)]}


def test_the_report_names_the_rows_that_are_slower_the_worst_first():
    pairs = {
        "first call, x": [(1.0, 1.2)],
        "first call, y": [(1.0, 1.04)],
        "later call, x": [(1.0, 2.0)],
    }
    lines = [*report(pairs)]
    at = lines.index("\nrows over 1.05: 2 of 3")
    assert lines[at + 1 : at + 3] == ["  2.000 later call, x", "  1.200 first call, x"]
    assert "  1.117 first call (2 rows)" in lines
