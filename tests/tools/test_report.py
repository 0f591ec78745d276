"""A benchmark that is run for some of its rows keeps the others, and what they were measured on."""

from __future__ import annotations

import pytest

from benchmarks import report

KEYS = ("program", "n")


@pytest.fixture
def here(tmp_path, monkeypatch) -> dict[str, object]:
    """Pages and figures in a folder of their own; the machine can be changed."""
    for name in ("RESULTS", "PAGE", "README"):
        monkeypatch.setattr(report, name, tmp_path / name)
    host = {**report.machine(), "cpu": "first", "load": 0.1}
    monkeypatch.setattr(report, "machine", lambda: dict(host))
    return host


def rows_of(*names: str) -> list[report.Row]:
    return [{"program": name, "n": 4, "s": 1.0} for name in names]


def test_rows_that_were_not_measured_again_stay_where_they_were(here):
    report.save("growth", rows_of("a", "b", "c"), "by hand")
    here["cpu"] = "second"
    report.save("growth", report.merged("growth", [{**rows_of("b")[0], "s": 2.0}], KEYS))
    kept = report.load("growth")
    assert [(row["program"], row["s"]) for row in kept["rows"]] == [("a", 1), ("b", 2), ("c", 1)]
    assert [row.get("machine", {}).get("cpu") for row in kept["rows"]] == ["first", None, "first"]
    assert kept["machine"]["cpu"] == "second" and kept["note"] == "by hand"
    page = report.PAGE.read_text()
    assert "| program | n | s |" in page and f"Rows of a, c: {here['date']}, first" in page


def test_rows_of_the_same_machine_and_day_say_nothing(here):
    report.save("growth", rows_of("a", "b"))
    report.save("growth", report.merged("growth", rows_of("b"), KEYS))
    assert report.load("growth")["rows"] == rows_of("a", "b")
    assert "Rows of" not in report.PAGE.read_text()


def test_a_row_that_comes_back_to_a_machine_is_one_of_it(here):
    report.save("growth", rows_of("a", "b"))
    here["cpu"] = "second"
    report.save("growth", report.merged("growth", rows_of("b"), KEYS))
    here["cpu"] = "first"
    report.save("growth", report.merged("growth", rows_of("c"), KEYS))
    cpus = [row.get("machine", {}).get("cpu") for row in report.load("growth")["rows"]]
    assert cpus == [None, "second", None]
