# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The table of series: its columns, what follows from it, and files that are not whole."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

from datapath import series, series_metrics
from datapath.errors import RunFailed


def flow(qp: int, delivered: list[float], **columns: list[float]) -> pd.DataFrame:
    """A flow of host0, sampled every millisecond."""
    times = [1_000_000 * i for i in range(len(delivered))]
    return series.table(host="host0", qp=qp, time_ns=times, delivered_bytes=delivered, **columns)


def test_a_table_has_every_column_and_nothing_else() -> None:
    frame = flow(17, [0, 1, 2])
    assert list(frame.columns) == [*series.KEYS, *series.COLUMNS]
    assert frame["link"].isna().all()
    assert frame["cwnd_bytes"].isna().all()
    assert (frame["qp"] == 17).all()
    assert {column.series for column in series.COLUMNS.values()} == set(get_args(series.Name))
    with pytest.raises(ValueError, match="no series column cwnd; there are cwnd_bytes"):
        series.table(time_ns=[0], cwnd=[1.0])


def test_links_and_flows_share_a_table_that_begins_at_zero() -> None:
    link = series.table(link="forward", time_ns=[500, 700], queue_bytes=[1.0, 2.0])
    frame = series.join([flow(3, [0, 1]).assign(time_ns=[600, 800]), link], from_zero=True)
    assert frame["time_ns"].min() == 0
    assert frame.loc[frame["link"] == "forward", "time_ns"].tolist() == [0, 200]
    assert series.present(frame) == {"delivered", "queue"}
    kept = series.keep(frame.assign(rtt_ns=1.0), ["queue", "cwnd"])
    assert series.present(kept) == {"queue", "delivered"}, "delivered tells what a flow is"
    assert len(series.join([])) == 0


def test_the_longest_queue_of_a_link() -> None:
    times = [0, 1, 2, 3, 4, 5]
    long = series.table(
        link="forward", time_ns=times, queue_bytes=[0.0, 10.0, 0.0, 30.0, 20.0, 0.0]
    )
    short = series.table(link="backward", time_ns=times, queue_bytes=[1.0] * 6)
    found = series_metrics.derived(series.join([flow(3, [0, 1]), long, short]))
    assert found["queue_mean"] == pytest.approx(15)  # between the first and the last that waited
    assert found["queue_p99"] == 30
    assert "queue_mean" not in series_metrics.derived(flow(3, [0, 1]))


def test_queueing_delay_is_what_rtt_has_above_its_lowest() -> None:
    rtt = [50.0, 100.0, 150.0, 950.0]
    # The last sample stands behind no delivery: its RTT is an old one.
    first = flow(1, [0, 10, 20, 20], rtt_ns=rtt, min_rtt_ns=[40.0] * 4)
    # A flow that has nothing to do with the first one, and a receiver.
    second = flow(2, [0, 5, 10, 15], rtt_ns=[200.0, 210.0, 220.0, 230.0])
    idle = flow(3, [0, 0, 0, 0], rtt_ns=[9e9] * 4)
    assert "host_delay_mean" not in series_metrics.derived(first)
    second["host_ns"] = [70.0, 20.0, float("nan"), 30.0]  # the first stands before any delivery
    found = series_metrics.derived(series.join([first, second, idle]))
    assert found["queueing_delay_mean"] == pytest.approx((60 + 110 + 10 + 20 + 30) / 5)
    assert found["queueing_delay_p99"] == 110
    assert found["host_delay_mean"] == pytest.approx((20 + 30) / 2)
    assert found["host_delay_p99"] == 30
    assert found["rtt_p50"] == 210
    assert found["rtt_p99"] == 230
    assert found["fairness"] == pytest.approx(35**2 / (2 * (20**2 + 15**2)))
    assert "retransmitted_share" not in found


def test_quantiles_are_samples_at_the_nearest_rank() -> None:
    """As those of all other metrics: the median of two samples is the first."""
    found = series_metrics.derived(flow(1, [0, 10, 20], rtt_ns=[7.0, 100.0, 1.0]))
    assert (found["rtt_p50"], found["rtt_p99"]) == (1, 100)


def test_share_of_packets_sent_again_is_that_of_all_flows() -> None:
    first = flow(1, [0, 10], sent_packets=[0.0, 90.0], retransmitted_packets=[0.0, 9.0])
    second = flow(2, [0, 10], sent_packets=[0.0, 10.0], retransmitted_packets=[0.0, 1.0])
    found = series_metrics.derived(series.join([first, second]))
    assert found == {"fairness": 1.0, "retransmitted_share": pytest.approx(0.1)}


