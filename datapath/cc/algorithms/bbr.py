# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""BBR, version 1: a model of the path from its delivery rate and its lowest RTT."""

from datapath.cc import Ack, Flow, Loss, algorithm, param, state
from datapath.cc.algorithms.episodes import PASSED

BITS_NS = 8e9  # bytes per ns to bit/s
STARTUP, DRAIN, PROBE_BW, PROBE_RTT = 0, 1, 2, 3
PACING_GAINS = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)  # section 4.3.4.2
ROUNDS = 10  # BtlBwFilterLen
MIN_PIPE_PACKETS = 4  # BBRMinPipeCwnd


@algorithm("bbr", source="draft-cardwell-iccrg-bbr-congestion-control-00, section 4 (version 1)")
class Bbr(Flow):
    """Sends at the bottleneck bandwidth that was measured, with two BDP at most in flight.

    BtlBw is the largest delivery rate of the last ten rounds, RTprop the lowest
    RTT of `rtprop_filter_len_ns`.  Startup doubles the rate each round until
    three rounds bring less than a quarter more; Drain empties the queue that
    this made; ProbeBW cycles the pacing gain through eight phases of one RTprop
    each; ProbeRTT goes down to four packets for `probe_rtt_duration_ns`
    when RTprop is old.  Loss limits the window to what is delivered for one
    round (section 4.2.3.4); a time-out to one packet.

    Differences from the draft: the quanta that it adds to the window for
    segmentation offload (three times 64 KB at 1 Gbit/s) are `send_quantum`
    packets, as packets leave one by one; while no RTT is known the first window
    is not paced, where the draft takes an RTT of 1 ms; the first phase of ProbeBW
    is chosen by the clock, as there is no random number.  A transport without delivery-rate
    samples (standard mode) leaves it in Startup with a doubling window that
    loss holds.
    """

    high_gain: float = param(2.89, min=1.1, max=10, doc="gain of Startup, 2 / ln 2")
    cwnd_gain: float = param(2, min=1, max=10, doc="window in ProbeBW, in BDP")
    rtprop_filter_len_ns: float = param(10e9, unit="ns", min=1e6, doc="how long an RTT is believed")
    probe_rtt_duration_ns: float = param(200e6, unit="ns", min=0, doc="how long ProbeRTT lasts")
    initial_window: float = param(10, unit="packets", min=1, doc="window of a new flow")
    send_quantum: float = param(1, unit="packets", min=0, doc="three of these widen the window")

    mode: int = state(STARTUP)
    pacing_gain: float = state(1)
    gain: float = state(1)
    btl_bw_bps: float = state()
    bw_of_round_bps: list[float] = state(length=ROUNDS)
    round_count: int = state(0)
    round_start: bool = state(False)
    next_round_bytes: float = state()
    rtprop_ns: float = state()
    rtprop_stamp_ns: float = state()
    rtprop_expired: bool = state(False)
    filled_pipe: bool = state(False)
    full_bw_bps: float = state()
    full_bw_count: int = state(0)
    cycle_index: int = state(0)
    cycle_stamp_ns: float = state()
    prior_inflight_bytes: float = state()
    probe_rtt_done_ns: float = state()
    probe_rtt_round_done: bool = state(False)
    limited_until_bytes: float = state(-1)
    prior_cwnd_bytes: float = state()
    recover_bytes: float = state(-1)
    packet_conservation: bool = state(False)

    def on_init(flow) -> None:
        for i in range(ROUNDS):
            flow.bw_of_round_bps[i] = 0.0
        flow.btl_bw_bps = 0
        flow.round_count = 0
        flow.next_round_bytes = flow.delivered_bytes
        flow.rtprop_ns = flow.srtt_ns
        flow.rtprop_stamp_ns = flow.now_ns
        flow.filled_pipe = False
        flow.full_bw_bps = 0
        flow.full_bw_count = 0
        flow.probe_rtt_done_ns = 0
        flow.limited_until_bytes = -1
        flow.recover_bytes = -1
        flow.packet_conservation = False
        flow.prior_cwnd_bytes = 0
        enter_startup(flow)
        set_window(flow, flow.initial_window * flow.mss_bytes)
        start_pacing(flow)

    def on_ack(flow, ack: Ack) -> None:
        update_round(flow, ack)
        update_btl_bw(flow, ack)
        if flow.mode == PROBE_BW:
            check_cycle_phase(flow, ack)
        check_full_pipe(flow, ack)
        check_drain(flow, ack)
        update_rtprop(flow, ack)
        check_probe_rtt(flow, ack)
        set_pacing_rate(flow)
        set_cwnd(flow, ack)
        flow.prior_inflight_bytes = ack.inflight_bytes

    def on_loss(flow, loss: Loss) -> None:
        if flow.recover_bytes < 0:
            save_cwnd(flow)
            flow.packet_conservation = True
            flow.recover_bytes = flow.delivered_bytes + PASSED
            flow.next_round_bytes = flow.delivered_bytes
            set_window(flow, loss.inflight_bytes + flow.mss_bytes)

    def on_timeout(flow, now_ns: float) -> None:
        if flow.recover_bytes < 0:
            save_cwnd(flow)
        flow.packet_conservation = False
        flow.recover_bytes = flow.delivered_bytes + PASSED
        set_window(flow, flow.mss_bytes)


