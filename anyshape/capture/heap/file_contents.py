"""Files that the program reads: what lies in one, and a file object that reads it from memory.

In: a path. Out: the bytes there and their digest, which a guard compares in each call; an object
like the one that `open` gives, over bytes. Only regular files that are not long have either: to
read another one, such as a pipe, is an effect.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from typing import Any

LONGEST = 4 << 20
"""Bytes of a file that is read; a longer one is left to CPython."""
TEXT_MODES = frozenset({"r", "rt", "tr"})
BINARY_MODES = frozenset({"rb", "br"})


def bytes_of(path: str | bytes) -> bytes | None:
    """What lies in a regular file; None where it cannot be read, or is long."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST:
            return None
        with open(path, "rb") as file:
            data = file.read(LONGEST + 1)
    except (OSError, ValueError):
        return None
    return (
        data if len(data) == status.st_size else None
    )  # of the system's own files no size is told


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data).digest()


def digest_of_file(path: str | bytes) -> bytes | None:
    """That of what lies in a file; None where `bytes_of` gives none."""
    data = bytes_of(path)
    return None if data is None else digest(data)


class _Contents(io.BytesIO):
    """In place of the `io.FileIO` that a file for reading lies over."""

    mode = "rb"

    def __init__(self, data: bytes, name: str | bytes) -> None:
        super().__init__(data)
        self.name = name

    def writable(self) -> bool:
        return False


def opened(
    data: bytes,
    path: str | bytes,
    mode: str,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """What `open(path, mode, ...)` gives where these bytes lie in the file."""
    buffered = io.BufferedReader(_Contents(data, path))
    if mode in BINARY_MODES:
        return buffered
    text: Any = io.TextIOWrapper(buffered, encoding, errors, newline)
    text.mode = mode
    return text


def state_of_closed(file: Any) -> tuple[Any, ...] | None:
    """What `closed_again` makes another one of; None while the file is open."""
    if not file.closed:
        return None
    if type(file) is io.BufferedReader:
        return b"", file.name, "rb"
    ends = file.newlines or ""
    data = (ends if type(ends) is str else "".join(ends)).encode("ascii")
    return data, file.name, file.mode, file.encoding, file.errors


def closed_again(state: tuple[Any, ...]) -> Any:
    """A closed file of this state."""
    file = opened(*state)
    file.read()
    file.close()
    return file
