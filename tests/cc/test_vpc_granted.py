# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vpc-granted: an incast that fits, vpc's window beside the grants, and both ways of running it."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm
from datapath.cc.receiving import (
    Arrivals,
    NativeReceiver,
    PythonReceiver,
    random_events,
    receiver_differences,
)

from .incast import incast
from .signatures.scene import MS, Shared, jain, steady


@pytest.mark.parametrize(("senders", "size"), [(128, 65_536), (128, 1 << 20), (32, 1 << 20)])
def test_an_incast_loses_nothing(senders: int, size: int) -> None:
    """vpc alone loses a part of the first windows, and waits for time-outs."""
    done = incast(compile_algorithm("vpc-granted"), senders=senders, size=size)
    assert done.drops == 0
    assert done.slowdown < 1.05
    alone = incast(compile_algorithm("vpc"), senders=senders, size=size)
    assert alone.drops > 100
    assert alone.slowdown > 1.5 * done.slowdown


@pytest.mark.parametrize("name", ["vpc-granted", "homa"])
@pytest.mark.parametrize("segment", [4288, 8192])
def test_packets_longer_than_the_path_mtu(name: str, segment: int) -> None:
    """A first grant for less than a packet would be of no use, and take the place of others."""
    done = incast(compile_algorithm(name), senders=128, size=262_144, segment=segment)
    assert done.result.totals["ended"] == 128
    assert done.drops == 0
    assert done.slowdown < 1.05


def test_lost_grants_hold_up_nobody() -> None:
    done = incast(compile_algorithm("vpc-granted"), senders=32, size=65_536, loss=0.01)
    assert done.result.totals["ended"] == 32


@pytest.mark.parametrize("count", [1, 2, 8])
def test_long_flows_have_the_window_of_vpc(count: int) -> None:
    """Their queue is inside the network, where no receiver sees it."""
    seen, alone = (steady(name, Shared(), count=count) for name in ("vpc-granted", "vpc"))
    assert seen.share(50 * MS) > 0.98 * alone.share(50 * MS)
    assert jain(seen.goodput_bps(50 * MS)) > 0.98
    assert seen.queue_us(50 * MS) < 1.2 * alone.queue_us(50 * MS)


@pytest.mark.parametrize("seed", range(2))
def test_compiled_equals_python(seed: int) -> None:
    native = NativeReceiver(compile_algorithm("vpc-granted"))
    python = PythonReceiver("vpc-granted")
    both = [Arrivals(native), Arrivals(python)]
    for event in random_events(seed, 300):
        for arrivals in both:
            assert arrivals.happen(event) == []
        assert receiver_differences(native, python) == []
