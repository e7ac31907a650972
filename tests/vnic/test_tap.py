# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A guest behind a tap, as a virtual machine is, that reads when it gets round to it."""

from __future__ import annotations

import contextlib
import functools
import os

import pytest

from tests.fabric.test_emulator import open_tap, tap_frames
from tests.vnic.bench import Bench
from tests.waiting import wait_until

ROCE_PORT = 4791
COUNT = 3000


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("holds_all", [False, True])
def test_what_a_tap_has_no_room_for_is_counted(holds_all: bool) -> None:
    """Its length is that of its queue in the kernel, which tells nobody when it is full."""
    with contextlib.ExitStack() as stack:
        bench = Bench(stack)
        space = bench.hosts[1].namespace
        guest = bench.guests.pop("blue1")
        space.check_output(["ip", "link", "delete", "blue1"])
        tap = space.in_network(functools.partial(open_tap, "blue1"))
        stack.callback(os.close, tap)
        length = str(2 * COUNT if holds_all else 500)
        up = ["ip", "link", "set", "blue1", "addrgenmode", "none", "txqueuelen", length, "up"]
        space.check_output(up)
        bench.start(stack)
        sender = stack.enter_context(bench.guests["blue0"].udp())
        for number in range(COUNT):
            sender.sendto(bytes([number % 256]) * 100, (guest.ipv4, ROCE_PORT))
            if number % 64 == 63:
                wait_until(lambda: _delivered(bench) >= number - 256, "frames arrive")  # noqa: B023
        wait_until(lambda: _delivered(bench) == COUNT, "all frames have left the card")
        counts = bench.programs[1].counters()["guests"]["blue1"]
        # The host's own kernel says something of its own on a new device.
        ours = [frame for frame in tap_frames(tap) if frame[:6].hex(":") == guest.mac]
        assert len(ours) == COUNT - counts["tap_drops"]
        assert (counts["tap_drops"] == 0) == holds_all


def _delivered(bench: Bench) -> int:
    count: int = bench.programs[1].counters()["guests"]["blue1"]["tx_frames"]
    return count
