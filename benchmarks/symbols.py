"""Thousands of sizes that data decides: `python -m benchmarks.symbols`.

Rounds of sizes from `.tolist()` or `.item()`, then split, flip, cat and pointwise work. Each side
runs in a process of its own with empty caches; torch.export only traces, and only so long.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

import torch

import anyshape
from benchmarks import report

Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def with_tolist(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """All sizes of a round at once."""
    for i in range(lengths.shape[0]):
        parts = torch.split(x, lengths[i].tolist())
        x = torch.cat([part.flip(0) for part in parts]) * 2 + 1
    return x


def with_item(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """One size after the other."""
    for i in range(lengths.shape[0]):
        sizes = [lengths[i, j].item() for j in range(lengths.shape[1])]
        parts = torch.split(x, sizes)
        x = torch.cat([part.flip(0) for part in parts]) * 2 + 1
    return x


PROGRAMS: Mapping[str, Program] = MappingProxyType({"tolist": with_tolist, "item": with_item})


@dataclass(frozen=True, slots=True)
class Case:
    """``rounds`` rounds of ``sizes`` sizes each."""

    program: str
    rounds: int
    sizes: int

    def arguments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A vector, and for each round lengths that sum to its own."""
        torch.manual_seed(0)
        lengths = torch.randint(0, 4, (self.rounds, self.sizes))
        lengths[:, -1] += 4 * self.sizes - lengths.sum(1)
        return torch.randn(4 * self.sizes), lengths


CASES = (
    Case("tolist", 40, 128),
    Case("item", 40, 128),
    Case("tolist", 160, 128),
    Case("tolist", 40, 512),
)


class Wrapped(torch.nn.Module):
    """torch.export wants a module."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.program(x, lengths)


def ours(case: Case) -> dict[str, object]:
    """Times of the first call, and whether it and a second one are right."""
    program, arguments = PROGRAMS[case.program], case.arguments()
    fast = anyshape.compile(program, fullgraph=True)
    wall, processor = time.perf_counter(), cpu_seconds()
    result = fast(*arguments)
    wall, processor = time.perf_counter() - wall, cpu_seconds() - processor
    stats = fast.stats()
    other = (arguments[0], arguments[1].flip(1).contiguous())
    right = torch.equal(result, program(*arguments)) and torch.equal(fast(*other), program(*other))
    return {
        "capture s": stats.capture_seconds,
        "first call s": wall,
        "of a processor s": processor,
        "kernels": stats.kernels,
        "right": "yes" if right and fast.stats().specializations == 1 else "NO",
    }


def cpu_seconds() -> float:
    """What this process and its children have used: other work on the machine does not count."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def theirs(case: Case) -> dict[str, object]:
    """The time that torch.export takes to trace the program."""
    module, arguments = Wrapped(PROGRAMS[case.program]), case.arguments()
    wall = time.perf_counter()
    torch.export.export(module, arguments)
    return {"torch.export s": time.perf_counter() - wall}


def measure(side: str, case: Case, limit: float | None = None) -> dict[str, object]:
    """Runs one side in a process of its own with empty caches."""
    given = [side, "--case", json.dumps(asdict(case))]
    with tempfile.TemporaryDirectory() as caches:
        found = report.figures_of("benchmarks.symbols", given, caches, limit)
    return {f"{side} s": found} if isinstance(found, str) else found


def row_of(case: Case, first: Mapping[str, object] | None, limit: float) -> dict[str, object]:
    """One line of the table; the growth is over the first line, in time of a processor."""
    row: dict[str, object] = {
        "program": case.program,
        "rounds": case.rounds,
        "sizes a round": case.sizes,
        **measure("anyshape", case),
    }
    mine, base = row.get("of a processor s"), (first or {}).get("of a processor s")
    if isinstance(mine, float) and isinstance(base, float):
        row["times the first"] = mine / base
    if limit:
        row.update(measure("torch.export", case, limit))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", help="anyshape or torch.export; used by the script itself")
    parser.add_argument("--case", help="used by the script itself")
    parser.add_argument("--limit", type=float, default=60, help="seconds for torch.export, 0: none")
    arguments = parser.parse_args()
    if arguments.worker:
        work = ours if arguments.worker == "anyshape" else theirs
        print(json.dumps(work(Case(**json.loads(arguments.case)))))
        return
    rows: list[dict[str, object]] = []
    for case in CASES:
        rows.append(row_of(case, rows[0] if rows else None, arguments.limit))
        print(report.table(rows[-1:]), flush=True)
        report.save("symbols", rows)


if __name__ == "__main__":
    main()
