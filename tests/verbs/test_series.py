# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""DATAPATH_SERIES: samples of the QPs of programs that know nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from datapath import series, series_metrics
from tests.listening import await_listener
from tests.verbs.conftest import Pair
from tests.verbs.devices import PROGRAMS, PYTHON, environment, sanitizer
from tests.waiting import wait_until

both_ports = pytest.mark.parametrize("port", ["afxdp", "udp"])
WRITE = ["ib_write_bw", "-d", "dp0", "-F", "-s", "65536"]
WRITES = [*WRITE, "-n", "2000"]
BYTES = 2000 * 65536


def files(pair: Pair) -> list[Path]:
    return sorted(pair.logs.glob("s.*.series"))


def sender(pair: Pair) -> tuple[series.SeriesFile, Path]:
    """The file of the process whose QPs have delivered something."""
    for path in files(pair):
        file = series.read_file(path, "host")
        if file.frame["delivered_bytes"].max() > 0:
            return file, path
    pytest.fail(f"nobody delivered anything: {files(pair)}")


@both_ports
@pytest.mark.parametrize("mode", ["auto", "standard"])
def test_samples_end_in_what_the_counters_say(pair: Pair, port: str, mode: str) -> None:
    prefix = str(pair.logs / "s")
    env = {"DATAPATH_SERIES": f"{prefix};interval_us=500", "DATAPATH_STATS": prefix}
    pair.run([*WRITES, "-q", "2"], port, mode=mode, env=env)
    assert len(files(pair)) == 2
    file, path = sender(pair)
    assert (file.rows_left_out, file.flows_left_out) == (0, 0)
    stats = json.loads((path.parent / (path.name.rpartition("-")[0] + ".json")).read_text())
    counters = {qp["qpn"]: qp for qp in stats["qps"]}
    flows = series.flows(file.frame)
    assert {qpn for _, qpn, _ in flows} == set(counters)
    for _, qpn, rows in flows:
        assert len(rows) > 2
        for column in ("time_ns", "delivered_bytes", "sent_packets", "retransmitted_packets"):
            assert rows[column].is_monotonic_increasing, column
        assert rows["rtt_ns"].dropna().gt(0).all()
        assert (rows["min_rtt_ns"].dropna() <= rows["rtt_ns"].dropna()).all()
        assert rows["inflight_bytes"].max() > 0
        assert (rows["cwnd_bytes"] > 0).all()
        last = rows.iloc[-1]
        assert last["delivered_bytes"] == BYTES
        assert last["inflight_bytes"] == 0
        assert last["sent_packets"] == counters[qpn]["tx_packets"]
        assert last["retransmitted_packets"] == counters[qpn]["retransmits"]
    assert series_metrics.derived(file.frame)["fairness"] == 1.0


def test_an_interval_is_kept(pair: Pair) -> None:
    pair.run([*WRITE, "-n", "20000"], "udp", env={"DATAPATH_SERIES": f"{pair.logs}/s"})
    file, _ = sender(pair)
    ((_, _, rows),) = series.flows(file.frame)
    # Sleeps end late on a busy machine, but never early, and later ones make up for it.
    times = rows["time_ns"].iloc[:-2]
    assert len(times) > 3
    assert (times.iloc[-1] - times.iloc[0]) / (len(times) - 1) >= 0.9 * 10_000_000


def test_a_full_file_says_what_it_left_out(pair: Pair) -> None:
    env = {"DATAPATH_SERIES": f"{pair.logs}/s;interval_us=100;max_bytes=4096"}
    pair.run([*WRITES, "-q", "4"], "udp", env=env)
    for path in files(pair):
        file = series.read_file(path, "host")
        assert 4096 - 88 < path.stat().st_size <= 4096
        assert len(file.frame) > 10
        assert file.rows_left_out > 0


def test_only_so_many_qps_are_sampled(pair: Pair) -> None:
    env = {"DATAPATH_SERIES": f"{pair.logs}/s;qps=2;interval_us=1000"}
    pair.run([*WRITES, "-q", "5"], "udp", env=env)
    for path in files(pair):
        file = series.read_file(path, "host")
        assert file.flows_left_out == 3
        assert file.frame["qp"].nunique() == 2


DATAGRAMS_FIRST = """
from datagrams import Endpoint
from pair import TARGET, Side, connect
context = TARGET.open()
first = Endpoint(context)
a, b = Side(context), Side(context)
for side in (a, b):
    side.make_qp()
connect(a, b)
b.recv(10)
a.send([a.sge(10)])
a.done()
"""


def test_queue_pairs_without_a_window_take_no_place(tmp_path: Path) -> None:
    env = {
        **os.environ,
        **environment("udp:127.0.0.1"),
        "PYTHONPATH": str(PROGRAMS),
        "DATAPATH_SERIES": f"{tmp_path}/s;qps=2",
    }
    subprocess.run([PYTHON, "-c", DATAGRAMS_FIRST], env=env, timeout=60, check=True)
    (path,) = tmp_path.iterdir()
    file = series.read_file(path, "host")
    assert (file.frame["qp"].nunique(), file.flows_left_out) == (2, 0)


