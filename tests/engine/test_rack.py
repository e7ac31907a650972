# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""RTT and RACK-TLP as arithmetic, beside the pseudocode of RFC 6298 and RFC 8985.

Here is no QP: every case is what is known, and what follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clib import testffi as ffi
from tests.clib import testlib as lib

US, MS, S = 10**3, 10**6, 10**9
TIMES = st.integers(1, 10 * S)
RTTS = st.integers(1, S)


def rtt(srtt_ns: int = 0, rttvar_ns: int = 0, min_rtt_ns: int = 0, host_ns: int = 0) -> Any:
    return ffi.new(
        "struct dp_rtt *",
        {"srtt_ns": srtt_ns, "rttvar_ns": rttvar_ns, "min_rtt_ns": min_rtt_ns, "host_ns": host_ns},
    )


# --- RFC 6298 -----------------------------------------------------------------------------


def test_the_first_sample() -> None:
    """Section 2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 * RTTVAR."""
    known = rtt()
    assert lib.dp_rtt_rto(known) == 0
    lib.dp_rtt_sample(known, 100 * US, 0, 0, 1)
    assert (known.srtt_ns, known.rttvar_ns, known.min_rtt_ns) == (100 * US, 50 * US, 100 * US)
    assert lib.dp_rtt_rto(known) == 300 * US


@given(st.lists(st.tuples(RTTS, st.integers(0, S), st.floats(0, 1)), min_size=1, max_size=50))
def test_samples_are_smoothed_as_in_section_2_3(samples: list[tuple[int, int, float]]) -> None:
    known = rtt()
    srtt = var = host = late = 0.0
    for number, (network, hosts, share) in enumerate(samples):
        late_ns = int(share * hosts)
        lib.dp_rtt_sample(known, network, hosts, late_ns, number)
        if number == 0:
            srtt, host, late, var = network, hosts, late_ns, (network + hosts) / 2
        else:
            var = 3 / 4 * var + 1 / 4 * abs(srtt + host - network - hosts)
            srtt, host = 7 / 8 * srtt + network / 8, 7 / 8 * host + hosts / 8
            late = 63 / 64 * late + late_ns / 64
        # Whole nanoseconds are lost with each sample.
        assert known.srtt_ns == pytest.approx(srtt, abs=9)
        assert known.host_ns == pytest.approx(host, abs=9)
        assert known.late_ns == pytest.approx(late, abs=65)
        assert known.rttvar_ns == pytest.approx(var, abs=30)
    assert known.min_rtt_ns == min(network for network, _, _ in samples)


def test_the_lowest_rtt_is_believed_for_ten_seconds() -> None:
    known = rtt()
    lib.dp_rtt_sample(known, 10 * US, 0, 0, 0)
    lib.dp_rtt_sample(known, 50 * US, 0, 0, 10 * S)
    assert known.min_rtt_ns == 10 * US
    lib.dp_rtt_sample(known, 50 * US, 0, 0, 10 * S + 1)
    assert known.min_rtt_ns == 50 * US


# --- RFC 8985, section 6.2 -----------------------------------------------------------------


@dataclass
class Rack:
    """RACK.xmit_ts, RACK.end_seq and RACK.rtt as the pseudocode keeps them."""

    xmit: int = -1
    seq: int = -1
    rtt: int = 0

    def delivered(self, seq: int, sent: int, now: int) -> None:
        if (sent, seq) > (self.xmit, self.seq):
            self.xmit, self.seq, self.rtt = sent, seq, now - sent


PACKETS = st.lists(st.tuples(st.integers(0, 1000), TIMES, RTTS), min_size=1, max_size=40)


