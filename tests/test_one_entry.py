"""What is known of operators by name stands in their rows: no table of names elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import anyshape
from anyshape.ops import OPS

ROOT = Path(anyshape.__file__).parent
KNOWING = ("ops", "targets", "moe", "attention", "kernels", "symbolic")
"""Packages that may: the table itself, a target's own tables, and what knows no operators."""

OTHER_NAMES = {
    "capture/heap/purity.py": "functions of Python's operator module",
    "capture/heap/values.py": "special methods of Python",
    "capture/interpreter/c_callbacks.py": "special methods of Python",
    "capture/sizes/numbers.py": "functions of Python's math module",
    "capture/tensors/argument_forms.py": "functions of torch, whose parser is asked",
    "capture/tensors/foreach.py": "functions of torch on lists of tensors",
    "capture/tensors/tensor_methods.py": "functions of torch that capture answers without a node",
    "capture/tensors/tensor_ops.py": "attributes of tensors",
    "capture/segments/weak_references.py": "special methods of Python",
    "eager_random.py": "functions of torch that rows name, with the draw of each",
    "known_builtins.py": "builtins of Python",
    "kernel_writes.py": "functions of Triton's language",
    "ir/loops.py": "scalar operators of kernels, which are defined there",
    "ir/parse.py": "functions of host numbers",
    "ir/scalars.py": "functions of host numbers, which are defined there",
    "runtime/launch.py": "functions that host code calls",
    "schedule/alike.py": "scalar operators of kernels",
    "schedule/draft.py": "scalar operators of kernels",
    "schedule/known_elements.py": "scalar operators of kernels",
    "schedule/lower.py": "how the reductions of kernels combine",
}
"""Files whose tables name something else that is called alike."""

REWRITES = {
    "capture/recording/expected_numbers.py": "what the test of all elements is made of",
    "passes/layouts.py": "pools and joins around convolutions",
    "schedule/plan.py": "views whose strides are found by their shapes",
}
"""A rewrite may name what it matches."""


FUNCTIONS = re.compile(r"(torch|T|F|nn|aten)(\.\w+)*")
"""What holds functions of torch, as code spells it."""


def _heads(parts: list[ast.expr]) -> list[object]:
    """The constants among these and the names of torch's functions, and those that tuples among
    them begin with."""
    first = [part.elts[0] if isinstance(part, ast.Tuple) and part.elts else part for part in parts]
    named = [part for part in first if isinstance(part, ast.Attribute)]
    functions = [part.attr for part in named if FUNCTIONS.fullmatch(ast.unparse(part.value))]
    return [part.value for part in first if isinstance(part, ast.Constant)] + functions


def _compared_with_rows(module: ast.Module) -> list[object]:
    """What anything in the file compares the row of a node, or the name of a row, with."""
    found: list[object] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Attribute) and side.attr in ROWS for side in sides):
                for side in sides:
                    within = isinstance(side, ast.Tuple | ast.Set | ast.List)
                    found += _heads(side.elts if within else [side])
    return found


ROWS = ("op", "name")


def _compared(function: ast.FunctionDef | ast.Lambda) -> list[object]:
    """What the function compares with, in all of its comparisons."""
    found: list[object] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                within = isinstance(side, ast.Tuple | ast.Set | ast.List)
                found += _heads(side.elts if within else [side])
    return found


def _texts(node: ast.AST) -> list[object]:
    match node:
        case ast.Set(elts=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            return _heads(parts)
        case ast.Dict(keys=keys):
            return _heads([key for key in keys if key is not None])
        case ast.Call(func=ast.Name(id="dict"), keywords=given):
            return [one.arg for one in given]
        case ast.FunctionDef() | ast.Lambda():
            return _compared(node)
        case ast.Module():
            return _compared_with_rows(node)
        case ast.Match(cases=cases):
            patterns = [p for case in cases for p in ast.walk(case.pattern)]
            values = [p.value for p in patterns if isinstance(p, ast.MatchValue)]
            return [value.value for value in values if isinstance(value, ast.Constant)]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
            return list(text.split())
    return []


def tables(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line and names of each collection or ``match`` that names three rows or more."""
    for node in ast.walk(ast.parse(text)):
        names = [name.rpartition(".")[2] for name in _texts(node) if isinstance(name, str)]
        found = [name for name in dict.fromkeys(names) if name in OPS]
        if len(found) >= 3:
            yield getattr(node, "lineno", 0), found


def parts_of_names(text: str) -> list[str]:
    """Where it is asked how the name of a node's row begins or ends."""
    calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [
        ast.unparse(call)
        for call in calls
        if isinstance(call, ast.Attribute)
        and call.attr in ("startswith", "endswith", "removeprefix", "removesuffix")
        and isinstance(call.value, ast.Attribute)
        and call.value.attr == "op"
    ]


def _files() -> list[str]:
    found = (path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.py")))
    return [str(path) for path in found if path.parts[0] not in KNOWING]


@pytest.mark.parametrize(
    "text",
    [
        'X = {"add", "mul", "exp"}',
        'X = frozenset("add mul exp".split())',
        'X = {"add": 1, "mul": 2, "exp": 3}',
        'X = (("add", 1), ("mul", 2), ("exp", 3))',
        "X = dict(add=1, mul=2, exp=3)",
        'match n:\n    case "add" | "mul":\n        pass\n    case "exp":\n        pass',
        'def f(n):\n    if n in ("add", "mul"):\n        return 1\n    return n == "exp"',
        'f = lambda n: n == "add" or n == "mul" or n == "exp"',
        'X = n.op == "add"\ndef f(n):\n    return n.op in ("mul", "exp")',
        "X = {torch.add, torch.mul, torch.exp}",
        "X = {torch.add: 1, F.relu: 2, T.exp: 3}",
        'X = ("torch.add", "torch.mul", "torch.exp")',
    ],
)
def test_a_table_of_rows_is_found(text: str) -> None:
    assert list(tables(text))


def test_no_table_of_rows_stands_outside_the_table_of_operators() -> None:
    excused = {*OTHER_NAMES, *REWRITES}
    found = {file: list(tables((ROOT / file).read_text())) for file in _files()}
    wrong = {file: names for file, names in found.items() if names and file not in excused}
    assert not wrong
    assert not {file for file in excused if not found[file]}, "nothing to excuse any more"


def test_nobody_asks_how_the_name_of_a_row_begins() -> None:
    assert parts_of_names('x = node.op.startswith("conv")')
    texts = {file: (ROOT / file).read_text() for file in _files()}
    found = {file: parts_of_names(text) for file, text in texts.items() if ".op." in text}
    assert not {file: calls for file, calls in found.items() if calls}
