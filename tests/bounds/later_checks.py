"""Programs that use a size before a check of it that a later size is needed for.

    python later_checks.py NUMBER...

Runs those programs, each in a process of its own, and prints a line of JSON for each. What the check says
must change nothing of what runs before it: with sizes that it refuses, no kernel leaves its memory, and the
program raises what eager raises. Memory of the program ends where a page ends.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.fx.experimental.symbolic_shapes  # `torch._check` asks it: once for all processes
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from guarded import guarded_empty
from isolated import isolated

from anyshape import api
from anyshape.runtime.launch import RUNTIME_FUNCTIONS

VAST = 10**9

# What is done with the rows of `t` (10, 4) and a number of them, `n`.
USES = {
    "slice": "(torch.sin(t[:n]) * 2).sum()",
    "slice, stored": "torch.sin(t[:n]) * 2",
    "slice, returned": "t[:n]",
    "slice from": "t[n:] * 2",
    "slice by steps": "t[n::2] * 2 + t[:n:2].sum()",
    "slice of a slice": "t[:n][1:] * 2",
    "narrow": "t.narrow(0, 0, n) * 2",
    "narrow from": "t.narrow(0, n, 2) * 2",
    "select": "t[n] * 2",
    "select from the end": "t[-n] * 2",
    "index": "t[torch.arange(10) % 3 + n] * 2",
    "arange": "torch.arange(n) * 2",
    "zeros": "torch.zeros(n) + 1",
    "full, indexed": "torch.zeros(10).index_put((torch.arange(n),), torch.ones(()))",
    "sum of a row": "t[:n].sum(1)",
    "sum of a column": "t[:n].sum(0)",
    "softmax": "torch.softmax(t[:n], 0)",
    "cumsum": "torch.cumsum(t[:n], 0)",
    "argmax": "t[:n].argmax(0)",
    "cat": "torch.cat([t[:n], t]) * 2",
    "matmul": "t[:n] @ torch.ones(4, 3)",
    "bmm": "t[None, :n] @ torch.ones(1, 4, 3)",
    "conv": "F.conv1d(t[:n].t()[None], torch.ones(2, 4, 1))",
    "pad": "F.pad(t[:n], (1, 0, 1, 1)) * 2",
    "reshape": "t[:n].reshape(-1) * 2",
    "flip": "t[:n].flip(0) * 2",
    "write": "t.clone().index_fill_(0, torch.arange(2) + n, 1.0)",
    "slice that is written": "t[:n].mul_(2).sum()",
    "scatter": "torch.zeros(10, 4).slice_scatter(t[:n] * 2, 0, 0, n)",
}

# What is checked afterwards, once `m` has a value; it is to hold for 3 and 7, and for no greater `n`.
CHECKS = {
    "equal": "torch._check(n + m == 10)",
    "at most": "torch._check(m <= 7); torch._check(n <= m - 4)",
    "sum at most": "torch._check(n + m <= 10); torch._check(m >= 7)",
    "a product": "torch._check(n * m == 21)",
    "a remainder": "torch._check(n % m == 3); torch._check(n < m)",
    "a quotient": "torch._check(m // n == 2); torch._check(m == 7)",
    "sizes that must agree": "torch.zeros(m - 4) + torch.zeros(10)[:n]",
    "a reshape": "torch.zeros(m - 4).reshape(n)",
    "a list": "torch._check(w.tolist()[0] + n == 10)",
    "a size": "torch._check(n + m == x.shape[0])",
}

# Where `n` comes from; the last is known from the beginning.
NUMBERS = {"item": "u[0].item()", "list": "u.tolist()[0]", "size": "u.shape[0]"}

BIG_RESULTS = {"arange", "zeros", "full, indexed"}  # eager would take gigabytes

COMBINATIONS = [
    *((use, "equal", "item") for use in USES),
    *((use, "at most", "size") for use in USES if use not in BIG_RESULTS),
    *((use, check, "list") for check in CHECKS for use in ("slice", "slice, stored", "select")),
]

ROWS = {"a size": "x"}  # elsewhere a number of rows that is known, which the check is about

TEXT = """
def program(x, u, w):
    n = {number}
    torch._check(n >= 0)
    t = F.linear({rows}, W)
    y = {use}
    m = w[0].item()
    torch._check(m >= 0)
    {check}
    return y, torch.arange(m)
"""


def made(use: str, check: str, number: str):
    """The program, to be called with the rows, `n` and `m`."""
    text = TEXT.format(
        use=USES[use],
        check=CHECKS[check],
        number=NUMBERS[number],
        rows=ROWS.get(check, "torch.arange(40.0).reshape(10, 4)"),
    )
    names = {"torch": torch, "F": F, "W": torch.eye(4) * 2}
    path = f"<{use}, {check}, {number}>"
    import linecache

    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), names)
    return names["program"]


def outcome(function, use: str, number: str, n: int):
    rows = torch.arange(40.0).reshape(10, 4)
    u = torch.zeros(()).expand(n) if number == "size" else torch.tensor([n])
    try:
        return function(rows, u, torch.tensor([7]))
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)


def differences(use: str, check: str, number: str) -> str:
    """What was not as eager's; empty where all was."""
    function = made(use, check, number)
    fast = api.compile(made(use, check, number), fullgraph=True)
    RUNTIME_FUNCTIONS["anyshape.empty_cpu"] = guarded_empty
    largest = 10**5 if use in BIG_RESULTS else VAST
    with torch.no_grad():
        for n in (3, largest, 3, 4, 11, 10, 2, 3):
            print(n, file=sys.stderr, flush=True)
            found, wanted = (outcome(f, use, number, n) for f in (fast, function))
            if isinstance(found, type) or isinstance(wanted, type):
                same = found is wanted
            else:
                same = all(
                    a.shape == b.shape and torch.allclose(a, b) for a, b in zip(found, wanted)
                )
            if not same:
                return f"{n}: {found}, eager {wanted}"
    return ""


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        said = isolated(lambda which=argument: differences(*COMBINATIONS[int(which)]))
        print(json.dumps([int(argument), said]), flush=True)
