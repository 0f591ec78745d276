"""What the fuzzer rests on: each way to differ is seen, a crash is one, and small programs are found."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.forked import in_a_process
from tests.fuzz import grammar, programs
from tests.fuzz.inputs import Input
from tests.fuzz.oracle import (
    Outcome,
    call,
    close,
    coarsest,
    counters_unlike,
    differences,
    is_decided,
    overflowed,
    wrong,
)
from tests.fuzz.programs import Fuzzed, Growing
from tests.fuzz.roundings import SIDES, OtherRoundings
from tests.fuzz.shrink import cause, shrunk
from tests.fuzz.test_found import at, over
from tests.fuzz.workers import MEMORY_BYTES, WAYS, Drawn, differences_of, program_of


def eager(x: Tensor) -> Any:
    x[:1].add_(1)
    return x, x[1:], x.sum(0)


def _raises(x: Tensor) -> Any:
    x[:1].add_(1)
    raise IndexError


def _draws(x: Tensor) -> Any:
    torch.rand(())
    return eager(x)


def _hidden_write(x: Tensor) -> Any:
    x.data[:1].add_(1)
    return x, x[1:], x.sum(0)


def _other(change: Callable[[list[Any]], None]) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        results = list(eager(x))
        change(results)
        return tuple(results)

    return program


def _put(position: int, make: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    return _other(lambda results: results.__setitem__(position, make(results[position])))


OTHERS = {
    "values": _put(2, lambda t: t + 1),
    "dtype": _put(2, Tensor.double),
    "shape": _put(2, lambda t: t[None]),
    "strides": _put(1, lambda t: t.mT.contiguous().mT),
    "requires_grad": _put(2, lambda t: t.clone().requires_grad_()),
    "memory": _put(1, Tensor.clone),
    "the same": _put(0, lambda t: t.view_as(t)),
    "offset": _put(1, lambda t: t.clone()),
    "raises": _raises,
    "argument 0: values": lambda x: (x, x[1:], x.sum(0)),
    "version counter": _hidden_write,
    "random state": _draws,
    "results are nested": lambda x: list(eager(x)),
    "value": _put(2, lambda t: 3),
}


@pytest.mark.parametrize("aspect", OTHERS)
def test_each_way_to_differ_is_seen(aspect: str) -> None:
    found = call(OTHERS[aspect], [torch.ones(3, 2)])
    assert any(
        aspect in problem
        for problem in differences(found, call(eager, [torch.ones(3, 2)]), exact=False)
    )
    again = call(eager, [torch.ones(3, 2)])
    assert list(differences(again, call(eager, [torch.ones(3, 2)]), exact=True)) == []


def test_a_version_counter_that_is_not_shared_is_seen() -> None:
    def apart(x: Tensor) -> Any:
        return x.data, x[1:], x.sum(0)

    def together(x: Tensor) -> Any:
        return x.detach(), x[1:], x.sum(0)

    found, wanted = call(apart, [torch.ones(3, 2)]), call(together, [torch.ones(3, 2)])
    assert list(differences(found, wanted, exact=True)) == []
    assert any("version counters" in problem for problem in counters_unlike(found, wanted))
    assert list(counters_unlike(found, call(apart, [torch.ones(3, 2)]))) == []


def test_close_is_as_close_as_eager_is_to_float64() -> None:
    eager, truth = torch.tensor([1.0, 100.0]), torch.tensor([1.0, 100.0]).double()
    assert close(eager + 1e-5, eager, truth)
    assert not close(eager + 1e-3, eager, truth)
    assert close(eager + 1e-3, eager, truth + 1e-3)
    assert not close(eager * float("inf"), eager, truth)


def test_how_far_a_rounding_of_the_arguments_carries_is_no_mistake_up_to_a_limit() -> None:
    eager, truth = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]).double()
    assert not close(eager + 5e-6, eager, truth)
    assert close(eager + 5e-6, eager, truth, nudged=[truth + 1e-5])
    assert not close(eager + 1e-3, eager, truth, nudged=[truth + 1e-3])


def test_float32_that_was_a_half_on_the_way_is_judged_by_how_far_that_carries() -> None:
    """A variance of sums of halves: eager's own error is one draw of roundings of many."""
    eager, truth = torch.tensor(0.2448), torch.tensor(0.2446).double()
    nudged, unit = [truth + 5e-4], torch.finfo(torch.bfloat16).eps
    assert not close(eager - 1e-3, eager, truth, nudged=nudged)
    assert close(eager - 1e-3, eager, truth, nudged=nudged, coarse=unit)
    assert not close(eager - 1e-2, eager, truth, nudged=nudged, coarse=unit)
    assert not close(eager - 1e-3, eager, truth, nudged=[truth], coarse=unit)
    assert close(eager - 1e-3, eager, None, narrow=True, coarse=unit)
    assert not close(eager - 1e-3, eager, None, narrow=True)
    halves = Fuzzed((Input("x0", ("a",), "float32", ("plain",)),), ("t = x0.bfloat16()",), "t")
    assert coarsest(halves) == unit
    assert coarsest(replace(halves, lines=("t = x0.half()",))) == torch.finfo(torch.half).eps
    assert coarsest(replace(halves, lines=())) == torch.finfo(torch.float32).eps


