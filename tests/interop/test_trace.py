# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The trace checker on captures made by hand: right ones, and ones with a single fault."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datapath.cli import main
from datapath.interop import capture, frames, trace
from datapath.interop.opcodes import OPCODES
from datapath.interop.trace import HELLO_VERSION
from datapath.native import lib
from datapath.native.paths import ROOT
from tests.interop.scribe import A_PSN, ADDRESSES, B_PSN, IP, QPNS, UDP, IPOption_NOP, Scribe

# PSN code 20 of the RNR timer is 10.24 ms; 0x20 makes it an RNR NAK.
RNR = 0x20 | 20
SEQUENCE, INVALID, ACCESS = 0x60, 0x61, 0x62


def conversation(talk: Scribe) -> None:
    """Everything that may occur, once."""
    sends(talk)
    writes(talk)
    reads_and_atomics(talk)
    losses_and_waits(talk)
    flushes_and_atomic_writes(talk)
    the_other_way(talk)
    datagrams(talk)


def mad(attribute: int, tid: int, *fields: tuple[int, int, int]) -> bytes:
    """A message of the connection manager; fields: byte of the message, bytes, number."""
    data = bytearray(256)
    data[:4] = 1, 7, 2, 3
    data[8:16] = tid.to_bytes(8, "big")
    data[16:18] = attribute.to_bytes(2, "big")
    for at, size, number in fields:
        data[24 + at : 24 + at + size] = number.to_bytes(size, "big")
    return bytes(data)


TO_MANAGER: dict[str, Any] = {"qpn": 1, "src_qpn": 1, "qkey": 0x80010000}
REQ = mad(0x10, 5, (0, 4, 0xA1), (32, 3, 0x51), (44, 3, 7000), (50, 1, 3 << 4))
REP = mad(0x13, 5, (0, 4, 0xB1), (4, 4, 0xA1), (12, 3, 0x52), (20, 3, 6000))
RTU = mad(0x14, 5, (0, 4, 0xA1), (4, 4, 0xB1))
DREQ = mad(0x15, 6, (0, 4, 0xB1), (4, 4, 0xA1), (8, 3, 0x51))
DREP = mad(0x16, 6, (0, 4, 0xA1), (4, 4, 0xB1))
SIDR_REQ = mad(0x17, 7, (0, 4, 0xA2))
SIDR_REP = mad(0x18, 7, (0, 4, 0xA2))


def managed(talk: Scribe) -> None:
    """A connection that A asks for, and B ends; one message comes twice."""
    a = b = 3000
    for data in (REQ, REQ):
        talk.a("UD SEND", a := a + 1, data, **TO_MANAGER)
    offer = bytes((HELLO_VERSION, *bytes(19)))
    talk.b("HELLO", 0, offer, qpn=0x51)  # its QP is ready before it says so
    talk.b("UD SEND", b := b + 1, REP, **TO_MANAGER)
    talk.a("UD SEND", a := a + 1, RTU, **TO_MANAGER)
    talk.a("SEND ONLY", 6000, ack=True, qpn=0x52)  # from the PSN that B named
    talk.b("ACK", 6000, msn=1, qpn=0x51)
    talk.a("SEND ONLY", 6001, ack=True, qpn=0x52)  # nobody waits for its acknowledgement
    talk.b("UD SEND", b := b + 1, DREQ, **TO_MANAGER)
    talk.a("UD SEND", a := a + 1, DREP, **TO_MANAGER)
    talk.a("UD SEND", a := a + 1, SIDR_REQ, **TO_MANAGER)
    talk.b("UD SEND", b := b + 1, SIDR_REP, **TO_MANAGER)


