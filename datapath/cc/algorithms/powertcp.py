# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""PowerTCP: the window that brings the power of the most loaded link back to its equilibrium."""

from datapath.cc import Ack, Flow, algorithm, param, state
from datapath.cc.algorithms.base_rtt import base_rtt, learn_base_rtt
from datapath.cc.algorithms.links import BITS_NS, HOPS, is_known, note_links, watches

LEAST_POWER = 0.5  # of the equilibrium: a link that nobody uses has none
STEPS = 8  # windows that are remembered of each tau
MEMORY = STEPS + 2


@algorithm("powertcp", source="Addanki et al., NSDI 2022, section 3.2, algorithms 1 and 2")
class PowerTcp(Flow):
    """Window control by power: how much arrives at a link, times how much is under way.

    Of each hop, telemetry (INT) tells the current lambda = dq/dt + txRate and the voltage
    v = q + b tau; their product over b^2 tau is the normalised power, 1 when arrivals equal the
    rate and nothing waits.  Gamma is the moving average of the largest.  With each
    acknowledgement W <- gamma (W_old / Gamma + beta) + (1 - gamma) W.  W is paced at W / tau.  The
    queue of the equilibrium is the sum of the beta of all flows (theorem 1).

    W_old is the window that made the arrivals of which telemetry tells.  The paper's is that of
    when the acknowledged packet was sent; but switches stamp a packet when it leaves the queue, so
    here it is that of a time tau ago.  In a long queue the two differ, and with the paper's flows
    that start at once may swing for ever.

    With `theta` the RTT takes the place of telemetry (theta-PowerTCP, algorithm 2): the power is
    (dRTT/dt + 1) RTT / tau, and the window changes once per RTT.

    beta is HostBw tau / N with N = `n_flows`; tau the lowest RTT measured unless `base_rtt_ns` is
    set.  The window starts at HostBw tau.  Not in the paper: the power counts as half of the
    equilibrium's at least, so that a window at most doubles in an RTT, and the window is at most
    2 HostBw tau; a flow that cannot use its window, or a link that nobody uses, has hardly any
    power.  It is also at least q / (b tau), up to the equilibrium's: while all flows wait for
    acknowledgements nothing arrives at a queue, however long it is, and that calls for no larger
    windows.  Neither loss nor marks change the window, and without telemetry (and without `theta`)
    nothing does.  When the path of a flow changes, so that a hop's counter or clock runs
    backwards, its rate is another, or it seems to have sent more than twice what its rate allows,
    that hop's first record is only noted.  Of several `paths` it watches one.
    """

    gamma: float = param(0.9, min=0.01, max=1, doc="weight of a new window")
    n_flows: float = param(10, min=1, doc="N, flows that share the link of the host")
    beta_bytes: float = param(0, unit="bytes", min=0, doc="beta; 0: HostBw tau / n_flows")
    theta: bool = param(False, doc="the RTT in place of telemetry")
    base_rtt_ns: float = param(0, unit="ns", min=0, doc="tau; 0: the lowest RTT measured")
    min_window: float = param(0.01, unit="packets", min=0.001, max=1, doc="least window")
    unknown_line_rate_bps: float = param(
        10e9, unit="bit/s", min=1e6, doc="taken for the port's rate where that is not known"
    )

    lowest_rtt_ns: float = state()
    power: float = state(1)
    started: bool = state(False)
    newest: int = state(0)  # index of the window remembered last
    since_ns: list[float] = state(length=MEMORY)  # when each came into force
    past_cwnd_bytes: list[float] = state(length=MEMORY)
    round_end_bytes: float = state()  # total delivered at the end of this RTT
    prev_ns: float = state()
    prev_rtt_ns: float = state()
    known_hops: int = state(0)
    hop_path: int = state(0)
    noted_ns: float = state()
    hop_queue_bytes: list[float] = state(length=HOPS)
    hop_tx_bytes: list[float] = state(length=HOPS)
    hop_ts_ns: list[float] = state(length=HOPS)
    hop_rate_bps: list[float] = state(length=HOPS)

    def on_init(flow) -> None:
        flow.power = 1
        flow.known_hops = 0
        flow.prev_rtt_ns = 0
        flow.round_end_bytes = flow.delivered_bytes
        flow.started = False
        flow.lowest_rtt_ns = flow.min_rtt_ns
        start(flow)

    def on_ack(flow, ack: Ack) -> None:
        learn_base_rtt(flow)
        if not flow.started:
            start(flow)
        if base_rtt(flow) <= 0:
            return
        if flow.theta:
            once_per_rtt(flow, ack)
        elif power_of_links(flow, ack):
            update_window(flow, get_cwnd(flow, ack.now_ns - base_rtt(flow)))
        update_old(flow, ack.now_ns)


def start(flow: PowerTcp) -> None:
    """HostBw tau, as soon as tau is known; ten packets until then."""
    window = 10 * flow.mss_bytes
    if base_rtt(flow) > 0:
        window = host_bdp(flow)
        flow.started = True
    set_window(flow, window)
    flow.newest = 0
    for i in range(MEMORY):
        flow.since_ns[i] = flow.now_ns
        flow.past_cwnd_bytes[i] = flow.cwnd_bytes


