# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What Ultra Ethernet says of NSCC, done by the real engine in the simulator."""

from __future__ import annotations

from datapath.fabric.links import Marking

from .scene import GBIT, MS, US, Row, Shared, check_table, jain, steady

BDP = 150_000
"""100 Gbit/s and 12 us: the network for which the constants are."""
PATH = Shared(
    100 * GBIT, 12 * US, 4 * BDP, marking=Marking("red", BDP // 5, 4 * BDP // 5, pmax=1.0)
)


def test_nscc_keeps_the_delay_below_its_target_with_a_full_link() -> None:
    """Marks from 20 to 80 % of the bandwidth-delay product, as the specification proposes."""
    rows: list[Row] = []
    for count in (1, 2, 8, 32):
        seen = steady(
            "nscc",
            PATH,
            count=count,
            duration_ns=10 * MS,
            interval_ns=10 * US,
            params={"base_rtt_ns": 12_500},
        )
        share, index = seen.share(5 * MS), jain(seen.goodput_bps(5 * MS))
        queue_us = seen.queue_us(5 * MS)
        rows.append({"flows": str(count), "share": share, "jain": index, "queue_us": queue_us})
        assert share > 0.95
        assert queue_us < 1.2 * 12
        assert index > 0.8
    seen = steady("nscc", PATH, count=2, duration_ns=10 * MS, interval_ns=10 * US)
    assert seen.queue_us(5 * MS) > 24, "its own first window is part of the RTT that it measures"
    rows.append(
        {
            "flows": "2-measured",
            "share": seen.share(5 * MS),
            "jain": jain(seen.goodput_bps(5 * MS)),
            "queue_us": seen.queue_us(5 * MS),
        }
    )
    check_table("nscc", rows, slack=0.2)