def test_a_file_of_an_earlier_process_stays(pair: Pair) -> None:
    """One with the same PID has left it."""
    script = 'echo old >"$0.$$.dp0-0.series"; exec "$@"'
    command = ["sh", "-c", script, f"{pair.logs}/s", *WRITES]
    pair.run(command, "udp", env={"DATAPATH_SERIES": f"{pair.logs}/s"})
    old = [path for path in files(pair) if path.read_bytes() == b"old\n"]
    assert [path.name.rpartition("-")[2] for path in old] == ["0.series"] * 2
    fresh = {path for path in files(pair) if path not in old}
    assert [path.name.rpartition("-")[2] for path in fresh] == ["1.series"] * 2
    assert all(series.read_file(path, "host") for path in fresh)


@pytest.mark.parametrize(
    "setting", ["interval_us=99", "interval_us=", "qps=0", "qps=5x", "max_bytes=1", "rate=5", "qps"]
)
def test_a_wrong_setting_is_told_and_nothing_is_collected(
    pair: Pair, tmp_path: Path, setting: str
) -> None:
    env = {"DATAPATH_SERIES": f"{tmp_path}/s;{setting}"}
    outputs = pair.run(["ibv_rc_pingpong", "-d", "dp0", "-g", "0", "-n", "10"], "udp", env=env)
    for output in outputs:
        assert f"DATAPATH_SERIES: '{setting}' is not interval_us=N" in output
        assert "iters in" in output
    assert files(pair) == []


def test_a_place_that_cannot_be_written_is_told(pair: Pair) -> None:
    env = {"DATAPATH_SERIES": f"{pair.logs}/none/s"}
    for output in pair.run(["ibv_rc_pingpong", "-d", "dp0", "-g", "0", "-n", "10"], "udp", env=env):
        assert "no series of dp0: No such file or directory" in output
        assert "iters in" in output


@both_ports
def test_kill_9_leaves_what_was_written(pair: Pair, port: str) -> None:
    left, right = pair.hosts
    argv = [*WRITES[:-1], "10000000"]
    env = {"DATAPATH_SERIES": f"{pair.logs}/s;interval_us=1000"}
    server = left.popen(argv, env={**pair.environment(0, port), **env})
    client = None
    try:
        await_listener(left, server)
        address = left.endpoint.ipv4
        client = right.popen([*argv, address], env={**pair.environment(1, port), **env})
        wait_for_rows(pair, 100)
        assert client.poll() is None
    finally:
        for process in (client, server):
            if process is not None:
                process.kill()
                process.wait()
    file, path = sender(pair)
    assert len(file.frame) >= 100
    assert file.frame["delivered_bytes"].is_monotonic_increasing
    # Even if the last write was cut off in the middle.
    os.truncate(path, path.stat().st_size - 7)
    assert len(series.read_file(path, "host").frame) == len(file.frame) - 1


def wait_for_rows(pair: Pair, count: int) -> None:
    def are_there() -> bool:
        rows = [series.read_file(path, "host").frame for path in files(pair)]
        return any(len(frame[frame["delivered_bytes"] > 0]) >= count for frame in rows)

    wait_until(are_there, f"{count} samples are in a file")


OPEN_AND_FORK = """
import os
import datapath.verbs
from pyverbs.device import Context
for _ in range(2):
    context = Context(name="dp0")
    child = os.fork()
    if not child:
        raise SystemExit(0)
    assert os.waitpid(child, 0)[1] == 0
    context.close()
context = Context(name="dp0")
if not os.fork():
    Context(name="dp0").close()
    raise SystemExit(0)
assert os.wait()[1] == 0
"""


def test_each_opening_and_each_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", OPEN_AND_FORK],
        env={
            **os.environ,
            **sanitizer(),
            "DATAPATH_DEVICES": "dp0=udp:127.0.0.1",
            "DATAPATH_SERIES": str(tmp_path / "s"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = sorted(path.name.split(".")[1:3] for path in tmp_path.iterdir())
    processes = {pid: [name for p, name in found if p == pid] for pid, _ in found}
    assert sorted(map(len, processes.values())) == [1, 3]
    assert ["dp0-0", "dp0-1", "dp0-2"] in processes.values()
    for path in tmp_path.iterdir():
        frame = series.read_file(path, "host").frame
        assert isinstance(frame, pd.DataFrame)
        assert frame.empty


MAKE_AND_DESTROY = """
from pair import TARGET, pair
keep = TARGET.open()
for _ in range(5):
    for side in pair():
        side.context.close()
"""


def test_last_rows_without_room_are_counted(tmp_path: Path) -> None:
    """Five times two QPs end between two samples, and there is room for two."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", MAKE_AND_DESTROY],
        env={
            **os.environ,
            **environment("udp:127.0.0.1"),
            "PYTHONPATH": str(PROGRAMS),
            "DATAPATH_SERIES": f"{tmp_path}/s;qps=2;interval_us=1000000000",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = tmp_path.iterdir()
    file = series.read_file(path, "host")
    assert (len(file.frame), file.rows_left_out, file.flows_left_out) == (2, 8, 0)