def test_a_flow_of_which_nothing_is_delivered_has_a_share_of_nothing() -> None:
    """A QP that receives has none, nor has one that answers READs, whose packets are data."""
    rates = [[10.0] * 30, [10.0] * 30]
    answers = flow(7, [0] * 31, inflight_bytes=[0.0] * 31, sent_packets=[0.0] + [9.0] * 30)
    fair = series_metrics.derived(series.join([lines(*rates), answers]))
    assert fair["fairness"] == 1
    starved = flow(
        8,
        [0] * 31,
        inflight_bytes=[0.0] + [9.0] * 30,
        sent_packets=[0.0] + [5.0] * 30,
        retransmitted_packets=[0.0] + [4.0] * 30,
    )
    found = series_metrics.derived(series.join([lines(*rates), answers, starved]))
    assert found["fairness"] == pytest.approx(2 / 3)
    assert found["fairness_over_time"] == fair["fairness_over_time"] == 1
    assert "convergence_time" not in found
    assert series_metrics.derived(starved)["retransmitted_share"] == pytest.approx(0.8)


def test_a_stall_is_without_delivery_and_with_something_in_flight() -> None:
    moving = flow(1, [0, 5, 10, 15, 20, 25, 30], inflight_bytes=[9.0] * 7)
    assert series_metrics.derived(moving)["longest_stall"] == 0
    stuck = flow(2, [0, 5, 5, 5, 6, 6, 7], inflight_bytes=[0.0, 9.0, 9.0, 0.0, 0.0, 9.0, 0.0])
    assert series_metrics.derived(series.join([moving, stuck]))["longest_stall"] == 2_000_000
    idle = flow(3, [0, 5, 5, 5, 5, 5, 6], inflight_bytes=[9.0, 0.0, 0.0, 0.0, 0.0, 9.0, 0.0])
    assert series_metrics.derived(idle)["longest_stall"] == 1_000_000
    never = flow(4, [0, 0, 0], inflight_bytes=[0.0, 9.0, 9.0])
    assert series_metrics.derived(never)["longest_stall"] == 2_000_000


def test_nothing_follows_from_nothing() -> None:
    assert series_metrics.derived(series.table(time_ns=[])) == {}


def test_arrays_of_a_simulation_become_rows() -> None:
    nan = math.nan
    columns = {"cwnd_bytes": [[1.0, nan], [2.0, 3.0]], "rtt_ns": [[nan, nan], [5.0, nan]]}
    frame = series.stack([10, 20], columns, host=["a", "b"], qp=[1, 2])
    rows = frame[["host", "qp", "time_ns", "cwnd_bytes"]].to_numpy().tolist()
    assert rows == [["a", 1, 10, 1.0], ["a", 1, 20, 2.0], ["b", 2, 20, 3.0]]
    links = series.stack([10], {"queue_bytes": [[7.0, 8.0]]}, link=["up", "down"])
    assert links[["link", "queue_bytes"]].to_numpy().tolist() == [["up", 7.0], ["down", 8.0]]
    assert series.stack([], {"queue_bytes": []}, link=[]).empty


# --- files ------------------------------------------------------------------------------------


def content(rows: int, *, kind: int = 0, version: int = 1) -> bytes:
    names = [b"queue_bytes"] if kind else [b"cwnd_bytes", b"rtt_ns"]
    head = struct.pack(
        "<8s6I4Q64s", b"dpseries", version, 128 + 24 * len(names), 16 + 8 * len(names), kind,
        len(names), 2, 5, 1_000_000, 100, 1_000_000_000_000, b"forward",
    )  # fmt: skip
    body = b"".join(
        struct.pack(f"<2Q{len(names)}d", 100 + i, 9, *[float(i)] * len(names)) for i in range(rows)
    )
    return head + b"".join(name.ljust(24, b"\0") for name in names) + body


def test_a_file_is_read_up_to_its_last_whole_row(tmp_path: Path) -> None:
    file = tmp_path / "a.series"
    whole = content(3)
    for cut in range(32):
        file.write_bytes(whole[: len(whole) - cut])
        found = series.read_file(file, "host0")
        assert len(found.frame) == (3 if cut == 0 else 2)
    assert (found.rows_left_out, found.flows_left_out) == (5, 2)
    assert found.frame["time_ns"].tolist() == [1_000_000_000_000, 1_000_000_000_001]
    assert found.frame["qp"].tolist() == [9, 9]
    assert found.frame["rtt_ns"].tolist() == [0.0, 1.0]
    assert math.isnan(found.frame["queue_bytes"][0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"rtt_ns", b"rtt_\xffs"),
        (b"rtt_ns", b"host\0\0"),
        (b"rtt_ns\0\0\0\0", b"cwnd_bytes"),
        (struct.pack("<Q", 1_000_000_000_000), b"\xff" * 8),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, old: bytes, new: bytes) -> None:
    file = tmp_path / "a.series"
    whole = content(3)
    assert whole.count(old) == 1
    file.write_bytes(whole.replace(old, new))
    with pytest.raises(RunFailed, match=r"^a\.series is damaged: "):
        series.read_file(file, "host0")


