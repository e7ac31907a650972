# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""expresspass: algorithm 1 step by step, and both ways of running it."""

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

RATE = 10e9
MSS = 4096


@pytest.fixture(scope="module")
def expresspass() -> CompiledAlgorithm:
    return compile_algorithm("expresspass")


def report(receiver: NativeReceiver, told: int, heard: int) -> None:
    """The sender tells that of the credits up to `told` it has received `heard`."""
    sender = receiver.senders[0]
    sender.credits_told += told
    sender.credits_heard += heard
    sender.next_credit_ns = receiver.port.now_ns
    receiver.on_request(0)


def asking(compiled: CompiledAlgorithm) -> NativeReceiver:
    receiver = NativeReceiver(compiled, senders=1)
    receiver.port.now_ns, receiver.port.line_rate_bps = 10e6, RATE
    sender = receiver.senders[0]
    sender.mss_bytes, sender.wanted_bytes, sender.heard_ns = MSS, 1e9, 10e6
    receiver.on_request(0)
    return receiver


def test_the_rate_goes_toward_the_largest_while_few_credits_are_lost(
    expresspass: CompiledAlgorithm,
) -> None:
    """Lines 5 to 9: cur_rate = (1 - w) cur_rate + w max_rate (1 + target_loss)."""
    receiver = asking(expresspass)
    sender = receiver.senders[0]
    assert (sender.rate, sender.w) == (0.5, 0.5)
    report(receiver, 100, 95)
    assert sender.rate == pytest.approx(0.5 * 0.5 + 0.5 * 1.1)
    report(receiver, 100, 100)
    assert sender.rate == pytest.approx(0.5 * 0.8 + 0.5 * 1.1)


def test_the_rate_falls_by_the_loss_and_the_step_is_halved(expresspass: CompiledAlgorithm) -> None:
    """Lines 11 and 12; then the step grows again, from the second increase in a row on."""
    receiver = asking(expresspass)
    sender = receiver.senders[0]
    report(receiver, 100, 40)
    assert sender.rate == pytest.approx(0.5 * 0.4 * 1.1)
    assert sender.w == 0.25
    report(receiver, 10, 10)
    assert sender.w == 0.25
    report(receiver, 10, 10)
    assert sender.w == pytest.approx((0.25 + 0.5) / 2)
    for _ in range(20):
        report(receiver, 100, 0)
    assert sender.w == pytest.approx(0.01)
    assert sender.rate == 0, "until on_timer makes a credit for each RTT of it"


def test_a_sender_has_a_credit_in_each_rtt_at_least(expresspass: CompiledAlgorithm) -> None:
    receiver = asking(expresspass)
    sender = receiver.senders[0]
    sender.rate, sender.rtt_ns, sender.next_credit_ns = 1e-9, 100_000, receiver.port.now_ns
    for _ in range(100):
        receiver.port.now_ns += 50_000
        sender.heard_ns = receiver.port.now_ns
        receiver.on_timer()
    assert sender.credits == pytest.approx(50, abs=10)


def test_credits_leave_at_the_rate_of_the_sender(expresspass: CompiledAlgorithm) -> None:
    receiver = asking(expresspass)
    sender, gap_ns = receiver.senders[0], (MSS + 204) * 8e9 / (0.5 * RATE)
    for _ in range(100):
        receiver.port.now_ns += gap_ns / 2
        sender.heard_ns = receiver.port.now_ns
        receiver.on_timer()
    assert sender.credits == pytest.approx(51, abs=8)
    assert receiver.port.timer_ns == pytest.approx(sender.next_credit_ns)


EVENT = st.builds(
    Event,
    kind=st.sampled_from(["request", "data", "data", "lost", "time"]),
    sender=st.integers(0, 5),
    bytes=st.integers(1, 1 << 20),
    wait_ns=st.integers(0, 100_000),
)


@given(events=st.lists(EVENT, max_size=60))
def test_every_demand_gets_its_credits(expresspass: CompiledAlgorithm, events: list[Event]) -> None:
    arrivals = Arrivals(NativeReceiver(expresspass), mss_bytes=MSS, line_rate_bps=RATE)
    for event in events:
        assert arrivals.happen(event) == []
    assert not any(arrivals.drain())


@pytest.mark.parametrize("seed", range(2))
def test_compiled_equals_python(expresspass: CompiledAlgorithm, seed: int) -> None:
    native, python = NativeReceiver(expresspass), PythonReceiver("expresspass")
    both = [Arrivals(native), Arrivals(python)]
    for event in random_events(seed, 300):
        for arrivals in both:
            assert arrivals.happen(event) == []
        assert receiver_differences(native, python) == []
