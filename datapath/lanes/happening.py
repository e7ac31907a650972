# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events that wait for a condition: when they happen, as far as a run has come.

A lane looks at its network again and again.  What it sees are facts that only grow (bytes
delivered, flows that ended, the most that has waited), so nothing between two looks is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datapath.lanes.condition_spec import Condition
from datapath.lanes.event_spec import Event


@dataclass(frozen=True)
class Seen:
    """A run at a moment.

    now_ns: on the clock of the events.  results: RESULT_DTYPE, rows as in the traffic table.
    queue_peak: name of a link -> the most bytes that have waited; asked only where it matters.
    """

    now_ns: int
    results: Any
    queue_peak: Callable[[str], int]


class Watch:
    """The events of a run.

    flows: the traffic table.  groups: name of a group -> its rows.
    """

    def __init__(
        self, events: Sequence[Event], flows: Any, groups: Mapping[str, Sequence[int]]
    ) -> None:
        self._flows, self._groups = flows, groups
        self.waiting = [event for event in events if event.when is not None]
        self.events = [event for event in events if event.when is None]
        """Those that have a time."""
        self._follow()

    def look(self, seen: Seen) -> list[Event]:
        """The events that have a time now and had none before; times are not in the past."""
        before = len(self.events)
        for event in list(self.waiting):
            assert event.when is not None
            if event.when.event is None and self._holds(event.when, seen):
                self._give_time(event, seen.now_ns + event.when.later)
        self._follow()
        return self.events[before:]

    def happened(self, end_ns: int) -> list[Event]:
        """Those whose time has come until the end of a run, in order of time."""
        return sorted((e for e in self.events if e.time <= end_ns), key=lambda e: e.time)

    def missed(self, end_ns: int) -> list[Event]:
        """All others."""
        return [*self.waiting, *(event for event in self.events if event.time > end_ns)]

    def _follow(self) -> None:
        """Give times to those that wait for events which have a time."""
        moved = True
        while moved:
            moved = False
            for event in list(self.waiting):
                assert event.when is not None
                for other in self.events if event.when.event is not None else ():
                    if other.label == event.when.event:
                        self._give_time(event, other.time + event.when.later)
                        moved = True
                        break

    def _give_time(self, event: Event, at_ns: int) -> None:
        self.waiting.remove(event)
        self.events.append(event.model_copy(update={"at": at_ns, "when": None}))

    def _holds(self, when: Condition, seen: Seen) -> bool:
        if when.queue is not None:
            return seen.queue_peak(when.queue_name) > when.queue
        if when.delivered is not None:
            mine = seen.results["delivered_bytes"]
            if when.flows is not None:
                mine = mine[self._rows(when.flows)]
            return int(mine.sum()) >= when.delivered
        rows = self._rows(when.finished or [])
        results = seen.results[rows]
        stops = self._flows["stop_ns"][rows]
        ended = (results["finish_ns"] > 0) | (results["failed"] > 0)
        return bool((ended | ((stops > 0) & (stops <= seen.now_ns))).all())

    def _rows(self, names: Sequence[str]) -> list[int]:
        return [row for name in names for row in self._groups[name]]


def untold(missed: Sequence[Event]) -> str:
    """What a record says of events that did not happen; "": all did."""
    return "; ".join(f"{event.text} (waits for: {event.waits_for})" for event in missed)
