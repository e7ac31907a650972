# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Lane netns with a virtual card before each host."""

from __future__ import annotations

import socket
import time
from pathlib import Path as FilePath
from typing import Any

import pytest
from pydantic import ValidationError

from datapath import series
from datapath.errors import CapabilityError, RunFailed
from datapath.lanes.cards import guest_device
from datapath.lanes.middle import choose_backend
from datapath.lanes.namespace import spawn
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.vnic.spec import NetworkCards
from tests.waiting import wait_until

ROCE_PORT = 4791


def network(path: dict[str, Any], **topology: Any) -> NetnsNetwork:
    section = Path.model_validate(path)
    shape = Topology.model_validate({"vnic": True, **topology})
    made = NetnsNetwork(shape, choose_backend(shape, section))
    made.__enter__()
    try:
        made.set_path(section, 1)
    except BaseException:
        made.__exit__()
        raise
    return made


def bound(host: Any, port: int) -> socket.socket:
    def make() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((host.endpoint.ipv4, port))
        sock.settimeout(10)
        return sock

    return host.namespace.in_network(make)


BURSTS = {"model": "gilbert-elliott", "p": "2%", "r": "20%"}
"""Five packets in a row, one in eleven of all."""


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("loss", "topology"),
    [
        ("10%", {"mtu": 9000}),
        (
            "10%",
            {"mtu": 9000, "vnic": {"port": "udp", "network_mtu": 1500, "cc": {"algo": "swift"}}},
        ),
        ("10%", {"preset": "dumbbell", "hosts": 4, "mtu": 1500}),
        (BURSTS, {"mtu": 9000, "vnic": {"network_mtu": 1500}}),
    ],
    ids=["afxdp", "udp-small-network", "dumbbell", "bursts"],
)
def test_hosts_lose_nothing_on_a_path_that_loses(loss: Any, topology: dict[str, Any]) -> None:
    made = network({"loss": loss}, **topology)
    try:
        for client, server in made.pairs:
            with bound(server, ROCE_PORT) as receiver, bound(client, 0) as sender:
                for first in range(0, 200, 20):  # as many as the receiver's buffer holds
                    numbers = list(range(first, first + 20))
                    for number in numbers:
                        sender.sendto(bytes([number]) * 1000, (server.endpoint.ipv4, ROCE_PORT))
                    assert [receiver.recv(2000)[0] for _ in numbers] == numbers
        lost = sum(made.path_counters().dropped.values())
        assert lost > 0, "the path lost none: the test is void"
        assert made._cards is not None
        counters = made._cards.counters()
        assert (
            sum(card["guests"][guest_device(i)]["recovered"] for i, card in enumerate(counters))
            >= 200
        )
        assert made.describe()["vnic"]
    finally:
        made.__exit__()


@pytest.mark.usefixtures("root")
def test_tunnels_begin_anew_with_each_path() -> None:
    made = network({"loss": "1%"}, mtu=1500)
    try:
        assert made._cards is not None
        made.set_path(Path(), 2)
        client, server = made.hosts
        with bound(server, ROCE_PORT) as receiver, bound(client, 0) as sender:
            sender.sendto(b"x", (server.endpoint.ipv4, ROCE_PORT))
            assert receiver.recv(10) == b"x"
        assert made._cards.counters()[0]["hosts"]["card1"]["packets"] == 1
    finally:
        made.__exit__()


def datagrams(network: NetnsNetwork, count: int) -> None:
    """As many of RoCE's port, which must all arrive, in order."""
    client, server = network.hosts
    with bound(server, ROCE_PORT) as receiver, bound(client, 0) as sender:
        for number in range(count):
            sender.sendto(bytes([number]) * 1000, (server.endpoint.ipv4, ROCE_PORT))
            assert receiver.recv(2000)[0] == number


@pytest.mark.usefixtures("root")
def test_each_tunnel_and_class_is_sampled(tmp_path: FilePath) -> None:
    storage = {"udp": [ROCE_PORT], "weight": 2}
    made = network({"loss": "10%"}, mtu=1500, vnic={"classes": {"storage": storage}})
    try:
        with made.sampled_cards(tmp_path, 1_000_000, 1 << 20, 16):
            datagrams(made, 100)
            wait_until(lambda: not _in_tunnels(made), "the last acknowledgement is there")
        files = [series.read_file(path, path.name[7:12]) for path in tmp_path.iterdir()]
        frame = series.join([file.frame for file in files])
        assert {(card, peer) for card, peer, _ in series.tunnels(frame)} == {("card0", "card1")}
        ((card, name, rows),) = series.classes(frame)
        assert (card, name) == ("card0", "card1/1/storage")
        frame_bytes = 14 + 20 + 8 + 1000
        assert rows["delivered_bytes"].max() == 100 * frame_bytes
        assert rows["retransmitted_packets"].max() > 0
        assert rows["rtt_ns"].min() > 0
        assert (rows["queue_bytes"].iloc[-1], rows["inflight_bytes"].iloc[-1]) == (0, 0)
        counted = made.card_counters()[0]["tenants"]["1"]["classes"]["storage"]["hosts"]["card1"]
        assert counted["delivered_frames"] == counted["tx_frames"] == 100
        assert counted["retransmits"] == rows["retransmitted_packets"].max()
        assert counted["packets"] == 100 + counted["retransmits"]
        with (
            pytest.raises(CapabilityError, match="No such file"),
            made.sampled_cards(tmp_path / "nowhere", 1_000_000, 1 << 20, 16),
        ):
            pytest.fail("it does")
        with (
            pytest.raises(CapabilityError, match="File exists"),
            made.sampled_cards(tmp_path, 1_000_000, 1 << 20, 1),
        ):
            pytest.fail("it does")
    finally:
        made.__exit__()


