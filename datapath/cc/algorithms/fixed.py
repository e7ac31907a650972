# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# ruff: noqa: N805, the first argument of a hook is the flow
"""No congestion control: a constant window and a constant rate."""

from datapath.cc import Ack, Flow, algorithm, param


@algorithm("fixed", source="none: the window that RC hardware has without congestion control")
class Fixed(Flow):
    """Constant window and rate, whatever the path does.

    The baseline for every other algorithm, and the right choice on a path that
    is known: window = rate x RTT fills it, and a rate below the bottleneck's
    leaves its queue empty.  Loss is repaired by the transport and changes
    nothing here.  A window under one packet counts as one packet.
    """

    window_bytes: float = param(
        1 << 20, unit="bytes", min=0, doc="congestion window; 0: all that fits"
    )
    rate_bps: float = param(0, unit="bit/s", min=0, doc="pacing rate; 0: not paced")

    def on_init(flow) -> None:
        constant(flow)

    def on_ack(flow, ack: Ack) -> None:
        constant(flow)  # the limits move when the path MTU does


def constant(flow: Fixed) -> None:
    """Set both outputs from the parameters."""
    window = flow.window_bytes if flow.window_bytes > 0 else flow.max_cwnd_bytes
    flow.cwnd_bytes = min(max(window, flow.mss_bytes), flow.max_cwnd_bytes)
    flow.pacing_rate_bps = flow.rate_bps
