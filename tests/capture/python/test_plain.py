"""The interpreter does what CPython does on plain Python, on every Python version it supports.

The programs are in tests/capture/plain/; each runs natively and interpreted, and results, printed text, exceptions and tracebacks are
compared.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anyshape.capture.interpreter import versions
from anyshape.capture.interpreter.opcodes import OPCODES
from tests.capture.plain import harness, slots

CASES = dict(harness.cases())
ROOT = Path(__file__).parents[3]
VERSIONS = list(versions.VERSIONS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_program_runs_as_under_cpython(name: str) -> None:
    failure = harness.check(CASES[name], set())
    assert failure is None, failure


def interpreters() -> dict[tuple[int, int], str]:
    """A Python of each supported version, where one is installed."""
    found = {sys.version_info[:2]: sys.executable}
    for version in VERSIONS:
        name = f"python{version[0]}.{version[1]}"
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        candidates = [shutil.which(name), *sorted(pyenv.glob(f"{name[6:]}.*/bin/{name}"))]
        for candidate in filter(None, candidates):
            if version not in found and _runs(str(candidate), version):
                found[version] = str(candidate)
    return found


def _runs(python: str, version: tuple[int, int]) -> bool:
    command = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except OSError:
        return False
    return shown.stdout.split() == [str(part) for part in version]


@pytest.fixture(scope="module")
def reports() -> dict[tuple[int, int], dict[str, Any]]:
    """What `tests.capture.plain.run` reports on each installed version."""
    out = {}
    for version, python in interpreters().items():
        if version in VERSIONS:
            command = [python, "-W", "ignore", "-m", "tests.capture.plain.run"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
            out[version] = json.loads(done.stdout)
    return out


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_all_programs_on_every_installed_version(reports: Any, version: tuple[int, int]) -> None:
    if version not in reports:
        pytest.skip(f"Python {version} is not installed")
    failures = reports[version]["failures"]
    assert not failures, "\n\n".join(f"{name}\n{text}" for name, text in failures.items())


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_every_opcode_is_executed_by_some_program(reports: Any, version: tuple[int, int]) -> None:
    if version not in reports:
        pytest.skip(f"Python {version} is not installed")
    handled = {row.name for row in OPCODES if version in row.versions and row.handler is not None}
    assert handled - set(reports[version]["executed"]) == set()


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_every_opcode_of_the_version_has_a_row(reports: Any, version: tuple[int, int]) -> None:
    if version not in reports:
        pytest.skip(f"Python {version} is not installed")
    rows = {row.name for row in OPCODES if version in row.versions}
    real = set(reports[version]["opnames"])
    assert rows == real


def test_every_special_method_is_called_by_some_program() -> None:
    called: set[str] = set()
    for name, case in CASES.items():
        if name.startswith("slots."):
            slots.LOG.clear()
            machine = harness.Watched(set())
            try:
                result = machine.run(case)
            except Exception:
                continue
            if isinstance(result, tuple) and result and isinstance(result[0], list):
                called |= {entry for entry in result[0] if isinstance(entry, str)}
    assert slots.SPECIAL_METHODS - called == set()
