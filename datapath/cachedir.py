# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The cache folder, for compiled algorithms and guest kernels.

Its content is run: objects are loaded into programs, kernels are booted.  So nothing is
taken from it, and nothing put there, while another user than this one (or root) could have
changed it.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from datapath.errors import CapabilityError
from datapath.privileges import in_user_namespace

_NAME = "the cache {} (compiled algorithms, guest kernels) cannot be used: "
_HINT = "set XDG_CACHE_HOME to a folder of your own"


def root() -> Path:
    """${XDG_CACHE_HOME:-~/.cache}/datapath; it may not exist yet."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG specification: relative paths are ignored
        base = Path("~/.cache").expanduser()
    return base / "datapath"


def make(folder: Path) -> Path:
    """The folder, made for this user alone where it is not there yet, and checked.

    Raises:
        CapabilityError: it cannot be made, or as `check`.
    """
    check(folder)
    try:
        for part in (*reversed(folder.parents), folder):
            if not part.exists():
                part.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CapabilityError(
            f"{_NAME.format(folder)}{part}: {error.strerror}", hint=_HINT
        ) from None
    check(folder)
    return folder


def unwritable(folder: Path) -> CapabilityError | None:
    """What is told of a cache folder that cannot be made or written."""
    here = next(part for part in (folder, *folder.parents) if os.access(part, os.F_OK))
    if here.is_dir() and os.access(here, os.W_OK | os.X_OK):
        return None
    return CapabilityError(f"{_NAME.format(folder)}{here} cannot be written", hint=_HINT)


def check(path: Path) -> None:
    """Refuse a file or folder of the cache that another user can change; absence is no matter.

    That is decided by the path itself and by all folders and links on the way to it.

    Raises:
        CapabilityError: with the part that is not safe.
    """
    owners = _trusted_owners()
    for part in _steps(path.absolute()):
        try:
            info = part.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise CapabilityError(
                f"{_NAME.format(path)}{part}: {error.strerror}", hint=_HINT
            ) from None
        if info.st_uid not in owners:
            raise CapabilityError(
                f"the cache {path} is not used: {part} belongs to {_user(info.st_uid)}", hint=_HINT
            )
        # In a folder with the sticky bit, as /tmp, others cannot touch files of ours.
        open_to_all = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
        if open_to_all and not sticky and not stat.S_ISLNK(info.st_mode):
            raise CapabilityError(
                f"the cache {path} is not used: other users may write to {part}",
                hint=f"if what is there is yours: chmod go-w {part}; or {_HINT}",
            )


def _steps(path: Path) -> Iterator[Path]:
    """Every folder, link and file that the kernel meets on the way along an absolute path."""
    here = Path("/")
    yield here
    for part in path.parts[1:]:
        here = here / part
        yield here
        if here.is_symlink():
            yield from _steps(here.parent / here.readlink())
            here = here.resolve()


def _trusted_owners() -> set[int]:
    """This user and root; in a user namespace also the unmapped owner of the system's files."""
    owners = {0, os.geteuid()}
    if in_user_namespace():
        owners.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return owners


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
