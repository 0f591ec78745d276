"""Random programs whose arguments and results are written between the call and its gradients, as
Python text: `python -m tests.autograd.random_writes --seeds 0 500` compares what each gradient is,
and whether it is refused, with eager torch.

A program is `def program(x, y, w)` of `random_programs.py` that returns several of the tensors on its
way. What is done behind the call is a list of steps: writes (under `no_grad`, recorded, through
`detach()`) and gradients of results with respect to arguments and other results, some of them
differentiated again.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import anyshape
from tests.autograd.random_programs import BINARY, IN_PLACE, MATRIX, UNARY, made, operands

SIZES = ((3, 4), (1, 4), (5, 1), (2, 7))
LINEAR = ("{} * 2", "{} + 1.0", "{} - {}", "{} + w", "{}.neg()", "{} * w.sum()")
FORMS = ("{}.mul_(1.5)", "{}.add_(0.5)", "{}.copy_({}.detach() * 0.7)", "{}[:1].mul_(2.0)")
WAYS = ("no_grad", "recorded", "detach")
Step = tuple[Any, ...]


def program_of(choose: random.Random) -> tuple[str, int]:
    """The text of a program, and how many results it has."""
    lines = ["rows = torch.arange(x.shape[0] - 1, -1, -1)"]
    names, kept = ["x", "y"], []
    for number in range(choose.randint(2, 6)):
        form = choose.choice(choose.choice((UNARY, BINARY, MATRIX, LINEAR, LINEAR)))
        parts = [choose.choice(names) for _ in range(form.count("{}"))]
        if form in BINARY and choose.random() < 0.25:
            parts[-1] = "w"
        lines.append(f"t{number} = {form.format(*parts)}")
        names.append(f"t{number}")
        kept.append(f"t{number}")
        if choose.random() < 0.1:
            form = choose.choice(IN_PLACE)
            lines.append(f"m{number} = t{number} + 1.0")
            lines.append(form.format(f"m{number}", *["x"] * (form.count("{}") - 1)))
            names.append(f"m{number}")
    results = sorted({kept[-1], *choose.sample(kept, choose.randint(0, min(3, len(kept))))})
    lines.append(f"return ({', '.join(results)},)")
    text = "\n".join(["def program(x, y, w):", *(f"    {line}" for line in lines)])
    return text, len(results)


def steps_of(choose: random.Random, count: int) -> list[Step]:
    found: list[Step] = []
    tensors = [*"xyw", *(f"r{i}" for i in range(count))]
    for _ in range(choose.randint(1, 3)):
        for _ in range(choose.randint(0, 2)):
            target = choose.choice(tensors)
            found.append(("write", target, choose.choice(FORMS), choose.choice(WAYS)))
        of = f"r{choose.randrange(count)}"
        ends = choose.sample(tensors, choose.randint(1, len(tensors)))
        found.append(("gradient", of, tuple(ends), choose.random() < 0.5))
        if choose.random() < 0.4:
            target = choose.choice(tensors)
            found.append(("write", target, choose.choice(FORMS), choose.choice(WAYS)))
        if found[-1][-1] is True or choose.random() < 0.3:
            found.append(("second", choose.choice(["x", "y", "w"])))
    return found


def case_of(seed: int) -> tuple[str, list[Step]]:
    choose = random.Random(seed)
    text, count = program_of(choose)
    return text, steps_of(choose, count)


def outcomes(
    run: Callable[..., Any], steps: list[Step], rows: int, columns: int, leaves: bool
) -> list[Any]:
    """Of each gradient its values, or what refused it."""
    given = operands(rows, columns)
    given = given if leaves else tuple(t * 1 for t in given)
    try:
        made = run(*given)
    except RuntimeError as error:
        return [_kind(error)]
    of = dict(zip("xyw", given)) | {f"r{i}": tensor for i, tensor in enumerate(made)}
    found: list[Any] = []
    gradients: list[Tensor | None] = []
    for step in steps:
        try:
            match step:
                case ("write", target, form, way):
                    _write(of, target, form, way)
                case ("gradient", result, ends, create):
                    loss = (
                        of[result] * torch.arange(1, 1 + of[result].numel()).view_as(of[result])
                    ).sum()
                    several = [of[end] for end in ends]
                    gradients = []
                    gradients = list(
                        torch.autograd.grad(
                            loss, several, create_graph=create, retain_graph=True, allow_unused=True
                        )
                    )
                    found.append(_seen(gradients))
                case ("second", end):
                    total = sum(g.square().sum() for g in gradients if g is not None)
                    gradient = torch.autograd.grad(
                        total, of[end], retain_graph=True, allow_unused=True
                    )
                    found.append(_seen(gradient))
        except (RuntimeError, AttributeError, TypeError) as error:
            found.append(_kind(error))
    found.append(_seen(made))
    return found


def _seen(tensors: Any) -> list[Tensor | None]:
    return [None if t is None else t.detach().clone() for t in tensors]


def _kind(error: Exception) -> str:
    return str(error)[:400]


def _write(of: dict[str, Tensor], target: str, form: str, way: str) -> None:
    scope: dict[str, Any] = {"t": of[target].detach() if way == "detach" else of[target]}
    with torch.set_grad_enabled(way == "recorded"):
        exec(form.format(*["t"] * form.count("{}")), scope)


def judged(ours: list[Any], theirs: list[Any]) -> tuple[str, int] | None:
    """What differs first, and at which gradient."""
    for number, (one, other) in enumerate(zip(ours, theirs)):
        if isinstance(one, str) != isinstance(other, str):
            return ("given" if isinstance(other, str) else "refused", number)
        if isinstance(one, str):
            continue
        if [g is None for g in one] != [g is None for g in other]:
            return "absent", number
        try:
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9, equal_nan=True)
        except AssertionError:
            return "wrong", number
    return None if len(ours) == len(theirs) else ("refused", 0)


def check(seed: int) -> tuple[str, str] | None:
    """What differs from eager torch, and a text that tells of it."""
    text, steps = case_of(seed)
    compiled = anyshape.compile(made(text))
    for number, (rows, columns) in enumerate(SIZES):
        leaves = (seed + number) % 2 == 0
        ours, theirs = (
            outcomes(run, steps, rows, columns, leaves) for run in (compiled, made(text))
        )
        found = judged(ours, theirs)
        if found is not None:
            kind, at = found
            told = f"{text}\n# {steps}\n# {rows}x{columns} leaves={leaves} at {at}\n# ours: {ours[at]}\n# eager: {theirs[at]}"
            return kind, f"seed {seed}: {kind}\n{told}\n"
    if compiled.stats().internal_errors:
        return "internal", f"seed {seed}\n{text}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 100))
    found: dict[str, list[int]] = {}
    for seed in range(*parser.parse_args().seeds):
        torch.manual_seed(seed)
        wrong = check(seed)
        if wrong is not None:
            found.setdefault(wrong[0], []).append(seed)
            print(wrong[1], flush=True)
    print({kind: (len(seeds), seeds) for kind, seeds in found.items()})


if __name__ == "__main__":
    main()
