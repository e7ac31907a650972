# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The base RTT of a flow: given, or the lowest RTT since the flow began.

The transport forgets `flow.min_rtt_ns` after ten seconds.  Behind a queue that never empties it
rises, and so would the target of an algorithm that took it for the base.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    class Learns(Protocol):
        """The members of a flow that learns it; lowest_rtt_ns is 0 while it is unknown."""

        min_rtt_ns: float
        lowest_rtt_ns: float

    class MayBeTold(Learns, Protocol):
        """And a parameter that may set it; a setting below 1 ns sets none."""

        base_rtt_ns: float


def learn_base_rtt(flow: "Learns") -> None:
    """To be called at each acknowledgement."""
    if flow.min_rtt_ns > 0 and (flow.lowest_rtt_ns == 0 or flow.min_rtt_ns < flow.lowest_rtt_ns):
        flow.lowest_rtt_ns = flow.min_rtt_ns


def base_rtt(flow: "MayBeTold") -> float:
    """In ns; 0 while unknown."""
    return flow.base_rtt_ns if flow.base_rtt_ns >= 1 else flow.lowest_rtt_ns
