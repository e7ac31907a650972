# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The doctor finds what was planted in live collectives: a slow link, a slow rank."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datapath.collectives import check, load, make
from datapath.collectives.doctor import Diagnosis
from datapath.collectives.plan import Op
from datapath.errors import LocalError
from datapath.experiment.collectives import examine
from datapath.lanes.middle import choose_backend
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path as PathSection
from datapath.lanes.spec import Topology
from datapath.verbs.launch import device_environment
from tests.workloads.conftest import RunWorkload

pytestmark = pytest.mark.usefixtures("root")

TOPOLOGY = {"preset": "dumbbell", "hosts": 4, "mtu": 1500}
PATH = {"backend": "fabric", "rate": "50mbit", "delay": "100us"}
RECORD: dict[str, Any] = {
    "point": "planted",
    "repetition": 0,
    "spec": {"topology": TOPOLOGY, "path": PATH, "transport": {"device": "dp"}},
}


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    path, topology = PathSection.model_validate(PATH), Topology.model_validate(TOPOLOGY)
    with NetnsNetwork(topology, choose_backend(topology, path)) as built:
        yield built


def examined(run: RunWorkload, network: NetnsNetwork, folder: Path, iterations: int) -> Diagnosis:
    """Some allreduces of 64 KiB by a ring, and what the doctor makes of them."""
    run(
        "collective",
        device="dp",
        device_env=[device_environment("dp0", f"udp:{h.endpoint.ipv4}") for h in network.hosts],
        transport={"port": "udp"},
        path=PathSection.model_validate(PATH),
        network=network,
        timeout_s=200,
        size="64KiB",
        iterations=iterations,
        silence="60s",
    )
    logs = folder / "logs" / "planted-0"
    logs.mkdir(parents=True)
    for file in folder.glob("collective*"):
        file.rename(logs / file.name)
    return examine(folder, RECORD)


def test_a_slow_link_is_found(run: RunWorkload, network: NetnsNetwork, tmp_path: Path) -> None:
    """What rank 1 sends to rank 2 has 1 Mbit/s; the rest of its packets are as they were."""
    sender, receiver = network.hosts[1], network.hosts[2].endpoint.ipv4
    device = sender.endpoint.netdev
    for command in (
        f"qdisc add dev {device} root handle 1: htb default 1",
        f"class add dev {device} parent 1: classid 1:1 htb rate 10gbit quantum 9000",
        f"class add dev {device} parent 1: classid 1:2 htb rate 1mbit quantum 9000",
        f"filter add dev {device} parent 1: protocol ip u32 match ip dst {receiver}/32 flowid 1:2",
    ):
        assert sender.run(["tc", *command.split()]).returncode == 0
    try:
        found = examined(run, network, tmp_path, 15)
    finally:
        sender.run(["tc", "qdisc", "del", "dev", device, "root"])
    worst = found.links[0]
    assert (worst.sender, worst.receiver) == (1, 2), found.links
    assert worst in found.slow_links, found.verdicts()


def test_a_slow_rank_is_found(run: RunWorkload, network: NetnsNetwork, tmp_path: Path) -> None:
    """Rank 2 stands still for most of the time."""
    over = threading.Event()
    slowing = threading.Thread(target=stutter, args=(str(tmp_path), 2, over))
    slowing.start()
    try:
        found = examined(run, network, tmp_path, 100)
    finally:
        over.set()
        slowing.join()
    assert 2 in found.slow_ranks, (found.verdicts(), found.links, found.ranks)


def stutter(folder: str, rank: int, over: threading.Event) -> None:
    """Stop and wake a rank's process in turn, as long as there is one."""
    pid = None
    while pid is None and not over.wait(0.02):
        pid = pid_of(folder, rank)
    while pid is not None and not over.wait(0.02):
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.1)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return


def pid_of(folder: str, rank: int) -> int | None:
    """Of the rank whose plan is in a folder."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            program, *words = entry.read_bytes().decode(errors="replace").split("\0")
            ranks = [b for a, b in itertools.pairwise(words) if a == "--rank"]
            here = any(word.startswith(folder) for word in words)
            if program.endswith("/dp-collective") and ranks == [str(rank)] and here:
                return int(entry.parent.name)
    return None


def test_transfers_inside_a_node_are_no_measure_for_links(tmp_path: Path) -> None:
    """They are copies, live as simulated; what hosts cost shows on the links between nodes."""
    plan = check(make(load("two_level"), 4, 2**16, params={"per_node": 2}))
    logs, often, copy_ns, cost_ns = tmp_path / "logs" / "planted-0", 10, 2_000, 30_000_000
    logs.mkdir(parents=True)
    plan.write(logs / "collective.plan")
    spec = {**RECORD["spec"], "workload": {"kind": "collective", "node": 2, "size": "64KiB"}}
    record = {**RECORD, "spec": spec}
    sums_ns = np.where(plan.steps["op"] == Op.SEND, often * copy_ns, often)

    def examined() -> Diagnosis:
        for rank in range(plan.ranks):
            rows = np.flatnonzero(plan.steps["rank"] == rank)
            lines = [f"{plan.steps['step'][k]}\t{often}\t{sums_ns[k]}\t1" for k in rows]
            head = ["busy_ns\t1000000000\tstill_ns\t0", "step\tcount\tsum_ns\tlongest_ns"]
            (logs / f"collective-{rank}.steps").write_text("\n".join([*head, *lines]))
        return examine(tmp_path, record)

    links = {(link.sender, link.receiver): link.simulated_ns for link in examined().links}
    near = [ns for (sender, receiver), ns in links.items() if sender // 2 == receiver // 2]
    far = {ends: ns for ends, ns in links.items() if ends[0] // 2 != ends[1] // 2}
    assert max(near) < copy_ns
    assert min(far.values()) > 1_000_000
    for (sender, receiver), ns in far.items():
        of_link = (plan.steps["rank"] == sender) & (plan.steps["peer"] == receiver)
        sums_ns[of_link & (plan.steps["op"] == Op.SEND)] = often * (ns + cost_ns)
    found = examined()
    assert found.hosts_ns == pytest.approx(cost_ns, rel=0.01)
    assert not any(link.deviates for link in found.links)
    assert "no link and no rank stands out" in found.verdicts()[0]
    spec["workload"]["node"] = plan.ranks
    with pytest.raises(LocalError, match="all 4 ranks share the memory of one node"):
        examined()


def test_folders_without_live_collectives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"there is no collective\.plan"):
        examine(tmp_path, RECORD)
