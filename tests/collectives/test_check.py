# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The checker finds what is planted in plans, and lets no plan pass that goes wrong."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapath.collectives import Trace, algorithm, check, make, registry
from datapath.collectives.check import PlanFault
from datapath.collectives.plan import NO_STEP, Op, Plan
from datapath.errors import RunFailed
from tests.collectives.plans import is_right, plans

pytestmark = pytest.mark.compute


def ring(ranks: int = 4, **arguments: object) -> Plan:
    return make(registry()["ring"], ranks, 160, **arguments)  # type: ignore[arg-type]


def without_rows(plan: Plan, rows: list[int]) -> Plan:
    """Less some rows, with everything that names rows mended."""
    keep = np.setdiff1d(np.arange(len(plan.steps)), rows)
    place = np.full(len(plan.steps), -1, np.int64)
    place[keep] = np.arange(len(keep))
    steps = plan.steps[keep].copy()
    matched = steps["match"] != NO_STEP
    steps["match"][matched] = place[steps["match"][matched]]
    kept = (place[plan.waits["step"]] >= 0) & (place[plan.waits["on"]] >= 0)
    waits = plan.waits[kept].copy()
    waits["step"], waits["on"] = place[waits["step"]], place[waits["on"]]
    return plan.of(steps, waits)


def changed(plan: Plan, row: int, **fields: int) -> Plan:
    steps = plan.steps.copy()
    for name, value in fields.items():
        steps[name][row] = value
    return plan.of(steps)


def first(plan: Plan, op: Op, rank: int = 0) -> int:
    return int(np.flatnonzero((plan.steps["op"] == op) & (plan.steps["rank"] == rank))[0])


def a_missing_transfer(plan: Plan) -> Plan:
    row = first(plan, Op.REDUCE)
    return without_rows(plan, [row, int(plan.steps["match"][row])])


def a_copy_for_a_sum(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.REDUCE), op=Op.RECEIVE)


def a_sum_for_a_copy(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.RECEIVE), op=Op.REDUCE)


def no_waits(plan: Plan) -> Plan:
    return plan.of(waits=plan.waits[:0])


def a_wait_for_itself(plan: Plan) -> Plan:
    last = int(np.flatnonzero(plan.steps["rank"] == 0)[-1])
    waits = np.concatenate([plan.waits, plan.waits[:1]])
    waits[-1] = (0, last)
    return plan.of(waits=waits)


def another_place(plan: Plan) -> Plan:
    row = first(plan, Op.SEND)
    return changed(plan, row, offset=(int(plan.steps["offset"][row]) + 40) % 160)


def one_item_off(plan: Plan) -> Plan:
    row = first(plan, Op.RECEIVE)
    return changed(plan, row, offset=max(int(plan.steps["offset"][row]) - 4, 4))


def beyond_the_end(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.RECEIVE), offset=156)


def half_an_item(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.RECEIVE), offset=2)


def less_than_is_sent(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.REDUCE), bytes=36)


def nothing(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.RECEIVE), bytes=0)


def an_unknown_rank(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.SEND), peer=4)


def a_stranger(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.SEND), peer=2)


def to_itself(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.SEND), peer=0)


def no_other_end(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.SEND), match=NO_STEP)


def another_channel(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.SEND), channel=1)


def an_unknown_operation(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.SEND), op=9)


def an_unknown_buffer(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.SEND), buffer=7)


def into_the_input(plan: Plan) -> Plan:
    return changed(plan, first(plan, Op.RECEIVE), buffer=1)


def empty_scratch(plan: Plan) -> Plan:
    made = changed(plan, first(plan, Op.SEND), buffer=2, offset=0)
    return Plan(**{**vars(made), "scratch_bytes": 160})


def a_wait_for_another_rank(plan: Plan) -> Plan:
    waits = plan.waits.copy()
    waits["on"][0] = len(plan.steps) - 1
    return plan.of(waits=waits)


def a_wait_for_no_row(plan: Plan) -> Plan:
    waits = plan.waits.copy()
    waits["on"][0] = len(plan.steps)
    return plan.of(waits=waits)


