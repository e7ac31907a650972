# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs of others, unmodified, between two namespaces."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.listening import await_listener
from tests.verbs.conftest import Pair
from tests.verbs.devices import PROGRAMS

both_ports = pytest.mark.parametrize("port", ["afxdp", "udp"])
both_modes = pytest.mark.parametrize("mode", ["auto", "standard"])


@both_ports
def test_devices_are_listed_and_described(pair: Pair, port: str) -> None:
    env = pair.environment(0, port)
    host = pair.hosts[0]
    listed = host.run(["ibv_devices"], env=env).stdout
    assert re.search(r"^\s+dp0\s+[0-9a-f]{16}$", listed, re.MULTILINE)
    described = host.run(["ibv_devinfo", "-v"], env=env)
    assert described.returncode == 0, described.stderr
    assert "PORT_ACTIVE" in described.stdout
    assert f"GID[  0]:\t\t::ffff:{host.endpoint.ipv4}, RoCE v2" in described.stdout


@both_ports
@both_modes
@pytest.mark.parametrize("options", ["", "-e", "-s 100000 -n 100", "-N"])
def test_rc_pingpong_checks_its_data(pair: Pair, port: str, mode: str, options: str) -> None:
    argv = ["ibv_rc_pingpong", "-d", "dp0", "-g", "0", "-c", "-n", "500", *options.split()]
    for output in pair.run(argv, port, mode=mode):
        assert "iters in" in output
        assert "invalid" not in output


@both_ports
@pytest.mark.parametrize("options", ["-t", "-j", "-m 256 -s 5000", "-r 1"])
def test_rc_pingpong_with_rare_options(pair: Pair, port: str, options: str) -> None:
    """Time stamps, device memory, a small path MTU, a single receive."""
    argv = ["ibv_rc_pingpong", "-d", "dp0", "-g", "0", "-n", "200", *options.split()]
    for output in pair.run(argv, port):
        assert "iters in" in output


@both_ports
def test_rc_pingpong_with_time_stamps_and_events(pair: Pair, port: str) -> None:
    """The program ends when an event finds its CQ empty.

    Verbs allow such events: the program arms its CQ, then takes a completion, and the event of
    that completion comes all the same.  On a busy machine this is not rare, so messages are few.
    """
    argv = ["ibv_rc_pingpong", "-d", "dp0", "-g", "0", "-n", "20", "-t", "-e"]
    for tries_left in reversed(range(6)):
        try:
            outputs = pair.run(argv, port)
            break
        except AssertionError as error:
            if "poll CQ failed 2\n" not in str(error) or not tries_left:
                raise
    for output in outputs:
        assert "iters in" in output


@both_ports
@pytest.mark.parametrize("options", ["", "-e", "-q 1 -s 100000 -n 50"])
def test_srq_pingpong_checks_its_data(pair: Pair, port: str, options: str) -> None:
    argv = ["ibv_srq_pingpong", "-d", "dp0", "-g", "0", "-c", "-n", "100", *options.split()]
    for output in pair.run(argv, port):
        assert "iters in" in output
        assert "invalid" not in output


@both_ports
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("ibv_uc_pingpong -g 0", "Couldn't create QP"),
        ("ibv_xsrq_pingpong -g 0", "Couldn't Open the XRC Domain"),
        ("ibv_rc_pingpong -g 0 -o", "ODP"),
    ],
)
def test_what_the_device_lacks_is_told(pair: Pair, port: str, command: str, told: str) -> None:
    env = pair.environment(0, port)
    done = pair.hosts[0].run([*command.split(), "-d", "dp0"], env=env, timeout_s=30)
    assert done.returncode == 1
    assert told in done.stderr


