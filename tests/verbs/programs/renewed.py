# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The network device of dp0 is renamed, then removed and made again: which events come, and the
state of the port.

Usage: renewed.py afxdp|udp NETDEV ADDRESS
"""

from __future__ import annotations

import subprocess
import sys

from pyverbs import enums as e
from pyverbs.device import Context

DOWN, ACTIVE = e.IBV_PORT_DOWN, e.IBV_PORT_ACTIVE


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def expect(context: Context, state: int, *events: int) -> None:
    """These events come next; then the port has this state."""
    assert [context.get_async_event().event_type for _ in events] == list(events)
    assert context.query_port(1).state == state


def main() -> None:
    kind, netdev, address = sys.argv[1:]
    context = Context(name="dp0")
    expect(context, ACTIVE)
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
