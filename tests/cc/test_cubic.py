# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""cubic against RFC 9438, section 4."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm
from datapath.cc.drivers import NativeAlgorithm
from datapath.cc.simulate import Bottleneck, simulate

from .hand import MSS, Hand

RTT_NS = 100e6  # so long that the cubic function is above what Reno would have


def avoiding(cwnd: float, **params: float) -> Hand:
    """A flow that lost at `cwnd` and is in congestion avoidance."""
    flow = Hand("cubic", initial_window=cwnd, srtt_ns=RTT_NS, **params)
    flow.lose()
    flow.ack(1, prior=0)  # was in flight then
    flow.ack(1e-9)
    return flow


def test_a_loss_keeps_seven_tenths() -> None:
    flow = Hand("cubic", initial_window=100)
    assert flow.lose() == pytest.approx(70)
    assert flow.lose() == pytest.approx(70)  # the same episode
    flow.ack(1, prior=flow.delivered + 1)
    assert Hand("cubic", initial_window=2).lose() == 2  # ssthresh is two packets at least


def test_growth_follows_the_cubic_function() -> None:
    """Equations 1 and 2: W(t) = C (t - K)^3 + W_max, K = cbrt((W_max - cwnd) / C).

    W_max = 1000, cwnd = 700: K = cbrt(300 / 0.4) = 9.0856 s.  A window of acknowledgements takes
    it to where the function is one RTT later (section 4.4).
    """
    flow = avoiding(1000)
    at, step = 0.0, RTT_NS / 1e9
    k = (300 / 0.4) ** (1 / 3)
    assert k == pytest.approx(9.0856, abs=1e-4)
    seen = {}
    while at < 12:
        flow.ack(flow.packets, wait_ns=RTT_NS, inflight=0)
        at += step
        seen[round(at, 2)] = flow.packets
    assert float(flow.flow.k) == pytest.approx(k)
    for t in (1.0, 5.0, 9.0, 9.1, 11.0):
        assert seen[t] == pytest.approx(0.4 * (t + step - k) ** 3 + 1000, rel=1e-6)


def test_the_reno_friendly_region() -> None:
    """Section 4.3: with a short RTT W_est grows by alpha = 3 (1 - b) / (1 + b) packets per RTT."""
    flow = Hand("cubic", initial_window=20, srtt_ns=100_000)
    flow.lose()
    flow.ack(1e-9, prior=0)
    flow.ack(1, prior=flow.delivered + 1)
    start = flow.packets
    for _ in range(8):
        flow.ack(flow.packets, wait_ns=100_000, inflight=0, prior=flow.delivered + 1)
    alpha = 3 * 0.3 / 1.7
    assert flow.packets - start == pytest.approx(8 * alpha, rel=0.05)
    for _ in range(20):  # once back at the window of the loss, by one packet
        flow.ack(flow.packets, wait_ns=100_000, inflight=0, prior=flow.delivered + 1)
    before = flow.packets
    flow.ack(flow.packets, wait_ns=100_000, inflight=0, prior=flow.delivered + 1)
    assert flow.packets - before == pytest.approx(1, rel=0.05)


def test_fast_convergence() -> None:
    """Section 4.7: a loss below W_max sets it to cwnd (1 + b) / 2."""
    for on, want in ((True, 70 * 1.7 / 2), (False, 70)):
        flow = Hand("cubic", initial_window=100, fast_convergence=on)
        flow.lose()
        flow.ack(1e-9, prior=1)
        flow.lose(prior=1)
        assert float(flow.flow.w_max) == pytest.approx(want)


def test_timeout_starts_again() -> None:
    """Section 4.8: one packet, ssthresh as after a loss, K = 0 in the next stage."""
    flow = Hand("cubic", initial_window=64, srtt_ns=RTT_NS)
    flow.timeout()
    assert flow.timeout() == 1
    assert float(flow.flow.ssthresh_bytes) == pytest.approx(64 * 0.7 * MSS)
    for _ in range(7):
        flow.window()
    assert float(flow.flow.k) == 0
    assert float(flow.flow.w_max) == pytest.approx(64 * 0.7)


def test_marks_and_idle_time() -> None:
    assert Hand("cubic", initial_window=50).ack(1, marked=1) == pytest.approx(35)
    assert Hand("cubic", initial_window=50, ecn=False).ack(1, marked=1) == 51
    flow = avoiding(1000)
    flow.ack(flow.packets, wait_ns=RTT_NS, inflight=0)
    before = flow.packets
    flow.ack(1, wait_ns=60e9, inflight=0)  # a minute in which hardly anything was sent
    flow.ack(flow.packets, wait_ns=RTT_NS, inflight=0)
    assert before < flow.packets < 1.02 * before


def test_it_fills_a_path_that_only_drops() -> None:
    path = Bottleneck(10e9, 100_000, buffer_bytes=1 << 19)
    flows = [NativeAlgorithm(compile_algorithm("cubic", {})) for _ in range(2)]
    traces = simulate(flows, path, 60e6)
    total = sum(item.delivered_bytes for item in traces)
    assert total > 0.95 * 10e9 / 8e9 * 60e6
