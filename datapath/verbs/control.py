# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The QPs of programs that run and their congestion control, seen and changed from outside.

Each device that a program has open listens on an abstract Unix socket
(verbs/control.c has the protocol), by which datapath.processes finds it.

Any process may give its sockets such names, and answer what it likes.  So the
kernel says which process has answered (SCM_CREDENTIALS), and an answer is
believed only as far as a device can give it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datapath import processes
from datapath.errors import CapabilityError, LocalError, RemoteError
from datapath.verbs.direct import read_params
from datapath.verbs.launch import NAME

_NAME = re.compile(f"@datapath-verbs:([0-9]{{1,10}}):({NAME.pattern}):[0-9]{{1,3}}".encode())
_ANSWER_S = 5.0
_LIST_S = 20.0
_ANSWER_BYTES = 1 << 17
_QPS_MAX = 1 << 16  # of a device: FRONT_OBJECTS_MAX in verbs/front.h
_NUMBERS = (
    "cwnd_bytes",
    "pacing_rate_bps",
    "srtt_ns",
    "min_rtt_ns",
    "inflight_bytes",
    "delivered_bytes",
    "sent_packets",
    "retransmitted_packets",
    "marked_packets",
)
_NUMBER_MAX = 1 << 64  # a double may round the largest number of 64 bits up to it


@dataclass(frozen=True)
class Device:
    """An open device of a running program.

    pid: as this process sees it.  name: "dp0".  socket: the abstract name,
    "@" in the place of the leading zero.
    """

    pid: int
    program: str
    name: str
    socket: str


def devices(which: str | int | None = None, *, several: bool = False) -> list[Device]:
    """Open devices of running programs, by PID and name.

    which: a PID or the name of a program; None: all that this user may see.
    several: whether the name may be that of several processes.
    Raises LocalError when nothing fits, CapabilityError when the process
    belongs to another user.
    """
    if which is None:
        return devices_of(processes.pids())
    if isinstance(which, int) or which.isdecimal():
        pid = int(which)
        if not processes.exists(pid):
            raise LocalError(f"there is no process {pid}", hint="dpctl ps lists what runs")
        found = list(_devices_of(pid))
        if not found:
            raise LocalError(
                f"process {pid} ({processes.program(pid)}) has no device of ours open",
                hint="dpctl ps lists what runs",
            )
        return found
    found = [device for device in devices() if device.program == which[:15]]
    pids = sorted({device.pid for device in found})
    if not pids:
        raise LocalError(
            f"no program {which} has a device of ours open",
            hint="dpctl ps lists what runs",
        )
    if len(pids) > 1 and not several:
        raise LocalError(
            f"{which} runs more than once: {', '.join(map(str, pids))}", hint="give the PID"
        )
    return found


def devices_of(pids: Iterable[int]) -> list[Device]:
    """Open devices of these processes; none of those that have ended, or belong to others."""
    return [device for pid in pids for device in _quietly(pid)]


def algorithms(found: list[Device], patience_s: float | None = None) -> list[dict[str, Any]]:
    """One row for each QP, in the order in which they were made.

    patience_s: longest wait for an answer; None: that of all other requests.

    Columns: pid, program, device, qpn, cc, params (a dictionary), object,
    changes; for a QP that is connected also those of _NUMBERS (pacing_rate_bps 0:
    not paced; srtt_ns, min_rtt_ns 0: none yet).  Raises RemoteError when a process does
    not answer, or not as a device does.
    """
    rows = []
    for device in found:
        head = {"pid": device.pid, "program": device.program, "device": device.name}
        rows += [{**head, **qp} for qp in _qps(device, patience_s)]
    return rows


def set_algorithm(found: list[Device], qpn: int | None, path: Path) -> int:
    """Set a compiled algorithm; on how many QPs.

    found: devices of one program.  qpn: one QP; None: all, and those that the
    program makes later.  path: of the shared object, as the program sees it.
    Raises LocalError, and nothing is changed, when there is no such QP or the
    program cannot load the object.
    """
    if qpn is None:
        return sum(_changed(device, f"set all {path}") for device in found)
    having = [row["device"] for row in algorithms(found) if row["qpn"] == qpn]
    names = ", ".join(device.name for device in found)
    if not having:
        raise LocalError(
            f"process {found[0].pid}: {names} has no QP {qpn}",
            hint=f"dpctl cc of {found[0].pid} lists them",
        )
    if len(having) > 1:
        raise LocalError(f"QP {qpn} is there on {names}", hint=f"say --device {having[0]}")
    (device,) = (device for device in found if device.name == having[0])
    return _changed(device, f"set {qpn} {path}")


# ---- finding ------------------------------------------------------------------------