def message(*before: bytes, **fields: Any) -> Callable[[Scribe], int]:
    """The last of the messages is the faulty one; A and B take turns."""

    def write(talk: Scribe) -> int:
        for turn, data in enumerate(before[:-1]):
            (talk.b if turn % 2 else talk.a)("UD SEND", 10 + turn // 2, data, **TO_MANAGER)
        turn = len(before) - 1
        say = talk.b if turn % 2 else talk.a
        return say("UD SEND", 10 + turn // 2, before[-1], **{**TO_MANAGER, **fields})

    return write


def starts_with_its_own_psn(talk: Scribe) -> int:
    message(REQ, REP)(talk)
    return talk.a("SEND ONLY", 7000, qpn=0x52)


def request_again(talk: Scribe) -> int:
    talk.a("UD SEND", 10, REQ, **TO_MANAGER)
    other = mad(0x10, 5, (0, 4, 0xA1), (32, 3, 0x53), (44, 3, 7000), (50, 1, 3 << 4))
    return talk.a("UD SEND", 11, other, **TO_MANAGER)


def datagrams(talk: Scribe) -> None:
    """To any QP, each sender with PSNs of its own."""
    talk.a("UD SEND", (1 << 24) - 1, 0)
    talk.a("UD SEND IMM", 0, 5, se=True)
    talk.a("UD SEND", 900, 1024, src_qpn=0x34, qpn=0x77)
    talk.b("UD SEND", 7, 2049)


def sends(talk: Scribe) -> None:
    """SENDs of every shape; B answers what asks for it."""
    a, b = talk.a, talk.b
    a("SEND ONLY", 100, ack=True, se=True)
    b("ACK", 100, msn=1)
    a("SEND FIRST", 101, 1024)
    a("SEND MIDDLE", 102, 1024)
    a("SEND LAST", 103, 5, ack=True)
    a("SEND ONLY IMM", 104, 3, ack=True, se=True)
    b("ACK", 103, msn=2)
    b("ACK", 104, msn=3)
    a("SEND FIRST", 105, 1024)
    a("SEND LAST IMM", 106, 1)
    a("SEND ONLY INV", 107, 8)
    a("SEND FIRST", 108, 1024)
    a("SEND LAST INV", 109, 1024, ack=True)
    b("ACK", 109, msn=6)


def writes(talk: Scribe) -> None:
    a, b = talk.a, talk.b
    a("WRITE ONLY", 110, length=0)
    a("WRITE FIRST", 111, 1024, length=2050)
    a("WRITE MIDDLE", 112, 1024)
    a("WRITE LAST", 113, 2, ack=True)
    a("WRITE ONLY IMM", 114, 7, length=7, se=True)
    a("WRITE FIRST", 115, 1024, length=1025)
    a("WRITE LAST IMM", 116, 1, ack=True, se=True)
    b("ACK", 113, msn=8)
    b("ACK", 116, msn=10)


def reads_and_atomics(talk: Scribe) -> None:
    """A READ of four packets, the answer to which is lost in the middle, and atomics."""
    a, b = talk.a, talk.b
    a("READ REQUEST", 117, length=3073, ack=True)
    a("FETCH ADD", 121, ack=True)
    b("READ RESPONSE FIRST", 117, 1024, msn=11)
    b("READ RESPONSE MIDDLE", 118, 1024)
    b("READ RESPONSE MIDDLE", 119, 1024)
    b("READ RESPONSE LAST", 120, 1, msn=11)
    b("ATOMIC ACK", 121, msn=12, value=77)
    a("READ REQUEST", 118, va=0x10000 + 1024, length=2049, ack=True)
    a("FETCH ADD", 121, ack=True)
    b("READ RESPONSE FIRST", 118, 1024, msn=12)
    b("READ RESPONSE MIDDLE", 119, 1024)
    b("READ RESPONSE LAST", 120, 1, msn=12)
    b("ATOMIC ACK", 121, msn=12, value=77)
    a("COMPARE SWAP", 122, ack=True)
    a("READ REQUEST", 123, length=0, ack=True)
    a("READ REQUEST", 124, length=1024, ack=True)
    b("ATOMIC ACK", 122, msn=13, value=1)
    b("READ RESPONSE ONLY", 123, msn=15)
    b("READ RESPONSE ONLY", 124, 1024, msn=15)


def losses_and_waits(talk: Scribe) -> None:
    a, b = talk.a, talk.b
    # Something is lost behind the capture: NAK, and back.
    a("SEND ONLY", 125, 1)
    a("SEND ONLY", 126, 2)
    a("SEND ONLY", 127, 3, ack=True)
    b("ACK", 126, syndrome=SEQUENCE, msn=16)
    a("SEND ONLY", 126, 2)
    a("SEND ONLY", 127, 3, ack=True)
    b("ACK", 127, msn=18)
    # A duplicate is acknowledged by the newest PSN again.
    a("SEND ONLY", 127, 3, ack=True)
    b("ACK", 127, msn=18)
    # No receive is there; A comes again after the wait.
    a("SEND ONLY", 128, 4, ack=True)
    a("SEND ONLY", 129, 5, ack=True)
    b("ACK", 128, syndrome=RNR, msn=18)
    b("ACK", 128, syndrome=SEQUENCE, msn=18)
    talk.wait(0.0103)
    a("SEND ONLY", 128, 4, ack=True)
    a("SEND ONLY", 129, 5, ack=True)
    b("ACK", 129, msn=20)


def flushes_and_atomic_writes(talk: Scribe) -> None:
    """Each is answered by a READ response of no bytes; one answer is lost."""
    a, b = talk.a, talk.b
    a("FLUSH", 130, length=5000, feth=1, ack=True)
    a("ATOMIC WRITE", 131, 8, length=8, ack=True)
    a("FLUSH", 132, length=0, feth=0x13)
    b("READ RESPONSE ONLY", 130, msn=21)
    a("ATOMIC WRITE", 131, 8, length=8, ack=True)
    a("FLUSH", 132, length=0, feth=0x13)
    b("READ RESPONSE ONLY", 131, msn=23)
    b("READ RESPONSE ONLY", 132, msn=23)


def the_other_way(talk: Scribe) -> None:
    """An offer, a SEND of B, and congestion is told."""
    a, b = talk.a, talk.b
    a("HELLO", 0, bytes((HELLO_VERSION, 2, *bytes(9), 0x11, 4, *bytes(6), 9)))
    b("SEND ONLY", 500, 9, ack=True)
    a("ACK", 500, msn=1)
    a("CNP", 0, bytes(16))


def test_a_right_conversation_is_accepted(tmp_path: Path) -> None:
    talk = Scribe()
    conversation(talk)
    report = talk.judge(tmp_path, offers=[ADDRESSES["a"]], cautious=ADDRESSES.values())
    assert [str(v) for v in report.violations] == []
    assert report.packets == len(talk.frames)
    assert (report.naks, report.rnrs, report.offers) == (2, 1, 1)
    # The READ's rest, its atomic, two after the NAK, a duplicate, two after the wait, two whose
    # answers were lost.
    assert report.retransmissions == 9
    assert report.coverage[ADDRESSES["a"]]["SEND ONLY"] == 11
    asked = {row.name for row in OPCODES.values() if "RESPONSE" not in row.name}
    assert asked - set(report.coverage[ADDRESSES["a"]]) == {"ATOMIC ACK"}
    assert report.not_seen(ADDRESSES["b"])[0] == "SEND FIRST"


def test_the_connection_manager_tells_who_is_connected(tmp_path: Path) -> None:
    talk = Scribe()
    managed(talk)
    path = talk.write(tmp_path / "capture.pcap")
    report = trace.check(capture.read(path), [], offers=ADDRESSES.values())
    assert [str(v) for v in report.violations] == []
    assert report.connections == 1


def test_every_psn_that_a_connection_may_start_with(tmp_path: Path) -> None:
    """PSNs wrap at 2^24."""
    talk = Scribe()
    talk.a("SEND FIRST", (1 << 24) - 1, 1024)
    talk.a("SEND LAST", 0, 1, ack=True)
    talk.b("ACK", 0, msn=1)
    talk.a("READ REQUEST", 1, length=1, ack=True)
    talk.b("READ RESPONSE ONLY", 1, 1, msn=2)
    path = talk.write(tmp_path / "capture.pcap")
    ends = (trace.End(ADDRESSES["a"], 0x11, (1 << 24) - 1), trace.End(ADDRESSES["b"], 0x22, 5))
    report = trace.check(capture.read(path), [trace.Connection(ends, 1024)])
    assert report.violations == []


def test_connections_are_found_by_their_psns(tmp_path: Path) -> None:
    talk = Scribe()
    conversation(talk)
    path = talk.write(tmp_path / "capture.pcap")
    packets = list(capture.read(path))
    (connection,) = trace.find_connections(packets)
    assert {(end.address, end.qpn) for end in connection.ends} == {
        (ADDRESSES["a"], 0x11),
        (ADDRESSES["b"], 0x22),
    }
    assert connection.path_mtu == 1024
    assert trace.check(packets, offers=[ADDRESSES["a"]]).violations == []


@pytest.mark.parametrize("fault", [None, "fewer", "more"])
def test_where_the_msn_began_is_learnt_within_limits(tmp_path: Path, fault: str | None) -> None:
    """The first answer counts messages that came before it was sent, and more than it names."""
    talk = Scribe()
    for psn in range(4):
        talk.a("READ REQUEST", psn, length=1, ack=True)
    talk.b("READ RESPONSE ONLY", 0, 1, msn=42)  # two messages or more are complete
    talk.b("READ RESPONSE ONLY", 1, 1, msn=42)  # so the count began at 38 to 40
    talk.b("READ RESPONSE ONLY", 2, 1, msn=42)
    talk.b("READ RESPONSE ONLY", 3, 1, msn={None: 43, "fewer": 41, "more": 44}[fault])
    report = trace.check(capture.read(talk.write(tmp_path / "capture.pcap")))
    found = [(violation.number, violation.rule) for violation in report.violations]
    assert found == ([(8, "msn")] if fault else [])


# ---- one fault each: what is written, and the number of the packet that has to be named ----


def after(talk: Scribe, name: str, psn: int, size: int = 0, **fields: object) -> int:
    """The conversation's beginning, then a packet of A."""
    talk.a("SEND ONLY", 100, ack=True)
    talk.b("ACK", 100, msn=1)
    return talk.a(name, psn, size, **fields)


def hole_in_datagrams(talk: Scribe) -> int:
    talk.a("UD SEND", 7, 4)
    return talk.a("UD SEND IMM", 9, 4)


def edited(edit: Callable[..., object]) -> Callable[[Scribe], int]:
    """A SEND that is wrong in a way that the ICRC includes."""

    def apply(frame: Any) -> Any:
        edit(frame)
        return frame

    return lambda talk: after(talk, "SEND ONLY", 101, 8, edit=apply)


def spoiled(spoil: Callable[[bytearray], None]) -> Callable[[Scribe], int]:
    """A SEND that is changed when all is computed."""
    return lambda talk: after(talk, "SEND ONLY", 101, 8, spoil=lambda raw: spoilt(raw, spoil))


def spoilt(raw: bytes, spoil: Callable[[bytearray], None]) -> bytes:
    data = bytearray(raw)
    spoil(data)
    return bytes(data)


def wrong_field(layer: object, **fields: object) -> Callable[[Scribe], int]:
    def edit(frame: Any) -> None:
        for name, value in fields.items():
            setattr(frame[layer], name, value)

    return edited(edit)


def set_options(frame: Any) -> None:
    frame[IP].options = [IPOption_NOP()] * 4


def flip(at: int, bits: int = 1) -> Callable[[bytearray], None]:
    def spoil(data: bytearray) -> None:
        data[at] ^= bits

    return spoil


def longer(data: bytearray) -> None:
    data[38:40] = (int.from_bytes(data[38:40], "big") + 4).to_bytes(2, "big")


def cut(data: bytearray) -> None:
    del data[-6:]


def unfinished(data: bytearray) -> None:
    """The UDP checksum as a device gets it that is to finish it."""
    data[40:42] = bytes(2)
    base = data[26:34] + struct.pack("!HH", 17, len(data) - 34)
    data[40:42] = frames.sum16(bytes(base)).to_bytes(2, "big")


def batch(data: bytearray) -> None:
    """Two packets that a device is to make of one."""
    data += data[42:]
    for begin, more in ((16, 20), (38, 0)):
        data[begin : begin + 2] = (len(data) - 34 + more).to_bytes(2, "big")
    data[24:26] = bytes(2)
    data[24:26] = (0xFFFF - frames.sum16(bytes(data[14:34]))).to_bytes(2, "big")
    unfinished(data)


def go_back_and_skip(talk: Scribe) -> int:
    for psn in (100, 101, 102, 103):
        talk.a("SEND ONLY", psn, 1)
    talk.a("SEND ONLY", 100, 1)
    return talk.a("SEND ONLY", 103, 1)


def go_back_and_start_new(talk: Scribe) -> int:
    for psn in (100, 101):
        talk.a("SEND ONLY", psn, 1)
    talk.a("SEND ONLY", 100, 1)
    return talk.a("SEND ONLY", 102, 1)


def again(first: dict[str, object], second: dict[str, object]) -> Callable[[Scribe], int]:
    def write(talk: Scribe) -> int:
        talk.a(**{"name": "SEND ONLY", "psn": 100, "payload": 8, **first})
        return talk.a(**{"name": "SEND ONLY", "psn": 100, "payload": 8, **first, **second})

    return write


def read_again(**fields: object) -> Callable[[Scribe], int]:
    def write(talk: Scribe) -> int:
        talk.a("READ REQUEST", 100, length=3072, ack=True)
        number = talk.a("READ REQUEST", 101, ack=True, **fields)
        for psn, place in ((100, "FIRST"), (101, "MIDDLE"), (102, "LAST")):
            talk.b(f"READ RESPONSE {place}", psn, 1024, msn=1)
        return number

    return write


def requests(*packets: tuple[str, int, dict[str, object]]) -> Callable[[Scribe], int]:
    """Requests of A from PSN 100 on; the last one is wrong."""

    def write(talk: Scribe) -> int:
        number = 0
        for psn, (name, size, fields) in enumerate(packets, start=100):
            number = talk.a(name, psn, size, **fields)
        return number

    return write


def answers(*packets: tuple[str, int, dict[str, object]], sends: int = 3) -> Callable[..., int]:
    """SENDs from PSN 100 on, the last with AckReq, then answers of B; the last one is wrong."""

    def write(talk: Scribe) -> int:
        for i in range(sends):
            talk.a("SEND ONLY", 100 + i, 1, ack=i == sends - 1)
        number = 0
        for name, psn, fields in packets:
            number = talk.b(name, psn, **fields)
        return number

    return write


def read_answers(*packets: tuple[str, int, int], tail: bool = True) -> Callable[[Scribe], int]:
    """A READ of 2500 bytes at PSN 100 and an atomic at 103; the last of the answers is wrong."""

    def write(talk: Scribe) -> int:
        talk.a("READ REQUEST", 100, length=2500, ack=True)
        if tail:
            talk.a("FETCH ADD", 103)
        number = 0
        for name, psn, size in packets:
            number = talk.b(name, psn, size, msn=1 if "READ" in name else 2)
        # What is owed at the end is not the point here.
        talk.b("ACK", 100, syndrome=ACCESS)
        return number

    return write


def other_value(talk: Scribe) -> int:
    talk.a("FETCH ADD", 100, ack=True)
    talk.b("ATOMIC ACK", 100, msn=1, value=1)
    talk.a("FETCH ADD", 100, ack=True)
    return talk.b("ATOMIC ACK", 100, msn=1, value=2)


def confirmed(name: str, size: int = 0, **fields: Any) -> Callable[[Scribe], int]:
    """A faulty FLUSH or ATOMIC WRITE, and its answer."""

    def write(talk: Scribe) -> int:
        number = talk.a(name, 100, size, **{"length": 8, "ack": True, **fields})
        talk.b("READ RESPONSE ONLY", 100, msn=1)
        return number

    return write


def confirmed_with(name: str, size: int, answer: str, more: int) -> Callable[[Scribe], int]:
    """A faulty answer to a FLUSH or an ATOMIC WRITE."""

    def write(talk: Scribe) -> int:
        talk.a(name, 100, size, length=8, ack=True)
        return talk.b(answer, 100, more, msn=1)

    return write


def flush_of_something_else(talk: Scribe) -> int:
    talk.a("FLUSH", 100, length=8, ack=True)
    number = talk.a("FLUSH", 100, length=8, feth=2, ack=True)
    talk.b("READ RESPONSE ONLY", 100, msn=1)
    return number


def ack_before_flush(talk: Scribe) -> int:
    talk.a("FLUSH", 100, length=8, ack=True)
    talk.a("SEND ONLY", 101, 1, ack=True)
    number = talk.b("ACK", 101, msn=2)
    talk.b("READ RESPONSE ONLY", 100, msn=2)
    return number


def ack_before_read(talk: Scribe) -> int:
    talk.a("READ REQUEST", 100, length=8, ack=True)
    talk.a("SEND ONLY", 101, 1, ack=True)
    number = talk.b("ACK", 101, msn=2)
    talk.b("READ RESPONSE ONLY", 100, 8, msn=2)
    return number


def ack_of_an_atomic(talk: Scribe) -> int:
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.a("FETCH ADD", 101, ack=True)
    talk.b("ATOMIC ACK", 101, msn=2)
    return talk.b("ACK", 101, msn=2)


def ack_of_a_hole(talk: Scribe) -> int:
    """Packets of A may be missing, yet B cannot acknowledge what it has not got."""
    talk.a("SEND ONLY", 100, 1)
    talk.a("SEND ONLY", 102, 1)
    return talk.b("ACK", 102, msn=3)


def nak_twice(talk: Scribe) -> int:
    for psn in (100, 101, 102):
        talk.a("SEND ONLY", psn, 1)
    talk.b("ACK", 100, syndrome=SEQUENCE)
    talk.a("SEND ONLY", 101, 1)
    return talk.b("ACK", 100, syndrome=SEQUENCE)


def refused_middle(talk: Scribe) -> int:
    talk.a("SEND FIRST", 100, 1024)
    talk.a("SEND LAST", 101, 1)
    return talk.b("ACK", 101, syndrome=RNR)


def no_wait(talk: Scribe) -> int:
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 100, syndrome=RNR)
    talk.wait(0.006)
    number = talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 100, msn=1)
    return number


