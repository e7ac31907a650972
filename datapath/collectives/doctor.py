# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which link or rank holds up a live collective.

libdpcoll counts what each step took (dpcoll_steps()).  A transfer's time, from its post until the
peer's transport has it all, is of one clock and of one link.  Beside it stands the time of the same
transfer of the same plan in virtual time.  Hosts of a live run cost time that simulated ones do
not; a link deviates when its transfers take far longer than simulated plus what hosts cost on the
quicker links.

A rank deviates when all its links do, those to it and those from it; when its own work does: how
long its steps take from when they could begin; or when it stood still, stopped or without a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datapath.collectives.plan import Array, Op, Plan
from datapath.errors import LocalError

DEVIATES = 2.0
"""A link or rank is told of when it is so many times slower than the others let expect."""
MATTERS = 0.5
"""And when that costs so large a share of what a transfer takes on average."""
STILL = 0.1
"""A rank is told of when it stands still for so large a share of the time."""
_STEPS_BYTES_MAX = 64 * 2**20


@dataclass(frozen=True)
class LinkTime:
    """The transfers from a rank to another.

    live_ns, simulated_ns: of one transfer, mean.  factor: live_ns beside what is expected:
    simulated_ns and what hosts cost.  deviates: it matters, beside what transfers take elsewhere.
    """

    sender: int
    receiver: int
    transfers: int
    live_ns: float
    simulated_ns: float
    factor: float
    deviates: bool

    @property
    def sum_ns(self) -> float:
        """All transfers, one after the other."""
        return self.transfers * self.live_ns

    @property
    def excess_ns(self) -> float:
        """How much of it is more than expected."""
        return self.sum_ns * (1 - 1 / self.factor) if self.factor else 0.0


@dataclass(frozen=True)
class RankTime:
    """A rank's own work: what it does with what has arrived.  work_ns: of one step, mean.

    factor: beside the other ranks.  deviates: it matters, beside what transfers take.
    busy_ns: all of its collectives.  still: share of them in which the rank stood still; halts: it
    matters, and others stood still less.
    """

    rank: int
    work_ns: float
    factor: float
    deviates: bool
    busy_ns: float
    still: float
    halts: bool

    def explains(self, link: LinkTime) -> bool:
        """Whether its halts explain at least half of what transfers on the link took too long.

        A halt delays each transfer that is under way.
        """
        under_way = max(link.sum_ns / self.busy_ns, 1.0)
        return self.halts and link.excess_ns <= DEVIATES * self.still * self.busy_ns * under_way


