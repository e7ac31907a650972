# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""timely against algorithm 1 of Mittal et al. (SIGCOMM 2015), and the patch of CoNEXT 2016."""

from __future__ import annotations

import pytest

from .hand import Hand

US = 1000.0
SEGMENT = 4  # packets


def flow_at(rate_bps: float, first_rtt_us: float, **params: float) -> Hand:
    """A flow at a rate, with one RTT known, of a path whose lowest is 20 us."""
    flow = Hand("timely", min_rtt_ns=20 * US, **params)
    flow.ack(SEGMENT, rtt_ns=first_rtt_us * US)
    flow.flow.min_rtt_ns = 20 * US
    flow.flow.rate_bps = rate_bps
    return flow


def step(flow: Hand, rtt_us: float) -> float:
    flow.ack(SEGMENT, rtt_ns=rtt_us * US)
    return flow.rate_bps


def test_below_t_low_it_adds_delta() -> None:
    flow = flow_at(1e9, 30)
    assert step(flow, 49) == 1e9 + 10e6  # whatever the gradient


def test_above_t_high_it_shrinks_by_the_excess() -> None:
    flow = flow_at(1e9, 600)
    assert step(flow, 1000) == pytest.approx(1e9 * (1 - 0.8 * (1 - 500 / 1000)))


def test_a_falling_rtt_adds_delta_and_from_the_fifth_segment_five() -> None:
    flow = flow_at(1e9, 300)
    rates = [step(flow, 290 - 10 * i) for i in range(6)]
    gains = [round(b - a) for a, b in zip([1e9, *rates], rates, strict=False)]
    assert gains == [10e6] * 4 + [50e6] * 2


def test_a_rising_rtt_shrinks_by_the_normalised_gradient() -> None:
    """rtt_diff = 0.875 x 4 us, minRTT 20 us: gradient 0.175, factor 1 - 0.8 x 0.175."""
    flow = flow_at(1e9, 100)
    assert step(flow, 104) == pytest.approx(1e9 * (1 - 0.8 * 0.175))


def test_the_gradient_is_a_moving_average() -> None:
    """Then 0.125 x 3.5 + 0.875 x 2 = 2.1875 us: gradient 0.109375."""
    flow = flow_at(1e9, 100)
    before = step(flow, 104)
    assert step(flow, 106) == pytest.approx(before * (1 - 0.8 * 0.109375))


def test_one_update_per_segment() -> None:
    flow = flow_at(1e9, 30)
    flow.ack(3, rtt_ns=40 * US)
    assert flow.rate_bps == 1e9
    flow.ack(1, rtt_ns=40 * US)
    assert flow.rate_bps == 1e9 + 10e6


@pytest.mark.parametrize(("change", "weight"), [(-10, 0), (0, 0.5), (2, 0.675), (10, 1)])
def test_patched(change: float, weight: float) -> None:
    """Algorithm 2: w(0) = 1/2; w = 2 x gradient + 1/2 up to 1; error = (100 - 50) / 50 = 1."""
    flow = flow_at(1e9, 100 - change, patched=True)
    want = 10e6 * (1 - weight) + 1e9 * (1 - 0.008 * weight * 1)
    assert step(flow, 100) == pytest.approx(want)


def test_limits() -> None:
    flow = flow_at(1e9, 100, min_rate_bps=5e6)
    assert flow.packets == 4096
    flow.lose()
    assert flow.rate_bps == pytest.approx(10e9)  # what the first segment set: the port's
    for i in range(100):
        step(flow, 1000 + i)
    assert flow.rate_bps == 5e6
    for _ in range(3000):
        step(flow, 30)
    assert flow.rate_bps == 10e9