def update_round(flow: Bbr, ack: Ack) -> None:
    """Section 4.1.1.3; a round later the loss episode is over, too (4.2.3.4)."""
    flow.round_start = ack.prior_delivered_bytes >= flow.next_round_bytes
    if flow.round_start:
        flow.next_round_bytes = ack.delivered_bytes
        flow.round_count += 1
        flow.packet_conservation = False
        flow.bw_of_round_bps[flow.round_count % ROUNDS] = 0.0
    if flow.recover_bytes >= 0 and ack.prior_delivered_bytes >= flow.recover_bytes:
        flow.recover_bytes = -1
        flow.packet_conservation = False
        set_window(flow, max(flow.cwnd_bytes, flow.prior_cwnd_bytes))


def update_btl_bw(flow: Bbr, ack: Ack) -> None:
    """Section 4.1.1.4: the largest sample of each of the last ten rounds."""
    rate_bps = ack.delivery_rate_bps
    slot = flow.round_count % ROUNDS
    limited = ack.app_limited != 0 or ack.prior_delivered_bytes <= flow.limited_until_bytes
    if rate_bps >= flow.btl_bw_bps or not limited:
        flow.bw_of_round_bps[slot] = max(flow.bw_of_round_bps[slot], rate_bps)
    largest = 0.0
    for i in range(ROUNDS):
        largest = max(largest, flow.bw_of_round_bps[i])
    if largest > 0:
        flow.btl_bw_bps = largest


def update_rtprop(flow: Bbr, ack: Ack) -> None:
    """Section 4.1.2.3."""
    flow.rtprop_expired = ack.now_ns > flow.rtprop_stamp_ns + flow.rtprop_filter_len_ns
    if ack.rtt_ns > 0 and (
        flow.rtprop_ns <= 0 or ack.rtt_ns <= flow.rtprop_ns or flow.rtprop_expired
    ):
        flow.rtprop_ns = ack.rtt_ns
        flow.rtprop_stamp_ns = ack.now_ns


def check_full_pipe(flow: Bbr, ack: Ack) -> None:
    """Section 4.3.2.2: three rounds without a quarter more bandwidth."""
    if flow.filled_pipe or not flow.round_start or ack.app_limited != 0 or flow.btl_bw_bps <= 0:
        return
    if flow.btl_bw_bps >= flow.full_bw_bps * 1.25:
        flow.full_bw_bps = flow.btl_bw_bps
        flow.full_bw_count = 0
        return
    flow.full_bw_count += 1
    flow.filled_pipe = flow.full_bw_count >= 3


def check_drain(flow: Bbr, ack: Ack) -> None:
    """Sections 4.3.2.2 and 4.3.3."""
    if flow.mode == STARTUP and flow.filled_pipe:
        flow.mode = DRAIN
        flow.pacing_gain = 1 / flow.high_gain
        flow.gain = flow.high_gain
    if flow.mode == DRAIN and ack.inflight_bytes <= inflight(flow, 1.0):
        enter_probe_bw(flow, ack.now_ns)


def enter_startup(flow: Bbr) -> None:
    flow.mode = STARTUP
    flow.pacing_gain = flow.high_gain
    flow.gain = flow.high_gain


