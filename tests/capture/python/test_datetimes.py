"""`datetime`: what depends on its arguments alone breaks no graph; a `tzinfo` of the program's is asked
in each call, as often as CPython asks it."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from datetime import date, timedelta, timezone
from typing import Any

import pytest
import torch

import anyshape

LOG: list[str] = []


class Zone(datetime.tzinfo):
    def utcoffset(self, when: Any) -> timedelta:
        LOG.append("offset")
        return timedelta(hours=1)

    def dst(self, when: Any) -> None:
        LOG.append("dst")

    def tzname(self, when: Any) -> str:
        LOG.append("name")
        return "zone"


FIRST = datetime.datetime(2020, 1, 1, tzinfo=Zone())
SECOND = datetime.datetime(2020, 1, 2, tzinfo=Zone())


def at(day: int) -> datetime.datetime:
    return datetime.datetime(2020, 1, day, tzinfo=Zone())


ASKED: dict[str, Callable[[], Any]] = {
    "difference": lambda: SECOND - FIRST,
    "order": lambda: FIRST < SECOND,
    "equality": lambda: [FIRST] == [SECOND],
    "key": lambda: ({at(1): 1}[at(1)], hash(at(2)), len({at(1), at(2)})),
    "text": lambda: f"{FIRST} {FIRST.isoformat()}",
    "sorted": lambda: sorted([SECOND, FIRST])[0] is FIRST,
    "of one made inside": lambda: (at(1) < at(2), str(at(1)), at(1).utcoffset()),
    "taken apart": lambda: FIRST.timetuple(),
    "of a time": lambda: FIRST.timetz().isoformat(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ASKED)
def test_a_zone_of_the_program_is_asked_in_each_call(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, ASKED[name]()

    LOG.clear()
    wanted = program(torch.ones(2))[1]
    asked = LOG[:]
    assert asked
    fast = anyshape.compile(program)
    for _ in range(3):
        LOG.clear()
        assert fast(torch.ones(2))[1] == wanted
        assert asked == LOG


def plain() -> Any:
    start = datetime.datetime(2020, 1, 31, 12, tzinfo=timezone.utc)
    later = start + timedelta(days=1, seconds=3)
    return (
        *(later, later - start, later > start, later.isoformat(), later.weekday()),
        *(later.replace(day=5), later.utctimetuple(), later.date().toordinal(), repr(later)),
        *(date.fromordinal(737425), date.fromisoformat("2020-02-03"), hash(later)),
        *(timedelta(hours=5).total_seconds(), datetime.time(1, 2).isoformat(), str(timezone.utc)),
    )


def test_what_depends_on_its_arguments_alone_breaks_no_graph() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, plain()

    fast = anyshape.compile(program, fullgraph=True)
    for _ in range(2):
        assert fast(torch.ones(2))[1] == plain()


@pytest.mark.filterwarnings("ignore")
def test_the_clock_and_the_place_are_asked_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        moment = datetime.datetime(2020, 7, 1, 12)
        return y * 2, moment.timestamp(), moment.astimezone().utcoffset(), date.fromtimestamp(0)

    fast = anyshape.compile(program)
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert fast(torch.ones(2))[1:] == program(torch.ones(2))[1:]
    monkeypatch.undo()
    time.tzset()


@pytest.mark.filterwarnings("ignore")
def test_a_subclass_makes_the_result() -> None:
    made: list[str] = []

    class Day(date):
        def __new__(cls, *args: Any) -> Day:
            made.append("new")
            return super().__new__(cls, *args)

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        day = Day(2020, 1, 1)
        return y * 2, day + timedelta(days=1), day.replace(month=3), Day.fromordinal(737425)

    wanted = program(torch.ones(2))[1:]
    count = len(made)
    fast = anyshape.compile(program)
    for _ in range(3):
        made.clear()
        found = fast(torch.ones(2))[1:]
        assert found == wanted
        assert [type(day) for day in found] == [type(day) for day in wanted]
        assert len(made) == count
