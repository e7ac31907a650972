# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""PyTorch, which few need: a source tree installs its CPU build at first use.

setup/torch.txt pins the versions.  An installed package has an extra for it instead.  Its build
for GPUs, which is larger than all else together, is the user's to install.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from datapath.errors import CapabilityError

_WANTED = Path(__file__).resolve().parents[1] / "setup" / "torch.txt"
_MANUAL = "pip install 'datapath-rdma[train]' into the Python that runs dpctl"


def has_torch() -> bool:
    importlib.invalidate_caches()
    return importlib.util.find_spec("torch") is not None


def require_gpu(devices: Path = Path("/dev")) -> None:
    """CapabilityError where there is no GPU of NVIDIA, or no PyTorch that may use one."""
    if not any(devices.glob("nvidia[0-9]*")):
        raise CapabilityError(
            "no GPU of NVIDIA is here, and NCCL runs on nothing else",
            hint="workloads collective and gloo have the same collectives in host memory",
        )
    if not has_torch():
        raise CapabilityError(
            "PyTorch is not installed",
            hint="pip install torch, a build for CUDA, into the Python that runs dpctl",
        )


def ensure_torch(progress: Callable[[str], None]) -> None:
    """Install PyTorch unless it is there.

    progress: called with a line of text before it begins.

    Raises:
        CapabilityError: it cannot be had, or this is no source tree.
    """
    if has_torch():
        return
    if sys.prefix == sys.base_prefix or not _WANTED.is_file():
        raise CapabilityError("PyTorch is not installed", hint=_MANUAL)
    handle = os.open(sys.prefix, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # one at a time; the others find it done
        if not has_torch():
            progress("installing PyTorch's CPU build (200 MB)")
            _install()
    finally:
        os.close(handle)


def _install() -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--no-deps"]
    # Python compiles a module when it is first imported; most of these 3,900 never are.
    command += ["--no-compile", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "-r", str(_WANTED)]
    environment = {**os.environ, "PIP_USER": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or not has_torch():
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise CapabilityError(
            f"PyTorch cannot be installed: {lines[-1]}",
            hint="check the network and pip's settings, then try again",
        )
