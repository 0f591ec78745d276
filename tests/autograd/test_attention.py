"""Attention's gradients in compiled functions: by ATen's flash kernel where eager takes it, at every
size, and by products elsewhere; results and gradients are eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.torch_version import TorchVersion

import anyshape
from anyshape import eager_attention
from anyshape.eager_attention import KERNELS, Given
from tests.autograd.beside_eager import assert_same

DIVIDES_BY_HEADS = TorchVersion(torch.__version__) < (2, 12)
"""Whether eager's attention of no heads on a host ends the process, by a division by zero."""
HEADS, WIDTH = 2, 8
SHAPES = ((2, 5), (1, 1), (3, 20), (2, 0), (0, 4), (1, 7))
attend = F.scaled_dot_product_attention
WEIGHTS = torch.randn(3, WIDTH, WIDTH, generator=torch.Generator().manual_seed(0)) / 3


def parts(x: Tensor) -> Any:
    """Queries, keys and values of (batch, heads, n, width), each made of ``x``."""
    return [F.linear(x, w.to(x.dtype)) for w in WEIGHTS]


def turned(x: Tensor) -> Any:
    """The same, of which heads lie inside lengths."""
    return [t.transpose(1, 2).contiguous().transpose(1, 2) for t in parts(x)]


def shared(x: Tensor) -> Any:
    """Four heads of queries, and two of keys and values."""
    q, k, v = (t.transpose(1, 2).reshape(t.shape[0], t.shape[2], 4, 4) for t in parts(x))
    return [t.transpose(1, 2) for t in (q, k[:, :, :2], v[:, :, 2:])]


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "plain": lambda x, m: attend(*parts(x)),
    "causal": lambda x, m: attend(*parts(x), is_causal=True),
    "causal_by_size": lambda x, m: attend(*turned(x), is_causal=x.shape[2] > 1),
    "causal_by_size_of_three": lambda x, m: attend(
        *[t.flatten(0, 1) for t in parts(x)], is_causal=x.shape[2] > 1
    ),
    "scaled": lambda x, m: attend(*turned(x), scale=0.3),
    "masked": lambda x, m: attend(*parts(x), m > 0),
    "biased": lambda x, m: attend(*parts(x), m.to(x.dtype)),
    "with_a_shared_mask": lambda x, m: attend(*parts(x), m.new_ones(m.shape[2:]).tril() > 0),
    "with_shared_heads": lambda x, m: attend(*shared(x), is_causal=True, enable_gqa=True),
    "with_dropout": lambda x, m: attend(*parts(x), dropout_p=0.5),
    "of_three_dimensions": lambda x, m: attend(*[t.flatten(0, 1) for t in parts(x)]),
}


ROUNDED = ("plain", "causal_by_size", "masked")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float64) for name in PROGRAMS), *((name, torch.bfloat16) for name in ROUNDED)],
)
def test_gradients_of_attention_are_eagers(name: str, dtype: torch.dtype) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    stream = torch.Generator().manual_seed(1)
    for batch, length in SHAPES:
        x = torch.randn(batch, HEADS, length, WIDTH, generator=stream).to(dtype)
        mask = torch.randn(batch, 1, length, length, generator=stream)
        found, expected = (_outcome(run, x, mask) for run in (fast, program))
        assert_same(found, expected, 2e-2 if dtype is torch.bfloat16 else 1e-6)
        assert [t.stride() for t in found] == [t.stride() for t in expected]
    assert fast.stats().eager_graphs == ()


def _outcome(run: Any, x: Tensor, mask: Tensor) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    torch.manual_seed(0)
    made = run(leaf, mask)
    made.square().sum().backward()
    assert leaf.grad is not None
    return [made.detach(), leaf.grad]


@pytest.mark.parametrize("turn", [lambda t: t, lambda t: t.transpose(1, 2)], ids=["rows", "turned"])
def test_attention_of_nothing_asks_no_kernel(turn: Callable[[Tensor], Tensor]) -> None:
    """The host's divides by the number of heads, which ends the process; eager of torch 2.11 asks
    it all the same (``DIVIDES_BY_HEADS``), so that nobody calls it so."""

    def program(x: Tensor, y: Tensor) -> Tensor:
        return attend(turn(x), turn(y), turn(y) * 2)

    fast = anyshape.compile(program)
    for shape in (
        (2, 3, 5, 4),
        (2, 0, 5, 4),
        (2, 3, 0, 4),
        (0, 3, 5, 4),
        (0, 0, 5, 4),
        (2, 3, 5, 0),
    ):
        x, y = torch.randn(shape), torch.randn(shape)
        if DIVIDES_BY_HEADS and turn(x).shape[1] == 0:
            continue
        given = [(x.clone().requires_grad_(), y.clone().requires_grad_()) for _ in range(2)]
        made = [run(*leaves) for run, leaves in zip((fast, program), given)]
        for result in made:
            result.square().sum().backward()
        assert_same(made[:1], made[1:])
        assert_same([t.grad for t in given[0]], [t.grad for t in given[1]])


