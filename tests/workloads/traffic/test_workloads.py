# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stream, flows, incast and permutation: parameters, and runs on live and simulated networks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import pydantic
import pytest

from datapath.cc.spec import HostCc
from datapath.errors import LocalError, RunFailed
from datapath.fabric import flows as table
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.sim import SimNetwork
from datapath.lanes.spec import Path, Topology
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import Outcome, RunContext
from tests.workloads.conftest import RunWorkload
from tests.workloads.test_perftest import environments, values
from tests.workloads.traffic.hosts import consistent

KINDS = ("stream", "flows", "incast", "permutation")
SHORT: Mapping[str, dict[str, Any]] = {
    "stream": {"duration": "100ms"},
    "flows": {"duration": "100ms", "load": 0.3, "sizes": "alistorage2019"},
    "incast": {"rounds": 5},
    "permutation": {"duration": "100ms"},
}
KNOWN: dict[str, Any] = {"link_rate": "1gbit", "base_rtt": "100us"}


# --- parameters ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "section", "words"),
    [
        ("flows", {"sizes": "webserch"}, "no distribution 'webserch'"),
        ("flows", {"load": 0}, "greater than 0"),
        ("flows", {"load": "120%"}, "not between 0% and 100%"),
        ("stream", {"depth": 0}, "greater than or equal to 1"),
        ("stream", {"size": "2GiB"}, "less than or equal to"),
        ("permutation", {"duration": "1s", "bytes": "1MiB"}, "duration or bytes, not both"),
        ("incast", {"sender": 3}, "Extra inputs"),
        ("stream", {"operation": "atomic"}, "write"),
        ("stream", {"competing": {"algo": "cubik"}}, "no algorithm 'cubik': there are .*cubic"),
        ("stream", {"competing": {"algo": "cubic", "pairs": 0}}, "greater than or equal to 1"),
        ("flows", {"competing": {"algo": "cubic"}}, "Extra inputs"),
    ],
)
def test_wrong_parameters_are_refused(kind: str, section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        REGISTRY[kind].Params.model_validate(section)


# --- live ------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["afxdp", "udp", "kernel"])
@pytest.mark.parametrize("kind", KINDS)
def test_on_every_device(
    run: RunWorkload, network: NetnsNetwork, tmp_path: FilePath, kind: str, device: str
) -> None:
    ours = device != "kernel"
    outcome = run(
        kind,
        device="dp" if ours else "kernel",
        device_env=environments(network, device) if ours else None,
        **SHORT[kind],
        **KNOWN,
    )
    found = values(outcome)
    assert found["goodput"] > 0
    assert found["utilisation"] > 0
    assert found["unfinished_share"] == 0
    assert 0 < found["latency_min"] <= found["latency_p50"] <= found["latency_p999"]
    assert ("retransmitted_share" in found) == (not ours)
    flows, hosts = table.read(tmp_path / "traffic.table")
    parts = [table.FlowResults.read(tmp_path / f"traffic-host{h}.report") for h in range(hosts)]
    results = table.FlowResults.merge(parts, flows)
    if kind in ("flows", "incast"):
        consistent(flows, results)
        assert 1 <= found["slowdown_p50"] <= found["slowdown_p99"] <= found["slowdown_p999"]
        assert found["fct_p50"] <= found["fct_p999"]
    else:
        assert (results.rows["finish_ns"] == 100_000_000).all()
        delivered = float(results.rows["delivered_bytes"].sum())
        assert found["goodput"] == pytest.approx(delivered * 8 / 0.1)


def test_every_run_has_a_token_that_no_log_keeps(run: RunWorkload, tmp_path: FilePath) -> None:
    token = tmp_path / "traffic.token"
    seen: set[tuple[str, int]] = set()
    for _ in range(2):
        thread = threading.Thread(target=run, args=("stream",), kwargs={**SHORT["stream"]})
        thread.start()
        while thread.is_alive():
            with contextlib.suppress(FileNotFoundError):
                seen.add((token.read_text(), token.stat().st_mode & 0o777))
        thread.join()
    tokens = {text.strip() for text, _ in seen if len(text) == 33}
    assert len(tokens) == 2
    assert {mode for _, mode in seen} == {0o600}
    assert not token.exists()
    for command in tmp_path.glob("*.cmd"):
        assert f"--token {token}" in command.read_text()
    logs = "".join(path.read_text(errors="replace") for path in tmp_path.iterdir())
    assert not any(text in logs for text in tokens)


def test_a_permutation_of_bytes_has_completion_times(run: RunWorkload) -> None:
    found = values(run("permutation", bytes="1MiB", **KNOWN))
    assert found["slowdown_p50"] >= 1
    assert found["fairness"] > 0


def test_without_rate_and_rtt_there_is_no_slowdown(run: RunWorkload) -> None:
    found = values(run("incast", rounds=2))
    assert "slowdown_p50" not in found
    assert "utilisation" not in found
    assert found["fct_p50"] > 0


def test_flows_need_a_rate(run: RunWorkload) -> None:
    with pytest.raises(LocalError, match="has to know the rate"):
        run("flows")


def test_a_distribution_of_ones_own(run: RunWorkload, tmp_path: FilePath) -> None:
    (tmp_path / "mine.cdf").write_text("5000 0\n6000 100\n")
    run("flows", sizes="./mine.cdf", duration="50ms", link_rate="1gbit", load=0.2)
    flows, _ = table.read(tmp_path / "traffic.table")
    assert len(flows) > 10
    assert flows["bytes"].min() >= 5000
    assert flows["bytes"].max() <= 6000


def test_all_pairs_of_a_dumbbell(run: RunWorkload) -> None:
    with NetnsNetwork(Topology(preset="dumbbell", hosts=4)) as dumbbell:
        outcome = run(
            "stream",
            device="dp",
            network=dumbbell,
            device_env=environments(dumbbell, "udp"),
            duration="200ms",
            qps=2,
            verify=True,
            size=5000,
        )
    assert outcome.notes["flows"] == "4"
    assert 0.25 <= values(outcome)["fairness"] <= 1


def test_tcp_has_its_own_congestion_control(run: RunWorkload) -> None:
    with pytest.raises(LocalError, match="no read"):
        run("stream", operation="read")
    with pytest.raises(RunFailed, match="TCP congestion control nosuch"):
        run("stream", cc=HostCc(tcp="nosuch"))


def test_a_dead_path_is_a_failed_run(run: RunWorkload, network: NetnsNetwork) -> None:
    arguments: dict[str, Any] = {"device": "dp", "device_env": environments(network, "udp")}
    with pytest.raises(RunFailed, match="not one message"):
        run("stream", path=Path(loss="100%"), duration="100ms", **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_over_a_dead_path_ends_as_early_as_the_file_says(
    run: RunWorkload, network: NetnsNetwork, tmp_path: FilePath, kind: str
) -> None:
    """The defaults would try for 8 x 67 ms and, for `stream`, until its own end."""
    with pytest.raises(RunFailed, match=r"flows failed; flow 0 .* retry counter exceeded"):
        run(
            kind,
            device="dp",
            device_env=environments(network, "udp"),
            path=Path(loss="100%"),
            transport={"retry_count": 0, "ack_timeout": 8, "rnr_retry": 3},
            **SHORT[kind],
            **KNOWN,
        )
    flows, hosts = table.read(tmp_path / "traffic.table")
    parts = [table.FlowResults.read(tmp_path / f"traffic-host{h}.report") for h in range(hosts)]
    rows = table.FlowResults.merge(parts, flows).rows
    assert set(rows["failed"]) == {12}, "all of them by RETRY_EXC, none by the end of time"
    for command in tmp_path.glob("traffic-*.cmd"):
        assert "--retry-count 0 --ack-timeout 8 --rnr-retry 3" in command.read_text()


def test_too_few_hosts_for_an_incast(run: RunWorkload) -> None:
    with pytest.raises(LocalError, match="incast of 3 senders needs 4 hosts"):
        run("incast", senders=3)


# --- simulated -------------------------------------------------------------------------------


@pytest.fixture
def simulate(tmp_path: FilePath) -> Any:
    """simulate(kind, **parameters) on four hosts of a star in virtual time."""
    topology = Topology(lane="sim", preset="star", hosts=4, host_rate="10gbit", host_delay="1us")

    def run(
        kind: str,
        *,
        device: str = "dp",
        transport: Mapping[str, Any] | None = None,
        path: Mapping[str, Any] | None = None,
        topology: Topology = topology,
        **parameters: Any,
    ) -> Outcome:
        section = Path.model_validate(path or {})
        with SimNetwork(topology, section) as network:
            network.set_path(section, seed=9)
            context = RunContext(
                network=network,
                transport=Transport.model_validate({"device": device, **(transport or {})}),
                cc=HostCc(),
                device_env=[{} for _ in network.hosts],
                logs=tmp_path,
                seed=9,
                timeout_s=30,
                path=section,
            )
            workload = REGISTRY[kind]
            return workload(workload.Params.model_validate(parameters)).run(context)

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_simulator(simulate: Any, kind: str) -> None:
    short = {**SHORT[kind], **({} if kind == "incast" else {"duration": "5ms"})}
    found = values(simulate(kind, **short))
    assert found["goodput"] > 0
    assert found["unfinished_share"] == 0
    assert 0 < found["utilisation"] <= 1, "virtual time: no link carries more than its rate"
    assert 0 < found["latency_min"] <= found["latency_p50"] <= found["latency_p999"]
    if kind in ("flows", "incast"):
        assert 1 <= found["slowdown_p50"] <= found["slowdown_p999"]
        assert found["fct_p50"] >= 4000, "the base RTT, and serialisation"


def test_a_simulated_run_repeats_from_its_seed(simulate: Any) -> None:
    section = {"duration": "5ms", "sizes": "alistorage2019", "load": 0.8}
    assert values(simulate("flows", **section)) == values(simulate("flows", **section))


def test_the_idle_path_is_what_slowdown_is_measured_by(simulate: Any) -> None:
    """A single sender: nothing waits anywhere, so flows take what the ideal says."""
    found = values(simulate("incast", senders=1, size="1MB", rounds=3, interval="5ms"))
    assert found["slowdown_p999"] == pytest.approx(1, abs=0.05)


def test_the_simulator_has_no_other_devices(simulate: Any) -> None:
    with pytest.raises(LocalError, match="lane sim"):
        simulate("stream", device="kernel")


@pytest.mark.parametrize("kind", ["flows", "permutation"])
def test_points_of_a_block_meet_the_same_traffic(kind: str) -> None:
    """The run's own seed differs from point to point; the traffic's does not."""
    section = {"duration": "1s", "link_rate": "1gbit"}
    workload = REGISTRY[kind](REGISTRY[kind].Params.model_validate(section))

    def drawn(seed: int, traffic_seed: int | None) -> bytes:
        with SimNetwork(Topology(lane="sim", preset="star", hosts=16), Path()) as simulated:
            context = RunContext(
                network=simulated,
                transport=Transport(),
                cc=HostCc(),
                device_env=[],
                logs=FilePath(),
                seed=seed,
                timeout_s=1,
                traffic_seed=traffic_seed,
            )
            return bytes(workload.table(context).tobytes())  # type: ignore[attr-defined]

    assert drawn(1, 5) == drawn(2, 5)
    assert drawn(1, 5) != drawn(1, 6)
    assert drawn(1, None) == drawn(2, 1)


def test_utilisation_is_what_the_headers_leave(tmp_path: FilePath) -> None:
    """A stream over a simulated link of 1 Gbit/s fills it, by the framing that ideal.py states."""
    section = {"duration": "200ms", "size": "256KiB", "depth": 4}
    topology = Topology(lane="sim", preset="p2p", mtu=1500)
    path = Path(rate="1gbit", delay="10us")
    for operation in ("write", "send", "read"):
        workload = REGISTRY["stream"]
        params = workload.Params.model_validate({**section, "operation": operation})
        with SimNetwork(topology, path) as network:
            network.set_path(path, seed=1)
            context = RunContext(
                network=network,
                transport=Transport(),
                cc=HostCc(params={"window_bytes": 131072}),
                device_env=[],
                logs=tmp_path,
                seed=1,
                timeout_s=1,
                path=path,
            )
            outcome = workload(params).run(context)
        # The messages that the end cuts short do not count: 1 MiB of 25 MB at most.
        assert 0.955 < values(outcome)["utilisation"] <= 1.0, operation


def test_competing_flows_have_their_own_algorithm(simulate: Any) -> None:
    """A constant window of most of the queue, beside one that gives way to loss."""
    arguments: dict[str, Any] = {"size": 4096, "depth": 64, "duration": "20ms"}
    arguments["topology"] = Topology(lane="sim", preset="dumbbell", hosts=4)
    arguments["path"] = {"rate": "1gbit", "delay": "100us", "queue": "300kB"}
    large = values(simulate("stream", competing={"algo": "newreno"}, **arguments))
    assert large["fair_share"] > 1
    assert 0 < large["competing_fair_share"] < 1
    assert large["fair_share"] + large["competing_fair_share"] == pytest.approx(2)
    alone = values(simulate("stream", **arguments))
    assert "fair_share" not in alone
    assert "competing_fair_share" not in alone
    assert alone["spurious_share"] == 0


def test_pairs_begin_one_after_the_other(simulate: Any) -> None:
    together = values(simulate("stream", duration="4ms", size=4096, depth=4))
    staggered = values(simulate("stream", duration="4ms", size=4096, depth=4, stagger="2ms"))
    assert staggered["goodput"] == pytest.approx(together["goodput"] * 3 / 4, rel=0.05)
    with pytest.raises(LocalError, match="the last of 2 pairs would begin when all have ended"):
        simulate("stream", duration="4ms", stagger="4ms")


def test_what_is_left_to_compete_with(simulate: Any) -> None:
    with pytest.raises(LocalError, match="2 of 2 pairs compete"):
        simulate("stream", competing={"algo": "cubic", "pairs": 2})


LONG_ENOUGH = {kind: {"duration": "200ms"} if "duration" in SHORT[kind] else {} for kind in KINDS}
"""For four time-outs of 20 ms, as nothing is known of the path."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulated_qp_gives_up_as_the_file_says(simulate: Any, kind: str) -> None:
    transport = {"retry_count": 0, "ack_timeout": 8}
    with pytest.raises(RunFailed, match=r"flow 0 .* retry counter exceeded"):
        simulate(
            kind, transport=transport, path={"loss": "100%"}, **SHORT[kind] | LONG_ENOUGH[kind]
        )
