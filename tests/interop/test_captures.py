# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tools/conform.py between two of our devices, and its packets before the trace checker.

The capture is taken in the middle of the network, at the side of host 0: what
host 0 sends is there before any loss, what host 1 sends behind it.
"""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from datapath.interop import capture, trace
from datapath.interop.opcodes import OPCODES, REQUESTS, Kind
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path as PathSection
from datapath.lanes.spec import Topology
from datapath.native.paths import ROOT
from datapath.verbs.launch import device_environment
from tests.cli.server import dpctl
from tests.cli.told import told
from tests.listening import await_listener
from tests.waiting import wait_for_words

PYTHON = "/usr/bin/python3"  # pyverbs is a package of the system's
REMOTE_ACCESS = 0x62


@contextmanager
def captured(network: NetnsNetwork, folder: Path, *, at_host: bool = False) -> Iterator[Path]:
    """Capture RoCE at host 0's port of the middle, or on host 0.

    In immediate mode each packet takes -s bytes of the buffer, whatever its length.
    """
    host, hook = network.hosts[0], None if at_host else network.xdp_hook("middle-forward")
    path, log = folder / "capture.pcap", folder / "tcpdump.log"
    argv = [
        "tcpdump",
        "-i",
        hook.netdev if hook else host.endpoint.netdev,
        "-s",
        "9100" if hook else "65535",
        "-B",
        "16384" if hook else "131072",
        "--immediate-mode",
        "-U",
        "-w",
        str(path),
    ]
    with log.open("wb") as stderr:
        argv += ["udp", "port", "4791"]
        if hook:
            process = hook.start(argv, env={}, stderr=stderr)
        else:
            process = host.namespace.in_network(lambda: subprocess.Popen(argv, stderr=stderr))
    wait_for_words(log, "listening on", process)
    yield path
    time.sleep(0.2)  # for what is on its way to tcpdump
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert "\n0 packets dropped by kernel" in log.read_text()


def converse(
    network: NetnsNetwork, folder: Path, port: str, mtu: int, *options: str, mode: str = "standard"
) -> list[dict[str, Any]]:
    """Both programs' reports: host 0, which requests, and host 1."""
    argv = [PYTHON, str(ROOT / "tools/conform.py"), "-d", "dp0", "-m", str(mtu), *options]
    argv += ["--requester", "client"]
    client, server = network.hosts
    specs = [
        f"afxdp:{host.endpoint.netdev}" if port == "afxdp" else f"udp:{host.endpoint.ipv4}"
        for host in (client, server)
    ]
    out = folder / "server.json"
    serving = server.popen(
        argv,
        env=device_environment("dp0", specs[1], options={"mode": mode}),
        stdout=out,
        stderr=out,
    )
    try:
        await_listener(server, serving)
        done = client.run(
            [*argv, server.endpoint.mgmt_ipv4],
            env=device_environment("dp0", specs[0], options={"mode": mode}),
            timeout_s=100,
        )
        assert serving.wait(20) == 0, out.read_text() + done.stdout
    finally:
        serving.kill()
        serving.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(done.stdout), json.loads(out.read_text())]


def judge(network: NetnsNetwork, path: Path, report: dict[str, Any], loss: bool) -> trace.Report:
    return trace.check(
        capture.read(path),
        [trace.Connection.of_program(report)],
        gaps=[network.hosts[1].endpoint.ipv4] if loss else [],
        refusals=[REMOTE_ACCESS],
        cautious=[host.endpoint.ipv4 for host in network.hosts],
    )


@pytest.mark.parametrize("port", ["afxdp", "udp"])
@pytest.mark.parametrize(("mtu", "loss"), [(1024, "0"), (4096, "0"), (1024, "1%"), (4096, "1%")])
def test_all_packets_of_our_engine_are_right(
    network: NetnsNetwork, port: str, mtu: int, loss: str, tmp_path: Path
) -> None:
    network.set_path(PathSection.model_validate({"loss": loss}), seed=5)
    lossy = ["--lossy"] if loss != "0" else []
    with captured(network, tmp_path) as path:
        requester, responder = converse(network, tmp_path, port, mtu, "--atomic-write", *lossy)
    report = judge(network, path, requester, loss != "0")
    assert [str(violation) for violation in report.violations[:10]] == []

    addresses = [host.endpoint.ipv4 for host in network.hosts]
    for row in OPCODES.values():
        if row.kind is Kind.FLUSH:
            continue  # pyverbs of Debian 12 has no call for it
        sender = addresses[0 if row.kind in REQUESTS else 1]
        assert report.coverage[sender][row.name], f"no {row.name}"
    assert report.rnrs >= 9
    assert report.offers == 0
    if loss != "0":
        assert report.retransmissions > 0
        assert report.naks > 1  # more than that of the receiver that was late

    done = {case["name"]: case for case in requester["cases"]}
    assert {"send_imm", "send_inv", "mixed", "duplex", "late write_imm", "refused"} <= set(done)
    assert sum(case["verified_bytes"] for case in requester["cases"]) > 10**6
    assert responder["role"] == "responder"