def late_refusal(talk: Scribe) -> None:
    """So late that the requester has asked again by itself, and the two cross."""
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.wait(0.08)
    talk.b("ACK", 100, syndrome=RNR)
    talk.a("SEND ONLY", 100, 1, ack=True)


def no_wait_after_crossing(talk: Scribe) -> int:
    late_refusal(talk)
    number = talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 100, msn=1)
    return number


def test_a_time_out_may_cross_a_late_refusal(tmp_path: Path) -> None:
    talk = Scribe()
    late_refusal(talk)
    talk.wait(0.02)
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 100, msn=1)
    assert [str(v) for v in talk.judge(tmp_path).violations] == []


def refused_rows(talk: Scribe, first_wait_s: float) -> int:
    """Rows of two requests, each refused and then missed; the second row is on its way when the
    sequence NAK of the first comes, so a third one follows at once."""
    for row in range(2):
        if row:
            talk.wait(first_wait_s)
        number = talk.a("SEND ONLY", 100, 1, ack=True)
        talk.a("SEND ONLY", 101, 1, ack=True)
        talk.b("ACK", 100, syndrome=RNR)
        talk.b("ACK", 100, syndrome=SEQUENCE)
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.a("SEND ONLY", 101, 1, ack=True)
    talk.b("ACK", 101, msn=2)
    return number


