# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl cc`: output, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from datapath.cli import algorithms
from datapath.cli.algorithms import app
from datapath.errors import LocalError, RunFailed
from tests.cli.told import told

from .conftest import WriteAlgorithm


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_list() -> None:
    assert run("list").exit_code == 0
    rows = told("cc list", run("list", "--format", "json").output)
    assert {"dctcp", "fixed", "swift"} <= {row["name"] for row in rows}
    assert {"name": "dp_copa", "key": "cc.tcp"}.items() <= rows[-1].items()
    lines = run("list", "--format", "ndjson").output.splitlines()
    assert [json.loads(line) for line in lines] == [{"version": 1, **row} for row in rows]


def test_show() -> None:
    text = run("show", "swift").output
    assert "SIGCOMM 2020" in text
    assert "base_target_ns" in text
    record = told("cc show", run("show", "swift", "--format", "json").output)
    assert record["flow_bytes"] == 272
    assert not record["grants"]
    assert "gives grants" not in text
    assert "gives grants; state: least_rtt_ns (port)" in run("show", "homa").output
    assert record["params"][0]["unit"] == "ns"


def test_show_for_tcp() -> None:
    assert "NSDI 2018" in run("show", "dp_copa").output
    record = told("cc show", run("show", "dp_copa", "--format", "json").output)
    assert Path(record["file"]).name == "dp_copa.bpf.c"
    assert record["source"].startswith("Arun and Balakrishnan")


def test_compile() -> None:
    done = run("compile", "fixed", "-p", "window_bytes=65536", "-p", "rate_bps=1e9")
    assert Path(done.output.strip()).is_file()
    made = told("cc compile", run("compile", "fixed", "--format", "json").output)
    assert made["algorithm"] == "fixed"


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("window", "is not NAME=VALUE"),
        ("window_bytes=big", "window_bytes of fixed must be a number"),
        ("windw=1", "no parameter 'windw'"),
    ],
)
def test_wrong_parameters(pair: str, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        run("compile", "fixed", "-p", pair)


def test_check() -> None:
    done = run("check", "dctcp", "--events", "500", "--seed", "3")
    assert "500 events" in done.output


def test_check_finds_an_escape(write: WriteAlgorithm) -> None:
    path = write(
        """
        @algorithm("greedy")
        class Greedy:
            def on_ack(flow, ack):
                flow.cwnd_bytes += ack.acked_bytes
        """
    )
    with pytest.raises(RunFailed, match=r"greedy after event \d+ \(ack\): cwnd_bytes is") as caught:
        run("check", path)
    assert "--seed 1 --events" in caught.value.hint


def test_check_tells_a_loop_without_end(
    write: WriteAlgorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(
        """
        @algorithm("stuck")
        class Stuck:
            def on_ack(flow, ack):
                while flow.cwnd_bytes > 0:
                    flow.cwnd_bytes += 1
        """
    )
    monkeypatch.setattr(algorithms, "_EVENT_S", 0.2)
    with pytest.raises(RunFailed, match=r"stuck after event \d+ \(ack\): it has not returned"):
        run("check", path)
