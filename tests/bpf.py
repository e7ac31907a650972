# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""BPF objects that tests compile for themselves."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path


def compile_bpf(source: Path, into: Path, *options: str) -> Path:
    """Compile a C file to an object in the folder `into`; -g and the like are options."""
    made = into / source.with_suffix(".o").name
    include = f"/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
    command = ["clang", "-target", "bpf", "-O2", "-idirafter", include, *options]
    subprocess.run([*command, "-c", str(source), "-o", str(made)], check=True)
    return made
