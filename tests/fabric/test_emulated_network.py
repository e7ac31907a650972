# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Networks of several links, emulated between namespaces.

Of times only lower bounds are tested: nothing may arrive before it should.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest

from datapath import series
from datapath.errors import LocalError
from datapath.lanes import visiting
from datapath.lanes.entrance import Entrance
from datapath.lanes.event_spec import Event
from datapath.lanes.local import NetnsHost
from datapath.lanes.middle import choose_backend
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("root")

PORT = 9000
FRAME = 1000 + 28 + 14 + 24
"""Bytes on the wire of a datagram of 1000."""
CHAIN: dict[str, Any] = {
    "preset": "graph",
    "graph": {
        "links": [
            {"ends": "a--s"},
            {"ends": "b--s"},
            {"ends": "s--t", "delay": "3ms"},
            {"ends": "t>s", "delay": "1ms"},
            {"ends": "t--u", "rate": "100kbit", "queue": f"{2 * FRAME}B"},
            {"ends": "u--c"},
        ]
    },
}
CLOS: dict[str, Any] = {"preset": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 1}


def opened(section: dict[str, Any]) -> NetnsNetwork:
    topology = Topology.model_validate({"mtu": 1500, **section})
    return NetnsNetwork(topology, choose_backend(topology, Path()))


@pytest.fixture(scope="module")
def chain() -> Iterator[NetnsNetwork]:
    with opened(CHAIN) as network:
        yield network


@pytest.fixture(scope="module")
def clos() -> Iterator[NetnsNetwork]:
    with opened(CLOS) as network:
        yield network


def set_path(network: NetnsNetwork, seed: int = 1, **section: Any) -> None:
    settings = {"rate": "1gbit", "delay": "10us", **section}
    network.set_path(Path.model_validate(settings), seed)


def ping(client: NetnsHost, server: NetnsHost) -> float | None:
    """Milliseconds; None: no answer."""
    done = client.run(["ping", "-c1", "-W1", server.endpoint.ipv4])
    return float(done.stdout.partition("time=")[2].split()[0]) if not done.returncode else None


def send(client: NetnsHost, server: NetnsHost, count: int, size: int = 1000) -> None:
    """Datagrams, each of a flow of its own."""

    def run() -> None:
        for n in range(count):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.bind((client.endpoint.ipv4, PORT + n))
                sock.sendto(bytes(size), (server.endpoint.ipv4, PORT))

    client.namespace.in_network(run)


def links(network: NetnsNetwork, counter: str) -> dict[str, int]:
    """Link -> counter, where it is not 0."""
    found = network.emulator().counters()
    return {
        n: row[counter] for n, row in found.items() if isinstance(row, dict) and row.get(counter)
    }


def test_frames_cross_each_link_of_their_way(chain: NetnsNetwork) -> None:
    set_path(chain)
    a, b, c = chain.hosts
    assert [host.name for host in chain.hosts] == ["a", "b", "c"]
    took = ping(a, c)
    assert took is not None
    assert took >= 4 + 2 * 8 * 122 / 100  # the delays, and 122 bytes twice at 100 kbit/s
    assert links(chain, "delivered") == {
        "a>s": 1,
        "s>t": 1,
        "t>u": 1,
        "u>c": 1,
        "c>u": 1,
        "u>t": 1,
        "t>s": 1,
        "s>a": 1,
    }
    near = ping(a, b)
    assert near is not None
    assert links(chain, "delivered")["s>t"] == 1
    counters = chain.path_counters()
    # Links with even numbers lead as they are written.
    assert counters.passed == {"forward": 4 + 2, "backward": 4 + 2}
    assert counters.exempt == {"forward": 0, "backward": 0}


def test_each_link_has_a_queue_and_a_fate_of_its_own(chain: NetnsNetwork) -> None:
    """Two bottlenecks: one is full, the other loses what is long."""
    set_path(chain)
    a, _, c = chain.hosts
    send(a, c, 10)
    wait_until(lambda: links(chain, "delivered").get("u>c") == 3, "one under way, two in the queue")
    assert links(chain, "overflowed") == {"t>u": 7}
    assert links(chain, "queue_max_bytes")["t>u"] == 2 * FRAME
    assert chain.path_counters().overflowed == {"forward": 7, "backward": 0}
    with contextlib.closing(Entrance({})) as entrance:
        entrance.now(chain)
        told = visiting.chosen(os.getpid()).links()
        entrance.leave(chain)
    assert " ".join(sorted(told)) == "a>s b>s c>u s>a s>b s>t t>s t>u u>c u>t"
    assert {name: row["overflowed"] for name, row in told.items() if row["overflowed"]} == {
        "t>u": 7
    }
    assert all("queue_bytes" in row and "marked" in row for row in told.values())
    set_path(chain, classes=[{"dscp": 10}, {"share": "0.01%", "queue": "3kB"}])
    send(a, c, 10)
    wait_until(lambda: links(chain, "shaped") == {"a>s": 7}, "one sent, two in the class")
    assert chain.path_counters().shaped == {"forward": 7, "backward": 0}
    set_path(chain, max_packet="500B")
    send(a, c, 2)
    wait_until(lambda: links(chain, "lost") == {"s>t": 2}, "links between switches spoil")


