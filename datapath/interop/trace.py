# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A capture of reliable connections and datagrams, judged packet by packet.

    report = check(capture.read(path), connections)
    for violation in report.violations: print(violation)

`RULES` names what is judged: packets by themselves in capture.py, connections
in stream.py, the connection manager's messages in manager.py, and here what
concerns flows as a whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datapath.interop import pairs
from datapath.interop.capture import Deth, Packet
from datapath.interop.frames import Flaw
from datapath.interop.manager import QPN as MANAGER_QPN
from datapath.interop.manager import Manager
from datapath.interop.opcodes import HELLO, MANUFACTURER, OPCODES, REQUESTS
from datapath.interop.pairs import PATH_MTUS, Flow
from datapath.interop.stream import SILENCE_NS, Stream

RULES = {
    "frame": "one unfragmented IP packet without options, don't-fragment set, checksums right or 0",
    "cut": "the whole packet was captured",
    "offload": "the frame is one packet, as the device has sent it",
    "length": "IP, UDP, headers, payload and pad fit each other",
    "icrc": "the ICRC is right",
    "bth": "transport version 0, default P_Key, reserved bits 0, no AckReq in answers",
    "opcode": "the opcode is one of RC or UD, or CNP",
    "connection": "the packet goes to a QP of a known connection, or is a datagram",
    "source-port": "a QP sends from one UDP port",
    "extended": "nothing in manufacturer's opcodes but a few offers of extended mode",
    "psn": "new requests have consecutive PSNs",
    "go-back-n": "what is sent again is sent in order from some PSN on; only what was acknowledged "
    "is skipped",
    "retransmission": "a request sent again says the same; a READ asks for the rest of itself",
    "sequence": "FIRST, MIDDLE..., LAST of one kind, or ONLY",
    "payload": "FIRST and MIDDLE carry one path MTU, LAST at least a byte, none more than the MTU, "
    "ATOMIC WRITE eight bytes",
    "reth": "a WRITE brings as many bytes as its RETH says",
    "atomic": "atomics and ATOMIC WRITEs are aligned; an atomic answered again has the same value",
    "flush": "a FLUSH names a placement, and a range or a region",
    "solicited": "only the last packet of a SEND or of a WRITE with immediate solicits an event",
    "ack-beyond": "nothing is answered that was not sent, without holes up to there",
    "ack-order": "ACKs never go back",
    "ack-psn": "of cautious senders: an ACK has the PSN of a SEND or WRITE",
    "answer-order": "what has an answer of its own (READ, atomic, FLUSH, ATOMIC WRITE) is answered "
    "in order, and before an ACK beyond it",
    "msn": "the MSN counts completed messages and never falls",
    "syndrome": "the AETH's syndrome has a meaning",
    "nak": "a sequence NAK is for the expected PSN, and something beyond it was sent",
    "nak-repeated": "one sequence NAK for a gap, until its PSN has come again",
    "refusal": "no fatal NAK that was not asked for",
    "rnr": "RNR NAKs are for requests that need a receive",
    "rnr-wait": "after an RNR NAK the request waits for the time that it told",
    "response": "READ responses lie in their READ, with the right opcode and length, or confirm a "
    "FLUSH or an ATOMIC WRITE; ATOMIC ACKs answer atomics",
    "datagram": "no more payload than the largest path MTU, a reserved byte of 0, and consecutive "
    "PSNs from each QP",
    "cm-message": "what goes to QP 1 is a message of the connection manager, from QP 1 with its "
    "Q_Key",
    "cm-order": "a REP answers a REQ, an RTU a REP, a DREP a DREQ, a SIDR_REP a SIDR_REQ, of the "
    "same transaction and for its communication id",
    "cm-repeat": "a message that is sent again says the same",
    "unanswered": "what asked for an acknowledgement has one at the end",
}
"""The rules, by the names that violations carry."""

HELLO_VERSION = 8
"""Of extended mode: docs/extended-mode.md."""

_HELLOS_MAX = 12  # docs/extended-mode.md, negotiation
_HELLO_BYTES = 20
_RETRY_EXC = 12  # IBV_WC_RETRY_EXC_ERR of infiniband/verbs.h


@dataclass(frozen=True)
class End:
    """One end of a connection; first_psn: of its requests, None when not known."""

    address: str
    qpn: int
    first_psn: int | None = None


@dataclass(frozen=True)
class Connection:
    """Two QPs that are connected.

    lost_refusal: address of the end whose fatal NAK was lost before the capture: the last request
    of its peer, of one packet, has no answer.
    """

    ends: tuple[End, End]
    path_mtu: int
    lost_refusal: str | None = None

    @classmethod
    def of_program(cls, report: Mapping[str, Any]) -> Connection:
        """From the JSON that tools/conform.py prints."""
        ends = []
        for side in ("local", "remote"):
            facts = report[side]
            ends.append(End(_address_of(facts["gid"]), facts["qpn"], facts["psn"]))
        responder = ends[report["role"] == "requester"].address
        lost = report.get("refusal") == _RETRY_EXC
        return cls((ends[0], ends[1]), report["path_mtu"], responder if lost else None)


