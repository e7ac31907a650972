# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The impairment program on real packets between two namespaces."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from datapath.errors import LocalError
from datapath.lanes.spec import Path
from datapath.xdp.impair import AimedFault, Impairment, fixed_point, stream_seed
from tests.xdp.conftest import Wire, checksum, ethernet, ipv4, ipv6, roce, udp

ECT1, ECT0, CE = 1, 2, 3
IP_AT, UDP_AT = 14, 34
BTH_END = UDP_AT + 8 + 12


class SplitMix64:
    """The program's generator, as published (Steele, Lea, Flood 2014)."""

    def __init__(self, state: int) -> None:
        self.state = state

    def draw(self) -> int:
        mask = 2**64 - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return (z ^ z >> 31) >> 32

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.draw() < fixed_point(probability)


def numbered(count: int, **options: Any) -> list[bytes]:
    """IPv4 datagrams whose payload is their number."""
    return [ipv4(udp(struct.pack(">I", n)), **options) for n in range(count)]


def numbers(frames: list[bytes]) -> list[int]:
    return [struct.unpack_from(">I", frame, UDP_AT + 8)[0] for frame in frames]


def configure(wire: Wire, seed: int = 1, **section: Any) -> None:
    wire.network.set_path(Path.model_validate(section), seed)


def test_a_clean_path_changes_nothing(wire: Wire) -> None:
    frames = [*numbered(100), ipv6(udp(b"six")), ethernet(0x88B5, b"experimental".ljust(46))]
    assert wire.send(frames) == frames
    counters = wire.network.path_counters()
    assert counters.passed["forward"] == 101
    assert counters.exempt["forward"] >= 1  # and the host's own listener reports
    assert counters.unsegmented["forward"] == 0


@pytest.mark.parametrize("seed", [1, 2**40])
def test_bernoulli_loss_is_the_published_generator(wire: Wire, seed: int) -> None:
    configure(wire, seed, loss="10%")
    arrived = numbers(wire.send(numbered(2000)))
    model = SplitMix64(stream_seed(seed, "forward", "loss"))
    assert arrived == [n for n in range(2000) if not model.happens(0.1)]
    counters = wire.network.path_counters()
    assert counters.passed["forward"] == len(arrived)
    assert counters.dropped["forward"] == 2000 - len(arrived)


def test_gilbert_elliott_loss_follows_its_chain(wire: Wire) -> None:
    loss = {"model": "gilbert-elliott", "p": "2%", "r": "20%", "good": "0.1%", "bad": "80%"}
    configure(wire, 7, loss=loss)
    arrived = numbers(wire.send(numbered(3000)))
    model, bad, expected = SplitMix64(stream_seed(7, "forward", "loss")), False, []
    for number in range(3000):
        lost = model.happens(0.8 if bad else 0.001)
        if model.happens(0.2 if bad else 0.02):
            bad = not bad
        if not lost:
            expected.append(number)
    assert arrived == expected
    assert 100 < 3000 - len(arrived) < 500, "the stationary rate is 7.4 %"


def test_loss_in_bursts_by_time_does_not_depend_on_packets(wire: Wire) -> None:
    """Thousands of packets end no period, and time alone does."""

    def periods(good: str, bad: str) -> dict[str, str]:
        return {"model": "gilbert-elliott-time", "good_time": good, "bad_time": bad}

    configure(wire, loss=periods("3600s", "1us"))
    assert numbers(wire.send(numbered(2000))) == list(range(2000))
    configure(wire, loss=periods("1us", "3600s"))
    assert wire.send(numbered(2000)) == []
    assert wire.network.path_counters().dropped["forward"] == 2000
    configure(wire, loss=periods("3600s", "1us") | {"good": "10%"})
    model = SplitMix64(stream_seed(1, "forward", "loss"))
    expected = [n for n in range(2000) if not model.happens(0.1)]
    assert numbers(wire.send(numbered(2000))) == expected
    configure(wire, loss=periods("5ms", "5ms"))
    fates = set()
    for _ in range(2000):
        fates.add(len(wire.send(numbered(1))))
        if fates == {0, 1}:
            break
        time.sleep(0.001)
    assert fates == {0, 1}