@both_ports
@pytest.mark.parametrize(
    "command",
    [
        "ib_write_bw -s 1048576 -n 100",
        "ib_read_bw -s 1048576 -n 100",
        "ib_send_bw -s 1048576 -n 100",
        "ib_send_bw -s 64 -n 5000",
        "ib_write_bw -s 65536 -n 500 -b",
        "ib_write_bw -s 4096 -n 1000 -q 4",
        "ib_write_bw -s 65536 -n 200 --use_old_post_send",
        "ib_send_bw -s 65536 -n 200 -e",
        "ib_write_lat -s 64 -n 500",
        "ib_send_lat -s 64 -n 1000",
        "ib_send_lat -s 64 -n 500 -I 64",
        "ib_send_lat -c UD -s 64 -n 1000",
        "ib_send_lat -c UD -s 4096 -n 500",
        "ib_send_lat -c UD -s 64 -n 500 -e",
        "ib_send_bw -c UD -s 1024 -n 250",
        "ib_send_bw -c UD -s 4096 -n 60 -q 4",
        "ib_send_bw -c UD -s 64 -n 250 --use_old_post_send",
        "ib_read_lat -s 64 -n 500",
        "ib_send_lat -s 64 -n 500 --use-srq",
        "ib_send_bw -s 65536 -n 500 --use-srq -q 4",
        "ib_send_bw -c UD -s 1024 -n 250 --use-srq",
        "ib_atomic_lat -n 500",
        "ib_atomic_bw -n 500",
    ],
)
def test_perftest(pair: Pair, port: str, command: str) -> None:
    """perftest waits for each datagram, and none is sent again: what the receiver has posted, and
    the 256 places of a veth, hold all of them even when nobody runs meanwhile."""
    for _ in range(5):
        _, output = pair.run([*command.split(), "-d", "dp0", "-F"], port)
        # On a busy machine perftest fails to measure its own clock; then every time is infinite.
        if "Correlation coefficient" not in output:
            break
    assert re.search(r"^ *\d+ +\d+ +[\d.]+ +[\d.]+", output, re.MULTILINE), output


@both_ports
@pytest.mark.parametrize("options", ["", "-e", "-s 2048 -r 100"])
def test_ud_pingpong_checks_its_data(pair: Pair, port: str, options: str) -> None:
    argv = ["ibv_ud_pingpong", "-d", "dp0", "-g", "0", "-c", "-n", "500", *options.split()]
    for output in pair.run(argv, port):
        assert "iters in" in output
        assert "invalid" not in output


