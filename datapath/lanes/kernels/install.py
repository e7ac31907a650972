# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Getting a kernel: find it, download, unpack, build siw, give it its name."""

from __future__ import annotations

from pathlib import Path

from datapath.errors import CapabilityError
from datapath.lanes.kernels import apt as packages
from datapath.lanes.kernels import cache, releases, siw, unpack
from datapath.lanes.kernels.apt import Apt
from datapath.lanes.kernels.cache import Kernel, Progress

_FORMAT = 1
_NOT_WANTED = "it was left out when this kernel was installed"


def install(name: str, progress: Progress, *, with_siw: bool = True, again: bool = False) -> Kernel:
    """Install the newest kernel that `name` means; one that is there already is returned.

    name: a version prefix or exact release, looked for in the machine's own
    suites first and then in the backports, or "backports".  again: replace a
    kernel that is there.

    Raises:
        LocalError: `name` cannot mean a kernel.
        CapabilityError: no such kernel, no network, no room.
    """
    releases.check_name(name)
    with cache.changing(progress) as here:
        progress("asking apt which kernels there are")
        apt, release, backport = _resolve(name, here / ".apt")
        have = cache.load(release)
        if have and not again:
            return have
        with cache.unfinished(here) as work:
            _make(apt, release, backport, work, progress, with_siw=with_siw)
    kernel = cache.load(release)
    assert kernel is not None
    return kernel


def ensure(name: str, progress: Progress) -> Kernel:
    """The newest installed kernel that `name` means; where there is none, install one.

    Raises: as install().
    """
    try:
        return find(name)
    except CapabilityError:
        progress(f"no kernel {name} is installed for guests yet: getting it")
        return install(name, progress)


def available(progress: Progress) -> list[tuple[str, bool]]:
    """(release, whether it is a backport) of all that install() could get, oldest first."""
    with cache.changing(progress) as here:
        progress("asking apt which kernels there are")
        found: dict[str, bool] = {}
        own = packages.machines_own(here / ".apt")
        own.update()
        found |= dict.fromkeys(own.releases(), False)
        try:
            backports = packages.backports(here / ".apt")
        except CapabilityError as error:
            progress(str(error))
        else:
            backports.update()
            found = dict.fromkeys(backports.releases(), True) | found
    return sorted(found.items(), key=lambda item: releases.age(item[0]))


def remove(name: str, progress: Progress) -> list[str]:
    """Remove the installed kernels that `name` means; their releases.

    Raises:
        CapabilityError: none is installed.
    """
    releases.check_name(name)
    with cache.changing(progress):
        meant = [kernel.release for kernel in cache.installed() if _means(name, kernel)]
        if not meant:
            raise CapabilityError(
                f"no kernel {name} is installed", hint="dpctl kernel list shows what is"
            )
        for release in meant:
            cache.discard(release)
    return meant


def find(name: str) -> Kernel:
    """The newest installed kernel that `name` means.

    Raises:
        LocalError: `name` cannot mean a kernel.
        CapabilityError: none is installed; the hint says how to get it.
    """
    releases.check_name(name)
    meant = [kernel for kernel in cache.installed() if _means(name, kernel)]
    if not meant:
        raise CapabilityError(
            f"no kernel {name} is installed for guests", hint=f"dpctl kernel install {name}"
        )
    return meant[-1]


def _means(name: str, kernel: Kernel) -> bool:
    if name == releases.BACKPORTS:
        return kernel.backport
    return releases.matches(name, kernel.release)


def _resolve(name: str, folder: Path) -> tuple[Apt, str, bool]:
    """Where to get the newest kernel that `name` means: apt, release, whether from backports."""
    complaint = None
    if name != releases.BACKPORTS:
        own = packages.machines_own(folder)
        own.update()
        release = releases.newest(name, own.releases())
        if release:
            return own, release, False
        complaint = own.missing(f"generic kernel {name}")
    try:
        backports = packages.backports(folder)
    except CapabilityError:
        if complaint:
            raise complaint from None
        raise
    backports.update()
    release = releases.newest(name, backports.releases())
    if release is None:
        raise backports.missing(f"generic kernel {name}")
    return backports, release, True


def _make(
    apt: Apt, release: str, backport: bool, work: Path, progress: Progress, *, with_siw: bool
) -> None:
    """Make the kernel's tree in `work` and publish it."""
    image = apt.package(f"linux-image-{release}")
    if image is None:
        raise apt.missing(f"linux-image-{release}")
    parts = apt.same_release(image, release)
    tree, unpacked = work / "tree", work / "unpacked"
    tree.mkdir()
    progress(f"downloading {release} ({image.version})")
    debs = apt.download(parts, work)
    progress(f"unpacking {release}")
    unpack.unpack(debs, unpacked)
    unpack.arrange(unpacked, release, tree)
    record = {
        "format": _FORMAT,
        "release": release,
        "backport": backport,
        "packages": {part.name: part.version for part in parts},
        "vmlinuz": f"boot/vmlinuz-{release}",
        "modules": f"lib/modules/{release}",
        "siw": None,
        "siw_reason": _NOT_WANTED,
        "siw_built_by": None,
    }
    if with_siw:
        try:
            built = siw.build(apt, release, parts, work, progress)
        except CapabilityError as error:
            record["siw_reason"] = str(error)
            progress(f"{release} will have no siw: {error}")
        else:
            record["siw"] = str(unpack.add_module(tree, release, built.module))
            record["siw_reason"] = ""
            record["siw_built_by"] = {"compiler": built.compiler, "packages": built.packages}
    unpack.index_modules(tree, release)
    cache.write_record(tree, record)
    cache.publish(tree, release)
