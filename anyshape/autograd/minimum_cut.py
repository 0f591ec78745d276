"""The minimum cut of a network with capacities on its nodes: Dinic's algorithm.

In: nodes with capacities, edges, which nodes the source feeds and which the sink drains. Out: the
nodes of the minimum cut that lie nearest to the source, or to the sink.
E. A. Dinic, Algorithm for solution of a problem of maximum flow in networks, 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from typing import TypeVar

from anyshape.nouns import mutable

UNBOUNDED = 1 << 62
N = TypeVar("N", bound=Hashable)


class NoCut(Exception):
    """Every cut has a node of unbounded capacity."""


def minimum_cut(
    capacities: Mapping[N, int],
    edges: Iterable[tuple[N, N]],
    fed: Iterable[N],
    drained: Iterable[N],
    *,
    latest: bool = False,
) -> set[N]:
    """The nodes without which nothing flows from ``fed`` to ``drained``, of the least capacity in
    all; of several such sets that which lies nearest to ``fed``, or to ``drained`` if ``latest``.
    Raises ``NoCut``."""
    number = {node: i for i, node in enumerate(capacities)}
    count = len(number)
    source, sink = 2 * count, 2 * count + 1
    network = _Network([[] for _ in range(2 * count + 2)])
    for node, capacity in capacities.items():
        network.edge(2 * number[node], 2 * number[node] + 1, capacity)
    for start, end in edges:
        network.edge(2 * number[start] + 1, 2 * number[end], UNBOUNDED)
    for node in fed:
        network.edge(source, 2 * number[node], UNBOUNDED)
    for node in drained:
        network.edge(2 * number[node] + 1, sink, UNBOUNDED)
    if network.flow(source, sink) >= UNBOUNDED:
        raise NoCut
    if latest:
        ends = network.leading_to(sink)
        return {n for n, i in number.items() if 2 * i + 1 in ends and 2 * i not in ends}
    near = network.levels(source)
    return {n for n, i in number.items() if near[2 * i] >= 0 and near[2 * i + 1] < 0}


@mutable
class _Network:
    """Edges by where they start; an edge and its reverse are ``e`` and ``e ^ 1``."""

    out: list[list[int]]
    ends: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)

    def edge(self, start: int, end: int, capacity: int) -> None:
        self.out[start].append(len(self.ends))
        self.ends.append(end)
        self.left.append(capacity)
        self.out[end].append(len(self.ends))
        self.ends.append(start)
        self.left.append(0)

    def levels(self, source: int) -> list[int]:
        """How many edges with something left lie between the source and each node; -1: no path."""
        level = [-1] * len(self.out)
        level[source] = 0
        waiting = deque([source])
        while waiting:
            node = waiting.popleft()
            for e in self.out[node]:
                end = self.ends[e]
                if self.left[e] > 0 and level[end] < 0:
                    level[end] = level[node] + 1
                    waiting.append(end)
        return level

    def leading_to(self, sink: int) -> set[int]:
        """The nodes from which edges with something left lead to the sink."""
        found, waiting = {sink}, deque([sink])
        while waiting:
            for e in self.out[waiting.popleft()]:
                start = self.ends[e]
                if self.left[e ^ 1] > 0 and start not in found:
                    found.add(start)
                    waiting.append(start)
        return found

    def flow(self, source: int, sink: int) -> int:
        """Fills the network; the flow, at most ``UNBOUNDED``."""
        total = 0
        while total < UNBOUNDED:
            level = self.levels(source)
            if level[sink] < 0:
                break
            following = [0] * len(self.out)
            while pushed := self._push(source, sink, level, following):
                total += pushed
        return min(total, UNBOUNDED)

    def _push(self, source: int, sink: int, level: list[int], following: list[int]) -> int:
        """One path through the levels, filled."""
        path: list[int] = []
        node = source
        while node != sink:
            edges = self.out[node]
            while following[node] < len(edges):
                e = edges[following[node]]
                if self.left[e] > 0 and level[self.ends[e]] == level[node] + 1:
                    break
                following[node] += 1
            else:
                if not path:
                    return 0
                e = path.pop()
                node = self.ends[e ^ 1]
                following[node] += 1
                continue
            path.append(e)
            node = self.ends[e]
        least = min(self.left[e] for e in path)
        for e in path:
            self.left[e] -= least
            self.left[e ^ 1] += least
        return least
