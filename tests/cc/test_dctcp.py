# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dctcp against the equations of Alizadeh et al. (SIGCOMM 2010) and RFC 8257."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from datapath.cc import compile_algorithm
from datapath.cc.drivers import NativeAlgorithm, new_ack, new_loss
from datapath.cc.simulate import Bottleneck, simulate

MSS = 4096.0


class Windows:
    """Acknowledges whole windows of data, one by one."""

    def __init__(self, **params: float) -> None:
        self.driver = NativeAlgorithm(compile_algorithm("dctcp", params))
        self.flow = self.driver.flow
        self.flow.mss_bytes, self.flow.max_cwnd_bytes = MSS, 4096 * MSS
        self.driver.on_init()

    def window(self, marked: float = 0.0, use: float = 1.0) -> None:
        """One acknowledgement for all that the window let out, of which a share is marked."""
        size = float(self.flow.cwnd_bytes) * use
        prior = float(self.flow.delivered_bytes)
        self.flow.delivered_bytes = prior + size
        ack = new_ack(
            acked_bytes=size,
            marked_bytes=marked * size,
            delivered_bytes=prior + size,
            prior_delivered_bytes=prior,
        )
        self.driver.on_ack(ack)

    def lose(self, prior: float | None = None) -> None:
        sent = float(self.flow.delivered_bytes) if prior is None else prior
        self.driver.on_loss(new_loss(lost_bytes=MSS, prior_delivered_bytes=sent))

    @property
    def packets(self) -> float:
        return float(self.flow.cwnd_bytes) / MSS


@pytest.mark.parametrize("share", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("g", [1 / 16, 0.5])
def test_alpha_is_the_moving_average_of_the_marked_share(share: float, g: float) -> None:
    """Equation 1: after n windows alpha = F + (alpha0 - F) (1 - g)^n."""
    flow = Windows(g=g)
    for number in range(1, 60):
        flow.window(marked=share)
        assert flow.flow.alpha == pytest.approx(share + (1 - share) * (1 - g) ** number)


def test_alpha_moves_once_per_window_however_many_acknowledgements() -> None:
    flow = Windows(g=0.5, initial_alpha=0)
    flow.window()  # opens a window of known extent
    start = float(flow.flow.delivered_bytes)
    for number in range(1, 11):
        flow.flow.delivered_bytes = start + number * MSS
        ack = new_ack(
            acked_bytes=MSS,
            marked_bytes=MSS * (number % 2),
            delivered_bytes=start + number * MSS,
            prior_delivered_bytes=start - 10 * MSS + number * MSS,
        )
        flow.driver.on_ack(ack)
        assert flow.flow.alpha == pytest.approx(0.25 if number == 10 else 0)


def test_the_window_shrinks_by_half_of_alpha() -> None:
    """Equation 2, and one reduction per window."""
    flow = Windows(initial_window=100)
    before = flow.packets
    flow.window(marked=1)
    assert flow.flow.alpha == 1
    assert flow.packets == pytest.approx(before / 2)
    shrunk = flow.packets
    marked_late = new_ack(
        acked_bytes=MSS,
        marked_bytes=MSS,
        delivered_bytes=float(flow.flow.delivered_bytes),
        prior_delivered_bytes=float(flow.flow.delivered_bytes) - MSS,
    )
    flow.driver.on_ack(marked_late)
    assert flow.packets == shrunk


def test_growth() -> None:
    flow = Windows(initial_window=10)
    for want in (20, 40, 80):  # slow start doubles
        flow.window()
        assert flow.packets == pytest.approx(want)
    flow.window(marked=0.1)
    start = flow.packets
    for number in range(1, 10):  # then one packet per window
        flow.window()
        assert flow.packets == pytest.approx(start + number)


def test_a_window_that_is_not_used_does_not_grow() -> None:
    flow = Windows(initial_window=10)
    flow.window(use=0.4)
    assert flow.packets == 10
    flow.window(use=0.6)
    assert flow.packets == 16


def test_loss_halves_once_per_window() -> None:
    flow = Windows(initial_window=100, initial_alpha=0)
    for _ in range(5):  # sent and lost together: nothing was delivered yet
        flow.lose(prior=0)
    assert flow.packets == 50
    flow.window()  # these were in flight at the loss: no growth
    assert flow.packets == 50
    flow.lose()
    assert flow.packets == 25


def test_loss_halves_even_after_a_mark_of_the_same_window() -> None:
    flow = Windows(initial_window=100, initial_alpha=0, g=0.001)
    flow.window(marked=0.5)
    assert flow.packets > 99
    flow.lose(prior=0)
    assert flow.packets < 50


def test_timeout_goes_back_to_one_packet() -> None:
    flow = Windows(initial_window=64)
    flow.driver.on_timeout(1e6)
    flow.driver.on_timeout(2e6)  # the same packet again: the threshold stays
    assert flow.packets == 1
    grown = []
    for _ in range(8):
        flow.window()
        grown.append(flow.packets)
    assert grown == [2, 4, 8, 16, 32, 33, 34, 35]


def test_limits() -> None:
    flow = Windows(initial_window=3)
    for _ in range(20):
        flow.window(marked=1)
    assert flow.packets == 2
    for _ in range(6000):
        flow.window()
    assert flow.flow.cwnd_bytes == flow.flow.max_cwnd_bytes


def test_the_sawtooth_of_the_paper() -> None:
    """Section 3.3: alpha, the queue's extremes and full throughput for one flow."""
    rate_bps, rtt_ns, k_packets = 10e9, 200_000, 40
    path = Bottleneck(rate_bps, rtt_ns, buffer_bytes=1 << 21, mark_bytes=k_packets * MSS)
    flow = NativeAlgorithm(compile_algorithm("dctcp", {}))
    duration_ns = 60e6
    (trace,) = simulate([flow], path, duration_ns)
    bdp = rate_bps * rtt_ns / 8e9 / MSS
    steady = [item / MSS for item in trace.queue_bytes[len(trace.queue_bytes) // 2 :]]
    critical = bdp + k_packets  # W* of the paper, in packets
    amplitude = 0.5 * math.sqrt(2 * critical)
    assert max(steady) == pytest.approx(k_packets + 1, abs=3)
    assert min(steady) == pytest.approx(k_packets + 1 - amplitude, abs=4)
    assert float(flow.flow.alpha) == pytest.approx(math.sqrt(2 / critical), rel=0.35)
    assert trace.losses == 0
    full = rate_bps / 8e9 * duration_ns
    assert trace.delivered_bytes > 0.97 * full


def test_two_flows_share() -> None:
    path = Bottleneck(10e9, 100_000, buffer_bytes=1 << 21, mark_bytes=30 * MSS)
    flows = [NativeAlgorithm(compile_algorithm("dctcp", {})) for _ in range(2)]
    one, other = simulate(flows, path, 50e6)
    assert one.delivered_bytes / other.delivered_bytes == pytest.approx(1, abs=0.3)
    assert one.losses + other.losses == 0


def test_windows_fall_at_marks_only() -> None:
    path = Bottleneck(10e9, 100_000, buffer_bytes=1 << 21, mark_bytes=30 * MSS)
    flow = NativeAlgorithm(compile_algorithm("dctcp", {}))
    (trace,) = simulate([flow], path, 20e6)
    falls = 0
    for (before, after), marked in zip(pairwise(trace.cwnd_bytes), trace.marked[1:], strict=True):
        if after < before:
            falls += 1
            assert marked
    assert falls > 3
