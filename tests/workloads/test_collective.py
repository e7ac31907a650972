# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Workload collective: live ranks in namespaces, and the same plans in the simulator."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from datapath.cc.spec import HostCc
from datapath.collectives import make, registry
from datapath.errors import LocalError, RunFailed
from datapath.lanes import open_network
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path as PathSection
from datapath.lanes.spec import Topology
from datapath.verbs.launch import device_environment
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome, RunContext
from datapath.workloads.collective_times import bus_factor
from datapath.workloads.kinds.collective import Collective, CollectiveParams
from tests.workloads.conftest import RunWorkload


def value(outcome: Outcome, name: str) -> float:
    return next(metric.value for metric in outcome.metrics if metric.name == name)


def simulated(folder: Path, loss: float = 0, **parameters: object) -> Outcome:
    topology = Topology.model_validate({"lane": "sim", "preset": "star", "hosts": 4})
    path = PathSection.model_validate({"rate": "1gbit", "delay": "25us", "loss": loss})
    with open_network(topology, path) as network:
        context = RunContext(
            network=network,
            transport=Transport.model_validate({"device": "dp"}),
            cc=HostCc.model_validate({"algo": "fixed"}),
            device_env=[{}] * 4,
            logs=folder,
            seed=1,
            timeout_s=60,
            path=path,
            folder=folder,
        )
        kind = REGISTRY["collective"]
        return kind(kind.Params.model_validate(parameters)).run(context)


@pytest.mark.parametrize("file", ["mine.py", "./a.py.d/mine.py"])
def test_the_file_of_an_algorithm(file: str) -> None:
    for name in (file, f"{file}:", f"{file}:ring"):
        parameters = CollectiveParams.model_validate({"algorithm": name})
        assert parameters.code() == {("algorithm",): file}
    assert CollectiveParams.model_validate({"algorithm": "ring"}).code() == {}


@pytest.mark.parametrize("algorithm", ["ring", "pairwise"])
def test_live_ranks(run: RunWorkload, network: NetnsNetwork, algorithm: str) -> None:
    """Several ranks on each host; the program compares the first result with what it should be."""
    devices = [device_environment("dp0", f"udp:{h.endpoint.ipv4}") for h in network.hosts]
    outcome = run(
        "collective",
        device="dp",
        device_env=devices,
        transport={"port": "udp"},
        timeout_s=100,
        algorithm=algorithm,
        size="64KiB",
        iterations=4,
        ranks_per_host=2,
        silence="20s",
    )
    assert len(outcome.samples["latency_ns"]) == 4
    factor = bus_factor(registry()[algorithm].collective, 4)
    assert value(outcome, "busbw") == pytest.approx(factor * value(outcome, "algbw"))
    assert "4 ranks" in outcome.notes["plan"]


@pytest.mark.parametrize("node", [None, 2])
def test_ranks_share_memory(
    run: RunWorkload, network: NetnsNetwork, tmp_path: Path, node: int | None
) -> None:
    """Those of a host unless told otherwise; also one on each of two hosts, which send nothing."""
    size, often, each = 2**20, 3, 1 if node else 2
    run(
        "collective",
        device="dp",
        device_env=[device_environment("dp0", f"udp:{h.endpoint.ipv4}") for h in network.hosts],
        transport={"port": "udp"},
        timeout_s=100,
        algorithm="two_level",
        params={"per_node": 2},
        size=size,
        iterations=often - 1,
        warm_up=0,
        ranks_per_host=each,
        silence="20s",
        **({"node": node} if node else {}),
    )
    sent = network.path_counters().passed["forward"] * 4096
    if node:
        assert sent < size / 2  # nothing but what is said besides
    else:
        assert 0.9 * size * often < sent < 1.4 * size * often  # half by each of two rails, twice


def take_down(network: NetnsNetwork) -> None:
    host = network.hosts[1]
    host.run(["ip", "link", "set", host.endpoint.netdev, "down"])


def go_black(network: NetnsNetwork) -> None:
    """The link is up, and nothing arrives."""
    network.set_path(PathSection.model_validate({"loss": 1}), seed=1)


@pytest.mark.parametrize("cut", [take_down, go_black])
def test_a_link_that_is_cut_ends_every_rank(
    run: RunWorkload, tmp_path: Path, cut: Callable[[NetnsNetwork], None]
) -> None:
    """Both hosts' ranks say who is gone; each report has been written by then."""
    with NetnsNetwork(Topology()) as network:
        devices = [device_environment("dp0", f"udp:{h.endpoint.ipv4}") for h in network.hosts]
        cutter = threading.Thread(target=when_running, args=(tmp_path, cut, network))
        cutter.start()
        with pytest.raises(RunFailed, match="is gone"):
            run(
                "collective",
                device="dp",
                device_env=devices,
                transport={"port": "udp"},
                network=network,
                timeout_s=150,
                size="4KiB",
                iterations=10**6,
                ranks_per_host=2,
            )
        cutter.join()
    for rank in range(4):
        told = (tmp_path / f"collective-{rank}.err").read_text()
        assert re.search(r"rank \d is gone: rank \d, allreduce \d+, .*QP 0x", told), told


