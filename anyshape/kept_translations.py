"""Translations on disk: a second process captures, hashes what it captured, and loads its code.

In: the structure of a captured graph, options, and what targets say of themselves. Out: the code
and the summary that an earlier process made of an equal graph. What stands between captured graph
and code asks torch nothing (``pyproject.toml`` says which layers may not import it), so that text,
options, targets and our own source decide it all. It is kept as JSON: texts, names and numbers.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import torch

from anyshape.costs import COSTS
from anyshape.ir.code import Code, HostCode, NativeFunction, Reference
from anyshape.ir.dtypes import DTYPES, DType
from anyshape.ir.graph import Graph
from anyshape.nouns import mutable
from anyshape.options import Options
from anyshape.runtime.cache import DiskCache, digest
from anyshape.translation import Summary

BLOB = "translation.json"
OTHERWISE = ("cache", "cache_dir", "times")
"""Options that change nothing of a translation."""
STARTED = time.time()
SETTLED_SECONDS = 5.0
"""Source that is younger than this before the process began may not be what the process runs."""


LONG = 16
"""Terms of all sizes for each node, beyond which texts grow too long: sums of sums that data
decides, each longer than the one before."""
DEEPEST = 8
"""Operations nested in one another in a size, beyond which texts grow too long: what a size is made
of is written wherever it stands."""


@mutable
class KeptTranslations:
    """Those of one directory under one set of options."""

    options: Options
    disk: DiskCache | None = None  # not opened yet

    def may_hold(self, graph: Graph) -> bool:
        """Whether it is worth a look: the graph is not small, nor its text long, and it is not
        looked at closely."""
        options, nodes, space = self.options, len(graph.nodes), graph.space
        if nodes < COSTS.kept_nodes or not options.cache:
            return False
        if space.deepest > DEEPEST or space.term_count() > LONG * nodes:
            return False
        return not (options.verify or options.verify_programs or options.cuda_graphs)

    def key(self, structure: Callable[[], str], targets: Callable[[], str | None]) -> str | None:
        """The address of what a graph becomes; None where that is not kept: it lies on a device
        whose code is no text, or our source has just changed."""
        source, said = source_identity(), targets()
        if source is None or said is None:
            return None
        given = (f"{f.name}={getattr(self.options, f.name)!r}" for f in fields(self.options)
                 if f.name not in OTHERWISE)  # fmt: skip
        versions = torch.__version__, sys.version
        return digest("translation", structure(), said, source, *versions, *given)

    def load(self, key: str) -> tuple[Code, Summary] | None:
        """What an earlier process kept."""
        blobs = self._opened().load(key)
        return None if blobs is None else from_bytes(blobs[BLOB])

    def store(self, key: str, code: Code, summary: Summary) -> None:
        """Keeps it for later processes."""
        if (blob := to_bytes(code, summary)) is not None:
            self._opened().store(key, {BLOB: blob})

    def _opened(self) -> DiskCache:
        if self.disk is None:
            self.disk = DiskCache.open(self.options.cache_dir)
        return self.disk


@functools.cache
def source_identity() -> str | None:
    """What changes when a file of ours does; None where files are no older than the process, or
    there are none."""
    states = sorted((path, state) for path, state in _sources(os.path.dirname(__file__)))
    newest = max((max(s.st_mtime, s.st_ctime) for _, s in states), default=STARTED)
    if newest > STARTED - SETTLED_SECONDS:
        return None
    return digest(*(f"{p} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}" for p, s in states))


def _sources(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files of Python in the folder and those in it. (``Path.rglob`` takes four times as long,
    in the first call of every process.)"""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat()


# --- as bytes and back ---


class NotText(TypeError):
    """Something is an object of this process."""


def to_bytes(code: Code, summary: Summary) -> bytes | None:
    """None where the code holds what is no text: kernels that are built when they are launched, or
    objects."""
    try:
        kept = {
            "functions": {name: _function(f) for name, f in code.functions.items()},
            "tables": {name: [*map(_reference, table)] for name, table in code.tables.items()},
            "host": [
                code.host.text,
                code.host.parameters,
                {name: _reference(r) for name, r in code.host.names.items()},
            ],
            "summary": {
                "devices": sorted(summary.devices),
                "kernel_names": sorted(summary.kernel_names),
                "writes_arguments": summary.writes_arguments,
                "lent": summary.lent,
                "counts": dict(summary.counts),
            },
        }
    except NotText:
        return None
    return json.dumps(kept, separators=(",", ":")).encode()


def from_bytes(blob: bytes) -> tuple[Code, Summary]:
    """What ``to_bytes`` was given."""
    kept = json.loads(blob)
    functions = {name: _read_function(*f) for name, f in kept["functions"].items()}
    tables = {name: tuple(map(_read_reference, table)) for name, table in kept["tables"].items()}
    text, parameters, names = kept["host"]
    read = {name: _read_reference(reference) for name, reference in names.items()}
    summary = kept["summary"]
    summary = Summary(
        frozenset(summary["devices"]),
        frozenset(summary["kernel_names"]),
        summary["writes_arguments"],
        tuple(summary["lent"]),
        summary["counts"],
    )
    return Code(functions, tables, HostCode(text, tuple(parameters), read)), summary


def _function(function: object) -> tuple[object, ...]:
    if not isinstance(function, NativeFunction):
        raise NotText
    how = function.caller, function.few_passes, function.shared
    return function.text, function.argtypes, function.returns_status, *how


def _read_function(text: str, argtypes: list[Any], *how: Any) -> NativeFunction:
    return NativeFunction(text, tuple(argtypes), *how)


def _reference(reference: Reference) -> list[object]:
    kind, what = reference
    if isinstance(what, DType):
        return [kind, what.name, "dtype"]
    return [kind, _plain(what)]


def _plain(what: object) -> object:
    """Tuples of texts and whole numbers (of an enumeration's, the number is meant), and nothing
    that JSON would read back as another thing."""
    if isinstance(what, tuple):
        return [_plain(part) for part in what]
    if isinstance(what, int) and type(what) is not bool:
        return int(what)
    if what is None or type(what) in (str, bool):
        return what
    raise NotText


def _read_reference(kept: list[Any]) -> Reference:
    kind, what = kept[:2]
    return (kind, DTYPES[what]) if len(kept) == 3 else (kind, _read_plain(what))


def _read_plain(what: object) -> object:
    return tuple(map(_read_plain, what)) if isinstance(what, list) else what
