"""From figures to files: a JSON file for each benchmark, docs/benchmarks.md and the README's table.

Every number in those two pages comes from benchmarks/results/*.json, none is written by hand.
`python -m benchmarks.report` writes the pages again from what is there.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import torch

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results")
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"

Row = Mapping[str, object]
OF_TWO_CHECKOUTS = ("against", "instructions")
"""Benchmarks that are run by themselves, with two checkouts as arguments."""
MACHINE = "machine"
"""What a row was measured on, where that is not what its benchmark was measured on last."""
MACHINE_KEYS = ("cpu", "cores", "threads", "torch", "python", "date")

# name -> (title, what is measured)
BENCHMARKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "compile_time": (
            "Compile time",
            "Eight lengths of one model, each side in a process of its own with empty caches: the "
            "sum of the eight first calls less the eight second calls. Imports and building the "
            "model are left out. A warm start is a second process with the first one's disk cache.",
        ),
        "run_time": (
            "Run time of models",
            "Later calls, interleaved in one process, median of 31. The ratios are medians of the "
            "rounds' own ratios; the peer is the better of torch.compile with dynamic=False (one "
            "graph a shape) and dynamic=True.",
        ),
        "training": (
            "Training steps",
            "Forward, backward and AdamW of models in training mode, the median of the rounds, "
            "taking turns. `model`: the module compiled, the optimizer eager, as the peer is; "
            "`step`: the whole step compiled; `peer`: torch.compile, static or dynamic, in a "
            "process of its own beside ours. Ratios are of the better of our two. `first s`: the "
            "first steps in seconds, ours of all shapes, the peer's of those up to this one.",
        ),
        "kernels": (
            "Single fused kernels",
            "One fused expression at four sizes, anyshape from one compile for all of them. The "
            "peer is the better of Inductor's static (one graph a size) and dynamic kernels.",
        ),
        "declared": (
            "Declared sizes",
            "The same models with batch and length declared (`shapes=`) against undeclared, "
            "interleaved in one process, median of 31: 1 means that declaring costs nothing.",
        ),
        "overhead": (
            "Overhead of a call",
            "What a call costs besides its kernels.",
        ),
        "short": (
            "Short programs",
            "Imports behind torch's, and first calls in a process that has compiled before, with "
            "an empty cache of kernels and with a full one. Milliseconds of a processor, the C "
            "compiler's included; the median of seven processes.",
        ),
        "against": (
            "Beside an earlier state",
            "Milliseconds of a processor on one thread, each row in two checkouts that take turns "
            "(`python benchmarks/against.py BEFORE AFTER`): medians, and the median of the ratios "
            "of neighbours, over 1 where the later state is slower.",
        ),
        "instructions": (
            "Instructions beside an earlier state",
            "Thousands of instructions of first and later calls of short programs, under callgrind "
            "(`python -m benchmarks.instructions BEFORE AFTER`), which the load of a machine does "
            "not move. A first call is from `anyshape.compile` to the result, with kernels from "
            "the cache; kernels run with the vector instructions that callgrind knows.",
        ),
        "symbols": (
            "Thousands of sizes that data decides",
            "Rounds of sizes from a tensor, split, flip, cat and pointwise work, as one graph. The "
            "first call with empty caches; torch.export traces the same program, up to a limit.",
        ),
        "growth": (
            "Growth with the program",
            "Models with n layers that decode with a padded, growing cache (eight tokens), and "
            "programs with n sizes that data decides: the first call, in seconds of a processor, "
            "and what was counted; of models of the zoo, which say how many shapes n is, the first "
            "calls. Each row is a process of its own with an empty cache; a second "
            "process has the first one's cache.",
        ),
    }
)


def figures_of(
    module: str, arguments: Sequence[str], caches: str, limit: float | None
) -> dict[str, object] | str:
    """One row, measured in a process of its own: what ``python -m module --worker`` prints as JSON
    in its last line; where there is nothing, why: it took more than ``limit`` seconds, or its
    error. ``caches`` is the folder of kernels."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, "--worker", *arguments],
            env={**os.environ, "ANYSHAPE_CACHE_DIR": caches, "ANYSHAPE_PROGRESS": "0"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"over {limit:.0f}"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:60]
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else platform.machine()


