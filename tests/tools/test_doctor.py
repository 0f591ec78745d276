"""`anyshape doctor` says what is there, what is missing, and what to do."""

from __future__ import annotations

import pytest

from anyshape.tools import cli, doctor
from anyshape.tools.doctor import Finding


def found(subject: str) -> Finding:
    (finding,) = [f for f in doctor.examine() if f.subject == subject]
    return finding


def test_a_machine_that_compiles_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("programs are compiled here")
    assert "a program     compiled whole, once" in shown


def test_a_missing_compiler_is_wrong_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with pytest.warns(UserWarning, match="E601"):
        assert cli.main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("programs are not compiled as they should be: see C compiler")
    assert "install gcc or clang" in shown and "runs eagerly" in shown


def test_what_the_environment_says_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYSHAPE_DISABLE", "1")
    finding = found("environment")
    assert finding.state == "wrong" and "ANYSHAPE_DISABLE=1" in finding.found


def test_a_cache_that_cannot_be_used_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYSHAPE_CACHE_DIR", "/proc/nowhere")
    finding = found("cache")
    assert finding.state == "note" and "ANYSHAPE_CACHE_DIR" in finding.advice
