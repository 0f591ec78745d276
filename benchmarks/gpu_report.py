"""Writes the tables of docs/gpu.md from what ``benchmarks.gpu`` measured.

python -m benchmarks.gpu_report FOLDER [OLDER ...]

Tables that the first folder lacks are those of the others.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "gpu.md"
PEERS = ("static", "autotune", "dynamic")
BEGIN, END = "<!-- figures of benchmarks/gpu.py -->", "<!-- end of figures -->"
CLOSE = 1.03
"""Below this ratio two times count as equal."""
SHORT_MICROSECONDS = 20
NEAR_MICROSECONDS = 0.3
"""What is shorter counts as equal within so much."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def kernel_tables(content: Mapping[str, Any]) -> Iterator[str]:
    copy = content["ceilings"]["copy TB/s"]
    yield (
        f"{content['device']}, torch {content['torch']}, Triton {content['triton']}; microseconds "
        f"on the device, {content.get('dtype', 'bfloat16')}; `static` and `dynamic` are "
        "torch.compile's, "
        "`autotune` its max-autotune for each shape. Copies ran at "
        f"{copy:.2f} TB/s in that run; `of copy` is the share of it that our kernels reach."
    )
    yield ""
    sides = ("ours", *PEERS, "eager")
    rows, behind, count = [], [], 0
    for row in content["kernels"]:
        times = row["times"]
        rate = row["bytes"] / times["ours"] / 1e6
        size = f"{row['size'][0]} x {row['size'][1]}"
        shown = [f"{times[side]:.1f}" if side in times else "-" for side in sides]
        wrong = "" if row["right"] else " **wrong**"
        rows.append((row["name"] + wrong, size, *shown, f"{rate:.2f}", f"{rate / copy:.0%}"))
        if best := min((times[side] for side in PEERS if side in times), default=0.0):
            count += 1
            if not as_fast(times["ours"], best):
                behind.append(f"{row['name']} at {size} ({times['ours'] / best:.2f})")
    yield from table(("program", "size", *sides, "TB/s", "of copy"), rows)
    if count:
        yield (
            "As fast as the best of torch.compile or faster (within 3 %, or "
            f"{NEAR_MICROSECONDS} us where it is below {SHORT_MICROSECONDS} us) in "
            f"{count - len(behind)} of {count} rows. "
            + (f"Behind: {', '.join(behind)}." if behind else "")
        )
        yield ""


def as_fast(ours: float, peer: float) -> bool:
    """The rule of the page."""
    return ours <= max(peer * CLOSE, peer + NEAR_MICROSECONDS * (peer < SHORT_MICROSECONDS))


def model_tables(content: Mapping[str, Any]) -> Iterator[str]:
    shapes = [row for row in content["models"] if "ms" in row]
    sides = list(dict.fromkeys(side for row in shapes for side in row["ms"]))
    yield (
        "Models, bfloat16, milliseconds of a call that is waited for, the host included; `graphs` "
        'is `mode="reduce-overhead"`, at three shapes. The host was shared.'
    )
    yield ""
    rows = []
    for row in shapes:
        times = (f"{row['ms'][side]:.2f}" if side in row["ms"] else "" for side in sides)
        errors = (f"{row['error'][side]:.4f}" for side in ("ours", "eager"))
        rows.append((row["model"], f"{row['shape'][0]} x {row['shape'][1]}", *times, *errors))
    yield from table(("model", "shape", *sides, "error of ours", "of eager"), rows)
    summaries = [row for row in content["models"] if "specializations" in row]
    firsts = list(dict.fromkeys(side for row in summaries for side in row["first calls, s"]))
    rows = [
        (
            row["model"],
            *(f"{row['first calls, s'][side]:.1f} s" for side in firsts),
            row["specializations"],
            row["graph breaks"],
        )
        for row in summaries
    ]
    head = ("first calls", *(f"{side}" for side in firsts), "specializations", "breaks")
    yield from table(head, rows)
    yield (
        "Errors are relative to the same model in float32. First calls are over all shapes that "
        "the column was run at."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    folders = parser.parse_args().folders
    content: dict[str, Any] = {}
    for folder in reversed(folders):
        content |= json.loads((folder / "gpu.json").read_text())
    lines = [BEGIN, ""]
    lines += kernel_tables(content) if "kernels" in content else ()
    if (wide := folders[0] / "gpu-float32.json").exists():
        lines += kernel_tables(json.loads(wide.read_text()))
    lines += model_tables(content) if content.get("models") else ()
    made = "\n".join([*lines, END])
    page = re.sub(f"{BEGIN}.*{END}", lambda _: made, PAGE.read_text(), flags=re.DOTALL)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
