# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Steps of a simulation: work of hosts that begins flows and waits for them.

`sim/sim.h` has the same layout, and the meaning of each kind of step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

WORK, SEND, TAKE = 0, 1, 2  # enum dp_sim_step_kind
NONE = 2**32 - 1  # DP_SIM_NONE

STEP_DTYPE = np.dtype(
    [
        ("host", "<u4"),
        ("kind", "<u4"),
        ("flow", "<u4"),
        ("waits", "<u4"),
        ("next", "<u4"),
        ("reserved", "<u4"),
        ("work_ns", "<u8"),
    ]
)
"""struct dp_sim_step."""


@dataclass(frozen=True, eq=False)
class Steps:
    """rows: array of STEP_DTYPE.  Steps after[first[i] : first[i + 1]] wait for step i."""

    rows: Array
    after: Array
    first: Array


def steps(rows: Array, before: Array, after: Array) -> Steps:
    """Of rows whose `waits` counts nothing yet, and of pairs: after[i] waits for before[i]."""
    rows = rows.copy()
    order = np.argsort(before, kind="stable")
    rows["waits"] = np.bincount(after, minlength=len(rows))
    rows["waits"] += rows["kind"] == TAKE
    behind = rows["next"][rows["next"] != NONE]
    rows["waits"] += np.bincount(behind, minlength=len(rows)).astype(np.uint32)
    first = np.searchsorted(before[order], np.arange(len(rows) + 1)).astype(np.uint64)
    return Steps(rows, after[order].astype(np.uint32), first)
