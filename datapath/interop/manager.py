# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Messages of InfiniBand's connection manager in a capture, judged one by one.

They are datagrams of 256 bytes between QPs with number 1 (IBTA volume 1,
chapter 12).  What two ends agree on tells which QPs are connected, and with
which PSN each begins to send: that which the other end named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from datapath.interop.capture import Deth, Packet
from datapath.interop.frames import Flaw

QPN = 1
_QKEY = 0x80010000
_BYTES = 256
_HEADER = bytes([1, 7, 2, 3])
"""Base version, class, class version, and the method Send."""

NAMES = {
    0x10: "REQ",
    0x11: "MRA",
    0x12: "REJ",
    0x13: "REP",
    0x14: "RTU",
    0x15: "DREQ",
    0x16: "DREP",
    0x17: "SIDR_REQ",
    0x18: "SIDR_REP",
    0x19: "LAP",
    0x1A: "APR",
}
_ANSWERS = {"REP": "REQ", "RTU": "REP", "DREP": "DREQ", "SIDR_REP": "SIDR_REQ"}
"""The message that each message answers."""


@dataclass(frozen=True)
class Agreement:
    """Two QPs that are connected from now on; by (address, QPN, first PSN that it sends)."""

    active: tuple[str, int, int]
    passive: tuple[str, int, int]
    path_mtu: int


# Linux forgets a SIDR_REQ when it has answered it: the same request, sent again, is a new one to
# the program, which may refuse it (drivers/infiniband/core/cm.c, cm_sidr_req_handler).
_MAY_CHANGE = ("MRA", "REJ", "SIDR_REP")


@dataclass(frozen=True)
class _Message:
    name: str
    sender: str
    receiver: str
    tid: bytes
    body: bytes

    def number(self, at: int, size: int) -> int:
        return int.from_bytes(self.body[at : at + size], "big")

    @property
    def key(self) -> tuple[str, str, bytes, str]:
        return self.sender, self.receiver, self.tid, self.name


class Manager:
    """Judges the messages between the hosts of a capture.

    gaps: addresses whose packets may be missing in the capture.
    """

    def __init__(self, gaps: Collection[str] = ()) -> None:
        self._gaps = gaps
        self._seen: dict[tuple[str, str, bytes, str], _Message] = {}
        self.agreements: list[Agreement] = []
        """Those of the message judged last."""
        self.asked: set[tuple[str, str, int]] = set()
        """(who was asked, who asked, with which QP) by REQs: the QP may be written to."""
        self.ended: set[tuple[str, int]] = set()
        """(address, QPN) of a QP whose connection a DREQ has ended."""

    def see(self, packet: Packet, deth: Deth) -> Iterator[Flaw]:
        """The flaws of a datagram that goes to QP 1."""
        self.agreements = []
        message = _read(packet)
        if (deth.src_qpn & 0xFFFFFF, deth.qkey) != (QPN, _QKEY):
            yield Flaw("cm-message", f"from QP {deth.src_qpn:#x} with Q_Key {deth.qkey:#x}")
        if message is None:
            yield Flaw("cm-message", f"{len(packet.payload)} bytes, {packet.payload[:24].hex()}")
            return
        before = self._seen.setdefault(message.key, message)
        if message.name not in _MAY_CHANGE and before.body != message.body:
            yield Flaw("cm-repeat", f"{message.name} comes again with other content")
        if message.name == "REQ":
            self.asked.add((message.receiver, message.sender, message.number(32, 3)))
            yield from _request(message)
        if message.name == "DREQ":
            self.ended.add((message.receiver, message.number(8, 3)))
        yield from self._order(message)

    def _answered(self, message: _Message) -> _Message | None:
        """The message that this one answers, of the same transaction."""
        other = (message.receiver, message.sender, message.tid)
        wanted = _ANSWERS.get(message.name)
        return self._seen.get((*other, wanted)) if wanted else None

    def _order(self, message: _Message) -> Iterator[Flaw]:
        if message.name not in _ANSWERS:
            return
        answered = self._answered(message)
        if answered is None:
            if message.receiver not in self._gaps:
                wanted = _ANSWERS[message.name]
                yield Flaw("cm-order", f"{message.name} without a {wanted} of its transaction")
            return
        if message.name != "SIDR_REP" and message.number(4, 4) != answered.number(0, 4):
            yield Flaw("cm-order", f"{message.name} for another communication id")
        if message.name == "SIDR_REP" and message.number(0, 4) != answered.number(0, 4):
            yield Flaw("cm-order", "SIDR_REP for another request id")
        if message.name == "REP":
            self.agreements.append(_agreement(answered, message))


def _read(packet: Packet) -> _Message | None:
    data = packet.payload
    if len(data) != _BYTES or data[:4] != _HEADER:
        return None
    name = NAMES.get(int.from_bytes(data[16:18], "big"))
    if name is None:
        return None
    return _Message(name, packet.src, packet.dst, data[8:16], data[24:])


def _request(message: _Message) -> Iterator[Flaw]:
    if not message.number(0, 4) or not message.number(32, 3):
        yield Flaw("cm-message", "a REQ without a communication id or a QPN")
    if not 1 <= message.body[50] >> 4 <= 5:
        yield Flaw("cm-message", f"a REQ with path MTU code {message.body[50] >> 4}")


def _agreement(request: _Message, reply: _Message) -> Agreement:
    """A starting PSN is that of the packets which the other end sends."""
    active = (request.sender, request.number(32, 3), reply.number(20, 3))
    passive = (reply.sender, reply.number(12, 3), request.number(44, 3))
    return Agreement(active, passive, 128 << (request.body[50] >> 4))
