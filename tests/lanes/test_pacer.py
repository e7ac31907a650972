# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dp-rxe-pacer between two namespaces, on packets of RoCEv2 that nobody but the test sends.

What fq makes of times of departure is seen in guests (tests/guests/test_congestion.py).
"""

from __future__ import annotations

import contextlib
import ipaddress
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from datapath.cc import CompiledAlgorithm, compile_algorithm
from datapath.errors import CapabilityError
from datapath.lanes.base import Host
from datapath.lanes.beside import Beside
from datapath.lanes.local import endpoint, link_address
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from datapath.native import paths
from tests.waiting import wait_for_words

FRAMES = Path(__file__).with_name("programs") / "frames.py"
MIDDLE, READ, ACKNOWLEDGE, CNP = 0x01, 0x0C, 0x11, 0x81
ACK, RNR, NAK = 0x1F, 0x21, 0x60
NOT_ECT, ECT0, CE = 0, 2, 3
SHOWN = 0x64707062  # DP_PACE_SHOWN of xdp/pace.h
PORT = 0xC190
PAYLOAD = 256


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology(mtu=1500)) as built:
        yield built


def checksum(header: bytes) -> int:
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def frame(
    source: int,
    opcode: int,
    psn: int,
    rest: bytes,
    port: int = PORT,
    ecn: int = 0,
    version: int = 4,
) -> str:
    """From host `source` to the other one; `rest` comes after the BTH, without the ICRC."""
    bth = struct.pack(">BBHII", opcode, 0, 0xFFFF, 17, psn) + rest + bytes(4)
    udp = struct.pack(">HHHH", port, 4791, len(bth) + 8, 0) + bth
    ends = [endpoint(n, 1500) for n in (source, 1 - source)]
    macs = [bytes.fromhex(link_address(n).replace(":", "")) for n in (1 - source, source)]
    if version == 6:
        head = struct.pack(">IHBB", 6 << 28 | ecn << 20, len(udp), 17, 64)
        ip = head + b"".join(ipaddress.ip_address(end.ipv6).packed for end in ends)
        return (b"".join(macs) + b"\x86\xdd" + ip + udp).hex()
    head = struct.pack(">BBHHHBB", 0x45, ecn, 20 + len(udp), 0, 0x4000, 64, 17)
    tail = b"".join(ipaddress.ip_address(end.ipv4).packed for end in ends)
    ip = head + struct.pack(">H", checksum(head + bytes(2) + tail)) + tail
    return (b"".join(macs) + b"\x08\x00" + ip + udp).hex()


def request(psn: int, *, asks: bool = False, **more: int) -> str:
    """asks: for an acknowledgement."""
    return frame(0, MIDDLE, psn | asks << 31, bytes(PAYLOAD), **more)


def answer(psn: int, syndrome: int = ACK, **more: int) -> str:
    return frame(1, ACKNOWLEDGE, psn, bytes([syndrome, 0, 0, 0]), **more)


def read_request(psn: int) -> str:
    return frame(0, READ, psn | 1 << 31, bytes(16))


class Pacers:
    """One on each host; events are sent in order."""

    def __init__(
        self,
        network: NetnsNetwork,
        logs: Path,
        ecn: bool,
        algorithm: CompiledAlgorithm | None = None,
    ) -> None:
        algorithm = algorithm or compile_algorithm("swift")
        argv = [str(paths.rxe_pacer()), "eth1", str(algorithm.path)]
        argv += ["--ecn"] if ecn else []
        self.hosts: list[Host] = list(network.hosts)
        self.programs = [Beside(host, argv, logs, "pacer") for host in self.hosts]
        for program in self.programs:
            program.ready()

    def send(self, *frames: str) -> None:
        """Runs of frames of one host, one after the other."""
        for one in frames:
            self.send_at_once(one)

    def send_at_once(self, *frames: str) -> None:
        """Frames of one host, 20 ms apart."""
        self.program(0 if bytes.fromhex(frames[0])[6:12] == mac(0) else 1, "send", *frames)

    def program(self, index: int, *words: str) -> str:
        """What frames.py prints on a host."""
        done = self.hosts[index].run([sys.executable, str(FRAMES), "eth1", *words])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def results(self) -> list[dict[str, Any]]:
        time.sleep(0.5)  # the last event is on its way through the ring
        return [program.finish() for program in self.programs]


def mac(index: int) -> bytes:
    return bytes.fromhex(link_address(index).replace(":", ""))


@contextlib.contextmanager
def running(made: Pacers) -> Iterator[Pacers]:
    yield made
    for program in made.programs:
        program.close()
        # One that was killed leaves its qdisc.
        program.host.run(["tc", "qdisc", "delete", "dev", "eth1", "clsact"])


@pytest.fixture
def pacers(
    network: NetnsNetwork, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Pacers]:
    algorithm = compile_algorithm("swift")
    with running(Pacers(network, tmp_path, getattr(request, "param", False), algorithm)) as made:
        yield made


@pytest.fixture
def windowed(network: NetnsNetwork, tmp_path: Path) -> Iterator[Pacers]:
    """Eight packets of PAYLOAD bytes may be in flight."""
    algorithm = compile_algorithm("fixed", {"window_bytes": 8 * PAYLOAD})
    with running(Pacers(network, tmp_path, False, algorithm)) as made:
        yield made


SEES = """
import socket, struct
NO_CHECK6_RX = 102  # linux/udp.h: UDP without a checksum is taken over IPv6 too
seen = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
seen.setsockopt(socket.IPPROTO_UDP, NO_CHECK6_RX, 1)
seen.bind(("", 4791))
print("ready", flush=True)
while True:
    print(struct.unpack(">I", seen.recv(100)[8:12])[0], flush=True)
