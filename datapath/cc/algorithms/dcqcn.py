# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""DCQCN: a sending rate that ECN marks cut and that time and bytes restore."""

from datapath.cc import Ack, Flow, algorithm, param, state

MOST_STEPS = 1000  # increases made up for at one acknowledgement, after an idle time


@algorithm("dcqcn", source="Zhu et al., SIGCOMM 2015, section 3.1, equations 1 to 4, figure 7")
class Dcqcn(Flow):
    """Rate control by congestion notification packets (CNP), for marking switches.

    A CNP sets the target rate R_T to the current rate R_C, cuts R_C by alpha / 2
    and raises alpha by g (equation 1); each `alpha_timer_ns` (the paper's K)
    without CNP lowers alpha (equation 2).  A timer and a byte counter raise the
    rate: `f` rounds of fast recovery toward R_T (equation 3), then additive
    increase (equation 4), and hyper increase once both have passed `f`.

    The notification point (section 3.1, NP) sends at most one CNP per flow in
    50 us: a receiver whose device has `cnp_us=50` does.  Where none comes, the
    sender takes the marked bytes that acknowledgements echo for CNPs, at most
    one in `cnp_interval_ns`; an acknowledgement that comes 50 us late does not
    wait for another 50.  Timers are made up for at the next acknowledgement.

    A flow starts at the rate of its port, without window: DCQCN expects a
    lossless network, and loss changes nothing.  Where the path is slower than
    the port and does not mark, it overruns the queue.  The increases are the
    paper's for 40 Gbit/s; scale them with the path.  The paper gives no number
    for hyper increase; ten times additive increase is usual.
    """

    g: float = param(1 / 256, min=0.0001, max=1, doc="weight of a CNP in alpha")
    r_ai_bps: float = param(40e6, unit="bit/s", min=1, doc="additive increase, R_AI")
    r_hai_bps: float = param(400e6, unit="bit/s", min=1, doc="hyper increase, R_HAI, per step")
    f: int = param(5, min=1, max=1000, doc="F, rounds of fast recovery")
    rate_timer_ns: float = param(55_000, unit="ns", min=1000, doc="T, period of increases by time")
    byte_counter: float = param(10e6, unit="bytes", min=1000, doc="B, bytes between increases")
    alpha_timer_ns: float = param(55_000, unit="ns", min=1000, doc="K, alpha falls without CNP")
    cnp_interval_ns: float = param(
        50_000, unit="ns", min=0, doc="least time between marks that are taken for CNPs"
    )
    min_rate_bps: float = param(10e6, unit="bit/s", min=1000, doc="no CNP cuts the rate below it")
    unknown_line_rate_bps: float = param(
        40e9, unit="bit/s", min=1e6, doc="taken for the port's rate where that is not known"
    )

    r_c_bps: float = state()
    r_t_bps: float = state()
    alpha: float = state(1)
    timer_steps: int = state(0)
    byte_steps: int = state(0)
    counted_bytes: float = state()
    rate_timer_start_ns: float = state()
    alpha_timer_start_ns: float = state(-1)
    last_cnp_ns: float = state()
    congested: bool = state(False)
    notified: bool = state(False)  # the receiver sends CNPs

    def on_init(flow) -> None:
        flow.alpha = 1
        flow.congested = flow.notified = False
        flow.alpha_timer_start_ns = -1
        flow.last_cnp_ns = flow.now_ns - flow.cnp_interval_ns
        flow.r_c_bps = port_rate(flow)
        flow.r_t_bps = flow.r_c_bps
        apply(flow)

    def on_ack(flow, ack: Ack) -> None:
        if stands_for_cnp(flow, ack):
            flow.last_cnp_ns = ack.now_ns
            cut_rate(flow, ack.now_ns)
        elif flow.congested:
            count_bytes(flow, ack.acked_bytes)
            count_time(flow, ack.now_ns)
        apply(flow)

    def on_cnp(flow, now_ns: float) -> None:
        flow.notified = True
        cut_rate(flow, now_ns)
        apply(flow)


def stands_for_cnp(flow: Dcqcn, ack: Ack) -> bool:
    """Marks of a receiver that has sent no CNP so far."""
    if flow.notified or ack.marked_bytes <= 0:
        return False
    return ack.now_ns - flow.last_cnp_ns >= flow.cnp_interval_ns


def cut_rate(flow: Dcqcn, now_ns: float) -> None:
    """A CNP: equation 1, and both counters begin anew."""
    decay_alpha(flow, now_ns)
    flow.r_t_bps = flow.r_c_bps
    flow.r_c_bps = max(flow.r_c_bps * (1 - flow.alpha / 2), min(flow.min_rate_bps, flow.r_c_bps))
    flow.alpha = (1 - flow.g) * flow.alpha + flow.g
    flow.timer_steps = 0
    flow.byte_steps = 0
    flow.counted_bytes = 0
    flow.rate_timer_start_ns = now_ns
    flow.alpha_timer_start_ns = now_ns
    flow.congested = True


def decay_alpha(flow: Dcqcn, now_ns: float) -> None:
    """Equation 2, once for each period that passed since the last CNP or decay."""
    if flow.alpha_timer_start_ns < 0:
        return
    periods = (now_ns - flow.alpha_timer_start_ns) // flow.alpha_timer_ns
    if periods > 0:
        flow.alpha *= (1 - flow.g) ** periods
        flow.alpha_timer_start_ns += periods * flow.alpha_timer_ns


def count_bytes(flow: Dcqcn, acked_bytes: float) -> None:
    """The byte counter; an acknowledgement is not longer than a few of its periods."""
    flow.counted_bytes += acked_bytes
    for _ in range(MOST_STEPS):
        if flow.counted_bytes < flow.byte_counter or not flow.congested:
            break
        flow.counted_bytes -= flow.byte_counter
        flow.byte_steps += 1
        increase(flow)


def count_time(flow: Dcqcn, now_ns: float) -> None:
    """The timer; after an idle time the rate has long returned to the port's."""
    for _ in range(MOST_STEPS):
        if now_ns - flow.rate_timer_start_ns < flow.rate_timer_ns or not flow.congested:
            break
        flow.rate_timer_start_ns += flow.rate_timer_ns
        flow.timer_steps += 1
        increase(flow)


def increase(flow: Dcqcn) -> None:
    """Figure 7: fast recovery, additive increase, hyper increase."""
    least = min(flow.timer_steps, flow.byte_steps)
    if max(flow.timer_steps, flow.byte_steps) > flow.f:
        if least > flow.f:
            flow.r_t_bps += (least - flow.f) * flow.r_hai_bps
        else:
            flow.r_t_bps += flow.r_ai_bps
    line_bps = port_rate(flow)
    flow.r_t_bps = min(flow.r_t_bps, line_bps)
    flow.r_c_bps = (flow.r_t_bps + flow.r_c_bps) / 2
    if flow.r_c_bps >= line_bps * 0.9999:  # no limit: counters rest until the next CNP
        flow.r_c_bps = line_bps
        flow.congested = False


def port_rate(flow: Dcqcn) -> float:
    """The rate of a flow without congestion."""
    return flow.line_rate_bps if flow.line_rate_bps > 0 else flow.unknown_line_rate_bps


def apply(flow: Dcqcn) -> None:
    """A rate, and a window that does not bind."""
    flow.pacing_rate_bps = flow.r_c_bps
    flow.cwnd_bytes = flow.max_cwnd_bytes
