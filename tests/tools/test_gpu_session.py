"""The session of a GPU: jobs that fail or hang cost their own time only, and what was right is not run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu_session import MOE_CHECKS, SUITES, Job, Session, ending, jobs, summary


def of(name: str, text: str, part: str = "a", **others: object) -> Job:
    return Job(part, name, ("-S", "-c", text), **others)


def test_what_failed_is_run_again_and_what_was_right_is_not(tmp_path, capsys):
    mark = tmp_path / "mark"
    wanted = [
        of("right", "print('once')"),
        of("raises", f"open({str(mark)!r}, 'a').write('x'); raise ValueError"),
        of("says so", "print('FAIL decode')", "b"),
        of("hangs", "import time; time.sleep(600)", "b", seconds=0.5),
        of("last", "print('1.0 us')", "b", alone=True),
    ]
    for turn in (1, 2):
        Session.begun(tmp_path, 600).run(wanted)
        assert mark.read_text() == "x" * turn
    ended = {
        n: s.split()[0] for n, s in json.loads((tmp_path / "session.json").read_text()).items()
    }
    assert ended == {
        "right": "ok", "raises": "failed", "says so": "failed", "hangs": "stopped", "last": "ok"
    }  # fmt: skip
    log = (tmp_path / "log.txt").read_text()
    assert log.count("once") == 1 and log.count("=== b hangs: stopped") == 2 and "ValueError" in log
    first, second = summary(wanted, ended)
    assert first.startswith("a: 1 of 2 right") and "hangs: stopped" in second


def test_nothing_is_begun_where_no_time_is_left(tmp_path):
    Session.begun(tmp_path, 0).run([of("right", "print('once')")])
    assert not (tmp_path / "session.json").exists()


@pytest.mark.parametrize(
    ("printed", "code", "said"),
    [("ok", 0, "ok"), ("ok", 1, "failed"), ("x  WRONG", 0, "failed"), ("ok", None, "stopped")],
)
def test_how_a_job_ended(printed, code, said):
    assert ending(printed, code) == said


def test_every_job_has_a_name_of_its_own(tmp_path):
    names = [job.name for job in jobs(tmp_path)]
    assert len({*names}) == len(names)


def test_every_suite_on_a_gpu_is_run():
    found = {path.stem for path in (Path(__file__).parents[1] / "gpu").glob("test_*.py")}
    assert {*SUITES} == found


def test_every_check_of_the_experts_kernels_is_run():
    checks = pytest.importorskip("benchmarks.moe_check", reason="needs Triton").CHECKS
    assert [*MOE_CHECKS] == [*checks]
