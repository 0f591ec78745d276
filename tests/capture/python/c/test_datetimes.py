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
from tests.capture.by_reference import in_one_graph

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
    in_one_graph(plain)


@pytest.mark.filterwarnings("ignore")
def test_the_clock_and_the_time_zone_are_asked_in_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


class Hours(datetime.tzinfo):
    """One that says how often it is asked, and how far it is from UTC on the two folds."""

    def __init__(self, hours: float, folded: float | None = None) -> None:
        self.hours = hours
        self.folded = hours if folded is None else folded

    def utcoffset(self, when: Any) -> timedelta:
        LOG.append(type(when).__name__)
        late = when is not None and when.fold
        return timedelta(hours=self.folded if late else self.hours)

    def dst(self, when: Any) -> timedelta:
        LOG.append("dst")
        return timedelta(0)

    def tzname(self, when: Any) -> str:
        return "hours"


class Stamp(datetime.datetime):
    def __new__(cls, *args: Any, **kwargs: Any) -> Stamp:
        LOG.append("made")
        return super().__new__(cls, *args, **kwargs)


EAST = datetime.datetime(2020, 1, 1, 12, tzinfo=Hours(1))
WEST = datetime.datetime(2020, 1, 1, 12, tzinfo=Hours(-5, -6))
NAIVE = datetime.datetime(2020, 1, 1, 12)


def inside(hours: float = 2.0, **fields: Any) -> datetime.datetime:
    return datetime.datetime(2020, 1, 1, 14, tzinfo=Hours(hours), **fields)


def later(moment: datetime.datetime) -> datetime.datetime:
    moment += timedelta(days=1)
    return moment


ONE_GRAPH: dict[str, Callable[[], Any]] = {
    "difference": lambda: (EAST - WEST, inside() - EAST, NAIVE - NAIVE),
    "order": lambda: (EAST < WEST, EAST >= WEST, inside() < WEST, EAST == inside()),
    "of a fold": lambda: (WEST == EAST, WEST != WEST.astimezone(timezone.utc)),
    "naive and aware": lambda: (EAST == NAIVE, EAST != NAIVE),
    "naive from aware": lambda: EAST - NAIVE,
    "naive before aware": lambda: EAST < NAIVE,
    "moved": lambda: (EAST + timedelta(1), timedelta(1) + EAST, EAST - timedelta(1), later(EAST)),
    "replaced": lambda: (EAST.replace(day=3), EAST.replace(tzinfo=WEST.tzinfo) == WEST),
    "parts": lambda: (EAST.date(), EAST.timetz() < WEST.timetz(), EAST.timetuple()),
    "in UTC": lambda: (EAST.utctimetuple(), EAST.timestamp(), EAST.astimezone(timezone.utc)),
    "elsewhere": lambda: (EAST.astimezone(WEST.tzinfo), WEST.tzinfo is EAST.tzinfo),
    "text": lambda: (str(EAST), f"{EAST}", EAST.isoformat(" ", "hours"), "at %s: %5d" % (EAST, 3)),
    "of a clock": lambda: (str(EAST.timetz()), EAST.timetz().utcoffset(), EAST.timetz().tzname()),
    "too far": lambda: EAST + timedelta(days=10**8),
    "of a subclass": lambda: Stamp(2020, 1, 1) + timedelta(1),
    "of an aware subclass": lambda: Stamp(2020, 1, 1, tzinfo=WEST.tzinfo) - EAST,
    "a bad offset": lambda: inside(25.0).utcoffset(),
    "combined": lambda: datetime.datetime.combine(date(2020, 1, 1), EAST.timetz()) == EAST,
}


def outcome(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_times_of_a_zone_of_the_program_break_no_graph(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, outcome(ONE_GRAPH[name])

    LOG.clear()
    wanted = program(torch.ones(2))[1]
    asked = LOG[:]
    fast = anyshape.compile(program, fullgraph=True)
    for _ in range(2):
        LOG.clear()
        found = fast(torch.ones(2))[1]
        assert asked == LOG
        assert found == wanted
        assert repr(found) == repr(wanted)
        kinds = [[type(part) for part in each] for each in (found, wanted) if type(each) is tuple]
        assert kinds[:1] == kinds[1:]


def test_a_time_handed_in_is_relied_on_by_its_value() -> None:
    def program(x: torch.Tensor, moment: datetime.datetime) -> Any:
        return x + moment.replace(day=2).toordinal(), moment - moment.replace(day=1, fold=0)

    fast = anyshape.compile(program, fullgraph=True)
    for day, fold in ((3, 0), (3, 1), (5, 0), (5, 0)):
        given = datetime.datetime(2020, 1, day, fold=fold)
        wanted, found = program(torch.ones(2), given), fast(torch.ones(2), given)
        assert torch.equal(found[0], wanted[0])
        assert found[1] == wanted[1]


def test_a_time_made_inside_goes_over_a_break() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        zone = Hours(3.0)
        moment = datetime.datetime(2020, 1, 1, tzinfo=zone, fold=1)
        stamp = Stamp(2020, 1, 2, tzinfo=zone)
        stamp.note = [moment]  # type: ignore[attr-defined]
        anyshape_break()
        assert moment.tzinfo is zone is stamp.tzinfo
        return y * 2, moment, stamp, vars(stamp), moment.fold

    wanted = program(torch.ones(2))
    fast = anyshape.compile(program)
    for _ in range(2):
        found = fast(torch.ones(2))
        assert found[2] == wanted[2]
        assert type(found[2]) is Stamp
        assert found[2].note[0] is found[1]
        assert found[4] == 1


def anyshape_break() -> None:
    time.monotonic()
