"""An argument is written behind the call: eager refuses the gradient, has saved a copy, or reads
what was written; so does what is compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.errors import AnyshapeWarning
from anyshape.runtime import saved_values

Function = Callable[[Tensor, Tensor], Tensor]
IDS = torch.tensor([[0, 1], [2, 3]])

FUNCTIONS: dict[str, Function] = {
    "kron": torch.kron,
    "kron and a product": lambda x, y: torch.kron(x, y).sum() * y,
    "matmul": lambda x, y: x @ y,
    "matmul of what is repeated": lambda x, y: x.expand(3, 4, 4) @ y,
    "matmul of a batch": lambda x, y: x.expand(3, 4, 4) @ y[None],
    "linear of what is repeated": lambda x, y: F.linear(x.expand(2, 3, 4, 4), y, y[0]),
    "einsum": lambda x, y: torch.einsum("bij,bjk->bik", x.expand(3, 4, 4), y.expand(3, 4, 4)),
    "tensordot": lambda x, y: torch.tensordot(x.expand(3, 4, 4), y.expand(3, 4, 4), ([0, 1], [0, 2])),
    "inner": torch.inner,
    "bilinear": lambda x, y: F.bilinear(x, y, y.expand(2, 4, 4)),
    "group_norm": lambda x, y: F.group_norm(x[None].mT, 2, y[0], y[1]),
    "weights of samples": lambda x, y: F.embedding_bag(IDS, x, per_sample_weights=y[:2, :2], mode="sum"),
    "float_power": lambda x, y: torch.float_power(x.abs() + 1, y.abs()),
    "float_power of arguments": torch.float_power,
    "a reflected edge": lambda x, y: F.pad(x * 1 + y, (1, 1), mode="reflect") + F.pad(y, (1, 1), "reflect"),
    "a repeated edge": lambda x, y: F.pad(x, (1, 1), mode="replicate") * 2,
    "an edge of zeros": lambda x, y: F.pad(x, (1, 1)),
    "a turned edge": lambda x, y: F.pad(x, (1, 1), mode="circular"),
    "var_mean": lambda x, y: torch.stack(torch.var_mean(x, 0)),
    "std_mean": lambda x, y: torch.stack(torch.std_mean(x, 0)),
    "a loss of what is computed": lambda x, y: F.smooth_l1_loss(x * 2, y.detach()),
    "what a kept argument goes with is a view": lambda x, y: F.mse_loss(x.t(), y.detach()),
}  # fmt: skip
LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "in rows": lambda: torch.randn(4, 4),
    "turned": lambda: torch.randn(4, 4).t(),
    "repeated": lambda: torch.randn(1, 4).expand(4, 4),
}


@pytest.mark.filterwarnings(f"error::{AnyshapeWarning.__module__}.{AnyshapeWarning.__name__}")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_written_behind_the_call_is_refused_or_read_as_in_eager(
    name: str, layout: str
) -> None:
    function = FUNCTIONS[name]
    fast = anyshape.compile(function)
    for written in range(2):
        ours, theirs = (_outcome(run, layout, written) for run in (fast, function))
        assert (ours is None) == (theirs is None), "refused" if ours is None else "not refused"
        for a, b in zip(ours or (), theirs or (), strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, equal_nan=True)


def _outcome(run: Function, layout: str, written: int) -> tuple[Tensor | None, ...] | None:
    """The gradients; None where they are refused."""
    torch.manual_seed(0)
    arguments = [LAYOUTS[layout]().requires_grad_() for _ in range(2)]
    made = run(*arguments)
    memory = arguments[written].detach()
    (memory[:1] if layout == "repeated" else memory).fill_(3.0)
    try:
        return torch.autograd.grad(made.sum(), arguments, allow_unused=True)
    except RuntimeError as refused:
        assert "modified by an inplace operation" in str(refused)
        return None


def mask_is_written(x):
    mask = x > 0
    picked = x.masked_select(mask) * 2
    mask.fill_(True)
    return picked, x.detach()


def indices_are_written(x):
    rows = (x[:, 0] > 0).long()
    picked = x[rows] * 2
    rows.zero_()
    return picked, x.detach()


def mask_is_handed_out(x):
    mask = x > 0
    return x.masked_select(mask) * 2, mask


def elements_are_handed_out(x):
    made = x * 2
    return made.masked_select(x > 0) * 2, made


def what_is_added_is_written(x):
    offset = x.detach() * 2
    moved = x + offset
    offset.zero_()
    return moved, offset


def mask_of_an_index_is_written(x):
    mask = x > 0
    picked = x[mask] * 2
    mask.fill_(True)
    return picked, x.detach()


def mask_of_an_index_is_handed_out(x):
    mask = (x > 0).any(1)
    return x[mask, 1:] * 2, mask


def bytes_of_an_index_are_handed_out(x):
    mask = (x > 0).to(torch.uint8)
    return x[mask] * 2, mask


def mask_of_elements_that_are_put_is_handed_out(x):
    mask, made = x > 0, torch.zeros(4, 4)
    made[mask] = x[x > 0] * 2
    return made * 1, mask


def mask_of_rows_that_are_put_is_handed_out(x):
    mask, made = (x > 0).any(1), x * 2
    made[mask, 1:] = x[0, 1:].exp()
    return made * 1, mask


def mask_of_index_put_is_handed_out(x):
    mask = (x > 0).any(1)
    return x.index_put((mask,), x[0].exp()), mask


def mask_of_what_is_added_is_handed_out(x):
    mask, made = (x > 0).any(1), x * 2
    made.index_put_((mask,), x[0].exp(), accumulate=True)
    return made * 1, mask


def mask_of_an_index_without_gradients_is_handed_out(x):
    mask = x > 0
    return x * x.detach()[mask].sum(), mask


@pytest.mark.parametrize(
    "program",
    [
        *(mask_is_written, indices_are_written, mask_is_handed_out, elements_are_handed_out),
        *(mask_of_an_index_is_written, mask_of_an_index_is_handed_out),
        *(bytes_of_an_index_are_handed_out, mask_of_elements_that_are_put_is_handed_out),
        *(mask_of_rows_that_are_put_is_handed_out, mask_of_index_put_is_handed_out),
        mask_of_what_is_added_is_handed_out,
        mask_of_an_index_without_gradients_is_handed_out,
        what_is_added_is_written,
    ],
)
def test_what_has_no_gradients_and_is_written_is_refused_where_eager_keeps_it(program):
    """By the graph itself, or by the caller."""

    def refusal(run: Callable[..., tuple[Tensor, Tensor]]) -> str:
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
        result, seen = run(x)
        with torch.no_grad():
            seen.zero_() if seen.data_ptr() != x.data_ptr() else None
        try:
            result.sum().backward()
        except RuntimeError as refused:
            return str(refused)[:60]
        return ""

    fast = anyshape.compile(program, fullgraph=True)
    assert [refusal(fast) for _ in range(2)] == [refusal(program)] * 2
    assert not fast.stats().eager_graphs


def test_where_torch_gives_what_was_saved_only_together_versions_tell_them_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in torch 2.11. Of one function's gradients these are refused whose formula has kept what
    was written."""
    monkeypatch.setattr(saved_values, "CAN_UNPACK", False)

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.exp() + y, y.sin()

    compiled = anyshape.compile(program)
    for count in (3, 5):
        for run in (compiled, program):
            x, y = (torch.randn(count, requires_grad=True) for _ in range(2))
            added, sine = run(x, y)
            y.detach().mul_(2)
            torch.testing.assert_close(
                torch.autograd.grad(added.sum(), (x, y), retain_graph=True),
                (x.detach().exp(), torch.ones(count)),
            )
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                sine.sum().backward()
