# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Temporary folders that do not stay behind: what a killed process leaves, the next removes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK = "lock"
"""A file in each folder, locked by the process that has it; a fork of that process has no lock."""

_own: set[Path] = set()
"""Folders of this process, whose own lock would not keep it from removing them."""


@contextlib.contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """A folder for as long as it lasts; those that ended processes have left are removed."""
    remove_old(prefix)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        with contextlib.suppress(FileNotFoundError):  # another process took it for an old one
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            fcntl.lockf(lock, fcntl.LOCK_EX)
            if path.exists():
                break
            os.close(lock)
    _own.add(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
        _own.discard(path)


def remove_old(prefix: str) -> None:
    """The folders of processes that have ended without removing them."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if path in _own:
            continue
        with contextlib.suppress(OSError), _locked(path):  # an OSError: not ours, or in use
            shutil.rmtree(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a folder of ours; OSError when it is somebody else's, or in use.

    Anybody may put a folder, or a link, of such a name where temporary folders are, and a link as
    its lock.  So no link is followed, and no file is opened in a folder of another user.
    """
    only_folder = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, inside := os.open(path, only_folder))
        if os.fstat(inside).st_uid != os.geteuid():
            raise PermissionError(f"{path} is another user's")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        opened.callback(os.close, lock := os.open(_LOCK, flags, 0o600, dir_fd=inside))
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
