# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How a simulation fails; sim.h lists the error numbers."""

from __future__ import annotations

import errno

from datapath.errors import DatapathError, RunFailed


class SimulationBroken(DatapathError):
    """Something happened that must never happen: a mistake in the engine or the simulator."""

    exit_code = 4


class Deadlock(DatapathError):
    """Flows have not ended and nothing moves: such as a cycle of paused links."""

    exit_code = 1


class TimeStandsStill(Deadlock):
    """Hosts send to each other without end, and nothing in the network takes time."""


_FAILURES: dict[int, type[DatapathError]] = {
    errno.EDEADLK: Deadlock,
    errno.ELOOP: TimeStandsStill,
    errno.ERANGE: RunFailed,
    errno.ECONNABORTED: RunFailed,
}


def failure(error: int, text: str) -> DatapathError:
    """The exception for an errno of dp_sim_run()."""
    return _FAILURES.get(error, SimulationBroken)(text)
