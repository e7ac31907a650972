# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The generator between real namespaces: data compared, times consistent, faults told."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest

from datapath.fabric import flows as table
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path, Topology
from datapath.native import paths
from tests.workloads.traffic.hosts import TOKEN, TRANSPORTS, Generators, consistent

MS = 10**6


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology()) as built:
        yield built


@pytest.fixture
def pair(root: None, network: NetnsNetwork) -> NetnsNetwork:
    """Two hosts and a path that does nothing."""
    network.set_path(Path(), seed=1)
    return network


def mixed(count: int, operation: str = "write", qps: int = 4) -> table.Flows:
    """Flows of many sizes both ways, some of several messages, on a few QPs."""
    rng = np.random.default_rng(5)
    flows = table.empty(count)
    flows["start_ns"] = np.sort(rng.integers(0, 50 * MS, count))
    flows["src"] = np.arange(count) % 2
    flows["dst"] = 1 - flows["src"]
    flows["bytes"] = np.exp(rng.uniform(0, np.log(300_000), count))
    flows["message_bytes"] = np.where(np.arange(count) % 3 == 0, 1 + rng.integers(5000, 9000), 0)
    flows["depth"] = rng.integers(1, 5, count)
    flows["qp"] = rng.integers(0, qps, count)
    flows["opcode"] = table.OPCODES[operation]
    return table.check(flows, 2)


def until(stop_ns: int, **columns: Any) -> table.Flows:
    flows = table.empty(1)
    flows["dst"], flows["stop_ns"], flows["bytes"] = 1, stop_ns, table.UNTIL_STOP
    flows["message_bytes"] = 20_000
    for name, value in columns.items():
        flows[name] = value
    return flows


