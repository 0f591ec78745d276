"""What is done around the run of a program: failures, version counters, grad mode.

In: a function that runs a program. Out: one that does the same, and one thing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyshape.eager import CheckFailed
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Graph
from anyshape.passes.versions import Moves
from anyshape.runtime.launch import WriteFailed, with_counters_of_their_own
from anyshape.version_counters import move_version, set_version


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


def moving_versions(
    run: Callable[..., tuple[Any, ...]],
    moved: Moves,
    graph: Graph,
    constants: Mapping[str, torch.Tensor],
) -> Callable[..., tuple[Any, ...]]:
    """Counts the writes that eager would have done one by one."""
    arguments = [entry.value for entry in graph.inputs if entry.value.name not in constants]
    positions = {value: position for position, value in enumerate(arguments)}
    written = [(graph.inputs[position].value, times) for position, times in moved.inputs.items()]
    fixed = [(constants[v.name], times) for v, times in written if v not in positions]
    given = [(positions[v], times) for v, times in written if v in positions]

    def moving(*arguments: Any) -> tuple[Any, ...]:
        results = run(*arguments)
        for tensor, times in fixed:
            move_version(tensor, times)
        for position, times in given:
            move_version(arguments[position], times)
        if moved.own_counters:
            results = with_counters_of_their_own(results, moved.own_counters)
        for position, version in moved.outputs.items():
            set_version(results[position], version)
        return results

    return moving


def without_gradients(run: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """A segment entered in grad mode that reads what requires grad only where that is off."""

    def ungraded(*arguments: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            return run(*arguments)

    return ungraded
