# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long a flow takes on an idle path, and its bytes on the wire, headers included.

The delays of both ways, the time that its bytes, headers included, take at the rate of the path's
slowest link, that of its first packet on each link before that one and of its last packet on each
link behind it (or of the one before, if the last one is so short that it catches up and waits for
it), and that of an acknowledgement on the way back.
A flow's slowdown is its completion time over that.  The HPCC artefact (CalculateRoute and qp_finish
in third.cc) differs in that it adds a full packet on the slowest link, too, however short the flow
is, and no acknowledgement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from datapath.verbs import sizes

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows
    from datapath.fabric.ways import Ways
    from datapath.verbs.spec import Transport

_ETHERNET = 14 + 24  # header; FCS, preamble and gap, as link/link.h counts them
_IPV4 = 20
_UDP = 8
_BTH_ICRC = 12 + 4
_XDH = 20  # of extended mode, docs/extended-mode.md
_RETH = 16
_AETH = 4
_TCP = 20 + 12  # with time stamps
_ACKNOWLEDGEMENT = _ETHERNET + _IPV4 + _UDP + _BTH_ICRC + _AETH
"""The shortest one; those of extended mode are longer."""


@dataclass(frozen=True)
class Framing:
    """How messages become packets.

    payload: bytes in a full packet.  overhead: bytes on the wire beside them.
    once: further bytes in the first packet of a message.  last: likewise in its last one, if that
    is another.
    """

    payload: int
    overhead: int
    once: int = 0
    last: int = 0

    def wire_bytes(self, sizes: Any, message_bytes: Any) -> Any:
        """Of flows: payload with all headers.  message_bytes 0: one message; shape as given."""
        sizes = np.asarray(sizes, np.float64)
        each = np.asarray(message_bytes, np.float64)
        each = np.where((each == 0) | (each > sizes), sizes, each)
        whole = np.floor(sizes / np.maximum(each, 1))
        rest = sizes - whole * each
        packets = whole * np.ceil(each / self.payload) + np.ceil(rest / self.payload)
        several = whole * (each > self.payload) + (rest > self.payload)
        further = (whole + (rest > 0)) * self.once + several * self.last
        return sizes + packets * self.overhead + further

    def first_bytes(self, sizes: Any, message_bytes: Any) -> Any:
        """On the wire, of the first packet of flows; arguments as of wire_bytes()."""
        sizes = np.asarray(sizes, np.float64)
        each = np.asarray(message_bytes, np.float64)
        most = np.where(each == 0, self.payload, np.minimum(each, self.payload))
        return np.minimum(sizes, most) + self.overhead + self.once

    def ends(self, sizes: Any, message_bytes: Any) -> tuple[Any, Any]:
        """Likewise of the last packet and of the one before it; of that 0 if there is none."""
        sizes = np.asarray(sizes, np.float64)
        each = np.asarray(message_bytes, np.float64)
        each = np.where((each == 0) | (each > sizes), sizes, each)
        message = sizes - (np.ceil(sizes / np.maximum(each, 1)) - 1) * each
        packets = np.ceil(message / self.payload)
        payload = message - (packets - 1) * self.payload
        last = payload + self.overhead + np.where(packets == 1, self.once, self.last)
        before: Any = 0.0
        if np.any(message < sizes):  # the last packet of the message before
            before = np.where(message < sizes, self.ends(each, 0)[0], 0.0)
        full = self.payload + self.overhead + np.where(packets == 2, self.once, 0)
        return last, np.where(packets > 1, full, before)

    @property
    def payload_share(self) -> float:
        """Share of a line that the headers of full packets leave to payload."""
        return self.payload / (self.payload + self.overhead)


def framing(transport: Transport, mtu: int, operation: str = "write") -> Framing:
    """Of an operation with a transport section, on a device with this MTU, over IPv4.

    In extended mode each packet of a WRITE has a RETH, in standard mode the first one; there a
    READ's answer has an AETH in its first and its last.  Simulated packets are as long as live
    ones.  Room for telemetry is not counted.
    """
    if transport.device == "kernel":
        return Framing(mtu - _IPV4 - _TCP, _ETHERNET + _IPV4 + _TCP)
    payload = sizes.path_mtu(mtu, transport.path_mtu)
    extended = transport.device == "dp" and transport.mode == "auto"
    overhead = _ETHERNET + _IPV4 + _UDP + _BTH_ICRC + (_XDH if extended else 0)
    once = {"write": _RETH, "read": _AETH, "send": 0}[operation]
    if extended:
        overhead, once = overhead + (_RETH if operation == "write" else 0), 0
    if extended:
        asked = transport.options.segment or 0
        payload = sizes.segment(mtu, payload, asked=asked, afxdp=transport.port == "afxdp")
    return Framing(payload, overhead, once, last=once if operation == "read" else 0)


@dataclass(frozen=True)
class Ideal:
    """The idle path of a flow.

    framing: how messages become packets.  ways: those of the network; None: all that is known of
    it are two numbers.  rate_bps: of the slowest link, in place of what the ways say.
    base_rtt_ns: what the first byte and the acknowledgement take, likewise.  reads: payload goes
    from `dst` to `src`.
    """

    framing: Framing
    rate_bps: float | None = None
    base_rtt_ns: float | None = None
    ways: Ways | None = None
    reads: bool = False

    @property
    def knows_rtt(self) -> bool:
        return self.base_rtt_ns is not None or self.ways is not None

    def fct_ns(self, flows: Flows) -> Any:
        """Completion time of each flow if it were alone, shape (flows,); NaN: not known."""
        rtt_ns: Any = np.nan
        byte_ns: Any = np.nan
        before_ns: Any = 0.0  # of a byte on all links before the slowest
        behind_ns: Any = 0.0
        last_ns: Any = 0.0  # of the last link
        if self.ways is not None:
            there, back = self.ways.there_and_back(flows["src"], flows["dst"])
            if self.reads:
                there, back = back, there
            rtt_ns = there.delay_ns + back.delay_ns + _ACKNOWLEDGEMENT * back.byte_ns
            byte_ns = np.where(there.slowest_byte_ns > 0, there.slowest_byte_ns, np.nan)
            behind_ns, last_ns = there.behind_byte_ns, there.last_byte_ns
            before_ns = there.byte_ns - there.slowest_byte_ns - behind_ns
        if self.rate_bps is not None:
            byte_ns = 8e9 / self.rate_bps
            last_ns = np.fmin(last_ns, byte_ns)
        if self.base_rtt_ns is not None:
            rtt_ns = self.base_rtt_ns
        size = flows["bytes"], flows["message_bytes"]
        first, wire = self.framing.first_bytes(*size), self.framing.wire_bytes(*size)
        last, before_last = self.framing.ends(*size)
        # The last packet leaves the slowest link, or waits behind the one before it on the last.
        end_ns = np.maximum(last * (byte_ns + behind_ns), before_last * behind_ns + last * last_ns)
        return rtt_ns + (wire - last) * byte_ns + first * before_ns + end_ns