# --- what is delivered -----------------------------------------------------------------------


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("operation", ["write", "send", "read"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_flow_is_delivered(
    pair: NetnsNetwork, tmp_path: FilePath, transport: str, operation: str, verify: bool
) -> None:
    flows = mixed(300, operation)
    generators = Generators(pair, tmp_path, flows, transport, *(["--verify"] if verify else []))
    if (transport, operation) == ("tcp", "read"):
        assert generators.statuses() == [2, 2]
        assert "TCP has no READ" in generators.errors(0)
        return
    consistent(flows, generators.results())


@pytest.mark.san
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_flow_is_delivered_under_sanitizers(
    pair: NetnsNetwork, tmp_path: FilePath, transport: str
) -> None:
    flows = mixed(100)
    consistent(flows, Generators(pair, tmp_path, flows, transport, "--verify").results())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_data_is_whole_over_a_lossy_path(
    pair: NetnsNetwork, tmp_path: FilePath, transport: str
) -> None:
    pair.set_path(Path(loss="2%"), seed=3)
    flows = mixed(200)
    consistent(flows, Generators(pair, tmp_path, flows, transport, "--verify").results())
    assert sum(pair.path_counters().dropped.values()) > 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_hundreds_of_qps(pair: NetnsNetwork, tmp_path: FilePath, transport: str) -> None:
    flows = mixed(600, qps=300)
    assert len(np.unique(flows[["src", "dst", "qp"]])) > 300
    consistent(flows, Generators(pair, tmp_path, flows, transport).results())


@pytest.mark.parametrize("options", [["--spin", "0"], ["--spin", "always"], ["--spin", "1000"]])
@pytest.mark.parametrize("transport", ["dp-udp", "tcp"])
def test_sleeping_and_polling(
    pair: NetnsNetwork, tmp_path: FilePath, transport: str, options: list[str]
) -> None:
    flows = mixed(100)
    consistent(flows, Generators(pair, tmp_path, flows, transport, *options).results())


def test_tcp_tells_what_it_sent_again(pair: NetnsNetwork, tmp_path: FilePath) -> None:
    pair.set_path(Path(loss="2%"), seed=3)
    flows = mixed(200)
    results = Generators(pair, tmp_path, flows, "tcp", "--tcp-cc", "reno").results()
    packets = int(flows["bytes"].sum()) / 9000
    assert results.data_packets > packets
    assert 0 < results.retransmitted_packets < results.data_packets


@pytest.mark.parametrize("transport", ["dp-udp", "tcp"])
def test_four_hosts(root: None, tmp_path: FilePath, transport: str) -> None:
    rng = np.random.default_rng(2)
    flows = table.empty(200)
    flows["start_ns"] = np.sort(rng.integers(0, 20 * MS, 200))
    flows["src"] = rng.integers(0, 4, 200)
    flows["dst"] = (flows["src"] + rng.integers(1, 4, 200)) % 4
    flows["bytes"] = rng.integers(1, 50_000, 200)
    with NetnsNetwork(Topology(preset="dumbbell", hosts=4)) as network:
        network.set_path(Path(), seed=1)
        results = Generators(network, tmp_path, flows, transport, "--verify").results()
    consistent(flows, results)


def test_hosts_without_traffic_take_part(root: None, tmp_path: FilePath) -> None:
    flows = mixed(10)
    with NetnsNetwork(Topology(preset="dumbbell", hosts=4)) as network:
        network.set_path(Path(), seed=1)
        consistent(flows, Generators(network, tmp_path, flows, "dp-udp").results())


# --- rules of the table ----------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_flow_until_its_stop(pair: NetnsNetwork, tmp_path: FilePath, transport: str) -> None:
    flows = until(100 * MS, depth=4)
    results = Generators(pair, tmp_path, flows, transport).results()
    (row,) = results.rows
    assert row["finish_ns"] == 100 * MS
    assert row["messages"] > 0
    assert row["delivered_bytes"] == row["messages"] * 20_000
    assert results.latencies.count == row["messages"]
    assert results.latencies.max_ns < 100 * MS


@pytest.mark.parametrize("transport", ["dp-udp", "tcp"])
def test_one_message_at_a_time(pair: NetnsNetwork, tmp_path: FilePath, transport: str) -> None:
    """With depth 1 the messages' latencies follow each other, so they fit into the flow's time."""
    flows = until(50 * MS, depth=1)
    results = Generators(pair, tmp_path, flows, transport).results()
    assert results.latencies.sum_ns <= 50 * MS
    deep = until(50 * MS, depth=16)
    (tmp_path / "deep").mkdir()
    results = Generators(pair, tmp_path / "deep", deep, transport).results()
    assert results.latencies.sum_ns > 50 * MS, "16 at once overlap"


@pytest.mark.parametrize("transport", ["dp-udp", "tcp"])
def test_flows_of_a_qp_queue(pair: NetnsNetwork, tmp_path: FilePath, transport: str) -> None:
    """The second one posts only when the first has posted its last message."""
    flows = table.empty(2)
    flows["dst"], flows["message_bytes"] = 1, 10_000
    flows["bytes"] = [500_000, 10_000]
    rows = Generators(pair, tmp_path, flows, transport).results().rows
    assert rows["posted_ns"][1] > rows["posted_ns"][0]
    assert rows["finish_ns"][1] > rows["finish_ns"][0], "RC completes in order"


@pytest.mark.parametrize("transport", ["dp-udp", "tcp"])
def test_a_flow_waits_for_another(pair: NetnsNetwork, tmp_path: FilePath, transport: str) -> None:
    """A chain over QPs of its own; one flow holds up the next one of its QP."""
    flows = table.empty(4)
    flows["dst"], flows["bytes"], flows["message_bytes"] = 1, 200_000, 10_000
    flows["qp"], flows["after"] = [0, 1, 2, 1], [0, 1, 2, 0]
    rows = Generators(pair, tmp_path, flows, transport).results().rows
    assert (rows["finish_ns"] > 0).all()
    assert rows["posted_ns"][1] >= rows["finish_ns"][0]
    assert rows["posted_ns"][2] >= rows["finish_ns"][1]
    assert rows["posted_ns"][3] > rows["posted_ns"][1]


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("after", [0, 1], "it waits for a flow of another source"),
        ("dscp", [0, 64], "dscp is above 63"),
    ],
)
def test_rows_that_it_cannot_run(
    pair: NetnsNetwork, tmp_path: FilePath, column: str, values: list[int], words: str
) -> None:
    flows = table.empty(2)
    flows["src"], flows["dst"], flows["bytes"] = [0, 1], [1, 0], 100
    flows[column] = values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "check", lambda flows, hosts: flows)
        generators = Generators(pair, tmp_path, flows, "dp-udp")
    assert generators.statuses() == [2, 2]
    assert words in generators.errors(0)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_packets_have_the_dscp_of_their_flow(
    root: None, tmp_path: FilePath, transport: str
) -> None:
    """A class that is shaped to 1 Mbit/s takes those of one flow."""
    flows = table.empty(2)
    flows["dst"], flows["bytes"], flows["message_bytes"] = 1, 60_000, 10_000
    flows["qp"], flows["dscp"] = [0, 1], [46, 0]
    section = {"rate": "100mbit", "classes": [{"dscp": 46, "share": "1%"}, {}]}
    with NetnsNetwork(Topology(mtu=1500), "fabric") as network:
        network.set_path(Path.model_validate(section), seed=1)
        rows = Generators(network, tmp_path, flows, transport).results().rows
    assert (rows["finish_ns"] > 0).all()
    assert rows["finish_ns"][0] > 0.95 * 60_000 * 8e9 / 1e6


