# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Simulated programs that wake late: by how much, for what, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datapath.cc import compile_algorithm
from datapath.errors import LocalError
from datapath.fabric import flows as traffic
from datapath.fabric import replay
from datapath.fabric.changes import Change, PauseLink
from datapath.fabric.engine_options import EngineOptions
from datapath.fabric.failures import Deadlock
from datapath.fabric.links import CoDel, Jitter, Link, QueueClass, SharedBuffer
from datapath.fabric.sim_result import Sampling
from datapath.fabric.simulator import Simulation
from datapath.fabric.topology import Dumbbell, Star
from datapath.fabric.wakeup import MAX_NS, Lateness, Wakeup

pytestmark = pytest.mark.san

GBIT = 10**9
US = 1_000
SELDOM = Lateness.constant(5_000 * US)
"""Of what a test is not about: something else always ends the sleep before."""
RTT_NS = 2 * 2 * 10 * US
"""Of STAR, but for what it takes to send."""
STAR = Star(2, edge=Link(100 * GBIT, 10 * US))


def always(ns: int, *, timer_ns: int | None = None, spin_ns: int = 0) -> Wakeup:
    timer = Lateness.constant(ns if timer_ns is None else timer_ns)
    return Wakeup(Lateness.constant(ns), timer, spin_ns=spin_ns)


def messages(count: int, *, size: int = 64, depth: int = 1, **more: int) -> traffic.Flows:
    """From host 0 to host 1, `depth` at a time."""
    row = traffic.empty(1)
    row["src"], row["dst"], row["bytes"] = 0, 1, count * size
    row["message_bytes"], row["depth"] = size, depth
    for name, value in more.items():
        row[name] = value
    return row


def run(flows: traffic.Flows, wakeup: Wakeup | None, *, seed: int = 1, **more: Any) -> Any:
    return Simulation(STAR, seed=seed, wakeup=wakeup).run(flows, **more)


def latency_ns(wakeup: Wakeup | None, share: float = 0.5, count: int = 10) -> float:
    return float(run(messages(count), wakeup).flows.latencies.quantile(share))


# --- by how much -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "points",
    [
        ((0.0, 0), (1.0, 100 * US)),
        ((0.0, 5 * US), (0.5, 20 * US), (0.9, 40 * US), (0.99, 90 * US), (1.0, 400 * US)),
        ((0.0, 10 * US), (0.7, 10 * US), (0.7, 80 * US), (1.0, 80 * US)),  # one or the other
    ],
)
def test_delays_have_the_quantiles_that_were_asked_for(points: Any) -> None:
    """A message waits for the receiver's program, and its acknowledgement for the sender's."""
    result = run(messages(60_000), Wakeup(Lateness(points), SELDOM, spin_ns=0))
    shares, delays = zip(*points, strict=True)
    rng = np.random.default_rng(1)
    both = sum(np.interp(rng.random(200_000), shares, delays) for _ in range(2))
    shortest = latency_ns(None)
    for share in (0.1, 0.25, 0.6, 0.75, 0.95, 0.99):
        waited = result.flows.latencies.quantile(share) - shortest
        assert waited == pytest.approx(np.quantile(both, share), rel=0.05, abs=2 * US)


def test_hosts_draw_for_themselves_and_seeds_repeat_it() -> None:
    late = Wakeup(Lateness(((0.0, 0), (1.0, 50 * US))), SELDOM)
    first, again, other = (run(messages(500), late, seed=seed) for seed in (1, 1, 2))
    assert first.digest == again.digest
    assert np.array_equal(first.flows.rows, again.flows.rows)
    assert first.digest != other.digest


def test_without_delays_a_run_takes_as_long_as_without_the_key() -> None:
    assert latency_ns(always(0)) == pytest.approx(latency_ns(None), abs=10)


# --- for what ----------------------------------------------------------------------------------


def test_a_program_that_polls_is_late_for_nothing() -> None:
    """The sender polls after each completion, the receiver of a WRITE has none."""
    shortest, late = latency_ns(None), 30 * US
    assert latency_ns(always(late)) == pytest.approx(shortest + 2 * late, rel=0.02)
    polling = always(late, spin_ns=2 * RTT_NS)
    assert latency_ns(polling) == pytest.approx(shortest + late, rel=0.02)


def test_a_program_is_awake_for_a_while_after_it_woke() -> None:
    """Long enough for the next message, only the first one waits."""
    sleeper = Lateness.constant(30 * US)
    wakeup = Wakeup(sleeper, SELDOM, spin_ns=0, awake_ns=20 * RTT_NS)
    assert latency_ns(wakeup) == pytest.approx(latency_ns(None), abs=100)
    assert latency_ns(wakeup, share=1.0) == pytest.approx(latency_ns(None) + 60 * US, rel=0.02)


