"""How fast single fused kernels are, at four sizes, beside Inductor's static and dynamic ones."""

from __future__ import annotations

import argparse
from functools import partial

import torch

import anyshape
from anyshape.tools.accuracy import judge
from anyshape.tools.timing import ROUNDS, interleaved
from benchmarks import report
from benchmarks.programs import PROGRAMS, SIZES, Program

PEERS = {"static": False, "dynamic": True}


def benchmark(
    name: str, program: Program, peers: list[str], dtype: torch.dtype
) -> list[report.Row]:
    torch.compiler.reset()
    fast = anyshape.compile(program.run, fullgraph=True)
    compiled = {"eager": program.run, "anyshape": fast}
    compiled |= {peer: torch.compile(program.run, dynamic=PEERS[peer]) for peer in peers}
    rows = []
    for size in SIZES:
        inputs = program.inputs(*size, dtype)
        eager = program.run(*inputs)
        truth = program.run(*(x.double() if x.is_floating_point() else x for x in inputs))
        verdict = judge(fast(*inputs), eager, truth)
        timing = interleaved({who: partial(run, *inputs) for who, run in compiled.items()}, ROUNDS)
        row: dict[str, object] = {"kernel": name, "rows x columns": f"{size[0]} x {size[1]}"}
        row |= {f"{who} us": timing.median(who) * 1e6 for who in compiled}
        row["over eager"] = timing.speedup("anyshape", over="eager")
        if peers:
            row["over peer"] = min(timing.speedup("anyshape", over=peer) for peer in peers)
        row["right"] = "yes" if verdict.right else f"NO: {verdict}"
        rows.append(row)
        print(report.table([row]).splitlines()[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", nargs="+", default=[*PROGRAMS], choices=PROGRAMS)
    parser.add_argument("--peers", nargs="*", default=[*PEERS], choices=PEERS)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    arguments = parser.parse_args()
    rows: list[report.Row] = []
    with torch.no_grad():
        for name in arguments.kernels:
            dtype = getattr(torch, arguments.dtype)
            rows += benchmark(name, PROGRAMS[name], arguments.peers, dtype)
    print(report.table(rows))
    report.save("kernels", rows)


if __name__ == "__main__":
    main()
