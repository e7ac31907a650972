# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Forks while another thread opens and closes a device, over and over.

Says how many children had a socket of the device's port.
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

ROCE = "12B7"  # UDP port 4791
TIMES = 100

verbs = ctypes.CDLL(None)
verbs.ibv_get_device_list.restype = verbs.ibv_open_device.restype = ctypes.c_void_p
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))


def opens_and_closes() -> None:
    for _ in range(TIMES):
        context = verbs.ibv_open_device(ctypes.c_void_p(devices[0]))
        assert context
        assert verbs.ibv_close_device(ctypes.c_void_p(context)) == 0


def holds_a_port() -> bool:
    """Whether this process has a socket on RoCE's port."""
    rows = [line.split() for line in Path("/proc/self/net/udp").read_text().splitlines()[1:]]
    theirs = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{ROCE}")}
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            if str(entry.readlink()) in theirs:
                return True
        except FileNotFoundError:
            pass
    return False


def main() -> None:
    thread = threading.Thread(target=opens_and_closes)
    thread.start()
    holders = 0
    while thread.is_alive():
        child = os.fork()
        if child == 0:
            os._exit(holds_a_port())
        holders += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    thread.join()
    print(holders)


main()