def save(name: str, rows: Sequence[Row], note: str | None = None) -> None:
    """Write the figures of one benchmark, and the pages that show them. Without a note, that of
    before stays."""
    RESULTS.mkdir(exist_ok=True)
    if note is None:
        note = (load(name) or {}).get("note", "")
    content = {"machine": machine(), "note": note, "rows": list(rows)}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_pages()


def merged(name: str, rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """The rows of before, replaced where they were measured anew. Those that stay say what they
    were measured on, where that was something else."""
    before, host = load(name), machine()
    if before is None:
        return list(rows)
    new = {tuple(row[key] for key in keys): row for row in rows}
    whole: list[Row] = []
    for row in before["rows"]:
        own = {key: value for key, value in row.items() if key != MACHINE}
        there = row.get(MACHINE, before["machine"])
        if any(there[key] != host[key] for key in MACHINE_KEYS):
            own[MACHINE] = there
        whole.append(new.pop(tuple(row[key] for key in keys), own))
    return [*whole, *new.values()]


def load(name: str) -> dict[str, object] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_pages() -> None:
    """docs/benchmarks.md, and the README between its two marks, from the figures that are there."""
    parts = [
        "# Benchmarks\n\nWritten by `make bench` from benchmarks/results/*.json; do not edit.\n"
    ]
    for name, (title, what) in BENCHMARKS.items():
        content = load(name)
        if content is None:
            continue
        rows = content["rows"]
        parts.append(f"## {title}\n\n{what}\n\n{describe(content['machine'])}\n")
        parts += [f"{line}\n" for line in measured_elsewhere(rows)]
        if content["note"]:
            parts.append(f"{content['note']}\n")
        parts.append(f"{markdown([own_figures(row) for row in rows])}\n")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    if README.exists():
        text = README.read_text(encoding="utf-8")
        table = f"<!-- figures -->\n{readme_table()}\n<!-- end of figures -->"
        new = re.sub(
            r"<!-- figures -->.*<!-- end of figures -->", lambda _: table, text, flags=re.DOTALL
        )
        README.write_text(new, encoding="utf-8")


def describe(host: Mapping[str, object]) -> str:
    return (
        f"{host['date']}, {host['cpu']}, {host['cores']} cores, {host['threads']} threads, "
        f"Python {host['python']}, torch {host['torch']}; load of the machine at the end "
        f"{host['load']} (more than the benchmark's own threads means that others were at work)."
    )


def own_figures(row: Row) -> Row:
    """The columns of a row."""
    return {key: value for key, value in row.items() if key != MACHINE}


def measured_elsewhere(rows: Sequence[Row]) -> list[str]:
    """A sentence for each machine or day that was not the last one: its rows, by their first
    column."""
    named: dict[str, dict[str, None]] = {}
    for row in rows:
        if MACHINE in row:
            named.setdefault(describe(row[MACHINE]), {})[str(next(iter(row.values())))] = None
    return [f"Rows of {', '.join(names)}: {where}" for where, names in named.items()]


def markdown(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table; columns in the order in which they first appear."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(show(row.get(key)) for key in columns) + " |" for row in rows]
    return "\n".join(lines)


def show(value: object) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
        case _:
            return str(value)


def table(rows: Sequence[Row]) -> str:
    """Rows as aligned text, for the terminal."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns] + [[show(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(line, widths)) for line in cells)


def readme_table() -> str:
    """One row a claim, each from one file of figures; what was not measured is not there."""
    claims = {
        "compile_time": compile_time_claims,
        "run_time": run_time_claims,
        "kernels": kernel_claims,
        "overhead": overhead_claims,
        "symbols": symbol_claims,
    }
    measured = {name: content for name in claims if (content := load(name)) is not None}
    here = {
        name: [r for r in content["rows"] if MACHINE not in r] for name, content in measured.items()
    }
    rows = [row for name in measured for row in claims[name](here[name])]
    hosts = [content["machine"] for content in measured.values()]
    return f"{markdown(rows)}\n\n{conditions(hosts)}" if rows else "Not measured yet: `make bench`."


def conditions(hosts: Sequence[Mapping[str, object]]) -> str:
    """What the README's figures were measured on; says so where the machine was not at rest."""
    loads = [host["load"] for host in hosts]
    text = f"{hosts[0]['cpu']}, {hosts[0]['cores']} cores, {hosts[0]['threads']} threads a process"
    if max(loads) > hosts[0]["cores"]:
        text += (
            f"; other work ran meanwhile (load {min(loads)} to {max(loads)}), which slows "
            "torch.compile's own processes more than us: at rest the first ratio is smaller"
        )
    return f"{text}. torch {hosts[0]['torch']}, {hosts[0]['date']}."


def compile_time_claims(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "what": f"compile {row['model']}, {row['layers']} layers, for eight lengths",
            "anyshape": f"{row['anyshape s']:.2f} s",
            "torch.compile": f"{row['torch.compile s']:.1f} s",
            "ratio": f"{row['ratio']:.1f}x",
        }
        for row in rows
        if row.get("torch.compile s") and row.get("anyshape s")
    ]


def run_time_claims(rows: Sequence[Row]) -> list[Row]:
    by_recipe: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("over peer") and row.get("over eager"):
            by_recipe.setdefault(f"{row['dtype']}, {row['attention']}", []).append(row)
    return [
        {
            "what": f"run {len({row['model'] for row in measured})} models ({recipe}), "
            f"{len({row['shape'] for row in measured})} shapes each",
            "anyshape": f"{spread(measured, 'over eager')} eager",
            "torch.compile": peers_of(measured),
            "ratio": spread(measured, "over peer"),
        }
        for recipe, measured in by_recipe.items()
    ]


def kernel_claims(rows: Sequence[Row]) -> list[Row]:
    measured = [row for row in rows if row.get("over peer")]
    if not measured:
        return []
    return [
        {
            "what": f"{len({row['kernel'] for row in measured})} fused kernels, four sizes each",
            "anyshape": f"{spread(measured, 'over eager')} eager",
            "torch.compile": peers_of(measured),
            "ratio": spread(measured, "over peer"),
        }
    ]


def spread(rows: Sequence[Row], column: str) -> str:
    """The median of a column of ratios, and its worst."""
    ratios = [float(str(row[column])) for row in rows]
    return f"{statistics.median(ratios):.2f}x (worst {min(ratios):.2f}x)"


def peers_of(rows: Sequence[Row]) -> str:
    """Which of torch.compile's ways the rows were measured against."""
    ways = [w for w in ("static", "dynamic") if any(k.startswith(f"{w} ") for k in rows[0])]
    return " or ".join(ways) + (", the better" if len(ways) > 1 else "")


def overhead_claims(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "what": f"overhead of a call: {row['program']}",
            "anyshape": f"{row['anyshape us']:.1f} us",
            "torch.compile": f"{row['torch.compile us']:.1f} us",
            "ratio": f"{row['torch.compile us'] / row['anyshape us']:.1f}x",
        }
        for row in rows
        if row.get("torch.compile us") and row.get("anyshape us")
    ]