def test_a_flow_that_is_cut_short_is_unfinished(pair: NetnsNetwork, tmp_path: FilePath) -> None:
    flows = until(300 * MS, bytes=2**40)
    (row,) = Generators(pair, tmp_path, flows, "dp-udp").results().rows
    assert row["finish_ns"] == 0
    assert 0 < row["delivered_bytes"] < 2**40


def test_the_deadline_ends_everything(pair: NetnsNetwork, tmp_path: FilePath) -> None:
    flows = table.empty(2)
    flows["dst"], flows["message_bytes"], flows["bytes"] = 1, 10_000, [10_000, 2**40]
    flows["qp"] = [0, 1]
    rows = Generators(pair, tmp_path, flows, "dp-udp", "--deadline", "0.2").results().rows
    assert rows["finish_ns"][0] > 0
    assert rows["finish_ns"][1] == 0
    assert rows["failed"].tolist() == [0, 0]


@pytest.mark.parametrize("transport", ["dp-udp", "tcp"])
def test_a_qp_goes_on_behind_many_flows_that_have_ended(
    pair: NetnsNetwork, tmp_path: FilePath, transport: str
) -> None:
    """They end while a long flow before them has one message outstanding at a time."""
    flows = table.empty(1002)
    flows["dst"], flows["message_bytes"] = 1, 10_000
    flows["bytes"], flows["stop_ns"] = table.UNTIL_STOP, 1
    flows["bytes"][[0, -1]], flows["stop_ns"][[0, -1]] = [1_000_000, 5000], 0
    generators = Generators(pair, tmp_path, flows, transport, "--deadline", "30")
    rows = generators.results().rows
    assert rows["delivered_bytes"][[0, -1]].tolist() == [1_000_000, 5000]
    assert not rows["messages"][1:-1].any()


# --- faults ----------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("transport", ["dp-udp", "dp-afxdp", "tcp"])
def test_a_host_that_is_killed_is_an_error_of_the_other(
    pair: NetnsNetwork, tmp_path: FilePath, transport: str, victim: int
) -> None:
    flows = until(50_000 * MS, depth=4)
    generators = Generators(pair, tmp_path, flows, transport)
    while sum(pair.path_counters().passed.values()) < 1000:  # it is under way
        assert generators.processes[victim].poll() is None, generators.errors(victim)
    generators.processes[victim].kill()
    assert generators.statuses()[1 - victim] == 3
    assert f"host {victim} went away" in generators.errors(1 - victim)


def test_the_hub_tells_the_others_who_went_away(root: None, tmp_path: FilePath) -> None:
    flows = until(50_000 * MS, depth=4)
    with NetnsNetwork(Topology(preset="dumbbell", hosts=4)) as network:
        network.set_path(Path(), seed=1)
        flows["dst"] = 2
        generators = Generators(network, tmp_path, flows, "dp-udp")
        while sum(network.path_counters().passed.values()) < 1000:
            assert generators.processes[3].poll() is None
        generators.processes[3].kill()
        assert generators.statuses() == [3, 3, 3, -9]
        for host in (0, 1, 2):
            assert "host 3 went away" in generators.errors(host)


