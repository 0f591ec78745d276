"""Gradients of complex numbers: torch's autograd records each operator that reads or makes some, in
a compiled graph. Every operator of torch's database that takes complex numbers, or whose name begins
with ``fft``, beside torch's own gradients; programs for every size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db

import anyshape
from tests.autograd.test_rows import leaves, tensors
from tests.ops.database import samples_of

SAMPLES = 2
NONE_OR_ZEROS = ("norm", "linalg.norm", "linalg.det")
"""Norms of order 0 are counts, and torch 2.11 differentiates no determinant of nothing: eager gives
no gradient, a recorded operator gives zeros."""


def dtypes_of(entry: Any) -> list[torch.dtype]:
    if entry.name.startswith("fft."):
        return [torch.float64, torch.complex128]
    return [torch.complex128]


CASES = [
    (entry, dtype)
    for entry in op_db
    for dtype in dtypes_of(entry)
    if entry.supports_autograd and dtype in entry.supported_dtypes("cpu")
]
IDS = [
    f"{o.name}.{o.variant_test_name}-{dtype}".replace("torch.", "").replace(".-", "-")
    for o, dtype in CASES
]


def scaled(value: Any) -> Any:
    """Tensors of their own, made of the results: what is returned is no view."""
    if isinstance(value, Tensor):
        return value * 1.5 if value.is_floating_point() or value.is_complex() else value
    return tuple(map(scaled, value)) if isinstance(value, (list, tuple)) else value


def gradients(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    found = [t for t in tensors(fn(*args, **kwargs)) if t.requires_grad]
    wanted = [t for t in tensors((args, tuple(kwargs.values()))) if t.requires_grad]
    if not found or not wanted:
        return None
    stream = torch.Generator().manual_seed(0)
    given = [torch.randn(t.shape, generator=stream, dtype=t.dtype) for t in found]
    return torch.autograd.grad(found, wanted, given, allow_unused=True)


@pytest.mark.parametrize(("entry", "dtype"), CASES, ids=IDS)
def test_gradients_are_torchs_own(entry: Any, dtype: torch.dtype) -> None:
    most = SAMPLES if entry.name.startswith("fft") else 1
    for sample in samples_of(entry, dtype, most, requires_grad=True):
        args, kwargs = leaves((sample.input, *sample.args)), sample.kwargs

        def program(*given: Any, **named: Any) -> Any:
            return scaled(entry.op(*given, **named))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            try:
                expected = gradients(program, args, kwargs)
            except Exception:
                continue  # eager refuses: so may we
            if expected is None:
                continue
            torch.manual_seed(0)
            fast = anyshape.compile(program)
            found = gradients(fast, args, kwargs)
        for got, wanted in zip(found, expected, strict=True):
            if wanted is None and entry.name in NONE_OR_ZEROS:
                assert got is None or not got.any()
                continue
            assert (got is None) == (wanted is None)
            if got is not None:
                assert got.dtype == wanted.dtype
                assert wanted.is_conj() or not got.is_conj()  # conjugated, or to be so when read
                torch.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-6, atol=1e-8)
        assert fast.stats().internal_errors == 0


# ---- programs, for every size --------------------------------------------------------------------
def filtered(x: Tensor, w: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(w), n=8).tanh()


def mixed(x: Tensor, w: Tensor) -> Tensor:
    """The layer of FNet."""
    h = (x + w).reshape(-1, 4, 2)
    return torch.fft.fft(torch.fft.fft(h, dim=-1), dim=-2).real.sum(1)


def turned(x: Tensor, w: Tensor) -> Tensor:
    """Rotary positions, as complex numbers."""
    pairs = torch.view_as_complex((x * w).reshape(-1, 4, 2))
    angles = torch.outer(torch.arange(len(x)).to(x.dtype), torch.arange(4.0, dtype=x.dtype) * 0.3)
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(1)


def measured(x: Tensor, w: Tensor) -> Tensor:
    """Sizes and angles, of which one is not used; a number that is broadcast."""
    z = torch.complex(x, x.sin() * w) * (w.sum() + 2j)
    return z.abs() + z.imag.exp() + (z[:, :2] + z[:, -2:]).sum(1, keepdim=True).real


PROGRAMS = (filtered, mixed, turned, measured)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_compiled_backward_is_right_for_every_size(program: Any) -> None:
    fast = anyshape.compile(program)
    for count in (3, 1, 5, 2):
        found = []
        for run in (fast, program):
            stream = torch.Generator().manual_seed(count)
            x, w = (
                torch.randn(*shape, generator=stream, dtype=torch.float64).requires_grad_()
                for shape in ((count, 8), (8,))
            )
            made = run(x, w)
            made.square().sum().backward()
            found.append((made, x.grad, w.grad))
        torch.testing.assert_close(*found)
    stats = fast.stats()
    assert (stats.specializations, stats.gradients, stats.eager_graphs) == (1, 1, ())
    assert stats.recorded > 0


def test_a_step_with_complex_weights_is_one_segment() -> None:
    def trained(compile: Callable[..., Any]) -> tuple[Any, list[Tensor]]:
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(5, 5, dtype=torch.complex64))
        head = nn.Linear(8, 4)
        optimizer = torch.optim.Adam([weight, *head.parameters()], 1e-2)

        def step(x: Tensor) -> Tensor:
            mixed = torch.einsum("bi,io->bo", torch.fft.rfft(x), weight)
            loss = head(torch.fft.irfft(mixed, n=8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = compile(step)
        losses = [run(torch.randn(count, 8)) for count in (3, 2, 5, 4)]
        return run, [*losses, weight.detach(), *(p.detach() for p in head.parameters())]

    fast, ours = trained(anyshape.compile)
    _, theirs = trained(lambda run: run)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    stats = fast.stats()
    assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
