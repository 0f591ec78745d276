"""Flags of operators that follow from a size: each side is a specialization of its own, and a
program that has a dozen of them is one segment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from anyshape.capture.recording.integers import FLAGS, SYMBOLIC_FLAGS
from anyshape.ops import OPS


def flags(x: Tensor) -> tuple[Tensor, ...]:
    """What differs with a flag: a shape, numbers, what is drawn or what is written."""
    flag = len(x) > 3
    written, dropped = x * 1, x * 1
    again = F.relu(written, flag)
    drawn = F.dropout(dropped, 0.5, True, inplace=flag)
    return (
        F.dropout(x, 0.5, training=flag),
        torch.dropout(x, 0.5, flag),
        x.sum(1, keepdim=flag),
        x.amax(1, flag),
        x.var(1, unbiased=flag),
        x.std(flag),
        F.batch_norm(x, torch.zeros(2), torch.ones(2), training=flag),
        x.sort(1, descending=flag)[0],
        torch.isin(x, x[:1], invert=flag),
        F.mse_loss(x, -x, reduce=flag),
        F.l1_loss(x, -x, size_average=flag),
        F.interpolate(x[None], size=4, mode="linear", align_corners=flag),
        again * (2 if again is written else 3),
        written,
        drawn * (2 if drawn is dropped else 3),
        dropped,
    )


def of_operators_without_rows(x: Tensor) -> tuple[Tensor, ...]:
    flag = len(x) > 3
    square = x.mT @ x + 2 * torch.eye(2)
    return (
        F.affine_grid(x[:2].view(1, 2, 2) @ torch.ones(2, 3), (1, 1, 2, 3), align_corners=flag),
        torch.hann_window(len(x) + 3, periodic=flag),
        torch.kaiser_window(len(x) + 3, flag),
        torch.vander(x[:, 0], increasing=flag),
        torch.linalg.matrix_norm(x, "fro", (-2, -1), flag),
        torch.put(x, torch.tensor([0, 0]), x[0], flag),
        torch.stft(x.view(-1), 2, 1, window=torch.ones(2), onesided=flag, return_complex=True),
        torch.linalg.solve_triangular(square, square, upper=flag, left=flag),
        x.std(unbiased=flag),
    )


def test_flags_of_operators_that_have_no_row_are_decided() -> None:
    fast = anyshape.compile(of_operators_without_rows, fullgraph=True)
    for rows in (2, 5, 3, 7):
        x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(rows))
        for found, expected in zip(fast(x), of_operators_without_rows(x), strict=True):
            torch.testing.assert_close(found, expected)
    assert fast.stats().specializations == 2


def test_every_parameter_that_torch_calls_a_bool_is_a_flag() -> None:
    """Of every row whose name, or torch's name, ATen has an operator of."""
    missing = set()
    for row in OPS.values():
        for name in {row.name, row.name.rstrip("_"), (row.torch or "").rpartition(".")[2]}:
            packet = getattr(torch.ops.aten, name, None) if name else None
            for overload in packet.overloads() if packet else ():
                arguments = getattr(packet, overload)._schema.arguments
                bools = {a.name for a in arguments if str(a.type) in ("bool", "Optional[bool]")}
                missing |= bools & {*row.signature.names} - FLAGS - SYMBOLIC_FLAGS
    assert not missing


def test_flags_that_follow_from_sizes_are_decided_and_not_taken_for_false() -> None:
    fast = anyshape.compile(flags, fullgraph=True)
    for rows in (2, 5, 3, 7):
        x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(rows))
        outcomes = []
        for run in (fast, flags):
            torch.manual_seed(0)
            outcomes.append([*run(x), torch.rand(1)])
        for found, expected in zip(*outcomes, strict=True):
            torch.testing.assert_close(found, expected)
    assert fast.stats().specializations == 2
