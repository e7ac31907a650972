# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The congestion control of programs that run, seen and changed from outside.

Each device that a program has open listens on an abstract Unix socket
(verbs/control.c has the protocol).  A process is found by the sockets that it
holds, in whatever network or PID namespace it is; the kernel lets its own user
and root look.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datapath.errors import CapabilityError, LocalError, RemoteError
from datapath.verbs.direct import read_params

_PROC = Path("/proc")
_PREFIX = "@datapath-verbs:"
_ANSWER_S = 5.0
_ANSWER_BYTES = 1 << 18
_CLONE_NEWNET = 0x40000000


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


def devices(which: str | int | None = None) -> list[Device]:
    """Open devices of running programs, by PID and name.

    which: a PID or the name of a program; None: all that this user may see.
    Raises LocalError when nothing fits, CapabilityError when the process
    belongs to another user.
    """
    if which is None:
        return [device for pid in _pids() for device in _quietly(pid)]
    if isinstance(which, int) or which.isdecimal():
        pid = int(which)
        if not (_PROC / str(pid)).exists():
            raise LocalError(f"there is no process {pid}", hint="dpctl cc of lists them")
        found = list(_devices_of(pid))
        if not found:
            raise LocalError(
                f"process {pid} ({_program(pid)}) has no device of ours open",
                hint="dpctl cc of lists those that have",
            )
        return found
    found = [device for device in devices() if device.program == which[:15]]
    pids = sorted({device.pid for device in found})
    if not pids:
        raise LocalError(
            f"no program {which} has a device of ours open",
            hint="dpctl cc of lists those that have",
        )
    if len(pids) > 1:
        raise LocalError(
            f"{which} runs more than once: {', '.join(map(str, pids))}", hint="give the PID"
        )
    return found


def algorithms(found: list[Device]) -> list[dict[str, Any]]:
    """One row for each QP, in the order in which they were made.

    Columns: pid, program, device, qpn, cc, params (a dictionary), object,
    changes; for a QP that is connected also cwnd_bytes, pacing_rate_bps (0: not
    paced), srtt_ns and delivered_bytes.
    """
    rows = []
    for device in found:
        number = 0
        while True:
            answer = _ask(device, f"list {number}")
            for qp in answer["qps"]:
                head = {"pid": device.pid, "program": device.program, "device": device.name}
                rows.append({**head, **qp, "params": read_params(qp["params"])})
            number = answer["next"]
            if not number:
                break
    return rows


def set_algorithm(found: list[Device], qpn: int | None, path: Path) -> int:
    """Set a compiled algorithm; on how many QPs.

    found: devices of one program.  qpn: one QP; None: all, and those that the
    program makes later.  path: of the shared object, as the program sees it.
    Raises LocalError, and nothing is changed, when there is no such QP or the
    program cannot load the object.
    """
    if qpn is None:
        return sum(_ask(device, f"set all {path}")["changed"] for device in found)
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
    changed = _ask(device, f"set {qpn} {path}")["changed"]
    assert isinstance(changed, int)
    return changed


# ---- finding ------------------------------------------------------------------------


def _pids() -> list[int]:
    return sorted(int(path.name) for path in _PROC.iterdir() if path.name.isdecimal())


def _program(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return "gone"


def _quietly(pid: int) -> list[Device]:
    try:
        return list(_devices_of(pid))
    except (CapabilityError, LocalError):
        return []


def _devices_of(pid: int) -> Iterator[Device]:
    """Sockets of the process's own that have our name: its children inherit them."""
    folder = _PROC / str(pid)
    try:
        inodes = set(_sockets(folder / "fd"))
        table = (folder / "net" / "unix").read_text()
        inner = _inner_pid((folder / "status").read_text())
    except PermissionError:
        raise CapabilityError(
            f"process {pid} ({_program(pid)}) may not be looked into",
            hint="only its own user and root may: use sudo",
        ) from None
    except OSError:
        raise LocalError(f"process {pid} has ended", hint="dpctl cc of lists what runs") from None
    names = []
    for line in table.splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[6] in inodes and fields[7].startswith(_PREFIX):
            names.append(fields[7])
    for name in sorted(names):
        owner, device, _ = name.removeprefix(_PREFIX).split(":")
        if int(owner) == inner:
            yield Device(pid, _program(pid), device, name)


def _sockets(folder: Path) -> Iterator[str]:
    """Inodes of the sockets among the descriptors of a process."""
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed in between
            link = str(entry.readlink())
            if link.startswith("socket:["):
                yield link[8:-1]


def _inner_pid(status: str) -> int:
    """The PID by which the process knows itself."""
    (line,) = (line for line in status.splitlines() if line.startswith("NSpid:"))
    return int(line.split()[-1])


# ---- asking --------------------------------------------------------------------------


def _ask(device: Device, request: str) -> Mapping[str, Any]:
    """One request, one answer; LocalError with the device's words when it refuses."""
    try:
        with _socket_beside(device.pid) as sock:
            sock.settimeout(_ANSWER_S)
            sock.bind("")  # the kernel makes up a name
            sock.connect("\0" + device.socket[1:])
            sock.send(os.fsencode(request))
            data = sock.recv(_ANSWER_BYTES)
    except (TimeoutError, ConnectionError):
        raise RemoteError(
            f"process {device.pid} ({device.program}) does not answer",
            hint="is it stopped, or has it ended?",
        ) from None
    answer: Mapping[str, Any] = json.loads(data)
    if "error" in answer:
        raise LocalError(
            f"process {device.pid} ({device.program}): {answer['error']}",
            hint=f"dpctl cc of {device.pid} shows what its QPs use",
        )
    return answer


def _socket_beside(pid: int) -> socket.socket:
    """A Unix datagram socket in the network namespace of the process."""
    theirs = _PROC / str(pid) / "ns" / "net"
    made: list[socket.socket] = []
    failed: list[Exception] = []

    def make() -> None:
        try:
            if not theirs.samefile("/proc/self/ns/net"):
                _enter(theirs)
            made.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        except OSError as error:
            failed.append(error)

    # A thread of its own, which takes its namespace with it when it ends.
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if made:
        return made[0]
    if isinstance(failed[0], PermissionError):
        raise CapabilityError(
            f"process {pid} is in another network namespace, which only root may enter",
            hint="use sudo, or run dpctl there: nsenter --net",
        )
    raise LocalError(f"process {pid} has ended", hint="dpctl cc of lists what runs")


def _enter(namespace: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with namespace.open("rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
