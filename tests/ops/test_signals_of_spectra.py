"""`torch.istft`: one graph for all lengths, and what eager refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

LENGTHS = (64, 100, 33, 17, 256)
FORMS = {
    "as it was cut": {},
    "so long": {"length": 30},
    "longer than it was cut": {"length": 300},
    "not centred": {"center": False},
    "one side of two": {"onesided": False},
    "complex": {"onesided": False, "return_complex": True},
    "normalized": {"normalized": True},
}


def there_and_back(x, window, form):
    sides = {"onesided": form.get("onesided", True), "normalized": form.get("normalized", False)}
    spectrum = torch.stft(x, 16, 4, window=window, return_complex=True, **sides)
    return torch.istft(spectrum * 0.5, 16, 4, window=window, **form)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("window", [None, torch.hamming_window(16)], ids=["all", "hamming"])
@pytest.mark.filterwarnings("ignore:The length of signal is shorter")
def test_a_signal_from_its_spectrum_is_one_graph_for_all_lengths(name, window) -> None:
    fast = anyshape.compile(there_and_back, fullgraph=True)
    for count in LENGTHS:
        x = torch.randn(2, count)
        wanted = there_and_back(x, window, FORMS[name])
        found = fast(x, window, FORMS[name])
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()
    assert fast.stats().specializations == 1


def test_gradients_of_a_signal_are_those_of_eager() -> None:
    fast = anyshape.compile(there_and_back, fullgraph=True)
    for count in LENGTHS:
        x = torch.randn(count)
        ours, eagers = x.clone().requires_grad_(), x.clone().requires_grad_()
        fast(ours, torch.hamming_window(16), {}).square().sum().backward()
        there_and_back(eagers, torch.hamming_window(16), {}).square().sum().backward()
        torch.testing.assert_close(ours.grad, eagers.grad)


@pytest.mark.parametrize(
    "refused",
    [
        lambda z: torch.istft(z, 16, 4, window=torch.zeros(16)),
        lambda z: torch.istft(z, 20, 4),
        lambda z: torch.istft(z.real, 16, 4),
        lambda z: torch.istft(z[:, :0], 16, 4),
        lambda z: torch.istft(z, 16, 20),
        lambda z: torch.istft(z[:, :1], 16, 4, window=torch.ones(16)),
    ],
)
def test_what_eager_refuses_is_refused(refused) -> None:
    z = torch.randn(9, 5, dtype=torch.complex64)
    for run in (refused, anyshape.compile(refused)):
        with pytest.raises(RuntimeError):
            run(z)


def test_spectra_of_real_numbers_that_eager_conjugates_when_they_are_read() -> None:
    def spectra(x: Tensor) -> tuple[Any, ...]:
        y = torch.fft.ihfft(x)
        again = torch.fft.ifft(x).add_(1)
        return y, y.is_conj(), y.resolve_conj(), again, again.is_conj(), y * 2

    fast = anyshape.compile(spectra)
    for rows in (3, 1):
        x = torch.randn(rows, 5)
        for found, wanted in zip(fast(x), spectra(x), strict=True):
            assert type(found) is type(wanted)
            if isinstance(wanted, bool):
                assert found is wanted
            else:
                assert found.is_conj() == wanted.is_conj()
                torch.testing.assert_close(found, wanted)