def test_a_sequence_nak_may_cross_what_follows_a_refusal(tmp_path: Path) -> None:
    talk = Scribe()
    refused_rows(talk, 0.011)
    assert [str(v) for v in talk.judge(tmp_path).violations] == []


def crossing_rows(talk: Scribe) -> None:
    """As above, but the second row's first request is received, and its second one refused."""
    for row in range(2):
        talk.a("SEND ONLY", 100, 1, ack=True)
        talk.a("SEND ONLY", 101, 1, ack=True)
        if not row:
            talk.b("ACK", 100, syndrome=RNR)
            talk.b("ACK", 100, syndrome=SEQUENCE)
            talk.wait(0.011)
    talk.b("ACK", 100, msn=1)
    talk.b("ACK", 101, syndrome=RNR, msn=1)
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.a("SEND ONLY", 101, 1, ack=True)


def going_back(talk: Scribe) -> None:
    """By a time-out; the refusal of the second request comes before its turn has."""
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.a("SEND ONLY", 101, 1, ack=True)
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 100, msn=1)
    talk.b("ACK", 101, syndrome=RNR, msn=1)
    talk.a("SEND ONLY", 101, 1, ack=True)


def timed_out(talk: Scribe) -> None:
    """The clock runs from the first of two requests on, and the second one left much later."""
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.wait(0.06)
    talk.a("SEND ONLY", 101, 1, ack=True)
    talk.wait(0.01)
    talk.b("ACK", 100, msn=1)
    talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 101, syndrome=RNR, msn=1)
    talk.a("SEND ONLY", 101, 1, ack=True)


