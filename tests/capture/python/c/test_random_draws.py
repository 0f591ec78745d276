"""Draws of `random.Random` in one graph: each call gives what CPython gives, and leaves every
generator where CPython leaves it. And digests, weeks and paths, which C computes of values."""

from __future__ import annotations

import datetime
import hashlib
import os
import random
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from anyshape.errors import GraphBreakError
from tests.capture.by_reference import compiled

RNG = random.Random(3)


def every_method(rng: random.Random) -> list[Any]:
    numbers = [*range(9)]
    rng.shuffle(numbers)
    counts = [rng.random(), rng.getrandbits(70), rng.randrange(5, 60, 5), rng.randint(1, 6)]
    floats = [rng.uniform(1, 2), rng.triangular(), rng.gauss(0, 1), rng.gauss(0, 1)]
    more = [rng.expovariate(2), rng.betavariate(2, 3), rng.vonmisesvariate(1, 2)]
    picked = [rng.choice(numbers), rng.sample(range(50), 5), rng.choices("abc", [1, 2, 3], k=4)]
    return [numbers, counts, floats, more, picked, rng.randbytes(3), rng.getstate()[1][-1]]


def made_inside() -> Any:
    return every_method(random.Random(5)), every_method(random.Random("a text"))


def seeded_inside() -> Any:
    RNG.seed(7)
    random.seed(b"some")
    return every_method(RNG), every_method(random._inst), random.random()  # type: ignore[attr-defined]


def put_back() -> Any:
    RNG.seed(8)
    state = RNG.getstate()
    found = RNG.random()
    RNG.setstate(state)
    return found == RNG.random(), found


def made_and_seeded_later() -> Any:
    rng = random.Random()
    rng.seed(1)
    return rng.random()


def names_of(traceback: Any) -> list[str]:
    """The functions that a traceback shows."""
    found = []
    while traceback is not None:
        found.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    return found


def refused() -> Any:
    rng, found = random.Random(1), []
    for call in (
        lambda: rng.randrange(0),
        lambda: rng.choice([]),
        lambda: rng.getrandbits(-1),
        lambda: rng.setstate((3, (1, 2), None)),
        lambda: rng.seed([]),
        lambda: rng.expovariate(0),
    ):
        try:
            call()
        except Exception as error:
            found.append((type(error), str(error), names_of(error.__traceback__)))
    return found, rng.random()


class Counting(random.Random):
    def random(self) -> float:
        self.asked = getattr(self, "asked", 0) + 1
        return super().random()


def of_a_class_with_draws_of_its_own() -> Any:
    rng = Counting(4)
    return rng.uniform(0, 1), rng.shuffle([1, 2, 3]), rng.asked, rng.randrange(9), rng.asked


def patched_inside() -> Any:
    rng = random.Random(4)
    with mock.patch.object(random.Random, "random", lambda self: 0.25, create=True):
        found = rng.uniform(0, 1)
    rng.getrandbits = lambda count: 0  # type: ignore[method-assign]
    return found, rng.randrange(9), rng.random()


