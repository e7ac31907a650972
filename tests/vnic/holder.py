# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Keeps the AF_XDP sockets of another process open until standard input ends.

The kernel releases those of a killed process some time after it has ended; this makes that time
long.  Says how many it has.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path

_PIDFD_GETFD, _SO_DOMAIN, _AF_XDP = 438, 39, 44


def main(pid: int) -> None:
    pidfd, libc, held = os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True), 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if str(link.readlink()).startswith("socket:"):
            fd = libc.syscall(_PIDFD_GETFD, pidfd, int(link.name), 0)
            sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, 0, fd)
            if sock.getsockopt(socket.SOL_SOCKET, _SO_DOMAIN) == _AF_XDP:
                held += 1
                sock.detach()
    print(held, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