def test_events_change_one_link(chain: NetnsNetwork) -> None:
    set_path(chain)
    a, _, c = chain.hosts
    events = [
        Event.model_validate({"at": "1us", "link": "s>t", "state": "down"}),
        Event.model_validate({"at": "2us", "link": "t>s", "path": {"delay": "2ms"}}),
    ]
    chain.change_path(time.monotonic_ns(), events)
    assert ping(a, c) is None
    assert links(chain, "lost") == {"s>t": 1}
    set_path(chain)
    assert ping(a, c) is not None, "a new path has no changes of before"
    wrong = Event.model_validate({"at": "1us", "link": "s>x", "state": "down"})
    with pytest.raises(LocalError, match="no link from s to x"):
        chain.change_path(0, [wrong])


def test_queues_are_sampled_by_link(chain: NetnsNetwork, tmp_path: FilePath) -> None:
    set_path(chain)
    a, _, c = chain.hosts
    with chain.sampled_path(tmp_path / "p", 1_000_000, 1 << 20):
        send(a, c, 3)
        wait_until(lambda: links(chain, "delivered").get("u>c") == 3, "all came through")
    frames = {p.name: series.read_file(p, None).frame for p in tmp_path.iterdir()}
    switched = ["s>a", "s>b", "s>t", "t>s", "t>u", "u>t", "u>c"]
    assert set(frames) == {f"p.{name}.series" for name in switched}
    assert frames["p.t>u.series"]["queue_bytes"].max() == 2 * FRAME
    assert set(frames["p.t>u.series"]["link"]) == {"t>u"}


def test_flows_choose_among_equal_ways_and_go_around_a_link(clos: NetnsNetwork) -> None:
    set_path(clos)
    a, b = clos.hosts

    def crossed() -> tuple[int, int]:
        found = links(clos, "delivered")
        return found.get("leaf0>spine0", 0), found.get("leaf0>spine1", 0)

    send(a, b, 32)
    wait_until(lambda: sum(crossed()) == 32, "all came")
    first = crossed()
    assert min(first) > 3
    send(a, b, 32)
    wait_until(lambda: sum(crossed()) == 64, "all came")
    assert crossed() == (2 * first[0], 2 * first[1]), "a flow keeps its path"
    down = {"at": "1us", "link": "leaf0--spine0", "state": "down", "reroute": "1us"}
    clos.change_path(time.monotonic_ns(), [Event.model_validate(down)])
    send(a, b, 32)
    wait_until(lambda: sum(crossed()) == 96, "all came around it")
    assert crossed()[0] == 2 * first[0]
    set_path(clos, seed=2)
    send(a, b, 32)
    wait_until(lambda: sum(crossed()) == 32, "a new path has all routes")
    assert min(crossed()) > 3


def test_a_link_that_is_down_without_reroute_is_a_black_hole(clos: NetnsNetwork) -> None:
    set_path(clos)
    a, b = clos.hosts
    down = {"at": "1us", "link": "leaf0>spine0", "state": "down"}
    clos.change_path(time.monotonic_ns(), [Event.model_validate(down)])
    send(a, b, 32)
    wait_until(
        lambda: (
            links(clos, "lost").get("leaf0>spine0", 0)
            + links(clos, "delivered").get("leaf1>host1", 0)
            == 32
        ),
        "each is lost or there",
    )
    assert links(clos, "lost")["leaf0>spine0"] > 3


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"rate": None}, "give path.rate"),
        ({"ecn_mark": "1%"}, "ecn_mark is of one path"),
        ({"forward": {"loss": "1%"}}, "has no directions"),
    ],
)
def test_what_cannot_be_emulated_is_refused(
    clos: NetnsNetwork, section: dict[str, Any], words: str
) -> None:
    with pytest.raises(LocalError) as refused:
        set_path(clos, **section)
    assert words in f"{refused.value} {refused.value.hint}"


def test_other_back_ends_make_no_networks() -> None:
    with pytest.raises(LocalError, match="backend bpf makes no network"):
        choose_backend(Topology.model_validate(CLOS), Path(backend="bpf"))


def test_a_network_too_large_for_the_emulator_is_refused() -> None:
    wide = {"preset": "leaf-spine", "leaves": 2, "spines": 125, "hosts_per_leaf": 1}
    with pytest.raises(LocalError, match="at most 128 hosts and switches"), opened(wide):
        pass


def test_hosts_of_a_dumbbell_have_links_of_their_own() -> None:
    with opened({"preset": "dumbbell", "hosts": 4, "host_rate": "1gbit", "host_delay": "1ms"}) as n:
        set_path(n, delay="1ms")
        a, b, c, _ = n.hosts
        near, far = ping(a, b), ping(a, c)
        assert near is not None
        assert far is not None
        assert near >= 4
        assert far >= 6
        assert n.path_counters().passed == {"forward": 1, "backward": 1}
