# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""homa against Montazeri et al. (SIGCOMM 2018): no queue that incast fills, and the short first."""

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
from datapath.fabric import flows as traffic

from .incast import RATE_BPS, WIRE, incast, run

MSS = 4096


@pytest.fixture(scope="module")
def homa() -> CompiledAlgorithm:
    return compile_algorithm("homa")


@pytest.mark.parametrize("rate_known", [True, False])
def test_an_incast_loses_nothing_and_wastes_nothing(
    homa: CompiledAlgorithm, rate_known: bool
) -> None:
    """Section 2.2: the receiver knows of all its senders, so its queue never overflows."""
    done = incast(homa, senders=128, size=65_536, rate_known=rate_known)
    assert done.drops == 0
    assert done.slowdown < 1.05


def test_the_same_incast_overflows_without_grants() -> None:
    done = incast(compile_algorithm("newreno"), senders=128, size=65_536)
    assert done.drops > 500


def long_and_short(algorithm: CompiledAlgorithm) -> float:
    """Slowdown of 40 KiB that come while seven hosts send 4 MiB each to the same one."""
    rows = traffic.empty(8)
    rows["src"], rows["dst"] = range(20, 28), 0
    rows["bytes"] = [4 << 20] * 7 + [40 << 10]
    rows["start_ns"] = [0] * 7 + [500_000]
    done = run(algorithm, rows).flows.rows
    alone_ns = 12_000 + 10 * WIRE * 8e9 / RATE_BPS
    return float(done["finish_ns"][7] - 500_000) / alone_ns


def test_a_short_message_does_not_wait_for_the_long_ones(homa: CompiledAlgorithm) -> None:
    """Figure 8: the slowdown of short messages stays small at high load."""
    assert long_and_short(homa) < 1.8
    assert long_and_short(compile_algorithm("newreno")) > 2.5


def test_losses_stop_nothing(homa: CompiledAlgorithm) -> None:
    """A path that loses data, DEMANDs and GRANTs alike."""
    done = incast(homa, senders=40, size=262_144, loss=0.02)
    assert done.result.totals["lost"] > 100
    assert done.result.totals["ended"] == 40
    assert done.result.totals["failed"] == 0
    assert done.drops == 0
    assert done.slowdown < 10  # a flow may wait for a time-out or two, of 4 ms


EVENT = st.builds(
    Event,
    kind=st.sampled_from(["request", "data", "data", "data", "lost", "time"]),
    sender=st.integers(0, 5),
    bytes=st.integers(1, 1 << 20),
    wait_ns=st.integers(0, 100_000),
)


@given(
    events=st.lists(EVENT, max_size=80),
    overcommit=st.floats(1, 8),
    rtt_bytes=st.sampled_from([0.0, 1000.0, 100_000.0, 1e6]),
)
def test_what_is_on_the_way_is_bounded(
    homa: CompiledAlgorithm, events: list[Event], overcommit: float, rtt_bytes: float
) -> None:
    """Section 3.5: `overcommit` times RTTbytes, one packet more at most."""
    receiver = NativeReceiver(homa)
    receiver.port.overcommit, receiver.port.rtt_bytes = overcommit, rtt_bytes
    arrivals = Arrivals(receiver, mss_bytes=MSS, line_rate_bps=100e9)
    product = max(rtt_bytes or 20_000 * 100e9 / 8e9, MSS)
    for event in events:
        assert arrivals.happen(event) == []
        way = [max(float(s.granted_bytes - s.arrived_bytes), 0.0) for s in receiver.senders]
        assert max(way) <= product
        assert sum(way) <= overcommit * product
    assert not any(arrivals.drain())


@pytest.mark.parametrize("seed", range(3))
def test_compiled_equals_python(homa: CompiledAlgorithm, seed: int) -> None:
    native, python = NativeReceiver(homa), PythonReceiver("homa")
    both = [Arrivals(native), Arrivals(python)]
    for event in random_events(seed, 500):
        for arrivals in both:
            assert arrivals.happen(event) == []
        assert receiver_differences(native, python) == []
