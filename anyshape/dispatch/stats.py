"""The counts of one compiled function, and what `explain` says of it."""

from __future__ import annotations

from dataclasses import field, fields

from anyshape.capture.heap.breaks import GraphBreak
from anyshape.errors import AnyshapeError
from anyshape.nouns import frozen
from anyshape.symbolic.work import Stage


def _count(meaning: str) -> int:
    return field(default=0, metadata={"meaning": meaning})


def _seconds(meaning: str) -> float:
    return field(default=0.0, metadata={"meaning": meaning})


@frozen
class Stats:
    """Counts of one compiled function so far; `print(stats)` is a table with a verdict on top."""

    specializations: int = _count("compiled specializations, of all segments")
    programs: int = _count("programs that they run: equal ones are compiled once")
    segments: int = _count("pieces that graph breaks cut the program into")
    graph_breaks: int = _count("how often it was cut")
    recompiles: int = _count("made because a guard failed; fast.recompiles() says which")
    host_syncs: int = _count("numbers that one pass waits for from another device")
    calls: int = _count("calls so far")
    uncompiled: int = _count("calls of the original, as segments would cost more than they save")
    denied: int = _count("calls that ran natively, as data was not as it was expected to be")
    compile_seconds: float = _seconds("to capture and to compile")
    capture_seconds: float = _seconds("of these, to capture")
    kernels: int = _count("different generated kernels")
    launches: int = _count("launches of kernels in one pass through each specialization")
    externs: int = _count("library functions in such a pass")
    eager_ops: int = _count("operators that eager torch runs in such a pass")
    joined: int = _count("branches on sizes or data of which both sides were captured")
    guarded: int = _count("branches on sizes that a guard decides")
    internal_errors: int = _count("mistakes of ours, for which a part ran eagerly")
    questions: int = _count("questions about sizes that were worked out")
    solver_steps: int = _count("steps of search and elimination that these took")
    gradients: int = _count("specializations with a compiled backward half")
    recorded: int = _count("operators without a gradient rule, recorded by torch's autograd")
    graphs: int = _count("calls of native regions that are kept as CUDA graphs")
    replays: int = _count("launches of such graphs")
    eager_graphs: tuple[str, ...] = field(
        default=(), metadata={"meaning": "why eager torch runs a graph whole, each time it does"}
    )

    stages: tuple[Stage, ...] = field(
        default=(), metadata={"meaning": "stages of compiles, with the time and questions of each"}
    )

    def verdict(self) -> str:
        """In one line: what runs compiled, and what to look at where not all does."""
        if not self.calls:
            return "not called yet"
        return next(text for holds, text in self._verdicts() if holds)

    def _verdicts(self) -> tuple[tuple[object, str], ...]:
        """The worst that holds comes first."""
        breaks = counted(self.graph_breaks, "graph break")
        listed = "anyshape.explain(fn)(...) lists them"
        return (
            (
                self.internal_errors,
                "right, and in part native for mistakes of ours: report them",
            ),
            (not self.specializations, "native: nothing of it is compiled"),
            (self.uncompiled, f"mostly native: {breaks} leave too little to compile; {listed}"),
            (self.eager_graphs and not self.kernels, "captured, and run by eager torch: no faster"),
            (self.graph_breaks, f"compiled in {self.segments} pieces: {breaks}; {listed}"),
            (self.eager_ops, f"compiled, but for {counted(self.eager_ops, 'eager operator')}"),
            (self.recompiles, "compiled whole, more than once: fast.recompiles() says why"),
            (True, "compiled whole, once"),
        )

    def __str__(self) -> str:
        wide = max(len(row.name) for row in fields(self))
        lines = [
            f"{row.name:<{wide}}  {_shown(getattr(self, row.name)):>9}  {row.metadata['meaning']}"
            for row in fields(self)
        ]
        return "\n".join([self.verdict(), *lines, *(f"  {stage}" for stage in self.stages)])


def _shown(value: float | tuple[object, ...]) -> str:
    if isinstance(value, tuple):
        return str(len(value))
    return str(value) if isinstance(value, int) else f"{value:.3f}"


@frozen
class Explanation:
    """What `explain` found: the breaks, the counts, and what is relied on of sizes and all else."""

    breaks: tuple[GraphBreak, ...]
    stats: Stats
    refusals: tuple[str, ...] = ()  # branches on sizes that had to be guarded, and why
    relied: str = ""  # what `fast.guards()` prints
    mistakes: tuple[AnyshapeError, ...] = ()  # of ours
    saved: tuple[str, ...] = ()  # what is kept for gradients, of each segment that has some
    measured: tuple[str, ...] = ()  # schedules that were measured, of each segment that has some

    def __str__(self) -> str:
        stats = self.stats
        head = (
            f"{counted(stats.segments, 'segment')}, {counted(len(self.breaks), 'graph break')}; "
            f"branches on sizes: {stats.joined} joined, {stats.guarded} guarded"
        )
        return "\n\n".join(
            [
                head,
                *map(str, self.mistakes),
                *map(str, self.breaks),
                *self.refusals,
                *self.saved,
                *self.measured,
                self.relied,
            ]
        )


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 segment`, `2 segments`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