def symbol_claims(rows: Sequence[Row]) -> list[Row]:
    row = rows[0]
    if not isinstance(row.get("first call s"), float):
        return []
    peer = row.get("torch.export s")
    count = int(str(row["rounds"])) * int(str(row["sizes a round"]))
    return [
        {
            "what": f"first call of a program with {count:,} sizes from data",
            "anyshape": f"{row['first call s']:.1f} s",
            "torch.compile": "-" if peer is None else f"torch.export: {show(peer)} s",
            "ratio": f"{peer / row['first call s']:.1f}x" if isinstance(peer, float) else "-",
        }
    ]


if __name__ == "__main__":
    write_pages()


# ---- tables with titles, between the marks of a page -------------------------------------------
MOE_PAGE = ROOT / "docs" / "moe.md"


def titled(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its title."""
    lines = [f"**{title}**", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def write_to_moe_page(name: str, parts: Sequence[str]) -> None:
    """Replaces what stands between the marks of benchmark ``name`` on the page."""
    begin, end = f"<!-- figures of benchmarks/{name}.py -->", f"<!-- end of {name} -->"
    before, rest = MOE_PAGE.read_text().split(begin, 1)
    after = rest.split(end, 1)[1]
    MOE_PAGE.write_text(before + begin + "\n" + "\n\n".join(parts) + "\n" + end + after)
