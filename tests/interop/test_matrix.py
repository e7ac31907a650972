# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The matrix: its cells, its table, and (marked guests) real ones against rxe."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from datapath.errors import LocalError
from datapath.interop import matrix
from datapath.interop.ground import Facts, Ground
from datapath.interop.matrix import Cell, Outcome
from datapath.interop.opcodes import OPCODES
from datapath.native.paths import ROOT


def test_cells_are_all_combinations() -> None:
    cells = matrix.cells(matrix.PORTS, matrix.MTUS, matrix.LOSSES, matrix.ROLES)
    assert len(cells) == len(set(cells)) == 2 * 2 * 3 * 2
    assert len({cell.name for cell in cells}) == 24
    assert str(cells[2]) == "afxdp, MTU 1024, loss 0.1%, requester"


@pytest.mark.parametrize(
    ("ports", "mtus", "roles", "words"),
    [
        (["dpdk"], [1024], ["requester"], "no port 'dpdk'"),
        (["udp"], [1500], ["requester"], "no path MTU 1500"),
        (["udp"], [1024], ["both"], "no role 'both'"),
    ],
)
def test_values_that_do_not_exist(
    ports: list[str], mtus: list[int], roles: list[str], words: str
) -> None:
    with pytest.raises(LocalError, match=words):
        matrix.cells(ports, mtus, [0.0], roles)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--port", "dpdk", "no port 'dpdk'"),
        ("--mtu", "big", "'big' is not a number of bytes"),
        ("--loss", "often", "often"),
        ("--role", "none", "no role 'none'"),
    ],
)
def test_the_command_refuses_them(option: str, value: str, words: str) -> None:
    done = subprocess.run(
        [str(ROOT / "dpctl"), "interop", option, value],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert words in done.stderr


def test_the_table() -> None:
    green = Outcome(Cell("udp", 1024, 0.01, "responder"), messages=7, verified_bytes=99)
    green.coverage = {"dp": {"ACK": 3}, "rxe": {"SEND ONLY": 4}}
    red = Outcome(Cell("afxdp", 4096, 0.0, "requester"), errors=["a", "b"])
    page = matrix.markdown(Facts("6.18.5", "6.12.1"), [green, red], "dpctl interop")
    lines = page.splitlines()
    assert "1 of 2 cells green." in lines
    assert "Our device ran on Linux 6.18.5, rxe in a guest with Linux 6.12.1." in lines
    assert any(
        line.startswith("| udp | 1024 | 1% | responder | green | 7 | 99 |") for line in lines
    )
    assert any(line.startswith("| afxdp | 4096 | 0% | requester | RED |") for line in lines)
    assert "| 0x11 | ACK | 3 | 0 |" in lines
    assert "| 0x04 | SEND ONLY | 0 | 4 |" in lines
    assert sum(line.startswith("| 0x") for line in lines) == len(OPCODES) + 1
    assert matrix.text_of(red) == "afxdp, MTU 4096, loss 0%, requester: RED, 2 errors\n  a\n  b"


# ---- against rxe -----------------------------------------------------------------------------

SOME = [
    Cell("afxdp", 1024, 0.01, "requester"),
    Cell("afxdp", 4096, 0.0, "responder"),
    Cell("udp", 1024, 0.01, "responder"),
    Cell("udp", 4096, 0.0, "requester"),
]


BTH = (
    *("infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.bth.a"),
    *("infiniband.aeth.syndrome", "infiniband.aeth.msn"),
)


def around(folder: Path, errors: list[str]) -> str:
    """The packets near the first one that an error names; the capture is gone soon after."""
    named = re.search(r"packet (\d+)", "\n".join(errors))
    capture = folder / "capture.pcap"
    if named is None or not capture.exists():
        return ""
    number = int(named[1])
    near = f"frame.number >= {number - 30} && frame.number <= {number + 30}"
    argv = ["tshark", "-r", str(capture), "-Y", near, "-T", "fields", "-E", "header=y"]
    for field in ("frame.number", "frame.time_relative", "ip.src", *BTH):
        argv += ["-e", field]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.guests
@pytest.mark.timeout(1800)
def test_against_rxe(root: None, tmp_path: Path) -> None:
    """Four cells that have every value of every axis once, and one that has to be red."""
    with Ground("6.12", tmp_path) as ground:
        for cell in SOME:
            outcome = matrix.run_cell(ground, cell, tmp_path)
            told = [str(cell), *outcome.errors[:20], around(tmp_path / cell.name, outcome.errors)]
            assert outcome.green, "\n".join(told)
            assert outcome.violations == 0
            assert outcome.verified_bytes > 10**6
            assert outcome.messages > 700
            # Nobody told our device what the other end is.
            assert 0 < outcome.offers <= 12
            (stats,) = (tmp_path / cell.name).glob("stats.*.dp0.json")
            device = json.loads(stats.read_text())
            assert device["port"]["kind"] == cell.port
            assert [qp["extended"] for qp in device["qps"]] == [0]

        outcome = matrix.run_cell(ground, Cell("udp", 1024, 1.0, "requester"), tmp_path)
        assert not outcome.green
        assert "dp0 (requester): case send, size 0, op send, message 0" in outcome.errors[0]
        assert ground.recover()
