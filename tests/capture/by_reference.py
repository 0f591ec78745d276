"""Captured programs run by the reference interpreter: no code generator takes part in the tests
of capture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyshape import reference
from anyshape.dispatch import Compiled
from anyshape.ir.graph import Graph
from anyshape.options import Options


class ByReference:
    """What `Compiled` needs of a compiled graph."""

    def __init__(
        self, graph: Graph, constants: Mapping[str, torch.Tensor], recorded: str = ""
    ) -> None:
        self.graph = graph
        self.constants = constants

    def run(self, *arguments: Any) -> tuple[Any, ...]:
        given = iter(arguments)
        inputs = [
            next(given) if entry.kind == "argument" else self.constants[entry.value.name]
            for entry in self.graph.inputs
        ]
        return reference.run(self.graph, inputs, modes=True)

    def count(self, kind: str) -> int:
        """No kernels, no library functions."""
        return 0


def compiled(fn: Callable[..., Any], **options: Any) -> Compiled:
    """`fn` captured; a graph break is an error unless `fullgraph=False`."""
    return Compiled(fn, Options(**{"fullgraph": True, **options}), ByReference)


def agree(fn: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> Compiled:
    """Each call gives what eager gives, bit for bit, with its dtypes, shapes and strides."""
    fast = compiled(fn, **options)
    for call in calls:
        same(fast(*call), fn(*call))
    return fast


def same(found: Any, wanted: Any) -> None:
    """Equal values of equal types, tensors with equal strides."""
    assert type(found) is type(wanted), (found, wanted)
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True, check_stride=True)
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            same(found[key], wanted[key])
    else:
        assert found == wanted


def in_one_graph(work: Callable[[], Any]) -> None:
    """What Python gives between two operators is the same compiled, in each call, without a break."""

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, work()

    fast = compiled(program)
    for _ in range(2):
        assert fast(torch.ones(2))[1] == work()
