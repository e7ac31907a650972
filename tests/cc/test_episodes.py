# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Losses that belong together count once (cc/algorithms/episodes.py)."""

from __future__ import annotations

import pytest

from .hand import Hand


@pytest.mark.parametrize("name", ["newreno", "cubic", "dctcp"])
def test_what_a_time_out_declares_lost_was_counted_by_it(name: str) -> None:
    """RFC 5681: a burst that is lost whole ends in a time-out, and takes half of one window."""
    flow = Hand(name, initial_window=64)
    flow.timeout()
    flow.lose(10)
    assert [flow.window() for _ in range(5)] == [2, 4, 8, 16, 32]
    flow.ack(8)
    before = flow.packets
    assert flow.lose() < before  # sent after it