def no_wait_after_what_is_new(talk: Scribe) -> int:
    """All that the sequence NAK asked for has come again."""
    talk.a("SEND ONLY", 100, 1)
    talk.a("SEND ONLY", 101, 1, ack=True)
    talk.b("ACK", 100, syndrome=SEQUENCE)
    for psn in (100, 101, 102):
        talk.a("SEND ONLY", psn, 1, ack=True)
    talk.b("ACK", 102, syndrome=RNR, msn=2)
    number = talk.a("SEND ONLY", 102, 1, ack=True)
    talk.b("ACK", 102, msn=3)
    return number


@pytest.mark.parametrize("cross", [crossing_rows, going_back, timed_out])
def test_what_had_cause_may_cross_a_refusal(
    cross: Callable[[Scribe], None], tmp_path: Path
) -> None:
    """Only once: the next copy waits as long as it was told."""
    talk = Scribe()
    cross(talk)
    talk.wait(0.02)
    talk.a("SEND ONLY", 101, 1, ack=True)
    talk.b("ACK", 101, msn=2)
    assert [str(v) for v in talk.judge(tmp_path).violations] == []
    talk = Scribe()
    cross(talk)
    talk.a("SEND ONLY", 101, 1, ack=True)
    talk.b("ACK", 101, msn=2)
    assert [v.rule for v in talk.judge(tmp_path).violations] == ["rnr-wait"]


def two_refusals(talk: Scribe, wait_s: float) -> int:
    """Of two copies of one request; the second crosses what is sent after the first one's wait."""
    for _ in range(2):
        talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 100, syndrome=RNR)
    talk.wait(wait_s)
    talk.b("ACK", 100, syndrome=RNR)
    number = talk.a("SEND ONLY", 100, 1, ack=True)
    talk.b("ACK", 100, msn=1)
    return number


def test_a_second_refusal_may_cross_what_follows_the_first(tmp_path: Path) -> None:
    talk = Scribe()
    two_refusals(talk, 0.011)
    assert [v.rule for v in talk.judge(tmp_path).violations if v.rule == "rnr-wait"] == []


def ports(talk: Scribe) -> int:
    def edit(frame: Any) -> Any:
        frame[UDP].sport += 1
        return frame

    talk.a("SEND ONLY", 100)
    return talk.a("SEND ONLY", 101, edit=edit)


def too_many_offers(talk: Scribe) -> int:
    hello = bytes((HELLO_VERSION, 2, 0, 0, *bytes(16)))
    return [talk.a("HELLO", 0, hello) for _ in range(13)][-1]


def falling_msn(talk: Scribe) -> int:
    for psn in (100, 101, 102):
        talk.a("SEND ONLY", psn, 1)
    talk.b("ACK", 100, msn=3)
    return talk.b("ACK", 101, msn=2)


def unfragmented(frame: Any) -> None:
    frame[IP].flags = 0


def msn_of_a_nak(talk: Scribe) -> int:
    for psn in (100, 101, 102):
        talk.a("SEND ONLY", psn, 1)
    return talk.b("ACK", 101, syndrome=SEQUENCE, msn=0)


def nak_without_a_gap(talk: Scribe) -> int:
    for psn in (100, 101):
        talk.a("SEND ONLY", psn, 1)
    return talk.b("ACK", 101, syndrome=SEQUENCE, msn=1)


def read_once(talk: Scribe, **fields: object) -> int:
    number = talk.a("READ REQUEST", 100, length=1, ack=True, **fields)
    talk.b("READ RESPONSE ONLY", 100, 1, msn=1)
    return number


def headless(frame: Any) -> Any:
    frame.lastlayer().load = b""
    return frame


def unfinished_then_read(talk: Scribe) -> int:
    talk.a("SEND FIRST", 100, 1024)
    number = talk.a("READ REQUEST", 101, length=1, ack=True)
    talk.b("READ RESPONSE ONLY", 101, 1, msn=1)
    return number


def unaligned(talk: Scribe) -> int:
    number = talk.a("FETCH ADD", 100, va=0x10004, ack=True)
    talk.b("ATOMIC ACK", 100, msn=1)
    return number