def test_partial_sums_decide_what_is_past_all_numbers_of_float16() -> None:
    nan, inf = float("nan"), float("inf")
    eager, truth = torch.tensor([inf, 1.0]).half(), torch.tensor([7e4, 1.0]).double()
    assert close(torch.tensor([nan, 1.0]).half(), eager, truth)
    assert not close(torch.tensor([3.0, 1.0]).half(), eager, truth)
    assert not close(torch.tensor([inf, nan]).half(), eager, truth)
    on_the_way = torch.tensor([5e4, 1.0]).double()  # of a difference of what is past them
    assert close(torch.tensor([nan, 1.0]).half(), eager, on_the_way)
    assert not close(torch.tensor([7.0, 1.0]).half(), eager, on_the_way)
    assert not close(torch.tensor([nan, 1.0]), eager.float(), on_the_way)
    assert not close(torch.tensor([nan, 1.0]).half(), eager, torch.tensor([inf, 1.0]).double())


@pytest.mark.parametrize(("count", "is_told"), ((0, False), (1, True)))
def test_whether_a_gradient_of_nothing_requires_gradients_is_not_judged(
    count: int, is_told: bool
) -> None:
    plain, other = (Outcome([], [], None, gradients=(torch.ones(count),)) for _ in range(2))
    other.gradients[0].requires_grad_()
    assert bool(list(differences(plain, other, exact=False))) is is_told


def test_what_overflows_beside_random_numbers_has_a_reference_where_it_does() -> None:
    lines = "t = torch.rand(2)", "u = x0 * 40000"
    half = at(over("3", *lines, "t, u - u, u.float()", dtypes="float16"), (1, 1, 1))
    call = overflowed(half, 0)
    assert call is not None
    assert bool(call.results[1].isfinite().all())
    assert call.results[0] is None
    assert overflowed(replace(half, lines=(lines[0], "u = x0 * 2")), 0) is None
    assert overflowed(over("3", *lines, "t, u - u, u"), 0) is None


def test_float64_that_was_float32_on_the_way_is_judged_as_such_where_nothing_else_tells() -> None:
    eager = torch.tensor([4.9], dtype=torch.float64)
    assert not close(eager + 5e-7, eager, None)
    assert close(eager + 5e-7, eager, None, narrow=True)
    assert not close(eager + 1e-3, eager, None, narrow=True)


def test_what_reads_memory_that_nobody_wrote_is_not_judged() -> None:
    def reads(x: Tensor) -> Tensor:
        return torch.unique_consecutive(x * 0).as_strided(x.shape, (1,))

    program = Fuzzed((Input("x0", ("a",), "int64", ("plain",)),), (), "x0")
    sized = replace(program, sizes=({"a": 4, "b": 1, "c": 1},))
    assert not is_decided(sized, reads, 0)
    assert is_decided(sized, lambda x: x * 2, 0)


def test_the_gradient_of_a_softmax_is_not_zero() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    assert call(lambda x: x.softmax(-1), [x]).gradients[0].abs().max() > 1e-3


