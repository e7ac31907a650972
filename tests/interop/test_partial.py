# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The trace checker where it does not see all: parts of captures, and extended mode.

Nobody tells it the connections here, as with `dpctl trace`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datapath.cli import main
from datapath.interop import capture, frames, trace
from tests.cli.server import shared
from tests.cli.told import told
from tests.interop.scribe import ADDRESSES, UDP, Scribe
from tests.workloads.traffic.test_rows_file import capture as written
from tests.xdp.conftest import ipv4, roce

SEQUENCE, INVALID = 0x60, 0x61
WINDOW = 8  # messages that each side has under way


def stream(talk: Scribe) -> None:
    """Both sides send messages of all kinds, a window ahead of the answers to them."""
    for number in range(4 * WINDOW):
        for say, first in ((talk.a, 100), (talk.b, 5000)):
            ask(say, number, first + 4 * number)
        if number >= WINDOW:
            for say, first in ((talk.b, 100), (talk.a, 5000)):
                answer(say, number - WINDOW, first + 4 * (number - WINDOW))


def ask(say: Callable[..., int], number: int, psn: int) -> None:
    if number % 4 == 2:
        say("READ REQUEST", psn, length=3073, ack=True)
    elif number % 4 == 3:
        for i in range(4):
            say("FETCH ADD", psn + i, ack=True)
    else:
        kind = ("WRITE", "SEND")[number % 4]
        say(f"{kind} FIRST", psn, 1024, length=3073)
        say(f"{kind} MIDDLE", psn + 1, 1024)
        say(f"{kind} MIDDLE", psn + 2, 1024)
        say(f"{kind} LAST", psn + 3, 1, ack=True)


def answer(say: Callable[..., int], number: int, psn: int) -> None:
    before = number // 4 * 7 + min(number % 4, 3)  # messages
    if number % 4 == 2:
        for i, place in enumerate(("FIRST", "MIDDLE", "MIDDLE", "LAST")):
            size = 1 if place == "LAST" else 1024
            say(f"READ RESPONSE {place}", psn + i, size, msn=before + 1)
    elif number % 4 == 3:
        for i in range(4):
            say("ATOMIC ACK", psn + i, msn=before + 1 + i)
    else:
        say("ACK", psn + 3, msn=before + 1)


def packets(talk: Scribe, folder: Path) -> list[capture.Packet]:
    return list(capture.read(talk.write(folder / "capture.pcap")))


def found(talk: Scribe, folder: Path) -> list[tuple[str, int]]:
    return [(v.rule, v.number) for v in trace.check(packets(talk, folder)).violations]


def test_a_part_of_a_right_capture_is_right(tmp_path: Path) -> None:
    """Wherever it begins and ends, also when it holds no answer to any of its requests."""
    talk = Scribe()
    stream(talk)
    whole = packets(talk, tmp_path)
    assert trace.check(whole).connections == 1
    wrong: list[str] = []
    matched = set()
    for begin in range(0, len(whole), 7):
        for end in range(begin + 20, len(whole) + 1, 41):
            report = trace.check(whole[begin:end])
            matched.add((report.connections, report.unmatched > 0))
            wrong += [f"{begin} to {end}: {v}" for v in report.violations]
    assert wrong == []
    assert matched == {(0, True), (1, False)}


def acked_ahead(talk: Scribe) -> int:
    return talk.b("ACK", 700, msn=50)


def acked_from_before(talk: Scribe) -> int:
    """All of the capture was acknowledged, and then something older is."""
    talk.b("ACK", 121, msn=4)
    return talk.b("ACK", 90, msn=4)


def refused_from_before(talk: Scribe) -> int:
    return talk.b("ACK", 95, syndrome=INVALID)


def without_meaning(talk: Scribe) -> int:
    return talk.b("ACK", 95, syndrome=0x40)


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("ack-beyond", acked_ahead),
        ("ack-order", acked_from_before),
        ("refusal", refused_from_before),
        ("syndrome", without_meaning),
    ],
)
def test_faults_are_found_in_mid_connection(
    rule: str, fault: Callable[[Scribe], int], tmp_path: Path
) -> None:
    talk = Scribe()
    talk.b("ACK", 98, msn=1)
    for psn in range(100, 122):
        talk.a("SEND ONLY", psn, 1, ack=True)
    talk.b("ACK", 99, msn=2)
    talk.b("ACK", 100, msn=3)
    number = fault(talk)
    assert found(talk, tmp_path) == [(rule, number)]