def test_a_dead_path_fails_flows_by_their_status(pair: NetnsNetwork, tmp_path: FilePath) -> None:
    pair.set_path(Path(loss="100%"), seed=1)
    flows = mixed(20)
    options = ("--retry-count", "1", "--ack-timeout", "8")
    generators = Generators(pair, tmp_path, flows, "dp-udp", *options)
    assert generators.statuses() == [1, 1]
    assert "transport retry counter exceeded" in generators.errors(0)
    assert "10 of 10 flows of host 0 failed" in generators.errors(0)
    parts = [table.FlowResults.read(generators.report(host)) for host in (0, 1)]
    rows = table.FlowResults.merge(parts, flows).rows
    assert set(rows["failed"]) == {12}
    assert set(rows["finish_ns"]) == {0}


def test_another_table_is_noticed(pair: NetnsNetwork, tmp_path: FilePath) -> None:
    other = mixed(20)
    other["bytes"][7] += 1
    generators = Generators(pair, tmp_path, mixed(20), "dp-udp", tables={1: other})
    assert generators.statuses() == [3, 3]
    assert "host 1 has another table" in generators.errors(0)


@pytest.mark.parametrize(
    ("host", "what"), [(0, "1 of 1 hosts did not come"), (1, "host 0 at 198.19.0.1 port 18600")]
)
def test_a_host_that_does_not_come(
    pair: NetnsNetwork, tmp_path: FilePath, host: int, what: str
) -> None:
    generators = Generators(pair, tmp_path, mixed(20), "dp-udp", "--setup", "0.5", only=[host])
    assert generators.statuses() == [3]
    assert what in generators.errors(host)


def test_an_unknown_congestion_control(pair: NetnsNetwork, tmp_path: FilePath) -> None:
    generators = Generators(pair, tmp_path, mixed(20), "tcp", "--tcp-cc", "nosuch")
    assert generators.statuses() == [3, 3]
    assert "TCP congestion control nosuch" in generators.errors(0)


def test_an_unknown_device(pair: NetnsNetwork, tmp_path: FilePath) -> None:
    generators = Generators(pair, tmp_path, mixed(20), "dp-udp", "--device", "dp7")
    assert generators.statuses() == [3, 3]
    assert "device dp7" in generators.errors(0)


def test_too_much_depth_is_told(pair: NetnsNetwork, tmp_path: FilePath) -> None:
    generators = Generators(pair, tmp_path, until(MS, depth=100_000), "dp-udp")
    assert generators.statuses() == [3, 3]
    assert "depth 100000: device dp0 has at most" in generators.errors(0)


def test_slots_beyond_reason_are_refused(pair: NetnsNetwork, tmp_path: FilePath) -> None:
    flows = until(MS, depth=1000, message_bytes=2**24)
    generators = Generators(pair, tmp_path, flows, "dp-udp", "--verify")
    assert 3 in generators.statuses()
    assert "--verify would take" in generators.errors(0)


# --- strangers -------------------------------------------------------------------------------

JUNK = (b"", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 400, TOKEN.encode() * 20)


def call_in(network: NetnsNetwork, address: str, port: int, words: bytes) -> socket.socket:
    """A connection of somebody who is not of the run, from host 1, once somebody listens there."""

    def call() -> socket.socket:
        for _ in range(500):
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection((address, port), timeout=5)
            time.sleep(0.01)
        raise AssertionError("nobody listens")

    sock = network.hosts[1].namespace.in_network(call)
    sock.sendall(words)
    return sock


@pytest.mark.san
@pytest.mark.parametrize("transport", ["dp-udp", "tcp"])
def test_strangers_at_the_management_port_do_not_delay_the_run(
    pair: NetnsNetwork, tmp_path: FilePath, transport: str
) -> None:
    flows = mixed(20)
    first = Generators(pair, tmp_path, flows, transport, only=[0])
    address = pair.hosts[0].endpoint.mgmt_ipv4
    strangers = [call_in(pair, address, 18600, words) for words in JUNK * 3]
    second = Generators(pair, tmp_path, flows, transport, only=[1])
    assert (first.statuses(), second.statuses()) == ([0], [0]), first.errors(0) + second.errors(1)
    assert first.errors(0) == "dp-traffic: dropped 12 connections that are not of this run\n"
    for stranger in strangers:
        stranger.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(100) == b""
        stranger.close()


