# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""swift against algorithm 1 and sections 3.3 and 3.5 of Kumar et al. (SIGCOMM 2020)."""

from __future__ import annotations

import math
import statistics

import pytest

from datapath.cc import compile_algorithm
from datapath.cc.drivers import NativeAlgorithm, new_ack, new_loss
from datapath.cc.simulate import Bottleneck, Trace, simulate

MSS = 4096.0
FIXED_TARGET = {"fs_range_ns": 0}  # no flow scaling: the target is base_target_ns


class Flow:
    """One flow, given acknowledgements with chosen delays."""

    def __init__(self, **params: float) -> None:
        self.driver = NativeAlgorithm(compile_algorithm("swift", params))
        self.flow = self.driver.flow
        self.flow.mss_bytes, self.flow.max_cwnd_bytes = MSS, 2048 * MSS
        self.now_ns = 1e9
        self.flow.now_ns, self.flow.srtt_ns = self.now_ns, 0
        self.driver.on_init()
        self.flow.srtt_ns = 50_000

    def ack(
        self,
        rtt_ns: float,
        packets: float = 1,
        wait_ns: float = 0,
        hops: int = 0,
        host_ns: float = 0,
    ) -> float:
        """Acknowledge packets; the window after it, in packets.  host_ns has lasted."""
        self.now_ns += wait_ns
        self.flow.host_ns = host_ns
        size = packets * MSS
        ack = new_ack(
            now_ns=self.now_ns,
            rtt_ns=rtt_ns,
            host_ns=host_ns,
            acked_bytes=size,
            inflight_bytes=float(self.flow.cwnd_bytes),
            n_hops=hops,
        )
        self.driver.on_ack(ack)
        return self.packets

    def lose(self, wait_ns: float = 0) -> float:
        self.now_ns += wait_ns
        self.driver.on_loss(new_loss(now_ns=self.now_ns, lost_bytes=MSS))
        return self.packets

    def timeout(self, wait_ns: float = 0) -> float:
        self.now_ns += wait_ns
        self.driver.on_timeout(self.now_ns)
        return self.packets

    @property
    def packets(self) -> float:
        return float(self.flow.cwnd_bytes) / MSS


def scaling(cwnd: float, fs_range: float, low: float, high: float) -> float:
    """Section 3.5, written as in the paper."""
    alpha = fs_range / (1 / math.sqrt(low) - 1 / math.sqrt(high))
    beta = -alpha / math.sqrt(high)
    return max(0, min(alpha / math.sqrt(cwnd) + beta, fs_range))


@pytest.mark.parametrize("cwnd", [0.05, 0.1, 0.5, 1, 10, 99, 100, 400])
def test_target_delay_scales_with_the_window(cwnd: float) -> None:
    """Just below the target the window grows, just above it does not."""
    target = 50_000 + scaling(cwnd, 100_000, 0.1, 100)
    assert Flow(initial_cwnd=cwnd).ack(target * 0.999, packets=0.01) > cwnd
    assert Flow(initial_cwnd=cwnd).ack(target * 1.001, packets=0.01) < cwnd


def test_target_delay_grows_per_hop() -> None:
    params = {**FIXED_TARGET, "hop_ns": 5_000.0}
    assert Flow(**params).ack(59_000, hops=2) > 16
    assert Flow(**params).ack(61_000, hops=2) < 16


def test_additive_increase_is_ai_packets_per_rtt() -> None:
    flow = Flow(**FIXED_TARGET, initial_cwnd=50, ai=2)
    for _ in range(50):
        flow.ack(40_000)
    assert flow.packets == pytest.approx(52, abs=0.05)
    small = Flow(**FIXED_TARGET, initial_cwnd=0.25)
    assert small.ack(40_000, packets=0.5) == pytest.approx(0.75)


def test_multiplicative_decrease_by_the_excess_once_per_rtt() -> None:
    flow = Flow(**FIXED_TARGET, beta=0.8)
    assert flow.ack(80_000) == pytest.approx(16 * (1 - 0.8 * 30 / 80))
    once = flow.packets
    assert flow.ack(80_000, wait_ns=79_000) == once
    assert flow.ack(80_000, wait_ns=1_000) == pytest.approx(once * 0.7)
    bounded = Flow(**FIXED_TARGET, max_mdf=0.25)
    assert bounded.ack(10_000_000) == pytest.approx(12)


def test_hosts_and_fabric_have_a_window_each() -> None:
    """Section 3.3: the smaller one is in force, and each follows its own delay."""
    flow = Flow(**FIXED_TARGET, endpoint_target_ns=200_000, beta=0.8)
    assert flow.ack(40_000, host_ns=199_000) > 16  # neither is above its target
    before = flow.packets
    assert flow.ack(40_000, host_ns=400_000) == pytest.approx(before * (1 - 0.8 / 2))
    assert flow.flow.fcwnd_bytes > before * MSS  # the fabric has nothing to do with it
    flow = Flow(**FIXED_TARGET, endpoint_target_ns=200_000, beta=0.8)
    assert flow.ack(80_000, host_ns=100_000) == pytest.approx(16 * 0.7)
    assert flow.flow.ecwnd_bytes > 16 * MSS
    assert flow.flow.fcwnd_bytes == flow.flow.cwnd_bytes


def test_the_window_of_the_hosts_decreases_once_per_rtt() -> None:
    """Of the whole one, from program to program."""
    flow = Flow(**FIXED_TARGET, endpoint_target_ns=200_000, beta=0.8)
    once = flow.ack(40_000, host_ns=400_000)
    flow.ack(40_000, host_ns=400_000, wait_ns=439_000)
    assert flow.packets == once
    flow.ack(40_000, host_ns=400_000, wait_ns=1_000)
    assert flow.packets == pytest.approx(once * 0.6)


