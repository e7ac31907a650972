# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""AF_XDP and UDP without a protocol: both tests over both ports, and what the program refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path as FilePath
from typing import Any

import pydantic
import pytest

from datapath.errors import RunFailed
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.native import paths
from datapath.workloads.base import Outcome
from datapath.workloads.kinds.floor import FloorParams, outcome
from tests.workloads.conftest import RunWorkload

PORTS = ["afxdp", "udp"]


def values(done: Outcome) -> dict[str, float]:
    return {metric.name: metric.value for metric in done.metrics}


@pytest.mark.san
@pytest.mark.parametrize("polling", [True, False])
@pytest.mark.parametrize("port", PORTS)
def test_each_ping_has_its_pong(run: RunWorkload, port: str, polling: bool) -> None:
    done = run("floor", port=port, test="pingpong", size=100, iterations=200, polling=polling)
    assert len(done.samples["latency_ns"]) == 200
    assert 0 < values(done)["latency_p50"] <= values(done)["latency_p99"]


@pytest.mark.san
@pytest.mark.parametrize(
    ("test", "port", "size"),
    [
        ("flood", "afxdp", 32),
        ("flood", "afxdp", 8064),
        ("flood", "udp", 8972),
        ("carry", "afxdp", 32),
        ("carry", "afxdp", 1460),
        ("carry", "afxdp", 7604),
        ("carry", "udp", 8972),
    ],
)
def test_a_flood_crosses_the_path(
    run: RunWorkload, network: NetnsNetwork, test: str, port: str, size: int
) -> None:
    done = values(run("floor", port=port, test=test, size=size, duration="50ms"))
    assert done["message_rate"] > 0
    assert done["goodput"] == pytest.approx(8 * size * done["message_rate"])
    assert 0 <= done["lost_share"] < 1
    assert network.path_counters().passed["forward"] > 0


@pytest.mark.parametrize("port", PORTS)
def test_a_flood_counts_what_a_lossy_path_took(run: RunWorkload, port: str) -> None:
    """At a fifth of a second many thousand messages: a tenth of them cannot be lost by chance."""
    path = Path.model_validate({"forward": {"loss": "50%"}})
    done = run("floor", port=port, test="flood", size=100, duration="200ms", path=path)
    assert values(done)["lost_share"] > 0.3


def test_a_carried_payload_is_checked(run: RunWorkload) -> None:
    """What is spoiled on the way counts as lost."""
    path = Path.model_validate({"forward": {"corrupt": "50%"}})
    done = run("floor", port="afxdp", test="carry", size=1460, duration="200ms", path=path)
    assert values(done)["lost_share"] > 0.3


@pytest.mark.parametrize("port", PORTS)
def test_lost_pings_are_sent_again(run: RunWorkload, port: str) -> None:
    done = run("floor", port=port, test="pingpong", size=100, iterations=40, path=Path(loss="5%"))
    assert len(done.samples["latency_ns"]) == 40


def test_nothing_stays_behind(run: RunWorkload, network: NetnsNetwork) -> None:
    run("floor", port="afxdp", test="flood", size=100, duration="10ms")
    shown = network.hosts[0].run(["ip", "link", "show", network.hosts[0].endpoint.netdev]).stdout
    assert "xdp" not in shown


def test_messages_that_the_path_cannot_carry(run: RunWorkload, tmp_path: FilePath) -> None:
    with NetnsNetwork(Topology(mtu=1500)) as small, pytest.raises(RunFailed, match="cannot send"):
        run("floor", port="udp", test="flood", size=4000, duration="10ms", network=small)


@pytest.mark.parametrize(
    ("port", "size", "said"),
    [
        ("afxdp", 8065, "a message over afxdp has 8064 bytes at most"),
        ("udp", 31, "greater than or equal to 32"),
        ("tcp", 64, "'afxdp' or 'udp'"),
    ],
)
def test_parameters_that_are_refused(port: str, size: int, said: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=said):
        FloorParams.model_validate({"port": port, "test": "flood", "size": size})


def test_a_carried_message_fits_two_chunks() -> None:
    with pytest.raises(pydantic.ValidationError, match="carried over afxdp has 7604 bytes at most"):
        FloorParams.model_validate({"port": "afxdp", "test": "carry", "size": 7605})


GOOD = ["client", "udp", "127.0.0.1", "127.0.0.2", "flood", "64", "10", "poll"]


@pytest.mark.san
@pytest.mark.parametrize(
    ("place", "word", "said"),
    [
        (0, "judge", "judge: expected server or client"),
        (1, "tcp", "tcp: expected udp or afxdp:NETDEV"),
        (1, "afxdp:nowhere0", "nowhere0"),
        (2, "nobody", "nobody is no address"),
        (4, "drip", "drip: expected pingpong, flood or carry"),
        (5, "31", "SIZE 31: expected a number from 32 to 8972"),
        (6, "0", "LIMIT 0: expected a number from 1 to 10000000"),
        (7, "nap", "nap: expected poll or sleep"),
    ],
)
def test_arguments_that_are_refused(place: int, word: str, said: str) -> None:
    words = [*GOOD[:place], word, *GOOD[place + 1 :]]
    done = subprocess.run(
        [paths.floor_program(), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_flood_of_which_nothing_arrived() -> None:
    told: dict[str, Any] = {"sent": 9, "received": 0, "seconds": 0.0}
    params = FloorParams.model_validate({"port": "udp", "test": "flood"})
    with pytest.raises(RunFailed, match="no message of the flood arrived"):
        outcome(params, told)
