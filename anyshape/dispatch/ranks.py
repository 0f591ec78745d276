"""Warnings of ours: where a call ends, and what every process of a job would say alike is said by
the first."""

from __future__ import annotations

from torch import distributed

from anyshape.errors import MISTAKES, AnyshapeError, warn


def warn_once(why: AnyshapeError) -> None:
    """The warning, unless another process of the job gives it. Mistakes of ours need not be alike,
    and are reported by each."""
    if why.code in MISTAKES or not _is_behind():
        warn(why)


class Notices:
    """Warnings of ours: they are given where the call ends, since the program may record its own
    within it, or turn them into errors."""

    def __init__(self) -> None:
        self.waiting: list[AnyshapeError] = []

    def add(self, why: AnyshapeError) -> None:
        self.waiting.append(why)

    def tell(self) -> None:
        """Each once, also where another thread ends its call."""
        while self.waiting:
            warn_once(self.waiting.pop(0))


def _is_behind() -> bool:
    return (
        distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0
    )
