# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""manifest.json: everything about machine and software that a result may depend on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath.experiment import trust
from datapath.workloads import REGISTRY

if TYPE_CHECKING:
    from datapath.experiment.load import LoadedExperiment

_PACKAGES = (
    "datapath-rdma",
    "asyncssh",
    "numba",
    "llvmlite",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyroute2",
    "bcc",
    "pyverbs",
)
_VERSION_OF = {
    "bpftool": ("version",),
    "ip": ("-V",),
    "ethtool": ("--version",),
}
_TIMEOUT_S = 5


def build(experiment: LoadedExperiment, argv: list[str], runs_planned: int) -> dict[str, Any]:
    """The manifest of a run that is about to begin, as plain data."""
    spec = experiment.spec
    return {
        "manifest_version": 1,
        "name": spec.name,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "argv": argv,
        "cwd": str(Path.cwd()),
        "source": str(experiment.source.resolve()),
        "overrides": list(experiment.overrides),
        "seal": trust.seal(experiment),
        "seed": spec.seed,
        "runs_planned": runs_planned,
        "points": [{"point": point.key, "axes": dict(point.axes)} for point in experiment.points],
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("DATAPATH_")},
        **_made_with(),
        "networks": [],
    }


def resumption(argv: list[str]) -> dict[str, Any]:
    """What the manifest tells of a command that goes on with the runs."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {"started": started, "argv": argv, **_made_with()}


def _made_with() -> dict[str, Any]:
    return {
        "git": git_state(),
        "machine": machine(),
        "packages": package_versions(_PACKAGES),
        "programs": program_versions(_version_commands()),
    }


def _version_commands() -> dict[str, tuple[str, ...]]:
    """Program -> arguments with which it tells its version."""
    tools = [tool for workload in REGISTRY.values() for tool in workload.tools]
    return {tool.name: tool.version for tool in tools if tool.version is not None} | _VERSION_OF


def machine() -> dict[str, Any]:
    """Kernel, CPU, memory and settings of their speed; None for facts that cannot be read."""
    cpuinfo = _read("/proc/cpuinfo") or ""
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo") or "", re.MULTILINE)
    cpu = "/sys/devices/system/cpu"
    return {
        "kernel": platform.release(),
        "kernel_version": platform.version(),
        "architecture": platform.machine(),
        "distribution": _distribution(),
        "cpu_model": model.group(1) if model else platform.processor() or None,
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else None,
        "governor": _read(f"{cpu}/cpu0/cpufreq/scaling_governor"),
        "smt": _read(f"{cpu}/smt/active"),
        "virtual": "hypervisor" in cpuinfo,
        "mitigations": _read(f"{cpu}/vulnerabilities/spectre_v2"),
        "load": list(os.getloadavg()),
        "bpf_jit": _read("/proc/sys/net/core/bpf_jit_enable"),
    }


def git_state() -> dict[str, Any]:
    """Commit of the tree this runs from, and whether it was changed; {} outside of a tree."""
    tree = Path(__file__).resolve().parents[2]
    if not (tree / ".git").exists():
        return {}
    commit = _output(["git", "-C", str(tree), "rev-parse", "--verify", "HEAD"])
    status = _output(["git", "-C", str(tree), "status", "--porcelain"])
    return {"commit": commit, "dirty": bool(status)}


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of the installed ones among Python packages."""
    versions = {"python": platform.python_version(), "executable": sys.executable}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def program_versions(commands: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """First line of the version text of each installed program."""
    versions = {}
    for program, arguments in commands.items():
        path = shutil.which(program)
        if path is None:
            continue
        text = _output([path, *arguments]) if arguments else None
        versions[program] = text.splitlines()[0].strip() if text else path
    return versions


def _distribution() -> str | None:
    release = _read("/etc/os-release") or ""
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', release, re.MULTILINE)
    return name.group(1) if name else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _output(argv: list[str]) -> str | None:
    """Standard output, else standard error, of a command; None when it fails or is not there."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TIMEOUT_S, errors="replace", check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout.strip() or done.stderr.strip()) if done.returncode == 0 else None
