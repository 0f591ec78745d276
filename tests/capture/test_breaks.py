"""What cannot be captured ends the segment, runs natively, and capture goes on;
`fullgraph=True` says why."""

from __future__ import annotations

import ast
import collections
import inspect
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.capture.heap.breaks import BREAKS, broken
from anyshape.capture.interpreter import machine
from anyshape.capture.interpreter.opcodes import OPCODE_HANDLERS
from anyshape.capture.segments import capturing
from anyshape.dispatch import compiled as machinery
from anyshape.errors import CODES, AnyshapeWarning, GraphBreakError
from tests.capture.by_reference import agree, compiled, same

X = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def branch_on_data(x: Tensor) -> Tensor:
    y = x * 2
    if y.sum() > 0:
        return y @ y.t()
    return y - 1


def numpy_in_the_middle(x: Tensor) -> Tensor:
    total = float(np.sum((x * 2).numpy()))
    return x + total


def loop_with_a_break(x: Tensor) -> Tensor:
    for i in range(5):
        x = x + float(x.mean().numpy()) + i
    return x


def while_data(x: Tensor) -> Tensor:
    turns = 0
    while x.abs().max() > 0.1:
        x = x / 2
        turns += 1
    return x + turns


def nested_frames(x: Tensor) -> Tensor:
    def inner(y: Tensor, scale: float) -> Tensor:
        if y.sum() > 0:
            y = (y * scale)[:1]
        return y + 1

    return inner(inner(x, 2.0) - 1, 3.0) * 2


def with_block(x: Tensor) -> tuple[Tensor, bool]:
    with torch.enable_grad():
        inside = torch.is_grad_enabled()
        x = x + float(x.sum().numpy())
    return x * 2, inside and not torch.is_grad_enabled()


def try_block(x: Tensor) -> Tensor:
    try:
        y = x * 2
        if y.sum() > 100:
            raise ValueError("large")
        y = y @ y
    except RuntimeError:
        y = x - 1
    finally:
        x = x + 1
    return x + y


def closures_and_containers(x: Tensor) -> Any:
    seen: list[Tensor] = []
    table = {"n": x.shape[0], "x": [x]}

    def note(y: Tensor) -> Tensor:
        seen.append(y)
        return y * len(seen)

    first = note(x)
    time.time()
    second = note(first)
    table["x"].append(second)
    return seen, table, second


def generator_over_a_break(x: Tensor) -> Tensor:
    def rows(y: Tensor) -> Iterator[Tensor]:
        for i in range(3):
            yield y * i

    total = x
    for row in rows(x):
        total = total + row + float(row.sum().numpy())
    return total


def iterator_kept_over_a_break(x: Tensor) -> Tensor:
    pairs = zip([1, 2, 3], enumerate([x, x + 1, x + 2]))
    next(pairs)
    x = x + float(x.sum().numpy())
    return sum((y * a + i for a, (i, y) in pairs), x)


def sorted_by_data(x: Tensor) -> list[float]:
    return sorted((x.sum(1)).tolist(), key=lambda value: -value)


