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
from tests.core.ladder import US, Channel, World

MSS = 4096
MESSAGE = 64 * MSS
START_NS = 1e9  # a World's clock
Run = Callable[..., Any]


@pytest.fixture
def run() -> Iterator[Run]:
    """run(algorithm, params, channel): write messages; the sender's flow after each delivery."""
    worlds: list[World] = []

    def run(name: str, params: dict[str, float], channel: Channel, messages: int = 12) -> Any:
        library = ctypes.CDLL(str(compile_algorithm(name, params).path))
        at = ctypes.addressof(ctypes.c_char.in_dll(library, "dp_cc_algo"))
        world = World(cc=ffi.cast("struct dp_cc_algo *", at))
        worlds.append(world)
        a, b = world.pair(mtu=MSS)
        target = b.host.memory(MESSAGE)
        for _ in range(messages):
            a.write(b"\xa5" * MESSAGE, target)
        flow = lib.dp_qp_flow(a.qp)
        seen: list[dict[str, float]] = []

        def note() -> None:
            seen.append({key: getattr(flow, key) for key, _ in ffi.typeof(flow).item.fields})

        done: list[Any] = []

        def finished() -> bool:
            done.extend(a.poll())
            return len(done) == messages

        assert world.run(channel, until=finished, each=note)
        assert {item.status for item in done} == {"SUCCESS"}
        assert bytes(target) == b"\xa5" * MESSAGE
        return seen

    yield run
    for world in worlds:
        world.close()


def test_fixed_holds_its_window(run: Run) -> None:
    """Every round trip of 40 us lets five packets through."""
    messages = 20
    seen = run("fixed", {"window_bytes": 5 * MSS}, Channel(latency_ns=20 * US), messages)
    assert {item["cwnd_bytes"] for item in seen} == {5 * MSS}
    round_trips = (seen[-1]["now_ns"] - START_NS) / (40 * US)
    assert round_trips == pytest.approx(messages * MESSAGE / (5 * MSS), rel=0.1)


def test_swift_keeps_the_delay_near_its_target(run: Run) -> None:
    """A wire with a bottomless queue: what stands in it is the algorithm's choice."""
    params = {"base_target_ns": 500_000, "fs_range_ns": 0, "initial_cwnd": 2}
    channel = Channel(latency_ns=20 * US, rate_bps=2e9)
    seen = run("swift", params, channel, messages=30)
    later = [item["srtt_ns"] for item in seen[len(seen) // 2 :]]
    assert sum(later) / len(later) == pytest.approx(500_000, rel=0.15)


def test_loss_reaches_the_algorithm(run: Run) -> None:
    """Everything arrives, and the window has felt it; without loss it only grows."""
    for loss in (0.0, 0.02):
        seen = run("dctcp", {}, Channel(latency_ns=20 * US, loss=loss, seed=4))
        windows = [item["cwnd_bytes"] for item in seen]
        assert any(after < before for before, after in pairwise(windows)) == (loss > 0)
