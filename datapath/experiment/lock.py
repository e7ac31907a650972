# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The lock of a result folder: one dpctl writes to it.  Light, for `dpctl clean`."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from datapath.errors import LocalError

LOCK = ".lock"
"""Its file in the folder."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only dpctl that writes to a result folder, or deletes it.

    Raises:
        LocalError: another one does, or the folder is gone.
        OSError: the folder takes no lock.
    """
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(folder / LOCK, flags, 0o644)
    except FileNotFoundError:
        raise _deleted(folder) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LocalError(
                f"{folder} is being written by another dpctl",
                hint="wait for it to end, or stop it",
            ) from None
        if os.fstat(lock).st_nlink == 0:
            raise _deleted(folder)
        yield
    finally:
        os.close(lock)


def is_being_written(folder: Path) -> bool:
    """Whether some dpctl holds the lock of a result folder.  Changes nothing in the folder."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _deleted(folder: Path) -> LocalError:
    return LocalError(f"{folder} has been deleted", hint="start a new run")
