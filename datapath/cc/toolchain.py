# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The C compiler that links an algorithm: $CC, that of the system, or the one of a Python package.

The last one is ziglang, which pip installs along with a wheel of ours: it brings clang and LLVM's
linker to machines without a compiler.  They are called by themselves.  `zig cc` would first build
a C library, of which the object needs two files alone that every system has.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from datapath.debian import install_hint
from datapath.errors import CapabilityError, DatapathError

_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-builtin")
_LINKING = ("-z", "defs", "-z", "noexecstack", "-z", "relro", "-z", "now", "--as-needed")
_LIBRARIES = ("-l:libm.so.6", "-l:libc.so.6")
_PATIENCE_S = 120.0


def shared_object(folder: Path, include: Path) -> bytes:
    """Compile glue.c of a folder and link it with hooks.o.

    include: folder of the headers.

    Raises:
        CapabilityError: there is no compiler.
        DatapathError: it refuses.
    """
    for command in _commands(include):
        _run(command, folder)
    return (folder / "algorithm.so").read_bytes()


def _commands(include: Path) -> list[list[str]]:
    compiler = os.environ.get("CC", "").split() or _installed()
    flags = [*_FLAGS, f"-I{include}"]
    out = ["-o", "algorithm.so"]
    if compiler:
        linking = f"-Wl,{','.join(_LINKING)}"
        return [[*compiler, *flags, "-shared", linking, *out, "glue.c", "hooks.o", "-lm"]]
    zig = _zig()
    headers = ["-isystem", str(zig.parent / "lib" / "include")]
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    places = [f"-L{at}" for at in (f"/lib/{multiarch}", f"/usr/lib/{multiarch}", "/lib64", "/lib")]
    return [
        [str(zig), "clang", *flags, *headers, "-c", "-o", "glue.o", "glue.c"],
        [
            *(str(zig), "ld.lld", "-shared", *_LINKING, *out, "glue.o", "hooks.o"),
            *(*places, *_LIBRARIES),
        ],
    ]


def _installed() -> list[str]:
    found = shutil.which("gcc") or shutil.which("cc")
    return [found] if found else []


def _zig() -> Path:
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.origin:
        raise CapabilityError("no C compiler to link the algorithm", hint=install_hint("gcc"))
    return Path(package.origin).parent / "zig"


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except OSError as error:
        raise CapabilityError(
            f"cannot run the C compiler {command[0]}: {error.strerror}", hint=install_hint("gcc")
        ) from None
    except subprocess.TimeoutExpired:
        raise DatapathError(
            f"the C compiler {command[0]} has not ended after {_PATIENCE_S:.0f} s",
            hint="try again when the machine has less to do",
        ) from None
    if done.returncode:
        raise DatapathError(f"linking the algorithm failed: {done.stderr.strip()}")
