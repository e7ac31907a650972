# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which scheduling policy the programs of a live run get, so that they have a CPU when they wake.

See sched(7).  `realtime` is SCHED_RR at priority 1, the lowest there is: before everything that
has ordinary priority, in turn with the emulator of the path and with each other.  `short-slice`
is SCHED_OTHER with a slice of 0.1 ms (sched_attr.sched_runtime, Linux 6.12): as much of the CPU
as others have, but sooner after waking.  Real-time priority needs CAP_SYS_NICE.

What keeps real-time programs from taking a machine for themselves: dp-cpu-keeper takes the
priority from a thread that does not sleep for half a second (lanes/keeper/watch.c); should that
fail, the kernel ends the program after REALTIME_LIMIT_US (RLIMIT_RTTIME); and all the time the
kernel leaves a share of each CPU to the others (sched_rt_runtime_us).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from datapath.own_thread import in_own_thread

Policy = Literal["realtime", "short-slice", "ordinary"]

PRIORITY = 1
SLICE_NS = 100_000
REALTIME_LIMIT_US = 5_000_000
"""CPU time without sleeping after which the kernel ends a real-time program."""

_RT_RUNTIME = Path("/proc/sys/kernel/sched_rt_runtime_us")
_SYSCALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of sched_setattr and sched_getattr."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """struct sched_attr, as sched_setattr(2) has it."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Scheduling:
    """The policies with which programs are started.

    programs: those that sleep when they have nothing to do.  busy: those that poll or compute
    and seldom sleep, which no real-time priority is given to.  trouble: why it is not what was
    asked for, in words; empty: it is.
    """

    programs: Policy
    busy: Policy
    trouble: tuple[str, ...] = ()

    def of(self, *, busy: bool) -> Policy:
        return self.busy if busy else self.programs


def choose(wanted: Policy) -> Scheduling:
    """The best policy that this process may have, up to the wanted one, found out by trying."""
    trouble = []
    policies: list[Policy] = ["realtime", "short-slice", "ordinary"]
    for policy in policies[policies.index(wanted) :]:
        if why := _try(policy):
            trouble.append(f"no {policy} scheduling of programs: {why}")
            continue
        busy = policy if policy != "realtime" else _for_busy()
        return Scheduling(policy, busy, tuple(trouble))
    raise AssertionError("ordinary scheduling is always there")


def _for_busy() -> Policy:
    return "ordinary" if _try("short-slice") else "short-slice"


def enter(policy: Policy) -> None:
    """Give the calling thread, and its children, a policy; OSError when it may not have it."""
    if policy == "realtime":
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    elif policy == "short-slice":
        _set_slice()


def limit(pid: int, policy: Policy) -> None:
    """Bound a real-time program and its children; it may have ended."""
    if policy == "realtime":
        second = 1_000_000
        bounds = (REALTIME_LIMIT_US, REALTIME_LIMIT_US + second)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_RTTIME, bounds)


def slice_ns(tid: int) -> int:
    """The slice of a thread of ordinary priority; 0 before Linux 6.12."""
    attributes = _Attributes()
    _call(1, tid, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    return int(attributes.runtime)


def _set_slice() -> None:
    attributes = _Attributes(
        size=ctypes.sizeof(_Attributes), policy=os.SCHED_OTHER, runtime=SLICE_NS
    )
    _call(0, 0, ctypes.byref(attributes), 0)


def _call(which: int, *arguments: object) -> None:
    numbers = _SYSCALLS.get(platform.machine())
    if numbers is None:
        raise OSError(0, f"unknown for the architecture {platform.machine()}")
    if _libc.syscall(ctypes.c_long(numbers[which]), *arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _try(policy: Policy) -> str:
    """Why this process may not have a policy; nothing if it may."""
    if policy == "realtime" and _RT_RUNTIME.read_text().strip() == "-1":
        return f"{_RT_RUNTIME} is -1, so the kernel would leave other programs no CPU time"
    why: list[str] = []

    def attempt() -> None:
        try:
            enter(policy)
            if policy == "short-slice" and slice_ns(0) != SLICE_NS:
                why.append("this kernel has no slices of a program's own (Linux 6.12)")
        except OSError as error:
            why.append(error.strerror or str(error))

    in_own_thread(attempt)
    return "".join(why)