def test_a_file_of_a_link_names_it(tmp_path: Path) -> None:
    file = tmp_path / "a.series"
    file.write_bytes(content(2, kind=1))
    frame = series.read_file(file, "path").frame
    assert frame["link"].tolist() == ["forward", "forward"]
    assert frame["host"].isna().all()
    assert frame["qp"].isna().all()
    assert frame["queue_bytes"].tolist() == [0.0, 1.0]


def test_a_file_of_a_tunnel_names_it_and_its_card(tmp_path: Path) -> None:
    file = tmp_path / "a.series"
    file.write_bytes(content(2, kind=2))
    frame = series.read_file(file, "card0").frame
    assert frame["tunnel"].tolist() == ["forward", "forward"]
    assert set(frame["host"]) == {"card0"}
    assert frame["qp"].isna().all()
    assert frame["link"].isna().all()


def test_a_table_of_before_tunnels_is_read() -> None:
    old = flow(3, [0, 1]).drop(columns=["tunnel", "wait_ns"])
    assert list(series.checked(old).columns) == [*series.KEYS, *series.COLUMNS]


def tunnel(name: str, **columns: list[float]) -> pd.DataFrame:
    """A tunnel of card0, or a class in it, sampled every millisecond."""
    times = [1_000_000 * i for i in range(len(columns["delivered_bytes"]))]
    return series.table(host="card0", tunnel=name, time_ns=times, **columns)


def test_tunnels_of_cards_are_no_flows_and_no_links() -> None:
    """Their metrics are those of the tunnel or class that has the most."""
    delivered = [0.0, 10.0, 20.0, 20.0]
    short = tunnel("card1", delivered_bytes=delivered, queue_bytes=[0, 5, 5, 0], rtt_ns=[9.0] * 4)
    long = tunnel(
        "card2",
        delivered_bytes=delivered,
        queue_bytes=[0.0, 20.0, 40.0, 0.0],
        rtt_ns=[math.nan, 100.0, 200.0, 999.0],
        cwnd_bytes=[1.0, 3.0, 5.0, 99.0],
        inflight_bytes=[0.0, 1.0, 1.0, 0.0],
    )
    rdma = tunnel("card2/7/rdma", delivered_bytes=delivered, wait_ns=[0.0, 30.0, 50.0, 99.0])
    frame = series.join([short, long, rdma])
    assert series.flows(frame) == []
    assert [(card, peer) for card, peer, _ in series.tunnels(frame)] == [
        ("card0", "card1"),
        ("card0", "card2"),
    ]
    assert [(card, name) for card, name, _ in series.classes(frame)] == [("card0", "card2/7/rdma")]
    found = series_metrics.derived(frame)
    assert found["card_queue_mean"] == pytest.approx(30)
    assert found["card_queue_p99"] == 40
    assert found["card_rtt_mean"] == pytest.approx(150)
    assert found["card_window_mean"] == pytest.approx(4)
    assert found["card_wait_mean"] == pytest.approx(40)
    assert "queue_mean" not in found


def test_a_writer_that_was_killed_at_once_left_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.series"
    file.write_bytes(b"")
    assert len(series.read_file(file, "host0").frame) == 0


@pytest.mark.parametrize(
    ("bytes_", "said"),
    [
        (b"nonsense" * 40, "a.series is not a file of series"),
        (content(1)[:100], "a.series is not a file of series"),
        (content(1, version=2), "written by another version"),
        (content(1)[:24] + b"\xff" * 4 + content(1)[28:], "written by another version"),
    ],
)
def test_what_is_not_such_a_file_is_refused(tmp_path: Path, bytes_: bytes, said: str) -> None:
    file = tmp_path / "a.series"
    file.write_bytes(bytes_)
    with pytest.raises(RunFailed, match=said):
        series.read_file(file, "host0")


