# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A line each second while a single run goes on, as iperf3 prints them."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from datapath.cli.top import Sample, between, sample
from datapath.errors import DatapathError
from datapath.report import display

_EACH_S = 1.0


class Intervals:
    """Says what the QPs of this process's programs do, from construction to close().

    say: prints a line, from another thread.  Not of the first second: a rate is that between two
    counts.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dp-intervals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        begun = time.monotonic()
        before = Sample(begun)
        while not self._end.wait(_EACH_S):
            try:
                now = sample(family=os.getpid())
            except (DatapathError, OSError):  # a network that goes down, say
                continue
            if text := told(before, now):
                since, until = (each.time_s - begun for each in (before, now))
                self._say(f"{since:.0f} to {until:.0f} s: {text}")
            before = now


def told(before: Sample, now: Sample) -> str:
    """The time between two samples, in a line; "": nothing is known of it."""
    rows = between(before, now)
    sending = [row for row in rows["qps"] if row["goodput_bps"]]
    if sending:
        return _of_qps(sending, _again(before, now))
    links = [row for row in rows["links"] if row["passed_pps"]]
    return _of_link(max(links, key=lambda row: float(row["passed_pps"]))) if links else ""


def _of_qps(rows: list[dict[str, Any]], again: int) -> str:
    rtts = [row["rtt_ns"] for row in rows if row["rtt_ns"]]
    parts = [
        f"goodput {_quantity(sum(row['goodput_bps'] for row in rows), 'bit/s')}",
        f"RTT {_quantity(statistics.median(rtts), 'ns')}" if rtts else "",
        f"cwnd {_quantity(sum(row['cwnd_bytes'] or 0 for row in rows), 'B')}",
        f"{again} retransmitted",
        f"{len(rows)} QPs" if len(rows) > 1 else "",
    ]
    return ", ".join(filter(None, parts))


def _of_link(row: Mapping[str, Any]) -> str:
    """Of a run without QPs of ours: its busiest link."""
    parts = [f"{row['link']} carries packets at {_quantity(row['passed_pps'], '1/s')}"]
    if row["queue_bytes"] is not None:
        parts.append(f"queue {_quantity(row['queue_bytes'], 'B')}")
    return ", ".join([*parts, f"{row['dropped_packets']} dropped"])


def _again(before: Sample, now: Sample) -> int:
    name = "retransmitted_packets"
    return sum(
        max(0, row.get(name, 0) - before.qps.get(key, {}).get(name, 0))
        for key, row in now.qps.items()
    )


def _quantity(value: float, unit: str) -> str:
    return display.quantity(value, unit) if value else "0"
