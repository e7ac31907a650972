# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Plans, inputs and results, for the tests of collectives."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from datapath.collectives import make, registry
from datapath.collectives.execute import defined, execute, expected
from datapath.collectives.make import make_uneven
from datapath.collectives.plan import Array, Plan
from datapath.collectives.trace import by_parts

NAMES = sorted(registry())


def draw_inputs(plan: Plan, seed: int = 1) -> list[Array]:
    """Of each rank numbers whose sums are exact."""
    rng = np.random.default_rng(seed)
    items = (plan.input_bytes or plan.data_bytes) // plan.item_bytes
    items //= plan.ranks if plan.collective in ("allgather", "gather") else 1
    return [rng.integers(-1000, 1000, items).astype(np.int32) for _ in range(plan.ranks)]


def is_right(plan: Plan, seed: int = 1) -> bool:
    """Whether one random schedule gives what the collective says."""
    inputs = draw_inputs(plan, seed)
    return all(
        np.array_equal(out[defined(plan, rank)], wanted[defined(plan, rank)])
        for rank, (out, wanted) in enumerate(
            zip(execute(plan, inputs, seed=seed), expected(plan, inputs), strict=True)
        )
    )


@st.composite
def plans(draw: st.DrawFn, max_ranks: int = 9) -> Plan:
    """Plans of the toolkit's algorithms, of any size, slices and channels."""
    name = draw(st.sampled_from(NAMES))
    ranks = draw(st.integers(1, max_ranks))
    params: dict[str, int] = {}
    if name == "two_level":
        params["per_node"] = draw(st.integers(1, 4))
        ranks = params["per_node"] * draw(st.integers(1, 4))
    items = draw(st.integers(1, 200))
    if by_parts(registry()[name].collective):
        items = ranks * draw(st.integers(1, 40))
    channels = draw(st.integers(1, 3))
    shares = draw(st.lists(st.floats(0.1, 10), min_size=channels, max_size=channels))
    return make(
        registry()[name],
        ranks,
        4 * items,
        channels=channels,
        shares=shares,
        transfer_bytes=draw(st.sampled_from([16, 64, 100, 10_000])),
        root=draw(st.integers(0, ranks - 1)),
        params=params,
    )


@st.composite
def uneven_plans(draw: st.DrawFn, max_ranks: int = 6) -> Plan:
    """All-to-alls with parts of several sizes, some of them 0."""
    ranks = draw(st.integers(1, max_ranks))
    row = st.lists(st.integers(0, 50), min_size=ranks, max_size=ranks)
    parts = np.array(draw(st.lists(row, min_size=ranks, max_size=ranks)))
    parts[draw(st.integers(0, ranks - 1)), draw(st.integers(0, ranks - 1))] += 1
    transfer = draw(st.sampled_from([4, 30, 64, 10_000]))
    return make_uneven(registry()["pairwise"], 4 * parts, transfer_bytes=transfer)