def test_a_mask_that_requires_gradients_gets_some() -> None:
    def program(x, m):
        mask = m + x.mean()
        return attend(*parts(x), mask)

    fast = anyshape.compile(program)
    for length in (5, 1, 3):
        x, m = torch.randn(1, HEADS, length, WIDTH), torch.randn(1, HEADS, length, length)
        given = [(x.clone().requires_grad_(), m.clone().requires_grad_()) for _ in range(2)]
        for run, leaves in zip((fast, program), given):
            run(*leaves).square().sum().backward()
        assert_same([t.grad for t in given[0]], [t.grad for t in given[1]])


def test_no_weights_of_attention_are_made_for_the_gradients() -> None:
    fast = anyshape.compile(PROGRAMS["causal"])
    fast(torch.randn(1, HEADS, 5, WIDTH, requires_grad=True), torch.zeros(())).sum().backward()
    text = "".join(fast.graphs())
    assert "flash_attention_gradients" in text and "softmax" not in text


def test_separate_arguments_take_eagers_kernel_where_their_sizes_agree() -> None:
    """Which is guarded; of others nothing is relied on."""
    fast = anyshape.compile(lambda q, k, v: attend(q, k, v))
    for batch, keys, n, m in ((2, 2, 5, 7), (3, 3, 4, 2), (1, 1, 1, 1), (4, 1, 3, 2), (2, 1, 5, 4)):
        stream = torch.Generator().manual_seed(n)
        sizes = ((batch, n), (keys, m), (keys, m))
        parts = [torch.randn(b, HEADS, x, WIDTH, generator=stream) for b, x in sizes]
        found, expected = [], []
        for run, made in ((fast, found), (attend, expected)):
            leaves = [part.clone().requires_grad_() for part in parts]
            run(*leaves).square().sum().backward()
            made += [leaf.grad for leaf in leaves]
        assert_same(found, expected, 1e-3)
        if n == 1:
            assert "flash_attention_gradients" in "".join(fast.graphs())
            assert fast.stats().specializations == 1
    assert fast.stats().specializations == 2


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k[0] == "cuda"])
def test_kernels_of_gpus_are_called_as_their_schemas_say(kernel: tuple[str, int]) -> None:
    """On tensors without memory: in which order what is handed over, and what it gives."""
    q, k, v, gradient = (torch.empty(2, 4, 8, 16, device="meta") for _ in range(4))
    given = Given(q, k, v, None, True, 0.3)
    result, logsumexp = KERNELS[kernel].forward(given)
    made = KERNELS[kernel].backward(given, gradient, result, logsumexp)
    assert logsumexp.shape == q.shape[:-1]
    assert [t.shape for t in (result, *made)] == [q.shape] * 4


def repeated(x: Tensor, groups: int) -> Tensor:
    """Each head so often, as models say it."""
    b, h, n, w = x.shape
    return x[:, :, None].expand(b, h, groups, n, w).reshape(b, h * groups, n, w)


def repeating(x: Tensor) -> Tensor:
    q, k, v = shared(x)
    return attend(q, repeated(k * 2, 2), repeated(v + 1, 2), is_causal=True)


def of_grouped_heads(x: Tensor) -> Tensor:
    return attend(*shared(x), is_causal=True, enable_gqa=True)


def of_what_was_handed_in(x: Tensor) -> Tensor:
    return attend(x.repeat(1, 2, 1, 1), repeated(x, 2), repeated(x, 2))


def of_what_is_returned(x: Tensor) -> Any:
    q, k, v = shared(x)
    keys, values = k * 2, v + 1
    return attend(q, repeated(keys, 2), repeated(values, 2), is_causal=True), keys


