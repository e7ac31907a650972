# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two engines over bad channels: any mix of operations, both ways, both modes.

What is checked while it runs stands in soak.h.  A failure prints its
parameters; with them the run is the same again, packet for packet.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.clib import testffi, testlib

pytestmark = pytest.mark.san

RUNS = int(os.environ.get("DATAPATH_HUNT", "120"))

ALL_OPS = 0b1111111
STANDARD, EXTENDED = 0, 3
MODES = pytest.mark.parametrize("extended", [STANDARD, EXTENDED], ids=["standard", "extended"])

DEFAULTS: dict[str, Any] = {
    "seed": 1,
    "latency_ns": 10_000,
    "jitter_ns": 0,
    "limit_ns": 1000 * 10**9,
    "rate_bps": 10**10,
    "extended": STANDARD,
    "ipv6": 0,
    "path_mtu": 1024,
    "segment_max": [0, 0],
    "limit_bytes": 0,
    "telemetry": 0,
    "bundle": 0,
    "paths": 0,
    "path_skew_ns": 0,
    "dead_paths": 0,
    "trim_ppm": 0,
    "window_psns": 0,
    "messages": [150, 150],
    "max_len": 20_000,
    "depth": 16,
    "recv_depth": 16,
    "ops": ALL_OPS,
    "loss_ppm": 0,
    "duplicate_ppm": 0,
    "delay_ppm": 0,
    "corrupt_ppm": 0,
    "mark_ppm": 0,
    "slow_recv_ppm": 0,
    "timeout": 10,
    "retry_cnt": 7,
    "rnr_retry": 7,
    "rd_atomic": 16,
    "dest_rd_atomic": 0,
    "psn": [0xFFFF00, 0xFFFFF0],
    "aims": 0,
    "burst": 0,
    "blackout_ns": 0,
    "aimd": 0,
    "may_fail": 0,
}

CHANNELS: dict[str, dict[str, int]] = {
    "clean": {},
    "loss": {"loss_ppm": 10_000},
    "heavy-loss": {"loss_ppm": 50_000},
    "duplicates": {"duplicate_ppm": 100_000, "jitter_ns": 30_000},
    "disorder": {"delay_ppm": 20_000, "jitter_ns": 20_000},
    "corruption": {"corrupt_ppm": 30_000},
    "not-ready": {"slow_recv_ppm": 100_000},
    "everything": {
        "loss_ppm": 20_000,
        "duplicate_ppm": 10_000,
        "delay_ppm": 10_000,
        "jitter_ns": 20_000,
        "corrupt_ppm": 5_000,
        "mark_ppm": 10_000,
        "slow_recv_ppm": 50_000,
    },
}


def soak(**changes: Any) -> Any:
    """Runs with DEFAULTS changed; returns struct X_soak with the results filled in."""
    parameters = DEFAULTS | changes
    p = testffi.new("struct X_soak *", parameters)
    if testlib.X_soak_run(p):
        text = testffi.string(p.failure).decode()
        raise AssertionError(f"{text}\nrun: soak(**{parameters})")
    return p


@MODES
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("seed", range(4))
def test_a_channel(channel: str, extended: int, seed: int) -> None:
    result = soak(seed=seed, extended=extended, **CHANNELS[channel])
    assert result.agreed == extended
    if channel == "clean":
        assert result.retransmits == 0
    if channel in ("loss", "heavy-loss", "corruption"):
        assert result.retransmits > 0


@pytest.mark.parametrize("path_mtu", [256, 512, 2048, 4096])
@pytest.mark.parametrize("ipv6", [0, 1], ids=["ipv4", "ipv6"])
@MODES
def test_path_mtus(path_mtu: int, ipv6: int, extended: int) -> None:
    soak(path_mtu=path_mtu, ipv6=ipv6, extended=extended, max_len=60_000, **CHANNELS["loss"])


@pytest.mark.parametrize("op", range(7))
@MODES
def test_one_operation_alone(op: int, extended: int) -> None:
    soak(ops=1 << op, extended=extended, **CHANNELS["everything"])