def swapped_order(plan: Plan) -> Plan:
    """The two ends of a connection disagree on which transfer comes first."""
    steps = plan.steps.copy()
    a, b = np.flatnonzero((steps["op"] == Op.SEND) & (steps["rank"] == 0))[:2]
    x, y = steps["match"][[a, b]]
    steps["match"][[a, b]] = y, x
    steps["match"][[x, y]] = b, a
    return plan.of(steps)


PLANTED: list[tuple[Callable[[Plan], Plan], str]] = [
    (a_missing_transfer, "lack the input of rank"),
    (a_copy_for_a_sum, "lack the input of rank"),
    (a_sum_for_a_copy, "a second time"),
    (no_waits, "nothing makes it wait|lack the input"),
    (a_wait_for_itself, "deadlock: rank"),
    (another_place, "of another place"),
    (one_item_off, "nothing makes it wait"),
    (beyond_the_end, "beyond the end"),
    (half_an_item, "cuts an item"),
    (less_than_is_sent, "another size"),
    (nothing, "moves nothing"),
    (an_unknown_rank, "not one of the 4 ranks"),
    (a_stranger, "of other ranks"),
    (to_itself, "a rank sends to others"),
    (no_other_end, "nothing at the other end"),
    (another_channel, "another channel|there are 1 channels"),
    (an_unknown_operation, "no such operation"),
    (an_unknown_buffer, "no such buffer"),
    (into_the_input, "writes to the input|beyond the end"),
    (empty_scratch, "nobody has written"),
    (a_wait_for_another_rank, "its rank cannot know"),
    (a_wait_for_no_row, "names a row"),
    (swapped_order, "takes it before"),
]


@pytest.mark.parametrize(("plant", "message"), PLANTED, ids=lambda p: getattr(p, "__name__", ""))
def test_planted_faults_are_found(plant: Callable[[Plan], Plan], message: str) -> None:
    plan = check(ring())
    with pytest.raises(PlanFault, match=message) as told:
        check(plant(plan))
    if "names a row" not in message:
        assert "rank" in str(told.value)


def test_transfers_that_are_reduced_twice() -> None:
    """A transfer a second time, with all its waits."""
    plan = ring(2)
    row = first(plan, Op.REDUCE)
    pair = [int(plan.steps["match"][row]), row]
    where = np.sort(np.concatenate([np.arange(len(plan.steps)), pair]))
    copy_of = np.flatnonzero(np.concatenate([[False], where[1:] == where[:-1]]))
    steps = plan.steps[where].copy()
    place = np.searchsorted(where, np.arange(len(plan.steps)), side="left")
    steps["match"] = place[steps["match"]]
    new_send = next(r for r in copy_of if steps["op"][r] == Op.SEND)
    new_reduce = next(r for r in copy_of if steps["op"][r] == Op.REDUCE)
    steps["match"][new_send], steps["match"][new_reduce] = new_reduce, new_send
    waits = plan.waits.copy()
    waits["step"], waits["on"] = place[waits["step"]], place[waits["on"]]
    with pytest.raises(PlanFault, match="a second time"):
        check(plan.of(steps, waits))


def test_each_wait_of_a_ring_is_needed() -> None:
    """Without any one wait a schedule exists that goes wrong, or another path keeps the order."""
    plan = check(ring(3))
    missed = 0
    for row in range(len(plan.waits)):
        mutant = plan.of(waits=np.delete(plan.waits, row))
        try:
            check(mutant)
        except PlanFault:
            missed += 1
        else:
            assert all(is_right(mutant, seed) for seed in range(20))
    assert missed > 0


