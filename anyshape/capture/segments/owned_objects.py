"""Objects of C that capture makes and owns: locks, files in memory, files that are read.

In: calls of their classes and methods while recording. Out: what the real object gives, which
nobody outside has seen; at the end of the segment another one is made that is as it is then
(`makers.py`). A kind is one row of `OWNED`: which methods read and write the object itself and
values that they are given, call nothing back, and keep nothing. A file that is opened for reading
is read from memory, and each call is guarded to find the same bytes there; where the segment ends
before the program has closed it, capture begins again and leaves `open` to CPython.
"""

from __future__ import annotations

import _thread
import functools
import hashlib
import io
import locale
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.guards.guard_failures import contents_of
from anyshape.capture.heap import file_contents
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.mirrors import buffer_of
from anyshape.capture.heap.purity import CODECS, ERRORS
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.nouns import frozen
from anyshape.ops import OPS

Args = tuple[Any, ...]
Handler = Callable[[RecordingDomain, Args, dict[str, Any]], Any]


@frozen
class Owned:
    """A row. `made_by`: what is called for a new one. `state`: what makes the same one again, of
    values alone; None if nothing can. `again`: another one of that state."""

    kind: Any
    made_by: tuple[Any, ...]
    methods: str
    state: Callable[[Any], Any]
    again: Callable[[Any], Any]
    is_stream: bool = False


def _state_of_lock(lock: Any) -> Any:
    """One that nobody holds is as good as a new one."""
    return () if repr(lock).startswith("<unlocked ") else None


def _state_of_stream(stream: Any) -> Any:
    return ("closed",) if stream.closed else (stream.__getstate__()[:-1],)


def _stream(kind: Any, state: Any) -> Any:
    stream = kind()
    if state == ("closed",):
        stream.close()
    else:
        stream.__setstate__((*state[0], None))
    return stream


_LOCKING = "acquire release __enter__ __exit__ locked"
_STREAM = (
    "read readline readlines write writelines seek tell getvalue truncate close flush "
    "readable writable seekable isatty __enter__ __exit__ __iter__ __next__"
)
_READING = (
    "read readline readlines seek tell close readable writable seekable write isatty "
    "__enter__ __exit__ __iter__ __next__"
)
_HASHES: tuple[Any, ...] = (
    *(getattr(hashlib, name) for name in sorted(hashlib.algorithms_guaranteed)),
    *filter(None, [vars(random).get("_sha512")]),  # in 3.13, None until a text is a seed
)


def _hash(kind: type) -> Owned:
    """A digest that grows, whose state C keeps to itself."""
    made_by = tuple(make for make in _HASHES if type(make()) is kind)
    return Owned(kind, made_by, "update digest hexdigest copy", lambda made: None, _never_again)


def _never_again(state: Any) -> Any:
    raise AssertionError("nothing has a state of it")


OWNED: tuple[Owned, ...] = (
    *map(_hash, dict.fromkeys(type(make()) for make in _HASHES)),
    Owned(
        _thread.LockType,
        (_thread.allocate_lock,),
        _LOCKING,
        _state_of_lock,
        lambda state: _thread.allocate_lock(),
    ),
    Owned(
        _thread.RLock,
        (_thread.RLock,),
        _LOCKING,
        _state_of_lock,
        lambda state: _thread.RLock(),
    ),
    Owned(
        io.BytesIO,
        (io.BytesIO,),
        _STREAM + " read1 getbuffer readinto",
        _state_of_stream,
        functools.partial(_stream, io.BytesIO),
        is_stream=True,
    ),
    Owned(
        io.StringIO,
        (io.StringIO,),
        _STREAM,
        _state_of_stream,
        functools.partial(_stream, io.StringIO),
        is_stream=True,
    ),
    *(
        Owned(kind, (), _READING, file_contents.state_of_closed, file_contents.closed_again)
        for kind in (io.TextIOWrapper, io.BufferedReader)
    ),
)
KINDS: Mapping[type, Owned] = {row.kind: row for row in OWNED}
WRITES = frozenset({"readinto"})
"""Methods that write to what they are given."""
PLAIN = frozenset({int, float, bool, str, bytes, type(None)})


def given(domain: RecordingDomain, fn: Any, value: Any) -> Any:
    """An argument as C may see it: a plain value, or a list of such."""
    if type(value) in PLAIN or (
        type(value) is memoryview and domain.machine.heap.is_created(value)
    ):
        return value
    seen = domain.machine.heap.mirror(value) if type(value) in (list, tuple, bytearray) else None
    if type(seen) is bytearray or (seen is not None and all(type(item) in PLAIN for item in seen)):
        return seen
    raise broken("unknown-call", name_of(fn))


