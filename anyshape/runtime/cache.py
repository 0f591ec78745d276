"""The disk cache: named blobs under a content address, digest-checked, owner-only, no pickle.

In: a key (digest of everything that determines the content) and blobs. Out: the same blobs, or
None. An entry is a directory written under a temporary name and renamed; whatever is wrong with it
or with the cache costs a rebuild and one reason, never an error. What is read is verified before
it is used, and a shared object is loaded from the verified bytes, not from the file. Once a day the
writer sweeps: what killed processes left, and the entries used longest ago, above a limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from anyshape.nouns import frozen

FORMAT = 1
META = "meta.json"
SWEPT = ".swept"  # its time is that of the last sweep
SWEEP_SECONDS = 24 * 3600.0
ABANDONED_SECONDS = 3600.0
LIMIT_BYTES = 4 << 30
SPACE_BYTES = 16 << 20  # what the compiler's temporary files need, at most


def digest(*parts: bytes | str) -> str:
    """A content address: blake2b over the parts, each with its length."""
    state = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


@frozen
class DiskCache:
    """A directory that only this user can write; ``problem`` says why it is not used."""

    root: Path | None
    problem: str | None = None

    @classmethod
    def open(cls, directory: str) -> DiskCache:
        """The cache at ``directory``, made if need be; where it is not safe, an unused one."""
        if not directory:
            return cls(None, "no directory for it was found")
        root = Path(directory).absolute() / f"v{FORMAT}"
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            problem = next(filter(None, map(_unsafe, (root.parent, root))), None)
        except OSError as error:
            problem = f"{error.strerror}: {error.filename}"
        return cls(None, problem) if problem else cls(root)

    def load(self, key: str) -> dict[str, bytes] | None:
        """The blobs stored under ``key``, each checked against its digest; None if any is amiss."""
        if self.root is None:
            return None
        entry = self.root / key[:2] / key
        try:
            meta = json.loads(_read(entry / META))
            digests: Mapping[str, str] = meta["digests"]
            blobs = {name: _read(entry / name) for name in digests}
            if meta["key"] != key or any(digest(blobs[n]) != d for n, d in digests.items()):
                raise ValueError("digest")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            _remove(entry)  # what is amiss would keep a whole one from its place
            return None
        _touch(entry)
        return blobs

    def store(self, key: str, blobs: Mapping[str, bytes]) -> None:
        """Keeps the blobs; a full disk, or another process that was first, is no error."""
        if self.root is None:
            return
        entry = self.root / key[:2] / key
        temporary = self.root / f".{key}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            entry.parent.mkdir(mode=0o700, exist_ok=True)
            temporary.mkdir(mode=0o700)
            for name, blob in blobs.items():
                (temporary / name).write_bytes(blob)
            meta = {"key": key, "digests": {name: digest(blob) for name, blob in blobs.items()}}
            (temporary / META).write_text(json.dumps(meta))
            temporary.rename(entry)
            self.sweep()
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)

    def size(self) -> tuple[int, int]:
        """How many entries there are, and their bytes."""
        sizes = [_used(entry)[1] for entry in self.root.glob("??/*")] if self.root else []
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Removes every entry; processes that run have loaded what they need."""
        if self.root is not None:
            _remove(self.root)

    def sweep(self) -> None:
        """Once a day: removes what killed processes left, and what was used longest ago above
        ``LIMIT_BYTES``. A reader that loses an entry so makes it again.
        """
        assert self.root is not None
        now, stamp = time.time(), self.root / SWEPT
        if stamp.exists() and abs(now - stamp.stat().st_mtime) < SWEEP_SECONDS:
            return
        stamp.write_bytes(b"")
        for left in self.root.glob(".*.*"):
            if abs(now - left.stat().st_mtime) > ABANDONED_SECONDS:
                _remove(left)
        room = LIMIT_BYTES
        for _, size_bytes, entry in sorted(map(_used, self.root.glob("??/*")), reverse=True):
            room -= size_bytes
            if room < 0:
                _remove(entry)


def _used(entry: Path) -> tuple[float, int, Path]:
    """When an entry was used last, its size, and itself."""
    size_bytes = sum(path.lstat().st_size for path in entry.glob("*"))
    return entry.lstat().st_mtime, size_bytes, entry


def _touch(entry: Path) -> None:
    with contextlib.suppress(OSError):  # a disk that cannot be written is read all the same
        os.utime(entry)


def _remove(entry: Path) -> None:
    shutil.rmtree(entry, ignore_errors=True)
    with contextlib.suppress(OSError):
        entry.unlink()


def _read(path: Path) -> bytes:
    """The bytes of a plain file of this user: no link is followed, no pipe waited for."""
    with open(path, "rb", opener=_open_plainly) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise ValueError("not a plain file of this user")
        return file.read()


def _open_plainly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _unsafe(directory: Path) -> str | None:
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if status.st_uid != os.geteuid():
        return f"{directory} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{directory} can be written by others"
    return None


def roomy(directories: Iterable[str]) -> str | None:
    """The first directory that can be written and has room, for a compiler's temporary files; where
    none has room, the first that can be written.
    """
    writable = [d for d in directories if os.access(d, os.W_OK | os.X_OK)]
    return next((d for d in writable if _free_bytes(d) >= SPACE_BYTES), next(iter(writable), None))


def _free_bytes(directory: str) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