@both_ports
@pytest.mark.parametrize("name", ["moderation", "unsupported"])
def test_calls_that_pyverbs_does_not_have(pair: Pair, port: str, name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    source = PROGRAMS / f"{name}.c"
    subprocess.run(["gcc", *strict, "-o", program, source, "-libverbs"], check=True)
    done = pair.hosts[0].run([str(program)], env=pair.environment(0, port), timeout_s=60)
    assert (done.returncode, done.stderr) == (0, "")


class PairV6(Pair):
    """Devices on IPv6 addresses; the programs find each other over IPv4."""

    def spec(self, host: int, port: str) -> str:
        endpoint = self.hosts[host].endpoint
        if port == "afxdp":
            return f"afxdp:{endpoint.netdev},ip={endpoint.ipv6}"
        return f"udp:{endpoint.ipv6}"


@both_ports
@pytest.mark.parametrize(
    "command",
    [
        "ibv_rc_pingpong -g 0 -c -n 200",
        "ibv_ud_pingpong -g 0 -c -n 200",
        "ib_write_bw -F -s 65536 -n 200",
        "ib_send_lat -F -c UD -n 200",
    ],
)
def test_gids_of_ipv6(pair: Pair, port: str, command: str) -> None:
    pair = PairV6(pair.hosts, pair.logs)
    for output in pair.run([*command.split(), "-d", "dp0"], port):
        assert "2001:2::" in output or "32:01:00:02" in output, output


@both_ports
@both_modes
def test_path_mtus_that_differ_end_the_connection(pair: Pair, port: str, mode: str) -> None:
    """A packet that is longer than the receiver's path MTU is refused: both ends are told."""
    left, right = pair.hosts
    log = pair.logs / "server"
    argv = ["ibv_rc_pingpong", "-d", "dp0", "-g", "0", "-s", "20000", "-n", "10"]
    envs = [pair.environment(number, port, mode=mode) for number in range(2)]
    server = left.popen([*argv, "-m", "1024"], env=envs[0], stdout=log, stderr=log)
    try:
        await_listener(left, server)
        client = [*argv, "-m", "4096", left.endpoint.ipv4]
        done = right.run(client, env=envs[1], timeout_s=60)
        assert server.wait(timeout=60) == done.returncode == 1
        assert "remote invalid request error" in done.stderr
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("options", [["-x", "0"], ["-x", "1"]])
def test_both_gids_lead_to_the_port(pair: Pair, options: list[str]) -> None:
    pair.run(["ib_send_lat", "-n", "100", "-d", "dp0", "-F", *options], "udp")


# Until some megabytes have come in.
FLOWING = """
bytes=/sys/class/net/eth1/statistics/rx_bytes
start=$(cat $bytes)
until [ $(($(cat $bytes) - start)) -gt 5000000 ]; do sleep 0.05; done
"""


@both_ports
def test_a_peer_that_is_killed_ends_the_other(pair: Pair, port: str) -> None:
    left, right = pair.hosts
    server_env, client_env = pair.environment(0, port), pair.environment(1, port)
    log = pair.logs / "client"
    # -u 8: the local ACK time-out, 1 ms, retried seven times.
    argv = ["ib_write_bw", "-d", "dp0", "-F", "-s", "65536", "-n", "10000000", "-u", "8"]
    server = left.popen(argv, env=server_env)
    client = None
    try:
        await_listener(left, server)
        client = right.popen([*argv, left.endpoint.ipv4], env=client_env, stdout=log, stderr=log)
        left.run(["sh", "-c", FLOWING], timeout_s=30)
        assert client.poll() is None, log.read_text()
        server.kill()
        server.wait()
        assert client.wait(timeout=60) != 0
        assert "Failed status 12" in log.read_text()  # IBV_WC_RETRY_EXC_ERR
    finally:
        for process in (server, client):
            if process is not None:
                process.kill()
                process.wait()


def test_extended_mode_is_agreed_between_two_of_us(pair: Pair) -> None:
    for mode, extended in (("auto", 1), ("standard", 0)):
        prefix = pair.logs / mode
        pair.run(
            ["ib_write_bw", "-d", "dp0", "-F", "-n", "100"],
            "afxdp",
            mode=mode,
            env={"DATAPATH_STATS": str(prefix)},
        )
        files = list(pair.logs.glob(f"{mode}.*.json"))
        assert len(files) == 2
        for path in files:
            assert [qp["extended"] for qp in json.loads(path.read_text())["qps"]] == [extended]


@both_ports
@pytest.mark.parametrize("operation", ["write", "send"])
@pytest.mark.parametrize("bundle", [0, 1])
def test_short_messages_share_packets(pair: Pair, port: str, operation: str, bundle: int) -> None:
    messages = 20_000
    env = {"DATAPATH_STATS": str(pair.logs / "short")}
    words = ["-s", "64", "-n", str(messages), "--post_list", "16", "-d", "dp0", "-F"]
    pair.run([f"ib_{operation}_bw", *words], port, env=env, bundle=bundle)
    sides = [json.loads(p.read_text()) for p in pair.logs.glob("short.*.json")]
    assert len(sides) == 2
    sender = max((side["qps"][0] for side in sides), key=lambda qp: qp["tx_packets"])
    # Copies leave alone, and on a busy machine the peer posts its receives too late for many.
    sent = sender["tx_packets"] - sender["retransmits"]
    assert sent < messages / 8 if bundle else sent >= messages
    assert all(side["engine"]["drop_malformed"] == 0 for side in sides)


@both_ports
@both_modes
@pytest.mark.alone
def test_a_program_that_stood_still_has_no_time_outs(pair: Pair, port: str, mode: str) -> None:
    """The answers came in time; it was only late to read them.

    The time-out is one that a peer does not miss when it is late itself.
    """
    env = {"DATAPATH_STATS": str(pair.logs / "still")}
    program = str(Path(__file__).parent / "programs" / "standstill.py")
    pair.run(
        [sys.executable, program, "-d", "dp0", "-n", "5"],
        port,
        mode=mode,
        env=env,
        min_rto_us=200000,
    )
    files = list(pair.logs.glob("still.*.json"))
    assert len(files) == 2
    for path in files:
        (qp,) = json.loads(path.read_text())["qps"]
        assert qp["timeouts"] == 0, qp
