# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernels on disk: one folder each, named after the release.

    kernels/<release>/boot/vmlinuz-<release>
    kernels/<release>/lib/modules/<release>/     with what depmod writes; siw in extra/
    kernels/<release>/kernel.json                what it is and where it came from
    kernels/.apt/                                apt's lists, our own
    kernels/.lock                                held while something is changed

virtme-ng finds the modules of an image by going up from it to a folder with
lib/modules.  A folder gets its name when it is whole (a rename), so what is
there under a release's name can be booted.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datapath import cachedir
from datapath.errors import CapabilityError
from datapath.lanes.kernels import releases

Progress = Callable[[str], None]
"""Takes a few words on the current step."""

RECORD = "kernel.json"
_UNFINISHED = ".new-"


@dataclass(frozen=True)
class Kernel:
    """An installed kernel.

    vmlinuz: the image.  modules: its .../lib/modules/<release>.
    siw: the siw module for it, or None, and then siw_reason says why.
    backport: whether it came from the backports suite.
    """

    release: str
    vmlinuz: Path
    modules: Path
    siw: Path | None
    siw_reason: str
    backport: bool = False


def folder() -> Path:
    """Where the kernels are; it may not exist yet."""
    return cachedir.root() / "kernels"


def home(release: str) -> Path:
    return folder() / release


def load(release: str) -> Kernel | None:
    """The installed kernel of this release; None when it is not there or not whole.

    Raises:
        CapabilityError: another user can change it.
    """
    here = home(release)
    cachedir.check(here / RECORD)
    try:
        record = json.loads((here / RECORD).read_text())
        siw = record["siw"]
        kernel = Kernel(
            release=record["release"],
            vmlinuz=here / record["vmlinuz"],
            modules=here / record["modules"],
            siw=here / siw if siw else None,
            siw_reason=record["siw_reason"],
            backport=record["backport"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    for part in (kernel.vmlinuz, kernel.modules / "modules.dep"):
        cachedir.check(part)
    whole = kernel.vmlinuz.is_file() and (kernel.modules / "modules.dep").is_file()
    return kernel if whole and kernel.release == release else None


def installed() -> list[Kernel]:
    """All kernels of the cache, oldest release first."""
    cachedir.check(folder())
    if not folder().is_dir():
        return []
    names = (path.name for path in folder().iterdir() if releases.is_generic(path.name))
    kernels = (load(name) for name in sorted(names, key=releases.age))
    return [kernel for kernel in kernels if kernel is not None]


def write_record(tree: Path, record: dict[str, Any]) -> None:
    (tree / RECORD).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


@contextmanager
def changing(progress: Progress) -> Iterator[Path]:
    """Hold the cache for a change; yields its folder, without unfinished installs."""
    here = folder()
    try:
        cachedir.make(here)
        lock = (here / ".lock").open("w")
    except OSError as error:
        raise CapabilityError(
            f"cannot write the kernels' folder {here}: {error.strerror}",
            hint="set XDG_CACHE_HOME to a folder that can be written",
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            progress("waiting for another dpctl that changes the kernels")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in here.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield here


@contextmanager
def unfinished(cache: Path) -> Iterator[Path]:
    """A folder to work in, beside the kernels; gone at the end, come what may."""
    with tempfile.TemporaryDirectory(
        dir=cache, prefix=_UNFINISHED, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def publish(tree: Path, release: str) -> None:
    """Give a whole tree its name; the files of one that was there before go afterwards."""
    here = home(release)
    with unfinished(folder()) as grave:
        if here.exists():
            here.rename(grave / release)
        tree.rename(here)


def discard(release: str) -> None:
    """Remove a release: first its name, then its files."""
    here = home(release)
    if here.exists():
        with unfinished(folder()) as grave:
            here.rename(grave / release)