def when_running(logs: Path, do: Callable[[NetnsNetwork], None], network: NetnsNetwork) -> None:
    """As soon as some collectives have ended."""
    deadline = time.monotonic() + 100
    report = logs / "collective-0.report"
    while time.monotonic() < deadline and not (report.is_file() and report.stat().st_size):
        time.sleep(0.05)
    do(network)


@pytest.mark.compute
def test_simulated_ranks(tmp_path: Path) -> None:
    outcome = simulated(tmp_path, size="4MiB", iterations=2)
    assert 0.9e9 < value(outcome, "busbw") < 1e9
    assert value(outcome, "latency_p50") == pytest.approx(
        4 * 2**20 * 8 / value(outcome, "algbw") * 1e9, rel=0.02
    )


@pytest.mark.compute
def test_simulated_ranks_choose(tmp_path: Path) -> None:
    """And what they choose is what the algorithm of that name gives."""
    outcome = simulated(tmp_path, algorithm="auto", size="2MiB", iterations=2)
    assert re.match(r"\w+: [\d.]+ ms expected; (\w+ [\d.]+ ms(, )?){3}", outcome.notes["chosen"])
    name = outcome.notes["chosen"].partition(":")[0]
    alone = simulated(tmp_path, algorithm=name, size="2MiB", iterations=2)
    assert outcome.samples == alone.samples
    others = {"double_tree", "halving_doubling", "ring", "two_level"} - {name}
    for other in others:
        took = simulated(tmp_path, algorithm=other, size="2MiB", iterations=2)
        assert max(outcome.samples["latency_ns"]) < 1.05 * min(took.samples["latency_ns"])


def test_live_ranks_choose(run: RunWorkload, network: NetnsNetwork) -> None:
    outcome = run(
        "collective",
        device="dp",
        device_env=[device_environment("dp0", f"udp:{h.endpoint.ipv4}") for h in network.hosts],
        transport={"port": "udp"},
        timeout_s=100,
        algorithm="auto",
        collective="broadcast",
        size="16KiB",
        iterations=2,
        silence="20s",
    )
    assert re.match(r"(chain|tree): .* ms expected; (chain|tree) ", outcome.notes["chosen"])
    assert outcome.notes["plan"].startswith(outcome.notes["chosen"].partition(":")[0])


@pytest.mark.compute
def test_an_algorithm_of_ones_own_in_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "star.py").write_text(
        "from datapath.collectives import algorithm\n"
        '@algorithm("star", collective="broadcast")\n'
        "def star(plan):\n"
        "    for rank in range(1, plan.ranks):\n"
        '        plan.chunk(0, "data", 0).copy(rank)\n'
    )
    outcome = simulated(tmp_path, algorithm="./star.py", size="3MiB", iterations=1)
    assert value(outcome, "busbw") == pytest.approx(1e9 / 3, rel=0.1)


def test_bus_factors_are_those_of_nccl_tests() -> None:
    factors = {kind: bus_factor(kind, 4) for kind in ("allreduce", "allgather", "broadcast")}
    assert factors == {"allreduce": 1.5, "allgather": 0.75, "broadcast": 1.0}


def test_what_cannot_be_is_told(run: RunWorkload, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="belongs to one process"):
        run("collective", device="dp", transport={"port": "afxdp"}, ranks_per_host=2)
    with pytest.raises(LocalError, match="2 ranks do not make nodes of 3"):
        run("collective", device="dp", node=3)
    with pytest.raises(LocalError, match="no collective algorithm is called 'rings'"):
        run("collective", device="dp", algorithm="rings")
    for settings in ({"algorithm": "auto", "params": {"a": 1}}, {"collective": "broadcast"}):
        with pytest.raises(ValueError, match="algorithm"):
            Collective.Params.model_validate(settings)
    with pytest.raises(LocalError, match="for live lanes"):
        simulated(tmp_path, ranks_per_host=2)
    workload = Collective(REGISTRY["collective"].Params.model_validate({}))
    with pytest.raises(RunFailed, match="has not ended all"):
        workload.outcome(make(registry()["ring"], 2, 64), [[1.0, 2.0], [1.0]])


@pytest.mark.parametrize(
    ("shares", "message"),
    [([3, 1, 1], "there are 2 channels, each with a share"), ([3, 0], "greater than 0")],
)
def test_shares_that_channels_cannot_have_are_refused(shares: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        REGISTRY["collective"].Params.model_validate({"channels": 2, "shares": shares})
