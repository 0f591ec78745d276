"""The public API as a user meets it: wrapping, inspecting, switching off, and one clear error."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape import api
from anyshape.errors import AnyshapeError, AnyshapeWarning, GraphBreakError

X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def program(x: Tensor) -> Tensor:
    return torch.relu(x) * 2


def run_python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=100, check=False,
        cwd=Path(anyshape.__file__).parents[1], env={**api_environ(), **environ},
    )  # fmt: skip


def api_environ() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("ANYSHAPE_DISABLE")}


# --- wrapping ---


def test_a_function() -> None:
    torch.testing.assert_close(anyshape.compile(program)(X), program(X))


def test_a_decorator_with_and_without_arguments() -> None:
    @anyshape.compile
    def bare(x: Tensor) -> Tensor:
        """Its docstring."""
        return x + 1

    @anyshape.compile(fullgraph=True)
    def called(x: Tensor) -> Tensor:
        return x + 2

    assert bare.__name__ == "bare" and bare.__doc__ == "Its docstring."
    torch.testing.assert_close(bare(X), X + 1)
    torch.testing.assert_close(called(X), X + 2)


def test_a_method_binds_like_one() -> None:
    class Scale:
        factor = 3.0

        @anyshape.compile
        def apply(self, x: Tensor, *, extra: float = 0.0) -> Tensor:
            return x * self.factor + extra

    scale = Scale()
    torch.testing.assert_close(scale.apply(X, extra=1.0), X * 3 + 1)
    scale.factor = 5.0
    torch.testing.assert_close(scale.apply(X), X * 5)
    torch.testing.assert_close(anyshape.compile(scale.apply)(X), X * 5)


def test_a_module_keeps_what_it_is() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    fast = anyshape.compile(module)
    assert isinstance(fast, nn.Sequential)
    assert fast.state_dict().keys() == module.state_dict().keys()
    assert next(fast.parameters()) is next(module.parameters())
    torch.testing.assert_close(fast(X), module(X))
    fast.train()
    assert module.training
    assert len(fast) == 2 and fast[0] is module[0]


def test_a_module_whose_class_makes_others_in_its_own_way_is_compiled() -> None:
    class Wrapped(nn.Linear):  # as fully_shard's classes are
        def __new__(cls) -> Wrapped:
            raise TypeError("no subclass of it is made so")

    net = nn.Linear(3, 2)
    net.__class__ = Wrapped
    fast = anyshape.compile(net)
    assert isinstance(fast, Wrapped)
    for rows in (3, 1, 0):
        x = torch.randn(rows, 3)
        assert torch.equal(fast(x), net(x))


def test_something_that_is_not_callable_is_an_error() -> None:
    with pytest.raises(AnyshapeError, match="E104"):
        anyshape.compile(3)


def test_an_unknown_option_is_an_error_at_once() -> None:
    with pytest.raises(AnyshapeError, match="did you mean 'verify'"):
        anyshape.compile(program, options={"verfy": True})


# --- inspecting ---


def test_one_compile_serves_every_shape_and_stats_count_it() -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for shape in ((3, 4), (1, 4), (0, 4), (5, 1), (64, 33)):
        torch.testing.assert_close(fast(x := torch.randn(shape)), program(x))
    stats = fast.stats()
    assert (stats.specializations, stats.segments, stats.graph_breaks, stats.recompiles) == (
        1,
        1,
        0,
        0,
    )
    assert (stats.calls, stats.host_syncs, stats.kernels) == (5, 0, 1)
    assert stats.compile_seconds > 0


def test_graphs_are_python_that_runs() -> None:
    fast = anyshape.compile(program, fullgraph=True)
    fast(X)
    (text,) = fast.graphs()
    namespace: dict[str, object] = {"torch": torch}
    exec(text, namespace)
    assert any(callable(value) for name, value in namespace.items() if not name.startswith("__"))


def test_code_holds_the_kernels_and_guards_name_the_users_line() -> None:
    def branching(x: Tensor) -> Tensor:
        return x.t() if x.shape[0] == x.shape[1] else x

    fast = anyshape.compile(branching)
    fast(X)
    fast(torch.ones(3, 3))
    assert Path(__file__).name in fast.guards() or "branching" in fast.guards()
    relu = anyshape.compile(program)
    relu(X)
    assert "for (" in relu.code()


def test_recompiles_say_which_guard_failed_with_which_values() -> None:
    fast = anyshape.compile(program)
    fast(X)
    fast(X.double())
    (reason,) = fast.recompiles()
    assert "float64" in reason
    assert fast.stats().recompiles == 1


def test_verify_runs_the_reference_after_every_pass() -> None:
    fast = anyshape.compile(lambda x: torch.softmax(x, -1), options={"verify": True})
    torch.testing.assert_close(fast(X), torch.softmax(X, -1))


def test_reset_forgets() -> None:
    fast = anyshape.compile(program)
    fast(X)
    anyshape.reset()
    assert fast.stats().specializations == 0
    torch.testing.assert_close(fast(X), program(X))


# --- marks and checks ---


def test_mark_static_makes_a_specialization_for_each_size() -> None:
    fast = anyshape.compile(program)
    for rows in (3, 5, 3):
        x = torch.randn(rows, 4)
        anyshape.mark_static(x, 0)
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations == 2


def test_mark_dynamic_is_an_error_where_the_program_specializes() -> None:
    def needs_three(x: Tensor) -> Tensor:
        a, b, c = x
        return a + b + c

    x = torch.randn(3, 4)
    anyshape.mark_dynamic(x, 0)
    with pytest.raises(AnyshapeError, match="E301"):
        anyshape.compile(needs_three, fullgraph=True)(x)


def test_dynamic_false_is_static() -> None:
    fast = anyshape.compile(program, dynamic=False)
    for rows in (3, 5, 3):
        fast(torch.randn(rows, 4))
    assert fast.stats().specializations == 2


def test_a_failed_check_raises_eagers_error_at_the_users_line() -> None:
    def checked(x: Tensor) -> Tensor:
        n = int(x.sum())
        torch._check(n > 0, lambda: "must be positive")
        return torch.ones(n)

    fast = anyshape.compile(checked)
    assert fast(torch.ones(3)).shape == (3,)
    with pytest.raises(RuntimeError, match="must be positive"):
        fast(-torch.ones(3))
    assert fast(torch.ones(5)).shape == (5,)


def test_is_compiling_is_true_inside() -> None:
    seen = anyshape.compile(lambda x: x + (1 if torch.compiler.is_compiling() else 0))
    torch.testing.assert_close(seen(X), X + 1)
    assert not anyshape.is_compiling()


def test_nothing_goes_on_compiling_after_the_first_call_has_returned(tmp_path: Path) -> None:
    """No thread, no process and no file of ours is still at work; later calls start none."""
    done = run_python(
        """
        import os, threading, torch, anyshape
        from pathlib import Path

        def at_work():
            tasks = list(Path("/proc/self/task").iterdir())
            children = [c for t in tasks for c in (t / "children").read_text().split()]
            files = sorted(str(p) for p in Path(os.environ["ANYSHAPE_CACHE_DIR"]).rglob("*"))
            return len(tasks), threading.active_count(), children, files

        torch.set_grad_enabled(False)
        layer = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
        layer(torch.ones(2, 8))
        tasks, threads, children, _ = at_work()
        fast = anyshape.compile(layer, fullgraph=True)
        fast(torch.ones(3, 8))
        first = at_work()
        assert first[:3] == (tasks, threads, children), first
        made = fast.stats().kernels, fast.stats().compile_seconds
        assert first[3] and all(made)
        for n in (1, 0, 300, 7):
            fast(torch.ones(n, 8))
        assert at_work() == first
        assert (fast.stats().kernels, fast.stats().compile_seconds) == made
        """,
        ANYSHAPE_CACHE_DIR=str(tmp_path),
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stderr


# --- switching off ---


def test_anyshape_disable_turns_everything_off() -> None:
    done = run_python(
        """
        import torch, anyshape
        for fn in (torch.nn.ReLU(), lambda x: x.relu()):
            fast = anyshape.compile(fn, fullgraph=True)
            assert torch.equal(fast(torch.tensor([-1.0, 1.0])), torch.tensor([0.0, 1.0]))
            assert (fast.stats().specializations, fast.stats().calls) == (0, 0)
            assert (fast.guards(), fast.graphs(), fast.code(), fast.recompiles()) == ("", [], "", [])
        """,
        ANYSHAPE_DISABLE="1",
        CC="/nonexistent/cc",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_copy_of_what_is_disabled_is_disabled() -> None:
    fast = copy.deepcopy(anyshape.compile(torch.nn.ReLU(), disable=True))
    torch.testing.assert_close(fast(X), X.relu())
    assert fast.stats().specializations == 0


def test_without_a_c_compiler_it_warns_once_and_runs_eagerly(tmp_path: Path) -> None:
    done = run_python(
        """
        import torch, anyshape
        fast = anyshape.compile(lambda x: x + 1)
        for n in (3, 4):
            assert torch.equal(fast(torch.ones(n)), torch.full((n,), 2.0))
        """,
        CC="/nonexistent/cc",
        PATH=str(tmp_path),
        ANYSHAPE_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("E601") == 1


def test_another_python_warns_and_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "SUPPORTED", ((3, 99),))
    with pytest.warns(AnyshapeWarning, match="E603"):
        fast = anyshape.compile(program)
    torch.testing.assert_close(fast(X), program(X))
    assert fast.stats().specializations == 0


def test_torch_compiler_disable_is_honoured() -> None:
    seen: list[type] = []

    @torch.compiler.disable
    def private(x: Tensor) -> Tensor:
        seen.append(type(x))
        return x * 3

    fast = anyshape.compile(lambda x: private(x + 1) + 1)
    torch.testing.assert_close(fast(X), (X + 1) * 3 + 1)
    torch.testing.assert_close(fast(X), (X + 1) * 3 + 1)
    assert seen == [Tensor, Tensor]


def test_stance_force_eager() -> None:
    fast = anyshape.compile(program)
    with torch.compiler.set_stance("force_eager"):
        torch.testing.assert_close(fast(X), program(X))
    assert fast.stats().specializations == 0


def test_stance_fail_on_recompile() -> None:
    fast = anyshape.compile(program)
    fast(X)
    with torch.compiler.set_stance("fail_on_recompile"):
        torch.testing.assert_close(fast(X[:1]), program(X[:1]))
        with pytest.raises(AnyshapeError, match="E221"):
            fast(X.double())


# --- what cannot be captured ---


def test_a_branch_on_a_tensor_breaks_and_goes_on() -> None:
    def branch(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            return y @ y.t()
        return y - 1

    fast = anyshape.compile(branch)
    for x in (X + 1, X - 1, torch.ones(1, 1), -torch.ones(7, 2)):
        torch.testing.assert_close(fast(x), branch(x))
    assert fast.stats().graph_breaks >= 1


def test_breaks_in_nested_frames_loops_and_with_blocks() -> None:
    def inner(x: Tensor, log: list[float]) -> Tensor:
        log.append(float(x.sum().numpy()))
        return x + 1

    def outer(x: Tensor, log: list[float]) -> Tensor:
        for _ in range(3):
            with torch.no_grad():
                x = inner(x * 2, log) - 1
        return x

    fast = anyshape.compile(outer)
    for x in (X + 1, X[:1], X + 3):
        ours, theirs = [], []
        torch.testing.assert_close(fast(x, ours), outer(x, theirs))
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_a_generator_that_escapes() -> None:
    def escaping(x: Tensor) -> Iterator[Tensor]:
        return (row * 2 for row in (x, x + 1))

    for ours, theirs in zip(anyshape.compile(escaping)(X), escaping(X), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_coroutine_runs_natively_as_a_whole() -> None:
    async def later(x: Tensor) -> Tensor:
        return x + 1

    def drive(x: Tensor) -> Tensor:
        coroutine = later(x)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value * 2
        raise AssertionError

    torch.testing.assert_close(anyshape.compile(drive)(X), drive(X))


def test_inspect_says_of_a_compiled_function_what_it_says_of_the_function() -> None:
    async def later(x: Tensor, scale: int = 2, *, shift: int = 1) -> Tensor:
        return x * scale + shift

    def rows(x: Tensor) -> Iterator[Tensor]:
        yield from x

    asks = (
        *(asyncio.iscoroutinefunction, inspect.iscoroutinefunction, inspect.isgeneratorfunction),
        *(inspect.isasyncgenfunction, inspect.signature),
    )
    for program in (later, rows, torch.relu, torch.nn.Identity().forward):
        for ask in asks[:-1] if program is torch.relu else asks:
            assert ask(anyshape.compile(program)) == ask(program)


def test_an_operator_without_a_row_still_compiles() -> None:
    def rare(x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x) + torch.trapezoid(x, dim=-1).unsqueeze(-1)

    fast = anyshape.compile(rare, fullgraph=True)
    for x in (X, X[:1], torch.randn(5, 7)):
        torch.testing.assert_close(fast(x), rare(x))
    assert fast.stats().specializations == 1


def test_eagers_own_exception_inside_the_users_own_try() -> None:
    def guarded(x: Tensor, y: Tensor) -> Tensor:
        try:
            return x @ y
        except RuntimeError as error:
            return torch.tensor(float(len(str(error)) > 0))

    fast = anyshape.compile(guarded)
    for y in (torch.ones(4, 2), torch.ones(5, 2), torch.ones(4, 1)):
        torch.testing.assert_close(fast(X, y), guarded(X, y))


def test_fullgraph_raises_one_clear_error() -> None:
    def branch(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x[0]
        return -x

    with pytest.raises(GraphBreakError) as caught:
        anyshape.compile(branch, fullgraph=True)(X)
    text = str(caught.value)
    assert f"{Path(__file__).name}:" in text
    assert "if x.sum() > 0:" in text and "^" in text
    assert "why:" in text and "hint:" in text


def test_explain_lists_every_break() -> None:
    def breaking(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + 1
        print("native", file=sys.stderr)
        return x * x.max().numpy().item()

    text = str(anyshape.explain(breaking)(X + 1))
    assert "if x.sum() > 0:" in text or "breaking" in text
    assert "test_api.py" in text


def test_a_failure_of_the_compiler_itself_is_a_warning_and_a_right_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("anyshape.driver.Driver.compile_graph", broken)
    fast = anyshape.compile(program)
    with pytest.warns(AnyshapeWarning, match="a bug of ours") as seen:
        torch.testing.assert_close(fast(X), program(X))
        torch.testing.assert_close(fast(X), program(X))
    assert len([w for w in seen if issubclass(w.category, AnyshapeWarning)]) == 1


def test_a_clean_compile_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anyshape.compile(program)(X)


def test_dynamic_true_makes_numbers_symbolic_from_the_first_call_on() -> None:
    def program(x: torch.Tensor, n: int, scale: float) -> torch.Tensor:
        return x.reshape(n, -1) * n + scale

    fast = anyshape.compile(program, dynamic=True)
    for n in (2, 3, 1, 6):
        x = torch.randn(n * 4)
        assert torch.equal(fast(x, n, 0.5 * n), program(x, n, 0.5 * n))
    assert fast.stats().specializations == 1


def test_stats_say_what_each_stage_took() -> None:
    fast = anyshape.compile(lambda x, y: torch.cat([x, y]).reshape(-1, 2) + 1)
    fast(torch.ones(4), torch.ones(6))
    stats = fast.stats()
    names = [stage.name for stage in stats.stages]
    assert names[:4] == ["capture", "guards", "passes", "scheduling"]
    assert sum(stage.questions for stage in stats.stages) == stats.questions > 0
    assert all(name in str(stats) for name in names)


def test_times_are_said_a_line_a_stage_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    anyshape.compile(lambda x: x + 1, options={"times": True})(torch.ones(3))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["capture", "guards", "passes"]
    anyshape.compile(lambda x: x + 1)(torch.ones(3))
    assert not capsys.readouterr().err
