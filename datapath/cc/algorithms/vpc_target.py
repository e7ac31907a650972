# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long the packets of a flow of vpc may queue: its target, and what changes the target."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datapath.cc.algorithms.vpc import Vpc

BITS_NS = 8e9  # bytes per ns to bit/s
NONE_YET = 1e18  # of minima and bounds
MOST_CHANGE = 0.5  # of the window: by delay, per RTT; of it or a policer's rate: by loss, per batch
SCALED_BYTES = 4096  # windows are scaled by packets of so many bytes, at most
LONGEST_NS = 250_000  # longer base RTTs have the target of this one
FAIR_NS = 500_000  # with longer ones a window has the target of a smaller one
LONG_NS, LONG_PACKETS = 5_000_000, 10  # RTT and window beyond which mistakes cost most
SLOW_NS = 9_000_000  # RTT beyond which starts end later, windows grow faster, and any wander counts
WANDERS = 0.02  # of a shorter RTT: less wander may be the queue of another flow
LEAST_PACKETS = 10  # shorter ones have the target of these, at line rate
QUIET = 0.1  # of the length: mean changes that are no jitter, but packets of other flows
NARROWING, MOST_NARROWED = 12, 0.9  # of the target, per share lost above the usual
UNCROWDED = 0.05  # crowding below which a flow believes what it saw of others
ROOMY_PACKETS, FEW_PACKETS = 2, 5  # windows beyond which there is room, and up to which few count


def target_ns(flow: "Vpc") -> float:
    """Queueing delay aimed at, for the window as it is."""
    slack_ns = flow.slack * min(flow.base_ns, LONGEST_NS) + 2 * noise_ns(flow)
    return (1 - crowding(flow)) * (share_of_length(flow, flow.w) * length_ns(flow) + slack_ns)


def room_ns(flow: "Vpc") -> float:
    """Delay up to which the window grows: on long paths jitter has as much again."""
    return target_ns(flow) + 2 * noise_ns(flow) * long_path(flow)


def share_of_length(flow: "Vpc", w: float) -> float:
    """The target for a window of `w` packets; equal bytes have equal targets."""
    scaled = max(w * math.sqrt(min(FAIR_NS / flow.base_ns, 1)), flow.min_window)
    scaled *= min(flow.mss_bytes / SCALED_BYTES, 1)
    return flow.target + flow.scaling / math.sqrt(scaled)


def length_ns(flow: "Vpc") -> float:
    """Base RTT of which the target is a share: within its limits."""
    packet_bytes = min(flow.mss_bytes, SCALED_BYTES)
    packets_ns = LEAST_PACKETS * BITS_NS * packet_bytes / max(flow.line_rate_bps, 1)
    return min(max(flow.base_ns, packets_ns if flow.line_rate_bps > 0 else 0), LONGEST_NS)


def noise_ns(flow: "Vpc") -> float:
    """Jitter beyond the changes that a queue of whole packets makes."""
    wanders = flow.min_rtt_ns > SLOW_NS or flow.wander_ns > WANDERS * flow.min_rtt_ns
    changes_ns = max(flow.jitter_ns, flow.wander_ns if wanders else 0.0)
    return max(changes_ns - QUIET * length_ns(flow), 0)


def long_path(flow: "Vpc") -> bool:
    """A window of many packets over a long RTT takes long to come back when it was wrong."""
    return flow.min_rtt_ns > LONG_NS and flow.w > LONG_PACKETS


def crowding(flow: "Vpc") -> float:
    """How sure it is that a buffer overflows, and no RTT is the empty path's: 0 to 0.9."""
    return min(NARROWING * max(flow.recent_loss - flow.usual_loss, 0), MOST_NARROWED)


def roomy(flow: "Vpc") -> bool:
    """There is room for packets of this flow, so it need not make room for others often."""
    uncrowded = crowding(flow) < UNCROWDED
    return flow.min_rtt_ns > FAIR_NS and flow.w > ROOMY_PACKETS and uncrowded


def kept_of_few(flow: "Vpc", held: float) -> float:
    """Least window after a cut, when the path holds `held` packets: with fewer it would idle.

    Packets are sent whole, and a window of 4.6 of them sends four.
    """
    more = min(held / 4, 0.5)
    return (min(held, FEW_PACKETS) + more) if roomy(flow) else 0.0
