"""What a running segment does around what it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anyshape.eager import CheckFailed
from anyshape.interrupts import is_interrupt
from anyshape.runtime.launch import WriteFailed


def writing_last(run: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """What cannot be done twice is done last (``ir/verify_program.py``): where anything before it
    raises, the segment has not happened."""

    def writing(*arguments: Any) -> tuple[Any, ...]:
        try:
            return run(*arguments)
        except CheckFailed:
            raise
        except WriteFailed as failed:
            raise failed.__cause__ or failed from None
        except Exception as error:
            if is_interrupt(error):
                raise
            raise CheckFailed(str(error)) from error

    return writing


def without_gradients(run: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """A segment entered in grad mode that reads what requires grad only where that is off."""

    def ungraded(*arguments: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            return run(*arguments)

    return ungraded