def _address_of(gid: str) -> str:
    import ipaddress

    address = ipaddress.IPv6Address(gid)
    return str(address.ipv4_mapped or address)


@dataclass(frozen=True)
class Violation:
    """A broken rule: its place (frame of the capture, flow), and the details."""

    number: int
    flow: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"packet {self.number}, {self.flow}: {self.rule}: {self.text}"


@dataclass
class Report:
    """The verdict on a capture.

    coverage: packets by sender's address and opcode name.
    extended: packets of connections in extended mode, of which only headers that all packets
    have and the ICRC were judged.
    unmatched: packets of which the capture does not tell who answers them; judged as those.
    """

    violations: list[Violation] = field(default_factory=list)
    packets: int = 0
    connections: int = 0
    coverage: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    retransmissions: int = 0
    naks: int = 0
    rnrs: int = 0
    offers: int = 0
    extended: int = 0
    unmatched: int = 0

    def not_seen(self, sender: str) -> list[str]:
        """Opcodes of RC that this sender has not used."""
        return [row.name for row in OPCODES.values() if not self.coverage[sender][row.name]]


def check(
    packets: Iterable[Packet],
    connections: Sequence[Connection] | None = None,
    *,
    gaps: Collection[str] = (),
    offers: Collection[str] = (),
    refusals: Collection[int] = (),
    cautious: Collection[str] = (),
) -> Report:
    """Judge a capture.

    connections: those that may occur, seen from beginning to end.  None finds them by their
    PSNs; then the capture may begin and end in mid-connection, and some may have extended mode.
    gaps: addresses whose packets may be lost before they reach the capture.
    offers: addresses that may offer extended mode, by HELLO and nothing else.
    refusals: AETH syndromes of fatal NAKs that are expected, e.g. 0x62.
    cautious: addresses whose ACKs must not have the PSN of a READ or atomic,
    which rxe would take for its answer.  The standard does not forbid them.
    """
    if connections is not None:
        judge = _Judge(connections, gaps, offers, refusals, cautious)
        for packet in packets:
            judge.see(packet)
        return judge.close(None)
    found = list(packets)
    matched = pairs.find(found)
    judge = _Judge(_connections(matched), gaps, offers, refusals, cautious)
    judge.undecided = matched.undecided
    judge.speak = {_key(p) for p in found if p.opcode >= MANUFACTURER and not p.damaged}
    for packet in found:
        judge.see(packet)
    return judge.close(max((p.time_ns for p in found), default=0))


def _key(packet: Packet) -> Flow:
    return packet.src, packet.dst, packet.qpn


