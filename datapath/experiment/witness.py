# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the devices and the path counted by the end of a run that failed, beside its logs.

Programs tell what became of their connections.  Where packets were lost or got stuck, only the
counters on the way tell.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from datapath.errors import DatapathError

if TYPE_CHECKING:
    from datapath.lanes.base import Host, Network

_PATIENCE_S = 5.0


def save(network: Network, logs: Path) -> None:
    """Write devices-HOST.txt for each host, and path.json; what cannot be had is left out."""
    with contextlib.suppress(DatapathError, OSError):
        for host in network.hosts:
            (logs / f"devices-{host.name}.txt").write_text("\n".join(_said(host)))
        (logs / "path.json").write_text(json.dumps(asdict(network.path_counters()), indent=1))


def _commands(host: Host) -> Iterator[Sequence[str]]:
    yield "ip", "-s", "-s", "link", "show"
    yield "ethtool", "-S", host.endpoint.netdev
    yield "cat", "/proc/interrupts"
    yield "cat", "/proc/net/softnet_stat"


def _said(host: Host) -> Iterator[str]:
    """Of each command; the last one is the first that could not be run."""
    for command in _commands(host):
        yield f"$ {' '.join(command)}"
        try:
            done = host.run(command, timeout_s=_PATIENCE_S)
        except (DatapathError, OSError, subprocess.SubprocessError) as error:
            yield f"{error}\n"
            return
        yield done.stdout + done.stderr
