# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How much of an RTT is queues of the return path, beside a reference that knows both directions.

Here is no QP: two clocks, two directions with queues of their own, and what the estimate says.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clib import testffi as ffi
from tests.clib import testlib as lib

pytestmark = pytest.mark.san

US, MS, S = 10**3, 10**6, 10**9
WAY_NS = 100 * US


@dataclass
class Path:
    """Two paths of 100 us, and a peer whose clock is off and runs at another speed."""

    offset_ns: int = 0
    drift_ppm: float = 0
    known: Any = field(default_factory=lambda: ffi.new("struct dp_oneway *"))

    def sample(self, now: int, forward_ns: int = 0, back_ns: int = 0) -> int:
        """The estimate for a packet that met these queues and is answered at `now`."""
        arrived = now - WAY_NS - back_ns
        sent = arrived - WAY_NS - forward_ns
        peer = arrived + self.offset_ns + round(arrived * self.drift_ppm / 1e6)
        rtt = 2 * WAY_NS + forward_ns + back_ns
        wrap = 2**32
        return int(lib.dp_oneway_sample(self.known, sent % wrap, peer % wrap, rtt, now))


@pytest.mark.parametrize("offset_ns", [0, 1, 2**31, -(2**31), 12345 * S])
def test_a_queue_on_the_way_back_is_seen_whatever_the_clocks_say(offset_ns: int) -> None:
    path = Path(offset_ns)
    assert path.sample(S) == 0
    assert path.sample(S + MS, back_ns=70 * US) == 70 * US
    assert path.sample(S + 2 * MS, forward_ns=70 * US) == 0
    assert path.sample(S + 3 * MS, forward_ns=50 * US, back_ns=20 * US) == 20 * US


def test_a_lower_delay_is_the_new_base() -> None:
    path = Path()
    assert path.sample(S, back_ns=500 * US) == 0  # nothing lower is known
    assert path.sample(S + MS) == 0
    assert path.sample(S + 2 * MS, back_ns=500 * US) == 500 * US


def test_a_queue_that_stays_is_not_forgotten_while_the_way_forward_is_seen_empty() -> None:
    """As with acknowledgements that share a slow line."""
    path = Path()
    path.sample(S)
    for ms in range(60_000):
        told = path.sample(S + ms * MS, back_ns=400 * US)
    assert told == 400 * US


def test_without_sight_of_an_empty_way_forward_the_base_is_learned_anew() -> None:
    path = Path()
    path.sample(S)
    for ms in range(10_600):
        told = path.sample(S + ms * MS, forward_ns=400 * US, back_ns=300 * US)
    assert told == 0


@given(
    offset_ns=st.integers(-(2**40), 2**40),
    queues=st.lists(st.tuples(st.integers(0, 10 * MS), st.integers(0, 10 * MS)), min_size=1),
)
def test_the_estimate_is_the_distance_from_the_lowest(
    offset_ns: int, queues: list[tuple[int, int]]
) -> None:
    """Within a quarter of a second nothing is forgotten, so the reference is a minimum."""
    path = Path(offset_ns)
    lowest = 10 * MS
    for number, (forward_ns, back_ns) in enumerate(queues):
        lowest = min(lowest, back_ns)
        assert path.sample(20 * S + number * MS, forward_ns, back_ns) == back_ns - lowest


@pytest.mark.parametrize("drift_ppm", [-100, -20, -1, 1, 20, 100])
@pytest.mark.parametrize("seed", range(3))
def test_clocks_that_drift_apart_do_not_pass_for_a_queue(drift_ppm: float, seed: int) -> None:
    """Both paths have queues of up to 200 us and are empty now and then."""
    path, rng = Path(seed * 2**29, drift_ppm), random.Random(seed)
    worst = 0
    queues = [0, 0]
    for step in range(120_000):
        for way in (0, 1):
            queues[way] = max(0, min(200, queues[way] + rng.choice((-20, -10, 0, 10, 17)))) % 200
        told = path.sample(S + step * MS // 2, queues[0] * US, queues[1] * US)
        if step > 2_000:
            worst = max(worst, abs(told - queues[1] * US))
    # A quarter of a second passes between two looks, and a look may be late by one more.
    assert worst <= abs(drift_ppm) * 750 + 1 * US