@pytest.mark.san
def test_strangers_at_the_data_port_do_not_end_the_run(
    pair: NetnsNetwork, tmp_path: FilePath
) -> None:
    """They come in all the time while hundreds of connections are made.

    That may take less than a millisecond, so it takes a few runs until one meets them.
    """
    for turn in range(20):
        folder = tmp_path / str(turn)
        folder.mkdir()
        errors = errors_among_strangers(pair, folder)
        if errors:
            break
    assert "not of this run" in errors


def errors_among_strangers(pair: NetnsNetwork, folder: FilePath) -> str:
    """The words of host 0 in a run that has to end well."""
    address, begun, over = pair.hosts[0].endpoint.ipv4, threading.Event(), threading.Event()
    strangers: list[socket.socket] = []

    def swarm() -> None:
        begun.set()
        while not over.is_set() and len(strangers) < 2000:
            sock = socket.socket()
            try:
                sock.connect((address, 18601))
                strangers.append(sock)
                sock.sendall(JUNK[len(strangers) % len(JUNK)])
            except OSError:  # nobody listens yet, or any more
                sock.close()
                over.wait(0.0001)

    namespace = pair.hosts[1].namespace
    thread = threading.Thread(target=lambda: namespace.in_network(swarm))
    thread.start()
    try:
        assert begun.wait(20)
        generators = Generators(pair, folder, mixed(1200, qps=300), "tcp")
        statuses = generators.statuses()
    finally:
        over.set()
        thread.join()
        for sock in strangers:
            sock.close()
    assert statuses == [0, 0], generators.errors(0) + generators.errors(1)
    assert generators.errors(1) == ""
    return generators.errors(0)


@pytest.mark.parametrize("transport", ["dp-udp", "tcp"])
def test_a_host_of_another_run_is_not_let_in(
    pair: NetnsNetwork, tmp_path: FilePath, transport: str
) -> None:
    tokens = {1: TOKEN[::-1]}
    generators = Generators(pair, tmp_path, mixed(20), transport, "--setup", "2", tokens=tokens)
    assert generators.statuses() == [3, 3]
    assert "1 of 1 hosts did not come" in generators.errors(0)
    assert "dropped 1 connection that is not of this run" in generators.errors(0)
    assert "host 0 went away" in generators.errors(1)


@pytest.mark.san
@pytest.mark.parametrize("token", ["", "12", "x" * 32, "0" * 33, "0" * 31 + "\n\n"])
def test_a_damaged_token_is_refused(tmp_path: FilePath, token: str) -> None:
    table.write(tmp_path / "table", mixed(4), 2)
    (tmp_path / "token").write_text(token)
    base = ["--table", tmp_path / "table", "--report", tmp_path / "r", "--host", 0]
    done = run(*base, "--management", "127.0.0.1,127.0.0.2", "--token", tmp_path / "token")
    assert done.returncode == 2
    assert "32 hexadecimal digits" in done.stderr


# --- the command line ------------------------------------------------------------------------


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(paths.traffic_generator()), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_help_has_every_option_and_examples() -> None:
    done = run("--help")
    assert done.returncode == 0
    source = (paths.PACKAGE / "workloads" / "traffic" / "main.c").read_text()
    options = [line.split('"')[1] for line in source.splitlines() if "_argument, NULL" in line]
    assert len(options) > 10
    for option in options:
        if option != "help":
            assert f"--{option}" in done.stdout
    assert "Examples" in done.stdout


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "are needed"),
        (["--nosuch"], "unrecognized option"),
        (["extra"], "unexpected argument extra"),
        (["--host", "x"], "--host: x is not a number"),
        (["--host", "-1"], "--host: -1 is not a number"),
        (["--port", "99999"], "--port: 99999 is not a number up to 65534"),
        (["--retry-count", "8"], "--retry-count: 8 is not a number up to 7"),
        (["--ack-timeout", "32"], "--ack-timeout: 32 is not a number up to 31"),
        (["--rnr-retry", "8"], "--rnr-retry: 8 is not a number up to 7"),
        (["--deadline", "soon"], "--deadline: soon is not a number of seconds"),
        (["--management", "a,,b"], "--management: an empty address"),
        (["--spin", "fast"], "--spin: fast"),
    ],
)
def test_wrong_options_are_told(words: list[str], what: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert what in done.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--host", 2], "--host 2, but the table has 2 hosts"),
        (["--management", "a"], "--management has 1 addresses, the table 2 hosts"),
        (["--tcp"], "--tcp and --cm need --address"),
        (["--tcp-cc", "bbr"], "--tcp-cc is for --tcp"),
        (["--address", "a"], "--address has 1 addresses"),
    ],
)
def test_options_that_do_not_fit_are_told(
    tmp_path: FilePath, words: list[object], what: str
) -> None:
    table.write(tmp_path / "table", mixed(4), 2)
    base = ["--table", tmp_path / "table", "--report", tmp_path / "r", "--host", 0]
    done = run(*base, "--management", "127.0.0.1,127.0.0.2", *words)
    assert done.returncode == 2
    assert what in done.stderr


