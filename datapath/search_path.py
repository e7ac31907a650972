# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where programs are found: on PATH, and in the folders of the system's own programs.

`su` without `-`, sudo on some machines and `env -i` leave those out, and Debian has ethtool and
others there.
"""

from __future__ import annotations

import os

SYSTEM = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def whole() -> str:
    """PATH with the folders that it lacks, at its end."""
    path = os.environ.get("PATH", os.defpath)
    return ":".join([path, *(folder for folder in SYSTEM if folder not in path.split(":"))])


def complete() -> None:
    """Have this process, and all that it starts, find programs there."""
    os.environ["PATH"] = whole()