def test_a_crash_is_told_with_its_signal() -> None:
    def work(tell: Callable[[Any], None]) -> None:
        tell(["run", 3])
        os.kill(os.getpid(), signal.SIGSEGV)

    begun, (told, text) = in_a_process(work, MEMORY_BYTES)
    assert begun == ["run", 3]
    assert told == "crash"
    assert "SEGV" in text  # "SIGSEGV", or what the address sanitizer says


def test_a_program_that_differs_is_made_small() -> None:
    program = Fuzzed(
        (Input("x0", ("a", "b"), "int32", ("stepped",)), Input("x1", ("a",), "bool", ("plain",))),
        ("t0 = x0 + 1", "t1 = t0.cumsum(0)", "t2 = x1 | True", "t3 = t1 * 2"),
        "[t0, t2, t1]",
    )
    small, found = shrunk(
        program, lambda p: ["x: 17"] if "cumsum" in p.source and "t0 = " in p.source else []
    )
    assert found == ["x: 17"]
    assert small.lines == ("t0 = x0 + 1", "t1 = t0.cumsum(0)")
    assert (
        len(small.sizes) == 1 and len(small.inputs) == 1 and small.inputs[0].layouts == ("plain",)
    )


def test_causes_have_no_numbers() -> None:
    assert (
        cause("sizes {'a': 3}: compiled: result[1]: values [1, 2]\n eager's [3]")
        == "compiled: result: values"
    )


def test_what_is_printed_can_be_pasted() -> None:
    program = program_of(3)
    namespace: dict[str, Any] = {}
    exec(str(program).rsplit("print", 1)[0], namespace)
    assert namespace["PROGRAM"] == program


def test_a_seed_is_always_the_same_program() -> None:
    assert [program_of(seed) for seed in range(5)] == [program_of(seed) for seed in range(5)]


def test_the_sizes_of_calls_include_none_one_and_equal_ones() -> None:
    for seed in range(20):
        triples = [tuple(sizes.values()) for sizes in program_of(seed).sizes]
        assert any(0 in t for t in triples) and any(1 in t for t in triples) and len(triples) == 5
        assert any(len(set(t)) == 1 for t in triples)


def test_programs_that_were_compiled_together_do_what_they_do_alone() -> None:
    seeds = [1, 2, 3]
    assert [found for _, found in differences_of(seeds, WAYS["plain"], "0")] == [
        wrong(program_of(seed), concrete=False, silent=False) for seed in seeds
    ]


TEMPLATES = [
    (family, template)
    for table in (grammar.EXPRESSIONS, grammar.STATEMENTS)
    for family, templates in table.items()
    for template in templates
]