@pytest.mark.usefixtures("root")
def test_cards_take_other_settings_and_come_back_when_killed() -> None:
    """Their hosts stay as they are."""
    made = network({"loss": "1%"}, mtu=1500)
    try:
        datagrams(made, 20)
        other = made.topology.model_copy(update={"vnic": NetworkCards(pipes=2, ecn=True)})
        assert other.network == made.topology.network
        made.set_cards(other)
        made.set_path(Path.model_validate({"loss": "1%"}), 1)
        datagrams(made, 20)
        assert made._cards is not None
        assert (made._cards.describe()["pipes"], made._cards.describe()["ecn"]) == (2, True)
        kill = ["kill", "-9", str(made._cards._programs[0].pid)]
        assert spawn(made._cards.spaces[0], kill).wait() == 0
        with pytest.raises(RunFailed, match=r"virtual card card0 was killed by signal 9"):
            wait_until(made.check_alive, "the card has ended")
        made.set_path(Path.model_validate({"loss": "1%"}), 1)
        datagrams(made, 20)
    finally:
        made.__exit__()


@pytest.mark.usefixtures("root")
def test_a_card_that_coalesces_wakes_less_often() -> None:
    """Frames come one by one, and the card moves several of them at once."""
    interval_s = 0.01
    # An eighth of the RTT is the most that they wait.
    path = {"backend": "fabric", "delay": "50ms"}
    made = network(path, mtu=1500, vnic={"coalesce": "10ms"})
    try:
        assert made._cards is not None
        client, server = made.hosts
        datagrams(made, 1)
        wait_until(lambda: not _in_tunnels(made), "the card has learnt the RTT")
        before, begin = wakes(made), time.monotonic()
        with bound(server, ROCE_PORT) as receiver, bound(client, 0) as sender:
            for number in range(200):
                sender.sendto(bytes([number]), (server.endpoint.ipv4, ROCE_PORT))
                time.sleep(0.001)
            assert [receiver.recv(10)[0] for _ in range(200)] == list(range(200))
        for was, now in zip(before, wakes(made), strict=True):
            # That of the counters' own command comes beside them.
            assert now - was <= (time.monotonic() - begin) / interval_s + 2
    finally:
        made.__exit__()


@pytest.mark.usefixtures("root")
def test_frames_wait_for_no_more_than_a_part_of_the_rtt() -> None:
    """Otherwise the tunnel's own acknowledgements would come too late for a small window."""
    frames = 250
    made = network({}, mtu=1500, vnic={"coalesce": "10ms"})
    try:
        client, server = made.hosts
        with bound(server, ROCE_PORT) as one, bound(client, ROCE_PORT) as other:
            for sender, to in ((one, client), (other, server)):  # so that both know the RTT
                sender.sendto(b"x", (to.endpoint.ipv4, ROCE_PORT))
            assert one.recv(10) == other.recv(10) == b"x"
        wait_until(lambda: not _in_tunnels(made), "the cards have learnt the RTT")
        before = wakes(made)
        datagrams(made, frames)
        for was, now in zip(before, wakes(made), strict=True):
            assert now - was >= frames  # each waited for the one before it, and for no other
    finally:
        made.__exit__()


def _in_tunnels(network: NetnsNetwork) -> int:
    assert network._cards is not None
    cards = network._cards.counters()
    return sum(host["posted_frames"] for card in cards for host in card["hosts"].values())


def wakes(network: NetnsNetwork) -> list[int]:
    assert network._cards is not None
    return [card["network"]["wakes"] for card in network._cards.counters()]


@pytest.mark.parametrize(
    ("topology", "told"),
    [
        ({"lane": "sim", "vnic": True}, "vnic: for lanes netns and vm and ssh, not for sim"),
        ({"mtu": 9100, "vnic": True}, "at most 9000"),
        ({"vnic": {"pipes": 17}}, "vnic"),
        ({"vnic": {"mtu": 1500}}, "vnic"),
    ],
)
def test_what_a_card_cannot_be(topology: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Topology.model_validate(topology)
