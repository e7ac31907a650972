# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Messages longer than a window: acknowledgements come several times in each flight."""

from __future__ import annotations

from datapath.cc import compile_algorithm

from .scene import GBIT, MS, US, Row, Shared, check_table, long_flows, run

PATHS = ((100 * GBIT, US), (100 * GBIT, 4 * US), (25 * GBIT, 10 * US), (10 * GBIT, 20 * US))


def test_long_messages_fill_a_path_that_holds_few_packets() -> None:
    """1 MiB, on paths that hold 3 to 12 packets; a buffer of 256 kB.

    When only the end of each window asked for an acknowledgement, one flow of vpc had 0.65 to 0.80
    of these links.
    """
    rows: list[Row] = []
    for rate, rtt in PATHS:
        row: Row = {"path": f"{rate // GBIT}G/{rtt // US}us"}
        shared = Shared(rate, rtt)
        for name in ("vpc", "bbr", "cubic"):
            for count in (1, 2):
                flows = long_flows(count, 20 * MS)
                flows["message_bytes"], flows["depth"] = 1 << 20, 16
                seen = run(
                    compile_algorithm(name), shared, flows, until_ns=20 * MS, interval_ns=100 * US
                )
                row[f"{name}_{count}"] = seen.share(5 * MS)
                row[f"{name}_{count}_queue"] = seen.queue_us(5 * MS) * US / rtt
        assert min(float(row[f"{n}_{c}"]) for n in ("vpc", "bbr", "cubic") for c in (1, 2)) > 0.97
        assert float(row["vpc_2_queue"]) < 1.5
        rows.append(row)
    check_table("long_messages", rows, slack=0.2)
