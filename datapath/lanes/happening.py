# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events that wait for a condition: when they happen, as far as a run has come.

A lane looks at its network again and again.  What it sees are facts that only grow (bytes
delivered, flows that ended, the most that has waited), so nothing between two looks is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from datapath.fabric.changes import OrderFlow
from datapath.fabric.flows import BEGIN, END, HOLD
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


LOOK_NS = 10_000
"""Simulated time between two looks at what events wait for."""
_OVER_NS = 1_000_000
"""Between two looks at whether rows are held in vain."""


class FlowPlan(Protocol):
    """Groups of flows about which events decide while the run goes on."""

    def orders(self, events: Sequence[Event], over_ns: int | None) -> list[OrderFlow]:
        """By events that have a time; over_ns: rows that are held then end."""
        ...

    def is_over(self, now_ns: int, results: Any, orders: Sequence[OrderFlow]) -> bool:
        """Whether rows are held that nothing will begin."""
        ...


class Watch:
    """The events of a run.

    flows: the traffic table.  groups: name of a group -> its rows.  plan: of the groups that
    events decide about while the run goes on.
    """

    def __init__(
        self,
        events: Sequence[Event],
        flows: Any,
        groups: Mapping[str, Sequence[int]],
        plan: FlowPlan | None = None,
    ) -> None:
        self._flows, self._groups, self._plan = flows, groups, plan
        self._over_ns: int | None = None
        self._looked_ns = 0
        self.waiting = [event for event in events if event.when is not None]
        self.events = [event for event in events if event.when is None]
        """Those that have a time."""
        self._follow()
        self.orders = self._orders()
        """About flows of the plan, in order of time."""

    @property
    def look_ns(self) -> int:
        """Time between two looks; 0: there is nothing to look for."""
        if self.waiting:
            return LOOK_NS
        return _OVER_NS if self._plan is not None and self._over_ns is None else 0

    def look(self, seen: Seen) -> list[Event]:
        """The events that have a time now and had none before; times are not in the past.

        The orders are those of all events that have one.
        """
        before = len(self.events)
        for event in list(self.waiting):
            assert event.when is not None
            if event.when.event is None and self._holds(event.when, seen):
                self._give_time(event, seen.now_ns + event.when.later)
        self._follow()
        if len(self.events) > before:
            self.orders = self._orders()
        self._look_for_the_end(seen)
        return self.events[before:]

    def _look_for_the_end(self, seen: Seen) -> None:
        """Rows that are held in vain end."""
        if self._plan is None or self._over_ns is not None:
            return
        if seen.now_ns // _OVER_NS == self._looked_ns // _OVER_NS:
            return
        self._looked_ns = seen.now_ns
        about_flows = (event for event in self.events if event.about_flows)
        if any(event.time > seen.now_ns for event in about_flows):
            return
        if self._plan.is_over(seen.now_ns, seen.results, self.orders):
            self._over_ns = seen.now_ns
            self.orders = self._orders()

    def _orders(self) -> list[OrderFlow]:
        return [] if self._plan is None else self._plan.orders(self.events, self._over_ns)

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
        ended |= (stops > 0) & (stops <= seen.now_ns)
        begun = self._begun(rows, seen.now_ns)
        begun += results["posted_ns"].nonzero()[0].tolist()
        return bool(ended[begun].all())

    def _begun(self, rows: Sequence[int], now_ns: int) -> list[int]:
        """Places in rows of those that no order holds or has ended."""
        last = {order.flow: order.what for order in self.orders if order.at_ns <= now_ns}
        first = self._flows["held"][rows]
        what = [
            last.get(row, HOLD if held else BEGIN) for row, held in zip(rows, first, strict=True)
        ]
        return [place for place, one in enumerate(what) if one not in (HOLD, END)]

    def _rows(self, names: Sequence[str]) -> list[int]:
        return [row for name in names for row in self._groups[name]]


def untold(missed: Sequence[Event]) -> str:
    """What a record says of events that did not happen; "": all did."""
    return "; ".join(f"{event.text} (waits for: {event.waits_for})" for event in missed)