def _made(fn: Any) -> Handler:
    def handler(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
        shown = [given(domain, fn, arg) for arg in args]
        named = {name: given(domain, fn, value) for name, value in kwargs.items()}
        made = fn(*shown, **named)
        domain.made_stream = domain.made_stream or KINDS[type(made)].is_stream
        return domain.created(made)

    return handler


def _called(fn: Any) -> Handler:
    """A method of an object that capture made. Inside a fork it would be called on both sides."""

    def handler(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
        heap = domain.machine.heap
        known = bool(args) and type(args[0]) in KINDS and heap.is_created(args[0])
        if not known or heap.journal is not None:
            raise broken("unknown-call", name_of(fn))
        if fn.__name__ == "__exit__":  # which looks at nothing that it is given
            return fn(args[0], *(None for _ in args[1:]), **kwargs)
        shown = [given(domain, fn, arg) for arg in args[1:]]
        named = {name: given(domain, fn, value) for name, value in kwargs.items()}
        if fn.__name__ in WRITES and not all(map(heap.is_created, args[1:])):
            raise broken("unknown-call", name_of(fn))
        try:
            return fn(args[0], *shown, **named)
        except BufferError:  # of a view that the program has dropped, maybe
            raise broken("unknown-call", name_of(fn)) from None

    return handler


# ---- files that are read -------------------------------------------------------------------------
def _open(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
    wanted = _wanted(*args, **kwargs) if len(args) <= 6 and kwargs.keys() <= _NAMES else None
    may_differ = domain.has_reported or _may_write_files(domain)
    if wanted is None or domain.opened is None or may_differ:
        raise broken("unknown-call", "io.open")
    path, data = wanted[0], None
    if domain.machine.heap.journal is None:
        data = file_contents.bytes_of(path)
    sources = domain.recorder.sources
    asked = sources.const(file_contents.digest_of_file, "the digest of the file")
    source = sources.child(asked, "call", (path,))
    if data is None or contents_of(source.text) in domain.widen:
        raise broken("unknown-call", "io.open")
    domain.recorder.guard(source, "buffer", buffer_of(file_contents.digest(data)))
    if wanted[1] in file_contents.TEXT_MODES and wanted[2] in _BY_LOCALE:
        domain.relied.asked(locale.getencoding, ())
    file = domain.created(file_contents.opened(data, *wanted))
    domain.opened.append(file)
    return file


def _may_write_files(domain: RecordingDomain) -> bool:
    """Whether the graph writes to memory before, which may be a file's, or calls what no row is
    there for: the file is read when capture is."""
    rows = ((node, OPS.get(node.op)) for node in domain.recorder.builder.nodes)
    return any(row is None or row.guessed or row.mutates or node.regions for node, row in rows)


def _wanted(
    file: Any = None,
    mode: Any = "r",
    buffering: Any = -1,
    encoding: Any = None,
    errors: Any = None,
    newline: Any = None,
) -> tuple[Any, ...] | None:
    """What `open` is asked for: path, mode, encoding, errors and newline; None where it would
    write, refuse it, or ask code of the program."""
    if type(file) not in (str, bytes) or type(mode) is not str or buffering != -1:
        return None
    rest = (encoding, errors, newline)
    if any(type(value) not in (str, type(None)) for value in rest):
        return None
    if mode in file_contents.BINARY_MODES:
        return (file, mode, *rest) if rest == (None, None, None) else None
    known = encoding in CODECS or encoding in _BY_LOCALE
    fits = known and (errors is None or errors in ERRORS) and newline in _NEWLINES
    return (file, mode, *rest) if fits and mode in file_contents.TEXT_MODES else None


_NAMES = frozenset({"file", "mode", "buffering", "encoding", "errors", "newline"})
_NEWLINES = (None, "", "\n", "\r", "\r\n")
_BY_LOCALE = (None, "locale")
"""Encodings that `open` asks the process for."""

FUNCTIONS: Mapping[Any, Handler] = {threading.RLock: _made(_thread.RLock)}
"""Those written in Python."""
HANDLERS: Mapping[Any, Handler] = {
    io.open: _open,
    **{fn: _made(fn) for row in OWNED for fn in row.made_by},
    **{
        getattr(row.kind, name): _called(getattr(row.kind, name))
        for row in OWNED
        for name in row.methods.split()
        if hasattr(row.kind, name)
    },
}
