# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tools/conform.py finds what is wrong, and says where."""

from __future__ import annotations

import json
import subprocess
import textwrap
import time

import pytest

from datapath.lanes.netns import NetnsNetwork
from datapath.native.paths import ROOT
from datapath.verbs.launch import device_environment
from tests.interop.test_captures import PYTHON
from tests.listening import await_listener

CONFORM = ROOT / "tools" / "conform.py"

CHECKS = """
    import argparse, socket, sys
    sys.path.insert(0, {tools!r})
    import conform
    from rc import open_device

    here, there = socket.socketpair()
    with open_device("dp0") as context:
        side = conform.Side(context, here, argparse.Namespace(timeout=0.2, psn=7))
        message = conform.messages([("send", 3), ("write", 10)])[1]

        def check():
            try:
                print(side.check(conform.IN, message, bytes(10)))
            except conform.Failure as failure:
                print(failure, failure.where)

        side.clear(conform.IN, message)
        side.put(conform.IN, message, bytes(10))
        check()
        side.put(conform.IN, message, bytes(11))
        check()
        side.put(conform.IN, message, bytes(9) + b"x")
        check()
        try:
            side.wait(side.send_cq, "nothing")
        except conform.Failure as failure:
            print(failure)
        side.close()
"""


def test_a_wrong_byte_is_named(network: NetnsNetwork) -> None:
    host = network.hosts[0]
    script = textwrap.dedent(CHECKS.format(tools=str(CONFORM.parent)))
    done = host.run(
        [PYTHON, "-c", script], env=device_environment("dp0", f"udp:{host.endpoint.ipv4}")
    )
    where = "{'op': 'write', 'size': 10, 'message': 1, 'byte': %d}"
    assert done.stdout.splitlines() == [
        "10",
        f"memory behind the data: 0x00 and not 0xa5 {where % 10}",
        f"data: 0x78 and not 0x00 {where % 9}",
        "no completion of nothing for 0.2 s",
    ], done.stderr


def test_sides_that_want_different_things(network: NetnsNetwork) -> None:
    client, server = network.hosts
    envs = [device_environment("dp0", f"udp:{host.endpoint.ipv4}") for host in (client, server)]
    argv = [PYTHON, str(CONFORM), "--timeout", "5"]
    serving = server.popen([*argv, "-m", "1024"], env=envs[1])
    await_listener(server, serving)
    done = client.run([*argv, "-m", "4096", server.endpoint.mgmt_ipv4], env=envs[0])
    assert serving.wait(20) == 1
    report = json.loads(done.stdout)
    assert (report["ok"], report["error"]) == (
        False,
        "the other side wants client 1024, not client 4096",
    )
    assert done.returncode == 1


def test_a_peer_that_dies(network: NetnsNetwork) -> None:
    client, server = network.hosts
    envs = [device_environment("dp0", f"udp:{host.endpoint.ipv4}") for host in (client, server)]
    argv = [PYTHON, str(CONFORM), "--timeout", "5"]
    serving = server.popen(argv, env=envs[1])
    await_listener(server, serving)
    # One that connects and leaves again without a word.
    script = f"import socket; socket.create_connection(('{server.endpoint.mgmt_ipv4}', 18521))"
    assert client.run([PYTHON, "-c", script]).returncode == 0
    started = time.monotonic()
    assert serving.wait(20) == 1
    assert time.monotonic() > started


def test_a_peer_that_starts_late_or_never(network: NetnsNetwork) -> None:
    """Its Python may take longer to start than what is granted without progress."""
    client, server = network.hosts
    env = device_environment("dp0", f"udp:{server.endpoint.ipv4}")
    serving = server.popen([PYTHON, str(CONFORM), "--timeout", "1"], env=env)
    await_listener(server, serving)
    time.sleep(2)
    script = (
        f"import socket; s = socket.create_connection(('{server.endpoint.mgmt_ipv4}', 18521))\n"
        "print(s.recv(1))"
    )
    assert client.run([PYTHON, "-c", script]).stdout == "b'{'\n"
    assert serving.wait(20) == 1
    script = (
        f"import sys; sys.path[:0] = [{str(CONFORM.parent)!r}]; import rc\n"
        "rc.START_S = 0.2\n"
        "from argparse import Namespace as N\n"
        "for server in (None, '127.0.0.1'):\n"
        "    try: rc.control_socket(N(server=server, port=9, timeout=1))\n"
        "    except SystemExit as error: print(error)"
    )
    assert server.run([PYTHON, "-c", script]).stdout.splitlines() == [
        "no client came to port 9 in 0.2 s",
        "nobody listens on 127.0.0.1:9",
    ]


@pytest.mark.parametrize("arguments", [["--help"], ["-d", "nosuch0", "127.0.0.1"]])
def test_what_it_tells_before_it_starts(arguments: list[str]) -> None:
    done = subprocess.run(
        [PYTHON, CONFORM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin"},
    )
    if arguments == ["--help"]:
        assert "tools/conform.py -d rxe0" in done.stdout
    else:
        assert done.returncode == 1
        assert "no verbs device" in done.stderr
        assert len(done.stderr.splitlines()) == 1