PROGRAMS = {
    f.__name__: f
    for f in (
        *(branch_on_data, numpy_in_the_middle, loop_with_a_break, while_data, nested_frames, with_block),
        *(try_block, closures_and_containers, generator_over_a_break, iterator_kept_over_a_break, sorted_by_data),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_is_right_whatever_breaks(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", AnyshapeWarning)
        agree(
            PROGRAMS[name],
            (X + 1,),
            (X - 2,),
            (X[:1],),
            (X + 1,),
            (torch.ones(5, 5),),
            fullgraph=False,
        )


@pytest.mark.parametrize("name", ["branch_on_data", "numpy_in_the_middle", "nested_frames"])
def test_both_parts_around_a_break_are_compiled(name: str) -> None:
    fast = agree(PROGRAMS[name], (X + 1,), (X - 2,), fullgraph=False)
    assert fast.stats().segments >= 2 and fast.stats().graph_breaks >= 1
    segments = fast.stats().segments
    agree_again = fast(X + 3)
    same(agree_again, PROGRAMS[name](X + 3))
    assert fast.stats().segments == segments


def test_a_loop_with_a_break_closes_into_a_cycle() -> None:
    def program(x: Tensor, turns: int) -> Tensor:
        for _ in range(turns):
            x = x + float(x.mean().numpy())
        return x

    fast = compiled(program, fullgraph=False)
    same(fast(X, 4), program(X, 4))
    same(fast(X, 60), program(X, 60))
    few = fast.stats().specializations
    same(fast(X, 100), program(X, 100))
    assert fast.stats().specializations <= few + 1 <= 10  # one more entry, no more turns


def test_writes_before_a_break_are_done_before_it() -> None:
    events: list[str] = []

    def native() -> None:
        events.append("native")

    native = torch.compiler.disable(native)

    def program(x: Tensor, log: list[str]) -> Tensor:
        log.append("before")
        native()
        log.append("after")
        return x + 1

    fast = compiled(program, fullgraph=False)
    for _ in range(2):
        events.clear()
        fast(X, events)
        assert events == ["before", "native", "after"]


def test_an_exception_of_native_code_reaches_the_users_handler_and_the_caller() -> None:
    def program(x: Tensor, catch: bool) -> Any:
        y = x + 1
        try:
            int(np.array("no number")[()])
        except ValueError as error:
            if not catch:
                raise
            return y, str(error)[:15]

    fast = compiled(program, fullgraph=False)
    for _ in range(2):
        same(fast(X, True), program(X, True))
        with pytest.raises(ValueError, match="invalid literal"):
            fast(X, False)


def test_fullgraph_names_the_break_the_line_and_the_way_out() -> None:
    with pytest.raises(GraphBreakError) as caught:
        compiled(branch_on_data)(X)
    text = str(caught.value)
    assert "if y.sum() > 0:" in text and "test_breaks.py" in text and "torch.where" in text


def test_explain_lists_each_break_once() -> None:
    fast = compiled(branch_on_data, fullgraph=False)
    for _ in range(3):
        fast(X + 1)
    (found,) = fast.explain().breaks
    assert found.id == "tensor-branch" and "hint" in str(found)


BRANCHES: dict[str, tuple[Callable[[torch.Tensor], Any], str, str]] = {
    "number": (lambda x: x[0] if x.sum().item() < 0.5 else x, "tensor-branch", "torch.where"),
    "bools of sizes": (
        lambda x: x if (len(x[x > 0]) > 1) == (len(x[x > 1]) > 1) else x[0],
        "undecided-size",
        "(u0 >= 2) == (u1 >= 2)",
    ),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_on_numbers_from_data_is_told_in_words_of_the_program(name: str) -> None:
    program, expected, words = BRANCHES[name]
    (found,) = anyshape.explain(program)(X).breaks
    assert found.id == expected and words in str(found) and "Scalar" not in str(found)


def test_a_size_that_changes_too_often_is_not_told_as_one_of_data() -> None:
    fast = compiled(lambda x: [x[i].sum() for i in range(len(x))], fullgraph=False)
    for rows in range(2, 9):
        fast(torch.ones(rows, 2))
    reasons = [found.reason for found in fast.explain().breaks]
    assert any("another one in too many calls" in reason for reason in reasons)
    assert not any("only the data decides" in reason for reason in reasons)


def test_a_tensor_that_is_not_understood_is_told_by_what_it_is() -> None:
    explained = str(anyshape.explain(lambda x: x.to_dense() + 1)(torch.eye(2).to_sparse()))
    assert "tensor of layout torch.sparse_coo is not understood" in explained


def test_every_break_is_one_of_the_catalogue() -> None:
    """So that each has a code, a hint and a page: no file but the catalogue's makes one by hand."""
    root = Path(anyshape.__file__).parent / "capture"
    calls = [
        (path.name, node.func.id, ast.literal_eval(node.args[0]))
        for path in root.rglob("*.py")
        if path.name != "breaks.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("broken", "Break")
        and isinstance(node.args[0], ast.Constant)
    ]
    assert len(calls) > 100
    assert [call for call in calls if call[1] != "broken" or call[2] not in BREAKS] == []


def test_native_code_that_looks_into_a_size_is_told_in_plain_words() -> None:
    def counted(x: Tensor) -> dict[int, int]:
        return dict(collections.Counter([x.shape[0]]))

    (found,) = anyshape.explain(counted)(X).breaks
    assert found.id == "proxy-leak" and found.reason.endswith("__hash__ of a size") and found.hint


def test_every_break_of_the_catalogue_has_a_code() -> None:
    for name, kind in BREAKS.items():
        assert kind.code in CODES and kind.reason
        assert broken(name, "a thing").reason == name


def test_a_function_with_an_opcode_without_a_handler_runs_natively_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is decided before its first instruction: what it does first, it does once."""

    def inner(x: Tensor, log: list[str]) -> Tensor:
        log.append("in")
        try:
            y = x * 2
        finally:
            log.append("out")
        return y + 1

    def outer(x: Tensor, log: list[str]) -> Tensor:
        return inner(x + 1, log) * 3

    fewer = {name: h for name, h in OPCODE_HANDLERS.items() if name != "PUSH_EXC_INFO"}
    monkeypatch.setattr(machine, "OPCODE_HANDLERS", fewer)
    fast = compiled(outer, fullgraph=False)
    for n in (3, 1, 0):
        log: list[str] = []
        same(fast(torch.ones(n), log), torch.full((n,), 15.0))
        assert log == ["in", "out"]
    assert (fast.stats().graph_breaks, fast.stats().segments) == (1, 2)
    with pytest.raises(GraphBreakError, match="inner is run natively.*PUSH_EXC_INFO"):
        compiled(outer)(torch.ones(2), [])


def test_more_variants_than_allowed_run_natively_with_one_warning() -> None:
    """But for one, which takes the place of the oldest; the next one waits for two calls."""

    def program(x: Tensor, mode: str) -> tuple[Tensor, str]:
        return x + 1, mode

    fast = compiled(program, max_variants=2)
    with pytest.warns(AnyshapeWarning) as seen:
        for mode in "abcccdef":
            same(fast(X, mode), program(X, mode))
    assert len(seen) == 1 and fast.stats().specializations == 2
    text = str(seen[0].message)
    assert text.startswith("E222 this has 2 specializations") and "max_variants" in text
    assert "mode == 'c'; now 'e'" in text and "mode == 'd'; now 'e'" in text


def test_a_function_cut_into_too_many_pieces_is_called_natively_with_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x[1:]
        if x.sum() > 1:
            x = x[:, 1:]
        if x.sum() > 2:
            x = x[:, :-1]
        return x

    monkeypatch.setattr(machinery, "MAX_POINTS", 2)
    fast = compiled(program, fullgraph=False)
    with pytest.warns(AnyshapeWarning, match="E222") as seen:
        for _ in range(4):
            same(fast(X + 1), program(X + 1))
    (text,) = [str(w.message) for w in seen if w.category is AnyshapeWarning]
    assert "more than 2 pieces" in text
    assert fast.stats().graph_breaks == 3


def test_a_mistake_of_ours_is_one_warning_and_a_right_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(*args: Any) -> None:
        raise AssertionError("our mistake")

    monkeypatch.setattr(capturing, "finish", wrong)
    fast = compiled(lambda x: x + 1, fullgraph=False)
    with pytest.warns(AnyshapeWarning, match="our mistake") as seen:
        for _ in range(3):
            same(fast(X), X + 1)
    assert len(seen) == 1


def test_a_failed_check_gives_eagers_exception() -> None:
    def program(x: Tensor) -> Tensor:
        n = int(x.sum())
        torch._check(n > 0, lambda: "must be positive")
        return torch.ones(n)

    fast = compiled(program, fullgraph=False)
    same(fast(torch.ones(3)), torch.ones(3))
    with pytest.raises(RuntimeError, match="must be positive"):
        fast(-torch.ones(3))


def test_an_index_out_of_range_is_eagers_own_error_in_the_users_try() -> None:
    def program(x: Tensor, i: Tensor) -> Tensor:
        try:
            return x[i] * 2
        except IndexError:
            return x * 0

    fast = compiled(program, fullgraph=False)
    for i in (torch.tensor([0, 2]), torch.tensor([0, 7]), torch.tensor([1, 1])):
        same(fast(X, i), program(X, i))


def test_threads_compile_the_same_and_different_functions_at_once() -> None:
    programs: list[Callable[[Tensor], Tensor]] = [
        lambda x, k=k: torch.relu(x) * k + 1 for k in range(4)
    ]
    fast = [compiled(program) for program in programs]
    errors: list[str] = []

    def work(seed: int) -> None:
        with torch.no_grad():
            for turn in range(12):
                k = (seed + turn) % len(programs)
                x = torch.randn(1 + (seed * turn) % 5, 4)
                if not torch.equal(fast[k](x), programs[k](x)):
                    errors.append(f"{seed} {turn}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert all(f.stats().specializations <= 8 for f in fast)


def test_a_segment_that_fails_leaves_the_random_stream_as_eager_does() -> None:
    def program(x: Tensor, i: Tensor) -> Tensor:
        noise = torch.rand(3)
        try:
            return x[i].sum() + noise
        except IndexError:
            return noise

    fast = compiled(program, fullgraph=False)
    for i in (torch.tensor([0]), torch.tensor([9]), torch.tensor([1])):
        torch.manual_seed(3)
        found = (fast(X, i), torch.rand(1))
        torch.manual_seed(3)
        same(found, (program(X, i), torch.rand(1)))


def test_a_comparison_that_data_decides_is_told_in_the_words_of_the_program() -> None:
    def scaled(x: Tensor) -> Tensor:
        y = x[x > 0]
        return y.view(-1) if 5 >= y.numel() else y.expand(2, -1)

    x = torch.arange(9.0)
    with pytest.raises(GraphBreakError) as caught:
        anyshape.compile(scaled, fullgraph=True)(x)
    for said in ("anyshape.check(5 >= y.numel())", "anyshape.check(5 < y.numel())"):
        assert said in caught.value.hint
        body = inspect.getsource(scaled).replace(
            "        return", f"        {said}\n        return"
        )
        scope = {"anyshape": anyshape, "Tensor": Tensor}
        exec(textwrap.dedent(body), scope)
        given = x if "<" in said else x - 5
        made = anyshape.compile(scope["scaled"], fullgraph=True)(given)
        torch.testing.assert_close(made, scaled(given))


def test_a_number_known_at_run_time_is_not_called_eagers_refusal() -> None:
    def counted(x: Tensor) -> Tensor:
        return torch.arange(float((x > 0).sum()))

    found = agree(counted, (X,), (X.abs() + 1,), fullgraph=False)
    assert [b.id for b in found.explain().breaks] == ["operator-unknown"]


def test_a_number_that_python_needs_is_told_with_where_it_comes_from() -> None:
    def chosen(x: Tensor, rows: list[str]) -> tuple[Tensor, str]:
        at = int(x.argmax())
        return x * 2, rows[at]

    (found,) = anyshape.explain(chosen)(torch.tensor([1.0, 3.0]), ["a", "b"]).breaks
    first = inspect.getsourcelines(chosen)[1]
    assert found.id == "size-needed" and found.reason.startswith("an index needs the value")
    assert f"comes from item at {__file__}:{first + 1}, in " in found.hint
    assert "check(" not in found.hint
