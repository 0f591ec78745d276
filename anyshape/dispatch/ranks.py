"""Warnings of a job of many processes: what every process would say alike is said by the first."""

from __future__ import annotations

from torch import distributed

from anyshape.errors import MISTAKES, AnyshapeError, warn


def warn_once(why: AnyshapeError) -> None:
    """The warning, unless another process of the job gives it. Mistakes of ours need not be alike,
    and are reported by each."""
    if why.code in MISTAKES or not _is_behind():
        warn(why)


def _is_behind() -> bool:
    return (
        distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0
    )