@pytest.mark.parametrize(
    ("program", "is_shared"),
    [
        (repeating, True),
        (of_grouped_heads, True),
        (of_what_was_handed_in, False),
        (of_what_is_returned, False),
    ],
)
def test_heads_that_a_model_repeats_are_shared_where_the_kernels_of_a_gpu_do_it(
    program: Any, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("autograd.shared_heads", "ops.flash_attention"):
        monkeypatch.setattr(f"anyshape.{module}.HOST", "a host elsewhere")
    asked = []
    kernel = eager_attention._kernel

    def asking(given: Given) -> Any:
        asked.append(given.shared)
        return kernel(given)

    monkeypatch.setattr(eager_attention, "_kernel", asking)

    def step(x: Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        y = program(leaf)
        y, *rest = y if isinstance(y, tuple) else (y,)
        (y * y).sum().backward()
        return [y.detach(), leaf.grad, *(t.detach() for t in rest)]

    def outside(run: Any, x: Tensor) -> Any:
        leaf = x.clone().requires_grad_()
        y = run(leaf)
        y, *rest = y if isinstance(y, tuple) else (y,)
        (y * y).sum().backward()
        return [y.detach(), leaf.grad, *(t.detach() for t in rest)]

    whole, alone = anyshape.compile(step), anyshape.compile(program)
    for batch, length in SHAPES:
        x = torch.randn(batch, HEADS, length, WIDTH, dtype=torch.float64)
        expected = step(x)
        assert_same(whole(x), expected, 1e-6)
        assert_same(outside(alone, x), expected, 1e-6)
    assert whole.stats().eager_graphs == alone.stats().eager_graphs == ()
    assert (2 in asked) is is_shared


def test_numbers_of_shared_heads_are_one_specialization_with_gradients() -> None:
    """How many heads share one is a quotient of sizes, whose product is the number of heads."""

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, is_causal=True, enable_gqa=True)

    fast = anyshape.compile(program)
    for heads, groups in ((8, 4), (6, 2), (12, 3), (5, 5), (4, 1)):
        for batch, length in ((2, 9), (1, 4)):
            shapes = ((batch, h, length, WIDTH) for h in (heads, groups, groups))
            ours = [torch.randn(shape, requires_grad=True) for shape in shapes]
            theirs = [t.detach().clone().requires_grad_() for t in ours]
            made, expected = fast(*ours), program(*theirs)
            assert_same(made.detach(), expected.detach())
            made.square().sum().backward()
            expected.square().sum().backward()
            assert_same([t.grad for t in ours], [t.grad for t in theirs])
    stats = fast.stats()
    assert (stats.specializations, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())


def test_heads_that_do_not_divide_those_of_queries_are_eagers_error() -> None:
    fast = anyshape.compile(lambda q, k: attend(q, k, k, enable_gqa=True))
    q = torch.randn(2, 6, 5, WIDTH)
    assert fast(q, torch.randn(2, 3, 5, WIDTH)).shape == q.shape
    with pytest.raises(RuntimeError, match="must divide"):
        fast(q, torch.randn(2, 4, 5, WIDTH))


def test_gradients_that_are_handed_out_are_those_of_one_call() -> None:
    """Each of the three is made by a node of its own, and by the same one."""
    fast = anyshape.compile(lambda q, k, v: attend(q, k, v, is_causal=True))
    parts = [torch.randn(2, 3, 5, WIDTH, requires_grad=True) for _ in range(3)]
    for _ in range(2):
        fast(*parts).sum().backward()
    (backward,) = [g for g in fast.graphs() if "def backward(" in g][-1:]
    assert backward.count("anyshape.eager_attention.flash_attention_gradients(") == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_with_dropout_is_wide_up_to_its_result(dtype: torch.dtype) -> None:
    """Weights that were rounded to the result's type would be off by a unit of its last place."""

    def step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made = attend(q, k, v, dropout_p=0.3)
        made.float().sin().sum().backward()
        return made.detach()

    fast = anyshape.compile(step, fullgraph=True)
    for n in (64, 17, 40):
        given = torch.randn(3, 3, 8, n, 32, generator=torch.Generator().manual_seed(n)).to(dtype)
        found = []
        for run in (step, fast):
            torch.manual_seed(n)
            leaves = [part.clone().requires_grad_() for part in given]
            found.append((run(*leaves), *(leaf.grad for leaf in leaves)))
        for ours, eagers in zip(*found, strict=True):
            off = (ours.float() - eagers.float()).abs().max() / eagers.float().abs().max()
            assert off < 0.45 * torch.finfo(dtype).eps


def test_attention_of_no_width_has_gradients_of_uniform_weights() -> None:
    """Its scale is infinite, which multiplies nothing."""
    fast = anyshape.compile(attend)
    for width in (3, 0):
        shapes = (2, 4, width), (2, 5, width), (2, 5, 2)
        given = [torch.randn(shape, requires_grad=True) for shape in shapes]
        again = [x.detach().clone().requires_grad_() for x in given]
        for run, inputs in ((fast, given), (attend, again)):
            run(*inputs).sum().backward()
        for found, expected in zip(given, again, strict=True):
            torch.testing.assert_close(found.grad, expected.grad)
