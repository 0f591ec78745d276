"""What an own backward or a hook reads from outside, changed between the call and `backward()`:
eager torch reads it when `backward` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

import anyshape
from anyshape.errors import GraphBreakError
from tests.autograd.beside_eager import assert_same

SCALE: Any = 2.0
FACTORS: list[Any] = [2.0]
NAMED: dict[str, Any] = {"scale": 2.0}
WEIGHT = torch.full((3,), 2.0)
CONFIG = SimpleNamespace(scale=2.0)
MODULE = torch.nn.Linear(3, 3)
MODULE.scale = 2.0  # type: ignore[assignment]
MODULE.register_buffer("table", torch.full((3,), 2.0))
BOX: dict[str, Any] = {}


class OfClass(Function):
    scale: Any = 2.0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * OfClass.scale


def own(backward: Callable[..., Any], forward: Any = lambda ctx, x: x * 2) -> Callable[..., Any]:
    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Any = type("Own", (Function,), parts)
    return made.apply  # type: ignore[no-any-return]


def cell() -> tuple[Callable[[Tensor], Tensor], Callable[[Any], None]]:
    scale: Any = 2.0

    def change(value: Any) -> None:
        nonlocal scale
        scale = value

    return lambda g: g * scale, change


of_cell, change_cell = cell()


def _set(value: float) -> None:
    """Changes everything there is to read."""
    globals()["SCALE"] = value
    OfClass.scale = FACTORS[0] = NAMED["scale"] = CONFIG.scale = value
    MODULE.scale = value  # type: ignore[assignment]
    MODULE.table = torch.full((3,), value)
    change_cell(value)
    if value == 3:
        FACTORS.append(1.0)
        NAMED["more"] = 1.0
    for key, kept in BOX.items():
        if key == "change":
            kept(value)
        elif type(kept) is list:
            kept[0] = value


def use_number_of_items(g: Tensor) -> Tensor:
    return g * (2.0 if "more" in NAMED else 3.0) * len(FACTORS)


READERS: dict[str, Callable[[Tensor], Any]] = {
    "a global": lambda g: g * SCALE,
    "a class attribute": lambda g: g * OfClass.scale,
    "a cell": of_cell,
    "an attribute of an object": lambda g: g * CONFIG.scale,
    "an attribute of a module": lambda g: g * MODULE.scale,  # type: ignore[operator]
    "an attribute by getattr": lambda g: g * getattr(MODULE, "scale"),
    "a list": lambda g: g * FACTORS[0],
    "a list as a whole": lambda g: g * sum(FACTORS),
    "a list gone through": lambda g: sum((g * f for f in FACTORS), g),
    "a dict": lambda g: g * NAMED["scale"],
    "a dict by get": lambda g: g * NAMED.get("scale", 1.0),
    "how much there is": use_number_of_items,
    "a tensor that is replaced": lambda g: g * MODULE.table,
    "a tensor that is written": lambda g: g * WEIGHT,
}


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    yield
    reset()


def reset() -> None:
    _set(2.0)
    with torch.no_grad():
        WEIGHT.fill_(2.0)
    del FACTORS[1:]
    NAMED.pop("more", None)
    BOX.clear()


def gradients(program: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """One `backward` as things are, one after a change, one after another, and a call after it."""
    found = []
    reset()
    for change in (2.0, 3.0):
        x = torch.arange(3.0).requires_grad_()
        made = program(x)
        for value in (change, 5.0):
            _set(value)
            with torch.no_grad():
                WEIGHT.fill_(value)
            made.backward(torch.ones(3), retain_graph=True)
            assert x.grad is not None
            found.append(x.grad.clone())
    return found


def assert_eager_s(program: Callable[[Tensor], Tensor]) -> None:
    fast = anyshape.compile(program)
    for _ in range(2):
        ours = gradients(fast)
        assert_same(ours, gradients(program))
    assert len({tuple(g.tolist()) for g in ours}) > 1  # it does change
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("reader", READERS)
def test_an_own_backward_reads_what_is_there_when_it_runs(reader: str) -> None:
    apply = own(lambda ctx, g: READERS[reader](g))
    assert_eager_s(lambda x: apply(x.sin()) + 1)
    reads = READERS[reader]
    apply_of_cell = own(lambda ctx, g: reads(g))
    assert_eager_s(lambda x: apply_of_cell(x.sin()) + 1)


@pytest.mark.parametrize("reader", READERS)
def test_what_forward_has_read_too_is_read_again(reader: str) -> None:
    reads = READERS[reader]
    apply = own(lambda ctx, g: reads(g), lambda ctx, x: reads(x) + reads(x))
    assert_eager_s(lambda x: apply(x.sin()) + 1)


@pytest.mark.parametrize("reader", READERS)
def test_a_hook_reads_what_is_there_when_it_runs(reader: str) -> None:
    reads = READERS[reader]

    def program(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(reads)
        return y * 2

    assert_eager_s(program)


# ---- what the segment has made -------------------------------------------------------------------
def hook_of_a_variable(x: Tensor) -> Tensor:
    scale = 2.0
    y = x.sin()
    y.register_hook(lambda g: g * scale)
    made = y * scale
    scale = 3.0
    return made


def hook_of_a_variable_behind_a_break(x: Tensor) -> Tensor:
    scale = 2.0
    y = x.sin()
    y.register_hook(lambda g: g * scale)
    made = y * scale
    torch._dynamo.graph_break()
    scale = 3.0
    return made


def hook_of_a_variable_of_a_loop(x: Tensor) -> Tensor:
    for scale in (2.0, 3.0):
        y = x.sin()
        y.register_hook(lambda g: g * scale)
        x = y * 2
    return x


def hook_of_a_variable_of_an_open_loop(x: Tensor) -> Tensor:
    turns = 0
    while turns < 2:
        scale = 2.0 + turns
        y = x.sin()
        y.register_hook(lambda g: g * scale)
        x = y * 2
        turns += 1
    return x


def hook_of_a_list(x: Tensor) -> Tensor:
    scales = [2.0]
    y = x.sin()
    y.register_hook(lambda g: g * scales[0])
    scales[0] = 3.0
    return y * 2


def hook_of_a_list_that_is_kept(x: Tensor) -> Tensor:
    scales = BOX["list"] = [2.0]
    y = x.sin()
    y.register_hook(lambda g: g * scales[0])
    return y * 2


def hook_of_a_variable_that_others_write(x: Tensor) -> Tensor:
    scale = 2.0

    def change(value: float) -> None:
        nonlocal scale
        scale = value

    BOX["change"] = change
    y = x.sin()
    y.register_hook(lambda g: g * scale)
    return y * 2


def hook_that_advances(x: Tensor) -> Tensor:
    scales = iter([2.0, 3.0, 5.0, 7.0, 11.0])
    y = x.sin()
    y.register_hook(lambda g: g * next(scales))
    return y * 2


def hook_that_advances_a_generator(x: Tensor) -> Tensor:
    scales = (float(n) for n in range(2, 9))
    y = x.sin()
    y.register_hook(lambda g: g * next(scales))
    return y * 2


def context_of_a_list(x: Tensor) -> Tensor:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.scales = BOX["list"] = [2.0]
        return x * 2

    made: Tensor = own(lambda ctx, g: g * ctx.scales[0], forward)(x)
    return made


def context_of_a_tensor_of_others(x: Tensor) -> Tensor:
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.weight = weight
        return x * weight.exp()

    made: Tensor = own(lambda ctx, g: (g * ctx.weight.exp(), None), forward)(x, WEIGHT)
    return made


def hook_of_a_tensor_s_attribute(x: Tensor) -> Tensor:
    y: Any = x.sin()
    y.scale = 2.0
    z = y.cos()
    z.register_hook(lambda g: g * y.scale)
    y.scale = 3.0
    made: Tensor = z * 2
    return made


MADE_HERE = (
    hook_of_a_tensor_s_attribute,
    hook_of_a_variable,
    hook_of_a_variable_behind_a_break,
    hook_of_a_variable_of_a_loop,
    hook_of_a_variable_of_an_open_loop,
    hook_of_a_list,
    hook_of_a_list_that_is_kept,
    hook_of_a_variable_that_others_write,
    hook_that_advances,
    hook_that_advances_a_generator,
    context_of_a_list,
    context_of_a_tensor_of_others,
)


@pytest.mark.parametrize("program", MADE_HERE)
def test_what_the_segment_has_made_is_read_when_it_runs(
    program: Callable[[Tensor], Tensor],
) -> None:
    assert_eager_s(program)


# ---- what stays the same -------------------------------------------------------------------------
def doubled(g: Tensor) -> Tensor:
    return torch.nn.functional.relu(g) * 2


def hook_of_constants(x: Tensor, scale: float = 2.0) -> Tensor:
    factor = torch.full_like(x, scale).cos()
    y = x.sin()
    y.register_hook(lambda g, shift=1.0: doubled(g) * factor * scale + shift)
    return y * 2


def function_of_its_context(x: Tensor) -> Tensor:
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale, ctx.shape = scale, x.shape
        ctx.save_for_backward(x)
        return x * scale

    def backward(ctx: Any, g: Tensor) -> Any:
        parts = [g * ctx.scale, doubled(g)]
        (x,) = ctx.saved_tensors
        return torch.stack(parts).sum(0).reshape(ctx.shape) * x, None

    made: Tensor = own(backward, forward)(x, 3.0)
    return made


@pytest.mark.parametrize("program", [hook_of_constants, function_of_its_context])
def test_what_cannot_change_is_part_of_the_graph(program: Callable[[Tensor], Tensor]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    assert_same(gradients(fast), gradients(program))


def hook_of_a_global(x: Tensor) -> Tensor:
    y = x.sin()
    y.register_hook(lambda g: g * SCALE)
    return y * 2


def test_a_break_says_what_may_have_changed() -> None:
    apply = own(lambda ctx, g: g * SCALE)
    for program in (lambda x: apply(x.sin()), hook_of_a_global):
        breaks = anyshape.explain(program)(torch.ones(3, requires_grad=True)).breaks
        reasons = [each.reason for each in breaks]
        assert any("may have changed by then" in each and "SCALE" in each for each in reasons)


def keeps_its_handle(x: Tensor) -> Tensor:
    y = x.sin()
    handle = y.register_hook(lambda g: g * 2)
    return y * len([handle])


@pytest.mark.parametrize(
    ("program", "reason"),
    [(hook_of_a_global, "what may have changed by then"), (keeps_its_handle, "whose handle")],
)
def test_what_autograd_does_itself_is_not_called_disabled(
    program: Callable[[Tensor], Tensor], reason: str
) -> None:
    """Nobody has disabled it, so there is no disable to remove."""
    fast = anyshape.compile(program, fullgraph=True)
    with pytest.raises(GraphBreakError, match=f"{reason}.*is left to torch's autograd") as told:
        fast(torch.ones(3, requires_grad=True))
    assert "take the gradients in the same compiled function" in str(told.value)
    assert "disable" not in str(told.value)