"""


@contextlib.contextmanager
def seen_by(host: Host, out: Path) -> Iterator[Callable[[], list[int]]]:
    """PSNs of the acknowledgements that get past the pacer, as rxe would see them."""
    receiver = host.popen([sys.executable, "-c", SEES], stdout=out)
    try:
        wait_for_words(out, "ready")
        yield lambda: [int(line) for line in out.read_text().splitlines()[1:]]
    finally:
        receiver.kill()
        receiver.wait()


@pytest.mark.parametrize("version", [4, 6])
def test_acknowledgements_keep_a_window(windowed: Pacers, tmp_path: Path, version: int) -> None:
    """rxe sees as many packets acknowledged as have room in the window, and at last all.

    The requests take a third of a second to leave, and so no acknowledgement counts as the last.
    """
    with seen_by(windowed.hosts[0], tmp_path / "seen") as seen:
        sent = (request(psn, asks=True, version=version) for psn in range(1, 17))
        windowed.send_at_once(*sent)
        windowed.send_at_once(*(answer(psn, version=version) for psn in range(2, 17, 2)))
        # 8 packets are in flight after the fourth; then there is room for 2, 2 + 4, 6 + 6.
        wait_for_words(tmp_path / "seen", "\n16\n")
        assert seen() == [2, 6, 12, 16]
    mine = windowed.results()[0]
    assert (mine["acks"], mine["held_acks"], mine["timeouts"]) == (8, 7, 0)


@pytest.mark.parametrize("version", [4, 6])
def test_the_last_acknowledgement_is_seen(windowed: Pacers, tmp_path: Path, version: int) -> None:
    """None comes any more, although more packets are in flight than the window holds."""
    with seen_by(windowed.hosts[0], tmp_path / "seen") as seen:
        sent = (request(psn, asks=True, version=version) for psn in range(1, 17))
        windowed.send_at_once(*sent)
        windowed.send_at_once(answer(2, version=version), answer(4, version=version))
        wait_for_words(tmp_path / "seen", "\n4\n")
        assert seen() == [4]


def test_a_pacer_that_ends_keeps_nothing(windowed: Pacers, tmp_path: Path) -> None:
    """Its RTT is two seconds, and so it would wait for eight."""
    with seen_by(windowed.hosts[0], tmp_path / "seen") as seen:
        windowed.send_at_once(*(request(psn, asks=True) for psn in range(1, 17)))
        time.sleep(2)
        windowed.send_at_once(answer(2), answer(4))
        assert windowed.results()[0]["held_acks"] == 2
        wait_for_words(tmp_path / "seen", "\n4\n")
        assert seen() == [4]


def test_a_late_acknowledgement_takes_no_newer_one_away(windowed: Pacers, tmp_path: Path) -> None:
    """6 comes when 8 is kept, and the window has room for neither."""
    with seen_by(windowed.hosts[0], tmp_path / "seen") as seen:
        windowed.send_at_once(*(request(psn, asks=True) for psn in range(1, 17)))
        windowed.send_at_once(answer(2), answer(4), answer(8), answer(6))
        wait_for_words(tmp_path / "seen", "\n8\n")
        assert seen() == [8]
    assert windowed.results()[0]["held_acks"] == 3


def test_a_late_acknowledgement_is_seen_if_there_is_room(windowed: Pacers, tmp_path: Path) -> None:
    """12 leaves room for 4 packets: 4 and then 6 pass.  16 comes, and rxe sees 12 in its place."""
    with seen_by(windowed.hosts[0], tmp_path / "seen") as seen:
        windowed.send_at_once(*(request(psn, asks=True) for psn in range(1, 17)))
        windowed.send_at_once(answer(12), answer(4), answer(6), answer(16))
        wait_for_words(tmp_path / "seen", "\n16\n")
        assert seen() == [4, 6, 12, 16]


def test_a_copy_of_a_kept_acknowledgement_opens_no_window(windowed: Pacers, tmp_path: Path) -> None:
    """When 10 comes there is room for 2 packets, and rxe has seen nothing yet."""
    with seen_by(windowed.hosts[0], tmp_path / "seen") as seen:
        windowed.send_at_once(*(request(psn, asks=True) for psn in range(1, 17)))
        windowed.send_at_once(*(answer(psn) for psn in (2, 4, 8, 8, 10)))
        wait_for_words(tmp_path / "seen", "\n10\n")
        assert seen() == [2, 10]


def test_one_that_user_space_shows_takes_no_newer_one_away(
    windowed: Pacers, tmp_path: Path
) -> None:
    """8 has come since user space read that 4 was the newest."""
    turned = bytes.fromhex(answer(4))
    shown = (turned[:6] + mac(0) + turned[12:]).hex()
    with seen_by(windowed.hosts[0], tmp_path / "seen") as seen:
        windowed.send_at_once(*(request(psn, asks=True) for psn in range(1, 17)))
        windowed.send_at_once(answer(2), answer(4), answer(8))
        windowed.program(0, "mark", str(SHOWN), shown)
        wait_for_words(tmp_path / "seen", "\n8\n")
        assert seen() == [4, 8]


def test_nothing_is_kept_from_a_flow_within_its_window(windowed: Pacers, tmp_path: Path) -> None:
    with seen_by(windowed.hosts[0], tmp_path / "seen") as seen:
        windowed.send_at_once(*(request(psn, asks=True) for psn in range(1, 9)))
        windowed.send_at_once(*(answer(psn) for psn in range(1, 9)))
        wait_for_words(tmp_path / "seen", "\n8\n")
        assert seen() == [*range(1, 9)]
    assert windowed.results()[0]["held_acks"] == 0


def test_a_loss_is_seen_at_once(windowed: Pacers, tmp_path: Path) -> None:
    with seen_by(windowed.hosts[0], tmp_path / "seen") as seen:
        windowed.send_at_once(*(request(psn, asks=True) for psn in range(1, 17)))
        windowed.send_at_once(answer(2), answer(4), answer(6, NAK))
        wait_for_words(tmp_path / "seen", "\n6\n")
        assert seen() == [6]


def test_acknowledgements(pacers: Pacers) -> None:
    pacers.send(request(100), request(101), request(102), request(103), answer(101), answer(103))
    mine, peers = pacers.results()
    assert (mine["connections"], mine["acks"]) == (1, 2)
    assert (mine["losses"], mine["timeouts"], mine["unknown_acks"]) == (0, 0, 0)
    assert mine["min_rtt_ns"] > 0
    assert mine["rate_bps"] > 0
    assert mine["paced_packets"] >= 1  # from the first event on
    assert (peers["connections"], peers["acks"]) == (0, 0)


def test_an_acknowledgement_counts_once(pacers: Pacers) -> None:
    pacers.send(request(0xFFFFFF), request(0), answer(0), answer(0), answer(0xFFFFFF))
    assert pacers.results()[0]["acks"] == 1


def test_of_no_connection(pacers: Pacers) -> None:
    pacers.send(request(5), answer(5, port=PORT + 1))
    mine = pacers.results()[0]
    assert (mine["acks"], mine["unknown_acks"]) == (0, 1)


def test_going_back_when_asked_is_loss(pacers: Pacers) -> None:
    pacers.send(*(request(psn) for psn in (7, 8, 9)), answer(8, NAK), request(8), request(9))
    mine = pacers.results()[0]
    assert (mine["acks"], mine["losses"], mine["timeouts"]) == (1, 1, 0)


@pytest.mark.parametrize(("lost", "packets"), [([5, 8], 70), ([5, 8, 10], 49)])
def test_losses_of_one_flight_count_once(
    network: NetnsNetwork, tmp_path: Path, lost: list[int], packets: int
) -> None:
    """8 leaves again together with 5, and 10 once more when 7 has arrived."""
    algorithm = compile_algorithm("cubic", {"initial_window": 100, "c": 0.0001})
    with running(Pacers(network, tmp_path, False, algorithm)) as pacers:
        pacers.send_at_once(*(request(psn) for psn in range(1, 13)))
        for first in lost:
            pacers.send(answer(first, NAK))
            pacers.send_at_once(*(request(psn) for psn in range(first, 13)))
        mine = pacers.results()[0]
    assert (mine["losses"], mine["timeouts"]) == (len(lost), 0)
    assert mine["cwnd_bytes"] / 1024 == pytest.approx(packets, abs=1)


def test_going_back_unasked_is_a_timeout(pacers: Pacers) -> None:
    pacers.send(*(request(psn) for psn in (7, 8, 9, 8, 9)))
    mine = pacers.results()[0]
    assert (mine["losses"], mine["timeouts"]) == (0, 1)


def test_asking_again_for_the_rest_of_a_read_is_a_timeout(pacers: Pacers) -> None:
    """The READ has 64 responses, of which 20 have come; its request has a PSN that none had."""
    pacers.send(request(99), read_request(100), request(164), read_request(120), request(164))
    mine = pacers.results()[0]
    assert (mine["connections"], mine["losses"], mine["timeouts"]) == (1, 0, 1)


NARROW = ["tbf", "rate", "8kbit", "burst", "1600", "limit", "700"]


def test_a_packet_that_the_qdisc_drops_is_lost(pacers: Pacers) -> None:
    """The sender does not hear of it, and the peer asks for it as for any lost packet."""
    device = ["dev", "eth1", "root"]
    host = pacers.hosts[0]
    assert host.run(["tc", "qdisc", "replace", *device, *NARROW]).returncode == 0
    try:
        pacers.send_at_once(*(request(psn) for psn in range(1, 21)))  # fails if a send() does
        queue = host.run(["tc", "-s", "qdisc", "show", *device]).stdout
    finally:
        host.run(["tc", "qdisc", "delete", *device])
    assert "dropped" in queue
    assert "dropped 0," not in queue
    pacers.send(answer(8, NAK), request(8), request(9), answer(9))
    mine = pacers.results()[0]
    assert (mine["connections"], mine["acks"]) == (1, 2)
    assert (mine["losses"], mine["timeouts"]) == (1, 0)


def test_a_receiver_without_receives_is_no_loss(pacers: Pacers) -> None:
    pacers.send(request(7), request(8), answer(7, RNR), request(7), request(8), answer(8))
    mine = pacers.results()[0]
    assert (mine["acks"], mine["losses"], mine["timeouts"]) == (1, 0, 0)


def test_resent_packets_give_no_rtt(pacers: Pacers) -> None:
    pacers.send(request(7), request(7), answer(7))
    mine = pacers.results()[0]
    assert (mine["acks"], mine["min_rtt_ns"]) == (1, 0)


def test_a_new_connection_on_the_same_port(pacers: Pacers) -> None:
    pacers.send(request(100), answer(100), request(9_000_000), answer(9_000_000))
    mine = pacers.results()[0]
    assert (mine["connections"], mine["acks"], mine["timeouts"]) == (2, 2, 0)


@pytest.mark.parametrize("pacers", [True], indirect=True)
def test_marks_come_back(pacers: Pacers) -> None:
    """The peer's program sees CE, and its acknowledgement tells."""
    pacers.send(request(1, ecn=CE), answer(1), request(2, ecn=ECT0), answer(2))
    mine = pacers.results()[0]
    assert (mine["acks"], mine["marked_acks"]) == (2, 1)


