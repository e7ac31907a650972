# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which Debian package brings a program, library or Python module: the table packages.txt.

The set-up installs what the table lists (setup/lib.sh); messages and manifests ask it here.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_TABLE = Path(__file__).with_name("packages.txt")


@functools.cache
def packages() -> Mapping[str, str]:
    """Program, library or module -> the Debian package that brings it."""
    return {name: package for package, _, brings in _rows() for name in brings}


def measured_with() -> list[str]:
    """Packages whose versions a manifest tells: those that runs use here or on other machines."""
    return [package for package, kind, brings in _rows() if brings or kind == "ssh"]


def of_this_machine() -> list[str]:
    """Packages that the set-up installs here; with @arch@ as dpkg calls it."""
    machine = platform.machine()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    return [name.replace("@arch@", architecture) for name, kind, _ in _rows() if kind != "ssh"]


def install_hint(*names: str, where: str = "") -> str:
    """The command that installs the packages of all names; `where`: on another host, "there"."""
    known = packages()
    if not all(name in known for name in names):
        return "install it, or put it on PATH"
    command = install_command(dict.fromkeys(known[name] for name in names))
    return command + (f", {where}" if where else "")


def install_command(wanted: Iterable[str]) -> str:
    """The command that installs these packages."""
    return f"apt-get install {' '.join(wanted)}"


def _rows() -> Iterator[tuple[str, str, list[str]]]:
    """(package, class, names that it brings) of each row."""
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            package, kind, brings, *_ = line.split()
            yield package.partition(">=")[0], kind, [] if brings == "-" else brings.split(",")
