# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writing files whole or not at all, and telling why a disk did not take them."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from datapath.errors import CapabilityError, LocalError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_GO_ON = (
    "then go on with `dpctl run --resume DIR`, or make the report again with `dpctl report DIR`"
)


class DiskFull(CapabilityError):
    """No space is left where results go; nothing more can be kept."""


@contextlib.contextmanager
def disk_full(path: Path) -> Iterator[None]:
    """Turn a full disk, or a limit to the size of a file, into DiskFull."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        if error.errno == errno.EFBIG:
            raise DiskFull(
                f"{path} would become larger than a file may be",
                hint=f"raise the limit (ulimit -f), {_GO_ON}",
            ) from error
        raise DiskFull(
            f"no space left to write {path}", hint=f"free some space, {_GO_ON}"
        ) from error


@contextlib.contextmanager
def disk_errors(path: Path, *, rather: str = "choose another folder with --out") -> Iterator[None]:
    """Turn an error of the disk into one that names the file and tells what to do (rather)."""
    try:
        with disk_full(path):
            yield
    except OSError as error:
        hint = rather
        if error.errno == errno.ENOENT:
            hint = f"was the folder removed meanwhile? if not, {rather}"
        raise LocalError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error


def write_atomic(path: Path, content: bytes) -> None:
    """As `replace`, with errors that a user understands."""
    with disk_errors(path):
        replace(path, content)


def replace(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write to a temporary name, flush to the disk, rename; OSError leaves the old file.

    mode: permissions, less those of the umask.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
