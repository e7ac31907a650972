# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Groups of flows that stop, start or change their algorithm on a condition.

The times of such events are not known when the table is made.  So the table has a held row for
each flow and each event that may start its group again, and the events become orders about rows
(datapath.fabric.flows.WHATS) while the run goes on.  Groups that draw flows, offer a rate or repeat
have no such rows: their flows that would begin meanwhile are held, and left out when the group
starts.  Nor have those that wait for flows, or are waited for: they are held, and go on then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datapath.cc.spec import HostCc
from datapath.fabric.changes import OrderFlow
from datapath.fabric.flows import BEGIN, CC, END, HOLD, UNTIL_STOP, FlowResults, Flows
from datapath.lanes.event_spec import Event


@dataclass
class Group:
    """A group and its rows of the table.

    again: rows of the flows that begin with the first, second ... start.  Without `anew`, flows
    that were held go on in their place.  late_ns: by row, after the start.  end_ns: a start behind
    it comes too late.
    """

    name: str
    rows: np.ndarray[Any, Any]
    again: Sequence[np.ndarray[Any, Any]]
    anew: bool
    late_ns: np.ndarray[Any, Any]
    end_ns: int


def group_of(
    name: str,
    flows: Flows,
    rows: Sequence[int],
    *,
    anew: bool,
    start_ns: int,
    end_ns: int,
) -> Group:
    """A group by its rows, with those of groups.with_held(), which have later tags."""
    mine = np.array(rows, np.int64)
    held = flows["held"][mine] > 0
    first = mine[~held]
    tags = np.unique(flows["tag"][mine[held]])
    again = [mine[held & (flows["tag"][mine] == tag)] for tag in tags]
    late = flows["start_ns"][first].astype(np.int64) - start_ns
    return Group(name, first, again, anew, late, end_ns)


