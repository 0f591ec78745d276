"""Tensors of every kind: compiled, or native behind a graph break; never a crash, a warning about
ourselves or another result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import anyshape


class Plain(Tensor):
    """A subclass that changes nothing."""


class Wrapper(Tensor):
    """A subclass that holds another tensor and sees every operator."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapper:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def opened(value: Any) -> Any:
            return value.inner if isinstance(value, Wrapper) else value

        return func(*pytree.tree_map(opened, args), **pytree.tree_map(opened, kwargs or {}))


def inference(n: int) -> Tensor:
    with torch.inference_mode():
        return torch.ones(n, 3)


def ragged(n: int, layout: torch.layout) -> Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(n)], layout=layout)


def changed(x: Tensor) -> Tensor:
    return (x * 2 + 1).relu()


def eye(n: int) -> Tensor:
    return torch.eye(n + 1)


KINDS: dict[str, tuple[Callable[..., Any], Callable[[int], Tensor]]] = {
    "subclass": (changed, lambda n: torch.ones(n, 4).as_subclass(Plain)),
    "wrapper": (changed, lambda n: Wrapper(torch.ones(n, 4))),
    "parameter": (changed, lambda n: torch.nn.Parameter(torch.ones(n, 4))),
    "buffer": (changed, lambda n: torch.nn.Buffer(torch.ones(n, 4))),
    "nested": (changed, lambda n: ragged(n, torch.strided)),
    "jagged": (changed, lambda n: ragged(n, torch.jagged)),
    "nested inside": (
        lambda x: torch.nested.nested_tensor([x, x[:1]]).to_padded_tensor(0.0) + 1,
        lambda n: torch.ones(n + 1, 4),
    ),
    "sparse": (lambda x: (x * 2).coalesce(), lambda n: eye(n).to_sparse()),
    "sparse product": (lambda x: x @ x.to_dense() + 1, lambda n: eye(n).to_sparse()),
    "compressed rows": (lambda x: x @ x.to_dense() + 1, lambda n: eye(n).to_sparse_csr()),
    "sparse inside": (lambda x: (x.to_sparse() * 2).to_dense() + 1, eye),
    "quantized": (
        lambda x: x.dequantize() * 2,
        lambda n: torch.quantize_per_tensor(torch.ones(n, 3), 0.1, 3, torch.qint8),
    ),
    "quantized inside": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).dequantize() + 1,
        lambda n: torch.ones(n, 3),
    ),
    "complex": (lambda x: (x * 2 + 1j).abs(), lambda n: torch.ones(n, 3, dtype=torch.complex64)),
    "lazy conjugate": (
        lambda x: (x * 1j).real,
        lambda n: torch.full((n, 3), 1j, dtype=torch.complex64).conj(),
    ),
    "lazy negative": (
        lambda x: x * 2,
        lambda n: torch.full((n, 3), 1j, dtype=torch.complex64).conj().imag,
    ),
    "meta": (changed, lambda n: torch.ones(n, 3, device="meta")),
    "meta inside": (
        lambda x: torch.empty_like(x, device="meta").sum(-1) * 2,
        lambda n: torch.ones(n, 3),
    ),
    "no dimensions": (changed, lambda n: torch.tensor(float(n))),
    "needs gradients": (changed, lambda n: torch.ones(n, 3, requires_grad=True)),
    "no leaf": (changed, lambda n: torch.ones(n, 3, requires_grad=True) * 2),
    "inference": (changed, inference),
    "float8": (lambda x: x.float() * 2, lambda n: torch.ones(n, 3).to(torch.float8_e5m2)),
    "uint16": (lambda x: x.to(torch.int32) * 2, lambda n: torch.ones(n, 3, dtype=torch.uint16)),
    "half": (changed, lambda n: torch.ones(n, 3, dtype=torch.float16)),
    "mkldnn": (lambda x: x.to_mkldnn().to_dense() * 2, lambda n: torch.ones(n + 1, 3)),
}


