"""The counts of one compiled function, and what `explain` says of it."""

from __future__ import annotations

from dataclasses import dataclass

from anyshape.capture.heap.breaks import GraphBreak
from anyshape.errors import AnyshapeError


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of one compiled function so far. `kernels` are the different ones, `launches` all of
    one pass through each specialization, `host_syncs` the numbers such a pass waits for from other
    devices; `uncompiled` are calls of the original function, where segments between graph breaks
    save less than they cost; `joined` and `guarded` count branches on sizes. `internal_errors` are
    the different mistakes of ours (E602, E901) for which something ran eagerly. `gradients` are the
    specializations with a compiled backward half; `eager_graphs` says of each that eager torch runs
    whole, as where it has to record gradients, why.
    """

    specializations: int = 0
    segments: int = 0
    graph_breaks: int = 0
    recompiles: int = 0
    host_syncs: int = 0
    calls: int = 0
    uncompiled: int = 0
    compile_seconds: float = 0.0
    capture_seconds: float = 0.0
    kernels: int = 0
    launches: int = 0
    externs: int = 0
    eager_ops: int = 0
    joined: int = 0
    guarded: int = 0
    internal_errors: int = 0
    gradients: int = 0
    eager_graphs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` found: the breaks, the counts, and what is relied on of sizes and all else."""

    breaks: tuple[GraphBreak, ...]
    stats: Stats
    refusals: tuple[str, ...] = ()  # branches on sizes that had to be guarded, and why
    relied: str = ""  # what `fast.guards()` prints
    mistakes: tuple[AnyshapeError, ...] = ()  # of ours

    def __str__(self) -> str:
        stats = self.stats
        head = (
            f"{counted(stats.segments, 'segment')}, {counted(len(self.breaks), 'graph break')}; "
            f"branches on sizes: {stats.joined} joined, {stats.guarded} guarded"
        )
        return "\n\n".join(
            [head, *map(str, self.mistakes), *map(str, self.breaks), *self.refusals, self.relied]
        )


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 segment`, `2 segments`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
