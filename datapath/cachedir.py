# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The folder for what can be made again: compiled algorithms, guest kernels."""

from __future__ import annotations

import os
from pathlib import Path


def root() -> Path:
    """${XDG_CACHE_HOME:-~/.cache}/datapath; it may not exist yet."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG specification: relative paths are ignored
        base = Path("~/.cache").expanduser()
    return base / "datapath"