def opened(x: Tensor) -> list[Tensor]:
    """What can be compared of a tensor of any layout."""
    if x.is_nested:
        return list(x.unbind())
    if x.layout is not torch.strided:
        return [x.to_dense()]
    return [x.dequantize() if x.is_quantized else x]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_of_this_kind_is_right_at_every_size(kind: str) -> None:
    program, make = KINDS[kind]
    fast = anyshape.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error", anyshape.errors.AnyshapeWarning)
        for n in (3, 1, 0, 5):
            found, expected = fast(make(n)), program(make(n))
            assert type(found) is type(expected) and found.layout is expected.layout
            assert found.device == expected.device
            assert found.requires_grad is expected.requires_grad
            if found.device.type == "meta":
                assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
                continue
            for one, other in zip(opened(found), opened(expected), strict=True):
                torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_specialization_for_plain_tensors_takes_no_other(kind: str) -> None:
    program, make = changed, KINDS[kind][1]
    fast = anyshape.compile(program)
    fast(torch.ones(2, 3))
    try:
        expected = program(make(2))
    except (RuntimeError, TypeError) as error:
        with pytest.raises(type(error)):
            fast(make(2))
        return
    found = fast(make(2))
    assert type(found) is type(expected) and found.layout is expected.layout
    assert found.device == expected.device and found.dtype is expected.dtype


def through_a_sparse_one(x: torch.Tensor) -> tuple[Any, ...]:
    y = x.exp() + 1
    sparse = y.to_sparse()
    same, kept = sparse, {"s": sparse}
    told = torch.is_tensor(sparse), same is kept["s"], sparse is x, sparse is not None
    dense = sparse.to_dense()
    return ((dense * 2).relu() + x).sum(0).softmax(0), sparse, told


def test_what_does_not_read_a_tensor_that_is_not_understood_is_compiled() -> None:
    fast = anyshape.compile(through_a_sparse_one)
    for size in (3, 1, 2, 17):
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(size))
        ours, theirs = fast(x), through_a_sparse_one(x)
        torch.testing.assert_close(ours[0], theirs[0])
        torch.testing.assert_close(ours[1].to_dense(), theirs[1].to_dense())
        assert ours[2] == theirs[2]
    stats = fast.stats()
    assert stats.graph_breaks <= 4  # what makes it, and what reads it
    assert stats.kernels >= 2


class Named(torch.Tensor):
    """Answers one function of torch by itself, as eager's Python code asks it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.dropout:
            return "named"
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_function_that_a_subclass_answers_is_asked_of_it() -> None:
    def program(x):
        return torch.nn.functional.dropout(x, 0.5, False), torch.nn.functional.relu(x * 2)

    fast = anyshape.compile(program)
    for x in (torch.ones(3), torch.ones(2).as_subclass(Named), torch.ones(4)):
        found, wanted = fast(x), program(x)
        assert type(found[0]) is type(wanted[0]) and type(found[1]) is type(wanted[1])
        assert str(found[0]) == str(wanted[0])


def test_the_shape_of_a_jagged_tensor_is_torch_size() -> None:
    fast = anyshape.compile(lambda x: (x.shape, x.size()))
    for n in (3, 1, 5):
        x = ragged(n, torch.jagged)
        assert fast(x) == (x.shape, x.size())
        assert type(fast(x)[0]) is torch.Size


class Tripled(torch.autograd.Function):
    """Doubles, and says that it triples."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 3


@pytest.mark.parametrize(
    "program",
    [
        lambda x: Tripled.apply(x.as_subclass(Plain)),
        lambda x: Tripled.apply(Plain(x)),
        lambda x: Tripled.apply((x + 1).as_subclass(Plain)),
        lambda x: Tripled.apply(x + 1),
    ],
)
def test_a_gradient_of_the_programs_own_goes_through_subclasses(program: Any) -> None:
    for rows in (3, 1, 4):
        ours = torch.ones(rows, requires_grad=True)
        theirs = torch.ones(rows, requires_grad=True)
        got, wanted = anyshape.compile(program)(ours), program(theirs)
        assert type(got) is type(wanted) and got.requires_grad == wanted.requires_grad
        got.sum().backward()
        wanted.sum().backward()
        assert torch.equal(ours.grad, theirs.grad)
