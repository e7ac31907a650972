# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long a flow takes on an idle path, and its bytes on the wire, headers included.

As in the HPCC artefact: base RTT plus the time that its bytes, headers included, take at the
rate of the slowest link.  A flow's slowdown is its completion time over that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from datapath.verbs import sizes

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows
    from datapath.verbs.spec import Transport

_ETHERNET = 14 + 24  # header; FCS, preamble and gap, as link/link.h counts them
_IPV4 = 20
_UDP = 8
_BTH_ICRC = 12 + 4
_XDH = 20  # of extended mode, docs/extended-mode.md
_RETH = 16
_AETH = 4
_TCP = 20 + 12  # with time stamps


@dataclass(frozen=True)
class Framing:
    """How messages become packets.

    payload: bytes in a full packet.  overhead: bytes on the wire beside them.
    once: further bytes in the first packet of a message.
    """

    payload: int
    overhead: int
    once: int = 0

    def wire_bytes(self, sizes: Any, message_bytes: Any) -> Any:
        """Of flows: payload with all headers.  message_bytes 0: one message; shape as given."""
        sizes = np.asarray(sizes, np.float64)
        each = np.asarray(message_bytes, np.float64)
        each = np.where((each == 0) | (each > sizes), sizes, each)
        whole = np.floor(sizes / np.maximum(each, 1))
        rest = sizes - whole * each
        packets = whole * np.ceil(each / self.payload) + np.ceil(rest / self.payload)
        return sizes + packets * self.overhead + (whole + (rest > 0)) * self.once

    @property
    def payload_share(self) -> float:
        """Share of a line that the headers of full packets leave to payload."""
        return self.payload / (self.payload + self.overhead)


def framing(transport: Transport, mtu: int, operation: str = "write") -> Framing:
    """Of an operation with a transport section, on a device with this MTU, over IPv4.

    In extended mode each packet of a WRITE has a RETH, in standard mode the first one; a READ's
    answer has an AETH in its first and its last.  Simulated packets are as long as live ones.
    Room for telemetry is not counted.
    """
    if transport.device == "kernel":
        return Framing(mtu - _IPV4 - _TCP, _ETHERNET + _IPV4 + _TCP)
    payload = sizes.path_mtu(mtu, transport.path_mtu)
    extended = transport.device == "dp" and transport.mode == "auto"
    overhead = _ETHERNET + _IPV4 + _UDP + _BTH_ICRC + (_XDH if extended else 0)
    once = {"write": _RETH, "read": 2 * _AETH, "send": 0}[operation]
    if extended and operation == "write":
        overhead, once = overhead + _RETH, 0
    if extended:
        asked = transport.options.segment or 0
        payload = sizes.segment(mtu, payload, asked=asked, afxdp=transport.port == "afxdp")
    return Framing(payload, overhead, once)


@dataclass(frozen=True)
class Ideal:
    """The idle path between any two hosts.

    rate_bps: of the slowest link.  framing: how messages become packets.  base_rtt_ns: both ways
    of a small packet; one value, an array of shape (hosts, hosts), or None: not known.
    """

    rate_bps: float
    framing: Framing
    base_rtt_ns: Any = None

    def fct_ns(self, flows: Flows) -> Any:
        """Completion time of each flow if it were alone; shape (flows,)."""
        wire = self.framing.wire_bytes(flows["bytes"], flows["message_bytes"])
        rtt = np.asarray(self.base_rtt_ns, np.float64)
        if rtt.ndim:
            rtt = rtt[flows["src"], flows["dst"]]
        return rtt + wire * 8e9 / self.rate_bps