class Plan:
    """What becomes of the groups of a table; lanes.happening.FlowPlan.

    numbers: the algorithms of events, as column `cc` has them.
    """

    def __init__(
        self, flows: Flows, groups: Sequence[Group], numbers: Sequence[tuple[HostCc, int]]
    ) -> None:
        self._flows, self._groups, self._numbers = flows, groups, numbers
        self._linked = flows["after"] > 0
        self._linked[flows["after"][self._linked].astype(np.int64) - 1] = True
        """By row: it waits for another, or another waits for it."""
        self.end_ns = max(group.end_ns for group in groups)

    def orders(self, events: Sequence[Event], over_ns: int | None) -> list[OrderFlow]:
        """By events that have a time, ordered by it.  over_ns: held rows end then; None: never.

        Further events add orders at their times, and take some of later times away.
        """
        events = sorted((e for e in events if e.about_flows), key=lambda event: event.time)
        found = [order for group in self._groups for order in self._of_group(group, events)]
        found.sort(key=lambda order: order.at_ns)
        if over_ns is not None:
            held = np.flatnonzero(self._stuck(self._fates(found, over_ns).held))
            found = [order for order in found if order.at_ns <= over_ns]
            # Those that wait for others first: the end of the others would let them begin.
            found += [OrderFlow(over_ns, int(row), END) for row in held[::-1]]
        return found

    def is_over(self, now_ns: int, results: Any, orders: Sequence[OrderFlow]) -> bool:
        """Whether rows are held that nothing will begin, since all the others have ended."""
        if any(order.at_ns > now_ns for order in orders):
            return False
        fates = self._fates(orders, now_ns, results)
        stops = self._flows["stop_ns"]
        ended = (results["finish_ns"] > 0) | (results["failed"] > 0)
        ended |= (stops > 0) & (stops <= now_ns)
        stuck = self._stuck(fates.held)
        return bool(fates.held.any() and (ended | stuck | fates.dropped).all())

    def settled(
        self, results: FlowResults, orders: Sequence[OrderFlow], marked: Sequence[int]
    ) -> tuple[Flows, list[int]]:
        """The table as it came to be, and the rows of it that were `marked` in the planned one.

        Rows that never began are not in it; results loses them, too.
        """
        fates = self._fates(orders, None, results.rows)
        kept = ~(fates.held | fates.dropped)
        flows = self._flows.copy()
        flows["start_ns"], flows["stop_ns"] = fates.start_ns, fates.stop_ns
        place = np.cumsum(kept)
        waits = flows["after"] > 0
        flows["after"][waits] = place[flows["after"][waits].astype(np.int64) - 1]
        results.rows = results.rows[kept]
        results.rows["flow"] = np.arange(len(results.rows))
        return flows[kept], np.flatnonzero(np.isin(np.flatnonzero(kept), marked)).tolist()

    # --- one group ---

    def _of_group(self, group: Group, events: Sequence[Event]) -> list[OrderFlow]:
        """The orders about one group, in order of the events."""
        found: list[OrderFlow] = []
        now, starts = group.rows, self._flows["start_ns"][group.rows].astype(np.int64)
        again = iter(group.again)
        stopped = False
        for event in events:
            at = event.time
            if event.cc is not None and group.name in (event.flows or [group.name]):
                found += self._changed(group, at, event.cc)
            elif group.name in (event.stop or ()) and not stopped:
                stopped = True
                found = [order for order in found if order.what != BEGIN or order.at_ns <= at]
                found += self._stopped(group, at, now, starts)
            elif group.name in (event.start or ()) and stopped and at < group.end_ns:
                stopped = False
                if group.anew:
                    now = next(again)
                    starts = at + group.late_ns
                    late = starts >= group.end_ns
                    found += [
                        OrderFlow(at if wrong else int(start), int(row), END if wrong else BEGIN)
                        for row, start, wrong in zip(now, starts, late, strict=True)
                    ]
                else:
                    found += [
                        OrderFlow(at, int(row), END if self._is_past(row, start, at) else BEGIN)
                        for row, start in self._held(found, now, starts)
                    ]
        return found

    def _stopped(self, group: Group, at: int, now: Any, starts: Any) -> Iterator[OrderFlow]:
        """Flows without end have finished, those of bytes go on, and no other one begins."""
        for row, start in zip(now, starts, strict=True):
            if start > at or self._flows["after"][row]:
                yield OrderFlow(at, int(row), END if group.anew else HOLD)
            elif self._flows["bytes"][row] == UNTIL_STOP:
                yield OrderFlow(at, int(row), END)

    def _is_past(self, row: int, start: int, at: int) -> bool:
        """Whether a held flow is left out; not where others wait for it or its end is to come."""
        flow = self._flows[row]
        return bool(start <= at and not self._linked[row] and flow["stop_ns"] <= at)

    def _stuck(self, held: Any) -> Any:
        """By row: it is held, or waits for one that is."""
        stuck = held.copy()
        for row in np.flatnonzero(self._flows["after"]):
            stuck[row] |= stuck[int(self._flows["after"][row]) - 1]
        return stuck

    def _held(self, found: Sequence[OrderFlow], now: Any, starts: Any) -> list[tuple[int, int]]:
        """(row, start) of the rows that are held, as of the orders so far."""
        last = {order.flow: order.what for order in found if order.what != CC}
        each = zip(now.tolist(), starts.tolist(), strict=True)
        return [(row, start) for row, start in each if last.get(row) == HOLD]

    def _changed(self, group: Group, at: int, cc: HostCc) -> list[OrderFlow]:
        """One order for each QP."""
        number = next(number for known, number in self._numbers if known == cc)
        mine = self._flows[group.rows][["src", "dst", "qp"]]
        _, first = np.unique(mine, return_index=True)
        return [OrderFlow(at, int(row), CC, number) for row in group.rows[np.sort(first)]]

    # --- all rows ---

    def _fates(
        self, orders: Sequence[OrderFlow], until_ns: int | None, results: Any = None
    ) -> _Fates:
        """Of the rows, by the orders up to a time; None: by all of them.

        results: tell which flows that wait had begun when they were to be held; unset: none.
        """
        flows = self._flows
        goes_on = np.zeros(len(flows), bool)
        if results is not None:
            goes_on = self._linked & (results["posted_ns"] > 0)
        fates = _Fates(
            flows["held"] > 0,
            np.zeros(len(flows), bool),
            flows["start_ns"].copy(),
            flows["stop_ns"].copy(),
        )
        for order in orders:
            if until_ns is not None and order.at_ns > until_ns:
                break
            row = order.flow
            if goes_on[row] and order.what in (HOLD, END):
                continue
            if order.what == HOLD:
                fates.held[row] = True
            elif order.what == BEGIN:
                fates.held[row] = False
                fates.start_ns[row] = max(int(fates.start_ns[row]), order.at_ns)
            elif order.what == END:
                fates.dropped[row] |= fates.held[row] or fates.start_ns[row] > order.at_ns
                fates.held[row] = False
                fates.stop_ns[row] = order.at_ns
        return fates


@dataclass
class _Fates:
    """By row.  held: it waits for an order.  dropped: it never began, and never will."""

    held: Any
    dropped: Any
    start_ns: Any
    stop_ns: Any
