"""Every row that torch's own operator database knows, against eager: the database's samples are the
cases.

For each sample the row's predicted type, its expansion, its loop body and its index map are
checked, with every size a symbol; then again with permuted, sliced and broadcast operands.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from anyshape.ops import OPS, SPELLINGS
from anyshape.ops.context import OpError
from tests.ops import harness
from tests.ops.database import samples_of

DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16)

# What the database calls with other parameters than the row has, or what has no defined contents.
SKIPPED = {
    "nn.functional.embedding", "as_strided", "empty", "empty_like", "new_empty", "normal", "zero_", "where",
    "nn.functional.rrelu", "nn.functional.embedding_bag", "broadcast_tensors", "meshgrid",
    "tensor_split", "empty_strided", "empty_permuted", "new_empty_strided", "linalg.lstsq",
    "svd_lowrank", "pca_lowrank",  # the product of its first two arguments; see test_one_graph.py
}  # fmt: skip

# (operator, part of the sample's text): known differences, each with its reason.
KNOWN: dict[str, str] = {
    "narrow": "data decides where a tensor says to start",
    "cross": "a size decides along which dimension, where none is named",
    "tensordot": "sizes of 1 that stand for others are known only from hints",
    "norm": "the nuclear norm has no row",
    "linalg.norm": "matrix norms have no row",
    "linalg.matrix_power": "exponents below 1 have no row",
    "cov": "weights have no row",
    "addr": "bool operands",
    "unique_consecutive": "along a dimension ATen returns a transposed result",
    "addbmm": "eager rounds each batch in bfloat16",
    "nn.functional.binary_cross_entropy_with_logits": "eager rounds each step in bfloat16",
    "linspace": "int64 from float ends",
    "nn.functional.interpolate": "channels-last order of an input with holes",
    "float_power": "the cast of a broadcast operand changes its strides",
    "cat": "channels-last order of an input with holes",
    "nn.functional.local_response_norm": "of integers, the dtype of the result depends on sizes",
    "nn.functional.huber_loss": "the order of an expanded operand",
}


def row_of(name: str) -> str | None:
    return SPELLINGS.get(f"torch.{name}") or SPELLINGS.get(f"torch.Tensor.{name}")


CASES = [o for o in op_db if row_of(o.name) and o.name not in SKIPPED]
IDS = [f"{o.name}.{o.variant_test_name}" if o.variant_test_name else o.name for o in CASES]


def samples(entry, dtype, limit):
    if dtype not in entry.supported_dtypes("cpu"):
        return
    for sample in samples_of(entry, dtype, limit):
        kwargs = dict(sample.kwargs)
        if kwargs.get("dropout_p") or ("dropout" in entry.name and kwargs.get("training", True)):
            continue
        yield (sample.input, *sample.args), kwargs


def problems(entry, args, kwargs):
    """(what, problem) of one sample."""
    name = row_of(entry.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager = entry.op(*harness.clone(args), **kwargs)
        except Exception:
            return  # eager refuses: so may we
    yield "type", harness.type_problems(name, args, kwargs, eager)
    if OPS[name].random:
        return
    yield "expansion", harness.expansion_problem(name, args, kwargs, eager)
    if any(isinstance(a, torch.Tensor) and a.is_complex() for a in args):
        return  # no kernel is generated for complex numbers
    if isinstance(eager, torch.Tensor):
        yield "body", harness.body_problem(name, args, kwargs, eager)
        yield "index", harness.index_problem(name, args, kwargs, eager)


def describe(value):
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]}{tuple(value.shape)} strides {value.stride()}"
    return [describe(v) for v in value] if isinstance(value, (list, tuple)) else value


def collect(entry, cases):
    found = []
    for args, kwargs in cases:
        try:
            for what, problem in problems(entry, args, kwargs):
                if problem:
                    found.append(f"{what} of {describe(args)} {kwargs}: {problem[:300]}")
        except Exception as error:
            found.append(f"{describe(args)} {kwargs}: {type(error).__name__} {error}")
    return found


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_row_agrees_with_eager_on_the_samples_of_the_database(entry) -> None:
    cases = [c for dtype in DTYPES for c in samples(entry, dtype, 5)]
    found = collect(entry, cases)
    if entry.name not in KNOWN:
        assert not found, "\n".join(found[:5])


def permuted(t):
    return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t


def sliced(t):
    return torch.stack([t, t], -1).flatten(-2)[..., ::2] if t.dim() > 0 else t


def expanded(t):
    return t[:1].expand(t.shape) if t.dim() > 1 and t.shape[0] > 0 else t


def mapped(f, value):
    if isinstance(value, torch.Tensor):
        return f(value)
    return type(value)(mapped(f, v) for v in value) if type(value) in (list, tuple) else value


LAYOUTS = [
    (permuted, permuted),
    (permuted, None),
    (None, permuted),
    (sliced, sliced),
    (expanded, permuted),
]


def relaid(args, first, rest):
    head, *tail = args
    head = mapped(first, head) if first else head
    return (head, *((mapped(rest, a) for a in tail) if rest else tail))


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_row_agrees_with_eager_whatever_the_strides(entry) -> None:
    cases = [
        (relaid(args, first, rest), {k: mapped(rest, v) if rest else v for k, v in kwargs.items()})
        for args, kwargs in samples(entry, torch.float32, 2)
        for first, rest in LAYOUTS
    ]
    found = collect(entry, cases)
    if entry.name not in KNOWN:
        assert not found, "\n".join(found[:5])


def test_the_known_differences_are_about_rows() -> None:
    assert set(KNOWN) <= {entry.name for entry in CASES}


def test_several_hundred_operators_of_the_database_have_a_row() -> None:
    assert len({entry.name for entry in CASES}) > 300


COMPLEX = [o for o in CASES if torch.complex64 in o.supported_dtypes("cpu")]


@pytest.mark.parametrize("entry", COMPLEX, ids=lambda o: f"{o.name}.{o.variant_test_name}")
def test_complex_numbers_are_right_or_refused(entry) -> None:
    for args, kwargs in samples(entry, torch.complex64, 3):
        try:
            found = [p for _, p in problems(entry, args, kwargs) if p]
        except OpError as error:
            assert str(error).endswith("has no row") or entry.name in KNOWN, error
            continue
        assert not found or entry.name in KNOWN, found
