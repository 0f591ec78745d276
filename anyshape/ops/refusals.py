"""Rows that ATen has no kernel for in some categories of dtypes, or for some numbers, though their
formula would do.

In: a row's name and arguments as the program gives them. Eager raises there, and so does this; what
other rows are made of is not asked.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from anyshape.ir.dtypes import Category
from anyshape.ir.graph import HOST, Arg
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.ops.context import OpError
from anyshape.ops.layout import numel
from anyshape.ops.rules import is_tensor, tensor, tensors_of
from anyshape.ops.table import OPS
from anyshape.symbolic import Dim, minimum

_NO_BOOLS = """
round floor ceil trunc relu relu6 hardtanh threshold softsign tanhshrink addcmul dot
cumulative_trapezoid
"""
_FLOATS_ONLY = (
    "frac hardswish hardsigmoid leaky_relu hardshrink softshrink lerp addcdiv nanmean "
    "layer_norm torch_layer_norm rms_norm huber_loss smooth_l1_loss prelu dist rrelu"
)

REFUSED: Mapping[str, frozenset[Category]] = MappingProxyType(
    {
        **dict.fromkeys(_NO_BOOLS.split(), frozenset({"bool"})),
        **dict.fromkeys(_FLOATS_ONLY.split(), frozenset({"bool", "int"})),
    }
)
"""The categories that eager refuses, by row; in-place rows are as those that they are made from."""

REFUSED_ON_DEVICES: Mapping[str, frozenset[Category]] = MappingProxyType(
    dict.fromkeys(("dot", "vdot"), frozenset({"bool", "int"}))
)
"""The same on other devices than the host; of products of nothing no library is asked."""


def _degrees_of_freedom(
    x: Any, dims: tuple[int, ...], unbiased: None, keepdim: bool, *, correction: Any
) -> Dim:
    """Where there are no results, eager counts no elements for one."""
    shape = tensor(x).shape
    left = numel([shape[d] for d in dims]) - math.floor(correction)
    return minimum(left, *(size for d, size in enumerate(shape) if d not in dims))


WARNED: Mapping[str, Callable[..., Dim]] = MappingProxyType(
    dict.fromkeys("std var std_mean var_mean".split(), _degrees_of_freedom)
)
"""Rows of which eager warns in C++ where this size, of the row's arguments, is not positive."""

_FINITE = (-sys.float_info.max, sys.float_info.max)
LIMITS: Mapping[str, Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        **dict.fromkeys(("isclose", "allclose"), {"rtol": (0, math.inf), "atol": (0, math.inf)}),
        "smooth_l1_loss": {"beta": (0, math.inf)},
        "huber_loss": {"delta": (math.ulp(0), math.inf)},
        "cosine_similarity": {"eps": (0, math.inf)},
        "softshrink": {"lambd": (0, sys.float_info.max)},
        "rrelu": {"lower": _FINITE, "upper": _FINITE},
        "cross_entropy": {"label_smoothing": (-math.inf, 1)},
        "triplet_margin_loss": {"margin": (math.ulp(0), math.inf)},
        "mvlgamma": {"p": (1, math.inf)},
        "scaled_dot_product_attention": {"dropout_p": (-math.inf, 1)},
        **dict.fromkeys(
            "dropout dropout1d dropout2d dropout3d nn_alpha_dropout feature_alpha_dropout "
            "torch_dropout feature_dropout alpha_dropout".split(),
            {"p": (0, 1)},
        ),
    }
)
"""The least and the greatest number that eager takes, by row and parameter."""
EXCLUDED: Mapping[str, Mapping[str, float]] = MappingProxyType({"celu": {"alpha": 0}})
"""The one number that eager does not take, by row and parameter."""
ANY_INSIDE = frozenset({"label_smoothing", "margin", "dropout_p"})
"""Of these a formula takes all numbers inside: a computed one is checked in each call. Others have
to be known while capturing."""


