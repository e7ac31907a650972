# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""fixed: the parameters, whatever happens."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm
from datapath.cc.drivers import NativeAlgorithm, new_ack
from datapath.cc.exercise import random_steps, replay
from datapath.cc.simulate import Bottleneck, simulate

PATH = Bottleneck(rate_bps=10e9, base_rtt_ns=40_000, buffer_bytes=1 << 20)


@pytest.mark.parametrize(
    ("window", "cwnd"), [(0, 8 << 20), (65536, 65536), (100, 4096), (1e12, 8 << 20)]
)
def test_window_never_moves(window: float, cwnd: float) -> None:
    flow = NativeAlgorithm(compile_algorithm("fixed", {"window_bytes": window, "rate_bps": 1e9}))
    for _ in replay(flow, list(random_steps(1, 300))):
        assert flow.flow.cwnd_bytes == cwnd
        assert flow.flow.pacing_rate_bps == 1e9


def test_it_follows_the_limits_of_the_path() -> None:
    flow = NativeAlgorithm(compile_algorithm("fixed", {}))
    flow.flow.mss_bytes, flow.flow.max_cwnd_bytes = 4096, 1e6
    flow.on_init()
    flow.flow.max_cwnd_bytes = 5e5
    flow.on_ack(new_ack(acked_bytes=4096))
    assert flow.flow.cwnd_bytes == 5e5


def test_goodput_is_window_over_rtt() -> None:
    window, duration_ns = 16384, 10e6
    flow = NativeAlgorithm(compile_algorithm("fixed", {"window_bytes": window}))
    (trace,) = simulate([flow], PATH, duration_ns)
    rtt_ns = trace.rtt_ns[-1]
    assert trace.delivered_bytes == pytest.approx(window * duration_ns / rtt_ns, rel=0.02)


def test_a_rate_below_the_bottleneck_keeps_its_queue_empty() -> None:
    flow = NativeAlgorithm(compile_algorithm("fixed", {"rate_bps": 5e9}))
    (trace,) = simulate([flow], PATH, 10e6)
    assert max(trace.queue_bytes) == 0
    assert trace.delivered_bytes == pytest.approx(5e9 / 8e9 * 10e6, rel=0.02)