@pytest.mark.parametrize("window_psns", [64, 256, 1024])
def test_windows_of_the_extended_mode(window_psns: int) -> None:
    soak(window_psns=window_psns, extended=EXTENDED, max_len=100_000, **CHANNELS["loss"])


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("path_mtu", [1024, 4096])
def test_packets_longer_than_the_path_mtu(channel: str, path_mtu: int) -> None:
    own, peer = (1408, 1304) if path_mtu == 1024 else (8960, 7552)
    changes = {"path_mtu": path_mtu, "segment_max": [own, peer], "max_len": 60_000}
    result = soak(extended=EXTENDED, **changes, **CHANNELS[channel])
    assert list(result.segment) == [peer, peer]


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("paths", [2, 64])
def test_several_paths(channel: str, paths: int) -> None:
    """Of which the longest takes 30 us more than the shortest, three times as long."""
    skew = {"paths": paths, "path_skew_ns": 30_000 // (paths - 1)}
    result = soak(extended=EXTENDED, **skew, **CHANNELS[channel])
    assert result.out_of_order > 100
    if channel == "clean":
        assert result.retransmits == 0


@pytest.mark.parametrize("channel", ["clean", "loss", "everything"])
def test_a_path_that_has_died(channel: str) -> None:
    """The others carry what it loses."""
    result = soak(extended=EXTENDED, paths=4, dead_paths=1, messages=[60, 60], **CHANNELS[channel])
    assert result.retransmits > 50


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("paths", [0, 8])
def test_trimmed_packets(channel: str, paths: int) -> None:
    changes = {"trim_ppm": 50_000, "paths": paths, "path_skew_ns": 1000}
    result = soak(extended=EXTENDED, **changes, **CHANNELS[channel])
    assert result.trimmed > 0
    if channel == "clean":
        assert result.timeouts == 0


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("segment_max", [0, 1408])
def test_telemetry(channel: str, segment_max: int) -> None:
    changes = {"segment_max": [segment_max, segment_max], "telemetry": 1}
    result = soak(extended=EXTENDED, **changes, **CHANNELS[channel])
    assert list(result.segment) == [1408 - 136 if segment_max else 1024] * 2


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("ops", [ALL_OPS, 0b1, 0b100], ids=["all", "write", "send"])
def test_short_messages_that_share_packets(channel: str, ops: int) -> None:
    changes = {"bundle": 1, "max_len": 100, "messages": [600, 600], "trim_ppm": 2_000}
    result = soak(extended=EXTENDED, ops=ops, **changes, **CHANNELS[channel])
    assert result.agreed == EXTENDED


@pytest.mark.parametrize("channel", ["clean", "loss", "everything"])
def test_a_path_that_loses_long_packets_is_no_black_hole(channel: str) -> None:
    changes = {"segment_max": [1408, 1408], "limit_bytes": 1024 + 56, "max_len": 60_000}
    result = soak(extended=EXTENDED, **changes, **CHANNELS[channel])
    assert list(result.segment) == [1024, 1024]
    assert result.retransmits == 0 or channel != "clean"


@pytest.mark.parametrize("extended", [1, 2])
def test_an_offer_that_nobody_answers_is_standard_mode(extended: int) -> None:
    result = soak(extended=extended, **CHANNELS["loss"])
    assert result.agreed == 0


@MODES
def test_one_way(extended: int) -> None:
    soak(messages=[300, 0], extended=extended, **CHANNELS["everything"])


@pytest.mark.parametrize("rate_bps", [10**9, 10**10])
@pytest.mark.parametrize("op", [0, 4], ids=["write", "read"])
def test_a_long_queue_is_not_a_loss(op: int, rate_bps: int) -> None:
    """Megabytes under way on a slow link: every RTT is queueing, and nothing is sent twice."""
    result = soak(
        extended=EXTENDED,
        ops=1 << op,
        messages=[60, 0],
        max_len=1 << 20,
        depth=64,
        path_mtu=4096,
        rate_bps=rate_bps,
    )
    assert result.retransmits == result.timeouts == 0


@MODES
@pytest.mark.parametrize("seed", range(6))
def test_a_channel_that_loses_nearly_everything_ends_both_sides(extended: int, seed: int) -> None:
    """Success or an error with all the rest flushed, but never silence."""
    soak(seed=seed, extended=extended, loss_ppm=600_000, timeout=6, retry_cnt=2, may_fail=1)


@settings(max_examples=RUNS, deadline=None, print_blob=True)
@given(
    seed=st.integers(0, 2**32),
    extended=st.sampled_from([STANDARD, EXTENDED]),
    dest_rd_atomic=st.integers(1, 3),
    ops=st.sampled_from([0b0010000, 0b1100000, ALL_OPS]),
    loss_ppm=st.sampled_from([10_000, 50_000, 200_000]),
    max_len=st.sampled_from([8, 5_000]),
    latency_ns=st.sampled_from([1_000, 100_000]),
)
def test_a_peer_that_keeps_too_few_requests_ends_both_sides(**parameters: Any) -> None:
    """It acknowledges a READ whose answer was lost, and cannot answer it again."""
    soak(timeout=8, limit_ns=10 * 10**9, may_fail=1, **parameters)


@MODES
def test_equal_seeds_give_equal_runs(extended: int) -> None:
    runs = [soak(seed=5, extended=extended, **CHANNELS["everything"]) for _ in range(2)]
    other = soak(seed=6, extended=extended, **CHANNELS["everything"])
    assert runs[0].trace == runs[1].trace != other.trace
    assert runs[0].end_ns == runs[1].end_ns


share = st.sampled_from([0, 0, 1_000, 10_000, 50_000])


@settings(
    max_examples=RUNS,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 2**32),
    extended=st.sampled_from([STANDARD, EXTENDED, 1, 2]),
    ipv6=st.integers(0, 1),
    path_mtu=st.sampled_from([256, 1024, 4096]),
    segment_max=st.lists(st.sampled_from([0, 260, 1408, 8960]), min_size=2, max_size=2),
    telemetry=st.integers(0, 1),
    bundle=st.integers(0, 1),
    paths=st.sampled_from([0, 0, 2, 7, 64]),
    path_skew_ns=st.sampled_from([0, 1_000, 50_000]),
    trim_ppm=share,
    window_psns=st.sampled_from([0, 64, 512]),
    messages=st.tuples(st.integers(0, 60), st.integers(0, 60)).map(list),
    max_len=st.sampled_from([1, 300, 5_000, 70_000]),
    depth=st.integers(1, 20),
    recv_depth=st.integers(1, 20),
    ops=st.integers(1, ALL_OPS),
    loss_ppm=share,
    duplicate_ppm=share,
    corrupt_ppm=share,
    mark_ppm=share,
    slow_recv_ppm=share,
    delay_ppm=st.sampled_from([0, 1_000, 10_000]),
    jitter_ns=st.sampled_from([1_000, 20_000, 1_000_000]),
    latency_ns=st.sampled_from([0, 500, 10_000, 2_000_000]),
    rate_bps=st.sampled_from([0, 10**8, 10**10]),
    rd_atomic=st.sampled_from([1, 2, 16]),
    psn=st.lists(st.sampled_from([0, 1, 0x7FFFFF, 0xFFFFF0, 0xFFFFFF]), min_size=2, max_size=2),
)
def test_any_channel_any_mix(**parameters: Any) -> None:
    """The IB time-out is chosen longer than the path, as a user has to."""
    skew = parameters["paths"] * parameters["path_skew_ns"]
    longest = parameters["latency_ns"] * 2 + parameters["jitter_ns"] + skew
    slow = 20_000_000 if parameters["rate_bps"] == 10**8 else 0
    timeout = next(n for n in range(8, 20) if 4096 * 2**n > 4 * (longest + slow))
    note(f"timeout={timeout}")
    soak(timeout=timeout, **parameters)
