# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The toolkit's algorithms give what their collectives say, for any ranks and sizes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapath.collectives import Trace, algorithm, check, load, make, registry
from datapath.collectives.check import PlanFault
from datapath.collectives.make import TRANSFER_BYTES, make_uneven
from datapath.collectives.plan import Op, Plan, read
from datapath.errors import LocalError
from tests.collectives.plans import NAMES, is_right, plans, uneven_plans

pytestmark = pytest.mark.compute


@given(plan=plans(), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_plans_are_right_in_any_order(plan: Plan, seed: int) -> None:
    check(plan)
    assert is_right(plan, seed)


@given(plan=uneven_plans(), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_parts_of_several_sizes_arrive_in_any_order(plan: Plan, seed: int) -> None:
    check(plan)
    assert is_right(plan, seed)


@given(plan=plans())
@settings(max_examples=50, deadline=None)
def test_transfers_keep_to_their_size(plan: Plan) -> None:
    wanted = make(
        registry()[plan.algorithm],
        plan.ranks,
        plan.data_bytes,
        transfer_bytes=64,
        root=plan.root,
        params={"per_node": 1} if plan.algorithm == "two_level" else {},
    )
    assert wanted.slot_bytes <= 64


def test_whole_transfers_are_not_cut_further() -> None:
    """Of sizes that are multiples of a transfer no slice is larger, and none is added."""
    for transfers in range(1, 60):
        size = transfers * TRANSFER_BYTES
        parts = np.full((2, 2), size)
        for plan, senders in (
            (make_uneven(registry()["pairwise"], parts, item_bytes=1), 2),
            (make(registry()["tree"], 2, size, item_bytes=1), 1),
        ):
            assert len(plan.sends) == senders * transfers
            assert set(plan.steps["bytes"][plan.sends]) == {TRANSFER_BYTES}


@pytest.mark.parametrize("name", ["gather_tree", "scatter_tree"])
@pytest.mark.parametrize("ranks", [3, 4, 5, 8, 16])
@pytest.mark.parametrize("size", [3 * 2**18, 2**20])
def test_parts_that_no_transfer_holds_together_go_one_by_one(
    name: str, ranks: int, size: int
) -> None:
    """A tree moves blocks of parts: here each part fits into a transfer, and a block does not."""
    whole = -(-size // (4 * ranks)) * 4 * ranks
    plan = check(make(registry()[name], ranks, whole, steps_max=4 * ranks**2))
    assert plan.slot_bytes <= TRANSFER_BYTES
    # Each rank's part takes each edge of the tree between it and the root once.
    edges = sum(bin(rank).count("1") for rank in range(ranks))
    assert plan.steps["bytes"][plan.sends].sum() == edges * whole // ranks


@pytest.mark.parametrize("name", NAMES)
def test_algorithms_are_short(name: str) -> None:
    source = inspect.getsource(registry()[name].function).splitlines()
    body = [line for line in source if line.strip()]
    doc = registry()[name].doc
    lines = len(body) - len([line for line in doc.splitlines() if line.strip()]) - 1
    assert lines <= 20


def sent(name: str, ranks: int, size: int, **params: int) -> np.ndarray:
    """Bytes that each rank sends."""
    plan = make(registry()[name], ranks, size, params=params)
    rows = plan.steps[plan.steps["op"] == Op.SEND]
    return np.bincount(rows["rank"], rows["bytes"], ranks)


def test_rings_send_the_least() -> None:
    """2 (n - 1) / n of the size for an allreduce, half of it for its halves."""
    assert (sent("ring", 4, 4096) == 2 * 3 / 4 * 4096).all()
    assert (sent("halving_doubling", 8, 4096) == 2 * 7 / 8 * 4096).all()
    assert (sent("ring_allgather", 4, 4096) == 3 / 4 * 4096).all()
    assert (sent("ring_reduce_scatter", 4, 4096) == 3 / 4 * 4096).all()
    assert (sent("pairwise", 4, 4096) == 3 / 4 * 4096).all()


def test_two_levels_spare_the_rails() -> None:
    plan = make(registry()["two_level"], 8, 8192, params={"per_node": 4})
    rows = plan.steps[plan.steps["op"] == Op.SEND]
    between = rows["rank"] // 4 != rows["peer"] // 4
    crossing = np.bincount(rows["rank"][between], rows["bytes"][between], 8)
    assert (crossing == 2 * 1 / 2 * 8192 / 4).all()


def test_channels_have_their_shares() -> None:
    plan = make(registry()["ring"], 4, 400_000, channels=2, shares=[3, 1], transfer_bytes=4096)
    rows = plan.steps[plan.steps["op"] == Op.SEND]
    carried = np.bincount(rows["channel"], rows["bytes"])
    assert carried[0] / carried.sum() == pytest.approx(0.75, abs=0.001)


def test_files_hold_plans(tmp_path: Path) -> None:
    plan = make(registry()["ring"], 3, 300, transfer_bytes=32, channels=2)
    plan.write(tmp_path / "ring.plan")
    again = read(tmp_path / "ring.plan")
    assert np.array_equal(again.steps, plan.steps)
    assert np.array_equal(again.waits, plan.waits)
    check(again)
    (tmp_path / "cut.plan").write_bytes((tmp_path / "ring.plan").read_bytes()[:-1])
    with pytest.raises(LocalError, match="where its head tells"):
        read(tmp_path / "cut.plan")


def test_the_table_is_readable() -> None:
    frame = make(registry()["ring"], 2, 8).frame()
    assert sorted(frame["op"]) == sorted(2 * ["send", "send", "reduce", "receive"])
    assert frame["waits_for"].map(len).sum() > 0


OWN = """
from datapath.collectives import Trace, algorithm

@algorithm("star", collective="allreduce")
def star(plan: Trace, middle: int = 0) -> None:
    for rank in range(plan.ranks):
        if rank != middle:
            plan.chunk(middle, "data", 0).reduce(plan.chunk(rank, "data", 0))
    for rank in range(plan.ranks):
        if rank != middle:
            plan.chunk(middle, "data", 0).copy(rank)
"""


def test_an_algorithm_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "star.py"
    path.write_text(OWN)
    plan = check(make(load(str(path)), 5, 400, params={"middle": 2}))
    assert is_right(plan)
    assert "star" not in registry()


SIBLINGS = """
def others(plan): return [rank for rank in range(plan.ranks) if rank != plan.root]
"""
WITH_OTHERS = """
from __future__ import annotations
from dataclasses import dataclass
from datapath.collectives import Trace, algorithm
from datapath.collectives.algorithms.ring import ring_reduce
from siblings_of_mine import others

@dataclass
class Edge:
    parent: int
    child: int

@algorithm("ring", collective="broadcast")
def mine(plan: Trace) -> None:
    for edge in [Edge(plan.root, rank) for rank in others(plan)]:
        plan.chunk(edge.parent, "data", 0).copy(edge.child)
"""


def test_a_file_of_ones_own_is_a_module_like_any(tmp_path: Path) -> None:
    """It imports its neighbours and the toolkit's algorithms, first of all here, and they stay."""
    (tmp_path / "siblings_of_mine.py").write_text(SIBLINGS)
    (tmp_path / "mine.py").write_text(WITH_OTHERS)
    program = (
        "import sys\n"
        "from datapath.collectives import check, load, make\n"
        "check(make(load(sys.argv[1]), 3, 300))\n"
        "print(load('ring').collective, *sorted(set(sys.modules) & {'siblings_of_mine'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(tmp_path / "mine.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "allreduce\n", done


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("middle: int = 0", "middle: int"), "needs a default"),
        (('"allreduce"', '"allsum"'), "no collective 'allsum'"),
        (
            ('rank, "data", 0)', 'rank, "data", 1)'),
            "star.py:8: algorithm star: rank 1 has chunks 0 to 0 of data",
        ),
        (("plan.ranks", "plan.nodes"), "star.py:6: AttributeError: .* no attribute 'nodes'"),
        (
            ("for rank in", "raise ValueError\n    for rank in"),
            r"star.py:6: ValueError \(with 3 ranks\)",
        ),
        (("def star", "def star("), r"star.py:5: SyntaxError"),
        (("@algorithm", "[][1]\n@algorithm"), r"star.py:4: IndexError: list index out of range"),
        (('"data"', '"date"'), "no buffer 'date'"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "star.py"
    path.write_text(OWN.replace(*change))
    with pytest.raises(LocalError, match=message):
        make(load(str(path)), 3, 64)


def test_the_line_of_a_mistake_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "star.py").write_text(OWN.replace("plan.ranks", "[][plan.ranks]"))
    (tmp_path / "top.py").write_text("\n[][1]\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LocalError, match=r"^star\.py:6: IndexError: list index out of range"):
        make(load("./star.py"), 3, 64)
    with pytest.raises(LocalError, match=r"^top\.py:2: IndexError"):
        load("./top.py")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"per_node": 0}, "4 ranks do not make nodes of 0"),
        ({"per_node": "two"}, "per_node='two' is not a whole number"),
        ({"per_node": 2, "rails": 3}, "rails '3': give 2 whole numbers"),
        ({"nodes": 2}, "has no parameter nodes"),
    ],
)
def test_wrong_parameters_are_told(params: dict[str, int | str], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        make(registry()["two_level"], 4, 64, params=params)


@pytest.mark.parametrize(
    ("value", "wanted"), [(True, 1), ("true", 1), (1, 1), (False, 0), ("false", 0), (0, 0)]
)
def test_a_flag_is_true_or_false(value: bool | int | str, wanted: int) -> None:
    @algorithm("flagged", collective="broadcast")
    def flagged(plan: Trace, last: bool = False) -> None:
        assert isinstance(last, bool)
        plan.chunk(0, "data", 0).copy(1, channel=int(last))

    assert make(flagged, 2, 64, params={"last": value}).channels == wanted + 1
    for wrong in ("no", "False", 2, 0.5):
        with pytest.raises(LocalError, match=f"last={wrong!r} is not true or false"):
            make(flagged, 2, 64, params={"last": wrong})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([[4, 4]], "shape"),
        ([[4, -4], [4, 4]], "multiples of 4 bytes"),
        ([[4, 6], [4, 4]], "multiples of 4 bytes"),
        ([[0, 0], [0, 0]], "not all of them 0"),
    ],
)
def test_parts_that_make_no_sense_are_refused(parts: list[list[int]], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        make_uneven(registry()["pairwise"], np.array(parts))
    with pytest.raises(LocalError, match="for an alltoall"):
        make_uneven(registry()["ring"], np.array([[4]]))


def test_who_gets_a_part_of_another_size_is_refused() -> None:
    """The checker knows the sizes: a plan for others of the same buffers is wrong."""
    plan = make_uneven(registry()["pairwise"], np.array([[4, 8], [12, 4]]))
    with pytest.raises(PlanFault, match="of the output"):
        check(replace(plan, parts=np.array([[8, 4], [8, 8]])))


def test_sizes_that_make_no_sense_are_refused() -> None:
    for name, size in (("ring", 0), ("ring", 6), ("ring_allgather", 4 * 7)):
        with pytest.raises(LocalError, match="size"):
            make(registry()[name], 3, size)
