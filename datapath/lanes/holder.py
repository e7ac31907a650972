# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The process that a network lives and dies with.

Run as `python -I -S holder.py SOCKET_FD PARENT_PID NAME...` by NetnsNetwork.

Two processes come of it.  The outer one only waits.  The inner one is the
init of a new PID namespace, and every program on a host of the network is
started into that namespace.  It leaves when the control socket closes or its
owner is gone, even by kill -9; the kernel then kills all that is left in the
PID namespace.  Network and mount namespaces have no name anywhere: they exist
as long as the owner's file descriptors and the programs inside do, and with
them go veth devices, XDP programs and pinned BPF objects.

For each NAME, in order, the inner process makes a network namespace and a
mount namespace whose /sys shows that network and whose /proc shows the PID
namespace, and sends their descriptors over the socket: one datagram
`NAME\0ok` with [net, mnt], after a first one `pid\0ok` with [pid].  A failure
is a datagram `NAME\0step: error`.
"""

from __future__ import annotations

import array
import ctypes
import os
import select
import signal
import socket
import sys

_CLONE_NEWNS = 0x00020000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_MS_NOSUID_NODEV_NOEXEC = 0x2 | 0x4 | 0x8
_MS_REC_PRIVATE = 0x4000 | 0x40000
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _StepFailed(Exception):
    """A system call failed; the text says which and why."""


def _check(result: int, step: str) -> None:
    if result != 0:
        raise _StepFailed(f"{step}: {os.strerror(ctypes.get_errno())}")


def _unshare(flags: int, step: str) -> None:
    _check(_libc.unshare(flags), step)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None
    )
    _check(result, f"mount {kind or source} on {target}")


def _send(control: socket.socket, name: str, text: str, paths: list[str]) -> None:
    fds = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    control.sendmsg([f"{name}\0{text}".encode()], ancillary)
    for fd in fds:
        os.close(fd)


def _make_host(control: socket.socket, name: str) -> None:
    """Runs in a child of its own, so that each host's mounts start from the same view."""
    _unshare(_CLONE_NEWNET | _CLONE_NEWNS, "unshare network and mount namespace")
    _mount("none", "/", "", _MS_REC_PRIVATE)
    _mount("sysfs", "/sys", "sysfs", _MS_NOSUID_NODEV_NOEXEC)
    if os.access("/sys/fs/bpf", os.F_OK):
        _mount("bpf", "/sys/fs/bpf", "bpf", _MS_NOSUID_NODEV_NOEXEC)
    _send(control, name, "ok", ["/proc/self/ns/net", "/proc/self/ns/mnt"])


def _make_hosts(control: socket.socket, names: list[str]) -> None:
    _mount("none", "/", "", _MS_REC_PRIVATE)
    _mount("proc", "/proc", "proc", _MS_NOSUID_NODEV_NOEXEC)
    _send(control, "pid", "ok", ["/proc/self/ns/pid"])
    for name in names:
        child = os.fork()
        if child == 0:
            try:
                _make_host(control, name)
            except (_StepFailed, OSError) as error:
                _send(control, name, str(error), [])
            os._exit(0)
        os.waitpid(child, 0)


def _reap() -> None:
    """Orphans of the hosts' programs end up here, as with any init."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _wait_for_the_end(control: socket.socket, owner: int) -> None:
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poller = select.poll()
    for fd in (control.fileno(), owner, wake_read):
        poller.register(fd, select.POLLIN)
    while True:
        _reap()
        for fd, _events in poller.poll():
            if fd != wake_read:
                return
            os.read(wake_read, 4096)


def _inner(control: socket.socket, owner: int, names: list[str]) -> None:
    # The outer process may be gone before this takes effect: then poll() sees the owner's end
    # or the closed socket, and if both live, only the outer's death is missed.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _make_hosts(control, names)
    except (_StepFailed, OSError) as error:
        _send(control, "pid", str(error), [])
    _wait_for_the_end(control, owner)


def main(argv: list[str]) -> int:
    control = socket.socket(fileno=int(argv[1]))
    owner_pid = int(argv[2])
    owner = os.pidfd_open(owner_pid)
    if os.getppid() != owner_pid:
        return 0
    try:
        _unshare(_CLONE_NEWPID | _CLONE_NEWNS, "unshare PID and mount namespace")
    except _StepFailed as error:
        _send(control, "pid", str(error), [])
        return 1
    inner = os.fork()
    if inner == 0:
        _inner(control, owner, argv[3:])
        os._exit(0)
    control.close()
    os.waitpid(inner, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
