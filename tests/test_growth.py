"""Capture, passes, scheduling and code generation take work linear in the program.

Calls of functions are counted, not seconds: they are the same on every machine.
"""

from __future__ import annotations

import cProfile
import functools
import pstats
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.capture.tensors import second_gradients
from anyshape.symbolic import Facts, Space, any_of, eq, ge, le, minimum, total
from anyshape.targets.cpu import native_regions
from anyshape.tools.models import MODELS, Recipe
from benchmarks import growth

Program = tuple[Callable[..., Any], tuple[Tensor, ...]]
MANY_SIZES = ("sliced", "sliced_again", "grouped", "masked", "found", "running_offsets", "packed")
SLACK = 1.25  # of work for each part of the larger program


def pointwise(count: int) -> Program:
    def program(x: Tensor) -> Tensor:
        for i in range(count):
            x = x * 1.01 + i
        return x

    return program, (torch.ones(5, 3),)


def layers(count: int) -> Program:
    made = (nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(count))
    return nn.Sequential(*made).eval(), (torch.ones(5, 8),)


def arguments(count: int) -> Program:
    def program(*xs: Tensor) -> Tensor:
        whole = xs[0].sum()
        for x in xs[1:]:
            whole = whole + x.sum() * x.shape[0]
        return whole

    return program, tuple(torch.ones(3 + i % 7) for i in range(count))


def slices(count: int) -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.cat([x[i:] * i for i in range(count)])

    return program, (torch.ones(count + 3),)


def guards(count: int) -> Program:
    def program(x: Tensor) -> Tensor:
        for i in range(count):
            if x.shape[0] * i > 3 * i + 1:
                x = x + i
        return x

    return program, (torch.ones(9),)


def writes(count: int) -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        for i in range(count):
            y[i % 3] += 1
        return y

    return program, (torch.ones(5, 3),)


def sizes_from_data(count: int) -> Program:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        for row in lengths.unbind():
            parts = torch.split(x, row.tolist())
            x = torch.cat([part.flip(0) for part in parts]) * 2 + 1
        return x

    lengths = torch.ones(2, count, dtype=torch.int64)
    return program, (torch.randn(count), lengths)


def windows(count: int) -> Program:
    """Each layer pads to whole windows, takes the largest of each, and halves an even size."""

    def program(x: Tensor) -> Tensor:
        whole = x.sum()
        for _ in range(count):
            height, width = x.shape[1:]
            padded = nn.functional.pad(x, (0, -width % 4, 0, -height % 4))
            rows, columns = padded.shape[1] // 4, padded.shape[2] // 4
            apart = padded.view(-1, rows, 4, columns, 4).transpose(2, 3)
            whole = whole + apart.reshape(-1, 16).amax(1).sum()
            if height % 2 == 1 or width % 2 == 1:
                x = nn.functional.pad(x, (0, width % 2, 0, height % 2))
            x = x[:, ::2, ::2] + x[:, 1::2, 1::2]
        return whole

    return program, (torch.ones(2, 64, 96),)


PROGRAMS: Mapping[Callable[[int], Program], tuple[int, int]] = {
    pointwise: (50, 200),
    layers: (4, 16),
    arguments: (20, 80),
    slices: (32, 128),
    guards: (10, 40),
    writes: (10, 40),
    sizes_from_data: (64, 256),
}


def work(make: Callable[[int], Program], count: int) -> int:
    """How many functions a first call calls."""
    function, inputs = make(count)
    fast = anyshape.compile(function, fullgraph=True)
    profile = cProfile.Profile()
    with torch.no_grad():
        profile.enable()
        fast(*inputs)
        profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_work_is_linear_in_the_program(make: Callable[[int], Program]) -> None:
    few, many = PROGRAMS[make]
    work(make, 2)  # what is loaded once
    assert work(make, many) < SLACK * many / few * work(make, few)