def test_the_same_seed_gives_the_same_losses_and_another_does_not(wire: Wire) -> None:
    runs = []
    for seed in (5, 5, 6):
        configure(wire, seed, loss="20%")
        runs.append(numbers(wire.send(numbered(500))))
    assert runs[0] == runs[1] != runs[2]


def test_directions_have_their_own_streams_and_rates(wire: Wire) -> None:
    configure(wire, 1, loss="20%")
    forward = numbers(wire.send(numbered(500)))
    backward = numbers(wire.send(numbered(500, source=1), "backward"))
    assert forward != backward
    configure(wire, 1, loss="20%", backward={"loss": 0})
    assert numbers(wire.send(numbered(500, source=1), "backward")) == list(range(500))
    assert numbers(wire.send(numbered(500))) == forward


def test_marking_does_not_change_which_packets_are_lost(wire: Wire) -> None:
    configure(wire, 1, loss="20%")
    plain = numbers(wire.send(numbered(300, tos=ECT0)))
    configure(wire, 1, loss="20%", ecn_mark="50%", corrupt="50%")
    frames = wire.send([ipv4(udp(struct.pack(">I", n) + bytes(8)), tos=ECT0) for n in range(300)])
    assert len(frames) == len(plain)


def test_arp_and_neighbour_discovery_are_exempt(wire: Wire) -> None:
    configure(wire, loss="100%")
    arp = ethernet(0x0806, bytes(46))
    solicitation = ipv6(bytes([135, 0]) + bytes(30), protocol=58)
    report = ipv6(bytes([58, 0, 5, 2, 0, 0, 1, 0]) + bytes([143, 0]) + bytes(10), protocol=0)
    echo = ipv6(bytes([128, 0]) + bytes(30), protocol=58)
    assert wire.send([arp, solicitation, report, echo]) == [arp, solicitation, report]


@pytest.mark.parametrize("ecn", [ECT0, ECT1])
def test_marked_ipv4_has_a_good_checksum(wire: Wire, ecn: int) -> None:
    configure(wire, ecn_mark="100%")
    sent = [ipv4(udp(b"data"), tos=ecn | dscp << 2) for dscp in range(64)]
    arrived = wire.send(sent)
    for before, after in zip(sent, arrived, strict=True):
        assert after[IP_AT + 1] == before[IP_AT + 1] | CE
        assert checksum(after[IP_AT : IP_AT + 20]) == 0
        assert after[UDP_AT:] == before[UDP_AT:]
    assert wire.network.path_counters().marked["forward"] == 64


def test_only_ecn_capable_packets_are_marked(wire: Wire) -> None:
    configure(wire, ecn_mark="100%")
    sent = [ipv4(udp(b"no")), ipv4(udp(b"ce"), tos=CE), ipv6(udp(b"no"))]
    assert wire.send(sent) == sent
    assert wire.network.path_counters().marked["forward"] == 0


def test_ipv6_is_marked_in_the_traffic_class(wire: Wire) -> None:
    configure(wire, ecn_mark="100%")
    (arrived,) = wire.send([ipv6(udp(b"data"), traffic_class=0xB8 | ECT0)])
    assert arrived == ipv6(udp(b"data"), traffic_class=0xB8 | CE)


def test_corruption_flips_one_bit_beyond_the_bth(wire: Wire) -> None:
    configure(wire, corrupt="100%")
    sent = [ipv4(roce(0x11, psn, bytes(100))) for psn in range(300)]
    places = set()
    for before, after in zip(sent, wire.send(sent), strict=True):
        flipped = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert len(flipped) == 1
        assert (before[flipped[0]] ^ after[flipped[0]]).bit_count() == 1
        assert BTH_END <= flipped[0] < len(before)
        places.add(flipped[0])
    assert len(places) > 80, "every payload byte can be hit"
    assert wire.network.path_counters().corrupted["forward"] == 300


def test_corruption_reaches_the_far_end_of_a_jumbo_packet(wire: Wire) -> None:
    configure(wire, corrupt="100%")
    sent = [ipv4(udp(bytes(8900))) for _ in range(200)]
    arrived = wire.send(sent)
    assert max(next(i for i, b in enumerate(f[UDP_AT + 8 :]) if b) for f in arrived) > 8000


