# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Extended mode: whatever is lost, as long as something comes through the QP goes on.

An adversary (adversary.h) chooses what is lost.  DATAPATH_HUNT=N makes N runs of the search.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.ladder import World
from tests.engine.test_soak import EXTENDED, soak

pytestmark = pytest.mark.san

RUNS = int(os.environ.get("DATAPATH_HUNT", "60"))
HEAD, AGAIN, ACK, TAIL, RANDOM, BLACKOUT = AIMS = tuple(1 << bit for bit in range(6))
NAMES = {HEAD: "head", HEAD | AGAIN: "again", ACK: "ack", TAIL: "tail", RANDOM: "random"}
WRITE, READ = 1 << 0, 1 << 4
US, MS = 10**3, 10**6
PATIENCE_NS = 8 * 4096 * 2**14
"""What the attributes below grant: eight time-outs of 67 ms."""
TOGETHER = 3
"""Burst of two aims: so that of 16 round trips one succeeds, half of what is tried."""
STALL = 60
"""The longest run, in times of what its packets take and of what the attributes grant."""


def survive(*, rate_bps: int, rtt_ns: int, window: int, total: int, **changes: Any) -> Any:
    """A run that must end with every message there; `total` bytes each way."""
    count = max(1, min(200, total // 20_000))
    serial_ns = 2 * total * 8 * 10**9 // rate_bps
    flights = 2 * total // (1024 * min(window, 64)) + 10
    limit_ns = STALL * (serial_ns + flights * rtt_ns + PATIENCE_NS)
    return soak(
        extended=EXTENDED,
        timeout=14,
        retry_cnt=7,
        latency_ns=rtt_ns // 2,
        rate_bps=rate_bps,
        window_psns=window,
        messages=[count, count],
        max_len=max(1, 2 * total // count),
        depth=64,
        recv_depth=64,
        limit_ns=limit_ns,
        **changes,
    )


@pytest.mark.parametrize("aimd", [0, 1], ids=["constant", "aimd"])
@pytest.mark.parametrize("window", [64, 512, 4096])
@pytest.mark.parametrize("aims", NAMES, ids=NAMES.values())
def test_an_aim_of_the_adversary(aims: int, window: int, aimd: int) -> None:
    result = survive(
        rate_bps=10**9, rtt_ns=4 * MS, window=window, total=600_000, aims=aims, burst=8, aimd=aimd
    )
    assert result.agreed  # one end at least was extended before all was sent
    assert result.retransmits > 0


@pytest.mark.parametrize("rtt_ns", [5 * US, 1 * MS, 300 * MS])
def test_blackouts_that_end_before_patience_does(rtt_ns: int) -> None:
    survive(
        rate_bps=10**9,
        rtt_ns=rtt_ns,
        window=512,
        total=600_000,
        aims=BLACKOUT,
        blackout_ns=PATIENCE_NS // 8,
        aimd=1,
    )


def test_reads_that_wait_behind_gaps_do_not_make_time_outs_long() -> None:
    """A run that stood still: what the responder holds for a gap counted as the hosts' delay."""
    survive(
        seed=1, rate_bps=10**8, rtt_ns=5 * US, window=64, total=400_000, aims=HEAD | TAIL, burst=1,
        ops=READ,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("aims", "burst", "seeds"),
    [(TAIL, 8, range(20)), (TAIL | BLACKOUT, 3, [1, 26, 43, 227]), (TAIL | BLACKOUT, 1, [99, 125])],
)
def test_the_oldest_of_many_reads_is_asked_for_each_time(
    aims: int, burst: int, seeds: Iterable[int]
) -> None:
    """Answers come in order.  READs of a packet each were asked for in turn, so that the oldest had
    one time-out in fifty; and a time-out at which none was due counted as a try."""
    for seed in seeds:
        survive(
            seed=seed, rate_bps=10**8, rtt_ns=100 * MS, window=64, total=400_000, aims=aims,
            burst=burst, blackout_ns=PATIENCE_NS // 8, ops=READ,
        )  # fmt: skip


def test_time_outs_grow_while_the_rtt_is_not_known() -> None:
    """Two messages each way, over 300 ms: all time-outs of 20 ms fitted into two round trips."""
    survive(
        seed=661373106, rate_bps=10**7, rtt_ns=300 * MS, window=64, total=50_000,
        aims=HEAD | BLACKOUT, burst=3, blackout_ns=PATIENCE_NS // 8, ops=WRITE,
    )  # fmt: skip


def test_qps_that_lost_their_packets_together_try_again_apart(ext: World) -> None:
    """A full queue has room for one of them at a time."""
    pairs = [ext.extended_pair() for _ in range(8)]
    sender = pairs[0][0].host
    for a, b in pairs:
        a.write(b"x", b.host.memory(8))
    sender.send_all()  # all are lost, as is all that follows
    tries: dict[int, list[int]] = {b.qpn: [] for _, b in pairs}
    while min(len(times) for times in tries.values()) < 6:
        ext.expire(sender)
        for packet in sender.send_all():
            tries[packet.dest_qpn].append(ext.now)
    longest = 20 * MS  # the RTT is not known
    for times in tries.values():
        assert all(0.75 * longest <= b - a <= longest + US for a, b in pairwise(times[:6]))
    for nth in range(1, 6):
        assert len({times[nth] // (100 * US) for times in tries.values()}) > 4


@settings(
    max_examples=RUNS, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
@given(
    seed=st.integers(0, 2**32),
    window=st.sampled_from([64, 128, 512, 2048, 1 << 17]),
    rtt_ns=st.sampled_from([5 * US, 50 * US, 1 * MS, 20 * MS, 100 * MS, 300 * MS]),
    rate_bps=st.sampled_from([10**7, 10**8, 10**9, 10**10, 10**11]),
    total=st.sampled_from([1_000, 50_000, 400_000]),
    attack=st.one_of(
        st.tuples(st.sampled_from([0, *AIMS]), st.integers(1, 8)),
        st.tuples(
            st.sets(st.sampled_from([HEAD, AGAIN, ACK, TAIL, BLACKOUT]), min_size=2, max_size=2),
            st.integers(1, TOGETHER),
        ).map(lambda pair: (sum(pair[0]), pair[1])),
    ),
    aimd=st.integers(0, 1),
    ops=st.sampled_from([WRITE, READ, 0b1111111]),
    loss_ppm=st.just(0),
    jitter=st.sampled_from([0, 0.1, 1.0]),
    trim_ppm=st.sampled_from([0, 0, 100_000]),
)
def test_any_adversary_on_any_path(jitter: float, attack: tuple[int, int], **run: Any) -> None:
    if jitter:
        run |= {"delay_ppm": 100_000, "jitter_ns": max(1, int(jitter * run["rtt_ns"]))}
    aims, burst = attack
    survive(aims=aims, burst=burst, blackout_ns=PATIENCE_NS // 8, **run)
