# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perftest: command lines, the reading of its output, and every operation run for real."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import pydantic
import pytest

from datapath.cc import compile_algorithm
from datapath.errors import RunFailed
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path
from datapath.verbs.launch import device_environment
from datapath.workloads.base import Outcome
from datapath.workloads.kinds.perftest import (
    Perftest,
    PerftestParams,
    parse_bandwidth,
    parse_samples,
)
from tests.workloads.conftest import RunWorkload

# As perftest 4.5 prints it (RESULT_FMT and REPORT_FMT of its perftest_parameters.h).
BANDWIDTH = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : dp0
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0011 PSN 0x3f9e1a RKey 0x2b4c67 VAddr 0x007f3f2c1a0000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 {size}      {iterations}             0.00               {average}\t\t   {rate}
---------------------------------------------------------------------------------------
"""
LATENCY = """\
---------------------------------------------------------------------------------------
                    Send Latency Test
---------------------------------------------------------------------------------------
#, usec
1, 2.5
2, 0.875
3, 1234.56
4, 1e+03
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 64      5          0.88           1234.56      2.50
---------------------------------------------------------------------------------------
"""


def params(**section: Any) -> PerftestParams:
    return PerftestParams.model_validate(section)


def test_bandwidth_is_in_bits_of_the_printed_mebibytes() -> None:
    text = BANDWIDTH.format(size=1048576, iterations=1000, average="1234.56", rate="0.001235")
    goodput, rate = parse_bandwidth(text)
    assert goodput == pytest.approx(1234.56 * 2**20 * 8)
    assert rate == pytest.approx(1234.56), "from the bandwidth, which has more digits"


def test_the_rate_of_small_messages_is_the_printed_one() -> None:
    text = BANDWIDTH.format(size=64, iterations=1000, average="61.04", rate="1.000012")
    goodput, rate = parse_bandwidth(text)
    assert rate == pytest.approx(1000012)
    assert goodput == pytest.approx(64 * 8 * 1000012), "from the rate, which has more digits"
    slow = BANDWIDTH.format(size=1, iterations=1000, average="0.00", rate="0.003903")
    assert parse_bandwidth(slow) == pytest.approx((8 * 3903, 3903))


@pytest.mark.parametrize(
    "text", ["", "Unable to find the Interface dp0\n", BANDWIDTH.split(" #bytes")[0]]
)
def test_no_bandwidth_is_a_failed_run(text: str) -> None:
    with pytest.raises(RunFailed, match="printed no result"):
        parse_bandwidth(text)


def test_a_run_that_counted_no_message_failed() -> None:
    """As perftest 4.5 prints it where 64 KiB take longer than the time that it measures."""
    none = BANDWIDTH.format(size=65536, iterations=0, average="0.00", rate="0.000000")
    slow = BANDWIDTH.format(size=65536, iterations=2, average="0.06", rate="0.000001")
    test = Perftest(params(test="write_bw", size="64KiB", duration="2s"))
    with pytest.raises(RunFailed, match="counted no message") as failed:
        test.outcome([none, none])
    assert "raise workload.duration" in failed.value.hint
    assert test.outcome([slow, none]).metrics[0].value > 0, "one of two pairs may starve"


def test_every_latency_sample_is_read() -> None:
    assert parse_samples(LATENCY) == [2500.0, 875.0, 1234560.0, 1e6]
    with pytest.raises(RunFailed, match="printed no result"):
        parse_samples(LATENCY.replace("#, usec", ""))


def test_latency_metrics_are_of_all_samples() -> None:
    outcome = Perftest(params(test="send_lat")).outcome([LATENCY])
    found = {metric.name: metric.value for metric in outcome.metrics}
    assert found["latency_min"] == 875.0
    assert found["latency_p999"] == 1234560.0
    assert outcome.samples["latency_ns"] == parse_samples(LATENCY)


def test_command_lines() -> None:
    bandwidth = params(
        test="read_bw", size="64KiB", duration="4s", qps=2, outstanding=16, tx_depth=32
    )
    line = " ".join(bandwidth.command("dp"))
    assert line.startswith("ib_read_bw --ib-dev dp0 ")
    for part in ("--size 65536", "--duration 4", "--qp 2", "--outs 16", "--tx-depth 32"):
        assert part in line
    assert "--iters" not in line
    latency = " ".join(params(test="send_lat", use_event=True, inline=64).command("rxe"))
    for part in ("--report-unsorted", "--events", "--inline_size 64", "--iters 1000"):
        assert part in latency
    assert "--size" not in " ".join(params(test="atomic_lat", size=8).command("dp"))
    assert "--qp-timeout" not in latency
    assert "--qp-timeout 0" in " ".join(params(test="send_lat").command("dp", ack_timeout=0))


@pytest.mark.parametrize(
    ("section", "option"),
    [
        ({"qps": 64, "iterations": 10, "tx_depth": 4}, "--cq-mod 2"),
        ({"qps": 64, "iterations": 250}, "--cq-mod 50"),
        ({"qps": 2, "iterations": 101}, "--cq-mod 1"),
        ({"qps": 64, "iterations": 12, "tx_depth": 4}, None),
        ({"qps": 64}, None),
        ({"iterations": 10, "tx_depth": 4}, None),
        ({"qps": 64, "duration": "1s", "tx_depth": 3}, None),
    ],
)
def test_completions_stand_for_equally_many_messages(
    section: dict[str, Any], option: str | None
) -> None:
    line = " ".join(params(test="write_bw", **section).command("dp"))
    assert line.count("--cq-mod") == (option is not None)
    assert (option or "") in line


ALL_SIZES = """
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          1000             0.00               3.00               1.500000
 8388608    1000             0.00               1000.00            0.000119