@pytest.mark.san
def test_damaged_tables_are_refused(tmp_path: FilePath) -> None:
    table.write(tmp_path / "table", mixed(4), 2)
    whole = (tmp_path / "table").read_bytes()
    head, row = table.TABLE_DTYPE.itemsize, table.FLOW_DTYPE.itemsize
    wrong_rows = np.frombuffer(whole[head:], table.FLOW_DTYPE)
    cases = [(b"", "shorter"), (whole[:20], "shorter"), (whole[:-1], "length"), (b"x" * 80, "not")]
    cases.append((whole[:8] + b"\x07" + whole[9:], "version 7"))
    for name, value, what in [
        ("src", 2, "flow 1: src and dst"),
        ("bytes", 0, "flow 1: bytes or depth"),
        ("depth", 2**31 + 1, "flow 1: depth is above 2^20"),
        ("bytes", 2**33, "flow 1: a message is at most 1 GiB"),
        ("opcode", 9, "flow 1: opcode"),
        ("bytes", table.UNTIL_STOP, "flow 1: it has no end"),
    ]:
        rows = wrong_rows.copy()
        rows["message_bytes"][1] = 0
        rows[name][1] = value
        cases.append((whole[:head] + rows.tobytes(), what))
    assert len(whole) == head + 4 * row
    for content, what in cases:
        (tmp_path / "damaged").write_bytes(content)
        done = run(
            *("--table", tmp_path / "damaged", "--report", tmp_path / "r", "--host", 0),
            *("--management", "127.0.0.1,127.0.0.2"),
        )
        assert done.returncode == 2
        assert what in done.stderr


# --- the pattern -----------------------------------------------------------------------------

PATTERN = """
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "generator.h"

int main(void)
{
	uint8_t whole[4096], part[4096];

	pattern_fill(whole, 3, 7, 0, sizeof(whole));
	for (size_t from = 0; from < 40; from++) {
		for (size_t bytes = 0; bytes < 60; bytes++) {
			pattern_fill(part, 3, 7, from, bytes);
			assert(!memcmp(part, whole + from, bytes));
			assert(pattern_compare(part, 3, 7, from, bytes) == -1);
		}
	}
	assert(pattern_compare(whole, 3, 7, 0, sizeof(whole)) == -1);
	for (size_t at = 0; at < sizeof(whole); at++) {
		whole[at] ^= 1 << at % 8;
		assert(pattern_compare(whole, 3, 7, 0, sizeof(whole)) == (int64_t)at);
		whole[at] ^= 1 << at % 8;
	}
	assert(pattern_compare(whole, 4, 7, 0, 64) >= 0); /* of another connection */
	assert(pattern_compare(whole, 3, 8, 0, 64) >= 0); /* of another message */
	assert(pattern_compare(whole + 8, 3, 7, 0, 64) >= 0); /* of another place */
	return 0;
}
"""


def test_the_pattern_tells_what_is_wrong(tmp_path: FilePath) -> None:
    source = tmp_path / "check.c"
    source.write_text(PATTERN)
    folder = paths.PACKAGE / "workloads" / "traffic"
    build = ["gcc", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    build += ["-I", str(paths.include_dir()), "-I", str(folder), "-o", str(tmp_path / "check")]
    subprocess.run([*build, str(source), str(folder / "pattern.c")], check=True)
    subprocess.run([str(tmp_path / "check")], check=True)