class _Judge:
    """speak: flows that have packets of extended mode, where that is no violation by itself.

    undecided: addresses between which it cannot be told who answers whom.
    """

    def __init__(
        self,
        connections: Sequence[Connection],
        gaps: Collection[str],
        offers: Collection[str],
        refusals: Collection[int],
        cautious: Collection[str],
    ) -> None:
        self.report = Report(connections=len(connections))
        self._offers = offers
        self.speak: set[Flow] = set()
        self.undecided: set[frozenset[str]] = set()
        self._streams: dict[Flow, tuple[Stream, Stream]] = {}
        self._back: dict[Flow, Flow] = {}  # the same connection the other way
        self._strange: dict[Flow, list[Packet]] = defaultdict(list)  # of no known connection
        self._ports: dict[Flow, int] = {}
        self._hellos: Counter[Flow] = Counter()
        self._gaps = gaps
        self._refusals = refusals
        self._cautious = cautious
        self._manager = Manager(gaps)
        self._agreed: set[tuple[End, End]] = set()
        self._next_datagram: dict[tuple[str, int], int] = {}
        for connection in connections:
            self._connect(connection)

    def _connect(self, connection: Connection) -> None:
        one, two = connection.ends
        forward, backward = (
            Stream(
                connection.path_mtu,
                asks.first_psn,
                requester_gaps=asks.address in self._gaps,
                responder_gaps=answers.address in self._gaps,
                refusals=self._refusals,
                lost_refusal=answers.address == connection.lost_refusal,
                cautious=answers.address in self._cautious,
            )
            for asks, answers in ((one, two), (two, one))
        )
        # For each end: the stream of its requests, and the stream of its answers.
        there, back = (one.address, two.address, two.qpn), (two.address, one.address, one.qpn)
        self._streams[there], self._streams[back] = (forward, backward), (backward, forward)
        self._back[there], self._back[back] = back, there

    def _managed(self, packet: Packet, deth: Deth) -> Iterable[Flaw]:
        """A message of the connection manager, and the connection that it may make."""
        yield from self._manager.see(packet, deth)
        for agreement in self._manager.agreements:
            ends = (End(*agreement.active), End(*agreement.passive))
            if ends not in self._agreed:  # a REP may come again
                self._agreed.add(ends)
                key = (ends[0].address, ends[1].address, ends[1].qpn)
                self.report.connections += key not in self._streams
                self._connect(Connection(ends, agreement.path_mtu))

    def see(self, packet: Packet) -> None:
        report, key = self.report, _key(packet)
        report.packets += 1
        report.coverage[packet.src][packet.name] += 1
        self._tell(packet, packet.flaws)
        if packet.damaged:
            return
        if packet.deth is not None:
            self._tell(packet, self._datagram(packet, packet.deth))
            if packet.qpn == MANAGER_QPN:
                self._tell(packet, self._managed(packet, packet.deth))
            return
        if self._is_extended(key):
            report.extended += 1
            return
        streams = self._streams.get(key)
        if streams is None and packet.opcode >= MANUFACTURER and key in self._manager.asked:
            # The QP is ready before the REP is sent, and offers at once.
            self._tell(packet, self._extended(packet, key))
            return
        if streams is None:
            self._strange[key].append(packet)
            return
        if self._ports.setdefault(key, packet.sport) != packet.sport:
            text = f"source port {packet.sport}, before it was {self._ports[key]}"
            self._tell(packet, [Flaw("source-port", text)])
        row = packet.row
        if row is None:
            if packet.opcode >= MANUFACTURER:
                self._tell(packet, self._extended(packet, key))
            return
        asks, answers = streams
        flaws = asks.request(packet) if row.kind in REQUESTS else answers.answer(packet)
        self._tell(packet, flaws)

    def _is_extended(self, key: Flow) -> bool:
        """Both ends speak extended mode.  A standard peer never does; it may be offered it."""
        back = self._back.get(key, key)
        return key in self.speak and back in self.speak

    def _datagram(self, packet: Packet, deth: Deth) -> Iterable[Flaw]:
        """A datagram stands alone.  Nothing but its PSN relates it to others of its sender."""
        qpn, reserved = deth.src_qpn & 0xFFFFFF, deth.src_qpn >> 24
        if reserved:
            yield Flaw("datagram", f"the reserved byte of the DETH is {reserved:#04x}")
        if len(packet.payload) > max(PATH_MTUS):
            yield Flaw("datagram", f"{len(packet.payload)} bytes of payload")
        wanted = self._next_datagram.get((packet.src, qpn), packet.psn)
        if packet.psn != wanted and packet.src not in self._gaps:
            yield Flaw("datagram", f"PSN {packet.psn} of QP {qpn:#x}, {wanted} was next")
        self._next_datagram[packet.src, qpn] = (packet.psn + 1) % (1 << 24)

    def _extended(self, packet: Packet, key: Flow) -> list[Flaw]:
        """A standard peer may be offered extended mode a few times, and is asked nothing else."""
        self._hellos[key] += 1
        self.report.offers += 1
        if packet.opcode != HELLO or packet.src not in self._offers:
            return [Flaw("extended", f"{packet.name} to a standard peer")]
        if self._hellos[key] > _HELLOS_MAX:
            return [Flaw("extended", f"offer number {self._hellos[key]}")]
        if packet.psn or len(packet.payload) != _HELLO_BYTES or packet.payload[0] != HELLO_VERSION:
            return [Flaw("extended", f"a HELLO that is none: {packet.payload.hex()}")]
        return []

    def _tell(self, packet: Packet, flaws: Iterable[Flaw]) -> None:
        flow = f"{packet.src} -> {packet.dst} QP {packet.qpn:#x}"
        for flaw in flaws:
            self.report.violations.append(Violation(packet.number, flow, flaw.rule, flaw.text))

    def _has_ended(self, asker: str, qpn: int) -> bool:
        """By either end's DREQ; qpn: of the QP that `asker` sends to."""
        return any(
            not self._manager.ended.isdisjoint((end.address, end.qpn) for end in ends)
            for ends in self._agreed
            if any(end.qpn == qpn and end.address != asker for end in ends)
        )

    def close(self, end_ns: int | None) -> Report:
        """end_ns: of a capture that may end in mid-connection."""
        for (src, dst, _), packets in self._strange.items():
            # Requests and answers tell who is connected, once both were seen.
            early = end_ns is not None and end_ns < packets[0].time_ns + SILENCE_NS
            if early or frozenset((src, dst)) in self.undecided:
                self.report.unmatched += len(packets)
                continue
            for packet in packets:
                text = f"{packet.name} to a QP that is none of ours"
                self._tell(packet, [Flaw("connection", text)])
        for (asker, _, qpn), (asks, _) in self._streams.items():
            open_end = asks.close(end_ns)
            # A side that disconnects does not wait for acknowledgements.
            if open_end is not None and not self._has_ended(asker, qpn):
                self._tell(open_end[0], [open_end[1]])
            self.report.retransmissions += asks.retransmissions
            self.report.naks += asks.naks
            self.report.rnrs += asks.rnrs
        self.report.violations.sort(key=lambda violation: violation.number)
        return self.report


def find_connections(packets: Sequence[Packet]) -> list[Connection]:
    """The connections of a capture, by the PSNs of requests and of their answers."""
    return _connections(pairs.find(packets))


def _connections(found: pairs.Pairs) -> list[Connection]:
    return [
        Connection((End(one[0], two[2]), End(two[0], one[2])), mtu)
        for one, two, mtu in ((pair.one, pair.two, pair.path_mtu) for pair in found.found)
    ]
