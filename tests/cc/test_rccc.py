# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""rccc: the port's rate in credits, in turn; first windows; and both ways of running it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.cc import CompiledAlgorithm, compile_algorithm
from datapath.cc.receiving import (
    Arrivals,
    Event,
    NativeReceiver,
    PythonReceiver,
    random_events,
    receiver_differences,
)

from .hand import MSS, Hand
from .incast import incast

RATE = 100e9
PACKET_NS = (MSS + 118) * 8e9 / (0.99 * RATE)


@pytest.fixture(scope="module")
def rccc() -> CompiledAlgorithm:
    return compile_algorithm("rccc")


def test_credits_leave_at_the_rate_of_the_port_in_turn(rccc: CompiledAlgorithm) -> None:
    arrivals = Arrivals(NativeReceiver(rccc), mss_bytes=int(MSS), line_rate_bps=RATE)
    for sender in range(3):
        assert arrivals.happen(Event("request", sender, 100 * int(MSS), 0)) == []
    for _ in range(20):
        assert arrivals.happen(Event("time", 0, 0, int(PACKET_NS) + 1)) == []
    packets = [granted / MSS for granted in arrivals.granted[:3]]
    assert sum(packets) == pytest.approx(20, abs=2)
    assert max(packets) - min(packets) <= 1


def test_an_incast_without_first_windows_loses_nothing() -> None:
    done = incast(compile_algorithm("rccc", {"initial": 0}), senders=128, size=65_536)
    assert done.drops == 0
    assert done.slowdown < 1.05


def test_first_windows_of_many_overflow() -> None:
    """What trimming is for, in the specification."""
    done = incast(compile_algorithm("rccc"), senders=128, size=65_536)
    assert done.drops > 100
    assert done.result.totals["ended"] == 128


def test_an_idle_sender_has_its_first_window_again() -> None:
    hand = Hand("rccc", line_rate_bps=RATE, min_rtt_ns=10_000)
    first = 1.5 * RATE * 10_000 / 8e9
    assert hand.flow.unscheduled_bytes == pytest.approx(first)
    hand.ack(1, rtt_ns=10_000, inflight=3)
    assert hand.flow.unscheduled_bytes == 0
    hand.ack(3, rtt_ns=10_000, inflight=0)
    assert hand.flow.unscheduled_bytes == pytest.approx(first)


EVENT = st.builds(
    Event,
    kind=st.sampled_from(["request", "data", "data", "lost", "time"]),
    sender=st.integers(0, 5),
    bytes=st.integers(1, 1 << 20),
    wait_ns=st.integers(0, 100_000),
)


@given(events=st.lists(EVENT, max_size=60))
def test_no_more_than_the_port_has_earned(rccc: CompiledAlgorithm, events: list[Event]) -> None:
    arrivals = Arrivals(NativeReceiver(rccc), mss_bytes=int(MSS), line_rate_bps=RATE)
    begin_ns = arrivals.now_ns
    for event in events:
        assert arrivals.happen(event) == []
        passed_ns = arrivals.now_ns - begin_ns + 20_000
        assert sum(arrivals.granted) <= passed_ns * RATE / 8e9 + MSS
    assert not any(arrivals.drain())


@pytest.mark.parametrize("seed", range(2))
def test_compiled_equals_python(rccc: CompiledAlgorithm, seed: int) -> None:
    native, python = NativeReceiver(rccc), PythonReceiver("rccc")
    both = [Arrivals(native), Arrivals(python)]
    for event in random_events(seed, 300):
        for arrivals in both:
            assert arrivals.happen(event) == []
        assert receiver_differences(native, python) == []
