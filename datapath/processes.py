# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs of ours that run on this machine, found by the abstract Unix sockets that they hold.

A process is found in whatever network or PID namespace it is; the kernel lets its own user and
root look.  Any process may give its sockets such names, so names are bytes until they fit, and
whoever asks a process has the kernel say who answers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from datapath.errors import CapabilityError, LocalError
from datapath.own_thread import in_own_thread

_PROC = Path("/proc")
_CLONE_NEWNET = 0x40000000
_Result = TypeVar("_Result")

CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid."""


def pids() -> list[int]:
    return sorted(int(path.name) for path in _PROC.iterdir() if path.name.isdecimal())


def exists(pid: int) -> bool:
    return (_PROC / str(pid)).exists()


def program(pid: int) -> str:
    """The name of the program that a process runs, 15 bytes at most."""
    try:
        return (_PROC / str(pid) / "comm").read_bytes().strip().decode(errors="backslashreplace")
    except OSError:
        return "gone"


def family(pid: int) -> set[int]:
    """The process, its children, theirs, and so on."""
    children: dict[int, list[int]] = {}
    for other in pids():
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name of the program, in parentheses, may hold anything.
            fields = (_PROC / str(other) / "stat").read_bytes().rpartition(b")")[2].split()
            children.setdefault(int(fields[1]), []).append(other)
    found, to_see = {pid}, [pid]
    while to_see:
        fresh = [child for child in children.get(to_see.pop(), []) if child not in found]
        found.update(fresh)
        to_see += fresh
    return found


def sockets(pid: int) -> tuple[int, list[bytes]]:
    """(PID by which the process knows itself, names of the Unix sockets that it has open).

    "@" stands for the leading zero of an abstract name.  CapabilityError when the process belongs
    to another user, LocalError when it has ended.
    """
    folder = _PROC / str(pid)
    try:
        inodes = set(_inodes(folder / "fd"))
        table = (folder / "net" / "unix").read_bytes()
        inner = _inner_pid((folder / "status").read_bytes())
    except PermissionError:
        raise CapabilityError(
            f"process {pid} ({program(pid)}) may not be looked into",
            hint="only its own user and root may: use sudo",
        ) from None
    except OSError:
        raise _ended(pid) from None
    fields = (line.split(None, 7) for line in table.split(b"\n"))
    return inner, sorted({words[7] for words in fields if len(words) == 8 and words[6] in inodes})


def user(pid: int) -> int | None:
    """The user of a process, as the kernel tells it of a peer; None: the process has ended."""
    try:
        status = (_PROC / str(pid) / "status").read_bytes()
    except OSError:
        return None
    (line,) = (line for line in status.split(b"\n") if line.startswith(b"Uid:"))
    return int(line.split()[1])


def peer(sock: socket.socket) -> tuple[int, int]:
    """(PID, user) of the process at the other end of a connection, as the kernel tells them."""
    option = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(option)
    return pid, uid


def is_ours_or_roots(sock: socket.socket) -> bool:
    """Whether the process at the other end of a connection is this user's, or root's."""
    return peer(sock)[1] in (0, os.geteuid())


def network(pid: int) -> str:
    """Names its network namespace; "" of a process that has ended, or belongs to others."""
    try:
        return str((_PROC / str(pid) / "ns" / "net").readlink())
    except OSError:
        return ""


def socket_beside(pid: int, kind: socket.SocketKind) -> socket.socket:
    """A Unix socket in the network namespace of the process."""
    return in_network_of(pid, lambda: socket.socket(socket.AF_UNIX, kind))


def in_network_of(pid: int, function: Callable[[], _Result]) -> _Result:
    """Call `function` in the network namespace of the process; what it starts stays there."""
    theirs = _PROC / str(pid) / "ns" / "net"

    def inside() -> _Result:
        _enter(theirs)
        return function()

    return in_own_thread(inside)


def _ended(pid: int | str) -> LocalError:
    return LocalError(f"process {pid} has ended", hint="dpctl ps lists what runs")


def _inodes(folder: Path) -> Iterator[bytes]:
    """Inodes of the sockets among the descriptors of a process."""
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed in between
            link = os.fsencode(entry.readlink())
            if link.startswith(b"socket:["):
                yield link[8:-1]


def _inner_pid(status: bytes) -> int:
    """The PID by which the process knows itself."""
    (line,) = (line for line in status.split(b"\n") if line.startswith(b"NSpid:"))
    return int(line.split()[-1])


def _enter(namespace: Path) -> None:
    """Of a process; nothing, if this one is in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    pid = namespace.parts[2]
    try:
        if namespace.samefile("/proc/self/ns/net"):
            return
        with namespace.open("rb") as file:
            if libc.setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
    except PermissionError:
        raise CapabilityError(
            f"process {pid} is in another network namespace, which only root may enter",
            hint="use sudo, or run dpctl there: nsenter --net",
        ) from None
    except OSError:
        raise _ended(pid) from None
