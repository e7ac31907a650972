# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""TIMELY: a sending rate that follows the gradient of the RTT."""

from datapath.cc import Ack, Flow, algorithm, param, state
from datapath.cc.algorithms.base_rtt import learn_base_rtt


@algorithm(
    "timely",
    source="Mittal et al., SIGCOMM 2015, algorithm 1; "
    "patched: Zhu et al., CoNEXT 2016, section 4.3, algorithm 2",
)
class Timely(Flow):
    """Rate control by RTT, updated once per segment of `segment_bytes`.

    Below `t_low_ns` the rate grows by `delta_bps`; above `t_high_ns` it shrinks
    by `beta` of the excess, whatever the gradient.  Between them a gradient of
    the smoothed RTT that is not positive adds `delta_bps`, five times as much
    after `n_hai` segments in a row; a positive one takes off its share.

    As published, the queue that results depends on where the flows started:
    the gradient is zero at any delay.  With `patched` the rate is also drawn
    toward `rtt_ref_ns`: R <- delta (1 - w) + R (1 - beta_patched w (RTT -
    RTT_ref) / RTT_ref), w rising from 0 to 1 with the gradient (-1/4 to 1/4), and the
    delay settles in one place.  The default is the published one.

    A flow starts at the rate of its port (section 5.1 divides it by the flows of
    the host, which one flow cannot know).  There is no window and loss changes
    nothing: TIMELY runs on lossless networks.  The thresholds are absolute, so
    on a path with a base RTT above `t_low_ns` both must be raised.
    """

    alpha: float = param(0.875, min=0.001, max=1, doc="weight of the newest RTT difference")
    beta: float = param(0.8, min=0, max=1, doc="multiplicative decrease")
    delta_bps: float = param(10e6, unit="bit/s", min=1, doc="additive increase per segment")
    t_low_ns: float = param(
        50_000, unit="ns", min=0, above_rtt=True, doc="RTT below which the rate grows"
    )
    t_high_ns: float = param(500_000, unit="ns", min=1, doc="RTT above which it shrinks")
    n_hai: int = param(5, min=1, doc="segments after which increase is five times as fast")
    segment_bytes: float = param(16384, unit="bytes", min=1, doc="bytes between two updates")
    min_rate_bps: float = param(10e6, unit="bit/s", min=1000, doc="least rate")
    unknown_line_rate_bps: float = param(
        10e9, unit="bit/s", min=1e6, doc="taken for the port's rate where that is not known"
    )
    patched: bool = param(False, doc="algorithm 2 of the CoNEXT paper between the thresholds")
    rtt_ref_ns: float = param(50_000, unit="ns", min=1, doc="patched: RTT that the flows settle at")
    beta_patched: float = param(0.008, min=0, max=1, doc="patched: multiplicative decrease")

    lowest_rtt_ns: float = state()
    rate_bps: float = state()
    prev_rtt_ns: float = state()
    rtt_diff_ns: float = state()
    falling: int = state(0)
    counted_bytes: float = state()

    def on_init(flow) -> None:
        flow.lowest_rtt_ns = flow.min_rtt_ns
        flow.rate_bps = port_rate(flow)
        flow.prev_rtt_ns = 0
        flow.rtt_diff_ns = 0
        flow.falling = 0
        flow.counted_bytes = 0
        apply(flow)

    def on_ack(flow, ack: Ack) -> None:
        learn_base_rtt(flow)
        flow.counted_bytes += ack.acked_bytes
        if ack.rtt_ns > 0 and flow.counted_bytes >= flow.segment_bytes:
            flow.counted_bytes = 0
            if flow.prev_rtt_ns > 0:
                update(flow, ack.rtt_ns, gradient(flow, ack.rtt_ns))
            flow.prev_rtt_ns = ack.rtt_ns
        apply(flow)


def gradient(flow: Timely, new_rtt_ns: float) -> float:
    """Smoothed difference of two RTTs, as a share of the lowest (lines 1 to 4)."""
    new_rtt_diff_ns = new_rtt_ns - flow.prev_rtt_ns
    flow.rtt_diff_ns = (1 - flow.alpha) * flow.rtt_diff_ns + flow.alpha * new_rtt_diff_ns
    return flow.rtt_diff_ns / max(flow.lowest_rtt_ns, 1)


def update(flow: Timely, rtt_ns: float, normalized_gradient: float) -> None:
    """Algorithm 1 from line 5 on, or algorithm 2 of the patch."""
    flow.falling = min(flow.falling + 1, flow.n_hai) if normalized_gradient <= 0 else 0
    rate = flow.rate_bps
    if rtt_ns < flow.t_low_ns:
        rate += flow.delta_bps
    elif rtt_ns > flow.t_high_ns:
        rate *= 1 - flow.beta * (1 - flow.t_high_ns / rtt_ns)
    elif flow.patched:
        weight = min(max(2 * normalized_gradient + 0.5, 0), 1)
        error = (rtt_ns - flow.rtt_ref_ns) / flow.rtt_ref_ns
        rate = flow.delta_bps * (1 - weight) + rate * (1 - flow.beta_patched * weight * error)
    elif normalized_gradient <= 0:
        rate += (5 if flow.falling >= flow.n_hai else 1) * flow.delta_bps
    else:
        rate *= max(1 - flow.beta * normalized_gradient, 0)
    flow.rate_bps = rate


def port_rate(flow: Timely) -> float:
    """The most that a flow may send."""
    return flow.line_rate_bps if flow.line_rate_bps > 0 else flow.unknown_line_rate_bps


def apply(flow: Timely) -> None:
    """A rate within its limits, and a window that does not bind."""
    flow.rate_bps = min(max(flow.rate_bps, flow.min_rate_bps), port_rate(flow))
    flow.pacing_rate_bps = flow.rate_bps
    flow.cwnd_bytes = flow.max_cwnd_bytes