@given(plan=plans(max_ranks=5), seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_what_passes_goes_well(plan: Plan, seed: int) -> None:
    """A damaged plan is refused, or is right in all schedules that are tried."""
    draw = random.Random(seed)
    steps, waits = plan.steps.copy(), plan.waits.copy()
    for _ in range(draw.randint(1, 2)):
        kind = draw.randrange(4)
        if kind == 0 and len(waits):
            waits = np.delete(waits, draw.randrange(len(waits)))
        elif kind == 1 and len(steps):
            row = draw.randrange(len(steps))
            field = draw.choice(["offset", "bytes", "op", "buffer", "match", "peer", "channel"])
            steps[field][row] = draw.choice(steps[field].tolist())
        elif kind == 2 and len(steps):
            row = draw.randrange(len(steps))
            steps["offset"][row] += draw.choice([4, 8, 40])
        elif len(steps) > 1:
            a, b = draw.sample(range(len(steps)), 2)
            steps["match"][[a, b]] = steps["match"][[b, a]]
    mutant = plan.of(steps, waits)
    try:
        check(mutant)
    except PlanFault:
        return
    for schedule in range(5):
        assert is_right(mutant, seed + schedule)


def test_the_receivers_slots_count() -> None:
    """A plan that needs more transfers under way than a receiver holds is a deadlock."""
    plan = make(registry()["ring"], 2, 8 * 64, transfer_bytes=16)
    steps = plan.steps
    rows = np.flatnonzero((steps["op"] == Op.REDUCE) & (steps["rank"] == 1))
    sends = np.flatnonzero((steps["op"] == Op.SEND) & (steps["rank"] == 0))
    waits = np.concatenate([plan.waits, plan.waits[:1]])
    # The first sum of rank 1 waits for rank 1's last send of that phase, which waits for ...
    last = np.flatnonzero((steps["op"] == Op.SEND) & (steps["rank"] == 1))[-1]
    waits[-1] = (rows[0], last)
    assert len(sends) > 8
    with pytest.raises((PlanFault, RunFailed), match="deadlock"):
        check(plan.of(waits=waits))


def test_slots_are_no_order() -> None:
    """Rank 1 gets one item from rank 0 and, because five others came first, from rank 2 too.

    The sixth transfer from rank 0 needs a slot that the first one frees, if there are five slots.
    With eight, rank 2 may be the first.
    """

    @algorithm("late", collective="broadcast")
    def late(plan: Trace) -> None:
        plan.divide(6)
        for index in range(6):
            plan.chunk(0, "data", index).copy(1)
        for index in range(6):
            plan.chunk(0, "data", index).copy(2)
        plan.chunk(2, "data", 0).copy(1)

    made = make(late, 3, 24)
    assert check(made) is made
    sends = {
        (
            int(made.steps["rank"][row]),
            int(made.steps["peer"][row]),
            int(made.steps["offset"][row]),
        ): row
        for row in made.sends
    }
    back = made.steps["match"][sends[2, 1, 0]]
    waits = made.waits[made.waits["step"] != back]
    more = np.array([(sends[0, 2, 0], sends[0, 1, 20])], waits.dtype)
    with pytest.raises(PlanFault, match="nothing makes it wait"):
        check(made.of(waits=np.concatenate([waits, more])))


def test_a_step_that_waits_for_a_send_has_its_bytes_taken() -> None:
    """Two ranks swap: each adds to the data that it has just sent."""

    @algorithm("swap", collective="allreduce")
    def swap(plan: Trace) -> None:
        ends = [plan.chunk(rank, "data", 0) for rank in range(2)]
        sent = [ends[rank].copy(1 - rank, "scratch", 0) for rank in range(2)]
        for rank in range(2):
            ends[rank].reduce(sent[1 - rank])

    plan = check(make(swap, 2, 16))
    assert all(is_right(plan, seed) for seed in range(50))


def test_the_proof_of_a_tree_needs_no_table_of_all_pairs() -> None:
    """A number for each two ranks would be 128 MiB here, and eight GiB for 32,768 ranks."""
    ranks = 4096
    plan = make(registry()["tree"], ranks, 64)
    tracemalloc.start()
    try:
        check(plan)
        assert tracemalloc.get_traced_memory()[1] < 8 * ranks**2
    finally:
        tracemalloc.stop()


def test_an_output_that_no_step_writes_is_told() -> None:
    """Also of a plan without steps."""

    @algorithm("nothing", collective="alltoall")
    def nothing(plan: Trace) -> None:
        pass

    with pytest.raises(PlanFault, match=r"^rank 0: bytes 0 to 63 of the output are never written$"):
        check(make(nothing, 1, 64))