RANKS: Mapping[str, tuple[tuple[int, ...] | None, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("dot", "vdot", "outer"), ((1,), (1,))),
        "addr": ((0, 1, 2), (1,), (1,)),
        "addmv": ((0, 1), (2,), (1,)),
        "addbmm": ((0, 1, 2), (3,), (3,)),
        **dict.fromkeys(("tril", "triu"), (tuple(range(2, 65)),)),
        "trace": ((2,),),
        "group_norm": (tuple(range(2, 65)),),
        "patches": ((3, 4),),
        **{
            f"adaptive_{kind}_pool{n}d": ((n + 1, n + 2),)
            for kind in ("avg", "max")
            for n in (1, 2, 3)
        },
        **dict.fromkeys(("split", "chunk", "unbind"), (tuple(range(1, 65)),)),
        "diag": ((1, 2),),
        "linear": (None, (1, 2)),
        "bilinear": (None, None, (3,), (1,)),
        "corrcoef": ((0, 1, 2),),
    }
)
"""How many dimensions eager takes, by row and position of an operand; None: the type rule knows."""


def refuse_ranks(name: str, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]) -> None:
    """Raises ``OpError`` where eager refuses an operand for the number of its dimensions."""
    ranks = RANKS.get(name.rstrip("_"))
    if ranks is None:
        return
    given, _ = OPS[name].signature.split(args, kwargs)  # given by name or not
    for arg, taken in zip(given, ranks):
        if taken is None or not is_tensor(arg):
            continue
        rank = tensor(arg).rank
        if rank not in taken:
            raise OpError(f"{name} takes tensors of {taken} dimensions, got {rank}")


def refuse_numbers(name: str, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]) -> None:
    """Raises ``OpError`` where a number is outside of its limits, or may be; sizes are inside."""
    limits, excluded = LIMITS.get(name.rstrip("_"), {}), EXCLUDED.get(name.rstrip("_"), {})
    if not limits and not excluded:
        return
    bound: Mapping[str, Any] = OPS[name].signature.bind(args, kwargs)
    for parameter, number in excluded.items():
        if bound[parameter] == number:
            raise OpError(f"{name} does not support {parameter}={number}")
    for parameter, (least, greatest) in limits.items():
        number = bound[parameter]
        if isinstance(number, (Scalar, ScalarInput)) and parameter not in ANY_INSIDE:
            raise OpError(f"{parameter} of {name} is a number that data decides")
        if isinstance(number, (int, float)) and not least <= number <= greatest:
            raise OpError(f"{name} does not support {parameter}={number}")


UNDIFFERENTIABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "binary_cross_entropy": ("weight",),
        "binary_cross_entropy_with_logits": ("weight", "pos_weight"),
        "cross_entropy": ("weight",),
        "nll_loss": ("weight",),
        "soft_margin_loss": ("target",),
    }
)
"""Parameters in whose direction ATen has no derivative, though the formula has one."""


def refuse_gradients(name: str, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]) -> None:
    """Raises ``OpError`` where eager, recording gradients, takes no argument of a row of
    ``UNDIFFERENTIABLE`` that requires them. Of a target of probabilities ``cross_entropy`` is made
    of operators that have all of theirs."""
    refused = UNDIFFERENTIABLE[name]
    bound: Mapping[str, Any] = OPS[name].signature.bind(args, kwargs)
    if name == "cross_entropy" and tensor(bound["target"]).dtype.is_floating:
        return
    for parameter in refused:
        if is_tensor(bound[parameter]) and tensor(bound[parameter]).requires_grad:
            raise OpError(f"{name} is not differentiable with respect to {parameter}")


def refuse_dtypes(name: str, args: tuple[Arg, ...]) -> None:
    """Raises ``OpError`` where eager has no kernel for tensors of these dtypes."""
    row = name.rstrip("_")
    if row not in REFUSED and row not in REFUSED_ON_DEVICES:
        return
    found, refused = tensors_of(args), REFUSED.get(row, frozenset())
    if any(t.device != HOST for t in found):
        refused |= REFUSED_ON_DEVICES.get(row, frozenset())
    if found and all(t.dtype.category in refused for t in found):
        raise OpError(f"{name} is not implemented for {found[0].dtype}")
