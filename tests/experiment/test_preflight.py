# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a machine lacks is told all at once, before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.experiment import preflight
from datapath.experiment.preflight import Lacking

from .conftest import Load


def lacks(load: Load, old: str = "", new: str = "") -> dict[str, str]:
    with pytest.raises(Lacking) as caught:
        preflight.check(load(old, new))
    assert caught.value.exit_code == 3
    return {str(lack): lack.hint for lack in caught.value.lacks}


def test_missing_programs_come_with_their_packages(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = lacks(load)
    assert found["program ib_write_bw is not installed"] == "apt-get install perftest"
    assert found["program iperf3 is not installed"] == "apt-get install iperf3"
    assert found["program sockperf is not installed"] == "apt-get install sockperf"
    assert found["program ip is not installed"] == "apt-get install iproute2"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mtu: 9000", "lane: sim", "workload perftest runs programs, and hosts of lane sim run"),
        ("mtu: 9000", "lane: sim", "lane sim has no device kernel"),
        ("loss: 0", "backend: netem", "path backend netem is not in this version"),
        ("transport.port: afxdp", "transport.device: rxe", "device rxe is not for namespaces"),
        (
            "set: {transport.port: afxdp}",
            "set: {topology.mtu: 4200, transport.options.telemetry: true}",
            "telemetry needs 132 bytes in packets beside the path MTU of 4096, and an MTU of 4200",
        ),
    ],
)
def test_what_this_version_has_not(load: Load, old: str, new: str, said: str) -> None:
    assert any(said in lack for lack in lacks(load, old, new))
