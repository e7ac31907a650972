#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How fast the simulator is with few and with many hosts, and how much memory it takes.

    python experiments/bench/hosts.py
    python experiments/bench/hosts.py --rounds 5 --json hosts.json

Fat trees of 128, 1,024 and 8,192 hosts, in which each host sends to another one, and one of
101,306 hosts of which one in a hundred does; dctcp, links of 10 Gbit/s.  Each run is a process
of its own; rounds alternate between the sizes, so that a slow moment of the machine meets all.
Told are packet events a second of CPU time, without the time to build the network, and the
most memory that the process had.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from datapath.cc import compile_algorithm  # noqa: E402  (after the path)
from datapath.fabric import flows as traffic  # noqa: E402
from datapath.fabric.simulator import Simulation  # noqa: E402
from datapath.fabric.topology import FatTree  # noqa: E402

SIZES = {8: 40_000_000, 16: 4_000_000, 32: 1_000_000, 74: 10_000_000}
"""Bytes of each flow, by k of the fat tree."""
ACTIVE = {74: 0.01}
"""Share of the hosts that send, where that is not all of them."""


def measure(k: int) -> dict[str, float]:
    """One run in this process."""
    hosts = k**3 // 4
    count = int(hosts * ACTIVE.get(k, 1))
    draw = np.random.default_rng(1)
    rows = traffic.empty(count)
    senders = draw.permutation(hosts)[:count]
    rows["src"], rows["dst"] = senders, np.roll(senders, 1)
    rows["bytes"] = SIZES[k]
    rows["start_ns"] = np.sort(draw.integers(0, 1_000_000, count))
    algorithm, network = compile_algorithm("dctcp"), FatTree(k=k)
    rows_of_none = traffic.empty(1)
    rows_of_none["src"], rows_of_none["dst"], rows_of_none["bytes"] = 0, 1, 1
    begun = time.process_time()
    Simulation(network).run(rows_of_none, algorithm)
    build_s = time.process_time() - begun
    begun = time.process_time()
    result = Simulation(network).run(rows, algorithm)
    cpu_s = time.process_time() - begun - build_s
    return {
        "hosts": hosts,
        "flows": count,
        "events": result.packet_events,
        "events_per_s": result.packet_events / cpu_s,
        "build_s": build_s,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--one", type=int, choices=SIZES, metavar="K", help="one run, as JSON")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.one)))
        return 0
    found: dict[int, list[dict[str, float]]] = {k: [] for k in SIZES}
    for _ in range(options.rounds):
        for k, runs in found.items():
            command = [sys.executable, __file__, "--one", str(k)]
            runs.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    print("hosts    flows   packet events/s (M)      built in (s)  memory (GiB)")
    for runs in found.values():
        rates = sorted(run["events_per_s"] / 1e6 for run in runs)
        first = runs[0]
        print(
            f"{first['hosts']:<8} {first['flows']:<7}"
            f" {statistics.median(rates):.2f} ({rates[0]:.2f} to {rates[-1]:.2f})      "
            f" {statistics.median(run['build_s'] for run in runs):<13.1f}"
            f" {max(run['memory_bytes'] for run in runs) / 2**30:.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