---------------------------------------------------------------------------------------
"""


def test_of_all_sizes_the_best_counts() -> None:
    sizes = Perftest(params(test="send_bw", all_sizes=True))
    found = {m.name: m.value for m in sizes.outcome([ALL_SIZES]).metrics}
    assert found == {"goodput": 1000 * 2**20 * 8, "message_rate": 1.5e6}
    with pytest.raises(RunFailed, match="2 results"):
        Perftest(params(test="send_bw")).outcome([ALL_SIZES])


def test_command_lines_of_datagrams_and_shared_receives() -> None:
    line = " ".join(params(test="send_lat", qp_type="ud", shared_receives=True).command("dp"))
    for part in ("--connection UD", "--use-srq", "--report-unsorted"):
        assert part in line
    line = " ".join(params(test="send_lat", all_sizes=True).command("dp"))
    assert "--all" in line
    assert "--report-unsorted" not in line


def test_who_connects_by_rdma_cm() -> None:
    plain, asked = params(test="read_lat"), params(test="read_lat", rdma_cm=True)
    assert "--rdma_cm" not in plain.command("dp")
    assert "--rdma_cm" in asked.command("dp")
    assert "--rdma_cm" in plain.command("siw")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"test": "write_bw", "qp_type": "ud"}, "ib_write_bw has no datagrams"),
        ({"test": "read_bw", "shared_receives": True}, "has no shared_receives"),
        ({"test": "send_bw", "all_sizes": True, "size": 64}, "without size and duration"),
        ({"test": "atomic_bw", "all_sizes": True}, "no other sizes"),
        ({"test": "write_latency"}, "write_lat"),
        ({"test": "send_lat", "duration": "2s"}, "ib_send_lat has no duration"),
        ({"test": "write_bw", "use_event": True}, "has no use_event"),
        ({"test": "write_bw", "rx_depth": 4, "outstanding": 4}, "no rx_depth and no outstanding"),
        ({"test": "read_lat", "inline": 0}, "has no inline"),
        ({"test": "send_lat", "qps": 2}, "has no qps"),
        ({"test": "atomic_bw", "size": 64}, "atomics are 8 bytes"),
        ({"test": "write_bw", "iterations": 100, "duration": "2s"}, "not both"),
        ({"test": "write_bw", "duration": "1500ms"}, "whole seconds"),
        ({"test": "write_bw", "iterations": 4}, "greater than or equal to 5"),
    ],
)
def test_wrong_parameters_are_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        params(**section)


# --- for real, on our device ---------------------------------------------------------------


def environments(network: NetnsNetwork, port: str, **options: str) -> list[Mapping[str, str]]:
    algorithm = compile_algorithm("fixed", {})
    where = {"afxdp": [h.endpoint.netdev for h in network.hosts]}
    where["udp"] = [h.endpoint.ipv4 for h in network.hosts]
    return [
        device_environment("dp0", f"{port}:{place}", cc=algorithm.path, options=options)
        for place in where[port]
    ]


def values(outcome: Outcome) -> dict[str, float]:
    return {metric.name: metric.value for metric in outcome.metrics}


@pytest.mark.parametrize("port", ["afxdp", "udp"])
@pytest.mark.parametrize("test", ["write_bw", "read_bw", "send_bw", "atomic_bw"])
def test_bandwidth_of_each_operation(
    run: RunWorkload, network: NetnsNetwork, port: str, test: str
) -> None:
    size = 8 if test == "atomic_bw" else 65536
    outcome = run(
        "perftest",
        device="dp",
        device_env=environments(network, port),
        test=test,
        size=size,
        iterations=200,
    )
    found = values(outcome)
    assert found["goodput"] > 0
    passed = network.path_counters().passed
    assert (passed["forward"] + passed["backward"]) * 9000 > 200 * size


@pytest.mark.parametrize(
    "options",
    [
        {"test": "send_lat", "qp_type": "ud", "size": 64, "iterations": 100},
        {"test": "send_bw", "all_sizes": True, "iterations": 20},
        {"test": "send_lat", "qp_type": "ud", "all_sizes": True, "iterations": 20},
        {"test": "send_bw", "shared_receives": True, "size": 4096, "iterations": 100},
    ],
)
def test_datagrams_sizes_and_shared_receives(
    run: RunWorkload, network: NetnsNetwork, options: dict[str, Any]
) -> None:
    environment = environments(network, "udp")
    outcome = run("perftest", device="dp", device_env=environment, timeout_s=60, **options)
    assert values(outcome)["goodput" if "bw" in options["test"] else "latency_p50"] > 0


@pytest.mark.parametrize("port", ["afxdp", "udp"])
@pytest.mark.parametrize("test", ["write_lat", "read_lat", "send_lat", "atomic_lat"])
def test_latency_of_each_operation(
    run: RunWorkload, network: NetnsNetwork, port: str, test: str
) -> None:
    environment = environments(network, port)
    outcome = run("perftest", device="dp", device_env=environment, test=test, iterations=500)
    assert len(outcome.samples["latency_ns"]) == 499, "one less than there are exchanges"
    assert 0 < values(outcome)["latency_min"] <= values(outcome)["latency_p50"]


@pytest.mark.parametrize(
    ("test", "params", "metric"),
    [
        ("write_bw", {"size": "1MiB", "iterations": 20}, "goodput"),
        # Answers overtake acknowledgements; perftest then takes the one event for the other.
        ("send_lat", {"size": 64, "iterations": 500, "use_event": True}, "latency_p50"),
        ("send_bw", {"size": "64KiB", "iterations": 20, "rdma_cm": True, "qps": 4}, "goodput"),
        # perftest alone hangs in this, when QPs are not equally fast.
        ("write_bw", {"size": 4096, "iterations": 10, "tx_depth": 4, "qps": 64}, "goodput"),
    ],
)
def test_a_lossy_path_is_survived(
    run: RunWorkload, network: NetnsNetwork, test: str, params: dict[str, Any], metric: str
) -> None:
    outcome = run(
        "perftest",
        device="dp",
        device_env=environments(network, "afxdp"),
        path=Path(loss="1%"),
        test=test,
        **params,
    )
    assert values(outcome)[metric] > 0
    assert network.path_counters().dropped["forward"] > 0


CRASHES = """\
#!/bin/bash
# The real one, but for the first clients: these end as over siw once in a while.
if [ "${@: -1}" = "$CLIENT_OF" ] && [ "$(wc -l <"$DID")" -lt "$CRASHES" ]; then
	echo crashed >>"$DID"
	echo "Failed to connect RDMA CM events." >&2
	kill -SEGV $$