@pytest.mark.slow
def test_every_template_is_in_some_program(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = [
        template
        for family, template in dict.fromkeys(TEMPLATES)
        if not _can_be_drawn(family, template)
    ]
    assert dead == []


def _can_be_drawn(family: str, template: str) -> bool:
    for seed in range(60):
        drawn = Drawn(random.Random(seed))
        growing = Growing(drawn, programs._beginning(drawn), may_raise=True)
        growing.restart(range(len(growing.base.sizes)))
        for _ in range(seed % 5):
            growing.step()
        for _ in range(12):
            if growing.tries(family, template):
                return True
    return False


def test_what_eager_calls_its_own_mistake_is_not_compared() -> None:
    def program(message: str, x: Tensor) -> Any:
        raise RuntimeError(message)

    ours = call(eager, [torch.zeros(3)])
    for message, count in (("grad INTERNAL ASSERT FAILED at engine.cpp", 0), ("other", 1)):
        theirs = call(partial(program, message), [torch.zeros(3)])
        assert len(list(differences(ours, theirs, exact=False))) == count


def test_a_size_of_minus_one_is_eagers_mistake() -> None:
    def program(x: Tensor) -> Any:
        return [x.sum().expand(-1, 0)]

    theirs = call(program, [torch.zeros(3)])
    assert theirs.results[0].shape == (-1, 0)
    assert not list(differences(theirs, theirs, exact=True))
    assert not list(differences(call(eager, [torch.zeros(3)]), theirs, exact=False))


def test_a_line_that_makes_an_integer_of_infinity_is_not_taken() -> None:
    growing = Growing(
        Drawn(random.Random(0)),
        Fuzzed((Input("x0", ("a",), "float32", ("plain",)),), (), "x0"),
        False,
    )
    growing.restart(range(len(growing.base.sizes)))
    assert not growing.accepts("t0 = int(x0.sum() / 0 + float('inf'))", rounded=False)


def test_float64_that_was_float32_on_the_way_may_be_as_far_off_as_its_roundings_carry() -> None:
    eager, truth = torch.tensor([4e-8], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    assert not close(eager + 1e-6, eager, truth)
    assert close(eager + 1e-6, eager, truth, nudged=[truth + 1e-6])
    assert not close(eager + 1e-4, eager, truth, nudged=[truth + 1e-4])
    assert not close(eager * 1e-9 + 1e-6, eager * 1e-9, truth, nudged=[truth + 1e-6])


def test_operators_round_to_the_other_side_of_the_exact_result() -> None:
    x = torch.rand(100, requires_grad=True)
    with OtherRoundings(SIDES[0]):
        other = (x * 3).exp()
        (gradient,) = torch.autograd.grad((x * 3).sum(), x)
        whole, kept = torch.arange(5.0) * 2, x.detach().clone()[torch.arange(100)]
    plain = (x * 3).exp()
    exact = (x.double() * 3).exp()
    off = (other - plain).abs() / plain
    assert (off > 0).sum() > 50 and off.max() < 64 * torch.finfo(torch.float32).eps
    assert ((other - exact) * (plain - exact) <= 0).sum() > 50
    assert torch.equal(gradient, torch.full((100,), 3.0))
    assert torch.equal(whole, torch.arange(5.0) * 2) and torch.equal(kept, x)


def test_what_is_written_in_place_rounds_to_the_other_side_too() -> None:
    x, kept = torch.rand(100), torch.rand(100)
    with OtherRoundings(SIDES[0]):
        other = x.clone()
        other[10:].tanh_()
        copied = torch.zeros(100).copy_(kept)
        total = torch.zeros(3, dtype=torch.float64).add_(torch.ones(3))
    off = (other - torch.cat((x[:10], x[10:].tanh()))).abs()
    assert not off[:10].any() and (off > 0).sum() > 40
    assert off.max() < 4 * torch.finfo(torch.float32).eps
    assert torch.equal(copied, kept) and torch.equal(total, torch.ones(3).double())


def test_what_draws_numbers_has_no_reference_and_may_be_as_far_off_as_its_roundings_carry() -> None:
    eager = torch.tensor([1.0, 0.5])
    assert not close(eager + 1e-5, eager, None)
    assert close(eager + 1e-5, eager, None, nudged=[eager + 6e-6])
    assert not close(eager + 1e-4, eager, None, nudged=[eager + 1e-4])


CANCELS = {
    "a sum of terms that are 0": at(
        over(
            "a 4, 1",
            't = torch.nn.functional.kl_div(x0.log_softmax(-1), x0.softmax(-1), reduction="sum")',
            "x1 += t",
            "x1,",
            dtypes="float32 float64",
        ),
        (17, 9, 2),
    ),
    "products of a number that repeats": at(
        over(
            "4 4",
            "t = torch.nn.functional.gelu(x0)",
            "for k in range(3):\n    t = t + torch.nn.functional.linear(torch.nn.functional.gelu(t), x0.mT) * 0.1",
            "torch.nn.functional.gelu(torch.nn.functional.linear(t, x0.mT)),",
            layouts="expanded",
        ),
        (4, 3, 2),
    ),
}


@pytest.mark.parametrize("name", CANCELS)
def test_what_cancels_may_be_as_far_off_as_roundings_of_its_terms_carry(name: str) -> None:
    assert not wrong(CANCELS[name])


def test_roundings_above_and_below_enclose_what_is_exact() -> None:
    x, y = torch.rand(100), torch.rand(100)
    found = []
    for side in SIDES[1:3]:
        with OtherRoundings(side):
            found.append((x * y).double())
    exact, (below, above) = x.double() * y.double(), found
    assert (below <= exact).all() and (above >= exact).all()
    assert ((above - below) <= torch.finfo(torch.float32).eps * above).all()
