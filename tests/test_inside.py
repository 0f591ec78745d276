"""What `fast.guards()` and `explain` print of sizes: whole texts, to be read in review."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import anyshape

ROOT = Path(anyshape.__file__).parents[1]
SOURCE = """\
def program(x, mask, w, k):
    anyshape.check(x.shape[1] >= 2, "two steps at least")
    y = x[mask > 0]
    if w.shape[0] > 3:
        y = torch.cat([y, w])
    for _ in range(k.shape[0]):
        y = y + 1
    return y[: w.shape[0]] + x.sum()
"""

GUARDS = """\
specialization 0
  symbols
    u_batch0 = x.size(0): unbacked, 0 <= u_batch0
      u_batch0*u_time0 >= u0  # program.py:3, in program
    u_time0 = x.size(1): unbacked, 8 <= u_time0 <= 64
      u_time0%8 == 0  # assumed: time % 8 == 0
      u_time0 <= 64  # assumed: time <= 64
      u_time0 >= 2  # program.py:2, in program
      u_batch0*u_time0 >= u0  # program.py:3, in program
    s0 = w.size(0): backed, 4 <= s0
      s0 >= 4  # program.py:4, in program
    s1 = k.size(0): backed, always 2
      s1 == 2  # program.py:6, in program
    u0 = a size of nonzero at program.py:3, in program: unbacked, 0 <= u0
      u_batch0*u_time0 >= u0  # program.py:3, in program
  declared
    x: batch time
    mask: batch time
    assumed: time % 8 == 0
    assumed: time <= 64
  guards
    type(program) is function
    x is float32 on cpu of rank 2, contiguous
    mask is float32 on cpu of rank 2, contiguous
    w is float32 on cpu of rank 1, contiguous
    k is float32 on cpu of rank 1, contiguous
    'range' not in globals  # program.py:6, in program
    program has the same code and defaults
    s0 >= 4  (s0 = w.size(0))  # program.py:4, in program
    s1 == 2  (s1 = k.size(0))  # program.py:6, in program
  predicates
    none: each launch has one kernel
  checks
    u_time0 >= 2: two steps at least  # program.py:2, in program"""


def make(source: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {"torch": torch, "anyshape": anyshape}
    exec(compile(source, "program.py", "exec"), scope)
    return scope["program"]


def own(text: str) -> str:
    """Without the guards on modules and on libraries."""
    foreign = ("<module", "of torch and the standard library")
    return "\n".join(x for x in text.splitlines() if not any(word in x for word in foreign))


def test_guards_say_where_each_symbol_comes_from_and_which_line_told_each_fact() -> None:
    shapes = {"x": "batch time", "mask": "batch time"}
    given = torch.randn(3, 8), torch.ones(3, 8), torch.randn(5), torch.randn(2)
    settings = {"shapes": shapes, "assumptions": ["time % 8 == 0", "time <= 64"]}
    fast = anyshape.compile(make(SOURCE), fullgraph=True, **settings)
    with torch.no_grad():
        fast(*given)
        assert own(fast.guards()) == GUARDS
        explained = str(anyshape.explain(make(SOURCE), **settings)(*given))
    assert GUARDS in own(explained)


BREAKING = """\
def program(x):
    if x.sum() > 0:
        return x * 2
    return x[0]
"""

EXPLAINED = """\
2 segments, 1 graph break; branches on sizes: 0 joined, 0 guarded

tensor-branch: this branch depends on the values of a tensor
  --> program.py:2, in program
hint: use torch.where, or move the branch out of the compiled function

what data decides: not joined, tensors of different kinds  # program.py:2, in program

specialization 0
  symbols
    s0 = x.size(0): backed, 0 <= s0
  guards
    type(program) is function
    x is float32 on cpu of rank 1, contiguous
    program has the same code and defaults
  predicates
    none: each launch has one kernel
specialization 1
  symbols
    s0 = x.size(0): backed, 0 <= s0
  guards
    type(program) is function
    x is float32 on cpu of rank 1, contiguous
  predicates
    none: each launch has one kernel"""


def test_explain_says_the_same_of_every_segment_after_the_breaks() -> None:
    with torch.no_grad():
        assert own(str(anyshape.explain(make(BREAKING))(torch.ones(3)))) == EXPLAINED


PRINTED: dict[str, Callable[[torch.Tensor], Any]] = {
    "infinity": lambda x: x.masked_fill(x > 0, float("-inf")).softmax(-1) + float("inf"),
    "not a number": lambda x: torch.full((x.shape[0],), float("nan")) * x.sum(),
    "minus zero": lambda x: x * -0.0,
    "slices": lambda x: x[..., 1:, None][::1] + x[None, -1:].sum(),
    "quotes": lambda x: (torch._check(x.shape[0] > 0, lambda: 'it\'s "bad"\n'), x * 2)[1],
    "texts": lambda x: torch.einsum("ij,kj->ik", x, x),
    "arithmetic of sizes": lambda x: x * (x.shape[0] // 2 + x.shape[1] / 3) + x.shape[0] ** 0.5,
    "dtypes": lambda x: x.to(torch.int8).to(torch.float16),
    "random": lambda x: torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x),
    "writes": lambda x: x.clone().add_(1).t().mul_(2),
    "several results": lambda x: torch.sort(x, descending=True),
    "parts": lambda x: torch.split(x, [1, x.shape[0] - 1]),
}
ELSEWHERE = """
import sys, torch
texts, x = torch.load(sys.argv[1])
results = {}
for name, text in texts.items():
    space = {}
    exec(compile(text, name, "exec"), space)
    torch.manual_seed(0)
    results[name] = tuple(space["graph"](x.clone()))
torch.save(results, sys.argv[1])
"""


def test_printed_graphs_run_in_a_process_that_knows_nothing_else(tmp_path: Path) -> None:
    x, texts = torch.randn(3, 4), {}
    for name, fn in PRINTED.items():
        fast = anyshape.compile(fn, fullgraph=True)
        fast(x.clone())
        (texts[name],) = fast.graphs()
    torch.save((texts, x), tmp_path / "graphs")
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "graphs")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=100)
    for name, found in torch.load(tmp_path / "graphs").items():
        torch.manual_seed(0)
        expected = PRINTED[name](x.clone())
        expected = (expected,) if isinstance(expected, torch.Tensor) else tuple(expected)
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_explain_shows_the_line_of_a_break_and_names_the_tables_of_modules() -> None:
    class Model(torch.nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self:
                x = layer(x)
            return x * 2 if x.sum() > 0 else x[0]  # the line

    text = str(anyshape.explain(Model(torch.nn.ReLU()).eval())(torch.ones(3)))
    caret = (
        "return x * 2 if x.sum() > 0 else x[0]  # the line\n      |".ljust(78)
        + "^^^^^^^^^^^\nhint: "
    )
    assert "test_inside.py:" in text and " ".join(caret.split()) in " ".join(text.split())
    assert "model._modules is {" in text and "type(model[0]) is ReLU" in text


def test_kernels_are_listed_with_operators_lines_and_bytes() -> None:
    def fn(x):
        return torch.softmax(x, -1) * 2

    fast = anyshape.compile(fn)
    fast(torch.randn(3, 5))
    (line,) = fast.kernels().splitlines()
    assert "softmax" in line or "exp" in line
    assert "test_inside.py" in line and "1 launch" in line and "8*s0*s1 bytes" in line
    model = anyshape.compile(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU()))
    model(torch.randn(3, 8)).sum().backward()
    assert len(model.kernels().splitlines()) == model.stats().kernels > 1
