# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Dated frames that an emulated link hands over early: the port keeps them until their date."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from tests.io.conftest import tool_path
from tests.waiting import wait_for_words, wait_until

COUNT = 20_000
PORT = "afxdp:eth1,dated=1"
SIZE = ["--size", "1024", "--check"]


@pytest.fixture
def network(root: None) -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology(), "fabric") as network:
        yield network


def reports(network: NetnsNetwork, folder: FilePath, *options: str) -> list[dict[str, Any]]:
    """What sender and receiver of a flood tell; options: of the receiver."""
    sender, receiver = network.hosts
    to = receiver.endpoint.ipv4
    out = folder / "receiver"
    receive = [str(tool_path()), PORT, "receive", "--count", str(COUNT), *SIZE, *options]
    process = receiver.popen(receive, stdout=out)
    wait_for_words(out, "ready", process)
    send = [str(tool_path()), PORT, "send", to, "--count", str(COUNT), "--rate-pps", "30000", *SIZE]
    done = sender.run(send)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: process.poll() is not None, "the receiver has ended")
    return [json.loads(text.splitlines()[-1]) for text in (done.stdout, out.read_text())]


@pytest.mark.parametrize("options", [(), ("--sleep",)])
@pytest.mark.parametrize("held", [True, False])
def test_nobody_reads_a_frame_before_its_date(
    network: NetnsNetwork, tmp_path: FilePath, held: bool, options: tuple[str, ...]
) -> None:
    """Of 29 us each; all come, in order, whether the receiver polls or sleeps."""
    path = Path.model_validate({"backend": "fabric", "rate": "300mbit", "delay": "200us"})
    network.set_path(path, 1, held=held)
    sent, received = reports(network, tmp_path, *options)
    assert sent["result"]["sent"] == COUNT
    told, stats = received["result"], received["stats"]
    passed = network.path_counters().passed["forward"]
    assert passed == told["received"] + stats["rx_dropped"]
    assert told["in_order"] == told["received"] > COUNT / 2
    assert told["early"] == told["bad_pattern"] == told["untimed"] == 0
    assert held or not stats["rx_early"]
    if held and not options:  # one that sleeps may always wake up later than that
        assert stats["rx_early"] > 0
