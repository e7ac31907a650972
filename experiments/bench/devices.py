#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two devices in one process: how fast, and whether they share a lock.

    python experiments/bench/devices.py --blocks 6
    python experiments/bench/devices.py --blocks 6 --port afxdp

One thread on one device, two threads on one device, and a thread on each of two devices write to
themselves, in blocks of random order: over UDP on two addresses, or over AF_XDP on two queues of
one network device.  A probe on the function that a thread calls when a
lock is taken notes thread and lock.  A lock that both threads of the program wait for is shared.
Beside it, each of them waits for its device's own thread.  Root, perf.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from datapath.native import paths
from datapath.verbs.launch import device_environment

SECONDS = 2
FUNCTION = "dp_lock_slow"
FIRST_ARGUMENT = {"x86_64": "%di", "aarch64": "%x0"}
ONE, SHARED, TWO = "1 thread, 1 device", "2 threads, 1 device", "2 threads, 2 devices"
PERF_RECORD = ("perf", "record", "-q", "-o")
WAIT = re.compile(r"^\s*(\S+)\s+(\d+)\s.*lock=(0x[0-9a-f]+)", re.MULTILINE)
SETTINGS = {ONE: (1, 1), SHARED: (2, 1), TWO: (2, 2)}  # threads, devices


NETDEV = "dpq0"
PORTS = {"udp": "udp:127.0.0.{}", "afxdp": f"afxdp:{NETDEV},queue={{}}"}
FIRST = {"udp": 1, "afxdp": 0}


@contextmanager
def network(port: str) -> Iterator[list[str]]:
    """What to put in front of a program: for AF_XDP, a namespace with a device of two queues."""
    if port == "udp":
        yield []
        return
    name = f"dp-bench-{os.getpid()}"
    inside = ["ip", "netns", "exec", name]
    queues = ["numtxqueues", "2", "numrxqueues", "2"]
    peer = ["type", "veth", "peer", "name", "dpq1", *queues]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for command in (
            ["link", "add", NETDEV, *queues, *peer],
            ["address", "add", "10.123.0.1/24", "dev", NETDEV],
            ["link", "set", NETDEV, "up"],
            ["link", "set", "dpq1", "up"],
        ):
            subprocess.run([*inside, "ip", *command], check=True)
        yield inside
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def environment(port: str, devices: int) -> dict[str, str]:
    made = device_environment("dp0", PORTS[port].format(FIRST[port]))
    specs = [f"dp{i}={PORTS[port].format(FIRST[port] + i)}" for i in range(devices)]
    return {**os.environ, **made, "DATAPATH_DEVICES": " ".join(specs)}


def measure(
    folder: Path, before: list[str], port: str, event: str, threads: int, devices: int
) -> tuple[float, float, int]:
    """(WRITEs a second, waits for a lock in 1000 WRITEs, locks that several threads waited for)."""
    data = str(folder / "perf.data")
    done = subprocess.run(
        [
            *before,
            *PERF_RECORD,
            data,
            "-e",
            event,
            str(folder / "devices"),
            str(threads),
            str(SECONDS),
        ],
        env=environment(port, devices),
        capture_output=True,
        text=True,
        check=True,
    )
    rate = float(done.stdout)
    told = subprocess.run(
        ["perf", "script", "-i", data, "-F", "comm,tid,trace"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    waits = WAIT.findall(told)
    waiters: dict[str, set[str]] = defaultdict(set)
    for name, thread, lock in waits:
        if not name.startswith("dp:"):
            waiters[lock].add(thread)
    shared = sum(len(those) > 1 for those in waiters.values())
    return rate, len(waits) / (rate * SECONDS) * 1000, shared


def spread(values: list[float], digits: int) -> str:
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--port", choices=sorted(PORTS), default="udp")
    args = parser.parse_args()
    library = paths.verbs_library()
    rates: dict[str, list[float]] = defaultdict(list)
    waits: dict[str, list[float]] = defaultdict(list)
    shared: dict[str, list[int]] = defaultdict(list)
    group = f"dp_bench_{os.getpid()}"
    probe = ["perf", "probe", "-q"]
    argument = FIRST_ARGUMENT[platform.machine()]
    point = f"{group}:wait={FUNCTION} lock={argument}:x64"
    with tempfile.TemporaryDirectory() as name, network(args.port) as before:
        folder = Path(name)
        program = folder / "devices"
        source = Path(__file__).with_name("devices.c")
        subprocess.run(["cc", "-O2", "-o", program, source, "-libverbs", "-lpthread"], check=True)
        subprocess.run([*probe, "-x", library, "--add", point], check=True)
        try:
            for _ in range(args.blocks):
                for name in random.sample(list(SETTINGS), len(SETTINGS)):
                    rate, waited, both = measure(
                        folder, before, args.port, f"{group}:wait", *SETTINGS[name]
                    )
                    rates[name].append(rate)
                    waits[name].append(waited)
                    shared[name].append(both)
        finally:
            subprocess.run([*probe, "--del", f"{group}:*"], check=True)
    for name in SETTINGS:
        ratios = [rate / one for rate, one in zip(rates[name], rates[ONE], strict=True)]
        told = spread([rate / 1e3 for rate in rates[name]], 0)
        print(
            f"{name:21} {told} k/s, {spread(ratios, 2)} of one; "
            f"waits for a lock in 1000 WRITEs: {spread(waits[name], 2)}; "
            f"locks that both threads waited for: {max(shared[name])}"
        )


if __name__ == "__main__":
    main()
