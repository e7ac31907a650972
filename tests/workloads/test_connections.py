# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Connections by RDMA-CM, counted."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.errors import RunFailed
from datapath.lanes.netns import NetnsNetwork
from datapath.native import paths
from datapath.verbs.launch import device_environment
from datapath.workloads.kinds.connections import outcome
from tests.workloads.conftest import RunWorkload


@pytest.mark.parametrize("port", ["udp", "afxdp"])
def test_forty_connections(run: RunWorkload, network: NetnsNetwork, port: str) -> None:
    devices = [
        device_environment(
            "dp0", f"udp:{h.endpoint.ipv4}" if port == "udp" else f"afxdp:{h.endpoint.netdev}"
        )
        for h in network.hosts
    ]
    done = run("connections", device="dp", device_env=devices, count=40, at_a_time=4)
    values = {metric.name: metric.value for metric in done.metrics}
    assert values["connections_lost"] == values["connections_left"] == 0
    assert values["connection_rate"] > 0
    assert len(done.samples["latency_ns"]) == 40


FORGETS_ONE = """\
#!/bin/sh
[ $1 = client ] && set -- client $2 $3 $(($4 - 1)) $5
exec {program} "$@"
"""


def test_a_connection_of_which_the_server_never_hears_is_lost(
    run: RunWorkload,
    network: NetnsNetwork,
    tmp_path: FilePath,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client makes one less: the server does not wait for it until the time is over."""
    forgets = tmp_path / "forgets-one"
    forgets.write_text(FORGETS_ONE.format(program=paths.connections_program()))
    forgets.chmod(0o755)
    monkeypatch.setattr(paths, "connections_program", lambda: forgets)
    devices = [device_environment("dp0", f"udp:{h.endpoint.ipv4}") for h in network.hosts]
    done = run("connections", device="dp", device_env=devices, count=5, at_a_time=2, timeout_s=100)
    values = {metric.name: metric.value for metric in done.metrics}
    assert values["connections_lost"] == 1
    assert values["connections_left"] == 0


def report(**changes: Any) -> dict[str, Any]:
    whole = {"made": 3, "used": 3, "ended": 3, "failed": 0, "left": 0, "seconds": 1.5}
    return {**whole, "times_us": [1, 2, 3], **changes}


@pytest.mark.parametrize(
    ("server", "lost", "left"),
    [
        (report(), 0, 0),
        (report(made=2), 1, 0),
        (report(used=1), 2, 0),
        (report(ended=0), 3, 0),
        (report(left=4), 0, 4),
    ],
)
def test_what_is_lost_or_left_at_either_end(server: dict[str, Any], lost: int, left: int) -> None:
    for told in ([report(), server], [server, report()]):
        values = {metric.name: metric.value for metric in outcome(3, told).metrics}
        assert (values["connections_lost"], values["connections_left"]) == (lost, left)
        assert values["latency_p50"] == 2000


def test_no_connection_at_all() -> None:
    with pytest.raises(RunFailed, match="no connection was made"):
        outcome(3, [report(made=0, times_us=[]), report()])