def test_startup_lasts_until_nine_tenths_of_the_later_rate() -> None:
    slow = flow(1, [0, 1, 2, 4, 8, 16, *range(26, 106, 10)])
    quick = flow(2, range(0, 140, 10))
    both = series_metrics.derived(series.join([slow, quick]))
    assert series_metrics.derived(quick)["startup_time"] == 1_000_000
    assert series_metrics.derived(slow)["startup_time"] == both["startup_time"] == 6_000_000
    assert "startup_time" not in series_metrics.derived(flow(3, range(8))), "too short to tell"
    assert "startup_time" not in series_metrics.derived(flow(4, [9] * 14)), "nothing moves"


# --- change ----------------------------------------------------------------------------------


def lines(*rates: list[float]) -> pd.DataFrame:
    """Flows with a rate (bytes each ms) for each millisecond."""
    frames = []
    for qp, rate in enumerate(rates):
        delivered = [sum(rate[:i]) for i in range(len(rate) + 1)]
        frames.append(flow(qp, delivered))
    return series.join(frames)


def test_the_time_to_a_fair_share() -> None:
    """The newcomer has a tenth for 30 ms, and a half from then on."""
    old = [10.0] * 40 + [9.0] * 30 + [5.0] * 130
    new = [0.0] * 40 + [1.0] * 30 + [5.0] * 130
    found = series_metrics.derived(lines(old, new))
    # Jain's index is 0.9 once both have had the half for seven of a window's ten samples.
    assert 20e6 < found["convergence_time"] <= 30e6
    assert 0.8 < found["fairness_over_time"] < 1
    never = [0.0] * 40 + [1.0] * 160
    found = series_metrics.derived(lines(old, never))
    assert "convergence_time" not in found
    assert found["fairness_over_time"] < 0.9
    assert "fairness_over_time" not in series_metrics.derived(lines(old))
    in_the_last_window = lines(old, never, [0.0] * 197 + [1.0] * 3)
    assert "convergence_time" not in series_metrics.derived(in_the_last_window)


def test_a_short_flow_does_not_shorten_the_windows_of_the_others() -> None:
    """It is sampled once, and at its end; the others take turns, which is fair over a window."""
    turns = lines([10.0, 0.0] * 50, [0.0, 10.0] * 50)
    short = series.table(
        host="host0", qp=9, time_ns=[50_000_000, 50_005_000], delivered_bytes=[0.0, 64.0]
    )
    both = series.join([turns, short])
    found = series_metrics.derived(both, interval_ns=1_000_000)["fairness_over_time"]
    assert found == series_metrics.derived(turns)["fairness_over_time"] > 0.95
    assert series_metrics.derived(both)["fairness_over_time"] < 0.7, "windows of 50 us"


def test_the_time_to_recover() -> None:
    """Nothing for 20 ms after the event, and then half of what comes later for 10 ms."""
    rate = [10.0] * 50 + [0.0] * 20 + [4.0] * 10 + [8.0] * 120
    found = series_metrics.derived(lines(rate), [50_000_000])
    assert 20e6 <= found["recovery_time"] <= 30e6
    both = series_metrics.derived(lines(rate), [50_000_000, 120_000_000])
    assert both["recovery_time"] == found["recovery_time"], "the longest; the second disturbs none"
    assert "recovery_time" not in series_metrics.derived(lines(rate))
    dead = series_metrics.derived(lines([10.0] * 50 + [0.0] * 50 + [1.0]), [50_000_000])
    assert "recovery_time" not in dead, "nothing to recover to"


def test_goodput_and_queue_until_flows_have_recovered() -> None:
    event = [50_000_000]
    steady = series_metrics.derived(lines([8.0] * 200), event)["recovery_goodput"]
    rate = [10.0] * 50 + [0.0] * 20 + [4.0] * 10 + [8.0] * 120
    queue = [100.0] * 40 + [1.0] * 20 + [7.0] * 30 + [500.0] * 110
    times = [1_000_000 * i for i in range(200)]
    frames = [lines(rate), series.table(link="forward", time_ns=times, queue_bytes=queue)]
    found = series_metrics.derived(series.join(frames), event)
    assert 0.1 < found["recovery_goodput"] / steady < 0.5
    assert found["recovery_queue"] == 7
    assert "recovery_queue" not in series_metrics.derived(frames[0], event)
    twice = series_metrics.derived(lines(rate), [*event, 120_000_000])
    assert twice["recovery_goodput"] == found["recovery_goodput"], "the worst one"
    falls = series_metrics.derived(lines([10.0] * 100 + [1.0] * 50 + [8.0] * 50), [100_000_000])
    assert falls["recovery_goodput"] < steady / 2, "also where no nine tenths come"
