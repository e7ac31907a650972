# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Compiled algorithms in the real engine: two of them, a slow wire, virtual time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from datapath.cc import compile_algorithm
from datapath.native import ffi, lib
from tests.engine.ladder import US, Channel, World

MSS = 4096
MESSAGE = 64 * MSS
MODES = pytest.mark.parametrize("extended", [False, True], ids=["standard", "extended"])
Run = Callable[..., Any]
Flow = list[dict[str, float]]


@pytest.fixture
def run() -> Iterator[Run]:
    """run(algorithm, params, channel, ...): messages one way, the requester's flow.

    Returns its fields after each delivery of a packet, `now_ns` counted from the
    first message on, and those of `stats()` in the last entry's place `[-1]`.
    """
    worlds: list[World] = []

    def run(
        name: str,
        params: dict[str, float],
        channel: Channel,
        *,
        messages: int = 12,
        extended: bool = False,
        operation: str = "write",
    ) -> tuple[Flow, dict[str, int]]:
        library = ctypes.CDLL(str(compile_algorithm(name, params).path))
        at = ctypes.addressof(ctypes.c_char.in_dll(library, "dp_cc_algo"))
        world = World(cc=ffi.cast("struct dp_cc_algo *", at), extended=extended, ecn=1)
        worlds.append(world)
        a, b = world.extended_pair(mtu=MSS) if extended else world.pair(mtu=MSS)
        content = b"\xa5" * MESSAGE
        target = b.host.memory(MESSAGE if operation == "write" else content)
        start = world.now
        for _ in range(messages):
            if operation == "write":
                a.write(content, target)
            else:
                into = a.read(MESSAGE, target)
        seen: Flow = []

        def note() -> None:
            flow = lib.dp_qp_flow(a.qp)
            fields = {key: getattr(flow, key) for key, _ in ffi.typeof(flow).item.fields}
            seen.append(fields | {"now_ns": flow.now_ns - start})

        done: list[Any] = []

        def finished() -> bool:
            done.extend(a.poll())
            return len(done) == messages

        assert world.run(channel, until=finished, each=note)
        assert {item.status for item in done} == {"SUCCESS"}
        assert bytes(target if operation == "write" else into) == content
        return seen, a.stats()

    yield run
    for world in worlds:
        world.close()


def windows(flow: Flow) -> list[float]:
    return [item["cwnd_bytes"] for item in flow]


def shrinks(flow: Flow) -> bool:
    return any(after < before for before, after in pairwise(windows(flow)))


@MODES
def test_fixed_holds_its_window(run: Run, extended: bool) -> None:
    """Every round trip of 40 us lets five packets through."""
    messages = 20
    channel = Channel(latency_ns=20 * US)
    flow, _ = run("fixed", {"window_bytes": 5 * MSS}, channel, messages=messages, extended=extended)
    assert set(windows(flow)) == {5 * MSS}
    round_trips = flow[-1]["now_ns"] / (40 * US)
    assert round_trips == pytest.approx(messages * MESSAGE / (5 * MSS), rel=0.1)


@MODES
def test_swift_keeps_the_delay_near_its_target(run: Run, extended: bool) -> None:
    """A wire with a bottomless queue: what stands in it is the algorithm's choice."""
    params = {"base_target_ns": 500_000, "fs_range_ns": 0, "initial_cwnd": 2}
    channel = Channel(latency_ns=20 * US, rate_bps=2e9)
    flow, _ = run("swift", params, channel, messages=30, extended=extended)
    later = [item["srtt_ns"] for item in flow[len(flow) // 2 :]]
    assert sum(later) / len(later) == pytest.approx(500_000, rel=0.15)


@MODES
@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_loss_reaches_the_algorithm(run: Run, loss: float, extended: bool) -> None:
    """Everything arrives, and the window has felt it; without loss it only grows."""
    channel = Channel(latency_ns=20 * US, loss=loss, seed=4)
    flow, stats = run("dctcp", {}, channel, extended=extended)
    assert shrinks(flow) == (loss > 0)
    assert (stats["retransmits"] > 0) == (loss > 0)


@pytest.mark.parametrize("operation", ["write", "read"])
def test_losses_of_either_direction_reach_it_in_extended_mode(run: Run, operation: str) -> None:
    """A lost READ response shrinks the window of the one who asked."""
    channel = Channel(latency_ns=20 * US, loss=0.02, seed=4)
    flow, stats = run("dctcp", {}, channel, extended=True, operation=operation)
    assert shrinks(flow)
    assert stats["fast_retransmits"] > 0


def test_marks_reach_the_algorithm_in_extended_mode(run: Run) -> None:
    """ECN echo: the window of DCTCP follows the share of marked packets, nothing being lost."""
    smallest = []
    for mark in (0.0, 0.05, 0.5):
        channel = Channel(latency_ns=20 * US, mark=mark, seed=4)
        flow, stats = run("dctcp", {}, channel, messages=30, extended=True)
        assert stats["retransmits"] == 0
        assert shrinks(flow) == (mark > 0)
        later = windows(flow)[len(flow) // 2 :]
        smallest.append(sum(later) / len(later))
    assert smallest[0] > smallest[1] > smallest[2]
