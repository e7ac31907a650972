# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CPU time of a run: used by its programs, waited for, and taken by the hypervisor."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from datapath.experiment.metrics import UNITS
from datapath.lanes.base import CpuUse
from datapath.workloads.base import Metric

_STAT = Path("/proc/stat")
_STEAL = 8  # field of its first line (proc_stat(5)), in clock ticks, all CPUs together


@dataclass(frozen=True)
class CpuTime:
    """Seconds since some fixed moment: of ended child processes, and stolen from all CPUs."""

    user: float
    system: float
    stolen: float

    @classmethod
    def now(cls) -> CpuTime:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        ticks = int(_STAT.read_text().split(maxsplit=_STEAL + 1)[_STEAL])
        return cls(children.ru_utime, children.ru_stime, ticks / os.sysconf("SC_CLK_TCK"))

    def since(self, *, local: bool) -> list[Metric]:
        """The CPU time until now.  That of programs is known only if they ran on this machine."""
        now = CpuTime.now()
        used = {"cpu_user": now.user - self.user, "cpu_system": now.system - self.system}
        found = {**(used if local else {}), "cpu_stolen": now.stolen - self.stolen}
        return [Metric(name, value, UNITS[name]) for name, value in found.items()]


def waited(use: CpuUse) -> list[Metric]:
    """How long programs waited for a CPU, and whether that was too long; empty if not known."""
    if use.waited_ns is None:
        return []
    found = {"cpu_waited": use.waited_ns / 1e9, "cpu_starved": float(bool(use.limit()))}
    return [Metric(name, value, UNITS[name]) for name, value in found.items()]
