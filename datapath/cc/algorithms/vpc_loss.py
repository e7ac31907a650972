# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What losses tell vpc: the usual share of them, a full buffer, or the rate of a policer."""

import math
from typing import TYPE_CHECKING

from datapath.cc.algorithms.vpc_target import (
    BITS_NS,
    MOST_CHANGE,
    NONE_YET,
    share_of_length,
    target_ns,
)

if TYPE_CHECKING:
    from datapath.cc import Ack
    from datapath.cc.algorithms.vpc import Vpc

MOST_CROWDED = 0.075  # loss above the usual that is remembered, at most
LOSS_BATCH, POLICED_BATCH = 32, 64  # packets over which a share of loss is taken, at least
USUAL_MOST, SURE_EXCESS = 0.15, 0.05  # most of what is usual, and what above it always counts
PROBE = 0.02  # of the rate behind a policer, per batch, times `share_of_length`


def heed_loss(flow: "Vpc", ack: "Ack") -> None:
    """Learn the usual share of loss; far more is due to a policer or a full buffer."""
    told_bytes = ack.acked_bytes + ack.lost_bytes
    if told_bytes > 0:
        weight = min(told_bytes / (LOSS_BATCH * flow.mss_bytes), 1)
        lost = ack.lost_bytes / told_bytes
        flow.recent_loss += weight * (lost - flow.recent_loss)
        flow.crowd_loss += weight * (lost - flow.usual_loss - flow.crowd_loss)
        flow.crowd_loss = min(flow.crowd_loss, MOST_CROWDED)
    flow.batch_bytes += told_bytes
    flow.batch_lost_bytes += ack.lost_bytes
    flow.batch_queue_ns = max(flow.batch_queue_ns, flow.queue_ns)
    packets = flow.batch_bytes / flow.mss_bytes
    policed = flow.policed_bps < NONE_YET
    if packets < max(POLICED_BATCH if policed else LOSS_BATCH, 2 * flow.w):
        return
    share = flow.batch_lost_bytes / flow.batch_bytes
    excess = share - flow.usual_loss
    packet_bps = BITS_NS * flow.mss_bytes / max(flow.srtt_ns, 1)  # one per RTT
    least_bps = flow.min_window * packet_bps / 4
    # A share of n packets varies by 1 / sqrt(n).
    limit = max(flow.excess_loss * math.sqrt(LOSS_BATCH / packets), SURE_EXCESS)
    if policed:
        growth = PROBE * share_of_length(flow, flow.policed_bps / packet_bps)
        kept_bps = flow.policed_bps * (1 + growth - min(excess, MOST_CHANGE))
        flow.policed_bps = max(kept_bps, least_bps)
        if flow.policed_bps > 2 * packet_bps * flow.w:
            flow.policed_bps = NONE_YET
    elif flow.batch_queue_ns >= target_ns(flow):
        if excess > limit:
            flow.w *= 1 - min(2 * excess, MOST_CHANGE)
            flow.starting = False
    elif excess > 2 * limit:
        rate_bps = BITS_NS * (1 - share) * flow.batch_bytes / max(ack.now_ns - flow.batch_ns, 1)
        if rate_bps >= max(2 * abs(rate_bps - flow.suspect_bps), least_bps):  # again: no burst
            flow.policed_bps, flow.starting = rate_bps, False
            rate_bps = 0.0
        flow.suspect_bps = rate_bps
    else:
        flow.suspect_bps = 0
    if flow.queue_ns < target_ns(flow) and flow.suspect_bps == 0:
        change = min(share, USUAL_MOST) - flow.usual_loss
        flow.usual_loss += change / (64 if policed and change > 0 else 8)
    forget_losses(flow)


def forget_losses(flow: "Vpc") -> None:
    flow.batch_ns = flow.now_ns
    flow.batch_bytes = flow.batch_lost_bytes = flow.batch_queue_ns = 0