def test_a_packet_without_payload_is_left_alone(wire: Wire) -> None:
    configure(wire, corrupt="100%")
    empty = ipv4(udp(b""))
    assert wire.send([empty]) == [empty]
    assert wire.network.path_counters().corrupted["forward"] == 0


def test_the_nth_packet_of_a_direction(wire: Wire) -> None:
    configure(wire, faults=[{"action": "drop", "nth": 100}])
    assert numbers(wire.send(numbered(200))) == [n for n in range(200) if n != 99]
    counters = wire.network.path_counters()
    assert counters.fault_hits == {"forward": 1, "backward": 0}
    assert counters.dropped["forward"] == 1


def test_the_nth_and_the_following_packets_of_a_qp(wire: Wire) -> None:
    configure(wire, faults=[{"action": "drop", "qpn": 0x17, "nth": 3, "count": 2}])
    sent = [ipv4(roce(qpn, psn)) for psn in range(10) for qpn in (0x16, 0x17)]
    lost = [ipv4(roce(0x17, psn)) for psn in (2, 3)]
    assert wire.send(sent) == [frame for frame in sent if frame not in lost]


def test_a_psn_is_hit_as_often_as_asked(wire: Wire) -> None:
    configure(wire, faults=[{"action": "drop", "psn": 42, "qpn": 7, "count": 2}])
    wanted, other = ipv4(roce(7, 42)), ipv4(roce(8, 42))
    assert wire.send([wanted, other, wanted, wanted, other]) == [other, wanted, other]


@pytest.mark.parametrize("opcode", [0x04, 0x11, 0xC4, 0xD1, 0xE0])
def test_extended_opcodes_are_aimed_at_in_the_same_way(wire: Wire, opcode: int) -> None:
    configure(wire, faults=[{"action": "drop", "psn": 0xFFFFFF}])
    packets = [ipv4(roce(1, psn, opcode=opcode)) for psn in (0xFFFFFE, 0xFFFFFF, 0)]
    assert wire.send(packets) == [packets[0], packets[2]]


def test_aimed_faults_need_roce(wire: Wire) -> None:
    configure(wire, faults=[{"action": "drop", "psn": 0}])
    plain = ipv4(udp(bytes(20), port=4790))
    cut_off = ipv4(udp(bytes(8), port=4791))
    assert wire.send([plain, cut_off]) == [plain, cut_off]


def test_faults_reach_ipv6_and_the_other_direction(wire: Wire) -> None:
    configure(wire, faults=[{"action": "drop", "psn": 5, "direction": "backward"}])
    six = ipv6(roce(1, 5))
    assert wire.send([six]) == [six]
    back = [ipv4(roce(1, psn), source=1) for psn in (5, 6)]
    assert wire.send(back, "backward") == [back[1]]


def test_aimed_marks_and_corruption(wire: Wire) -> None:
    configure(
        wire,
        faults=[
            {"action": "mark", "nth": 2},
            {"action": "corrupt", "nth": 2},
            {"action": "mark", "nth": 3},
        ],
    )
    sent = [ipv4(roce(1, psn, bytes(50)), tos=ECT0 if psn < 2 else 0) for psn in range(3)]
    arrived = wire.send(sent)
    assert (arrived[0], arrived[2]) == (sent[0], sent[2])
    assert arrived[1][IP_AT + 1] == CE
    assert sum(a != b for a, b in zip(arrived[1][UDP_AT:], sent[1][UDP_AT:], strict=True)) == 1
    counters = wire.network.path_counters()
    # The third packet is not ECN-capable: aimed at, but not marked.
    assert (counters.fault_hits["forward"], counters.marked["forward"]) == (3, 1)


def test_setting_the_path_starts_counting_again(wire: Wire) -> None:
    for _ in range(2):
        configure(wire, faults=[{"action": "drop", "nth": 2}])
        assert numbers(wire.send(numbered(3))) == [0, 2]
        assert wire.network.path_counters().dropped["forward"] == 1


def test_too_many_faults_are_refused() -> None:
    with pytest.raises(LocalError, match="16 fit"):
        Impairment(faults=(AimedFault("drop"),) * 17).pack()