def test_a_sleep_ends_once_for_all_that_has_come() -> None:
    """Sixteen packets in a row wait for one turn, not for sixteen."""
    size, late = 16 * 4096, 200 * US
    alone = run(messages(1, size=size), None).flows.rows["finish_ns"][0]
    took = run(messages(1, size=size), always(late)).flows.rows["finish_ns"][0]
    assert took < alone + 3 * late


def test_timers_are_late_too() -> None:
    """A paced sender wakes for each packet."""
    slow = compile_algorithm("fixed", {"window_bytes": 1 << 20, "rate_bps": 100e6})
    most = {}
    for late in (0, 70 * US):
        wakeup = Wakeup(SELDOM, Lateness.constant(late))
        result = run(messages(20, size=4096, depth=20), wakeup, algorithms=slow)
        most[late] = result.qps["pacing_late_max_ns"]
    assert most[0] < 2 * US  # the engine's timers are as exact as that
    assert most[70 * US] == pytest.approx(70 * US, abs=2 * US)


def test_what_waits_for_the_nic_needs_no_program() -> None:
    """Delays cost what is sent before the first answer, not the rate of the link."""
    nic = Star(2, edge=Link(1 * GBIT, 10 * US))
    flows = messages(1, size=10_000_000)
    took = [
        int(Simulation(nic, wakeup=wakeup).run(flows).flows.rows["finish_ns"][0])
        for wakeup in (None, always(100 * US))
    ]
    assert took[0] < took[1] < took[0] + 400 * US


def test_a_paused_nic_lets_its_program_sleep() -> None:
    """Paused for 1 ms with packets waiting; nothing is lost, and the books balance."""
    pauses = [PauseLink(50_000, 0), PauseLink(1_050_000, 0, paused=False)]
    result = run(messages(200, size=4096, depth=16), always(20 * US), changes=pauses)
    assert result.finished
    assert result.flows.rows["delivered_bytes"][0] == 200 * 4096


def test_a_long_sleep_is_no_deadlock() -> None:
    result = run(messages(3), always(150_000 * US))
    assert result.finished


# --- who is told of it -------------------------------------------------------------------------


def test_an_emulator_that_wakes_late_is_none_of_the_network() -> None:
    """Its frames tell when they should have come: what the hosts add grows; the rate stays."""
    neck = Link(GBIT, 100 * US, limit_bytes=1 << 20)
    shape = Dumbbell(1, bottleneck=neck)
    rtt, host, took = {}, {}, {}
    for late in (0, 30 * US):
        wakeup = Wakeup(Lateness.constant(0), Lateness.constant(0), Lateness.constant(late))
        series = Simulation(shape, wakeup=wakeup).run(
            messages(200), sampling=Sampling(100 * US, flows=[0])
        )
        rtt[late] = np.nanmean(series.series.qps["rtt_ns"][5:])
        host[late] = np.nanmean(series.series.qps["host_ns"][5:])
        bulk = Simulation(shape, wakeup=wakeup).run(messages(60, size=1 << 16, depth=16))
        took[late] = int(bulk.flows.rows["finish_ns"][0])
    assert rtt[30 * US] == pytest.approx(rtt[0], rel=0.01)
    assert host[30 * US] == pytest.approx(host[0] + 2 * 30 * US, abs=1 * US)
    assert took[0] < took[30 * US] < took[0] + 200 * US


def test_an_emulator_that_wakes_late_pauses_late() -> None:
    """It catches up on the turns of its links, and the pauses that follow are not of the past."""
    buffer = SharedBuffer(
        400_000, pfc_classes=1, xoff_bytes=60_000, xon_bytes=50_000, headroom_bytes=90_000
    )
    shape = Dumbbell(2, Link(10 * GBIT, US), Link(GBIT, US), buffer=buffer)
    flows = traffic.join([messages(20, size=100_000, depth=8) for _ in range(2)])
    flows["src"], flows["dst"] = [0, 1], [2, 3]
    late = Wakeup(Lateness.constant(US), Lateness.constant(US), Lateness.constant(100 * US))
    result = Simulation(shape, wakeup=late).run(flows)
    assert result.finished
    assert result.links["paused_ns"].sum() > 0


class Looks:
    """Looks often, and changes nothing."""

    look_ns = 7 * US

    def changes(self) -> list[Change]:
        return []

    def look(self, now_ns: int, results: Any, queue_peak: Callable[[str], int]) -> bool:
        queue_peak("left>right")
        return False