BTH = "BTH"
ACKED = ("ACK", 102, {"msn": 3})
CASES: dict[str, tuple[str, Callable[[Scribe], int]]] = {
    "may be fragmented": ("frame", edited(unfragmented)),
    "first fragment": ("frame", wrong_field(IP, flags="DF+MF")),
    "IP options": ("frame", edited(set_options)),
    "IP checksum": ("frame", spoiled(flip(24))),
    "UDP checksum": ("frame", wrong_field(UDP, chksum=0x1234)),
    "captured in part": ("cut", lambda talk: after(talk, "SEND ONLY", 101, 8, lost=1)),
    "a batch": ("offload", spoiled(batch)),
    "UDP longer than IP": ("length", spoiled(longer)),
    "shorter than its IP length": ("length", spoiled(cut)),
    "pad beyond payload": ("length", lambda talk: after(talk, "SEND ONLY", 101, 0, pad=2)),
    "odd payload": ("length", lambda talk: after(talk, "SEND ONLY", 101, 4, more=b"xy")),
    "payload of a READ": (
        "length",
        lambda talk: read_once(talk, more=bytes(4)),
    ),
    "no room for headers": ("length", lambda talk: after(talk, 0x0D, 101, edit=headless)),
    "a flipped bit": ("icrc", spoiled(flip(60))),
    "a flipped bit in the ICRC": ("icrc", spoiled(flip(-1))),
    "transport version": ("bth", wrong_field(BTH, version=1)),
    "P_Key": ("bth", wrong_field(BTH, pkey=0x7FFF)),
    "reserved bits": ("bth", wrong_field(BTH, resv7=1)),
    "AckReq in an ACK": ("bth", answers(("ACK", 102, {"msn": 3, "ack": True}))),
    "opcode of UC": ("opcode", lambda talk: after(talk, 0x24, 101)),
    "opcode without meaning": ("opcode", lambda talk: after(talk, 0x15, 101)),
    "to nobody": ("connection", lambda talk: after(talk, "SEND ONLY", 101, qpn=0x33)),
    "another source port": ("source-port", ports),
    "an extended request": ("extended", lambda talk: after(talk, 0xC4, 101)),
    "offer by the other side": (
        "extended",
        lambda talk: talk.b("HELLO", 0, bytes((HELLO_VERSION, *bytes(19)))),
    ),
    "answer to an offer": ("extended", lambda talk: after(talk, 0xE1, 0, 12)),
    "an offer of something else": ("extended", lambda talk: after(talk, "HELLO", 0, 12)),
    "too many offers": ("extended", too_many_offers),
    "a hole": ("psn", lambda talk: after(talk, "SEND ONLY", 102)),
    "before the first PSN": ("psn", lambda talk: after(talk, "SEND ONLY", 99)),
    "back and then skips": ("go-back-n", go_back_and_skip),
    "back and then new": ("go-back-n", go_back_and_start_new),
    "another payload": ("retransmission", again({}, {"payload": b"otherwise"[:8]})),
    "another opcode": ("retransmission", again({}, {"name": "SEND ONLY IMM"})),
    "another address": (
        "retransmission",
        again({"name": "WRITE ONLY", "length": 8}, {"va": 0x20000}),
    ),
    "no longer solicited": ("retransmission", again({"se": True}, {"se": False})),
    "READ of another rest": ("retransmission", read_again(va=0x10000, length=2048)),
    "READ of another length": ("retransmission", read_again(va=0x10400, length=1024)),
    "LAST without FIRST": ("sequence", requests(("SEND ONLY", 1, {}), ("SEND LAST", 1, {}))),
    "MIDDLE at first": ("sequence", requests(("WRITE MIDDLE", 1024, {}))),
    "FIRST in a message": (
        "sequence",
        requests(("SEND FIRST", 1024, {}), ("SEND FIRST", 1024, {})),
    ),
    "READ in a message": (
        "sequence",
        unfinished_then_read,
    ),
    "WRITE goes on as SEND": (
        "sequence",
        requests(("WRITE FIRST", 1024, {"length": 2048}), ("SEND LAST", 1024, {})),
    ),
    "short FIRST": ("payload", requests(("SEND FIRST", 1020, {}))),
    "short MIDDLE": ("payload", requests(("SEND FIRST", 1024, {}), ("SEND MIDDLE", 1020, {}))),
    "empty LAST": ("payload", requests(("SEND FIRST", 1024, {}), ("SEND LAST", 0, {}))),
    "long ONLY": ("payload", requests(("SEND ONLY", 1028, {}))),
    "WRITE ONLY of less": ("reth", requests(("WRITE ONLY", 8, {"length": 9}))),
    "WRITE of more": (
        "reth",
        requests(("WRITE FIRST", 1024, {"length": 1030}), ("WRITE LAST", 7, {})),
    ),
    "WRITE that should have ended": ("reth", requests(("WRITE FIRST", 1024, {"length": 1024}))),
    "unaligned atomic": ("atomic", unaligned),
    "an atomic done twice": ("atomic", other_value),
    "solicited FIRST": ("solicited", requests(("SEND FIRST", 1024, {"se": True}))),
    "solicited WRITE": ("solicited", requests(("WRITE ONLY", 4, {"length": 4, "se": True}))),
    "solicited ACK": ("solicited", answers(("ACK", 102, {"msn": 3, "se": True}))),
    "ACK of what comes": ("ack-beyond", answers(("ACK", 102, {"msn": 3}), ("ACK", 103, {}))),
    "NAK of what comes": (
        "ack-beyond",
        answers(("ACK", 102, {"msn": 3}), ("ACK", 104, {"syndrome": SEQUENCE})),
    ),
    "ACK goes back": ("ack-order", answers(("ACK", 102, {"msn": 3}), ("ACK", 101, {"msn": 3}))),
    "ACK of an atomic": ("ack-psn", ack_of_an_atomic),
    "ACK before the READ's answer": ("answer-order", ack_before_read),
    "answer skips": (
        "answer-order",
        read_answers(("READ RESPONSE FIRST", 100, 1024), ("READ RESPONSE LAST", 102, 452)),
    ),
    "atomic before the READ": (
        "answer-order",
        read_answers(("READ RESPONSE FIRST", 100, 1024), ("ATOMIC ACK", 103, 0)),
    ),
    "MSN too low": ("msn", answers(("ACK", 102, {"msn": 2}))),
    "MSN too high": ("msn", answers(("ACK", 102, {"msn": 4}))),
    "MSN of a NAK": (
        "msn",
        msn_of_a_nak,
    ),
    "MSN falls": ("msn", falling_msn),
    "reserved syndrome": (
        "syndrome",
        answers(("ACK", 102, {"msn": 3}), ("ACK", 102, {"syndrome": 0x40, "msn": 3})),
    ),
    "NAK code without meaning": (
        "syndrome",
        answers(("ACK", 102, {"msn": 3}), ("ACK", 102, {"syndrome": 0x65, "msn": 3})),
    ),
    "NAK of what was acknowledged": (
        "nak",
        answers(("ACK", 102, {"msn": 3}), ("ACK", 101, {"syndrome": SEQUENCE, "msn": 3})),
    ),
    "NAK without a gap": (
        "nak",
        nak_without_a_gap,
    ),
    "a second NAK": ("nak-repeated", nak_twice),
    "invalid request": ("refusal", answers(("ACK", 102, {"syndrome": INVALID}))),
    "RNR in a message": ("rnr", refused_middle),
    "no wait": ("rnr-wait", no_wait),
    "no wait after two refusals": ("rnr-wait", lambda talk: two_refusals(talk, 0.001)),
    "no wait before a sequence NAK crosses": (
        "rnr-wait",
        lambda talk: refused_rows(talk, 0.001),
    ),
    "no wait after a copy that crossed": ("rnr-wait", no_wait_after_crossing),
    "no wait after what is new": ("rnr-wait", no_wait_after_what_is_new),
    "response as LAST": (
        "response",
        read_answers(("READ RESPONSE LAST", 100, 1024), tail=False),
    ),
    "response as ONLY": (
        "response",
        read_answers(("READ RESPONSE ONLY", 100, 1024), tail=False),
    ),
    "FIRST in the middle": (
        "response",
        read_answers(("READ RESPONSE FIRST", 100, 1024), ("READ RESPONSE FIRST", 101, 1024)),
    ),
    "short response": ("response", read_answers(("READ RESPONSE FIRST", 100, 1020))),
    "long last response": (
        "response",
        read_answers(
            ("READ RESPONSE FIRST", 100, 1024),
            ("READ RESPONSE MIDDLE", 101, 1024),
            ("READ RESPONSE LAST", 102, 456),
        ),
    ),
    "response to a SEND": ("response", answers(ACKED, ("READ RESPONSE ONLY", 102, {"msn": 3}))),
    "ATOMIC ACK of a SEND": ("response", answers(ACKED, ("ATOMIC ACK", 102, {"msn": 3}))),
    "FLUSH without a placement": ("flush", confirmed("FLUSH", feth=0x10)),
    "FLUSH with an unknown selectivity": ("flush", confirmed("FLUSH", feth=0x21)),
    "FLUSH again with another placement": ("retransmission", flush_of_something_else),
    "short ATOMIC WRITE": ("payload", confirmed("ATOMIC WRITE", 4)),
    "ATOMIC WRITE of 16 bytes by its RETH": ("payload", confirmed("ATOMIC WRITE", 8, length=16)),
    "unaligned ATOMIC WRITE": ("atomic", confirmed("ATOMIC WRITE", 8, va=0x10004)),
    "payload in the answer to a FLUSH": (
        "response",
        confirmed_with("FLUSH", 0, "READ RESPONSE ONLY", 8),
    ),
    "ATOMIC ACK of an ATOMIC WRITE": (
        "response",
        lambda talk: [
            confirmed_with("ATOMIC WRITE", 8, "ATOMIC ACK", 0)(talk),
            talk.b("READ RESPONSE ONLY", 100, msn=1),
        ][0],
    ),
    "ACK before the answer to a FLUSH": ("answer-order", ack_before_flush),
    "no answer to a FLUSH": ("unanswered", requests(("FLUSH", 0, {"length": 8}))),
    "datagram with a reserved byte": (
        "datagram",
        lambda talk: after(talk, "UD SEND", 7, 8, src_qpn=0x01000033),
    ),
    "datagram beyond every path MTU": ("datagram", lambda talk: after(talk, "UD SEND", 7, 4100)),
    "hole in datagrams": ("datagram", hole_in_datagrams),
    "message from another QP": ("cm-message", message(REQ, src_qpn=2)),
    "message with another Q_Key": ("cm-message", message(REQ, qkey=0x80010001)),
    "message of another class": ("cm-message", message(REQ[:1] + b"\3" + REQ[2:])),
    "message that is too short": ("cm-message", message(REQ[:128])),
    "REQ without a QPN": ("cm-message", message(mad(0x10, 5, (0, 4, 1), (50, 1, 3 << 4)))),
    "REP to nothing": ("cm-order", message(REP)),
    "REP of another transaction": ("cm-order", message(REQ, REP[:8] + bytes(8) + REP[16:])),
    "REP for another id": ("cm-order", message(REQ, mad(0x13, 5, (0, 4, 0xB1), (4, 4, 0xA9)))),
    "RTU without a REP": ("cm-order", message(RTU)),
    "DREP without a DREQ": ("cm-order", message(DREP)),
    "SIDR_REP for another id": ("cm-order", message(SIDR_REQ, mad(0x18, 7, (0, 4, 0xA9)))),
    "REQ again with another QPN": ("cm-repeat", request_again),
    "a connection that starts with its own PSN": ("psn", starts_with_its_own_psn),
    "no answer": ("unanswered", requests(("SEND ONLY", 1, {"ack": True}))),
    "no answer to a READ": ("unanswered", requests(("READ REQUEST", 0, {"length": 1}))),
}


