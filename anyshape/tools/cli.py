"""The command `anyshape`: parses arguments, runs a tool, and turns its outcome into an exit status.

Results go to stdout, progress and errors to stderr. 0: all right; 1: something is wrong; 2: wrong
usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from anyshape.errors import CODES, AnyshapeError
from anyshape.options import list_options
from anyshape.tools import demo, models
from anyshape.tools.models import Recipe

DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`; the exit status."""
    arguments = parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except AnyshapeError as error:
        print(error, file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="anyshape", description="One compile, every shape.")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    add_demo(commands.add_parser("demo", help="compile models once, run them at every length"))
    listing = commands.add_parser("options", help="list the options of anyshape.compile")
    listing.set_defaults(run=print_options)
    codes = commands.add_parser("errors", help="what each error code means (docs/errors.md)")
    codes.set_defaults(run=print_errors)
    return root


def add_demo(command: argparse.ArgumentParser) -> None:
    known = ", ".join(models.present())
    command.add_argument("models", nargs="*", metavar="MODEL", help=f"default: all of {known}")
    command.add_argument(
        "--lengths",
        type=lengths,
        metavar="7,16,...",
        help="lengths at batch 2, instead of eight shapes",
    )
    command.add_argument("--layers", type=positive, default=4, metavar="N")
    command.add_argument("--dtype", choices=DTYPES, default="float32")
    command.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    command.add_argument("--mask", choices=models.MASKS, default="none")
    command.add_argument(
        "--against", choices=(demo.PEER,), help="time the peer in the same process as well"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    command.set_defaults(run=run_demo)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def lengths(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))


def run_demo(arguments: argparse.Namespace) -> int:
    for name in arguments.models:
        models.find(name)
    settings = demo.Settings(
        names=tuple(arguments.models or models.present()),
        shapes=tuple((2, n) for n in arguments.lengths) if arguments.lengths else models.SHAPES,
        recipe=Recipe(arguments.layers, DTYPES[arguments.dtype], arguments.attention),
        mask=arguments.mask,
        against=arguments.against is not None,
    )
    results = demo.run(settings, sys.stdout)
    if arguments.json:
        text = json.dumps(demo.as_json(settings, results), indent=2)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0 if all(result.right for result in results) else 1


def print_options(arguments: argparse.Namespace) -> int:
    for name, default, meaning in list_options():
        print(f"{name:<16} {default!r:<12} {meaning}")
    return 0


def print_errors(arguments: argparse.Namespace) -> int:
    print(errors_page(), end="")
    return 0


def errors_page() -> str:
    """docs/errors.md: a paragraph for each code; words in braces are what the error fills in."""
    parts = ["# Errors\n\nWritten by `anyshape errors` from anyshape/errors.py; do not edit.\n"]
    for code, template in CODES.items():
        what = template.what if code != "E201" else "a graph break under fullgraph=True"
        parts.append(f"## {code}\n\n{what}\n")
        if template.why not in ("", "{why}"):
            parts.append(f"Why: {template.why}\n")
        if template.hint not in ("", "{hint}", "{near}"):
            parts.append(f"Hint: {template.hint}\n")
    return "\n".join(parts).replace("{{", "{").replace("}}", "}")