def around(program: Callable[[], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        y = x + 1
        found = program()
        return y * 2, found

    return function


SEEDED = [
    *(made_inside, seeded_inside, put_back, made_and_seeded_later, refused),
    of_a_class_with_draws_of_its_own,
]


@pytest.mark.parametrize("program", SEEDED, ids=lambda program: program.__name__)
def test_what_is_seeded_inside_is_drawn_in_one_graph(program: Any) -> None:
    function = around(program)
    fast = compiled(function, fullgraph=True)
    for seed in range(3):
        outcomes = []
        for run in (function, fast):
            RNG.seed(seed), random.seed(seed)
            outcomes.append((run(torch.ones(2))[1], RNG.getstate(), random.getstate()))
        assert outcomes[0] == outcomes[1]
    assert len(fast.points) == 1


@pytest.mark.parametrize("every", [0, 7])
@pytest.mark.parametrize("program", [*SEEDED, patched_inside], ids=lambda program: program.__name__)
def test_with_breaks_too(program: Any, every: int) -> None:
    function = around(program)
    fast = compiled(function, fullgraph=False, break_every=every)
    outcomes = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how many segments there are
        for run in (function, fast):
            RNG.seed(5), random.seed(5)
            found = [(run(torch.ones(2))[1], RNG.getstate(), random.getstate()) for _ in "ab"]
            outcomes.append(found)
    assert outcomes[0] == outcomes[1]
    assert not fast.mistakes


def unseeded(x: Any) -> Any:
    y = x * random.random()
    numbers = [*range(6)]
    RNG.shuffle(numbers)
    if random.random() < 0.5:
        y = y + 1
    return y, numbers, RNG.choice(numbers)


def test_each_call_draws_other_numbers() -> None:
    fast, outcomes = compiled(unseeded, fullgraph=False), []
    for run in (unseeded, fast):
        RNG.seed(5), random.seed(5)
        results = [run(torch.ones(2)) for _ in range(5)]
        shown = [(y.tolist(), *rest) for y, *rest in results]
        outcomes.append((shown, RNG.getstate(), random.getstate()))
    assert outcomes[0] == outcomes[1]
    assert len({str(each) for each in outcomes[0][0]}) == 5
    assert sum(len(point.specializations) for point in fast.points.values()) <= 8


def test_where_each_call_begins_with_the_same_state_there_is_one_graph() -> None:
    fast = compiled(unseeded, fullgraph=True)
    for _ in range(3):
        found = []
        for run in (unseeded, fast):
            RNG.seed(5), random.seed(5)
            y, *rest = run(torch.ones(2))
            found.append((y.tolist(), rest, random.getstate()))
        assert found[0] == found[1]
    assert sum(len(point.specializations) for point in fast.points.values()) == 1


def test_another_state_is_a_break_that_is_said() -> None:
    fast = compiled(unseeded, fullgraph=True)
    fast(torch.ones(2))
    before = random.getstate()
    with pytest.raises(GraphBreakError, match=r"Random\.random is not known"):
        fast(torch.ones(2))
    assert random.getstate() == before


def test_a_generator_leaves_with_its_state() -> None:
    def program(x: Any) -> Any:
        rng = random.Random(9)
        rng.shuffle([1, 2, 3])
        return x + 1, rng, random.Random()

    fast = compiled(program, fullgraph=True)
    results = [fast(torch.ones(2)) for _ in range(2)]
    wanted = program(torch.ones(2))[1].getstate()
    assert [rng.getstate() for _, rng, _ in results] == [wanted, wanted]
    assert len({by_chance.random() for _, _, by_chance in results}) == 2
    assert {type(by_chance) for _, _, by_chance in results} == {random.Random}


def by_size(x: Any) -> Any:
    RNG.seed(1)
    if x.shape[0] > 3:
        RNG.random()
    return x + 1, RNG.random()


def test_a_side_of_a_branch_draws_alone() -> None:
    fast = compiled(by_size, fullgraph=True)
    for size in (2, 5, 3, 9):
        wanted = by_size(torch.ones(size))[1], RNG.getstate()
        assert (fast(torch.ones(size))[1], RNG.getstate()) == wanted


def long(x: Any) -> Any:
    numbers = [*range(5_000)]
    RNG.seed(2)
    RNG.shuffle(numbers)
    return x + 1, numbers


def test_long_lists_are_left_to_cpython() -> None:
    with pytest.raises(GraphBreakError, match=r"Random\.shuffle is not known"):
        compiled(long, fullgraph=True)(torch.ones(2))
    fast = compiled(long, fullgraph=False)
    assert fast(torch.ones(2))[1] == long(torch.ones(2))[1]
    assert len(fast.points) == 2


def of_the_system(x: Any) -> Any:
    rng = random.SystemRandom()
    return x + 1, rng.random(), rng.randrange(1 << 40), rng.choice(range(1 << 40))


def test_what_the_system_draws_is_drawn_in_each_call() -> None:
    fast = compiled(of_the_system, fullgraph=False)
    results = [fast(torch.ones(2))[1:] for _ in range(3)]
    assert [len(set(each)) for each in zip(*results)] == [3, 3, 3]


def digests() -> Any:
    digest = hashlib.sha256(b"one")
    digest.update(bytearray(b"two"))
    other = digest.copy()
    other.update(b"three")
    named = digest.name, digest.digest_size, digest.block_size
    more = hashlib.md5(b"a").hexdigest(), hashlib.shake_128(b"a").digest(3)
    return digest.hexdigest(), other.digest(), named, more


def weeks_and_paths() -> Any:
    week = datetime.date(2020, 12, 31).isocalendar()
    return week, week.week, type(week), os.fspath("a"), os.path.join("a", "b")


@pytest.mark.parametrize(
    "program", [digests, weeks_and_paths], ids=lambda program: program.__name__
)
def test_what_c_computes_of_values_is_in_the_graph(program: Any) -> None:
    function = around(program)
    fast = compiled(function, fullgraph=True)
    assert [fast(torch.ones(2))[1] for _ in range(2)] == [program(), program()]


def test_a_digest_that_leaves_is_made_natively() -> None:
    function = around(lambda: hashlib.sha256(b"one"))
    fast = compiled(function, fullgraph=False)
    assert fast(torch.ones(2))[1].digest() == hashlib.sha256(b"one").digest()