def test_a_real_capture_that_was_tampered_with(network: NetnsNetwork, tmp_path: Path) -> None:
    """The checker is not content with whatever looks like traffic."""
    network.set_path(PathSection(), seed=1)
    with captured(network, tmp_path) as path:
        requester, _ = converse(network, tmp_path, "udp", 1024)
    packets = list(capture.read(path))
    connection = [trace.Connection.of_program(requester)]

    def rules(changed: list[capture.Packet]) -> set[str]:
        found = trace.check(changed, connection, refusals=[REMOTE_ACCESS]).violations
        return {violation.rule for violation in found}

    assert rules(packets) == set()
    middle = next(i for i, p in enumerate(packets) if p.name == "WRITE MIDDLE")
    assert "psn" in rules(packets[:middle] + packets[middle + 1 :])
    response = next(i for i, p in enumerate(packets) if p.name == "READ RESPONSE MIDDLE")
    assert rules(packets[:response] + packets[response + 1 :]) == {"answer-order"}
    swap = next(i for i, p in enumerate(packets) if p.name == "ATOMIC ACK")
    value = packets[swap].value
    assert value is not None
    other = dataclasses.replace(packets[swap], value=value ^ 1)
    assert rules([*packets[: swap + 1], other, *packets[swap + 1 :]]) >= {"atomic"}


def test_extended_mode_is_not_taken_for_the_standard(network: NetnsNetwork, tmp_path: Path) -> None:
    network.set_path(PathSection(), seed=1)
    with captured(network, tmp_path) as path:
        requester, _ = converse(network, tmp_path, "afxdp", 4096, mode="auto")
    report = judge(network, path, requester, loss=False)
    assert {violation.rule for violation in report.violations} >= {"extended"}
    assert report.coverage[network.hosts[0].endpoint.ipv4]["HELLO"] >= 1


def test_datagrams_of_our_engine_are_right(network: NetnsNetwork, tmp_path: Path) -> None:
    """Those of an unmodified program."""
    network.set_path(PathSection(), seed=1)
    client, server = network.hosts
    argv = ["ibv_ud_pingpong", "-d", "dp0", "-g", "0", "-s", "512", "-n", "100"]
    environments = [
        device_environment("dp0", f"afxdp:{host.endpoint.netdev}") for host in (client, server)
    ]
    log = tmp_path / "server.log"
    with captured(network, tmp_path) as path:
        serving = server.popen(argv, env=environments[1], stdout=log, stderr=log)
        try:
            await_listener(server, serving)
            done = client.run([*argv, server.endpoint.mgmt_ipv4], env=environments[0], timeout_s=60)
            assert serving.wait(20) == 0, log.read_text() + done.stdout
        finally:
            serving.kill()
            serving.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    report = trace.check(capture.read(path))
    assert [str(violation) for violation in report.violations[:10]] == []
    for host in (client, server):
        assert report.coverage[host.endpoint.ipv4]["UD SEND"] == 100


@pytest.mark.usefixtures("root")
def test_captures_of_a_host_that_leaves_work_to_its_device(tmp_path: Path) -> None:
    """The device finishes checksums, and cuts batches of extended packets.

    As the hint of dpctl trace says, it can be told not to.
    """
    with NetnsNetwork(Topology(), "none") as network:

        def conversation(mode: str) -> tuple[Path, dict[str, Any]]:
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            folder.mkdir()
            with captured(network, folder, at_host=True) as path:
                requester, _ = converse(network, folder, "udp", 1024, mode=mode)
            return path, requester

        report = judge(network, *conversation("standard"), loss=False)
        assert [str(violation) for violation in report.violations[:10]] == []
        done = dpctl("trace", conversation("auto")[0])
        assert (done.returncode, done.stdout) == (2, "")
        assert "was captured before the device's offload" in done.stderr
        hint = re.search(r"ethtool -K DEV tx off tx-udp-segmentation off gro off", done.stderr)
        assert hint
        for host in network.hosts:
            host.run(hint[0].replace("DEV", host.endpoint.netdev).split())
        done = dpctl("trace", conversation("auto")[0], "--refusal", "0x62")
        assert (done.returncode, done.stdout) == (0, "")
        assert "are of extended mode" in done.stderr


def test_dpctl_trace(network: NetnsNetwork, tmp_path: Path) -> None:
    network.set_path(PathSection(), seed=1)
    with captured(network, tmp_path) as path:
        converse(network, tmp_path, "udp", 1024)
    done = dpctl("trace", path, "--format", "json")
    # That a refusal is expected has to be told.
    violations = told("trace", done.stdout)
    assert [violation["rule"] for violation in violations] == ["refusal"], violations
    assert done.returncode == 1
    assert "packets of 1 connection, 1 violation\n" in done.stderr
    done = dpctl("trace", path, "--refusal", "0x62")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"{network.hosts[0].endpoint.ipv4} sent ACK" in done.stderr
