# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Compiled objects on disk, each sealed with the digest of its content.

The seal is the last 40 bytes of the file: a magic word and SHA-256 of what
stands before it.  The loader of ELF files does not look there, so a sealed
shared object is opened as it is; a truncated or changed one is noticed and
built again.  The digest is no signature: that nobody else wrote the file is
seen by owner and mode (cachedir.check).  Files are written under a temporary
name and renamed, so two processes that build the same object at once do no harm.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from datapath import cachedir, disk
from datapath.errors import CapabilityError

_MAGIC = b"dpcc\x01\r\n\x00"
_SEAL_BYTES = len(_MAGIC) + 32


def folder() -> Path:
    """${XDG_CACHE_HOME:-~/.cache}/datapath/cc; it may not exist yet."""
    return cachedir.root() / "cc"


def load(path: Path) -> bytes | None:
    """The content of a sealed file without its seal; None when absent or damaged.

    Raises:
        CapabilityError: another user can change the file.
    """
    cachedir.check(path)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content, seal = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    return content if seal == _seal(content) else None


def store(path: Path, content: bytes) -> None:
    """Write `content` and its seal; what stood there before stays whole until then.

    Raises:
        CapabilityError: the folder cannot be written, or another user can change it.
    """
    try:
        cachedir.make(path.parent)
        disk.replace(path, content + _seal(content), mode=0o644)
    except OSError as error:
        raise CapabilityError(
            f"cannot write the compiled algorithm to {path.parent}: {error.strerror}",
            hint="set XDG_CACHE_HOME to a folder that can be written",
        ) from None


def _seal(content: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(content).digest()