def enter_probe_bw(flow: Bbr, now_ns: float) -> None:
    """Section 4.3.4.2: any phase but the one of 0.75 may be the first."""
    flow.mode = PROBE_BW
    flow.gain = flow.cwnd_gain
    flow.cycle_index = 7 - int(now_ns // 1000 % 7)
    advance_cycle_phase(flow, now_ns)


def check_cycle_phase(flow: Bbr, ack: Ack) -> None:
    """Section 4.3.4.3: a phase lasts one RTprop; 1.25 until it shows, 0.75 until it is drained."""
    full_length = ack.now_ns - flow.cycle_stamp_ns > flow.rtprop_ns
    if flow.pacing_gain > 1:
        next_phase = full_length and (
            ack.lost_bytes > 0 or flow.prior_inflight_bytes >= inflight(flow, flow.pacing_gain)
        )
    elif flow.pacing_gain < 1:
        next_phase = full_length or flow.prior_inflight_bytes <= inflight(flow, 1.0)
    else:
        next_phase = full_length
    if next_phase:
        advance_cycle_phase(flow, ack.now_ns)


def advance_cycle_phase(flow: Bbr, now_ns: float) -> None:
    flow.cycle_stamp_ns = now_ns
    flow.cycle_index = (flow.cycle_index + 1) % len(PACING_GAINS)
    flow.pacing_gain = PACING_GAINS[flow.cycle_index]


def check_probe_rtt(flow: Bbr, ack: Ack) -> None:
    """Section 4.3.5.  Samples of what leaves with the small window count as limited."""
    if flow.mode != PROBE_RTT and flow.rtprop_expired:
        flow.mode = PROBE_RTT
        flow.pacing_gain = 1
        flow.gain = 1
        save_cwnd(flow)
        flow.probe_rtt_done_ns = 0
    if flow.mode != PROBE_RTT:
        return
    flow.limited_until_bytes = ack.delivered_bytes + ack.inflight_bytes
    if flow.probe_rtt_done_ns == 0:
        if ack.inflight_bytes <= MIN_PIPE_PACKETS * flow.mss_bytes:
            flow.probe_rtt_done_ns = ack.now_ns + flow.probe_rtt_duration_ns
            flow.probe_rtt_round_done = False
            flow.next_round_bytes = ack.delivered_bytes
        return
    if flow.round_start:
        flow.probe_rtt_round_done = True
    if flow.probe_rtt_round_done and ack.now_ns > flow.probe_rtt_done_ns:
        flow.rtprop_stamp_ns = ack.now_ns
        set_window(flow, max(flow.cwnd_bytes, flow.prior_cwnd_bytes))
        if flow.filled_pipe:
            enter_probe_bw(flow, ack.now_ns)
        else:
            enter_startup(flow)


def inflight(flow: Bbr, gain: float) -> float:
    """Section 4.2.3.2: bytes in flight at a gain."""
    if flow.rtprop_ns <= 0 or flow.btl_bw_bps <= 0:
        return flow.initial_window * flow.mss_bytes
    bdp = flow.btl_bw_bps * flow.rtprop_ns / BITS_NS
    return gain * bdp + 3 * flow.send_quantum * flow.mss_bytes


def start_pacing(flow: Bbr) -> None:
    """Section 4.2.1: the first rate, from the first window and an RTT if one is known."""
    flow.pacing_rate_bps = 0
    if flow.srtt_ns > 0:
        flow.pacing_rate_bps = flow.high_gain * BITS_NS * flow.cwnd_bytes / flow.srtt_ns


def set_pacing_rate(flow: Bbr) -> None:
    """Section 4.2.1: until the pipe is full the rate does not fall."""
    if flow.btl_bw_bps <= 0:
        if flow.pacing_rate_bps == 0:
            start_pacing(flow)
        return
    rate_bps = flow.pacing_gain * flow.btl_bw_bps
    if flow.filled_pipe or rate_bps > flow.pacing_rate_bps:
        flow.pacing_rate_bps = rate_bps


def set_cwnd(flow: Bbr, ack: Ack) -> None:
    """Sections 4.2.3.4 to 4.2.3.6."""
    target = inflight(flow, flow.gain)
    cwnd = flow.cwnd_bytes
    if flow.packet_conservation:
        cwnd = max(cwnd, ack.inflight_bytes + ack.acked_bytes)
    else:
        if flow.filled_pipe:
            cwnd = min(cwnd + ack.acked_bytes, target)
        elif cwnd < target or ack.delivered_bytes < flow.initial_window * flow.mss_bytes:
            cwnd += ack.acked_bytes
        cwnd = max(cwnd, MIN_PIPE_PACKETS * flow.mss_bytes)
    if flow.mode == PROBE_RTT:
        cwnd = min(cwnd, MIN_PIPE_PACKETS * flow.mss_bytes)
    set_window(flow, cwnd)


def save_cwnd(flow: Bbr) -> None:
    """Section 4.2.3.4: the window to come back to."""
    if flow.recover_bytes < 0 and flow.mode != PROBE_RTT:
        flow.prior_cwnd_bytes = flow.cwnd_bytes
    else:
        flow.prior_cwnd_bytes = max(flow.prior_cwnd_bytes, flow.cwnd_bytes)


def set_window(flow: Bbr, cwnd_bytes: float) -> None:
    """At least one packet, at most the window that the transport can track."""
    flow.cwnd_bytes = min(max(cwnd_bytes, flow.mss_bytes), flow.max_cwnd_bytes)