@given(PACKETS, st.integers(0, 2**24 - 1))
def test_the_newest_delivered_by_sending_time(
    packets: list[tuple[int, int, int]], first_psn: int
) -> None:
    """PSNs wrap; the order is by sending time, then by PSN."""
    ours, reference = ffi.new("struct dp_rack *"), Rack()
    for seq, sent, took in packets:
        lib.dp_rack_delivered(ours, (first_psn + seq) % 2**24, sent, sent + took)
        reference.delivered(seq, sent, sent + took)
        if (sent, seq) != (reference.xmit, reference.seq):
            assert lib.dp_rack_overtook(ours, (first_psn + seq) % 2**24, sent)
    assert ours.xmit_ns == reference.xmit
    assert ours.psn == (first_psn + reference.seq) % 2**24
    assert not lib.dp_rack_overtook(ours, ours.psn, ours.xmit_ns)
    assert not lib.dp_rack_overtook(ours, 0, ours.xmit_ns + 1)


@pytest.mark.parametrize("psn", [0, 1, 2**23, 2**23 + 1, 2**24 - 1])
def test_before_the_first_delivery_nothing_was_overtaken(psn: int) -> None:
    """Not even a packet of time 0, whatever its PSN."""
    rack = ffi.new("struct dp_rack *")
    assert not lib.dp_rack_overtook(rack, psn, 0)
    lib.dp_rack_delivered(rack, psn, 0, 0)  # within no time
    assert lib.dp_rack_overtook(rack, (psn - 1) % 2**24, 0)


def test_what_was_overtaken_is_lost_an_rtt_and_a_window_after_it_was_sent() -> None:
    rack = ffi.new("struct dp_rack *")
    lib.dp_rack_delivered(rack, 7, 1000 * US, 1200 * US)
    assert lib.dp_rack_overtook(rack, 6, 1000 * US)
    assert lib.dp_rack_due(rack, 990 * US, 50 * US) == 1240 * US


def reordering(quarters: int = 1) -> Any:
    return ffi.new("struct dp_reordering *", {"quarters": quarters})


def test_the_window_is_a_quarter_of_the_lowest_rtt() -> None:
    known = rtt(srtt_ns=200 * US, rttvar_ns=20 * US, min_rtt_ns=160 * US)
    assert lib.dp_reordering_window(reordering(), known) == 40 * US
    assert lib.dp_reordering_window(reordering(4), known) == 160 * US
    # ...at most what a time-out would wait
    assert lib.dp_reordering_window(reordering(256), known) == 280 * US


def test_the_window_doubles_once_in_an_rtt_and_halves_after_16_with_losses() -> None:
    known = rtt(srtt_ns=100 * US, min_rtt_ns=100 * US)
    order, now = reordering(), MS
    for step in (1, 99, 1, 99):
        lib.dp_reordering_widen(order, known, now)
        now += step * US
    assert order.quarters == 4
    for number in range(16):
        assert order.quarters == 4, number
        lib.dp_reordering_narrow(order, known, now)
        lib.dp_reordering_narrow(order, known, now)  # of the same round
        now += 100 * US
    assert order.quarters == 2
    lib.dp_reordering_widen(order, known, now)
    assert (order.quarters, order.calm) == (4, 0)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, MS)), max_size=400))
def test_the_window_stays_within_its_bounds(events: list[tuple[bool, int]]) -> None:
    known = rtt(srtt_ns=100 * US, min_rtt_ns=100 * US)
    order, now = reordering(), MS
    for twice, later in events:
        now += later
        (lib.dp_reordering_widen if twice else lib.dp_reordering_narrow)(order, known, now)
        assert order.quarters in [2**power for power in range(9)]


# --- RFC 8985, section 7.2 ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "slowest", "timeout"),
    [
        (rtt(srtt_ns=200 * US), 0, 2 * 200 * US + 100 * US),
        # what the hosts add, beyond the acknowledgement's delay
        (rtt(srtt_ns=200 * US, host_ns=50 * US), 0, 500 * US),
        (rtt(srtt_ns=200 * US, host_ns=80 * US), 0, 2 * 230 * US + 100 * US),
        # an answer that queued behind others
        (rtt(srtt_ns=200 * US), 900 * US, 1900 * US),
    ],
)
def test_the_probe_timeout(known: Any, slowest: int, timeout: int) -> None:
    assert lib.dp_tlp_timeout(known, slowest, 50 * US) == timeout
