"""Declared sizes: names bind across arguments, are tested before each call, and never specialize."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import anyshape
from anyshape.declare import Parameters, declare
from anyshape.dispatch.callables import parameters_of
from anyshape.errors import AnyshapeError

SIZES = (2, 0, 1, 3, 17)


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def broken(code: str, call: Callable[[], object]) -> str:
    """The text of the error of this code that the call raises."""
    with pytest.raises(AnyshapeError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return str(caught.value)


def masked(x: Tensor, mask: Tensor) -> Tensor:
    return torch.cat([x * mask[..., None], x], 1).sum(-1)


SHAPES = {"x": "batch time 4", "mask": "batch time", "return": "batch 2*time"}
ASSUMED = ["time <= 64", "batch != 5"]


def fast_masked() -> Any:
    return anyshape.compile(masked, fullgraph=True, shapes=SHAPES, assumptions=ASSUMED)


# --- what holds ---


def test_names_bind_across_arguments_and_make_one_specialization_without_guards_on_sizes() -> None:
    fast = fast_masked()
    for batch in SIZES:
        for time in SIZES:
            arguments = torch.randn(batch, time, 4), torch.rand(batch, time)
            torch.testing.assert_close(fast(*arguments), masked(*arguments))
    assert fast.stats().specializations == 1
    assert ".size(" not in fast.guards().partition("\n  guards\n")[2]


def test_a_declared_size_is_never_guarded_on_where_an_undeclared_one_is() -> None:
    def squares(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    fast = anyshape.compile(squares, fullgraph=True, shapes={"x": "n", "y": "m"})
    for n, m in ((3, 3), (1, 3), (3, 1), (1, 1), (0, 1), (0, 0)):
        x, y = torch.randn(n), torch.randn(m)
        torch.testing.assert_close(fast(x, y), squares(x, y))
    assert fast.stats().specializations == 1
    backed = anyshape.compile(squares)
    backed(torch.randn(3), torch.randn(3))
    backed(torch.randn(1), torch.randn(3))
    assert backed.stats().specializations == 2


def test_a_size_that_only_derived_dimensions_show_is_solved_exactly() -> None:
    def pairs(x: Tensor) -> Tensor:
        return x.reshape(-1, 2).sum(1)

    fast = anyshape.compile(pairs, fullgraph=True, shapes={"x": "2*time + 0".replace(" ", ""),
                                                           "return": "time"})  # fmt: skip
    for n in (4, 0, 2, 34):
        torch.testing.assert_close(fast(torch.arange(n)), pairs(torch.arange(n)))
    assert fast.stats().specializations == 1
    assert "no whole number time makes 2*time equal 5" in broken(
        "E311", lambda: fast(torch.arange(5))
    )


def test_a_derived_size_is_tested_whichever_argument_comes_first() -> None:
    def program(y: Tensor, x: Tensor) -> Tensor:
        return y.reshape(2, -1) + x

    fast = anyshape.compile(program, fullgraph=True, shapes={"y": "2*n", "x": "n"})
    for n in SIZES:
        torch.testing.assert_close(
            fast(torch.ones(2 * n), torch.ones(n)), program(torch.ones(2 * n), torch.ones(n))
        ) if n else fast(torch.ones(0), torch.ones(0))
    assert fast.stats().specializations == 1
    assert "2*n is 6; n is 3, dimension 0 of x" in broken(
        "E311", lambda: fast(torch.ones(7), torch.ones(3))
    )


@dataclass
class Batch:
    tokens: Tensor
    pair: tuple[Tensor, int]


def test_paths_reach_into_dataclasses_lists_and_dicts() -> None:
    def program(batch: Batch, more: dict[str, Any]) -> Tensor:
        return batch.tokens + batch.pair[0] * more["w"][1]

    shapes = {"batch.tokens": "n t", "batch.pair[0]": "t", "more['w'][1]": "1 t", "more.w[0]": "_"}
    fast = anyshape.compile(program, fullgraph=True, shapes=shapes)

    def arguments(n: int, t: int, w: int) -> tuple[Any, ...]:
        return Batch(torch.randn(n, t), (torch.randn(t), 1)), {
            "w": [torch.ones(2), torch.randn(1, w)]
        }

    for n in SIZES:
        for t in SIZES:
            given = arguments(n, t, t)
            torch.testing.assert_close(fast(*given), program(*given))
    assert fast.stats().specializations == 1
    text = broken("E311", lambda: fast(*arguments(2, 3, 4)))
    assert "dimension 1 of more['w'][1] is 4, but t is declared" in text
    assert "t is 3, dimension 1 of batch.tokens" in text


def test_leading_dimensions_may_be_any_number_and_underscore_is_anything() -> None:
    def scale(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    fast = anyshape.compile(scale, shapes={"x": "... _ d", "w": "d"})
    for shape in ((2, 3), (4, 2, 3), (1, 1, 2, 3)):
        x = torch.randn(shape)
        torch.testing.assert_close(fast(x, torch.ones(3)), x)
    broken("E312", lambda: fast(torch.ones(3), torch.ones(3)))
    broken("E311", lambda: fast(torch.ones(2, 4), torch.ones(3)))


def test_dims_of_torch_export_are_read_by_their_attributes() -> None:
    batch = torch.export.Dim("batch", min=1, max=64)

    def double(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y])

    shapes = {"x": {0: batch, 1: None}, "y": {0: 2 * batch, 1: torch.export.Dim.DYNAMIC}}
    fast = anyshape.compile(double, fullgraph=True, shapes=shapes)
    for n in (1, 3, 64):
        x, y = torch.randn(n, 4), torch.randn(2 * n, 4)
        torch.testing.assert_close(fast(x, y), double(x, y))
    assert fast.stats().specializations == 1
    assert "batch <= 64" in broken("E314", lambda: fast(torch.ones(65, 4), torch.ones(130, 4)))
    broken("E311", lambda: fast(torch.ones(3, 4), torch.ones(7, 4)))


def test_an_argument_that_is_none_or_left_out_is_not_tested() -> None:
    def program(x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x if mask is None else x * mask

    fast = anyshape.compile(program, fullgraph=True, shapes={"x": "n t", "mask": "n t"})
    x = torch.randn(2, 3)
    for mask in (None, torch.rand(2, 3), None, torch.rand(2, 3)):
        torch.testing.assert_close(fast(x, mask), program(x, mask))
        torch.testing.assert_close(fast(x, mask=mask), program(x, mask=mask))
    torch.testing.assert_close(fast(x), x)
    broken("E311", lambda: fast(x, torch.rand(3, 3)))
    broken("E311", lambda: fast(x, mask=torch.rand(3, 3)))


def test_further_positional_arguments_are_named_by_number() -> None:
    def program(first: Tensor, *rest: Tensor) -> Tensor:
        return first + sum(rest)

    fast = anyshape.compile(program, shapes={"first": "n", "rest[1]": "n"})
    for n in (2, 3):
        torch.testing.assert_close(fast(torch.ones(n), torch.ones(1), torch.ones(n)), torch.full((n,), 3.0))  # fmt: skip
    broken("E311", lambda: fast(torch.ones(2), torch.ones(2), torch.ones(1)))


def test_modules_methods_decorators_copies_and_explain_keep_the_declaration() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    net = anyshape.compile(Net(), shapes={"x": "n 3"})
    assert net(torch.ones(2, 3)).shape == (2, 3)
    for again in (net, pickle.loads(pickle.dumps(anyshape.compile(masked, shapes=SHAPES)))):
        broken("E312", lambda: again(*[torch.ones(3)] * (1 if again is net else 2)))

    @anyshape.compile(shapes={"x": "n 3"})
    def decorated(x: Tensor) -> Tensor:
        return x

    broken("E311", lambda: decorated(torch.ones(2, 4)))
    broken("E311", lambda: anyshape.explain(decorated)(torch.ones(2, 4)))
    broken("E311", lambda: anyshape.explain(masked, shapes=SHAPES)(torch.ones(2, 3, 5), torch.ones(2, 3)))  # fmt: skip


def test_assumptions_are_facts_that_remove_branches() -> None:
    def program(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] % 8 == 0 else x.tolist()

    fast = anyshape.compile(
        program, fullgraph=True, shapes={"x": "time"}, assumptions=["time % 8 == 0"]
    )
    for n in (8, 0, 64):
        torch.testing.assert_close(fast(torch.ones(n)), 2 * torch.ones(n))
    assert fast.stats().specializations == 1
    text = broken("E314", lambda: fast(torch.ones(9)))
    assert "'time % 8 == 0' does not hold" in text and "time is 9, dimension 0 of x" in text


# --- the result ---


def test_a_result_is_proved_at_capture_where_it_can_be() -> None:
    fast = anyshape.compile(masked, shapes=SHAPES)
    fast(torch.ones(2, 3, 4), torch.ones(2, 3))
    (machinery,) = [fast._lazy.machinery]
    (variant,) = [v for p in machinery.points.values() for v in p.specializations]
    assert variant.rebuild.__name__ != "checked"


def test_a_result_that_cannot_be_proved_is_tested_in_each_call() -> None:
    fast = anyshape.compile(lambda x: x[x > 0], shapes={"x": "n", "return": "n"})
    torch.testing.assert_close(fast(torch.ones(3)), torch.ones(3))
    text = broken("E315", lambda: fast(torch.tensor([1.0, -1.0, 1.0])))
    assert "dimension 0 of return is 2, but n is declared" in text and "n is 3" in text


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_wrong_result_is_an_error_with_and_without_a_break(fullgraph: bool) -> None:
    def program(x: Tensor) -> dict[str, Tensor]:
        if not fullgraph:
            print(end="")
        return {"y": x[1:], "z": x.sum()}

    fast = anyshape.compile(program, fullgraph=fullgraph, shapes={"x": "n", "return.y": "n-1", "return.z": ""})  # fmt: skip
    assert fast(torch.ones(3))["y"].shape == (2,)
    broken("E315", lambda: fast(torch.ones(0)))
    worse = anyshape.compile(program, fullgraph=fullgraph, shapes={"x": "n", "return.z": "n"})
    broken("E316", lambda: worse(torch.ones(3)))


def test_a_name_that_only_the_result_has_is_anything_but_one_thing() -> None:
    fast = anyshape.compile(lambda x: (x[x > 0], x[x < 9]), shapes={"x": "n", "return[0]": "k", "return[1]": "k"})  # fmt: skip
    assert len(fast(torch.ones(3))[0]) == 3
    broken("E315", lambda: fast(torch.tensor([1.0, -1.0])))


# --- what is wrong ---


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (((2, 3, 5), (2, 3)), "E311", ("dimension 2 of x is 5, but 4", "'batch time 4'")),
        (((2, 3, 4), (2, 1)), "E311", ("dimension 1 of mask is 1, but time", "time is 3, dimension 1 of x", "'batch time'")),
        (((2, 65, 4), (2, 65)), "E314", ("'time <= 64'", "time is 65, dimension 1 of x")),
        (((5, 3, 4), (5, 3)), "E314", ("'batch != 5'", "batch is 5, dimension 0 of x")),
        (((3, 4), (3,)), "E312", ("x has 2 dimensions, but 3", "'batch time 4'")),
    ],
)  # fmt: skip
def test_a_broken_declaration_names_argument_dimension_value_and_rule(
    arguments: tuple[Any, ...], code: str, told: tuple[str, ...]
) -> None:
    calls = []

    def program(x: Tensor, mask: Tensor) -> Tensor:
        calls.append(1)
        return masked(x, mask)

    fast = anyshape.compile(program, shapes=SHAPES, assumptions=ASSUMED)
    for warm in (False, True):
        if warm:
            fast(torch.ones(2, 3, 4), torch.ones(2, 3))
        before = len(calls)
        text = broken(code, lambda: fast(*(torch.ones(s) for s in arguments)))
        assert all(part in text for part in told), text
        assert len(calls) == before, "nothing has run"


def test_something_without_a_shape_is_an_error() -> None:
    fast = fast_masked()
    assert "x is a float" in broken("E313", lambda: fast(3.0, torch.ones(2, 3)))


@pytest.mark.parametrize(
    ("shapes", "assumptions", "told"),
    [
        ({"x": "batch *"}, (), "'*' is not an expression"),
        ({"x": "a ... b"}, (), "before them all"),
        ({"x": "int64.a"}, (), "is not about sizes"),
        ({"x": "a*b"}, (), "a*b does not say what a, b is"),
        ({"x": "n//2"}, (), "n//2 does not say what n is"),
        ({"x": "n", "return": "k//2"}, (), "k//2 does not say what k is"),
        ({"nothing": "n"}, (), "no parameter 'nothing'"),
        ({"x.": "n"}, (), "no place in the arguments"),
        ({"x": 3}, (), "neither a string nor a dictionary"),
        ({"x": {0: torch.export.Dim.STATIC}}, (), "dimension 0 is"),
        ({"x": "n"}, ["m > 1"], "names m"),
        ({"x": "n"}, ["n"], "is not about sizes"),
        ({"x": "größe"}, (), "is not a name"),
    ],
)
def test_a_declaration_that_cannot_be_read_is_refused_at_once(
    shapes: dict[str, Any], assumptions: list[str], told: str
) -> None:
    def program(x: Tensor) -> Tensor:
        return x

    text = broken("E310", lambda: anyshape.compile(program, shapes=shapes, assumptions=assumptions))
    assert told in text, text


# --- the fast test and the slow one ---

TERMS = ("a", "b", "2*a", "a+b", "3*b-1", "a*b", "a//2", "4", "_", "2*c+a", "c")
CONDITIONS = ("a < 3", "a % 2 == 0", "b >= a or a == 1", "a // b == 1", "c != 2")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(TERMS), max_size=3), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.lists(st.sampled_from(CONDITIONS), max_size=2),
    st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=3, max_size=3),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 4), min_size=3),
)
def test_the_compiled_test_holds_exactly_where_the_slow_one_raises_nothing(
    patterns: list[list[str]],
    leading: list[bool],
    stated: list[str],
    noise: list[list[int]],
    env: dict[str, int],
) -> None:
    shapes = {f"x{i}": " ".join(["..."] * leading[i] + row) for i, row in enumerate(patterns)}
    try:
        declaration = declare(shapes, stated)
    except AnyshapeError as error:
        assert error.code == "E310"
        return
    assert declaration is not None
    bound = Parameters(("x0", "x1", "x2")).bind(declaration, len(patterns), ())
    fitting = [
        SimpleNamespace(shape=(*[1] * leading[i], *(7 if t == "_" else max(eval(t, {}, env), 0) for t in row)))
        for i, row in enumerate(patterns)
    ]  # fmt: skip
    others = [SimpleNamespace(shape=tuple(row)) for row in noise[: len(patterns)]]
    front = bound.front(fitting)
    for slots in (fitting, others):
        try:
            bound.values(slots)
            holds = True
        except AnyshapeError:
            holds = False
        assert front(slots) is holds


# --- marks ---


def test_marks_of_one_name_are_one_size() -> None:
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    fast = anyshape.compile(add, fullgraph=True)
    for n in (3, 1, 0, 5):
        x, y = torch.randn(n), torch.randn(n)
        anyshape.mark_unbacked(x, 0, name="n")
        anyshape.mark_unbacked(y, 0, name="n")
        torch.testing.assert_close(fast(x, y), x + y)
    assert fast.stats().specializations == 1
    x, y = torch.ones(3), torch.ones(1)
    anyshape.mark_unbacked(x, 0, name="n")
    anyshape.mark_unbacked(y, 0, name="n")
    again = anyshape.compile(add)
    assert "name='n'" in broken("E317", lambda: again(x, y))


def test_a_mark_that_its_own_tensor_breaks_is_an_error() -> None:
    x = torch.ones(5)
    anyshape.mark_unbacked(x, 0, max=4)
    text = broken("E317", lambda: anyshape.compile(torch.relu)(x))
    assert "is 5, but was marked with max=4" in text


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("_dynamo_unbacked_indices", "unbacked"),
        ("_dynamo_strict_unbacked_indices", "unbacked"),
        ("_dynamo_dynamic_indices", "backed"),
        ("_dynamo_weak_dynamic_indices", "backed"),
    ],
)
def test_torchs_own_marks_mean_the_same(kind: str, policy: str) -> None:
    fast = anyshape.compile(lambda x: x.roll(1) * 2, fullgraph=True)
    for n in (3, 1, 7):
        x = torch.randn(n)
        setattr(x, kind, {0})
        torch.testing.assert_close(fast(x), x.roll(1) * 2)
    assert fast.stats().specializations == 1
    assert f": {policy} entry = 3" in fast.graphs()[0]


def test_torchs_own_functions_mark_what_ours_do() -> None:
    dynamo = pytest.importorskip("torch._dynamo")
    marks: dict[str, Callable[[Tensor], object]] = {
        "unbacked": lambda x: dynamo.decorators.mark_unbacked(x, 0),
        "dynamic": lambda x: dynamo.mark_dynamic(x, 0, min=1, max=9),
        "maybe": lambda x: dynamo.maybe_mark_dynamic(x, 0),
        "static": lambda x: dynamo.mark_static(x, 0),
    }
    made = {}
    for name, mark in marks.items():
        fast = anyshape.compile(lambda x: x.roll(1) * 2)
        for n in (3, 1, 7):
            x = torch.randn(n)
            mark(x)
            torch.testing.assert_close(fast(x), x.roll(1) * 2)
        made[name] = fast.stats().specializations
    assert made == {"unbacked": 1, "dynamic": 1, "maybe": 1, "static": 3}
    specializes = anyshape.compile(lambda x: [x] * x.shape[0])
    x = torch.randn(3)
    marks["maybe"](x)
    assert len(specializes(x)) == 3
    marks["dynamic"](x)
    with pytest.raises(AnyshapeError, match="E301"):
        anyshape.compile(lambda x: [x] * x.shape[0])(x)


def test_an_undecided_branch_is_an_error_whose_hint_removes_it() -> None:
    def program(x: Tensor) -> Tensor:
        return x.sum(0) if x.shape[0] > 4 else x[0].tolist()

    fast = anyshape.compile(program, fullgraph=True, shapes={"x": "n"})
    text = broken("E212", lambda: fast(torch.ones(7)))
    assert "hint: anyshape.check(x.size(0) >= 5)" in text

    def checked(x: Tensor) -> Tensor:
        anyshape.check(x.size(0) >= 5)
        return program(x)

    fast = anyshape.compile(checked, fullgraph=True, shapes={"x": "n"})
    torch.testing.assert_close(fast(torch.ones(7)), torch.tensor(7.0))
    through = anyshape.compile(program, shapes={"x": "n"})
    for n in (7, 5):
        torch.testing.assert_close(through(torch.ones(n)), torch.tensor(float(n)))


def test_torch_check_removes_a_branch_on_an_unbacked_size() -> None:
    def program(x: Tensor) -> Tensor:
        torch._check(x.shape[0] > 4)
        return x + 1 if x.shape[0] > 4 else torch.zeros(1)

    fast = anyshape.compile(program, fullgraph=True, shapes={"x": "n"})
    for n in (5, 17):
        torch.testing.assert_close(fast(torch.ones(n)), torch.ones(n) + 1)
    assert fast.stats().specializations == 1
    with pytest.raises(RuntimeError):
        fast(torch.ones(4))


def test_a_result_after_a_break_is_tested() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x[1:]

    fast = anyshape.compile(program, shapes={"x": "n", "return": "n"})
    for n in (3, 4):
        torch.testing.assert_close(fast(torch.ones(n)), 2 * torch.ones(n))
    assert fast.stats().graph_breaks == 1
    broken("E315", lambda: fast(-torch.ones(3)))


def test_parameters_are_read_from_the_code_as_inspect_reads_them() -> None:
    def several(a, /, b, *rest, c, d=1, **more): ...
    def few(*, c): ...
    def local(a, b=2):
        c = a
        return c, b

    for function in (several, few, local, lambda: None, lambda *args: args):
        expected = Parameters.of(inspect.signature(function))
        assert parameters_of(function) == Parameters.of_code(function.__code__) == expected
    wrapped = functools.wraps(several)(few)
    assert parameters_of(wrapped) == Parameters.of(inspect.signature(several))