fi
exec /usr/bin/ib_send_bw "$@"
"""


@pytest.mark.parametrize("crashes", [1, 3])
def test_a_client_that_does_not_connect_tries_again(
    run: RunWorkload,
    network: NetnsNetwork,
    tmp_path: FilePath,
    monkeypatch: pytest.MonkeyPatch,
    crashes: int,
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ib_send_bw").write_text(CRASHES)
    (folder / "ib_send_bw").chmod(0o755)
    (folder / "did").touch()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("DID", str(folder / "did"))
    monkeypatch.setenv("CRASHES", str(crashes))
    monkeypatch.setenv("CLIENT_OF", network.hosts[1].endpoint.mgmt_ipv4)

    def once() -> Outcome:
        return run(
            "perftest",
            device="dp",
            device_env=environments(network, "udp"),
            test="send_bw",
            size=4096,
            iterations=100,
        )

    if crashes == 1:
        assert values(once())["goodput"] > 0
        assert (tmp_path / "perftest-client-0.again-1.out").exists()
    else:
        with pytest.raises(
            RunFailed, match=r"client-0\.again-2 was killed by signal 11 \(SIGSEGV\)"
        ):
            once()


def test_a_device_that_is_not_there_is_told(run: RunWorkload, network: NetnsNetwork) -> None:
    environment = [{**e, "DATAPATH_DEVICES": ""} for e in environments(network, "udp")]
    with pytest.raises(RunFailed, match="status 1: Unable to find the Infiniband"):
        run("perftest", device="dp", device_env=environment, test="write_bw")
