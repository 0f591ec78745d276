"""Where eager's results lie otherwise on a GPU than on the CPU: the types of rows, seen on an H200 with torch 2.11. No GPU is needed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

import anyshape
from anyshape.ir.dtypes import DType, bfloat16, bool_, float16, float32, int64
from anyshape.ir.graph import HOST, TensorType, Value
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.refusals import refuse_dtypes
from anyshape.symbolic import Facts, Space

IMAGE, ROWS, TURNED = (2, 8, 5, 5), (200, 25, 5, 1), (200, 1, 40, 8)
OTHER = (25, 1, 5, 50)
"""Strides of no image's layout."""
GPU = "cuda:0"


def builder() -> Builder:
    space = Space()
    return Builder(TypeContext(space, Facts(space), on_check=lambda condition, message: None))


def vector(b: Builder, dtype: DType, device: str, name: str) -> Value:
    return b.input(TensorType(dtype, device, (8,), (1,)), "argument", name)


def strides(device: str, name: str, lies: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
    b = builder()
    x = b.input(TensorType(float32, device, IMAGE, lies), "argument", "x")
    return b.call(name, x, *args, **kwargs).type.strides


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("channel_shuffle", (4,)),
        ("torch_pad", ((0, 2, 0, 1), "reflect")),
        ("torch_pad", ((0, 2, 0, 1), "replicate")),
    ],
)
def test_kernels_of_gpus_make_rows_of_images(name: str, args: Any) -> None:
    here, there = (strides(device, name, TURNED, *args) for device in (HOST, GPU))
    assert here[1] == 1 and there[-1] == 1 and there[1] != 1


@pytest.mark.parametrize(
    ("dtype", "weights", "training", "as_it_lies"),
    [
        (float32, None, True, True),
        (float32, None, False, True),
        (float32, float32, True, False),
        (bfloat16, bfloat16, True, True),
        (float16, float16, True, True),
        (float16, float32, True, False),
    ],
)
def test_batch_norm_without_a_library_lies_as_its_argument(
    dtype: DType, weights: DType | None, training: bool, as_it_lies: bool
) -> None:
    for device in (GPU, HOST):
        b = builder()
        x = b.input(TensorType(dtype, device, IMAGE, OTHER), "argument", "x")
        given = [None if weights is None else vector(b, weights, device, n) for n in "wb"]
        running = [vector(b, float32, device, n) for n in ("mean", "var")]
        made = b.call("batch_norm", x, *([None] * 2 if training else running), *given, training)
        kept = made.type.strides == (25, 1, 5, 50) or made.type.strides[3] > made.type.strides[0]
        assert kept is (as_it_lies and device == GPU), made.type.strides


def test_right_singular_vectors_lie_row_by_row() -> None:
    for device, right, turned in ((HOST, (1, 3), (3, 1)), (GPU, (3, 1), (1, 3))):
        b = builder()
        x = b.input(TensorType(float32, device, (3, 3), (3, 1)), "argument", "x")
        assert b.call("linalg_svd", x)[2].type.strides == right
        assert b.call("svd", x)[2].type.strides == turned


def test_attention_that_drops_weights_is_eagers_kernel() -> None:
    """It draws in the kernel, for forward and backward alike."""
    for device, row in (
        (HOST, "attention_with_dropout"),
        (GPU, "attention_with_dropout_in_kernels"),
    ):
        b = builder()
        q = b.input(TensorType(float32, device, (2, 3, 5, 8), (120, 40, 8, 1)), "argument", "q")
        b.call("scaled_dot_product_attention", q, q, q, None, 0.5)
        assert [node.op for node in b.finish(()).nodes] == [row]


def test_pixels_of_nothing() -> None:
    for device, shape in ((HOST, (1, 1, 0, 0)), (GPU, (1, 9, 0, 0))):
        b = builder()
        x = b.input(TensorType(float32, device, (1, 1, 0, 0), (1, 1, 1, 1)), "argument", "x")
        assert b.call("pixel_unshuffle", x, 3).type.shape == shape


def test_a_mask_of_another_device_is_refused() -> None:
    b = builder()
    x = b.input(TensorType(float32, HOST, (), ()), "argument", "x")
    mask = b.input(TensorType(bool_, GPU, (), ()), "argument", "m")
    with pytest.raises(OpError, match="same device"):
        b.call("masked_fill", x, mask, 0.0)


def test_products_of_integers_are_refused_though_there_are_none() -> None:
    b = builder()
    for device, dtype, refused in ((HOST, int64, 0), (GPU, int64, 1), (GPU, float32, 0)):
        x = b.input(TensorType(dtype, device, (0,), (1,)), "argument", "x")
        with pytest.raises(OpError, match="not implemented") if refused else nullcontext():
            refuse_dtypes("dot", (x, x))


def test_no_turn_is_a_row_major_copy() -> None:
    x = torch.randn(5, 4, 3).mT
    for k in (0, 4, -4):
        fast = anyshape.compile(lambda x, k=k: torch.rot90(x, k, (1, 2)), fullgraph=True)
        made, wanted = fast(x), torch.rot90(x, k, (1, 2))
        assert torch.equal(made, wanted) and made.stride() == wanted.stride()


def test_indices_past_the_end_are_wrapped_around() -> None:
    """Found on a GPU: here eager does the call whose check of an index fails, there the error
    comes later."""
    options = {"fallback": "error"}
    fast = anyshape.compile(
        lambda x, i: torch.take_along_dim(x, i, 0) * 2, fullgraph=True, options=options
    )
    for n in (5, 3, 7, 1):
        x, i = torch.randn(n), torch.tensor([0, 4, -9, 12, -1, n])
        fast(x, i)  # a first call is captured
        with torch.profiler.profile() as seen:
            made = fast(x, i)
        assert torch.equal(made, torch.take_along_dim(x, i, 0) * 2)
        assert "aten::take_along_dim" not in {event.name for event in seen.events()}
