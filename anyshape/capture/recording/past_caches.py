"""What the graph shows of calls past a cache (`heap/past_caches.py`): what its function has done,
and what becomes of tensors that it gave.

In: where the log of writes and the graph stood when the function was called, and its result; the
end of the segment. Out: capture begins again where the program could tell such a call from one of
the cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anyshape.capture.heap.past_caches import CachesAreSeen, PastCaches, parts_of
from anyshape.capture.heap.values import ScalarValue, TensorValue
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.ir.graph import Arg, Node, Value, values_in
from anyshape.ops.shared_memory import base_of, written_in
from anyshape.ops.table import OPS

Mark = tuple[int, int]
"""How many writes were logged, and how many nodes made."""
DATA = frozenset({TensorValue, ScalarValue})


def called(
    domain: RecordingDomain, cache: Any, since: Mark | None, given: Any, result: Any
) -> Mark | None:
    """The function behind a cache is called (``since`` None), or has given its result since then.
    What it writes outside or draws is done once for each key; what it computes of the contents of a
    tensor is what they were in the first call."""
    heap, recorder = domain.machine.heap, domain.recorder
    if since is None:
        return len(heap.effects), len(recorder.builder.nodes)
    past = heap.past_caches
    parts = list(parts_of(result))
    of_data = any(type(part) is TensorValue for part in parts_of(given))
    if len(heap.effects) > since[0] or _touches(recorder.builder.nodes, since[1]):
        past.see(cache)
    if of_data and any(type(part) in DATA for part in parts):
        past.see(cache)
    for part in parts:
        made = type(part) is TensorValue and recorder.source_of(part.value) is None
        if made or heap.is_created(part):
            past.add(cache, part)
    return None


def _touches(nodes: list[Node], first: int) -> bool:
    """Whether the nodes from the first on draw, or write to what was made before them."""
    rows = [OPS.get(node.op) for node in nodes[first:]]
    if any(row is not None and row.resource in ("generator", "arguments") for row in rows):
        return True
    made = {value for node in nodes[first:] for value in node.outputs}
    return not written_in(nodes[first:], OPS) <= made


def refuse_seen(past: PastCaches, recorder: Recorder, outputs: Iterable[Arg]) -> None:
    """At the end of a segment that hands out the outputs: no tensor of a cache may be among them,
    nor be written, nor a view of it."""
    if past.seen:
        raise CachesAreSeen(past.seen)
    given = {part: cache for part, cache in past.results.values() if type(part) is Value}
    if not given:
        return
    nodes = recorder.builder.nodes
    makers = {value: node for node in nodes for value in node.outputs}
    out = set(values_in(tuple(outputs)))
    seen = out | {base_of(value, makers, OPS) for value in out} | written_in(nodes, OPS)
    for value, cache in given.items():
        base = base_of(value, makers, OPS)
        if value in seen or (base in makers and base in seen):
            raise CachesAreSeen(frozenset({id(cache)}))
