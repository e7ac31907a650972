# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The order of the steps of a plan: the graph that its executors keep.

Row a comes before row b when b waits for a, when b is the other end of a's SEND, when both are of
one connection and one kind, or when b is a SEND that needs the slot at the receiver which a frees.
"""

from __future__ import annotations

import numpy as np

from datapath.collectives.plan import Array, Op, Plan

SLOTS = 5
"""Transfers of one connection that a receiver surely holds before their step.

libdpcoll has eight slots, and tells that they are free four at a time.
"""


class Order:
    """The graph of a plan whose rows have been checked one by one.

    slots: of each receiver; None: as many as a plan needs, so that no SEND waits for one.
    after: successors of row r are after[first[r] : first[r + 1]].
    """

    def __init__(self, plan: Plan, slots: int | None = SLOTS) -> None:
        edges = [_pairs(plan.waits["on"], plan.waits["step"])]
        sends = plan.sends
        edges.append(_pairs(sends, plan.steps["match"][sends]))
        numbers = plan.connections()
        for kind in (plan.steps["op"] == Op.SEND, plan.steps["op"] != Op.SEND):
            rows = np.flatnonzero(kind & (numbers >= 0))
            rows = rows[np.argsort(numbers[rows], kind="stable")]
            same = numbers[rows[1:]] == numbers[rows[:-1]]
            edges.append(_pairs(rows[:-1][same], rows[1:][same]))
        if slots is not None:
            edges.append(_slots(plan, numbers, slots))
        joined = np.concatenate(edges)
        joined = joined[np.argsort(joined[:, 0], kind="stable")]
        count = len(plan.steps)
        self.first = np.searchsorted(joined[:, 0], np.arange(count + 1))
        self.after = joined[:, 1]
        self.into = np.bincount(joined[:, 1], minlength=count)

    def sorted(self) -> list[int]:
        """All rows, each behind those before it; fewer when there is a cycle."""
        into, after, first = self.into.tolist(), self.after.tolist(), self.first.tolist()
        ready = [row for row, count in enumerate(into) if not count]
        done: list[int] = []
        while ready:
            row = ready.pop()
            done.append(row)
            for other in after[first[row] : first[row + 1]]:
                into[other] -= 1
                if not into[other]:
                    ready.append(other)
        return done

    def reaches(self, row: int, target: int, position: Array) -> bool:
        """Whether row comes before target.  position: of each row in sorted()."""
        limit, seen, stack = int(position[target]), {row}, [row]
        while stack:
            at = stack.pop()
            for other in self.after[self.first[at] : self.first[at + 1]].tolist():
                if other == target:
                    return True
                if other not in seen and position[other] < limit:
                    seen.add(other)
                    stack.append(other)
        return False


def _slots(plan: Plan, numbers: Array, slots: int) -> Array:
    """The SEND that takes a slot again comes after the step that freed it."""
    rows = plan.sends[np.argsort(numbers[plan.sends], kind="stable")]
    early, late = rows[:-slots], rows[slots:]
    same = numbers[early] == numbers[late]
    return _pairs(plan.steps["match"][early[same]], late[same])


def _pairs(before: Array, after: Array) -> Array:
    return np.stack([before.astype(np.int64), after.astype(np.int64)], axis=1)
