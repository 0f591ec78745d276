"""The disk cache: named blobs under a content address, digest-checked, owner-only, no pickle.

In: a key (digest of everything that determines the content) and blobs. Out: the same blobs, or
None. An entry is a directory written under a temporary name and renamed; whatever is wrong with it
or with the cache costs a rebuild and one reason, never an error. What is read is verified before
it is used, and a shared object is loaded from the verified bytes, not from the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FORMAT = 1
META = "meta.json"


def digest(*parts: bytes | str) -> str:
    """A content address: blake2b over the parts, each with its length."""
    state = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


@dataclass(frozen=True, slots=True)
class DiskCache:
    """A directory that only this user can write; ``problem`` says why it is not used."""

    root: Path | None
    problem: str | None = None

    @classmethod
    def open(cls, directory: str) -> DiskCache:
        """The cache at ``directory``, made if need be; where it is not safe, an unused one."""
        if not directory:
            return cls(None, "no directory for it was found")
        root = Path(directory) / f"v{FORMAT}"
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
            meta = json.loads((entry / META).read_bytes())
            digests: Mapping[str, str] = meta["digests"]
            blobs = {name: _read(entry / name) for name in digests}
            if meta["key"] != key or any(digest(blobs[n]) != d for n, d in digests.items()):
                raise ValueError("digest")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            shutil.rmtree(entry, ignore_errors=True)
            return None
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
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _unsafe(directory: Path) -> str | None:
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if status.st_uid != os.geteuid():
        return f"{directory} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{directory} can be written by others"
    return None


def existing(directories: Iterable[str]) -> str | None:
    """The first directory that can be written, for a compiler's temporary files."""
    return next((d for d in directories if os.access(d, os.W_OK | os.X_OK)), None)