NECK = Link(GBIT, 50 * US, limit_bytes=100_000)
EDGE = Link(10 * GBIT, US)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(Dumbbell(4, EDGE, replace(NECK, **more)), id=name)
        for name, more in {
            "plain": {},
            "jitter": {"jitter": Jitter("normal", 10_000.0)},
            "trace": {"rate_bps": 0, "trace_ms": tuple(1 + i // 80 for i in range(800))},
            "shaped": {"classes": (QueueClass(rate_bps=GBIT // 2),)},
            "codel": {"delay_ns": US, "reorder": 0.3, "reorder_ns": 50 * US, "aqm": CoDel(US, US)},
        }.items()
    ]
    + [
        pytest.param(Dumbbell(4, EDGE, replace(NECK, limit_bytes=0), buffer=buffer), id=name)
        for name, buffer in {
            "buffer": SharedBuffer(80_000),
            "pfc": SharedBuffer(
                400_000, pfc_classes=1, xoff_bytes=20_000, xon_bytes=10_000, headroom_bytes=60_000
            ),
        }.items()
    ],
)
def test_who_looks_at_emulated_links_changes_nothing(shape: Dumbbell) -> None:
    flows = traffic.join([messages(16, size=50_000, depth=4) for _ in range(4)])
    flows["src"], flows["dst"] = np.arange(4), 4 + np.arange(4)
    lateness = Lateness(((0.0, 5 * US), (1.0, 60 * US)))
    simulation = Simulation(
        shape, wakeup=Wakeup(Lateness.constant(15 * US), Lateness.constant(15 * US), lateness)
    )
    unseen = simulation.run(flows)
    for interval_us in (1, 10, 100):
        sampling = Sampling(interval_us * US, [0], [0, 1])
        assert simulation.run(flows, sampling=sampling).digest == unseen.digest
    assert simulation.run(flows, watcher=Looks()).digest == unseen.digest


def test_one_program_emulates_both_directions() -> None:
    """A frame leaves when the emulator wakes for one of the other direction, due 30 us before."""
    network = Dumbbell(1, bottleneck=Link(10 * GBIT, 100 * US))
    wakeup = Wakeup(Lateness.constant(0), Lateness.constant(0), Lateness.constant(50 * US))

    def lasted(*flows: traffic.Flows) -> int:
        return int(
            Simulation(network, wakeup=wakeup)
            .run(np.concatenate(flows))
            .flows.rows["finish_ns"][-1]
        )

    alone = lasted(messages(1, start_ns=1_000 * US))
    other = messages(1, start_ns=970 * US)
    other["src"], other["dst"] = 1, 0
    assert alone - lasted(other, messages(1, start_ns=1_000 * US)) == pytest.approx(
        30 * US, abs=2 * US
    )


def test_the_hosts_are_told_apart_from_the_network() -> None:
    rtt, host = {}, {}
    for late in (0, 40 * US):
        sampling = Sampling(100 * US, flows=[0])
        series = run(
            messages(200), Wakeup(Lateness.constant(late), SELDOM, spin_ns=0), sampling=sampling
        ).series.qps
        rtt[late] = np.nanmean(series["rtt_ns"][5:])
        host[late] = np.nanmean(series["host_ns"][5:])
    assert rtt[40 * US] == pytest.approx(rtt[0], rel=0.01)
    assert host[0] < 1 * US
    assert host[40 * US] == pytest.approx(2 * 40 * US, rel=0.05)


def test_a_failure_is_replayed_with_its_delays(tmp_path: Path) -> None:
    late = Wakeup(Lateness(((0.0, 0), (0.5, 20 * US), (1.0, 50 * US))), Lateness.constant(7))
    simulation = Simulation(STAR, wakeup=late)
    with pytest.raises(Deadlock):
        simulation.run(messages(10), changes=[PauseLink(10, 0)], keep=tmp_path)
    again, arguments = replay.read(tmp_path / "case.json")
    assert again.wakeup == late
    with pytest.raises(Deadlock):
        again.run(**arguments)


# --- what makes no sense -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (((0.1, 0), (1.0, 5)), "from 0 to 1"),
        (((0.0, 0), (0.9, 5)), "from 0 to 1"),
        (((0.0, 0), (0.7, 5), (0.5, 6), (1.0, 7)), "from 0 to 1"),
        (((0.0, 9), (1.0, 5)), "delays"),
        (((0.0, -1), (1.0, 5)), "delays"),
        (((0.0, 0), (1.0, MAX_NS + 1)), "delays"),
    ],
)
def test_points_that_are_no_distribution(points: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Lateness(points)


def test_the_simulator_looks_at_them_itself() -> None:
    broken = always(5)
    object.__setattr__(broken.packet, "points", ((0.0, 5), (0.5, 5)))
    with pytest.raises(LocalError, match="refuses"):
        run(messages(1), broken)


def test_a_shared_link_stays_busy_when_programs_wake_late() -> None:
    """Windows of several RTTs hide that programs are late."""
    neck = Link(GBIT, 100 * US, limit_bytes=1 << 20)
    flows = messages(60, size=1 << 16, depth=16)
    options = EngineOptions(path_mtu=4096)
    took = [
        int(
            Simulation(Dumbbell(1, bottleneck=neck), transport=options, wakeup=wakeup)
            .run(flows)
            .flows.rows["finish_ns"][0]
        )
        for wakeup in (None, always(50 * US))
    ]
    assert took[1] == pytest.approx(took[0], rel=0.02)
