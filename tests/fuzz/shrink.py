"""A program that differs from eager, made small: what is left differs for the same cause."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.programs import Fuzzed

Differs = Callable[[Fuzzed], list[str]]
MOST_TRIES = 150


def cause(difference: str) -> str:
    """What kind of difference this is: the text without numbers and names of one program."""
    text = re.sub(r"^sizes \{[^}]*\}: ", "", difference).split("\n")[0]
    text = re.sub(r"(values|memory is shared by|nested as|value) .*", r"\1", text)
    text = re.sub(r"--> .*", "", text)
    text = re.sub(r"\((-?\d+,? ?)*\)", "()", text)
    text = re.sub(r"\b(argument|result)(\[[^\]]*\])*( \d+)?", r"\1", text)
    return re.sub(r"-?\d+", "#", text)[:160]


def shrunk(program: Fuzzed, differs: Differs) -> tuple[Fuzzed, list[str]]:
    """The smallest program found, and how it differs."""
    found = differs(program)
    if not found:
        return program, []
    wanted, tries = cause(found[0]), 0
    smaller = True
    while smaller and tries < MOST_TRIES:
        smaller = False
        for candidate in _smaller(program):
            tries += 1
            problems = differs(candidate)
            if any(cause(p) == wanted for p in problems):
                program, found, smaller = candidate, problems, True
                break
            if tries >= MOST_TRIES:
                break
    return program, found


def _smaller(program: Fuzzed) -> Iterator[Fuzzed]:
    """The program without one thing, the largest first."""
    lines = program.lines
    half = len(lines) // 2
    if half > 1:
        yield replace(program, lines=lines[half:])
    for number in range(len(lines) - 1, -1, -1):
        yield replace(program, lines=lines[:number] + lines[number + 1 :])
    if len(program.sizes) > 1:
        for number in range(len(program.sizes)):
            yield replace(program, sizes=(program.sizes[number],))
        for number in range(len(program.sizes)):
            yield replace(program, sizes=program.sizes[:number] + program.sizes[number + 1 :])
    parts = _returned(program.result)
    if len(parts) > 1 or program.result != f"{parts[0]},":
        for part in parts:
            yield replace(program, result=f"{part},")
        for number in range(len(parts)):
            if left := parts[:number] + parts[number + 1 :]:
                yield replace(program, result=", ".join(left) + ",")
    text = "\n".join((*lines, program.result))
    for number, entry in enumerate(program.inputs):
        without = program.inputs[:number] + program.inputs[number + 1 :]
        if not re.search(rf"\b{entry.name}\b", text + " ".join(i.view_of for i in without)):
            yield replace(program, inputs=without)
        elif set(entry.layouts) != {"plain"}:
            plain = replace(entry, layouts=("plain",))
            yield replace(
                program, inputs=(*program.inputs[:number], plain, *program.inputs[number + 1 :])
            )
        elif entry.dtype not in ("float32", "int", "float") and not entry.view_of:
            plain = replace(entry, dtype="float32")
            yield replace(
                program, inputs=(*program.inputs[:number], plain, *program.inputs[number + 1 :])
            )


def _returned(result: str) -> list[str]:
    """The names in what a program returns."""
    node = ast.parse(result, mode="eval").body
    if isinstance(node, ast.Call) and node.keywords:  # dict(r=[...])
        node = node.keywords[0].value
    if isinstance(node, ast.Tuple) and any(isinstance(part, ast.Tuple) for part in node.elts):
        node = node.elts[0]
    if not isinstance(node, (ast.Tuple, ast.List)):
        return [result]
    return [ast.unparse(part) for part in node.elts]
