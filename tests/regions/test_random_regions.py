"""Random loops in branches in loops, beside the same on eager tensors.

A program is a tree: steps on a list of tensors of one shape, some of which are loops over a count,
a size or the rows of a list, or branches on a tensor's value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from anyshape.driver import Driver
from anyshape.ir.dtypes import int64
from anyshape.ir.verify_program import verify_program
from anyshape.ops.regions import branch, loop
from tests.regions.cases import OPTIONS, Making, tensors

SEEDS = 16
SIZES = [(3, 4, 2), (1, 2, 3), (2, 1, 0), (0, 3, 1), (4, 0, 2)]


@dataclass(frozen=True)
class Step:
    """``kind`` of which tensors; ``inside``: the steps of its bodies."""

    kind: str
    of: tuple[int, ...]
    inside: tuple[tuple[Step, ...], ...] = ()


def grown(rng: random.Random, width: int, depth: int) -> tuple[Step, ...]:
    kinds = ["tanh", "add", "product", "half", "normal", "swap"]
    nested = ["count", "size", "rows", "branch", "write"]
    steps = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(nested if depth and rng.random() < 0.6 else kinds)
        of = tuple(rng.randrange(width) for _ in range(2))
        bodies = {"branch": 2}.get(kind, 1) if kind in nested else 0
        inside = tuple(grown(rng, width, depth - 1) for _ in range(bodies))
        steps.append(Step(kind, of, inside))
    return (*steps, *(Step("half", (n, n)) for n in range(width) if rng.random() < 0.3))


def build(b: Any, steps: Sequence[Step], xs: list[Any], w: Any, n: Any, turn: Any) -> list[Any]:
    for step in steps:
        i, j = step.of
        x, y = xs[i], xs[j]

        def body(b: Any, turn: Any, *given: Any, inside: Any = step.inside) -> tuple[Any, ...]:
            *xs, w, n = given
            return tuple(build(b, inside[0], xs, w, n, turn))

        match step.kind:
            case "tanh":
                xs[i] = b.tanh(x)
            case "add":
                xs[i] = b.add(b.mul(x, 0.5), b.add(y, turn))
            case "product":
                xs[i] = b.tanh(b.mm(x, w))
            case "half":
                xs[i] = b.mul(x, 0.5)
            case "normal":
                xs[i] = b.softmax(x, -1)
            case "swap":
                xs[i], xs[j] = y, x
            case "write":
                xs[i] = kept = b.mul(x, 0.5)
                numbers = loop(b, n, (2,), (kept, *xs[:i], *xs[i + 1 :], w, n), writing(step, i))
                xs[j] = b.add(xs[j], numbers[0])
            case "branch":
                sides = [
                    lambda b, *given, part=part: tuple(
                        build(b, part, list(given[:-2]), *given[-2:], turn)
                    )
                    for part in step.inside
                ]
                xs = [*branch(b, b.gt(b.sum(x, (0, 1), False), 0.0), (*xs, w, n), *sides)]
            case kind:
                rows = b.arange(x.shape[0], 0, 1, int64, "cpu")
                trips = {"count": n, "size": x.shape[0], "rows": rows}[kind]
                xs = [*loop(b, trips, tuple(xs), (w, n), body)]
    return xs


def writing(step: Step, i: int) -> Any:
    """A body that writes what its steps make of all tensors to the one at ``i``, and counts."""

    def body(b: Any, turn: Any, number: Any, kept: Any, *given: Any) -> tuple[Any, ...]:
        *others, w, n = given
        made = build(b, step.inside[0], [*others[:i], kept, *others[i:]], w, n, turn)
        b.copy_(kept, b.mul(made[i], 0.5))
        return (number + turn,)

    return body


def eager(steps: Sequence[Step], xs: list[Any], w: Any, n: int, turn: int) -> list[Any]:
    xs = list(xs)
    for step in steps:
        i, j = step.of
        x, y = xs[i], xs[j]
        match step.kind:
            case "tanh":
                xs[i] = torch.tanh(x)
            case "add":
                xs[i] = x * 0.5 + (y + turn)
            case "product":
                xs[i] = torch.tanh(x @ w)
            case "half":
                xs[i] = x * 0.5
            case "normal":
                xs[i] = torch.softmax(x, -1)
            case "swap":
                xs[i], xs[j] = y, x
            case "write":
                xs[i] = x * 0.5
                for number in range(n):
                    xs[i] = eager(step.inside[0], xs, w, n, number)[i] * 0.5
                xs[j] = xs[j] + (2 + n * (n - 1) // 2)
            case "branch":
                xs = eager(step.inside[0 if x.sum() > 0 else 1], xs, w, n, turn)
            case kind:
                for number in range(n if kind == "count" else len(x)):
                    xs = eager(step.inside[0], xs, w, n, number)
    return xs


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_loops_and_branches_are_as_eager_runs_them(seed: int) -> None:
    rng = random.Random(seed)
    width = rng.randint(1, 3)
    steps = grown(rng, width, 2)
    m = Making()
    xs = [m.x, *(m.b.mul(m.x, float(k)) for k in range(2, width + 1))]
    graph = m.b.finish(tuple(build(m.b, steps, xs, m.w, m.n, 0)))
    compiled: Any = Driver.create(OPTIONS).compile_graph(graph, {})
    verify_program(compiled.program, graph.facts)
    for sizes in SIZES:
        x, w, n = tensors(*sizes)
        w = w * 0.3
        wanted = eager(steps, [x, *(x * float(k) for k in range(2, width + 1))], w, int(n), 0)
        for one, other in zip(compiled.run(x, w, n), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