def test_a_busy_host_does_not_stop_the_fabric() -> None:
    """Below their own target hosts may be slower than the fabric's target."""
    flow = Flow(**FIXED_TARGET, endpoint_target_ns=500_000, initial_cwnd=20)
    for _ in range(20):
        flow.ack(40_000, host_ns=400_000)
    assert flow.packets == pytest.approx(21, abs=0.05)


def test_a_window_that_hosts_limit_lets_the_other_not_run_away() -> None:
    """What is not in use does not grow."""
    flow = Flow(**FIXED_TARGET, endpoint_target_ns=200_000)
    for _ in range(5000):
        flow.ack(40_000, host_ns=201_000, wait_ns=20_000)
    assert flow.packets < 16
    assert flow.flow.fcwnd_bytes <= 2 * (16 + 1) * MSS + MSS


def test_loss_shrinks_the_window_of_the_fabric() -> None:
    flow = Flow(**FIXED_TARGET, loss_mdf=0.5)
    flow.lose()
    assert flow.flow.fcwnd_bytes == flow.flow.cwnd_bytes == 8 * MSS
    assert flow.flow.ecwnd_bytes == 16 * MSS


def test_a_busy_flow_above_its_target_goes_on_decreasing() -> None:
    flow = Flow(**FIXED_TARGET)
    for _ in range(1000):
        flow.ack(100_000, wait_ns=1_000)
    assert flow.packets < 0.2


def test_a_window_under_one_packet_is_paced() -> None:
    flow = Flow(**FIXED_TARGET, initial_cwnd=2)
    assert flow.flow.pacing_rate_bps == 0
    while flow.packets >= 1:
        flow.ack(100_000, wait_ns=100_000)
    assert flow.flow.pacing_rate_bps == pytest.approx(flow.packets * MSS * 8e9 / 100_000)
    flow.ack(10_000)
    assert flow.packets >= 1
    assert flow.flow.pacing_rate_bps == 0


def test_loss_and_timeouts() -> None:
    flow = Flow(loss_mdf=0.5, retx_reset_threshold=3, min_cwnd=0.02)
    assert flow.lose() == 8
    assert flow.lose(wait_ns=49_000) == 8
    assert flow.timeout(wait_ns=1_000) == 4
    assert flow.timeout(wait_ns=1_000) == 4
    assert flow.timeout(wait_ns=1_000) == pytest.approx(0.02)  # the third in a row
    assert flow.flow.pacing_rate_bps > 0


def test_an_acknowledgement_ends_a_row_of_timeouts() -> None:
    flow = Flow(retx_reset_threshold=2)
    flow.timeout(wait_ns=1e6)
    flow.ack(0)
    assert flow.timeout(wait_ns=1e6) == 4


def test_losing_the_whole_first_window_counts_once() -> None:
    """No RTT is known yet; sixteen losses must not be sixteen decreases."""
    flow = Flow(initial_cwnd=16)
    flow.flow.srtt_ns = 0
    for _ in range(16):
        flow.lose(wait_ns=3_000)
    assert flow.packets == 8


def test_loss_that_is_no_congestion_can_be_ignored() -> None:
    path = Bottleneck(10e9, 40_000, buffer_bytes=1 << 20, loss=0.01)
    goodput = {}
    for loss_mdf in (0.5, 0.0):
        flow = NativeAlgorithm(compile_algorithm("swift", {"loss_mdf": loss_mdf}))
        (trace,) = simulate([flow], path, 20e6)
        goodput[loss_mdf] = trace.delivered_bytes * 8e9 / 20e6
    assert goodput[0.0] > 0.95 * 10e9
    assert goodput[0.5] < 0.95 * goodput[0.0]


def later(trace: Trace, member: str) -> float:
    """Mean of the second half of a trace."""
    values = getattr(trace, member)
    return statistics.fmean(values[len(values) // 2 :])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_delay_settles_near_the_target(count: int) -> None:
    path = Bottleneck(10e9, 30_000, buffer_bytes=1 << 21)
    params = {"base_target_ns": 60_000}
    flows = [NativeAlgorithm(compile_algorithm("swift", params)) for _ in range(count)]
    duration_ns = 40e6
    traces = simulate(flows, path, duration_ns)
    for trace in traces:
        cwnd = later(trace, "cwnd_bytes") / MSS
        target = 60_000 + scaling(cwnd, 100_000, 0.1, 100)
        assert later(trace, "rtt_ns") == pytest.approx(target, rel=0.1)
        assert trace.losses == 0
    total = sum(trace.delivered_bytes for trace in traces)
    assert total > 0.95 * 10e9 / 8e9 * duration_ns
    for trace in traces:
        assert trace.delivered_bytes == pytest.approx(total / count, rel=0.25)


def test_more_flows_than_packets_in_flight() -> None:
    """Windows fall under one packet, nobody starves, the queue stays bounded."""
    count, duration_ns = 60, 200e6
    path = Bottleneck(1e9, 20_000, buffer_bytes=1 << 21)
    params = {"initial_cwnd": 1}
    flows = [NativeAlgorithm(compile_algorithm("swift", params)) for _ in range(count)]
    traces = simulate(flows, path, duration_ns)
    assert statistics.fmean(later(item, "cwnd_bytes") for item in traces) < MSS
    steady = statistics.fmean(later(item, "rtt_ns") for item in traces)
    assert steady < 2 * (50_000 + 100_000)
    share = [item.delivered_bytes * count * 8e9 / duration_ns / 1e9 for item in traces]
    assert min(share) > 0.1
    assert sum(share) / count > 0.9
    assert sum(item.losses for item in traces) == 0
