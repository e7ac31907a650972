# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dcqcn against equations 1 to 4 and figure 7 of Zhu et al. (SIGCOMM 2015)."""

from __future__ import annotations

import pytest

from .hand import Hand

LINE = 40e9
US = 1000.0


def cut(**params: float) -> Hand:
    """A flow at line rate that has just had its first CNP."""
    flow = Hand("dcqcn", line_rate_bps=LINE, **params)
    assert flow.rate_bps == LINE
    flow.ack(1, marked=1)
    return flow


def test_a_cnp_cuts_the_rate_by_half_of_alpha() -> None:
    """Equation 1: R_T = R_C, R_C = R_C (1 - alpha / 2), alpha = (1 - g) alpha + g."""
    flow = Hand("dcqcn", line_rate_bps=LINE, g=1 / 16)
    flow.flow.alpha = 0.5
    flow.ack(1, marked=1)
    assert flow.rate_bps == LINE * 0.75
    assert float(flow.flow.r_t_bps) == LINE
    assert float(flow.flow.alpha) == 0.5 * 15 / 16 + 1 / 16
    assert flow.packets == 4096  # no window


def test_one_cnp_in_fifty_microseconds() -> None:
    flow = cut()
    once = flow.rate_bps
    flow.ack(1, marked=1, wait_ns=49 * US)
    assert flow.rate_bps == once
    flow.ack(1, marked=1, wait_ns=1 * US)
    assert flow.rate_bps == pytest.approx(once / 2, rel=0.01)


def test_alpha_falls_without_cnp() -> None:
    """Equation 2: once per 55 us, also for periods in which nothing arrived."""
    flow = cut(g=1 / 16, rate_timer_ns=1e12, byte_counter=1e12)
    flow.ack(1, wait_ns=54 * US)
    flow.ack(1, wait_ns=500 * US, marked=1)
    assert float(flow.flow.alpha) == pytest.approx((15 / 16) ** 10 * 15 / 16 + 1 / 16)


def test_five_rounds_of_fast_recovery_then_additive_increase() -> None:
    """Equation 3 halves the way to R_T; equation 4 first adds R_AI to it."""
    flow = cut(rate_timer_ns=55 * US, byte_counter=1e12, r_ai_bps=40e6)
    flow.flow.r_t_bps = 30e9
    flow.flow.r_c_bps = 10e9
    seen = []
    for _ in range(6):
        flow.ack(1, wait_ns=55 * US)
        seen.append(flow.rate_bps / 1e9)
    assert seen[:5] == pytest.approx([20, 25, 27.5, 28.75, 29.375])
    assert seen[5] == pytest.approx((30.04 + 29.375) / 2)


def test_the_byte_counter_counts_as_the_timer_does() -> None:
    flow = cut(rate_timer_ns=1e12, byte_counter=4096)
    flow.flow.r_t_bps, flow.flow.r_c_bps = 30e9, 10e9
    flow.ack(2)
    assert flow.rate_bps == pytest.approx(25e9)


def test_hyper_increase_when_both_have_passed_f() -> None:
    flow = cut(rate_timer_ns=55 * US, byte_counter=4096, f=1, r_ai_bps=1, r_hai_bps=1e9)
    flow.flow.r_t_bps, flow.flow.r_c_bps = 10e9, 10e9
    for _ in range(2):
        flow.ack(1, wait_ns=55 * US)  # bytes first, then time: 1, 1; 2, 1; 2, 2
    assert float(flow.flow.r_t_bps) == pytest.approx(11e9, rel=1e-6)


def test_it_returns_to_the_line_and_stays() -> None:
    flow = cut()
    flow.ack(1, wait_ns=1e9)
    assert flow.rate_bps == LINE
    flow.ack(1, wait_ns=1e9)
    assert flow.rate_bps == LINE


def test_loss_changes_nothing_and_the_rate_has_a_floor() -> None:
    flow = Hand("dcqcn", line_rate_bps=LINE, min_rate_bps=1e8)
    flow.lose()
    flow.timeout()
    assert flow.rate_bps == LINE
    for _ in range(100):
        flow.ack(1, marked=1, wait_ns=50 * US)
    assert flow.rate_bps == 1e8
    assert Hand("dcqcn", line_rate_bps=0).rate_bps == 40e9


def test_a_cnp_of_the_receiver_takes_the_place_of_marks() -> None:
    hand = Hand("dcqcn", line_rate_bps=LINE)
    assert hand.cnp() == pytest.approx(LINE / 2)
    before = hand.rate_bps
    hand.ack(1, wait_ns=60_000, marked=1)
    assert hand.rate_bps >= before
    assert hand.cnp(wait_ns=60_000) < before
