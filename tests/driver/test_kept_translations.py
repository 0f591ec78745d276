"""A second process finds on disk what an equal graph became, and nothing where anything differs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape import driver, kept_translations
from anyshape.costs import COSTS
from anyshape.ir.code import Code, HostCode, NativeFunction
from anyshape.ir.dtypes import float32
from anyshape.kept_translations import from_bytes, to_bytes
from anyshape.translation import Summary

LONG = COSTS.kept_nodes
TOLD = ("kernels", "launches", "externs", "eager_ops", "host_syncs", "recorded", "programs")


@pytest.fixture
def schedules(tmp_path, monkeypatch) -> list[str]:
    """What was scheduled, from an empty cache on, without the proof of each program."""
    monkeypatch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    monkeypatch.setenv("ANYSHAPE_SIZES", "host")
    monkeypatch.setenv("ANYSHAPE_CACHE_DIR", str(tmp_path))
    done: list[str] = []
    schedule = driver.schedule

    def noting(final, variants):
        done.append(final.nodes[-1].op)
        return schedule(final, variants)

    monkeypatch.setattr(driver, "schedule", noting)
    return done


def repeated(x: Tensor, step: Callable[[Tensor, int], Tensor]) -> Tensor:
    for i in range(LONG):
        x = step(x, i)
    return x


def pointwise(x: Tensor) -> Tensor:
    return repeated(x, lambda y, i: y * 1.01 + i)


def checked(x: Tensor) -> Tensor:
    n = (x > 0).sum().item()
    anyshape.check(n <= x.shape[0] * x.shape[1], "more than there are")
    return repeated(x.reshape(-1)[:n], lambda y, i: y + i).sum()


def found(x: Tensor) -> Tensor:
    return repeated(x[x > 0], lambda y, i: y.sin() * i)


def viewed(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = repeated(x, lambda y, i: y + i)
    return y, y.t(), x.t()


def written(x: Tensor) -> Tensor:
    x.add_(repeated(x, lambda y, i: y * 2 - i))
    return x


def products(x: Tensor) -> Tensor:
    return repeated(x @ x.t(), lambda y, i: (y @ y).softmax(-1))


def drawn(x: Tensor) -> Tensor:
    torch.manual_seed(3)
    return repeated(x, lambda y, i: y + torch.rand_like(y))


def ended(x: Tensor) -> Tensor:
    return repeated(x, lambda y, i: y + torch.arange(x.shape[1], dtype=torch.float64)).to(x.dtype)


PROGRAMS = (pointwise, checked, found, viewed, written, products, drawn, ended)


def called(fast: Callable[..., Any], *shape: int) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(*shape)
    return fast(x), x


def same(ours: tuple[Any, Tensor], theirs: tuple[Any, Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    for mine, eager in zip(_tensors(ours), _tensors(theirs), strict=True):
        assert mine.stride() == eager.stride()
        assert (mine._base is None) == (eager._base is None)


def _tensors(result: Any) -> list[Tensor]:
    return (
        [result] if isinstance(result, Tensor) else [t for part in result for t in _tensors(part)]
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_was_found_on_disk_computes_as_eager_and_is_told_of_alike(program, schedules):
    first, second = anyshape.compile(program), anyshape.compile(program)
    same(called(first, 3, 4), called(program, 3, 4))
    assert schedules
    schedules.clear()
    for shape in ((3, 4), (5, 2), (1, 1), (0, 3)):
        same(called(second, *shape), called(program, *shape))
        same(called(first, *shape), called(program, *shape))
    assert not schedules
    counts = [[getattr(fast.stats(), name) for name in TOLD] for fast in (first, second)]
    assert counts[0] == counts[1]
    assert first.code() == second.code()
    assert not schedules
    assert first.graphs() == second.graphs()
    assert first.kernels() == second.kernels()


def test_what_was_found_on_disk_is_explained(schedules):
    first = str(anyshape.explain(pointwise)(torch.ones(3, 4)))
    assert schedules
    schedules.clear()
    assert str(anyshape.explain(pointwise)(torch.ones(3, 4))) == first
    assert not schedules


def test_gradients_are_those_of_eager_from_disk(schedules):
    made = (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU()) for _ in range(LONG))
    net = nn.Sequential(*made)
    for _ in range(2):
        fast = anyshape.compile(net)
        for rows in (3, 5):
            x, y = (torch.ones(rows, 4, requires_grad=True) for _ in range(2))
            fast(x).square().sum().backward()
            ours = [p.grad.clone() for p in net.parameters()]
            net.zero_grad()
            net(y).square().sum().backward()
            torch.testing.assert_close(
                [x.grad, *ours], [y.grad, *(p.grad for p in net.parameters())]
            )
            net.zero_grad()
        done, schedules[:] = len(schedules), []
    assert done == 0


def test_a_failed_check_says_its_message(schedules):
    def program(x: Tensor) -> Tensor:
        n = int(x.sum().item())
        anyshape.check(n < 7, "it's too much")
        return repeated(x, lambda y, i: y + i) * n

    for _ in range(2):
        fast = anyshape.compile(program)
        assert fast(torch.ones(3)).shape == (3,)
        with pytest.raises(Exception, match="it's too much"):
            fast(torch.full((3,), 5.0))
    assert len(schedules) == 1


def scaled(by: float) -> Callable[[Tensor], Tensor]:
    return lambda x: repeated(x, lambda y, i: y * by + i)


@pytest.mark.parametrize(("one", "other"), [(2.0, 3.0), (0.0, -0.0), (2.0, 2), (1, True)])
def test_a_constant_that_differs_is_another_program(one, other, schedules):
    x = torch.tensor([1.0, float("nan"), -2.0])
    for by in (one, other):
        same((anyshape.compile(scaled(by))(x), x), (scaled(by)(x), x))
    assert len(schedules) == 2


def test_dtypes_strides_and_options_are_part_of_it(schedules):
    for x in (torch.ones(3, 4), torch.ones(3, 4).double(), torch.ones(4, 3).t()):
        anyshape.compile(pointwise)(x)
    assert len(schedules) == 3
    anyshape.compile(pointwise, dynamic=False)(torch.ones(3, 4))
    assert len(schedules) == 4


@pytest.mark.parametrize("options", [{"verify": True}, {"verify_programs": True}, {"cache": False}])
def test_what_is_looked_at_closely_is_worked_out(options, schedules):
    for _ in range(2):
        anyshape.compile(pointwise, options=options)(torch.ones(3, 4))
    assert len(schedules) == 2


def test_short_programs_are_not_looked_for(schedules, monkeypatch):
    def forbidden():
        raise AssertionError("our source is looked at")

    monkeypatch.setattr(kept_translations, "source_identity", forbidden)
    anyshape.compile(lambda x: x + 1)(torch.ones(3))
    assert len(schedules) == 1


def test_source_that_changed_is_another_compiler(schedules, monkeypatch):
    for identity in ("before", "after", None, None):
        monkeypatch.setattr(kept_translations, "source_identity", lambda it=identity: it)
        anyshape.compile(pointwise)(torch.ones(3, 4))
    assert len(schedules) == 4


def test_source_younger_than_the_process_is_not_what_it_runs(monkeypatch):
    source_identity = kept_translations.source_identity.__wrapped__
    assert source_identity() == source_identity() is not None
    monkeypatch.setattr(kept_translations, "STARTED", os.stat(driver.__file__).st_mtime)
    assert source_identity() is None


def test_bytes_come_back_as_what_they_were():
    function = NativeFunction("void f(void) {}\n", ("pointer", "int64"), True, "own")
    names = {"f": ("kernel", "f"), "t": ("dtype", float32), "m": ("module", "math")}
    table = (("plan", (1, (2, -3))), ("tensor", ("c", (), (1,))), ("entry", None))
    code = Code({"f": function}, {"table_0": table}, HostCode("def run(): ...", ("x",), names))
    summary = Summary(frozenset({"cpu"}), frozenset({"f"}), True, (0, 2), {"eager": 1})
    blob = to_bytes(code, summary)
    assert blob is not None and from_bytes(blob) == (code, summary)


@pytest.mark.parametrize("what", [object(), 1.5, [1], (1, {})])
def test_what_holds_objects_of_this_process_is_not_kept(what):
    code = Code({}, {}, HostCode("", (), {"held": ("object", what)}))
    assert to_bytes(code, Summary(frozenset(), frozenset(), False, (), {})) is None


def test_a_second_process_schedules_nothing(tmp_path):
    script = textwrap.dedent("""
        import torch, anyshape
        from anyshape import driver
        schedule, done = driver.schedule, []
        driver.schedule = lambda *given: (done.append(1), schedule(*given))[1]
        net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(20)))
        with torch.no_grad():
            anyshape.compile(net)(torch.ones(3, 4))
        print(len(done))
    """)
    (tmp_path / "program.py").write_text(script)
    settings = {"ANYSHAPE_CACHE_DIR": str(tmp_path / "cache"), "ANYSHAPE_VERIFY_PROGRAMS": "0"}
    counts = [
        subprocess.run(
            [sys.executable, str(tmp_path / "program.py")],
            env={**os.environ, **settings, "ANYSHAPE_SIZES": "host"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert counts == ["1", "0"]


def test_a_graph_whose_sizes_are_long_sums_is_not_written_out(
    schedules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running offsets of n parts are n sums of up to n sizes: their text grows with its square."""
    asked: list[bool] = []
    may_hold = kept_translations.KeptTranslations.may_hold
    monkeypatch.setattr(
        kept_translations.KeptTranslations,
        "may_hold",
        lambda kept, graph: asked.append(may_hold(kept, graph)) or asked[-1],
    )

    def offsets(x: Tensor, sizes: Tensor) -> Tensor:
        at, parts = 0, []
        for size in sizes.tolist():
            parts.append(x[at : at + size] * 2)
            at = at + size
        return torch.cat(parts)

    anyshape.compile(pointwise)(torch.rand(3, 4))
    assert asked[-1]
    x, sizes = torch.rand(256), torch.ones(256, dtype=torch.int64)
    assert torch.equal(anyshape.compile(offsets)(x, sizes), x * 2)
    assert not asked[-1]
