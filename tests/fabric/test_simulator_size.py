# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a large simulation takes of memory; without sanitizers, which take their own."""

from __future__ import annotations

import subprocess
import sys

from datapath.native import paths

THOUSAND_HOSTS = r"""
import re
from pathlib import Path
import numpy as np
from datapath.fabric import flows as traffic
from datapath.fabric.links import Link
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import LeafSpine

hosts = 1024
rows = traffic.empty(8 * hosts)
rows["src"] = np.tile(np.arange(hosts), 8)
rows["dst"] = (rows["src"] + 1 + 37 * np.repeat(np.arange(8), hosts)) % hosts
rows["bytes"] = 65536
queue = Link(limit_bytes=1_000_000)
result = Simulation(LeafSpine(32, 8, 32, edge=queue, core=queue)).run(rows)
assert result.finished and not result.totals["failed"]
assert result.totals["qps"] == 16 * hosts
# Not ru_maxrss, which begins with what the parent had when it forked.
print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""


def test_a_thousand_hosts_fit_in_memory() -> None:
    """16,384 QPs between 1,024 hosts of a leaf-spine, all at once: well under 2 GiB."""
    done = subprocess.run(
        [sys.executable, "-c", THOUSAND_HOSTS],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert int(done.stdout) * 1024 < 1 << 29
