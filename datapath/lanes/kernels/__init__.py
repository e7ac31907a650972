# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Kernels for guests, from Debian packages into a cache; nothing is installed on the machine.

    kernel = ensure("6.12", print)  # or "backports", or an exact release
    kernel.vmlinuz, kernel.modules, kernel.siw

releases.py    names of kernels and their meaning
sources.py     where apt gets packages from
apt.py         apt with lists of its own
unpack.py      from .deb files to a tree that boots
siw.py         the siw module, built in a root of the kernel's own suite
cache.py       the folder with the kernels: layout, lock, what is installed
install.py     installing, by all of the others
"""

from __future__ import annotations

from datapath.lanes.kernels.cache import Kernel, installed
from datapath.lanes.kernels.install import available, ensure, find, install, remove

__all__ = ["Kernel", "available", "ensure", "find", "install", "installed", "remove"]