@pytest.mark.parametrize("name", CASES)
def test_one_fault_is_found_and_named(name: str, tmp_path: Path) -> None:
    rule, write = CASES[name]
    talk = Scribe()
    number = write(talk)
    offers = () if name == "offer by the other side" else (ADDRESSES["a"],)
    cautious = ADDRESSES.values()
    report = talk.judge(tmp_path, offers=offers, refusals=[ACCESS], cautious=cautious)
    found = [(v.rule, v.number) for v in report.violations]
    assert found == [(rule, number)], "\n".join(map(str, report.violations))
    (violation,) = report.violations
    assert str(violation).startswith(f"packet {number}, 10.0.0.")


def test_every_rule_has_a_case_and_a_line_in_the_docs() -> None:
    assert {rule for rule, _ in CASES.values()} == set(trace.RULES)
    text = (ROOT / "docs" / "interop.md").read_text()
    assert [rule for rule in trace.RULES if f"| `{rule}` |" not in text] == []


def test_holes_are_no_fault_where_packets_may_be_missing(tmp_path: Path) -> None:
    talk = Scribe()
    talk.a("SEND ONLY", 100, 1)
    talk.a("SEND LAST", 103, 1, ack=True)  # 101 and 102 were lost before the capture
    talk.b("ACK", 101, syndrome=SEQUENCE, msn=1)
    talk.a("SEND ONLY", 101, 1)
    talk.a("SEND FIRST", 102, 1024)
    talk.a("SEND LAST", 103, 1, ack=True)
    talk.b("ACK", 103, msn=3)
    assert talk.judge(tmp_path, gaps=[ADDRESSES["a"]]).violations == []
    assert {v.rule for v in talk.judge(tmp_path).violations} >= {"psn"}


