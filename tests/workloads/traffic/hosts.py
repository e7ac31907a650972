# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Test vocabulary: the generator on the hosts of a network in namespaces."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datapath.cc import compile_algorithm
from datapath.fabric import flows as table
from datapath.lanes.netns import NetnsNetwork
from datapath.native import paths
from datapath.verbs.launch import device_environment
from tests.verbs.devices import sanitizer

TRANSPORTS = ("dp-udp", "dp-afxdp", "tcp")
TOKEN = "0123456789abcdef" * 2
_PATIENCE_S = 60.0


def environment(network: NetnsNetwork, transport: str, host: int) -> Mapping[str, str]:
    base = sanitizer()
    # Leaks of the generator are found where nothing of others is in the process; a finding
    # must not look like a failed flow.
    san = f"detect_leaks={int(transport == 'tcp')}:exitcode=99"
    base |= {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:{san}"}
    base |= {"UBSAN_OPTIONS": f"{os.environ.get('UBSAN_OPTIONS', '')}:exitcode=99"}
    if transport == "tcp":
        return base
    end = network.hosts[host].endpoint
    port = f"udp:{end.ipv4}" if transport == "dp-udp" else f"afxdp:{end.netdev}"
    cc = compile_algorithm("fixed", {}).path
    return {**base, **device_environment("dp0", port, cc=cc, base=base)}


class Generators:
    """One generator on each host, started together."""

    def __init__(
        self,
        network: NetnsNetwork,
        folder: Path,
        flows: table.Flows,
        transport: str,
        *options: str,
        only: Sequence[int] | None = None,
        tokens: Mapping[int, str] | None = None,
        tables: Mapping[int, table.Flows] | None = None,
    ) -> None:
        self.folder, self.flows = folder, flows
        ends = [host.endpoint for host in network.hosts]
        self.hosts = list(range(len(ends))) if only is None else list(only)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for index in self.hosts:
            table.write(folder / f"table-{index}", (tables or {}).get(index, flows), len(ends))
            words: list[Any] = [paths.traffic_generator(), "--host", index]
            words += ["--table", folder / f"table-{index}", "--report", self.report(index)]
            words += ["--management", ",".join(end.mgmt_ipv4 for end in ends)]
            words += ["--address", ",".join(end.ipv4 for end in ends)]
            words += ["--tcp"] if transport == "tcp" else []
            token = folder / f"token-{index}"
            token.write_text((tokens or {}).get(index, TOKEN))
            words += ["--token", token]
            self.processes[index] = network.hosts[index].popen(
                [str(word) for word in [*words, *options]],
                env=environment(network, transport, index),
                stdout=folder / f"out-{index}",
                stderr=folder / f"err-{index}",
            )

    def report(self, host: int) -> Path:
        return self.folder / f"report-{host}"

    def statuses(self) -> list[int]:
        """Exit statuses; a generator that hangs fails the test by TimeoutExpired."""
        return [self.processes[host].wait(_PATIENCE_S) for host in self.hosts]

    def errors(self, host: int) -> str:
        return (self.folder / f"err-{host}").read_text()

    def results(self) -> table.FlowResults:
        """All went well, and nothing was said; the results of all flows."""
        statuses = self.statuses()
        assert statuses == [0] * len(statuses), [self.errors(host) for host in self.hosts]
        assert [self.errors(host) for host in self.hosts] == [""] * len(self.hosts)
        parts = (table.FlowResults.read(self.report(host)) for host in self.hosts)
        return table.FlowResults.merge(parts, self.flows)


def consistent(flows: table.Flows, results: table.FlowResults) -> None:
    """What holds of every run in which all flows finished."""
    rows = results.rows
    assert (rows["failed"] == 0).all()
    assert (rows["posted_ns"] >= flows["start_ns"]).all()
    assert (rows["finish_ns"] > rows["posted_ns"]).all()
    assert (rows["delivered_bytes"] == flows["bytes"]).all()
    cut = zip(flows["bytes"].tolist(), flows["message_bytes"].tolist(), strict=True)
    messages = [-(-size // (each or size)) for size, each in cut]
    assert rows["messages"].tolist() == messages
    latencies = results.latencies
    assert latencies.count == sum(messages)
    assert 0 < latencies.min_ns <= latencies.mean_ns <= latencies.max_ns
    assert latencies.max_ns <= int(rows["finish_ns"].max())
