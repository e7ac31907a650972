# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The timer wheel against the plainest reference: a dict of expiry times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.clib import testlib

pytestmark = pytest.mark.san

TICK = 1024
TIMERS = 24
NEVER = 2**64 - 1
# Times from one tick to beyond what the wheel's levels span (2^24 ticks, 17 s).
SPANS = st.one_of(
    st.integers(0, 4 * TICK),
    st.integers(0, 64 * TICK * 3),
    st.integers(0, 64**2 * TICK * 3),
    st.integers(0, 64**3 * TICK * 3),
    st.integers(0, 64**4 * TICK * 3),
    st.builds(
        lambda p, d: max(0, TICK * 64**p + d), st.integers(0, 4), st.integers(-2 * TICK, 2 * TICK)
    ),
)
NUMBERS = st.integers(0, TIMERS - 1)


def fires_at(expires: int) -> int:
    """The first tick not before the timer's time."""
    return -(-expires // TICK) * TICK


class WheelMachine(RuleBasedStateMachine):
    wheel: Any = None

    @initialize(now=st.one_of(st.integers(0, 2**20), st.integers(2**40, 2**62)))
    def start(self, now: int) -> None:
        self.now = now
        self.wheel = testlib.X_wheel_new(now, TIMERS)
        self.expires: dict[int, int] = {}

    def teardown(self) -> None:
        if self.wheel is not None:
            testlib.X_wheel_free(self.wheel)

    @rule(timer=NUMBERS, span=SPANS)
    def arm(self, timer: int, span: int) -> None:
        testlib.X_wheel_arm(self.wheel, timer, self.now + span)
        self.expires[timer] = self.now + span

    @rule(timer=NUMBERS, ago=st.integers(1, 10**7))
    def arm_in_the_past(self, timer: int, ago: int) -> None:
        at = max(0, self.now - ago)
        testlib.X_wheel_arm(self.wheel, timer, at)
        self.expires[timer] = at

    @rule(timer=NUMBERS)
    def cancel(self, timer: int) -> None:
        testlib.X_wheel_cancel(self.wheel, timer)
        self.expires.pop(timer, None)

    @rule(span=SPANS)
    def time_passes(self, span: int) -> None:
        self.now += span
        self.expire()

    @rule()
    def time_passes_to_the_next(self) -> None:
        """next() leads to every timer in a bounded number of steps."""
        due = testlib.X_wheel_next(self.wheel)
        if due == NEVER:
            assert not self.expires
            return
        for _ in range(200):
            self.now = max(self.now, testlib.X_wheel_next(self.wheel))
            if self.expire():
                return
        raise AssertionError("next() leads nowhere")

    def expire(self) -> list[int]:
        fired = []
        while (timer := testlib.X_wheel_pop(self.wheel, self.now)) >= 0:
            assert fires_at(self.expires.pop(timer)) <= self.now, "fired early"
            fired.append(timer)
        late = [t for t, at in self.expires.items() if fires_at(at) <= self.now]
        assert not late, "did not fire"
        return fired

    @invariant()
    def agrees(self) -> None:
        if self.wheel is None:
            return
        for timer in range(TIMERS):
            assert bool(testlib.X_wheel_armed(self.wheel, timer)) == (timer in self.expires)
        due = testlib.X_wheel_next(self.wheel)
        if self.expires:
            assert due <= max(fires_at(min(self.expires.values())), self.now)
        else:
            assert due == NEVER


TestWheel = WheelMachine.TestCase
TestWheel.pytestmark = [pytest.mark.san]  # type: ignore[attr-defined]
TestWheel.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def test_timers_fire_in_order_of_their_ticks() -> None:
    wheel = testlib.X_wheel_new(0, TIMERS)
    spans = [(7919 * i * i * i) % (64**4 * TICK) for i in range(1, TIMERS + 1)]
    for timer, span in enumerate(spans):
        testlib.X_wheel_arm(wheel, timer, span)
    fired = []
    while (due := testlib.X_wheel_next(wheel)) != NEVER:
        while (timer := testlib.X_wheel_pop(wheel, due)) >= 0:
            fired.append(timer)
    assert [fires_at(spans[t]) for t in fired] == sorted(fires_at(s) for s in spans)
    testlib.X_wheel_free(wheel)
