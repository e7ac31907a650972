# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""hpcc against algorithm 1 of Li et al. (SIGCOMM 2019)."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm
from datapath.cc.drivers import NativeAlgorithm
from datapath.cc.simulate import Bottleneck, simulate

from .hand import Hand

LINE = 100e9
T = 10_000.0  # ns; BDP 125000 bytes
BDP = LINE * T / 8e9
AI = 1000.0


class Path:
    """One hop whose counters move as told."""

    def __init__(self, **params: float) -> None:
        self.hand = Hand("hpcc", line_rate_bps=LINE, base_rtt_ns=T, w_ai_bytes=AI, **params)
        self.tx_bytes, self.ts_ns = 0.0, 0.0
        self.ack(load=0)  # the first record is only noted

    def ack(
        self,
        load: float,
        queue: float = 0,
        after_ns: float = T,
        prior: float | None = None,
        rate_bps: float = LINE,
    ) -> float:
        """An acknowledgement: the link sent at `load` of its rate and has `queue` BDPs waiting."""
        self.ts_ns += after_ns
        self.tx_bytes += load * LINE * after_ns / 8e9
        hop = (queue * BDP, self.tx_bytes, self.ts_ns, rate_bps)
        self.hand.ack(1, rtt_ns=T, hops=[hop], prior=prior)
        return float(self.hand.flow.cwnd_bytes)


def test_it_begins_with_a_bdp_paced_over_the_base_rtt() -> None:
    path = Path()
    assert path.hand.flow.cwnd_bytes == BDP
    assert path.hand.rate_bps == pytest.approx(LINE)


def test_multiplicative_adjustment() -> None:
    """U = txRate / B + qlen / (B T), over a whole T; W = W_c / (U / eta) + W_AI."""
    path = Path()
    path.hand.flow.w_c_bytes = BDP / 2
    path.ack(load=1.0, queue=0.5)
    assert path.hand.flow.u == pytest.approx(1.0)  # min(qlen, the last one), which was 0
    assert path.hand.flow.cwnd_bytes == pytest.approx(BDP / 2 * 0.95 + AI)
    window = path.ack(load=1.0, queue=0.5)
    assert path.hand.flow.u == pytest.approx(1.5)
    assert window == pytest.approx((BDP / 2 * 0.95 + AI) * 0.95 / 1.5 + AI)


def test_u_is_a_moving_average_over_the_base_rtt() -> None:
    """tau = T / 4: U = 3/4 U + 1/4 u."""
    path = Path()
    path.hand.flow.u = 0.8
    path.ack(load=0.4, after_ns=T / 4)
    assert path.hand.flow.u == pytest.approx(0.75 * 0.8 + 0.25 * 0.4)


def test_five_additive_steps_then_one_multiplicative() -> None:
    path = Path(max_stage=5)
    path.hand.flow.w_c_bytes = BDP / 4
    path.hand.flow.u = 0.5
    seen = [path.ack(load=0.5) for _ in range(6)]
    steps = [BDP / 4 + i * AI for i in range(1, 6)]
    assert seen[:5] == pytest.approx(steps)
    assert seen[5] == pytest.approx(min(steps[-1] * 0.95 / 0.5 + AI, BDP))


def test_within_an_rtt_the_reference_window_stays() -> None:
    path = Path()
    path.hand.flow.w_c_bytes = BDP / 2
    path.hand.flow.u = 1.0
    sent = path.hand.delivered - 5  # before the last update
    once = path.ack(load=1.0, prior=sent)
    assert path.hand.flow.w_c_bytes == BDP / 2
    assert path.ack(load=1.0, prior=sent) == pytest.approx(once)
    path.ack(load=1.0)
    assert path.hand.flow.w_c_bytes == pytest.approx(once)


def test_the_most_loaded_hop_counts() -> None:
    hand = Hand("hpcc", line_rate_bps=LINE, base_rtt_ns=T, w_ai_bytes=AI)
    rates = (LINE, 4 * LINE)
    for at in range(2):
        hops = [(0, at * load * rate * T / 8e9, at * T, rate) for load, rate in
                zip((0.5, 0.8), rates, strict=True)]  # fmt: skip
        hand.ack(1, rtt_ns=T, hops=hops)
    assert hand.flow.u == pytest.approx(0.8)


def test_another_path_is_only_noted() -> None:
    path = Path()
    path.hand.flow.u = 0.5
    path.ts_ns = -2 * T
    path.ack(load=0.1)
    assert path.hand.flow.u == 0.5
    path.ack(load=0.1, rate_bps=LINE / 2)
    assert path.hand.flow.u == 0.5


def test_without_telemetry_nothing_moves() -> None:
    hand = Hand("hpcc", line_rate_bps=LINE, base_rtt_ns=T)
    for _ in range(20):
        hand.ack(1, rtt_ns=3 * T, marked=1, lost=1)
    hand.lose()
    hand.timeout()
    assert hand.flow.cwnd_bytes == BDP


def test_additive_increase_by_the_rule_of_section_3_3() -> None:
    """W_AI = W_init (1 - eta) / N: 125000 x 0.05 / 100 = 62.5 bytes; T as measured."""
    hand = Hand("hpcc", line_rate_bps=LINE)
    hand.ack(1, rtt_ns=T, hops=[(0, 0, 0, LINE)])
    assert hand.flow.cwnd_bytes == pytest.approx(BDP)
    hand.flow.w_c_bytes, hand.flow.u = BDP / 2, 0.5
    hand.ack(1, rtt_ns=T, hops=[(0, 0.5 * BDP, T, LINE)])
    assert hand.flow.cwnd_bytes == pytest.approx(BDP / 2 + 62.5)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_utilisation_near_eta_with_a_near_empty_queue(count: int) -> None:
    """Section 5.2: the link is 95 % busy, and nothing stands in its queue."""
    rate_bps, duration_ns = 25e9, 12e6
    path = Bottleneck(rate_bps, 40_000, buffer_bytes=1 << 21, telemetry=True)
    flows = [NativeAlgorithm(compile_algorithm("hpcc", {"n_flows": 20})) for _ in range(count)]
    traces = simulate(flows, path, duration_ns)
    later = [sum(t > duration_ns / 2 for t in trace.time_ns) * 4096 for trace in traces]
    assert sum(later) * 8e9 / (duration_ns / 2) == pytest.approx(0.95 * rate_bps, rel=0.03)
    queues = [trace.queue_bytes[-len(trace.queue_bytes) // 2 :] for trace in traces]
    assert sum(map(sum, queues)) / sum(map(len, queues)) < 2 * count * 4096
    fair = sum(later) ** 2 / (count * sum(item**2 for item in later))
    assert fair > 0.95