@pytest.mark.parametrize("silence_s", [0.5, 1.5])
def test_who_is_connected_is_told_within_a_second(tmp_path: Path, silence_s: float) -> None:
    talk = Scribe()
    talk.a("SEND ONLY", 100, 1)
    talk.wait(silence_s)
    number = talk.a("SEND ONLY", 101, 1)
    expected = [("connection", n) for n in (1, number)] if silence_s > 1 else []
    assert found(talk, tmp_path) == expected


@pytest.mark.parametrize("silence_s", [0.5, 1.5])
def test_what_is_open_at_the_end_counts_after_a_silence(tmp_path: Path, silence_s: float) -> None:
    """Copies of a request do not make the silence shorter."""
    talk = Scribe()
    for psn in (100, 101):
        talk.a("SEND ONLY", psn, 1, ack=True)
    talk.b("ACK", 100, msn=1)
    for _ in range(4):
        talk.wait(silence_s / 4)
        number = talk.a("SEND ONLY", 101, 1, ack=True)
    expected = [("unanswered", number)] if silence_s > 1 else []
    assert found(talk, tmp_path) == expected


def test_a_question_after_a_silence_is_young(tmp_path: Path) -> None:
    """The sends before it did not ask for an acknowledgement."""
    talk = Scribe()
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 100, msn=1)
    talk.a("SEND ONLY", 101, 1)
    talk.wait(2)
    talk.a("SEND ONLY", 102, 1, ack=True)
    assert found(talk, tmp_path) == []


