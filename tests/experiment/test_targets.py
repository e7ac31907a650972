# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An algorithm that aims at a delay below the path's RTT: `dpctl run` says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from datapath.experiment import preflight, targets
from datapath.experiment.load import load_text

FILE = """
version: 1
name: targets
topology: {{lane: {lane}, preset: dumbbell, hosts: 4, mtu: 9000}}
path: {{rate: {rate}, delay: 100us}}
transport: {{device: {device}}}
cc: {{algo: {algo}}}
workload: {{kind: stream}}
"""


@pytest.fixture
def remarks() -> Callable[..., list[str]]:
    def told(algo: str, rate: str = "10gbit", lane: str = "sim", device: str = "dp") -> list[str]:
        text = FILE.format(algo=algo, rate=rate, lane=lane, device=device)
        experiment = load_text(text, Path("targets.yaml"))
        return targets.remarks(experiment, preflight.compile_algorithms(experiment))

    return told


def test_what_is_below_the_rtt_is_told_once(remarks: Callable[..., list[str]]) -> None:
    (told,) = remarks("swift")
    assert "swift aims at RTTs of 50us (base_target_ns)" in told
    assert "a path of this file has 206us without a queue" in told  # 200 us and a packet of 7.7 KB
    assert "raise cc.base_target_ns" in told
    assert remarks("timely", lane="netns")


@pytest.mark.parametrize("algo", ["swift, base_target_ns: 210us", "vpc", "cubic", "fixed"])
def test_others_are_not(remarks: Callable[..., list[str]], algo: str) -> None:
    assert remarks(algo) == []


def test_a_packet_takes_its_time(remarks: Callable[..., list[str]]) -> None:
    assert remarks("swift, base_target_ns: 210us", rate="1gbit")


def test_the_kernels_own_devices_have_no_algorithm_of_ours(
    remarks: Callable[..., list[str]],
) -> None:
    assert remarks("fixed", lane="netns", device="kernel") == []
