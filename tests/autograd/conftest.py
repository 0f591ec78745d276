"""What several tests of gradients are run under."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def doubles() -> Iterator[None]:
    """float64 where no dtype is named."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
