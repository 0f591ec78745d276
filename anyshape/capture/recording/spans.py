"""Part of a capture, from where a function begins to where it ends: what it does is looked at then.

In: a domain, at the beginning. Out: where nodes, effects and objects that are made later begin.
"""

from __future__ import annotations

from anyshape.capture.recording.domain import RecordingDomain
from anyshape.nouns import frozen


@frozen
class Span:
    """What there was when it began. ``journal``: a mark of the heap's, which is to be released."""

    nodes: int
    effects: int
    journal: int
    created: int


def begun(domain: RecordingDomain) -> Span:
    """From here on what is written is noted, until the heap's mark is released."""
    nodes, heap = domain.recorder.builder.nodes, domain.machine.heap
    return Span(len(nodes), len(heap.effects), heap.checkpoint(), len(heap.created))
