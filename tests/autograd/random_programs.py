"""Random programs of operators with gradients, as Python text: `python -m tests.autograd.random_programs
--seeds 0 500` differentiates each from outside and by a `backward()` inside, beside eager in float64; one of
three lies in a checkpoint.

A program is `def program(x, y, w)` over matrices (n, m), (n, m) and a vector (m,) that require
gradients; each line makes a tensor of the shape (n, m) or (m,) of earlier ones. It prints as it runs,
so that what fails can be pasted.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import anyshape

SIZES = ((3, 4), (1, 4), (5, 1), (2, 7), (0, 3))

UNARY = (
    *(
        "torch.tanh({})",
        "torch.sigmoid({})",
        "torch.sin({})",
        "torch.exp(-{}.abs())",
        "{}.square()",
    ),
    *(
        "F.gelu({})",
        "F.silu({})",
        "torch.relu({})",
        "{}.clamp(-0.5, 1.5)",
        "torch.log1p({}.square())",
    ),
    *(
        "{}.neg()",
        "{} * 0.5 + 1.0",
        "1.0 / (2.0 + {}.square())",
        "{}.detach() * {}",
        "F.softplus({})",
    ),
)
BINARY = (
    *("{} + {}", "{} * {}", "{} - {}", "torch.maximum({}, {})", "{} / (1.5 + {}.square())"),
    *(
        "torch.where({} > 0.1, {}, 0.5)",
        "torch.lerp({}, {}, 0.3)",
        "torch.atan2({}, {}.square() + 1.0)",
    ),
    *("torch.addcmul({}, {}, w)", "torch.hypot({}, {} + 2.0)", "torch.logaddexp({}, {})"),
)
MATRIX = (
    *("torch.softmax({}, -1)", "{} - {}.mean(0, keepdim=True)", "{}.cumsum(1)", "{}.flip(0)"),
    *("F.layer_norm({}, {}.shape[1:])", "{} / (1.0 + {}.sum(1, keepdim=True).square())"),
    *("({} @ {}.mT) @ {} * 0.1", "torch.cat([{}, {}])[: {}.shape[0]]", "{}.mT.contiguous().mT"),
    *("{}.tril()", "{}.roll(1, 1)", "{}.unsqueeze(0).expand(2, -1, -1).sum(0)"),
    *("{} * {}.amax(1, keepdim=True)", "torch.stack([{}, {}]).prod(0)", "{}.index_select(0, rows)"),
)
FUNCTIONS = (
    *(
        "Warped.apply({}, 1.5)",
        "Mixed.apply({}, {})[0]",
        "Mixed.apply({}, {})[1]",
        "Turned.apply({})",
    ),
    *("sum(Mixed.apply({}, {})[:2])", "Warped.apply(Turned.apply({}), -0.5)"),
)
"""Of the program's own: their gradients are not those of what they compute."""
IN_PLACE = ("{}.mul_(0.5)", "{}.add_({})", "{}[:1].mul_(2.0)", "{}.tanh_()")


