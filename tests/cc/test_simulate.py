# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The single queue of datapath.cc.simulate."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm
from datapath.cc.drivers import NativeAlgorithm
from datapath.cc.simulate import Bottleneck, simulate

from .conftest import WriteAlgorithm


@pytest.mark.parametrize(("share", "packets"), [(0.1, 100), (0.5, 500), (1, 1000)])
def test_a_window_below_one_packet_is_paced_over_round_trips(
    write: WriteAlgorithm, share: float, packets: float
) -> None:
    path = write(
        """
        @algorithm("part")
        class Part:
            share: float = param(1)

            def on_init(flow):
                flow.cwnd_bytes = flow.share * flow.mss_bytes

            def on_ack(flow, ack):
                pass
        """
    )
    flow = NativeAlgorithm(compile_algorithm(path, {"share": share}))
    queue = Bottleneck(rate_bps=1e12, base_rtt_ns=100_000, buffer_bytes=1 << 20)
    (trace,) = simulate([flow], queue, duration_ns=1000 * 100_000)
    assert trace.delivered_bytes / 4096 == pytest.approx(packets, rel=0.02)
