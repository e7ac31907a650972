#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two devices in one process: how fast, and whether they share a lock.

    python experiments/bench/devices.py --blocks 6

One thread on one device, two threads on one device, and a thread on each of two devices write to
themselves over UDP, in blocks of random order.  A probe on the function that threads call when a
lock is taken counts how often they wait for each other; two devices that share no lock wait no more
often than one thread does for its device's own.  Root, perf.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from datapath.native import paths
from datapath.verbs.launch import device_environment

SECONDS = 2
PROBE = "dp_lock_slow"
ONE, SHARED, TWO = "1 thread, 1 device", "2 threads, 1 device", "2 threads, 2 devices"
SETTINGS = {ONE: (1, 1), SHARED: (2, 1), TWO: (2, 2)}  # threads, devices


def environment(devices: int) -> dict[str, str]:
    made = device_environment("dp0", "udp:127.0.0.1")
    specs = [f"dp{i}=udp:127.0.0.{i + 1}" for i in range(devices)]
    return {**os.environ, **made, "DATAPATH_DEVICES": " ".join(specs)}


def measure(program: Path, event: str, threads: int, devices: int) -> tuple[float, float]:
    """(WRITEs a second, waits for a lock in 1000 WRITEs)."""
    done = subprocess.run(
        ["perf", "stat", "-x,", "-e", event, str(program), str(threads), str(SECONDS)],
        env=environment(devices),
        capture_output=True,
        text=True,
        check=True,
    )
    rate = float(done.stdout)
    waits = re.search(r"^(\d+),,", done.stderr, re.MULTILINE)
    if not waits:
        raise SystemExit(f"perf counted nothing: {done.stderr}")
    return rate, int(waits[1]) / (rate * SECONDS) * 1000


def spread(values: list[float], digits: int) -> str:
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=6)
    args = parser.parse_args()
    library = paths.verbs_library()
    rates: dict[str, list[float]] = defaultdict(list)
    waits: dict[str, list[float]] = defaultdict(list)
    group = f"dp_bench_{os.getpid()}"
    probe = ["perf", "probe", "-q"]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "devices"
        source = Path(__file__).with_name("devices.c")
        subprocess.run(["cc", "-O2", "-o", program, source, "-libverbs", "-lpthread"], check=True)
        subprocess.run([*probe, "-x", library, "--add", f"{group}:wait={PROBE}"], check=True)
        try:
            for _ in range(args.blocks):
                for name in random.sample(list(SETTINGS), len(SETTINGS)):
                    rate, waited = measure(program, f"{group}:wait", *SETTINGS[name])
                    rates[name].append(rate)
                    waits[name].append(waited)
        finally:
            subprocess.run([*probe, "--del", f"{group}:*"], check=True)
    for name in SETTINGS:
        ratios = [rate / one for rate, one in zip(rates[name], rates[ONE], strict=True)]
        told = spread([rate / 1e3 for rate in rates[name]], 0)
        print(
            f"{name:21} {told} k/s, {spread(ratios, 2)} of one; "
            f"waits for a lock in 1000 WRITEs: {spread(waits[name], 2)}"
        )


if __name__ == "__main__":
    main()