def test_a_capture_of_beginnings_of_packets_is_refused_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Scribe()
    for psn in range(100, 110):
        talk.a("SEND ONLY", psn, 300, ack=True, lost=100)
    talk.b("ACK", 109, msn=10)
    path = talk.write(tmp_path / "capture.pcap")
    assert main(["trace", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "only the beginning of 10 of 11 RoCEv2 packets" in told.err
    assert "-s 0" in told.err
    assert "violation" not in told.err


# ---- who is connected ----


CROSSED = {"a": {0x21: 0x12, 0x22: 0x11}, "b": {0x12: 0x21, 0x11: 0x22}}
"""QPs of A and B -> those that they are connected with."""


def test_qps_that_begin_with_one_psn_are_told_apart_by_time(tmp_path: Path) -> None:
    """They are connected crosswise, and take turns."""
    talk = Scribe()
    for turn in range(4):
        for own, other in CROSSED["a"].items():
            for psn in range(5 * turn, 5 * turn + 5):
                talk.a("SEND ONLY", psn, 16, ack=True, qpn=other, edit=from_port(own))
                talk.b("ACK", psn, msn=psn + 1, qpn=own, edit=from_port(other))
    found = trace.find_connections(packets(talk, tmp_path))
    assert {(c.ends[0].qpn, c.ends[1].qpn) for c in found} == set(CROSSED["a"].items())
    assert trace.check(packets(talk, tmp_path)).violations == []


def test_qps_in_step_are_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each answer may be for either; one of the requests is wrong, and nobody is accused."""
    talk = Scribe()
    for psn in range(0, 40, 2):
        for own, other in CROSSED["a"].items():
            talk.a("SEND ONLY", psn + (own == 0x21), 16, ack=True, qpn=other)
            talk.a("SEND ONLY", psn + (own == 0x22), 16, ack=True, qpn=other)
        for own in CROSSED["a"]:
            talk.b("ACK", psn + 1, msn=psn + 2, qpn=own)
        talk.wait(0.1)
    assert main(["trace", str(talk.write(tmp_path / "capture.pcap"))]) == 0
    said = capsys.readouterr().err
    assert "120 packets of 0 connections, 0 violations" in said
    assert "120 of them are judged by their ICRC and headers alone" in said


def from_port(qpn: int) -> Callable[[Any], Any]:
    def edit(frame: Any) -> Any:
        frame[UDP].sport = 0xC000 + qpn
        return frame

    return edit


def test_thousands_of_qps(tmp_path: Path) -> None:
    """Within bounds on memory."""
    qpns = range(0x100, 0x100 + 3000)
    frames = []
    for qpn in qpns:
        frames.append(ipv4(roce(qpn, 5, bytes(16)), source=0))
        frames.append(ipv4(roce(0x10000 + qpn, 5, b"\x1f\0\0\1", opcode=0x11), source=1))
    path = written(tmp_path / "capture.pcap", list(enumerate(frames)))
    done = shared()("trace", path, memory_bytes=256 * 2**20)
    assert f"{2 * len(qpns)} packets of {len(qpns)} connections" in done.err
    assert "judged by their ICRC" not in done.err


@pytest.mark.parametrize("piece", [4, 256])
def test_long_reads_take_no_memory(tmp_path: Path, piece: int) -> None:
    """PSNs of a READ are no objects; what is no path MTU is none because a packet has its size."""
    talk = Scribe()
    talk.a("SEND FIRST", 0, piece)
    talk.a("SEND LAST", 1, 1, ack=True)
    talk.b("ACK", 1, msn=1)
    mtu = piece if piece == 256 else 4096
    for number in range(16):
        talk.a("READ REQUEST", 2 + number * (2**31 // mtu), length=2**31, ack=True)
    path = talk.write(tmp_path / "capture.pcap")
    done = shared()("trace", path, "--format", "json", memory_bytes=256 * 2**20)
    rules = [row["rule"] for row in told("trace", done.out)]
    assert rules == ([] if piece == 256 else ["payload"])


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
def test_reads_tell_the_path_mtu(tmp_path: Path, mtu: int) -> None:
    """No packet in the middle of a message is there."""
    talk = Scribe()
    talk.a("SEND ONLY", 9, 16, ack=True)
    talk.b("ACK", 9, msn=1)
    talk.a("READ REQUEST", 10, length=8192, ack=True)
    number = talk.a("SEND ONLY", 10 + 8192 // mtu, 16, ack=True)
    assert found(talk, tmp_path) == []
    assert trace.find_connections(packets(talk, tmp_path))[0].path_mtu == mtu
    talk.a("SEND ONLY", 10 + 8192 // mtu + 2, 16, ack=True)
    assert found(talk, tmp_path) == [("psn", number + 1)]


# ---- extended mode ----


def with_id(raw: bytes) -> bytes:
    """A frame with an identification, which the ICRC takes as zero."""
    data = bytearray(raw)
    data[18:20] = b"\x12\x34"
    data[24:26] = bytes(2)
    data[24:26] = (0xFFFF - frames.sum16(bytes(data[14:34]))).to_bytes(2, "big")
    return bytes(data)


def stamped(raw: bytes) -> bytes:
    """As switches fill in the room behind the XDH, which the ICRC takes as ones."""
    data = bytearray(with_id(raw))
    data[74:110] = bytes(range(36))
    return bytes(data)


XDH = bytes(15) + b"\x20" + bytes(4)  # two records of telemetry


def extended(talk: Scribe) -> None:
    talk.a("HELLO", 0, bytes(20))
    talk.b(0xE1, 0, bytes(20))
    talk.a(0xC4, 100, bytes(120), ack=True, spoil=with_id)
    talk.a(0xC4, 101, XDH + b"\xff" * 36 + bytes(64), ack=True, spoil=stamped)
    talk.a("SEND ONLY", 102, 1, ack=True)  # it changes mode only when all is acknowledged
    talk.b(0xD1, 101, bytes(32), spoil=with_id)


def test_extended_mode_is_counted_and_its_icrc_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Scribe()
    extended(talk)
    assert main(["trace", str(talk.write(tmp_path / "capture.pcap"))]) == 0
    told = capsys.readouterr().err
    assert "6 of them are of extended mode" in told
    assert "tools/extended.lua" in told

    def spoilt(raw: bytes) -> bytes:
        data = bytearray(stamped(raw))
        data[112] ^= 1  # behind the room
        return bytes(data)

    number = talk.a(0xC4, 102, XDH + b"\xff" * 36 + bytes(64), spoil=spoilt)
    assert found(talk, tmp_path) == [("icrc", number)]


def test_a_trimmed_packet_has_no_icrc(tmp_path: Path) -> None:
    talk = Scribe()
    extended(talk)

    def trimmed(raw: bytes) -> bytes:
        data = bytearray(raw)
        data[15] = 43 << 2
        data[70] ^= 1
        return with_id(bytes(data))

    talk.a(0xC4, 103, bytes(20), spoil=trimmed)
    assert found(talk, tmp_path) == []


def test_a_standard_peer_is_offered_extended_mode_and_sent_nothing_of_it(tmp_path: Path) -> None:
    talk = Scribe()
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 100, msn=1)
    number = talk.a(0xC4, 101, bytes(24))
    assert found(talk, tmp_path) == [("extended", number)]


def test_the_peer_s_side_may_be_missing(tmp_path: Path) -> None:
    """A capture of one way alone, of which nothing tells who is connected."""
    talk = Scribe()
    talk.a(0xC4, 100, bytes(24))
    report = trace.check(packets(talk, tmp_path))
    assert (report.violations, report.extended) == ([], 1)
    assert report.coverage[ADDRESSES["a"]].total() == 1