@dataclass(frozen=True)
class Diagnosis:
    """links: the one that deviates most first.  hosts_ns: what hosts cost a transfer."""

    links: tuple[LinkTime, ...]
    ranks: tuple[RankTime, ...]
    hosts_ns: float

    @property
    def slow_ranks(self) -> list[int]:
        """Those that halt, whose work deviates, or all of whose links do, in both directions."""
        by_work = {rank.rank for rank in self.ranks if rank.deviates or rank.halts}
        return sorted(by_work | self._slow_by_links())

    def _slow_by_links(self) -> set[int]:
        by_links = set()
        for rank in self.ranks:
            to = [link.deviates for link in self.links if link.receiver == rank.rank]
            from_ = [link.deviates for link in self.links if link.sender == rank.rank]
            if to and from_ and all(to + from_):
                by_links.add(rank.rank)
        return by_links

    @property
    def slow_links(self) -> list[LinkTime]:
        """Those that deviate, and not for a rank at one of their ends."""
        by_links = self._slow_by_links()
        ends = [(link, [self.ranks[link.sender], self.ranks[link.receiver]]) for link in self.links]
        return [
            link
            for link, pair in ends
            if link.deviates
            and not any(r.deviates or r.rank in by_links or r.explains(link) for r in pair)
        ]

    def verdicts(self) -> list[str]:
        """The deviations, in sentences; one sentence when there is none."""
        told = [self._of_rank(rank) for rank in self.slow_ranks]
        told += [
            f"the link from rank {link.sender} to rank {link.receiver} deviates: a transfer takes "
            f"{_ms(link.live_ns)}, {link.factor:.1f} times what is expected"
            for link in self.slow_links
        ]
        simulated_ns = max(link.simulated_ns for link in self.links)
        if not told and self.hosts_ns >= simulated_ns * (DEVIATES - 1):
            told.append(
                "no link and no rank stands out, but a transfer takes "
                f"{_ms(self.hosts_ns)} more than simulated: the hosts or the path are slower"
            )
        return told or ["no link and no rank deviates"]

    def _of_rank(self, rank: int) -> str:
        links = [link for link in self.links if rank in (link.sender, link.receiver)]
        factors = [link.factor for link in links if link.deviates]
        own = next(one for one in self.ranks if one.rank == rank)
        parts = []
        if len(factors) == len(links):
            parts.append(
                f"on all its links transfers take {min(factors):.1f} to {max(factors):.1f} times "
                "what is expected"
            )
        if own.halts:
            parts.append(f"it stood still for {own.still:.0%} of the time")
        if own.deviates:
            parts.append(
                f"a step waits {_ms(own.work_ns)} for it, {own.factor:.1f} times as long as for "
                "others"
            )
        return f"rank {rank} deviates: {', and '.join(parts)}"


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.3g} ms"


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements of ranks.

    counts, sums_ns: of each row of the plan, how often it was done, and how long that took.
    busy_ns, still_ns: of each rank, as dpcoll_steps() has them.
    """

    counts: Array
    sums_ns: Array
    busy_ns: Array
    still_ns: Array


def read_steps(paths: Sequence[Path], plan: Plan) -> Measured:
    """Read the file of each rank; LocalError when one does not fit the plan."""
    counts, sums, times = [], [], []
    for rank, path in enumerate(paths):
        wanted = plan.steps["step"][plan.steps["rank"] == rank]
        try:
            if path.stat().st_size > _STEPS_BYTES_MAX:
                raise ValueError("it is too large")
            first, _, *lines = path.read_text().splitlines()
            times.append([int(word) for word in first.split("\t")[1::2]])
            table = np.array([line.split("\t") for line in lines], np.int64).reshape(-1, 4)
            if len(times[-1]) != 2:
                raise ValueError("its first line has no two times")
        except (OSError, ValueError) as error:
            raise LocalError(f"{path}: the times of rank {rank} cannot be read: {error}") from None
        if not np.array_equal(table[:, 0], wanted) or (table < 0).any():
            raise LocalError(f"{path}: it is not of rank {rank} of this plan")
        counts.append(table[:, 1])
        sums.append(table[:, 2])
    busy, still = np.array(times).T
    return Measured(np.concatenate(counts), np.concatenate(sums), busy, still)


def diagnose(plan: Plan, measured: Measured, simulated_ns: Array, node: int = 1) -> Diagnosis:
    """Hold a live run against virtual time.

    simulated_ns: of each of plan.sends.  node: so many ranks that follow each other share memory:
    what they send each other tells nothing of what hosts cost on a link.
    """
    if not measured.counts.any():
        raise LocalError("the ranks have not ended one collective", hint="see collective-*.err")
    links, hosts_ns = _links(plan, measured, simulated_ns, node)
    far = [link for link in links if link.sender // node != link.receiver // node]
    transfer_ns = float(np.mean([link.simulated_ns for link in far])) + hosts_ns
    return Diagnosis(links, _ranks(plan, measured, transfer_ns), hosts_ns)


def _quick(values: Sequence[float]) -> float:
    """The upper end of the fastest third, which a few slow values do not move."""
    return sorted(values)[(len(values) - 1) // 3]


def _links(
    plan: Plan, measured: Measured, simulated_ns: Array, node: int
) -> tuple[tuple[LinkTime, ...], float]:
    rows, near, costs = plan.sends, plan.inside(node), []
    pairs = plan.steps["rank"][rows].astype(np.int64) * plan.ranks + plan.steps["peer"][rows]
    found = []
    for pair in np.unique(pairs).tolist():
        here = pairs == pair
        count = int(measured.counts[rows[here]].sum())
        live = float(measured.sums_ns[rows[here]].sum()) / max(count, 1)
        simulated = float(simulated_ns[here].mean())
        found.append((pair, count, live, simulated))
        if not near[here].any():
            costs.append(live - simulated)
    hosts = max(_quick(costs), 0.0)
    matters = float(simulated_ns[~near].mean()) * MATTERS
    links = []
    for pair, count, live, simulated in found:
        expected = max(simulated + hosts, 1.0)
        deviates = live >= DEVIATES * expected and live - expected >= matters
        ends = pair // plan.ranks, pair % plan.ranks
        links.append(LinkTime(*ends, count, live, simulated, live / expected, deviates))
    return tuple(sorted(links, key=lambda link: (not link.deviates, -link.factor))), hosts


def _ranks(plan: Plan, measured: Measured, transfer_ns: float) -> tuple[RankTime, ...]:
    own = plan.steps["op"] != Op.SEND
    ranks = plan.steps["rank"].astype(np.int64)
    often = np.bincount(ranks[own], measured.counts[own], plan.ranks)
    sums_ns = np.bincount(ranks[own], measured.sums_ns[own], plan.ranks)
    works = sums_ns / np.maximum(often, 1)
    quick = max(_quick(works[often > 0].tolist()), 1.0)
    times = np.maximum(measured.busy_ns, 1)
    stills = (measured.still_ns / times).tolist()
    return tuple(
        RankTime(
            rank,
            work,
            work / quick,
            work / quick >= DEVIATES and work - quick >= transfer_ns * MATTERS,
            busy,
            still,
            still >= max(STILL, DEVIATES * _quick(stills)),
        )
        for rank, (work, busy, still) in enumerate(
            zip(works.tolist(), times.tolist(), stills, strict=True)
        )
    )
