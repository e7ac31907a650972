# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How often a run is made again for which this machine's CPUs did not suffice."""

from __future__ import annotations

FUTILE = 3
"""Runs in a row that no retake helped; those behind them are made again once."""


class Retakes:
    """Ends retakes that do not help.

    A machine that is too small for a sweep makes every run of it CPU-starved.  All retakes of all
    runs would take hours, and change nothing.
    """

    def __init__(self, most: int) -> None:
        """most: retakes of a run, at most."""
        self._most = most
        self._futile = 0

    @property
    def most(self) -> int:
        """Retakes that the next run may have."""
        return min(self._most, 1) if self._futile >= FUTILE else self._most

    def note(self, made: int, limited: bool) -> bool:
        """Take in a run that was retaken `made` times, and was `limited` at last as well or not.

        True: from now on runs are retaken once.
        """
        before = self.most
        if not limited:
            self._futile = 0
        elif made:
            self._futile += 1
        return self.most < before
