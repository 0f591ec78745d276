"""The states of the generators that a graph draws from.

In: a graph. Out: nothing where no operator draws, else the devices whose generators one may draw
from, the host among them; their states before a run, which are put back where the same numbers are
drawn again: the segment runs natively, eager torch replays the forward part, a stage of the
compiler is compared with another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from anyshape.ir.graph import HOST, Graph, Node, TensorType
from anyshape.ir.nesting import nodes_in
from anyshape.nouns import frozen
from anyshape.ops import OPS

GENERATORS = frozenset({HOST, "cuda"})
"""Types of devices whose generators have a state that is read and put back."""


def devices_drawn_on(graph: Graph) -> tuple[str, ...]:
    """Those of what these operators read and make, after the host; () where nothing is drawn."""
    drawing = [node for node in nodes_in(graph) if _may_draw(node)]
    kinds = [value.type for node in drawing for value in (*node.inputs(), *node.outputs)]
    devices = (kind.device for kind in kinds if isinstance(kind, TensorType))
    known = (device for device in devices if torch.device(device).type in GENERATORS)
    return tuple(dict.fromkeys((HOST, *known))) if drawing else ()


def _may_draw(node: Node) -> bool:
    """Of an operator without a row nobody knows: a custom one may."""
    row = OPS.get(node.op)
    return row is None or row.resource in ("generator", "unknown")


@frozen
class RandomState:
    """By device; of the default generators, as no node draws from another one."""

    states: tuple[tuple[str, torch.Tensor], ...]

    @classmethod
    def of(cls, devices: Sequence[str]) -> RandomState:
        """As they are now. While work for a device is being recorded, its generator has none."""
        return cls(tuple([(d, _state(d)) for d in devices if d == HOST or not _is_recorded(d)]))

    def put_back(self) -> None:
        for device, state in self.states:
            if device == HOST:
                torch.set_rng_state(state)
            else:
                torch.get_device_module(device).set_rng_state(state, device)

    @contextmanager
    def drawn_again(self) -> Iterator[None]:
        """Draws inside are those that followed these states; those behind go on as if there had
        been none inside."""
        now = RandomState.of([device for device, _ in self.states])
        self.put_back()
        try:
            yield
        finally:
            now.put_back()


def _is_recorded(device: str) -> bool:
    recorded: bool = torch.get_device_module(device).is_current_stream_capturing()
    return recorded


def _state(device: str) -> torch.Tensor:
    if device == HOST:
        return torch.get_rng_state()
    state: torch.Tensor = torch.get_device_module(device).get_rng_state(device)
    return state
