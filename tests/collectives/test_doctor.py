# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the doctor makes of times of steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datapath.collectives import check, load, make
from datapath.collectives.doctor import Diagnosis, Measured, diagnose, read_steps
from datapath.collectives.plan import Array, Op, Plan
from datapath.errors import LocalError

pytestmark = pytest.mark.compute

RANKS, OFTEN = 4, 10
SIMULATED_NS, HOSTS_NS, WORK_NS = 1_000_000, 300_000, 50_000


@pytest.fixture(scope="module")
def ring() -> Plan:
    return check(make(load("ring"), RANKS, 4096))


def even(plan: Plan) -> Array:
    """What steps take when nothing deviates."""
    each = np.where(plan.steps["op"] == Op.SEND, SIMULATED_NS + HOSTS_NS, WORK_NS)
    return np.asarray(OFTEN * each)


def diagnosed(plan: Plan, sums_ns: Array, still_ns: tuple[int, ...] = RANKS * (0,)) -> Diagnosis:
    """still_ns: of each rank, of 1 s."""
    counts = np.full(len(plan.steps), OFTEN)
    busy_ns = np.full(RANKS, 10**9)
    measured = Measured(counts, sums_ns, busy_ns, np.array(still_ns))
    return diagnose(plan, measured, np.full(len(plan.sends), float(SIMULATED_NS)))


def between(plan: Plan, sender: int, receiver: int) -> Array:
    steps = plan.steps
    of_link = (steps["rank"] == sender) & (steps["peer"] == receiver)
    return np.asarray(of_link & (steps["op"] == Op.SEND))


def test_what_hosts_cost_is_no_deviation(ring: Plan) -> None:
    found = diagnosed(ring, even(ring))
    assert found.verdicts() == ["no link and no rank deviates"]
    assert found.hosts_ns == HOSTS_NS
    assert {round(link.factor, 3) for link in found.links} == {1.0}


def test_a_slow_link_is_named(ring: Plan) -> None:
    times = even(ring)
    times[between(ring, 1, 2)] *= 4
    found = diagnosed(ring, times)
    assert found.slow_ranks == []
    [told] = found.verdicts()
    assert "from rank 1 to rank 2 deviates: a transfer takes 5.2 ms, 4.0 times" in told


def test_a_rank_with_slow_links_in_both_directions_is_named(ring: Plan) -> None:
    times = even(ring)
    times[between(ring, 1, 2)] *= 3
    times[between(ring, 2, 3)] *= 5
    found = diagnosed(ring, times)
    assert (found.slow_ranks, found.slow_links) == ([2], [])
    assert "rank 2 deviates: on all its links transfers take 3.0 to 5.0" in found.verdicts()[0]


def test_a_rank_that_works_slowly_is_named(ring: Plan) -> None:
    times = even(ring)
    work = (ring.steps["rank"] == 3) & (ring.steps["op"] != Op.SEND)
    times[work] *= 40
    found = diagnosed(ring, times)
    assert (found.slow_ranks, found.slow_links) == ([3], [])
    assert "a step waits 2 ms for it, 40.0 times as long as for others" in found.verdicts()[0]


def test_a_rank_that_stood_still_is_named(ring: Plan) -> None:
    found = diagnosed(ring, even(ring), (0, 300_000_000, 20_000_000, 0))
    assert found.slow_ranks == [1]
    assert found.verdicts() == ["rank 1 deviates: it stood still for 30% of the time"]
    assert diagnosed(ring, even(ring), 4 * (300_000_000,)).slow_ranks == []


@pytest.mark.parametrize(("still_ns", "links"), [(150_000_000, [(1, 2)]), (400_000_000, [])])
def test_a_rank_that_stood_still_explains_so_much_of_a_slow_link(
    ring: Plan, still_ns: int, links: list[tuple[int, int]]
) -> None:
    """A link whose transfers took 0.6 s more in all; a rank at its end that halted for a part."""
    times = even(ring)
    slow = between(ring, 1, 2)
    times[slow] += 600_000_000 // np.count_nonzero(slow)
    found = diagnosed(ring, times, (0, still_ns, 0, 0))
    assert found.slow_ranks == [1]
    assert [(link.sender, link.receiver) for link in found.slow_links] == links


def test_slow_hosts_are_told_of_together(ring: Plan) -> None:
    [told] = diagnosed(ring, 5 * even(ring)).verdicts()
    assert "no link and no rank stands out, but a transfer takes 5.5 ms more" in told


def test_files_that_do_not_fit_are_refused(ring: Plan, tmp_path: Path) -> None:
    def write(rank: int, damage: str = "") -> Path:
        steps = ring.steps["step"][ring.steps["rank"] == rank].tolist()
        path = tmp_path / f"{rank}.steps"
        lines = [f"{step}\t{OFTEN}\t{step * 1000}\t7" for step in steps]
        head = [f"busy_ns\t900\tstill_ns\t{rank}", "step\tcount\tsum_ns\tlongest_ns"]
        path.write_text("\n".join([*head, *lines]) + damage)
        return path

    measured = read_steps([write(rank) for rank in range(RANKS)], ring)
    assert (measured.counts == OFTEN).all()
    assert (measured.sums_ns == ring.steps["step"] * 1000).all()
    assert measured.busy_ns.tolist() == RANKS * [900]
    assert measured.still_ns.tolist() == list(range(RANKS))
    for damage, message in (
        ("\n99\t1\t1\t1", "is not of rank 2"),
        ("\nx\t1\t1\t1", "the times of rank 2 cannot be read"),
        ("\n1\t1", "the times of rank 2 cannot be read"),
    ):
        paths = [write(rank, damage if rank == 2 else "") for rank in range(RANKS)]
        with pytest.raises(LocalError, match=message):
            read_steps(paths, ring)
    nothing = Measured(np.zeros(len(ring.steps)), even(ring), np.ones(RANKS), np.ones(RANKS))
    with pytest.raises(LocalError, match="have not ended one collective"):
        diagnose(ring, nothing, np.ones(len(ring.sends)))
