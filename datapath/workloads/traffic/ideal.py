# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long a flow takes on an idle path, and what its bytes weigh on the wire.

As in the HPCC artefact: base RTT plus the time that its bytes, headers included, take at the
rate of the slowest link.  A flow's slowdown is its completion time over that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pydantic

    from datapath.fabric.flows import Flows

_ETHERNET = 14 + 24  # header; FCS, preamble and gap, as link/link.h counts them
_IPV4 = 20
_IPV6 = 40
_UDP = 8
_BTH_ICRC = 12 + 4
_XDH = 20  # of extended mode, docs/extended-mode.md
_RETH = 16
_AETH = 4
_TCP = 20 + 12  # with time stamps
_PATH_MTUS = (4096, 2048, 1024, 512, 256)
_ROCE_HEADROOM = 104  # docs/verbs.md: what the headers of a packet may take, over IPv6
_SEGMENT_MAX = 8960
_AFXDP_SEGMENT = 7552


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
        """What the headers of full packets leave of a line."""
        return self.payload / (self.payload + self.overhead)


def framing(transport: pydantic.BaseModel, mtu: int, operation: str = "write") -> Framing:
    """Of an operation with a transport section, on a device with this MTU, over IPv4.

    In extended mode each packet of a WRITE has a RETH, in standard mode the first one; a READ's
    answer has an AETH in its first and its last.  Simulated packets are as long as live ones.
    Room for telemetry is not counted.
    """
    device = getattr(transport, "device", "kernel")
    if device == "kernel":
        return Framing(mtu - _IPV4 - _TCP, _ETHERNET + _IPV4 + _TCP)
    asked = int(getattr(transport, "path_mtu", _PATH_MTUS[0]))
    payload = _path_mtu(min(mtu - _ROCE_HEADROOM, asked))
    extended = device == "dp" and getattr(transport, "mode", "auto") == "auto"
    overhead = _ETHERNET + _IPV4 + _UDP + _BTH_ICRC + (_XDH if extended else 0)
    once = {"write": _RETH, "read": 2 * _AETH, "send": 0}[operation]
    if extended and operation == "write":
        overhead, once = overhead + _RETH, 0
    if extended:
        payload = _segment(transport, mtu, payload)
    return Framing(payload, overhead, once)


def _path_mtu(most: int) -> int:
    return next((size for size in _PATH_MTUS if size <= most), _PATH_MTUS[-1])


def _segment(transport: pydantic.BaseModel, mtu: int, path_mtu: int) -> int:
    """docs/extended-mode.md, longer packets: what the port carries, in whole cache lines."""
    asked = getattr(getattr(transport, "options", None), "segment", None)
    carried = min(mtu - _ROCE_HEADROOM + (_IPV6 - _IPV4), _SEGMENT_MAX) // 64 * 64
    if getattr(transport, "port", "udp") == "afxdp":
        carried = min(carried, _AFXDP_SEGMENT)
    if asked is not None:
        return min(int(asked), carried)
    return path_mtu if path_mtu < _path_mtu(mtu - _ROCE_HEADROOM) else max(carried, path_mtu)


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