class Warped(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        made = torch.tanh(x * scale)
        ctx.save_for_backward(made)
        ctx.scale = scale
        return made

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (made,) = ctx.saved_tensors
        return g * (1.5 - made * made) * ctx.scale, None


class Mixed(Function):
    """Two results with gradients, and one without."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        signs = x.sign()
        ctx.mark_non_differentiable(signs)
        return x * 0.5 + y, x * y, signs

    @staticmethod
    def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
        x, y = ctx.saved_tensors
        first, second = given[:2]
        dx = dy = None
        if first is not None:
            dx, dy = first * 0.25, first
        if second is not None:
            more = second * y, second * x * 2
            dx, dy = more if dx is None else (dx + more[0], dy + more[1])
        needed = ctx.needs_input_grad
        return dx if needed[0] else None, dy if needed[1] else None


class Turned(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return -0.5 * g


def program_text(seed: int, functions: bool = False) -> str:
    """One program."""
    forms = (UNARY, BINARY, MATRIX, FUNCTIONS) if functions else (UNARY, BINARY, MATRIX)
    choose = random.Random(seed)
    lines = ["rows = torch.arange(x.shape[0] - 1, -1, -1)"]
    matrices, made = ["x", "y"], []
    for number in range(choose.randint(3, 9)):
        name = f"t{number}"
        form = choose.choice(choose.choice(forms))
        operands = [choose.choice(matrices) for _ in range(form.count("{}"))]
        if form in BINARY and choose.random() < 0.25:
            operands[-1] = "w"
        text = form.format(*operands)
        if choose.random() < 0.1:
            lines += ["with torch.no_grad():", f"    frozen{number} = {text}"]
            text = f"frozen{number} * {choose.choice(matrices)}"
        lines.append(f"{name} = {text}")
        matrices.append(name)
        made.append(name)
        if choose.random() < 0.15:  # memory of its own, which no formula has saved
            lines.append(f"m{number} = {name} + 1.0")
            form = choose.choice(IN_PLACE)
            lines.append(form.format(f"m{number}", *["x"] * (form.count("{}") - 1)))
            matrices.append(f"m{number}")
    first, second = matrices[-1], choose.choice(matrices[2:])
    lines.append(f"return ({first}).sum() + ({second} * w).mean(0).sum()")
    return "\n".join(["def program(x, y, w):", *(f"    {line}" for line in lines)])


def made(text: str) -> Callable[..., Tensor]:
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    scope |= {function.__name__: function for function in (Warped, Mixed, Turned)}
    exec(text, scope)
    function: Callable[..., Tensor] = scope["program"]
    return function


def operands(rows: int, columns: int) -> tuple[Tensor, ...]:
    stream = torch.Generator().manual_seed(rows * 31 + columns)
    shapes = ((rows, columns), (rows, columns), (columns,))
    return tuple(
        torch.randn(s, generator=stream, dtype=torch.float64).requires_grad_() for s in shapes
    )


def inside(program: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The program, which differentiates itself."""

    def step(*given: Tensor) -> Tensor:
        loss = program(*given)
        loss.backward()
        return loss.detach()

    return step


def again(program: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The program in a checkpoint: what it computes is computed again for its gradients."""
    return lambda *given: checkpoint(program, *given, use_reentrant=False)


def check(seed: int, functions: bool = False) -> anyshape.api.CompiledFunction:
    """Raises ``AssertionError`` with the program where a gradient is not eager's."""
    text = program_text(seed, functions)
    program = again(made(text)) if seed % 3 == 2 else made(text)
    compiled, whole = anyshape.compile(program), anyshape.compile(inside(program))
    for rows, columns in SIZES:
        expected = _gradients(inside(program), rows, columns)
        found = _gradients(lambda *given: _then_backward(compiled, given), rows, columns)
        within = _gradients(whole, rows, columns)
        for how, one in (("from outside", found), ("inside", within)):
            try:
                torch.testing.assert_close(one, expected, rtol=1e-7, atol=1e-9, equal_nan=True)
                assert [g is None for g in one] == [g is None for g in expected]
            except (AssertionError, TypeError) as error:
                raise AssertionError(
                    f"seed {seed}, {how}, {rows}x{columns}\n{text}\n{error}"
                ) from error
    stats = compiled.stats(), whole.stats()
    assert all(s.internal_errors == 0 for s in stats), text
    return whole


def _then_backward(run: Callable[..., Tensor], given: tuple[Tensor, ...]) -> Tensor:
    loss = run(*given)
    loss.backward()
    return loss.detach()


def _gradients(run: Callable[..., Tensor], rows: int, columns: int) -> list[Tensor | None]:
    given = operands(rows, columns)
    loss = run(*given)
    return [loss, *(tensor.grad for tensor in given)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 100))
    parser.add_argument("--functions", action="store_true", help="with autograd.Function in them")
    wrong = []
    eager = 0
    arguments = parser.parse_args()
    for seed in range(*arguments.seeds):
        try:
            eager += bool(check(seed, arguments.functions).stats().eager_graphs)
        except AssertionError as error:
            wrong.append(seed)
            print(error, flush=True)
    print(f"{len(range(*arguments.seeds))} programs, {eager} run by eager torch, wrong: {wrong}")


if __name__ == "__main__":
    main()