def step_work(count: int) -> int:
    """The same of the first two steps of a training, which are two specializations."""
    made = (nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(count))
    net = nn.Sequential(*made)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    fast = anyshape.compile(step, fullgraph=True)
    profile = cProfile.Profile()
    profile.enable()
    for rows in (5, 3):
        fast(torch.ones(rows, 8))
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def test_work_of_a_training_step_is_linear_in_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    few, many = 6, 24
    step_work(2)  # what is loaded once
    assert step_work(many) < SLACK * many / few * step_work(few)


# ---- gradients of gradients ----------------------------------------------------------------------
def nested_gradients(count: int, order: int) -> Program:
    """Of so many layers, differentiated so often, and once more by `backward()`."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(count)))

    def step(x: Tensor) -> None:
        at = x.clone().requires_grad_()
        made = net(at)
        for _ in range(order):
            (made,) = torch.autograd.grad(made.sum(), at, create_graph=True)
        made.square().sum().backward()

    return step, (torch.ones(3, 6),)


def inner_steps(count: int) -> Program:
    """Each is differentiated again, as in MAML."""
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))

    def step(x: Tensor) -> None:
        fast = dict(net.named_parameters())
        for _ in range(count):
            loss = torch.func.functional_call(net, fast, (x,)).square().mean()
            slopes = torch.autograd.grad(loss, [*fast.values()], create_graph=True)
            fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), slopes, strict=True)}
        torch.func.functional_call(net, fast, (x,)).square().mean().backward()

    return step, (torch.ones(3, 6),)


def work_again(program: Program, patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many functions a first call calls, and how many nodes run once more without memory."""
    function, inputs = program
    runs, run = [], second_gradients.run_node
    patch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    patch.setattr(second_gradients, "run_node", lambda *args: (runs.append(1), run(*args)))
    profile = cProfile.Profile()
    fast = anyshape.compile(function, fullgraph=True)
    profile.enable()
    fast(*inputs)
    profile.disable()
    patch.undo()
    return int(pstats.Stats(profile).total_calls), len(runs)  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_work_of_nested_gradients_is_linear_in_the_layers(
    order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_again(nested_gradients(2, order), monkeypatch)  # what is loaded once
    found = [work_again(nested_gradients(n, order), monkeypatch) for n in (4, 8, 16)]
    for (calls, runs), (more_calls, more_runs) in pairwise(found):
        assert more_calls < SLACK * 2 * calls
        assert more_runs < 2 * runs
    assert found[-1][1] <= 2 * 16 + 4 + 2 * order  # each node once


def test_what_runs_once_more_runs_once_for_all_inner_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, four, eight = (work_again(inner_steps(n), monkeypatch)[1] for n in (1, 2, 4, 8))
    assert four - two == 2 * (two - one) and eight - four == 4 * (two - one)


def demo_model(name: str) -> Callable[[int], Program]:
    """A model of the demo with so many layers."""

    def make(count: int) -> Program:
        model, recipe = MODELS[name], Recipe(layers=count)
        built = model.build(recipe)
        return functools.partial(built, **model.inputs(2, 7, model.masks[0], recipe)), ()

    return make


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.library == "transformers"])
def test_a_model_of_96_layers_is_at_most_three_and_a_bit_of_32(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the verifier, which is no part of a compile."""
    monkeypatch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    make = demo_model(name)
    work(make, 2)
    times = work(make, 96) / work(make, 32)
    print(f"{name}: {times:.2f}")  # for the page of benchmarks: `pytest -rP`
    assert times < 3.2


def counted(make: Callable[[int], Program], count: int) -> tuple[int, int]:
    """The questions about sizes of a first call, and the steps that they took."""
    function, inputs = make(count)
    fast = anyshape.compile(function)
    torch.testing.assert_close(fast(*inputs), function(*inputs))
    return fast.stats().questions, fast.stats().solver_steps


@pytest.mark.parametrize("name", MANY_SIZES)
def test_questions_and_their_steps_are_linear_in_the_number_of_sizes(name: str) -> None:
    few, many = (counted(growth.PROGRAMS[name], count) for count in (24, 96))
    assert many[0] < SLACK * 4 * few[0]
    assert many[1] <= SLACK * 4 * max(few[1], 1000)


def test_sizes_nested_in_one_another_take_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the verifier, which asks anew at each stage of so many sizes."""
    monkeypatch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    few, many = (counted(growth.found_and_joined, count) for count in (24, 72))
    assert many[0] < 20 * 72
    assert many[1] < SLACK * 3 * few[1]


def padded_to_the_longest(count: int) -> Program:
    """Parts added up, each padded to the longest so far."""

    def program(x: Tensor, lengths: Tensor) -> Tensor:
        whole, *parts = x.split(lengths.tolist())
        for part in parts:
            longest = max(whole.shape[0], part.shape[0])
            longer = nn.functional.pad(whole, (0, longest - whole.shape[0]))
            whole = longer + nn.functional.pad(part, (0, longest - part.shape[0]))
        return whole

    lengths = torch.arange(count) % 5
    return program, (torch.randn(int(lengths.sum())), lengths)


def rounded_up(count: int) -> Program:
    """What is found, padded to a multiple of four, again and again."""

    def program(x: Tensor) -> Tensor:
        for _ in range(count):
            x = x[(x > -1).nonzero().squeeze(1)] - 0.01
            x = nn.functional.pad(x, (0, -x.shape[0] % 4), value=0.5)
        return x

    return program, (torch.randn(21),)


def halved_and_joined(count: int) -> Program:
    """Half of what is there, and what was found: quotients and extrema in one another."""

    def program(x: Tensor) -> Tensor:
        for _ in range(count):
            found = x[(x > 0).nonzero().squeeze(1)]
            x = torch.cat([x[: x.shape[0] // 2] + 0.25, found * 0.5])[-24:]
        return x

    return program, (torch.randn(16),)


@pytest.mark.parametrize("make", [padded_to_the_longest, rounded_up, halved_and_joined])
def test_programs_like_them_take_linear_work(
    make: Callable[[int], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 64 on sizes are nested more deeply than is looked into."""
    monkeypatch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    few, many = (counted(make, count) for count in (64, 192))
    assert many[0] < SLACK * 3 * few[0]
    assert many[1] < SLACK * 3 * max(few[1], 1000)


def test_work_on_sizes_nested_in_one_another_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions called, too: no walk goes through all that is nested in a size."""
    monkeypatch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    few, many = (work(growth.found_and_joined, count) for count in (100, 300))
    assert many < 1.1 * 3 * few


def test_windows_of_padded_sizes_take_few_steps() -> None:
    """Sizes that are rounded up again and again have one form each, so that most is seen at once;
    without it one of these layers took 410,000 steps, and two took minutes."""
    counts = [counted(windows, count) for count in (1, 2, 4)]
    assert [steps for _, steps in counts][-1] < 400_000
    assert all(questions < 200 * layers for (questions, _), layers in zip(counts, (1, 2, 4)))


def halved(width: int) -> Program:
    """A function that calls itself on both halves of the last dimension, until one is left."""

    def tree(x: Tensor) -> Tensor:
        n = x.shape[-1]
        if n <= 1:
            return x.sum(-1)
        return tree(x[..., : n // 2]) + tree(x[..., n // 2 :]) * 2

    return tree, (torch.randn(2, width),)


def test_a_function_that_calls_itself_on_parts_of_a_size_takes_linear_work() -> None:
    """Both sides of its branch are run inside each other once, not from each call anew (2,301
    questions for 13 elements), and halves of halves are quotients of one size (200,000 steps for
    32 elements where they were differences)."""
    few, many = (counted(halved, width) for width in (8, 32))
    assert many[0] < 4 * few[0] < 1000
    assert many[1] < 4 * max(few[1], 10_000)


def test_elements_at_constant_indices_are_one_kernel() -> None:
    def picked(x: Tensor) -> list[Tensor]:
        return [x[position] * 2 for position in range(20)]

    fast = anyshape.compile(picked)
    x = torch.randn(23)
    torch.testing.assert_close(fast(x), picked(x))
    assert fast.stats().kernels == 1


def test_equal_work_on_other_shapes_is_one_kernel() -> None:
    """What an extent or a stride is made of is computed by whoever launches."""
    wide = [nn.Linear(8, width) for width in (16, 24, 32)]
    narrow = [nn.Linear(layer.out_features, 8) for layer in wide]

    def program(x: Tensor, y: Tensor) -> Tensor:
        x = torch.cat([x, y])
        for up, down in zip(wide, narrow, strict=True):
            x = down(nn.functional.gelu(up(x)))
        parts = [x[: y.shape[0]], x[y.shape[0] :], x]
        return sum(part.transpose(0, 1).contiguous().sum() for part in parts)

    fast = anyshape.compile(program)
    with torch.no_grad():
        for rows in (3, 0, 1, 40):
            given = torch.randn(rows, 5, 8), torch.randn(2, 5, 8)
            torch.testing.assert_close(fast(*given), program(*given), rtol=1e-4, atol=1e-4)
    stats = fast.stats()
    assert (stats.specializations, stats.kernels) == (1, 5)


@pytest.mark.parametrize("name", MANY_SIZES)
def test_the_c_compiler_sees_no_more_where_there_are_more_sizes(name: str) -> None:
    """Sizes are data of a native region, and parts behind one another run one kernel."""
    texts = []
    for count in (40, 160):
        function, inputs = growth.PROGRAMS[name](count)
        fast = anyshape.compile(function)
        fast(*inputs)
        _, *functions = fast.code().split("\nlong step_")
        texts.append((fast.stats().kernels, len(functions)))
    few, many = texts
    assert many[0] <= few[0] + 1 and many[1] <= few[1] + 1


def test_questions_about_one_of_a_chain_of_sizes_look_at_no_other() -> None:
    """Facts without a circle have told ranges all that they know."""
    space = Space()
    facts, sizes = Facts(space), [space.fresh("u") for _ in range(400)]
    for one, next_one in pairwise(sizes):
        facts.assume(le(next_one, one))
    steps = space.work.steps
    assert all(facts.known(ge(size, 3)) is None for size in sizes)
    assert facts.trees.independent(sizes[200].symbols) and space.work.steps == steps
    facts.assume(le(sizes[0] + sizes[3], 100))
    assert not facts.trees.independent(sizes[200].symbols)
    assert facts.known(le(sizes[3] + sizes[5], 100)) is True


@pytest.mark.parametrize("count", [20, 80, 300])
def test_facts_about_many_sizes_hear_of_each_of_them(count: int) -> None:
    """Those about more than some are kept in one list, and not at each size."""
    space = Space()
    facts, whole = Facts(space), space.fresh("s")
    sizes = [space.fresh("u") for _ in range(count)]
    facts.assume(le(total(sizes), whole))
    few = le(total(sizes), 10)
    assert facts.known(few) is None and facts.known(le(sizes[3], 10)) is None
    known, solved = facts.fork(), facts.fork()
    known.assume(le(whole, 10))
    assert known.known(few) is (True if count < 48 else None)
    assert known.known(le(sizes[3], 10)) is (True if count < 256 else None)
    solved.assume(eq(whole, 10))
    assert solved.known(few) is True
    assert facts.known(few) is None


def test_facts_about_partial_sums_are_not_kept_at_each_of_their_sizes() -> None:
    space = Space()
    facts, whole = Facts(space), space.fresh("s")
    first = offset = space.fresh("u")
    for _ in range(400):
        offset = offset + space.fresh("u")
        facts.assume(le(offset, whole))
    (symbol,) = first.symbols
    kept = [table.get(symbol) for table in (facts.mentions, facts.followers)]
    assert all(chain is not None and chain[2] < 100 for chain in kept)


def test_buffers_are_compared_with_what_may_be_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arena asks no more of a sum of 16 other sizes, nor of one that these are taken from."""
    monkeypatch.setenv("ANYSHAPE_VERIFY_PROGRAMS", "0")
    assert counted(growth.packed, 256)[0] < 8 * 256


def test_a_new_size_beside_nested_ones_leaves_their_answers() -> None:
    """A first fact about a size says nothing of the older ones, however they are nested in it."""
    space = Space()
    facts = Facts(space)
    size = space.fresh("s")
    asked = []
    for _ in range(12):
        found = space.fresh("u")
        facts.assume(le(found, size))
        asked.append(ge(size + found, 16))
        assert facts.known(asked[-1]) is None
        size = minimum(size + found, 16)
    before = space.work.questions
    assert [facts.known(one) for one in asked] == [None] * 12
    assert space.work.questions == before
    steps = space.work.steps
    assert facts.known(eq(size, 1)) is None and space.work.steps - steps < 2000


def test_alternatives_that_say_what_a_size_of_their_own_is_cost_others_nothing() -> None:
    """The stride of an empty tensor is any, of others what the sizes say: such a fact for each of
    many tensors made each comparison of two of them a search of 490 steps."""
    space = Space()
    facts, batch = Facts(space), space.fresh("s")
    facts.assume(ge(batch, 1))
    sizes, strides = ([space.fresh(stem) for _ in range(8)] for stem in "sn")
    for size, stride in zip(sizes, strides, strict=True):
        facts.assume(any_of(eq(stride, 16 * size), eq(size, 0)))
    before = space.work.steps
    for one, other in pairwise(sizes):
        assert facts.known(le(one, other)) is None and facts.known(eq(one, 0)) is None
        assert facts.known(le(batch * one, batch * other)) is None
    assert space.work.steps - before < 40 * 8
    assert facts.known(le(16 * sizes[0], strides[0])) is True  # 0 is at most any stride
    short = facts.fork()
    short.assume(le(strides[0], 100))
    short.assume(ge(sizes[0], 1))
    assert short.known(le(sizes[0], 6)) is True
    tied = facts.fork()
    tied.assume(le(strides[0], sizes[1]))
    assert tied.known(le(16 * sizes[0], sizes[1])) is True


def test_what_an_operation_says_itself_is_seen_among_many_facts() -> None:
    """The steps of one question are spent on the operands long before the whole is looked at."""
    space = Space()
    facts = Facts(space)
    size = space.fresh("s")
    for _ in range(16):
        found = space.fresh("u")
        facts.assume(le(found, size))
        grown = size + found
        size = minimum(grown, 16)
    under = facts.under(ge(size, 1))
    assert under.known(ge(grown, size)) is True and under.known(ge(size, grown)) is None


def test_ranges_of_deep_chains_need_no_search() -> None:
    space = Space()
    facts = Facts(space)
    size = space.fresh("s")
    for number in range(1500):
        size = minimum(size + space.fresh("u"), 16 + number % 2)
    steps = space.work.steps
    assert facts.known(ge(size, 0)) is True and facts.known(le(size, 17)) is True
    assert facts.bounds(size * 2 + 1) == (1, 35)
    assert space.work.steps == steps


@pytest.mark.parametrize("name", ["grouped", "packed"])
def test_what_groups_lie_in_is_asked_once_for_each(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    below = native_regions._Memory.below

    def counting(memory: native_regions._Memory, name: str) -> tuple[str, ...]:
        asked.append(name)
        return below(memory, name)

    monkeypatch.setattr(native_regions._Memory, "below", counting)
    counts = []
    for size in (24, 96):
        asked.clear()
        function, inputs = growth.PROGRAMS[name](size)
        anyshape.compile(function, options={"cache": False})(*inputs)
        counts.append(len(asked))
    assert counts[1] <= 5 * counts[0]


def test_parts_that_are_joined_in_two_rounds_take_linear_work() -> None:
    """More than 256 are: memory that nobody reads again is compared with nothing."""
    (asked, steps), (asked_more, steps_more) = (counted(growth.packed, n) for n in (100, 400))
    assert asked_more <= 4 * SLACK * asked
    assert steps_more <= 4 * SLACK * steps
