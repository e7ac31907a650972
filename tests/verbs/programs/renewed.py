# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The network device of dp0 is renamed, then removed and made again: which events come, and the
state of the port.

Usage: renewed.py afxdp|udp NETDEV ADDRESS
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

from pyverbs import enums as e
from pyverbs.device import Context

DOWN, ACTIVE = e.IBV_PORT_DOWN, e.IBV_PORT_ACTIVE


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def expect(context: Context, state: int, *events: int) -> None:
    """These events come next; then the port has this state."""
    assert [context.get_async_event().event_type for _ in events] == list(events)
    assert context.query_port(1).state == state


def change_without_descriptors(context: Context, netdev: str) -> None:
    """A change that nobody can look at, for want of a descriptor, is none of the port."""
    words = f"sleep 0.2; ip address add 203.0.113.1/32 dev {netdev}"
    later = subprocess.Popen(["sh", "-c", words])
    lowest = os.dup(0)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    assert later.wait() == 0
    time.sleep(0.3)  # until the device's thread has looked
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    expect(context, ACTIVE)


def main() -> None:
    kind, netdev, address = sys.argv[1:]
    context = Context(name="dp0")
    expect(context, ACTIVE)
    if kind == "afxdp":  # DEVICE_FATAL would come; events of a udp port would look as below
        change_without_descriptors(context, netdev)
    # Linux renames a device that is up from 6.1 on.
    if subprocess.run(["ip", "link", "set", netdev, "name", "other0"], check=False).returncode == 0:
        expect(context, ACTIVE)
        ip("link", "set", "other0", "down")
        expect(context, DOWN, e.IBV_EVENT_PORT_ERR)
        ip("link", "set", "other0", "up")
        expect(context, ACTIVE, e.IBV_EVENT_PORT_ACTIVE)
        ip("link", "delete", "other0")
    else:
        ip("link", "delete", netdev)
    gone = [] if kind == "udp" else [e.IBV_EVENT_DEVICE_FATAL]
    expect(context, DOWN, e.IBV_EVENT_PORT_ERR, *gone)
    ip("link", "add", netdev, "type", "veth", "peer", "name", "other1")
    ip("link", "set", "other1", "up")
    ip("link", "set", netdev, "up")
    expect(context, DOWN)
    ip("address", "add", address, "dev", netdev)
    if kind == "udp":
        expect(context, ACTIVE, e.IBV_EVENT_PORT_ACTIVE)
    else:
        expect(context, DOWN)


main()
