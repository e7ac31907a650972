# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vpc on links on which a packet takes about as long as the round trip."""

from __future__ import annotations

from datapath.cc import compile_algorithm

from .scene import GBIT, MS, US, WIRE, Row, Shared, check_table, long_flows, run

SHORT_LAST = 15 * 4096 + 256  # bytes of a message: 15 full packets and a short one


def test_messages_that_end_in_a_short_packet_fill_a_slow_link() -> None:
    """The RTT of a short packet is shorter by what its link needs for the rest of a full one.

    If it were the base RTT of all packets, each full one would seem to queue.
    """
    algorithm = compile_algorithm("vpc")
    rows: list[Row] = []
    for mbit in (10, 30, 60, 100):
        row: Row = {"mbit": float(mbit)}
        for rtt in (100 * US, MS, 4 * MS):
            flows = long_flows(1, 3000 * MS)
            flows["message_bytes"], flows["depth"] = SHORT_LAST, 4
            shared = Shared(mbit * GBIT // 1000, rtt, 1_000_000)
            seen = run(algorithm, shared, flows, until_ns=3000 * MS, interval_ns=10 * MS)
            share = seen.share(500 * MS)
            assert share > 0.85, (mbit, rtt)
            if rtt == 4 * MS:  # the path holds some packets: one more or less is a large share
                assert share > 0.94, mbit
                assert seen.queue_us(500 * MS) < 2 * WIRE * 8 / mbit, mbit
            row[f"share_{rtt // US}us"] = share
            row[f"queue_{rtt // US}us"] = seen.queue_us(500 * MS)
        rows.append(row)
    check_table("slow_links", rows, slack=0.2)
