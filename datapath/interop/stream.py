# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rules of a reliable connection, for requests of one side and answers of the other.

IBTA volume 1, section 9.7.  A capture is taken at one point of the path, so a
rule says only what must hold there whatever happens behind it: an answer is
judged by the requests that passed before it, never by what has not arrived.

A capture may begin and end in mid-connection.  Answers to what was sent before
its first request, and copies of that, are not judged.

Where a side's packets may be lost before the capture (`gaps` of its side),
holes in what it sent are no fault, and neither is what would need the missing
packets to be judged.

PSNs are unwrapped: plain integers that go on beyond 2^24.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection

from datapath.interop.capture import Aeth, Packet
from datapath.interop.frames import Flaw
from datapath.interop.opcodes import Kind, Opcode, Place
from datapath.interop.request import Request, Requests, judge_again, judge_new, request_of

_MODULUS = 1 << 24
_SIGN = 1 << 23

ACK, RNR, NAK = 0, 1, 3
"""Types of the AETH's syndrome, its upper three bits (table 44)."""
SEQUENCE_ERROR = 0
_NAK_CODES = 5

# IBTA volume 1, table 46: units of 10 us.
_RNR_UNITS = (
    *(65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
    *(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576),
    *(32768, 49152),
)
JIFFY_NS = 4_000_000
"""A kernel's timer that counts ticks (250 Hz) may end this much early."""
ACK_TIMEOUT_NS = 4096 << 14
"""Time-out of a QP with timeout=14 (section 9.7.6.1.3), which most programs ask for."""
SILENCE_NS = 1_000_000_000
"""A responder whose answer takes so long is silent: longer than any RTT."""


def unwrap(psn: int, near: int) -> int:
    """The number that has this PSN modulo 2^24 and is nearest to `near`."""
    ahead = (psn - near) % _MODULUS
    return near + (ahead - _MODULUS if ahead >= _SIGN else ahead)


def rnr_wait_ns(syndrome: int) -> int:
    """How long an RNR NAK asks the requester to wait."""
    return _RNR_UNITS[syndrome & 31] * 10_000


class Stream:
    """One direction of a connection: the requests of one side and the other side's answers.

    first_psn: of the requester; None: that of the first request seen.
    requester_gaps, responder_gaps: packets of that side may be missing here.
    refusals: syndromes of fatal NAKs that are asked for.
    lost_refusal: the last request, of one packet, was refused by a NAK that is missing here.
    cautious: the responder's ACKs must not name requests with an answer of their own.
    ack_timeout_ns: after which the requester asks again by itself.
    """

    def __init__(
        self,
        path_mtu: int,
        first_psn: int | None,
        *,
        requester_gaps: bool = False,
        responder_gaps: bool = False,
        refusals: Collection[int] = (),
        lost_refusal: bool = False,
        cautious: bool = False,
        ack_timeout_ns: int = ACK_TIMEOUT_NS,
    ) -> None:
        self.path_mtu, self.cautious = path_mtu, cautious
        self.ack_timeout_ns = ack_timeout_ns
        self.requester_gaps, self.responder_gaps = requester_gaps, responder_gaps
        self.refusals, self.lost_refusal = refusals, lost_refusal
        self.retransmissions = self.naks = self.rnrs = 0
        self._known = first_psn is not None
        self._sent = Requests()
        self._ends: list[int] = []  # last PSNs of the messages that are there in full
        self._unanswered: list[Request] = []
        # The range of the MSN before the first message seen: from, to.
        self._msn_before: tuple[int, int] | None = (0, 0) if self._known else None
        self._last_msn: int | None = None
        self._rnr: tuple[int, int, int] | None = None  # PSN, until when, packet
        self._may_cross = False  # a copy of what that NAK refuses may be under way
        self._clock_ns = 0  # since when the requester has waited for progress
        self._nak: tuple[int, int] | None = None  # PSN, how often that had been seen
        self._went_on = False  # something new was sent after what that NAK asked for
        self._naks_of_psn = 0
        self._owed: tuple[int, Packet] | None = None
        self._owed_since_ns = 0  # when what is owed was asked for, the first time
        self._refused = False
        self._answer_next: int | None = None
        self._last_ack: int | None = None
        self._begin(first_psn or 0)

    def _begin(self, psn: int) -> None:
        self._base = self._next = self._prefix = self._cursor = self._acked = psn

    # -- requests

    def request(self, packet: Packet) -> list[Flaw]:
        """Judge a request."""
        row = packet.row
        assert row is not None
        if not self._sent and not self._known:
            self._begin(packet.psn)
        psn = unwrap(packet.psn, self._next)
        if psn < self._base and self._known:
            return [Flaw("psn", f"PSN {packet.psn} is before the connection's first")]
        request = request_of(packet, row, psn, self.path_mtu)
        if psn < self._base:  # a copy of what was sent before the capture began
            self._cursor = request.end + 1
            self.retransmissions += 1
            return []
        if self._acked == self._next:
            self._clock_ns = packet.time_ns
        known = self._sent.get(psn)
        flaws = self._order(packet, psn, known is None)
        flaws += judge_again(known, request, self.path_mtu) if known else self._new(request, packet)
        flaws += self._rnr_wait(packet, psn)
        (known or request).seen += 1
        (known or request).sent_ns = packet.time_ns
        self._cursor = request.end + 1
        wants = packet.ack_req or request.is_answered
        if wants and (self._owed is None or request.end >= self._owed[0]):
            if self._owed is None or request.end > self._owed[0]:
                self._owed_since_ns = packet.time_ns
            self._owed = (request.end, packet)
        return flaws

    def _order(self, packet: Packet, psn: int, new: bool) -> list[Flaw]:
        """New packets have consecutive PSNs; retransmissions go on in order from some PSN."""
        if not new:
            self.retransmissions += 1
        if self.requester_gaps or psn <= self._cursor or self._acked >= psn:
            return []
        if psn > self._next:
            text = f"PSN {packet.psn} and not {self._next % _MODULUS}"
            return [Flaw("psn", text)]
        text = f"PSN {packet.psn} after going back, and not {self._cursor % _MODULUS}"
        return [Flaw("go-back-n", text)]

    def _new(self, request: Request, packet: Packet) -> list[Flaw]:
        previous = self._sent.get(request.psn - 1)
        self._went_on = self._copies_since_nak() > 0
        flaws = self._place(request, previous)
        flaws += judge_new(request, packet, previous, self.path_mtu)
        self._sent.add(request)
        if request.is_answered:
            self._unanswered.append(request)
        self._next = max(self._next, request.end + 1)
        while (there := self._sent.get(self._prefix)) is not None:
            if there.row.ends:
                self._ends.append(there.end)
            self._prefix = there.end + 1
        return flaws

    def _place(self, request: Request, previous: Request | None) -> list[Flaw]:
        """FIRST, MIDDLE..., LAST of one kind, or ONLY."""
        if previous is None and request.psn != self._base:
            return []
        if previous is None and not self._known:
            return []
        open_kind = previous.row.kind if previous and not previous.row.ends else None
        wanted = None if request.row.starts else request.row.kind
        if open_kind is wanted:
            return []
        before = previous.row.name if previous else "nothing"
        return [Flaw("sequence", f"{request.row.name} after {before}")]

    def _rnr_wait(self, packet: Packet, psn: int) -> list[Flaw]:
        """A request refused with RNR comes again after the time that the NAK told."""
        # A requester that may have missed the NAK follows its own clock.
        if self._rnr is None or psn != self._rnr[0] or self.requester_gaps:
            return []
        if self._may_cross:
            self._may_cross = False
            return []
        _, until_ns, nak = self._rnr
        self._rnr = None
        if packet.time_ns >= until_ns - JIFFY_NS:
            return []
        early = (until_ns - packet.time_ns) / 1e6
        return [Flaw("rnr-wait", f"{early:.3f} ms before the time that packet {nak} told is over")]

    # -- answers

    def _advance(self, packet: Packet, psn: int) -> None:
        """`packet` shows that all before `psn` has arrived."""
        if psn > self._acked:
            self._acked, self._clock_ns = psn, packet.time_ns

    def answer(self, packet: Packet) -> list[Flaw]:
        """Judge an ACK, NAK, READ response or ATOMIC ACK."""
        row = packet.row
        assert row is not None
        psn = unwrap(packet.psn, self._next)
        before = not self._known and (not self._sent or psn < self._base)
        if not before and not self._base <= psn < max(self._prefix, self._base):
            waits_for_it = row.kind is Kind.ACK and psn == self._prefix < self._next
            if not waits_for_it:
                return [
                    Flaw("ack-beyond", f"{packet.name} of PSN {packet.psn}, which was not sent")
                ]
        flaws = [Flaw("bth", f"{packet.name} with AckReq")] if packet.ack_req else []
        if packet.solicited:
            flaws.append(Flaw("solicited", f"{packet.name} with the solicited bit"))
        if before:
            return flaws + self._answer_before(packet, psn)
        judge = {Kind.ACK: self._ack, Kind.READ_RESPONSE: self._read, Kind.ATOMIC_ACK: self._swap}
        return flaws + judge[row.kind](packet, psn)

    def _answer_before(self, packet: Packet, psn: int) -> list[Flaw]:
        """An answer to what was sent before the capture began: little can be said of it."""
        assert packet.row is not None
        if packet.row.kind is not Kind.ACK or packet.aeth is None:
            return []
        kind, code = packet.aeth.parts
        if kind == ACK:
            return self._order_of_acks(packet, psn)
        self.naks += kind == NAK
        self.rnrs += kind == RNR
        return self._refusal(packet, kind, code)

    def _refusal(self, packet: Packet, kind: int, code: int) -> list[Flaw]:
        """Of a negative answer: its syndrome has a meaning, and is no fatal NAK."""
        assert packet.aeth is not None
        if kind == RNR or (kind, code) == (NAK, SEQUENCE_ERROR):
            return []
        syndrome = packet.aeth.syndrome
        if kind != NAK or code >= _NAK_CODES:
            return [Flaw("syndrome", f"syndrome {syndrome:#04x}")]
        self._refused = True
        if syndrome in self.refusals:
            return []
        return [Flaw("refusal", f"NAK {syndrome:#04x} of PSN {packet.psn}")]

    def _order_of_acks(self, packet: Packet, psn: int) -> list[Flaw]:
        if self._last_ack is None or psn >= self._last_ack:
            return []
        was = self._last_ack % _MODULUS
        return [Flaw("ack-order", f"ACK of PSN {packet.psn} after one of {was}")]

    def _ack(self, packet: Packet, psn: int) -> list[Flaw]:
        assert packet.aeth is not None
        kind, code = packet.aeth.parts
        if kind == ACK:
            if psn >= self._prefix:
                return [Flaw("ack-beyond", f"ACK of PSN {packet.psn}, which was not sent")]
            return self._positive(packet, psn) + self._msn(packet.aeth, psn)
        if kind == RNR:
            return self._receiver_not_ready(packet, psn) + self._msn(packet.aeth, psn - 1)
        self.naks += kind == NAK
        if (kind, code) == (NAK, SEQUENCE_ERROR):
            return self._sequence_nak(packet, psn) + self._msn(packet.aeth, psn - 1)
        flaws = self._refusal(packet, kind, code)
        if kind == NAK and code < _NAK_CODES:
            self._advance(packet, psn)
        return flaws

    def _positive(self, packet: Packet, psn: int) -> list[Flaw]:
        flaws = self._order_of_acks(packet, psn)
        named = self._sent.get(psn)
        if self.cautious and named is not None and named.is_answered:
            flaws.append(Flaw("ack-psn", f"ACK with the PSN of a {named.row.name}"))
        self._last_ack = max(psn, self._last_ack or psn)
        self._advance(packet, psn + 1)
        pending = self._pending(psn)
        if pending is not None and not self.responder_gaps:
            text = f"ACK of PSN {packet.psn} before the answer to {pending.row.name} "
            flaws.append(Flaw("answer-order", text + f"of PSN {pending.psn % _MODULUS}"))
        return flaws

    def _pending(self, psn: int) -> Request | None:
        """The first request that begins up to `psn` and lacks an answer of its own."""
        self._unanswered = [r for r in self._unanswered if r.answered <= r.end]
        first = self._unanswered[0] if self._unanswered else None
        return first if first is not None and first.psn <= psn else None

    def _receiver_not_ready(self, packet: Packet, psn: int) -> list[Flaw]:
        assert packet.aeth is not None
        self.rnrs += 1
        self._advance(packet, psn)
        refused = self._sent.get(psn)
        if refused is None:
            return [Flaw("rnr", f"RNR NAK of PSN {packet.psn}, which was not sent")]
        row = refused.row
        # A SEND takes its receive with its first packet, a WRITE with its last.
        if not (row.starts if row.kind is Kind.SEND else row.consumes_receive):
            return [Flaw("rnr", f"RNR NAK of a {row.name}, which needs no receive")]
        if self._rnr is not None and self._rnr[0] == psn:
            return []  # of an older copy: the request may have left before this came
        self._rnr = (psn, packet.time_ns + rnr_wait_ns(packet.aeth.syndrome), packet.number)
        self._may_cross = self._has_cause(packet, psn, refused)
        return []

    def _has_cause(self, nak: Packet, psn: int, refused: Request) -> bool:
        """Whether the requester may send `psn` again before it knows of the refusal."""
        going_back = self._cursor <= psn
        # A copy of what a sequence NAK asks for may have left before that came.
        asked = self._nak is not None and self._copies_since_nak() <= 1 and not self._went_on
        clock_ns = min(self._clock_ns, refused.sent_ns)
        timed_out = nak.time_ns - clock_ns >= self.ack_timeout_ns - JIFFY_NS
        return going_back or asked or timed_out

    def _copies_since_nak(self) -> int:
        """Of the PSN that the last sequence NAK asked for."""
        expected = self._sent.get(self._nak[0]) if self._nak else None
        return expected.seen - self._nak[1] if self._nak and expected else 0

    def _sequence_nak(self, packet: Packet, psn: int) -> list[Flaw]:
        """At the expected PSN, with something sent beyond it; once until that has come again.

        A NAK may answer to what came before a copy that the capture has already
        seen, so a copy between two NAKs is not asked for, only enough of them.
        """
        self._advance(packet, psn)
        if self._last_ack is not None and psn <= self._last_ack:
            return [Flaw("nak", f"NAK of PSN {packet.psn}, which was acknowledged")]
        if self._next <= psn + 1:
            return [Flaw("nak", f"NAK of PSN {packet.psn} without a packet beyond it")]
        expected = self._sent.get(psn)
        seen = expected.seen if expected else 0
        before, self._nak = self._nak, (psn, seen)
        self._went_on = False
        self._naks_of_psn = self._naks_of_psn + 1 if before and before[0] == psn else 1
        if before == self._nak and self._naks_of_psn > max(seen, 1):
            text = f"a second NAK of PSN {packet.psn}, which has not come again"
            return [Flaw("nak-repeated", text)]
        return []

    def _msn(self, aeth: Aeth, psn: int) -> list[Flaw]:
        """MSN counts the messages that were completed: those up to `psn`, perhaps later ones.

        So where the count began, if that was not seen, each answer tells only
        within limits; all of them together have to leave a number.
        """
        low, high = bisect_right(self._ends, psn), len(self._ends)
        least, most = self._msn_before or (aeth.msn - high, aeth.msn - low)
        msn = unwrap(aeth.msn, low + least)
        last, self._last_msn = self._last_msn, msn
        if not low + least <= msn <= high + most:
            text = f"MSN {aeth.msn} after {low + least} to {high + most} messages"
            return [Flaw("msn", text)]
        self._msn_before = max(least, msn - high), min(most, msn - low)
        if last is not None and msn < last:
            return [Flaw("msn", f"MSN {aeth.msn} after {last % _MODULUS}")]
        return []

    def _read(self, packet: Packet, psn: int) -> list[Flaw]:
        request = self._sent.get(psn)
        if request is None or not (request.row.kind is Kind.READ or request.is_confirmed):
            return [Flaw("response", f"{packet.name} of PSN {packet.psn} answers no READ")]
        row = packet.row
        assert row is not None
        flaws = self._answer_order(packet, request, psn)
        flaws += self._response_place(row, request, psn)
        assert request.reth is not None
        left = request.reth.length - (psn - request.psn) * self.path_mtu
        wanted = 0 if request.is_confirmed else min(self.path_mtu, left)
        if len(packet.payload) != wanted:
            text = f"{row.name} with {len(packet.payload)} bytes and not {wanted}"
            flaws.append(Flaw("response", text))
        if packet.aeth is not None:
            if packet.aeth.syndrome >> 5 != ACK:
                text = f"{row.name} with syndrome {packet.aeth.syndrome:#04x}"
                return [*flaws, Flaw("syndrome", text)]
            flaws += self._msn(packet.aeth, request.end)
        return flaws

    def _response_place(self, row: Opcode, request: Request, psn: int) -> list[Flaw]:
        """FIRST, MIDDLE..., LAST or ONLY, counted from the request or from one that repeats it.

        The answer to a repeated request may also go on with MIDDLE or LAST.
        """
        ends = psn == request.end
        right = {
            Place.ONLY: psn in request.starts and ends,
            Place.FIRST: psn in request.starts and not ends,
            Place.MIDDLE: request.psn < psn and not ends,
            Place.LAST: request.psn < psn and ends,
        }[row.place]
        if right:
            return []
        index, count = psn - request.psn + 1, request.end - request.psn + 1
        return [Flaw("response", f"{row.name} as packet {index} of {count}")]

    def _answer_order(self, packet: Packet, request: Request, psn: int) -> list[Flaw]:
        """Answers come in the order of their requests, each from some request's start on."""
        flaws = []
        if not self.responder_gaps:
            pending = self._pending(psn - 1)
            late = pending is not None and pending is not request
            restarts = psn in request.starts
            if late or (psn != self._answer_next and not restarts):
                expected = pending.answered if pending is not None else self._answer_next or psn
                text = f"{packet.name} of PSN {packet.psn} and not {expected % _MODULUS}"
                flaws.append(Flaw("answer-order", text))
        if psn >= request.answered:
            request.answered = psn + 1
        self._answer_next = psn + 1
        self._advance(packet, psn + 1)
        return flaws

    def _swap(self, packet: Packet, psn: int) -> list[Flaw]:
        request = self._sent.get(psn)
        if request is None or request.row.kind is not Kind.ATOMIC:
            return [Flaw("response", f"ATOMIC ACK of PSN {packet.psn} answers no atomic")]
        flaws = self._answer_order(packet, request, psn)
        assert packet.aeth is not None
        if packet.aeth.syndrome >> 5 != ACK:
            text = f"ATOMIC ACK with syndrome {packet.aeth.syndrome:#04x}"
            return [*flaws, Flaw("syndrome", text)]
        flaws += self._msn(packet.aeth, psn)
        if request.value is not None and packet.value != request.value:
            text = f"ATOMIC ACK with {packet.value:#x}, before it was {request.value:#x}"
            flaws.append(Flaw("atomic", text))
        request.value = packet.value
        return flaws

    # -- the end

    def close(self, end_ns: int | None) -> tuple[Packet, Flaw] | None:
        """At the end of the capture: whether all that asked for an answer has one.

        end_ns: when the capture ends, after which an answer may have come; None: it has them all.
        """
        # The one packet of a request whose refusal was lost is never acknowledged.
        if self._owed is None or self._refused or self._acked + self.lost_refusal > self._owed[0]:
            return None
        if end_ns is not None and end_ns < SILENCE_NS + max(self._owed_since_ns, self._clock_ns):
            return None
        text = f"PSN {self._owed[0] % _MODULUS} was never acknowledged"
        return self._owed[1], Flaw("unanswered", text)