def power_of_links(flow: PowerTcp, ack: Ack) -> bool:
    """NORMPOWER of algorithm 1; whether it could be told, which needs a record before this one.

    note_links() is prevInt <- ack.H.
    """
    tau_ns = base_rtt(flow)
    hops = min(int(ack.n_hops), HOPS)
    if hops == 0 or not watches(flow, ack, tau_ns):
        return False
    power, elapsed_ns = -1.0, 0.0
    for i in range(min(hops, flow.known_hops)):
        hop = ack.hop[i]
        if not is_known(flow, hop, i):
            continue
        dt_ns = hop.ts_ns - flow.hop_ts_ns[i]
        sent_bytes = hop.tx_bytes - flow.hop_tx_bytes[i]
        arrived_bytes = sent_bytes + hop.queue_bytes - flow.hop_queue_bytes[i]
        current_bps = BITS_NS * max(arrived_bytes, 0) / dt_ns
        bdp_bytes = hop.rate_bps * tau_ns / BITS_NS
        voltage_bytes = hop.queue_bytes + bdp_bytes
        normal = current_bps * voltage_bytes / (hop.rate_bps * bdp_bytes)
        normal = max(normal, waiting(hop.queue_bytes / bdp_bytes))
        if normal > power:
            power, elapsed_ns = normal, dt_ns
    note_links(flow, ack, hops)
    if elapsed_ns <= 0:
        return False
    smooth(flow, power, elapsed_ns)
    return True


def power_of_delay(flow: PowerTcp, ack: Ack) -> bool:
    """NORMPOWER of algorithm 2."""
    if ack.rtt_ns <= 0:
        return False
    before_ns, elapsed_ns = flow.prev_rtt_ns, ack.now_ns - flow.prev_ns
    if before_ns > 0 and elapsed_ns <= 0:
        return False  # two paths acknowledged at once
    flow.prev_rtt_ns, flow.prev_ns = ack.rtt_ns, ack.now_ns
    if before_ns <= 0:
        return False
    gradient = (ack.rtt_ns - before_ns) / elapsed_ns
    voltage = ack.rtt_ns / base_rtt(flow)
    smooth(flow, max((gradient + 1) * voltage, waiting(voltage - 1)), elapsed_ns)
    return True


def waiting(queue: float) -> float:
    """Least power where so many b tau wait, whatever arrives just now."""
    return min(queue, 1.0)


def smooth(flow: PowerTcp, power: float, elapsed_ns: float) -> None:
    """The moving average over tau."""
    weight = min(elapsed_ns / base_rtt(flow), 1.0)
    flow.power = (1 - weight) * flow.power + weight * power


def once_per_rtt(flow: PowerTcp, ack: Ack) -> None:
    """Algorithm 2: the packet left with the window that still holds."""
    if power_of_delay(flow, ack) and ack.prior_delivered_bytes >= flow.round_end_bytes:
        update_window(flow, flow.cwnd_bytes)
        flow.round_end_bytes = ack.delivered_bytes


def update_window(flow: PowerTcp, old_bytes: float) -> None:
    aim_bytes = old_bytes / max(flow.power, LEAST_POWER) + beta(flow)
    set_window(flow, flow.gamma * aim_bytes + (1 - flow.gamma) * flow.cwnd_bytes)


def get_cwnd(flow: PowerTcp, at_ns: float) -> float:
    """The window at that time, or the oldest that is remembered."""
    i = flow.newest
    for _ in range(MEMORY - 1):
        if flow.since_ns[i] <= at_ns:
            break
        i = (i + MEMORY - 1) % MEMORY
    return flow.past_cwnd_bytes[i]


def update_old(flow: PowerTcp, now_ns: float) -> None:
    if (now_ns - flow.since_ns[flow.newest]) * STEPS >= base_rtt(flow):
        flow.newest = (flow.newest + 1) % MEMORY
        flow.since_ns[flow.newest] = now_ns
        flow.past_cwnd_bytes[flow.newest] = flow.cwnd_bytes


def host_bdp(flow: PowerTcp) -> float:
    """HostBw tau; one packet at least."""
    rate_bps = flow.line_rate_bps if flow.line_rate_bps > 0 else flow.unknown_line_rate_bps
    return max(rate_bps * base_rtt(flow) / BITS_NS, flow.mss_bytes)


def beta(flow: PowerTcp) -> float:
    return flow.beta_bytes if flow.beta_bytes > 0 else host_bdp(flow) / flow.n_flows


def set_window(flow: PowerTcp, cwnd_bytes: float) -> None:
    """The window within its limits, and the rate W / tau."""
    least = min(flow.min_window * flow.mss_bytes, flow.max_cwnd_bytes)
    most = flow.max_cwnd_bytes
    tau_ns = base_rtt(flow)
    if tau_ns > 0:
        most = min(most, 2 * host_bdp(flow))
    flow.cwnd_bytes = min(max(cwnd_bytes, least), most)
    flow.pacing_rate_bps = BITS_NS * flow.cwnd_bytes / tau_ns if tau_ns > 0 else 0
