# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""HPCC: the window that in-band telemetry says the path can hold."""

from datapath.cc import Ack, Flow, algorithm, param, state
from datapath.cc.algorithms.base_rtt import base_rtt, learn_base_rtt
from datapath.cc.algorithms.links import BITS_NS, HOPS, is_known, note_links, watches


@algorithm("hpcc", source="Li et al., SIGCOMM 2019, section 3.2, algorithm 1")
class Hpcc(Flow):
    """Window control by the load of each link that telemetry (INT) reports.

    Each hop's normalised bytes in flight are u = min(qlen, qlen of the last
    acknowledgement) / (B T) + txRate / B.  U is the moving average of the
    largest; at U >= eta, or after `max_stage` additive steps, W <- W_c / (U /
    eta) + W_AI, else W <- W_c + W_AI.  W_c, the reference window, moves once
    per RTT; W is paced at W / T.

    `w_ai_bytes` 0 takes the paper's rule (section 3.3), W_init (1 - eta) / N
    with N = `n_flows`; its evaluation uses 80 bytes on 100 Gbit/s and 13 us.
    The base RTT T is the lowest measured one unless given.  The window starts
    at the bandwidth-delay product of the port and is at most that.

    Without telemetry nothing is known, and the window stays what it is; neither
    loss nor marks change it.  When the path of a flow changes, so that a hop's
    counter or clock runs backwards, its rate is another, or it seems to have sent
    more than twice what its rate allows, that hop's first record is only noted.
    Of several `paths` it watches one.
    """

    eta: float = param(0.95, min=0.1, max=1, doc="target utilisation")
    max_stage: int = param(5, min=0, max=1_000_000, doc="maxStage, additive steps in a row")
    w_ai_bytes: float = param(0, unit="bytes", min=0, doc="W_AI; 0: W_init (1 - eta) / n_flows")
    n_flows: float = param(100, min=1, doc="N, most flows expected on a link")
    base_rtt_ns: float = param(0, unit="ns", min=0, doc="T; 0: the lowest RTT measured")
    min_window: float = param(0.01, unit="packets", min=0.001, max=1, doc="least window")
    unknown_line_rate_bps: float = param(
        10e9, unit="bit/s", min=1e6, doc="taken for the port's rate where that is not known"
    )

    lowest_rtt_ns: float = state()
    w_c_bytes: float = state()
    u: float = state(1)
    inc_stage: int = state(0)
    last_update_bytes: float = state()
    known_hops: int = state(0)
    hop_path: int = state(0)
    noted_ns: float = state()
    started: bool = state(False)
    hop_queue_bytes: list[float] = state(length=HOPS)
    hop_tx_bytes: list[float] = state(length=HOPS)
    hop_ts_ns: list[float] = state(length=HOPS)
    hop_rate_bps: list[float] = state(length=HOPS)

    def on_init(flow) -> None:
        flow.u = 1
        flow.inc_stage = 0
        flow.known_hops = 0
        flow.last_update_bytes = flow.delivered_bytes
        flow.started = False
        flow.lowest_rtt_ns = flow.min_rtt_ns
        start(flow)

    def on_ack(flow, ack: Ack) -> None:
        learn_base_rtt(flow)
        if not flow.started:
            start(flow)
        hops = min(int(ack.n_hops), HOPS)
        if hops == 0 or base_rtt(flow) <= 0 or not watches(flow, ack, base_rtt(flow)):
            return
        if measure_inflight(flow, ack, hops):
            update_wc = ack.prior_delivered_bytes >= flow.last_update_bytes
            compute_wind(flow, update_wc)
            if update_wc:
                flow.last_update_bytes = ack.delivered_bytes
        note_links(flow, ack, hops)


def start(flow: Hpcc) -> None:
    """W_init = B_NIC x T, as soon as T is known; ten packets until then."""
    window = 10 * flow.mss_bytes
    if base_rtt(flow) > 0:
        window = initial_window(flow)
        flow.started = True
    set_window(flow, window)
    flow.w_c_bytes = flow.cwnd_bytes


def measure_inflight(flow: Hpcc, ack: Ack, hops: int) -> bool:
    """Lines 1 to 10: whether U could be told, which needs a record before this one.

    note_links() is line 28, L <- ack.L.
    """
    base_ns = base_rtt(flow)
    u, tau_ns = 0.0, 0.0
    for i in range(min(hops, flow.known_hops)):
        hop = ack.hop[i]
        if not is_known(flow, hop, i):
            continue
        elapsed_ns = hop.ts_ns - flow.hop_ts_ns[i]
        tx_rate_bps = BITS_NS * (hop.tx_bytes - flow.hop_tx_bytes[i]) / elapsed_ns
        queue_bytes = min(hop.queue_bytes, flow.hop_queue_bytes[i])
        load = queue_bytes / (hop.rate_bps * base_ns / BITS_NS) + tx_rate_bps / hop.rate_bps
        if load > u:
            u, tau_ns = load, elapsed_ns
    if tau_ns <= 0:
        return False
    weight = min(tau_ns, base_ns) / base_ns
    flow.u = (1 - weight) * flow.u + weight * u
    return True


def compute_wind(flow: Hpcc, update_wc: bool) -> None:
    """Lines 11 to 22."""
    w_ai_bytes = flow.w_ai_bytes
    if w_ai_bytes <= 0:
        w_ai_bytes = initial_window(flow) * (1 - flow.eta) / flow.n_flows
    multiplicative = flow.u >= flow.eta or flow.inc_stage >= flow.max_stage
    if multiplicative:
        window = flow.w_c_bytes / max(flow.u / flow.eta, 0.001) + w_ai_bytes
    else:
        window = flow.w_c_bytes + w_ai_bytes
    set_window(flow, min(window, initial_window(flow)))
    if update_wc:
        flow.inc_stage = 0 if multiplicative else flow.inc_stage + 1
        flow.w_c_bytes = flow.cwnd_bytes


def initial_window(flow: Hpcc) -> float:
    """Bandwidth-delay product of the port; one packet at least."""
    rate = flow.line_rate_bps if flow.line_rate_bps > 0 else flow.unknown_line_rate_bps
    return max(rate * base_rtt(flow) / BITS_NS, flow.mss_bytes)


def set_window(flow: Hpcc, cwnd_bytes: float) -> None:
    """The window within its limits, and R = W / T."""
    least = min(flow.min_window * flow.mss_bytes, flow.max_cwnd_bytes)
    flow.cwnd_bytes = min(max(cwnd_bytes, least), flow.max_cwnd_bytes)
    base_ns = base_rtt(flow)
    flow.pacing_rate_bps = BITS_NS * flow.cwnd_bytes / base_ns if base_ns > 0 else 0
