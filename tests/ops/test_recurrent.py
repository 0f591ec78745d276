"""Recurrent layers: what their results are is known without a run of every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import anyshape
from anyshape.capture.tensors import meta

LAYERS = {
    "lstm": lambda: nn.LSTM(5, 4),
    "lstm of batches first": lambda: nn.LSTM(5, 4, num_layers=2, batch_first=True),
    "lstm both ways": lambda: nn.LSTM(5, 4, bidirectional=True, bias=False, batch_first=True),
    "projected lstm": lambda: nn.LSTM(5, 4, num_layers=2, proj_size=3, bidirectional=True),
    "gru": lambda: nn.GRU(5, 4, num_layers=2, bidirectional=True, batch_first=True),
    "rnn": lambda: nn.RNN(5, 4, bias=False),
    "rnn of relu": lambda: nn.RNN(5, 4, nonlinearity="relu", batch_first=True),
    "gru in bfloat16": lambda: nn.GRU(5, 4).to(torch.bfloat16),
}
SHAPES = ((3, 2, 5), (7, 1, 5), (1, 4, 5), (1, 1, 5), (6, 3, 5))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the meta kernels are asked for."""
    asked: list[Any] = []
    run = meta._run

    def noting(cx: Any, fn: Any, *rest: Any) -> Any:
        asked.append(fn)
        return run(cx, fn, *rest)

    monkeypatch.setattr(meta, "_run", noting)
    return asked


def tensors_of(results: Any) -> Iterator[torch.Tensor]:
    for result in results:
        yield from result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_results_are_eagers_and_no_step_is_taken_to_know_their_types(
    name: str, recorded: bool, runs: list[Any]
) -> None:
    layer = LAYERS[name]()
    fast = anyshape.compile(lambda x: layer(x), fullgraph=True)
    with torch.set_grad_enabled(recorded):
        for shape in SHAPES:
            x = torch.randn(shape, dtype=layer.weight_ih_l0.dtype)
            for ours, eagers in zip(tensors_of(fast(x)), tensors_of(layer(x)), strict=True):
                assert torch.equal(ours, eagers), shape
                assert ours.stride() == eagers.stride(), shape
                assert ours.requires_grad == eagers.requires_grad == recorded
    assert fast.stats().specializations == 1
    assert runs == []


def test_states_that_are_handed_in_are_read() -> None:
    layer = nn.LSTM(5, 4, num_layers=2)
    fast = anyshape.compile(lambda x, h, c: layer(x, (h, c)), fullgraph=True)
    for steps, batch in ((3, 2), (6, 1), (2, 5)):
        given = torch.randn(steps, batch, 5), *torch.randn(2, 2, batch, 4)
        ours, eagers = fast(*given), layer(given[0], given[1:])
        assert all(map(torch.equal, tensors_of(ours), tensors_of(eagers)))
    with pytest.raises(RuntimeError, match="Expected hidden"):
        fast(torch.randn(3, 2, 5), torch.randn(2, 3, 4), torch.randn(2, 3, 4))


def test_a_sequence_of_no_steps_is_refused_as_by_eager() -> None:
    layer = nn.GRU(5, 4)
    fast = anyshape.compile(lambda x: layer(x))
    fast(torch.randn(3, 2, 5))
    with pytest.raises(RuntimeError, match="larger than 0"):
        layer(torch.randn(0, 2, 5))
    with pytest.raises(RuntimeError, match="larger than 0"):
        fast(torch.randn(0, 2, 5))


def test_packed_sequences_are_not_taken_for_padded_ones() -> None:
    layer = nn.GRU(5, 4)

    def program(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return pad_packed_sequence(layer(packed)[0])[0]

    fast = anyshape.compile(program)
    for lengths in ([3, 1], [2, 5], [4, 4]):
        x = torch.randn(max(lengths), 2, 5)
        assert torch.equal(fast(x, torch.tensor(lengths)), program(x, torch.tensor(lengths)))
