"""A sample of CPython's own tests, as `make exam` runs all of them: nothing is wrong or meets a
mistake of ours but what docs/python.md and its like for 3.12 and 3.13 tell of. (What takes long depends on
the machine.)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.python import modules, report, results

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / name for name in ("python.md", "python-3.12.md", "python-3.13.md")]
SAMPLE = {
    "language": "test_augassign test_class test_exceptions test_generators test_scope test_super",
    "containers": "test_deque test_dict test_iter test_list test_ordered_dict test_set",
    "library": "test_contextlib test_copy test_enum test_functools test_operator",
    "numbers and texts": "test_fractions test_int test_string test_struct test_userstring",
}


@pytest.mark.skipif(bool(modules.missing()), reason=modules.missing() or "it is there")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the page is of Python 3.11")
@pytest.mark.parametrize("part", SAMPLE)
def test_nothing_is_wrong_but_what_the_page_tells_of(part: str, tmp_path: Path) -> None:
    found = tmp_path / "found.jsonl"
    command = [sys.executable, "-W", "ignore", "-m", "conformance.python", *SAMPLE[part].split()]
    options = ["--every", str(modules.SAMPLE_EVERY), "--results", str(found)]
    run = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    counted = [method for method in results.load(found) if method.counted]
    known = report.known_bad(_pages())
    bad = [m for m in counted if m.kind in ("wrong", "E901")]
    bad = [m for m in bad if (m.module, m.name) not in known]
    assert not bad, "\n".join(f"{m.module}:{m.name}: {m.kind}: {m.why}" for m in bad)
    assert {m.module for m in counted} == set(SAMPLE[part].split())


def _pages() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def test_the_pages_have_the_modules_of_the_sample() -> None:
    rows = {line.split(" | ")[0].strip("| ") for line in _pages().splitlines()}
    assert rows >= {name for names in SAMPLE.values() for name in names.split()}
