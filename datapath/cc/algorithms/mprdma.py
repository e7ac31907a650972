# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""MP-RDMA: one window over many paths, which acknowledgements choose."""

from datapath.cc import Ack, Flow, Loss, algorithm, param, state

IN_TURN = -1  # next_path
MULTIPLIER, INCREMENT, MODULUS = 1103515245, 12345, 1 << 31  # a generator, as in POSIX rand()


@algorithm("mprdma", source="Lu et al., NSDI 2018, sections 3.1, 3.2 and 3.4")
class MpRdma(Flow):
    """Adds 1 / cwnd per clean packet, takes off half a packet per marked one, over all paths.

    Paths need no state of their own: each acknowledgement sends the next packet
    along its own path (ACK clocking), so a path that delivers gets more, and
    the half packets of a congested one are given back to none.  With
    `probe_share` of the acknowledgements what they let out takes a path at random.
    When nothing is in flight, so that no acknowledgement will come, the paths take turns.
    Acknowledgements for packets that were sent more than `delta` packets before others that
    arrived already tell a slow path: the window gives up what they acknowledge and the next
    packet goes elsewhere (out-of-order aware path selection, 3.4).

    It needs marking switches and a transport with several `paths`; with one
    path it is a DCTCP-like single-path algorithm.  The first window is spread over the
    paths in turn.  The records hold no PSN, so how late a packet is, is counted in bytes
    delivered when it was sent, which have the same order.  The paper leaves loss to its
    retransmission; here a lost packet counts as a marked one, and a time-out
    leaves one packet.
    """

    increase: float = param(1, unit="packets", min=0.001, max=100, doc="per window without marks")
    decrease: float = param(0.5, unit="packets", min=0.01, max=1, doc="per marked packet")
    delta: float = param(32, unit="packets", min=1, doc="how much later than others is too late")
    probe_share: float = param(0.01, min=0, max=1, doc="acknowledgements answered at random paths")
    initial_window: float = param(16, unit="packets", min=1, doc="window of a new flow")

    newest_bytes: float = state()
    newest_path: int = state(IN_TURN)
    seed: int = state(1)

    def on_init(flow) -> None:
        flow.newest_bytes = flow.delivered_bytes
        flow.newest_path = IN_TURN
        flow.seed = int(flow.now_ns % MODULUS)
        flow.next_path = IN_TURN
        flow.pacing_rate_bps = 0
        set_window(flow, flow.initial_window)

    def on_ack(flow, ack: Ack) -> None:
        cwnd, acked = flow.cwnd_bytes / flow.mss_bytes, ack.acked_bytes / flow.mss_bytes
        marked = min(ack.marked_bytes / flow.mss_bytes, acked)
        path = int(ack.path)
        if ack.prior_delivered_bytes < flow.newest_bytes - flow.delta * flow.mss_bytes:
            cwnd -= acked
            path = flow.newest_path
        else:
            if 2 * (ack.inflight_bytes + ack.acked_bytes) >= flow.cwnd_bytes:
                cwnd += flow.increase * (acked - marked) / cwnd
            cwnd -= flow.decrease * marked
            if ack.prior_delivered_bytes >= flow.newest_bytes:
                flow.newest_bytes = ack.prior_delivered_bytes
                flow.newest_path = path
        choose_path(flow, path if ack.inflight_bytes > 0 else IN_TURN)
        set_window(flow, cwnd)

    def on_loss(flow, loss: Loss) -> None:
        lost = loss.lost_bytes / flow.mss_bytes
        set_window(flow, flow.cwnd_bytes / flow.mss_bytes - flow.decrease * lost)
        choose_path(flow, flow.newest_path)

    def on_timeout(flow, now_ns: float) -> None:
        flow.next_path = IN_TURN
        set_window(flow, 1)


def choose_path(flow: MpRdma, path: int) -> None:
    """The path of the acknowledgement, or now and then any; the paths in turn remain so."""
    paths = max(int(flow.paths), 1)
    flow.seed = (flow.seed * MULTIPLIER + INCREMENT) % MODULUS
    if path != IN_TURN and flow.seed < flow.probe_share * MODULUS:
        flow.seed = (flow.seed * MULTIPLIER + INCREMENT) % MODULUS
        path = (flow.seed >> 16) % paths
    flow.next_path = path if 0 <= path < paths else IN_TURN


def set_window(flow: MpRdma, cwnd: float) -> None:
    """`cwnd` packets: at least one, at most the window that the transport can track."""
    flow.cwnd_bytes = min(max(cwnd, 1) * flow.mss_bytes, flow.max_cwnd_bytes)
