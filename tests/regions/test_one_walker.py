"""One walker knows that graphs hold graphs (`ir/nesting.py`), and one that programs do
(`Program.nested`): no other file asks how deep."""

from __future__ import annotations

import ast
from pathlib import Path

import anyshape

ROOT = Path(anyshape.__file__).parent
WALKER = "ir/nesting.py"
ONE_NODE = {
    "reference.py": "runs a node, with its regions as functions",
    "runtime/eager_function.py": "writes a node as a line, with its regions as functions",
    "ir/text.py": "prints a node, with its regions as functions in front",
    "ir/verify.py": "each region is a graph of its own",
    "schedule/plan.py": "each region becomes a program of its own",
    "ops/shared_memory.py": "what a region writes, the node writes",
    "passes/nested_writes.py": "what a region writes, the node gives",
    "passes/functionalize.py": "what a node with regions gives may be what it was handed",
    "passes/simplify.py": "no node with regions is merged",
    "passes/ambiguous_layouts.py": "of what regions give, nothing is said",
    "autograd/recorded.py": "torch records no node with regions",
    "capture/segments/owned_objects.py": "behind a node with regions no file is read",
    "autograd/kept.py": "what a node with regions keeps, its own backward reads",
    "autograd/replayable.py": "a graph with such nodes keeps its writes",
    "autograd/own_backwards.py": "the region of such a node is its gradient",
}
"""Files that handle one node and its regions, and what they do with them."""


def region_reads(text: str) -> list[int]:
    """The lines that ask a node for its regions: as an attribute, in a pattern, by name."""
    return [
        getattr(node, "lineno", 0) for node in ast.walk(ast.parse(text)) if _reads_regions(node)
    ]


def _reads_regions(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="self")):
            return False
        case ast.Attribute(attr="regions"):
            return True
        case ast.MatchClass(kwd_attrs=names):
            return "regions" in names
        case ast.Call(func=ast.Name(id="getattr" | "attrgetter" | "hasattr"), args=args):
            return any(isinstance(arg, ast.Constant) and arg.value == "regions" for arg in args)
    return False


def test_a_read_of_regions_is_found() -> None:
    text = "def f(node):\n    for r in node.regions:\n        f(r.nodes[0].regions)\n"
    assert region_reads(text) == [2, 3]
    text = "match n:\n    case Node(regions=(a, b)):\n        f(getattr(a, 'regions'))\n"
    assert region_reads(text) == [2, 3]


def test_who_reads_regions_handles_one_node() -> None:
    """Of every file of the package but the walker, and but those that mean other regions."""
    found = {
        file
        for file in (str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))
        if file != WALKER and not file.startswith("dispatch/")
        for text in [(ROOT / file).read_text()]
        if "regions" in text and region_reads(text)
    }
    assert found == {*ONE_NODE}
