"""The command `anyshape`: parses arguments, runs a tool, and turns its outcome into an exit status.

Results go to stdout, progress and errors to stderr. 0: all right; 1: something is wrong; 2: wrong
usage; 128 and the signal's number, as shells have it, where the user or the reader of the output
ended it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from anyshape.capture.heap.breaks import BREAKS
from anyshape.dispatch.stats import counted
from anyshape.errors import CODES, AnyshapeError
from anyshape.options import from_environment, list_options, near
from anyshape.runtime.cache import DiskCache
from anyshape.targets.table import TARGETS
from anyshape.tools import break_pages, demo, doctor, models
from anyshape.tools.models import Recipe

DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`; the exit status."""
    arguments = parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except AnyshapeError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `| head` has read enough; what is left in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="anyshape", description="One compile, every shape.")
    root.add_argument("--version", action="version", version=version())
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    add_demo(commands.add_parser("demo", help="compile models once, run them at every length"))
    listing = commands.add_parser("options", help="list the options of anyshape.compile")
    listing.set_defaults(run=print_options)
    kept = commands.add_parser("cache", help="where kernels are kept, how many, and why not if not")
    kept.add_argument("--clear", action="store_true", help="remove them all")
    kept.set_defaults(run=print_cache)
    codes = commands.add_parser("errors", help="what each error code means (docs/errors.md)")
    codes.set_defaults(run=print_errors)
    health = commands.add_parser("doctor", help="what this machine can do, and what is missing")
    health.set_defaults(run=print_health)
    breaks = commands.add_parser("breaks", help="what each graph break means (docs/breaks)")
    breaks.add_argument("names", nargs="*", metavar="ID", help="default: a list of them")
    breaks.add_argument("--write", type=Path, metavar="FOLDER", help="write all pages there")
    breaks.set_defaults(run=print_breaks)
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
    command.add_argument(
        "--layers", type=positive, default=4, metavar="N", help="default: 4, where a model has them"
    )
    command.add_argument("--dtype", choices=DTYPES, default="float32", help="default: float32")
    command.add_argument(
        "--attention", choices=("sdpa", "eager"), default="sdpa", help="default: sdpa"
    )
    command.add_argument(
        "--mask",
        choices=models.MASKS,
        default="none",
        help="default: none; of models that take one",
    )
    command.add_argument(
        "--against", choices=(demo.PEER,), help="time the peer in the same process as well"
    )
    command.add_argument(
        "--device", type=torch.device, metavar="DEVICE", help="default: a GPU, if one is served"
    )
    command.add_argument(
        "--json", type=writable, metavar="FILE", help="write the figures there too"
    )
    command.set_defaults(run=run_demo)


def version() -> str:
    """anyshape's version, and torch's, on which all results depend."""
    try:
        own = importlib.metadata.version("anyshape")
    except importlib.metadata.PackageNotFoundError:
        own = "(not installed)"
    return f"anyshape {own}, torch {torch.__version__}"


def positive(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def lengths(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))


def writable(text: str) -> Path:
    """A file that can be written, found out before minutes of work and not after."""
    path = Path(text)
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be written: {error.strerror}") from error
    return path


def run_demo(arguments: argparse.Namespace) -> int:
    for name in arguments.models:
        models.find(name)
    settings = demo.Settings(
        names=tuple(arguments.models or models.present()),
        shapes=tuple((2, n) for n in arguments.lengths) if arguments.lengths else models.SHAPES,
        recipe=Recipe(arguments.layers, DTYPES[arguments.dtype], arguments.attention),
        mask=arguments.mask,
        against=arguments.against is not None,
        device=arguments.device or served_device(),
    )
    results = demo.run(settings, sys.stdout)
    if arguments.json:
        text = json.dumps(demo.as_json(settings, results), indent=2)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0 if all(result.right for result in results) else 1


def served_device() -> torch.device:
    """The first GPU, if programs compile on it."""
    target = TARGETS.of("cuda:0")
    served = torch.cuda.is_available() and target is not None and target.missing() is None
    return torch.device("cuda:0" if served else "cpu")


def print_options(arguments: argparse.Namespace) -> int:
    for name, default, meaning in list_options():
        print(f"{name:<16} {default!r:<12} {meaning}")
    return 0


def print_cache(arguments: argparse.Namespace) -> int:
    directory = from_environment().cache_dir
    cache = DiskCache.open(directory)
    if cache.problem is not None:
        print(f"not used: {cache.problem}")
        return 1
    if arguments.clear:
        cache.clear()
    entries, size_bytes = cache.size()
    print(f"{directory}: {counted(entries, 'library', 'libraries')}, {size_bytes / 1e6:.1f} MB")
    return 0


def print_errors(arguments: argparse.Namespace) -> int:
    print(errors_page(), end="")
    return 0


def print_health(arguments: argparse.Namespace) -> int:
    findings = doctor.examine()
    print("\n".join([doctor.verdict(findings), *map(str, findings)]))
    return 1 if any(finding.state == "wrong" for finding in findings) else 0


def print_breaks(arguments: argparse.Namespace) -> int:
    """The pages of these breaks, or the list; `--write` makes them all."""
    if arguments.write is not None:
        arguments.write.mkdir(exist_ok=True)
        for name, text in break_pages.pages().items():
            (arguments.write / name).write_text(text, encoding="utf-8")
        return 0
    for name in arguments.names:
        if name not in BREAKS:
            raise AnyshapeError("E109", name=name, near=near(name, BREAKS))
    wanted = [break_pages.page(name) for name in arguments.names]
    print("\n".join(wanted or [break_pages.pages()[break_pages.INDEX]]), end="")
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