def _quietly(pid: int) -> list[Device]:
    try:
        return list(_devices_of(pid))
    except (CapabilityError, LocalError):
        return []


def _devices_of(pid: int) -> Iterator[Device]:
    """Sockets of the process's own that have our name: its children inherit them."""
    inner, names = processes.sockets(pid)
    for name in names:
        match = _NAME.fullmatch(name)
        if match and int(match[1]) == inner:
            yield Device(pid, processes.program(pid), match[2].decode(), name.decode())


# ---- asking --------------------------------------------------------------------------


def _qps(device: Device, patience_s: float | None) -> list[dict[str, Any]]:
    """All QPs of a device.  An answer holds some of them, and the next request continues there."""
    until = time.monotonic() + _LIST_S
    rows: list[dict[str, Any]] = []
    number = 0
    while True:
        answer = _ask(device, f"list {number}", patience_s)
        try:
            part = [_row(qp) for qp in answer["qps"]]
            following = int(answer["next"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise _strange(device) from None
        rows += part
        if not following:
            return rows
        if following <= number or not part or len(rows) > _QPS_MAX:
            raise _strange(device)
        if time.monotonic() > until:
            raise RemoteError(
                f"the list of QPs of process {device.pid} ({device.program}) does not come to "
                f"an end within {_LIST_S:g} s",
                hint="ask for another process by its PID",
            )
        number = following


def _row(qp: Mapping[str, Any]) -> dict[str, Any]:
    """A QP as a device tells it; KeyError, TypeError or ValueError when none can."""
    row: dict[str, Any] = {"qpn": int(qp["qpn"]), "cc": str(qp["cc"])}
    row["params"] = read_params(qp["params"])
    row["object"] = str(qp["object"])
    row["changes"] = int(qp["changes"])
    if not 0 <= row["qpn"] < 1 << 24:
        raise ValueError(row["qpn"])
    for name in _NUMBERS:
        if name in qp:
            row[name] = _number(name, qp[name])
    return row


def _number(name: str, told: Any) -> float:
    """TypeError or ValueError when it is none; an algorithm may set any rate that is finite."""
    if not 0 <= told <= (sys.float_info.max if name == "pacing_rate_bps" else _NUMBER_MAX):
        raise ValueError(told)
    return told + 0  # type: ignore[no-any-return]  # a truth value becomes a number


def _changed(device: Device, request: str) -> int:
    changed = _ask(device, request).get("changed")
    if not isinstance(changed, int):
        raise _strange(device)
    return changed


def _ask(device: Device, request: str, patience_s: float | None = None) -> Mapping[str, Any]:
    """One request, one answer; LocalError with the device's words when it refuses."""
    try:
        answer = json.loads(_exchange(device, os.fsencode(request), patience_s))
    except (ValueError, RecursionError):
        raise _strange(device) from None
    if not isinstance(answer, dict) or not isinstance(answer.get("error", ""), str):
        raise _strange(device)
    if "error" in answer:
        raise LocalError(
            f"process {device.pid} ({device.program}): {answer['error']}",
            hint=f"dpctl cc of {device.pid} shows what its QPs use",
        )
    return answer


def _strange(device: Device) -> RemoteError:
    return RemoteError(
        f"process {device.pid} ({device.program}) does not answer as a device does",
        hint="does it run another version of the verbs front? start it again with this one",
    )


def _exchange(device: Device, request: bytes, patience_s: float | None) -> bytes:
    """The answer of this process and of no other; RemoteError if none comes."""
    try:
        with processes.socket_beside(device.pid, socket.SOCK_DGRAM) as sock:
            sock.settimeout(_ANSWER_S if patience_s is None else patience_s)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            sock.bind("")  # the kernel chooses a name
            sock.connect("\0" + device.socket[1:])
            sock.send(request)
            data, control, flags, _ = sock.recvmsg(
                _ANSWER_BYTES, socket.CMSG_SPACE(processes.CREDENTIALS.size)
            )
    except (TimeoutError, ConnectionError):
        raise RemoteError(
            f"process {device.pid} ({device.program}) does not answer",
            hint="is it stopped, or has it ended?",
        ) from None
    if _sender(control) != (device.pid, processes.user(device.pid)):
        raise RemoteError(
            f"another process answers in the place of {device.pid} ({device.program})",
            hint="ss -xp | grep datapath-verbs shows which process has the name",
        )
    if flags & socket.MSG_TRUNC:
        raise _strange(device)
    return data


def _sender(control: list[tuple[int, int, bytes]]) -> tuple[int, int] | None:
    """PID and user of the process that has sent a message, as the kernel tells them."""
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid, uid, _ = processes.CREDENTIALS.unpack(data)
            return pid, uid
    return None
