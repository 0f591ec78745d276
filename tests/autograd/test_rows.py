"""Every row with a gradient rule that torch's operator database knows: gradients equal torch's own in
float64, through the compiler, with absent and broadcast operands as the database has them.

Each sample is one function; what runs is its compiled backward. A row whose rule is never used by
any sample fails, unless ``NEVER`` says why.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

import anyshape
from anyshape.ops import OPS, SPELLINGS
from tests import unoptimized
from tests.ops.database import samples_of

SAMPLES = 6
OPTIMIZED = 2
"""So many samples of a row run as code that gcc optimizes, as it is shipped; the others do not."""

NEVER = {
    "nn.functional.dropout": "draws: tests/autograd/test_boundary.py",
    "view_as_complex": "complex numbers: tests/autograd/test_complex_gradients.py",
    "max": "the greater of two tensors: as `maximum`",
    "min": "the smaller of two tensors: as `minimum`",
    "norm": "norms of order 1 and 2 have a rule",
    "nn.functional.bilinear": "products of three operands",
    "nn.functional.adaptive_avg_pool2d": "windows of other sizes than all of it",
    "nn.functional.scaled_dot_product_attention": "the database seeds around it: test_boundary.py",
    "index_put": "values that may be broadcast or not",
    "fill": "a result that nothing of the argument is left in",
}


def row_of(name: str) -> str | None:
    return SPELLINGS.get(f"torch.{name}") or SPELLINGS.get(f"torch.Tensor.{name}")


def has_rule(entry) -> bool:
    name = row_of(entry.name)
    if (
        name is None
        or not entry.supports_autograd
        or torch.float64 not in entry.supported_dtypes("cpu")
    ):
        return False
    row = OPS[name]
    return row.vjp is not None or (
        row.alias != "none" and row.write_back is not None and row.differentiable
    )


VARIANTS = ("binary", "nuc", "inf")  # of these, where not all of the operator
CASES = [
    o
    for o in op_db
    if has_rule(o)
    and (
        o.name not in NEVER
        or (o.name in ("max", "min", "norm") and o.variant_test_name not in VARIANTS)
    )
]
IDS = [f"{o.name}.{o.variant_test_name}" if o.variant_test_name else o.name for o in CASES]


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


def scaled(value):
    """Tensors of their own, made of the results: what is returned is no view."""
    if isinstance(value, torch.Tensor):
        return value * 1.5 if value.dtype.is_floating_point else value
    return tuple(map(scaled, value)) if isinstance(value, (list, tuple)) else value


def outputs(value):
    return [t for t in tensors(value) if t.requires_grad]


def gradients(fn, args, kwargs, stream_seed):
    found = outputs(fn(*args, **kwargs))
    wanted = [t for t in tensors((args, tuple(kwargs.values()))) if t.requires_grad]
    if not found or not wanted:
        return None
    stream = torch.Generator().manual_seed(stream_seed)
    given = [torch.randn(t.shape, generator=stream, dtype=torch.float64).to(t.dtype) for t in found]
    return torch.autograd.grad(found, wanted, given, allow_unused=True)


def leaves(value):
    """The same arguments over memory of their own."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return type(value)(map(leaves, value)) if isinstance(value, (list, tuple)) else value


def samples(entry):
    for sample in samples_of(entry, torch.float64, SAMPLES, requires_grad=True):
        yield (sample.input, *sample.args), dict(sample.kwargs)


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_gradients_of_a_row_are_torchs_own(entry, monkeypatch) -> None:
    compiled, refused = 0, []
    for number, (args, kwargs) in enumerate(samples(entry)):
        args, kwargs = leaves(args), {k: leaves(v) for k, v in kwargs.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = gradients(
                    lambda *a, **k: scaled(entry.op(*a, **k)), args, kwargs, number
                )
            except Exception:
                continue  # eager refuses: so may we
            if expected is None:
                continue
            if compiled >= OPTIMIZED:
                unoptimized.choose(monkeypatch)
            fast = anyshape.compile(lambda *a, **k: scaled(entry.op(*a, **k)))
            found = gradients(fast, args, kwargs, number)
        for got, wanted in zip(found, expected, strict=True):
            assert (got is None) == (wanted is None), (number, args, kwargs)
            if got is not None:
                assert got.shape == wanted.shape and got.dtype == wanted.dtype
                torch.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-6, atol=1e-8)
        stats = fast.stats()
        compiled += stats.gradients
        refused += stats.eager_graphs
        assert stats.internal_errors == 0
    assert compiled, refused


@pytest.mark.parametrize("name", ["std", "std_mean", "var_mean"])
@pytest.mark.parametrize("part", [slice(0, 1), slice(1, 2), slice(None)])
def test_the_spread_of_equal_numbers_has_a_gradient(name: str, part: slice) -> None:
    def program(x: Tensor) -> Tensor:
        made = getattr(torch, name)(x, 0)
        parts = made[part] if isinstance(made, tuple) else (made,)
        return sum(one.sum() for one in parts)  # type: ignore[return-value]

    for rows in (torch.tensor([2.0, 2.0]), torch.tensor([2.0, 3.0])):
        x = rows[:, None].repeat(1, 3).requires_grad_()
        ours, theirs = (
            torch.autograd.grad(run(x), x)[0] for run in (anyshape.compile(program), program)
        )
        torch.testing.assert_close(ours, theirs)
