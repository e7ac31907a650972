# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names of Debian's generic kernels, and which of them a user's name means.

A release is what `uname -r` says, for example 6.1.0-47-amd64,
6.12.117+deb12-amd64 or 7.2.12+deb13-amd64.  Its last word is the flavour; the
generic one has the name of the architecture, so cloud, rt and dbg are told
apart by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from datapath.errors import LocalError

BACKPORTS = "backports"
"""The name that means the newest kernel of the backports suite."""

_ARCHITECTURES = "amd64|arm64"
# Three numbers: linux-image-6.12-amd64 is the name of an empty package that follows 6.12.
_RELEASE = re.compile(rf"\d+\.\d+\.\d+[\w.+]*(?:-\d+)?-(?:{_ARCHITECTURES})")
_NAME = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")


def check_name(name: str) -> None:
    """LocalError unless `name` can mean a kernel."""
    if name != BACKPORTS and not _NAME.fullmatch(name):
        raise LocalError(
            f"{name!r} names no kernel",
            hint="a version such as 6.12, an exact release, or backports",
        )


def is_generic(release: str, architecture: str | None = None) -> bool:
    """Whether this is a release of the generic flavour (of that architecture)."""
    ours = architecture is None or release.endswith(f"-{architecture}")
    return ours and _RELEASE.fullmatch(release) is not None


def matches(name: str, release: str) -> bool:
    """Whether a version prefix or exact release means this one: 6.1 does not mean 6.12.1."""
    return release.startswith(name) and not release[len(name) : len(name) + 1].isdigit()


def age(release: str) -> tuple[int, ...]:
    """A key that sorts releases, oldest first."""
    return tuple(int(number) for number in re.findall(r"\d+", without_flavour(release)))


def newest(name: str, releases: Iterable[str]) -> str | None:
    """The newest release that `name` means; all of them are meant by "backports"."""
    meant = (one for one in releases if name == BACKPORTS or matches(name, one))
    return max(meant, key=age, default=None)


def without_flavour(release: str) -> str:
    """6.12.117+deb12 of 6.12.117+deb12-amd64: packages common to flavours are named after it."""
    return release.rpartition("-")[0]


def source_package(release: str) -> str:
    """linux-source-6.12 of 6.12.117+deb12-amd64: the package of the kernel's source."""
    return "linux-source-" + ".".join(re.findall(r"\d+", release)[:2])
