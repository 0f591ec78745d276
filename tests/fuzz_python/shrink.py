"""A program that differs, made small: statements are left out, or replaced by what lies in them, and
expressions by their parts, as long as the same thing differs.
"""

from __future__ import annotations

import ast
import copy
import re
import time
from collections.abc import Callable, Iterator

MOST_TRIES = 1000
SECONDS = 90
"""After so long the smallest found so far is told."""
KEPT = {"world", "program", "A0", "A1", "B"}
Differs = Callable[[str], str]
Edit = Callable[[], object]


def cause(difference: str) -> str:
    """What kind of difference it is: the text without numbers and names of one program."""
    head = difference.split("\n")[0]
    if head.startswith("call"):
        head = re.sub(r"\[.*|call \d, ", "", head)
    return re.sub(r"\d+", "#", head)[:80]


def shrunk(text: str, differs: Differs) -> tuple[str, str]:
    """The smallest program found, and how it differs."""
    found = differs(text)
    wanted, tries, at = cause(found), 0, 0
    until = time.monotonic() + SECONDS
    while found and tries < MOST_TRIES:
        candidates = list(_smaller(text, at))
        for number, candidate in candidates:
            tries += 1
            if time.monotonic() > until:
                return text, found
            said = differs(candidate)
            if said and cause(said) == wanted:
                text, found, at = candidate, said, number
                break
            if tries >= MOST_TRIES:
                break
        else:
            if at == 0:
                break
            at = 0  # once more from the first edit on
    return text, found


def _smaller(text: str, first: int) -> Iterator[tuple[int, str]]:
    """Programs with one thing less, large things first; with the number of the edit."""
    tree = ast.parse(text)
    for number in range(first, sum(1 for _ in _edits(tree))):
        changed = copy.deepcopy(tree)
        next(edit for index, edit in enumerate(_edits(changed)) if index == number)()
        try:
            candidate = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
            compile(candidate, "<program>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        if len(candidate) < len(text):
            yield number, candidate


def _edits(tree: ast.Module) -> Iterator[Edit]:
    """`program` comes last in a module, and first here."""
    for node in reversed(tree.body):
        yield from _halves(node)
        yield from _statements(node)
    for index, node in enumerate(tree.body):
        if getattr(node, "name", None) not in KEPT:
            yield lambda index=index: tree.body.pop(index)
    for node in reversed(tree.body):
        yield from _expressions(node)


def _halves(node: ast.stmt) -> Iterator[Edit]:
    block = getattr(node, "body", [])
    for size in (len(block) // 2, len(block) // 4):
        if size > 1:
            for start in range(0, len(block), size):
                yield lambda start=start, size=size: _drop(block, slice(start, start + size))


def _statements(root: ast.stmt) -> Iterator[Edit]:
    """Without a statement, or with what lies in it instead."""
    for node in ast.walk(root):
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(node, name, None)
            for index in reversed(range(len(block) if isinstance(block, list) else 0)):
                yield lambda b=block, i=index: _drop(b, slice(i, i + 1))
                inner = _inner(block[index])
                if inner:
                    yield lambda b=block, i=index, inner=inner: _drop(b, slice(i, i + 1), inner)


def _inner(node: ast.AST) -> list[ast.stmt]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
        return []
    parts = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    return [s for part in parts if isinstance(part, list) for s in part if isinstance(s, ast.stmt)]


def _drop(block: list[ast.stmt], part: slice, instead: list[ast.stmt] | None = None) -> None:
    block[part] = instead or []
    if not block:
        block.append(ast.Pass())


def _expressions(root: ast.stmt) -> Iterator[Edit]:
    """With a part of an expression instead of the whole, or without an item."""
    for node in ast.walk(root):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.expr):
                for index in range(len(value)):
                    yield lambda v=value, i=index: v.pop(i)
            elif (
                isinstance(value, ast.expr)
                and isinstance(getattr(value, "ctx", None), ast.Store) is False
            ):
                yield lambda n=node, f=name: setattr(n, f, ast.Constant(0))
                for part in ast.iter_child_nodes(value):
                    if isinstance(part, ast.expr):
                        yield lambda n=node, f=name, p=part: setattr(n, f, p)
