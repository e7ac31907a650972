# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/cc.md is true: its code runs, its tables are the records, and each algorithm has its row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from datapath.cc import compile_algorithm, load, records, registry
from datapath.cli import algorithms
from datapath.errors import LocalError, RunFailed

from .incast import incast

PAGE = Path(__file__).parents[2] / "docs" / "cc.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "my_cc.py"
    path.write_text(blocks("python")[0])
    monkeypatch.chdir(tmp_path)
    return path


def test_the_example_is_short_and_works(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(example.read_text().splitlines()) < 40
    exec(compile(blocks("python")[2], "docs/cc.md", "exec"), {})
    cwnd_bytes, rtt_ns = map(float, capsys.readouterr().out.split())
    assert cwnd_bytes == pytest.approx(10 * 4096, rel=0.5)  # half of rate x target RTT
    assert rtt_ns == pytest.approx(60_000, rel=0.2)


def test_the_simulator_runs_it_as_shown(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(blocks("python")[3], "docs/cc.md", "exec"), {})
    first, second = map(int, capsys.readouterr().out.strip("[]\n").split())
    alone_ns = 20_000_000 * 8e9 / 1e10
    assert alone_ns < min(first, second)
    assert 1.9 * alone_ns < max(first, second) < 2.5 * alone_ns


def test_the_receivers_example_works(tmp_path: Path) -> None:
    """64 hosts send to one: nothing is dropped, and the line is filled as far as it grants."""
    path = tmp_path / "in_turn.py"
    path.write_text(blocks("python")[1])
    assert len(path.read_text().splitlines()) < 60
    done = incast(compile_algorithm(str(path)), senders=64, size=65_536)
    assert done.drops == 0
    assert 1 < done.slowdown < 1.12


def test_every_algorithm_is_in_the_table() -> None:
    page = PAGE.with_name("included-algorithms.md").read_text()
    names = re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)
    assert sorted(names) == list(registry())


def test_the_room_for_state_is_what_the_page_says() -> None:
    sentence = next(
        line for line in PAGE.read_text().splitlines() if "DP_CC_FLOW_BYTES_MAX" in line
    )
    limit, head, each, most = (int(n) for n in re.findall(r"(\d+) (?:bytes|for|numbers)", sentence))
    assert limit == records.FLOW_BYTES_MAX
    assert head == records.MEMBER_BYTES * len(records.FLOW_MEMBERS)
    assert each == records.MEMBER_BYTES
    assert most == (limit - head) // each


def test_the_error_shown_is_the_error_given(example: Path) -> None:
    text = example.read_text().replace("flow.cwnd_bytes + ", "flow.cwnd_byte + ")
    example.write_text(text)
    with pytest.raises(LocalError) as caught:
        load("./my_cc.py")
    assert (str(caught.value), caught.value.hint) == errors_shown()[0]


def test_what_the_check_finds_is_as_shown(example: Path) -> None:
    text = example.read_text().replace("ack.rtt_ns <= flow.target_ns", "ack.hop[8].queue_bytes < 1")
    example.write_text(text)
    with pytest.raises(RunFailed) as caught:
        algorithms.check("./my_cc.py", events=5000, seed=1)
    assert (str(caught.value), caught.value.hint) == errors_shown()[1]


def errors_shown() -> list[tuple[str, str]]:
    return re.findall(r"^error: (.*)\nhint: (.*)$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "members"),
    [
        ("### flow", records.FLOW_MEMBERS),
        ("### ack", records.ACK_MEMBERS),
        ("### ack.hop", records.HOP_MEMBERS),
        ("### loss", records.LOSS_MEMBERS),
        ("### port", records.HEADS["port"]),
        ("### sender", records.HEADS["sender"]),
        ("### data", records.DATA_MEMBERS),
    ],
)
def test_tables(heading: str, members: dict[str, str]) -> None:
    section = re.split(rf"^{re.escape(heading)}\b", PAGE.read_text(), flags=re.MULTILINE)[1]
    table = re.search(r"^\|---\|---\|\n((?:\|.*\n)*)", section, re.MULTILINE)
    assert table
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", table[1], re.MULTILINE)
    assert dict(rows) == members
