# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A receiver's side that is called once in a round trip of each sender."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.cc import compile_algorithm, load
from datapath.cc.receiving import (
    Arrivals,
    NativeReceiver,
    PythonReceiver,
    random_events,
    receiver_differences,
)
from datapath.errors import LocalError

from .incast import incast

WINDOWS = '''\
from datapath.cc import Ack, Data, Flow, Port, Sender, algorithm, state


@algorithm("windows", source="a test")
class Windows(Flow):
    """A window for each sender, which a mark in a round trip halves and another grows."""

    window_bytes: float = state(8192, of="sender")
    marked: float = state(of="sender")

    def on_init(flow):
        flow.cwnd_bytes = flow.max_cwnd_bytes
        flow.unscheduled_bytes = 0

    def on_ack(flow, ack: Ack):
        pass

    def on_request(port: Port, sender: Sender):
        grant(sender)

    def on_data(port: Port, sender: Sender, data: Data):
        sender.marked = max(sender.marked, data.marked)
        grant(sender)

    def on_timer(port: Port, senders):
        pass

    def on_round(port: Port, sender: Sender):
        half = max(sender.window_bytes / 2, sender.mss_bytes)
        more = sender.window_bytes + sender.mss_bytes
        sender.window_bytes = half if sender.marked > 0 else more
        sender.marked = 0


def grant(sender):
    aim = min(sender.arrived_bytes + sender.window_bytes, sender.wanted_bytes)
    sender.granted_bytes = max(sender.granted_bytes, aim)
'''


@pytest.fixture
def windows(tmp_path: Path) -> str:
    path = tmp_path / "windows.py"
    path.write_text(WINDOWS)
    return str(path)


@pytest.mark.parametrize("seed", range(4))
def test_compiled_equals_python(windows: str, seed: int) -> None:
    native, python = NativeReceiver(compile_algorithm(windows)), PythonReceiver(windows)
    one, other = Arrivals(native), Arrivals(python)
    for event in random_events(seed, 400):
        assert one.happen(event) == other.happen(event) == []
        assert receiver_differences(native, python) == []
    assert max(float(sender.window_bytes) for sender in native.senders) > 8192


def test_windows_of_the_receiver_grow_in_the_simulator(windows: str) -> None:
    """Two senders with 1 MB each: without growth, two packets in an RTT take far longer."""
    still = Path(windows).with_name("still.py")
    still.write_text(
        WINDOWS.replace("windows", "still").replace("window_bytes + ", "window_bytes + 0 * ")
    )
    grown = incast(compile_algorithm(windows), senders=2, size=1 << 20)
    constant = incast(compile_algorithm(str(still)), senders=2, size=1 << 20)
    assert grown.slowdown < 0.8 * constant.slowdown


def test_it_needs_a_receivers_side(windows: str) -> None:
    begin, end = WINDOWS.index("    def on_request"), WINDOWS.index("    def on_round")
    alone = WINDOWS[:begin] + WINDOWS[end:]
    Path(windows).write_text(alone.replace(', of="sender"', ""))
    with pytest.raises(LocalError, match="on_round runs at the receiver, and Windows has no"):
        load(windows)
