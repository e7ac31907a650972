# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From .deb files to a folder: unpacking, and the layout of a kernel."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from datapath.errors import CapabilityError


def unpack(packages: Iterable[Path], tree: Path) -> None:
    """Unpack .deb files into one folder and delete them; no maintainer script runs.

    Unlike `dpkg -x` this goes through links to folders, which a root with
    merged /usr has.
    """
    tree.mkdir(parents=True, exist_ok=True)
    script = 'dpkg-deb --fsys-tarfile "$1" | tar -C "$2" -x --keep-directory-symlink'
    for package in packages:
        _call("bash", "-o", "pipefail", "-c", script, "unpack", str(package), str(tree))
        package.unlink()


def arrange(unpacked: Path, release: str, tree: Path) -> None:
    """From Debian's layout, old or new, to the cache's: boot/ and lib/modules/ of one release.

    Old: boot/vmlinuz-R and lib/modules/R (or usr/lib/modules/R).  New (7.0 and
    later): all in usr/lib/modules/R, the image as vmlinuz.

    Raises:
        CapabilityError: the packages have no image or no modules.
    """
    modules = _first(unpacked / "usr/lib/modules" / release, unpacked / "lib/modules" / release)
    image = _first(
        unpacked / f"boot/vmlinuz-{release}",
        *([modules / "vmlinuz"] if modules else []),
    )
    if modules is None or image is None:
        what = "modules" if modules is None else "image"
        raise CapabilityError(
            f"the packages of {release} have no kernel {what} where it is known to be",
            hint="another release may do: dpctl kernel list",
        )
    for name in ("boot", "lib/modules"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    image.rename(tree / f"boot/vmlinuz-{release}")
    for name in ("build", "source"):  # links to headers that are not here
        (modules / name).unlink(missing_ok=True)
    modules.rename(tree / "lib/modules" / release)


def add_module(tree: Path, release: str, module: Path) -> Path:
    """Copy a module into the kernel's extra/; its path relative to the tree."""
    place = tree / "lib/modules" / release / "extra" / module.name
    place.parent.mkdir(exist_ok=True)
    shutil.copyfile(module, place)
    return place.relative_to(tree)


def index_modules(tree: Path, release: str) -> None:
    """Write the files that modprobe reads: modules.dep and the like."""
    depmod = shutil.which("depmod") or "/usr/sbin/depmod"
    _call(depmod, "--basedir", str(tree), release)


def _first(*paths: Path) -> Path | None:
    return next((path for path in paths if path.exists()), None)


def _call(*argv: str) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise CapabilityError(
            f"{argv[0]} is not installed", hint=f"install the package that has {Path(argv[0]).name}"
        ) from None
    if done.returncode != 0:
        detail = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise CapabilityError(
            f"{Path(argv[0]).name}: {detail}", hint="check for room on the disk, then try again"
        )
