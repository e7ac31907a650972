# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""newreno against RFC 5681, section 3, and RFC 6582."""

from __future__ import annotations

import pytest

from .hand import Hand


def test_slow_start_doubles_and_avoidance_adds_one() -> None:
    flow = Hand("newreno", initial_window=10)
    assert [flow.window() for _ in range(3)] == [20, 40, 80]
    assert flow.lose() == 40  # ssthresh = FlightSize / 2
    flow.ack(1, prior=0)  # sent before the loss
    after = [flow.window() for _ in range(4)]
    assert after == pytest.approx([41, 42, 43, 44])


def test_one_reduction_per_loss_episode() -> None:
    """RFC 6582: until `recover`, which is all that was in flight, is acknowledged."""
    flow = Hand("newreno", initial_window=64)
    flow.ack(8, prior=0)
    start = flow.packets
    assert flow.lose(prior=0) == pytest.approx(start / 2)
    assert flow.lose(prior=8) == pytest.approx(start / 2)  # sent before the first was noticed
    assert flow.ack(8, prior=8) == pytest.approx(start / 2)  # and no growth meanwhile
    flow.ack(1)
    assert flow.lose() == pytest.approx(start / 4, rel=0.02)


def test_the_threshold_is_half_of_what_was_in_flight() -> None:
    """Equation 4: FlightSize, not cwnd, and two packets at least."""
    flow = Hand("newreno", initial_window=40)
    assert flow.lose(1, inflight=19) == 10
    tiny = Hand("newreno", initial_window=3)
    assert tiny.lose() == 2


def test_timeout() -> None:
    flow = Hand("newreno", initial_window=64)
    flow.timeout()
    assert flow.timeout() == 1
    assert [flow.window() for _ in range(7)] == pytest.approx([2, 4, 8, 16, 32, 33, 34])


def test_marks_halve_once_per_window_unless_ignored() -> None:
    flow = Hand("newreno", initial_window=40)
    assert flow.ack(1, marked=1) == 20
    assert flow.ack(1, marked=1, prior=0.5) == 20
    deaf = Hand("newreno", initial_window=40, ecn=False)
    assert deaf.ack(1, marked=1) == 41


def test_a_window_that_is_not_used_does_not_grow() -> None:
    flow = Hand("newreno", initial_window=10)
    assert flow.window(use=0.4) == 10
    assert flow.window(use=0.6) == 16