def test_a_nak_may_be_older_than_a_copy_seen_before_it(tmp_path: Path) -> None:
    """100 comes again by a time-out while its NAK is on the way; a third NAK is one too many."""
    talk = Scribe()
    for psn in (100, 101, 102, 100, 101):
        talk.a("SEND ONLY", psn, 1)
    talk.b("ACK", 100, syndrome=SEQUENCE)
    talk.b("ACK", 100, syndrome=SEQUENCE)
    assert {v.rule for v in talk.judge(tmp_path).violations} <= {"unanswered"}
    number = talk.b("ACK", 100, syndrome=SEQUENCE)
    found = [v for v in talk.judge(tmp_path).violations if v.rule != "unanswered"]
    assert [(v.rule, v.number) for v in found] == [("nak-repeated", number)]


def test_an_ack_over_a_hole_is_a_fault_everywhere(tmp_path: Path) -> None:
    talk = Scribe()
    number = ack_of_a_hole(talk)
    report = talk.judge(tmp_path, gaps=[ADDRESSES["a"]])
    assert [(v.rule, v.number) for v in report.violations] == [("ack-beyond", number)]


def test_answers_may_be_missing_too(tmp_path: Path) -> None:
    talk = Scribe()
    talk.a("READ REQUEST", A_PSN, length=3000, ack=True)
    talk.b("READ RESPONSE FIRST", A_PSN, 1024, msn=1)
    talk.b("READ RESPONSE LAST", A_PSN + 2, 952, msn=1)
    assert talk.judge(tmp_path, gaps=[ADDRESSES["b"]]).violations == []
    assert [v.rule for v in talk.judge(tmp_path).violations] == ["answer-order"]


def test_a_refusal_that_is_expected(tmp_path: Path) -> None:
    talk = Scribe()
    talk.b("WRITE ONLY", B_PSN, 8, length=8, ack=True)
    number = talk.a("ACK", B_PSN, syndrome=ACCESS)
    assert talk.judge(tmp_path, refusals=[ACCESS]).violations == []
    assert [(v.rule, v.number) for v in talk.judge(tmp_path).violations] == [("refusal", number)]


@pytest.mark.parametrize("acknowledged", [True, False])
@pytest.mark.parametrize("lost", ["a", "b", None])
def test_a_refusal_that_is_lost_leaves_one_packet_unanswered(
    acknowledged: bool, lost: str | None, tmp_path: Path
) -> None:
    talk = Scribe()
    talk.a("SEND ONLY", A_PSN, 1, ack=True)
    if acknowledged:
        talk.b("ACK", A_PSN, msn=1)
    for _ in range(8):
        last = talk.a("WRITE ONLY", A_PSN + 1, 8, length=8, ack=True)
    report = talk.judge(tmp_path, lost_refusal=ADDRESSES[lost] if lost else None)
    found = [(v.rule, v.number) for v in report.violations]
    assert found == ([] if acknowledged and lost == "b" else [("unanswered", last)])


@pytest.mark.parametrize(
    ("role", "refusal", "lost"),
    [
        ("requester", 12, ADDRESSES["b"]),
        ("responder", 12, ADDRESSES["a"]),
        ("requester", 10, None),
    ],
)
def test_a_program_tells_whose_refusal_was_lost(role: str, refusal: int, lost: str | None) -> None:
    sides = {
        side: {"qpn": QPNS[name], "psn": 1, "gid": f"::ffff:{ADDRESSES[name]}"}
        for side, name in (("local", "a"), ("remote", "b"))
    }
    report = {**sides, "role": role, "path_mtu": 1024, "refusal": refusal}
    assert trace.Connection.of_program(report).lost_refusal == lost


def test_other_traffic_is_passed_over(tmp_path: Path) -> None:
    talk = Scribe()

    def elsewhere(frame: Any) -> Any:
        frame[UDP].dport = 53
        return frame

    talk.a("SEND ONLY", 100, edit=elsewhere)
    assert talk.judge(tmp_path).packets == 0


def test_a_checksum_that_the_device_finishes_is_no_fault(tmp_path: Path) -> None:
    talk = Scribe()
    spoiled(unfinished)(talk)
    assert [str(v) for v in talk.judge(tmp_path).violations] == []


@pytest.mark.parametrize("lost", [0, 40], ids=["whole", "cut"])
def test_a_capture_with_batches_is_refused_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: int
) -> None:
    """What was cut may be a batch, too: dpctl flows would count all of it as one payload."""
    talk = Scribe()
    for psn in range(100, 105):
        talk.a("SEND ONLY", psn, 64, lost=lost, spoil=lambda raw: spoilt(raw, batch))
    path = str(talk.write(tmp_path / "capture.pcap"))
    commands = [["flows", path, "-o", str(tmp_path / "flows.csv")]]
    commands += [] if lost else [["trace", path]]
    for command in commands:
        assert main(command) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert "before the device's offload (packet 1: " in told.err
        assert "ethtool -K DEV tx off tx-udp-segmentation off gro off" in told.err
        assert "violation" not in told.err


@pytest.mark.parametrize("port", [53, None], ids=["other", "none"])
def test_a_capture_without_a_packet_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], port: int | None
) -> None:
    talk = Scribe()

    def elsewhere(frame: Any) -> Any:
        frame[UDP].dport = port
        return frame

    if port is not None:
        talk.a("SEND ONLY", 100, edit=elsewhere)
    path = talk.write(tmp_path / "capture.pcap")
    if port is None:
        path.write_bytes(path.read_bytes()[:24])  # the head of the file alone
    assert main(["trace", str(path)]) == 2
    told = capsys.readouterr().err
    assert f"error: {path} holds no RoCEv2 packet" in told
    assert "violations" not in told


def test_the_version_of_an_offer_is_the_engine_s() -> None:
    assert HELLO_VERSION == lib.DP_EXT_VERSION
