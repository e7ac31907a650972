# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""fi_pingpong over our device and over kernel sockets."""

from __future__ import annotations

import pytest

from datapath.errors import LocalError, RunFailed
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path
from datapath.verbs.launch import device_environment
from datapath.workloads.kinds.libfabric import Libfabric, LibfabricParams
from tests.workloads.conftest import RunWorkload

MESSAGES = 50


@pytest.mark.parametrize("port", ["afxdp", "udp", None])
@pytest.mark.parametrize(
    ("endpoint", "loss"), [("msg", "0"), ("msg", "1%"), ("rdm", "0"), ("rdm", "1%"), ("dgram", "0")]
)
def test_messages_go_both_ways(
    run: RunWorkload, network: NetnsNetwork, port: str | None, endpoint: str, loss: str
) -> None:
    """With -c both ends compare the data; port None: kernel sockets."""
    devices = None
    if port is not None:
        ends = [h.endpoint.netdev if port == "afxdp" else h.endpoint.ipv4 for h in network.hosts]
        devices = [device_environment("dp0", f"{port}:{end}") for end in ends]
    outcome = run(
        "libfabric",
        device="kernel" if port is None else "dp",
        device_env=devices,
        path=Path.model_validate({"loss": loss}),
        endpoint=endpoint,
        size="1KiB",
        iterations=MESSAGES,
        extra=["-c"],
    )
    latency, goodput = outcome.metrics
    assert (latency.name, goodput.name) == ("latency_mean", "goodput")
    assert goodput.value == pytest.approx(8 * 1024 / latency.value * 1e9)
    passed = network.path_counters().passed
    assert min(passed["forward"], passed["backward"]) >= MESSAGES


def test_the_row_is_read() -> None:
    output = """\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
1m      100     =100     200m        0.12s   1747.63     600.00       0.00
"""
    found = Libfabric(LibfabricParams(size=2**20)).outcome(output, "verbs")
    assert [(m.name, m.unit) for m in found.metrics] == [
        ("latency_mean", "ns"),
        ("goodput", "bit/s"),
    ]
    assert found.metrics[0].value == 600e3
    assert found.metrics[1].value == pytest.approx(1747.63e6 * 8, rel=1e-5)
    for text in ("", "[error] cq_readerr", output.replace("600.00", "0.00")):
        with pytest.raises(RunFailed, match="no result"):
            Libfabric(LibfabricParams()).outcome(text)


def test_devices_of_the_kernel_are_refused(run: RunWorkload) -> None:
    with pytest.raises(LocalError, match="does not run on transport device rxe"):
        run("libfabric", device="rxe")