@pytest.mark.parametrize("pacers", [True], indirect=True)
def test_the_share_of_marks_is_kept(pacers: Pacers) -> None:
    """One of four packets is marked, and each acknowledgement speaks for two."""
    frames = []
    for psn in range(1, 17, 2):
        ecn = CE if psn % 4 == 1 else ECT0
        frames += [request(psn, ecn=ecn), request(psn + 1, ecn=ECT0), answer(psn + 1)]
    pacers.send(*frames)
    mine = pacers.results()[0]
    assert mine["acks"] == 8
    assert mine["marked_acks"] == 2


@pytest.mark.parametrize("pacers", [True], indirect=True)
def test_requests_can_be_marked(pacers: Pacers, tmp_path: Path) -> None:
    """They leave as ECT(0), and their IP checksum is right."""
    out = tmp_path / "frames"
    argv = [sys.executable, str(FRAMES), "eth1", "receive", "1"]
    receiver = pacers.hosts[1].popen(argv, stdout=out)
    wait_for_words(out, "ready")
    pacers.send(request(1, ecn=NOT_ECT))
    assert receiver.wait(timeout=30) == 0
    ip = bytes.fromhex(out.read_text().splitlines()[1])[14:34]
    assert ip[1] & 3 == ECT0
    assert checksum(ip) == 0


@pytest.mark.parametrize("pacers", [True], indirect=True)
def test_a_cnp_is_a_mark(pacers: Pacers) -> None:
    pacers.send(request(1), frame(1, CNP, 0, bytes(16)), answer(1))
    assert pacers.results()[0]["marked_acks"] == 1


def test_it_takes_nobodys_place(pacers: Pacers, tmp_path: Path) -> None:
    argv = [str(paths.rxe_pacer()), "eth1", str(compile_algorithm("swift").path)]
    with pytest.raises(CapabilityError, match="another program has its qdisc clsact"):
        Beside(pacers.hosts[0], argv, tmp_path, "second").ready()


def test_what_cannot_be_done_is_told(network: NetnsNetwork, tmp_path: Path) -> None:
    host = network.hosts[0]
    for argv, words in (
        (["eth9", str(compile_algorithm("swift").path)], "no device eth9"),
        (["eth1", str(tmp_path / "none.so")], "none.so"),
    ):
        with pytest.raises(Exception, match=words):
            Beside(host, [str(paths.rxe_pacer()), *argv], tmp_path, "pacer").ready()
