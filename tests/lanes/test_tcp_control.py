# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The TCP congestion control of a run: the kernel's own by name, and algorithms in C."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.cc import bpf
from datapath.errors import CapabilityError, DatapathError, LocalError, RunFailed
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from datapath.lanes.tcp_control import _allowed, tcp_control
from datapath.native import paths
from tests.verbs.devices import sanitizer
from tests.waiting import wait_until

SETTING = "/proc/sys/net/ipv4/tcp_congestion_control"
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
BTF = Path("/sys/kernel/btf/vmlinux")

SMALL = """
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

SEC("struct_ops/hold_ssthresh")
__u32 BPF_PROG(hold_ssthresh, struct sock *sk)
{
	SSTHRESH
}

SEC("struct_ops/hold_undo")
__u32 BPF_PROG(hold_undo, struct sock *sk)
{
	return ((struct tcp_sock *)sk)->snd_cwnd;
}

SEC("struct_ops/hold_avoid")
void BPF_PROG(hold_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
}

SEC(".struct_ops")
struct tcp_congestion_ops hold = {
	.ssthresh = (void *)hold_ssthresh,
	.undo_cwnd = (void *)hold_undo,
	.cong_avoid = (void *)hold_avoid,
	.name = "dp_test_hold",
};

char _license[] SEC("license") = "GPL";
"""

TRANSFER = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def serve():
    peer, _ = server.accept()
    while peer.recv(1 << 16):
        pass
    peer.sendall(b"done")
thread = threading.Thread(target=serve)
thread.start()
client = socket.create_connection(server.getsockname())
name = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\\0")[0]
client.sendall(bytes(4 << 20))
client.shutdown(socket.SHUT_WR)
print(name.decode(), client.recv(4).decode())
thread.join()
"""


@pytest.fixture(scope="module")
def network() -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology(mtu=1500)) as built:
        yield built


def used(network: NetnsNetwork) -> list[str]:
    return [host.run(["cat", SETTING]).stdout.strip() for host in network.hosts]


def written(folder: Path, ssthresh: str, change: tuple[str, str] = ("", "")) -> None:
    """hold.bpf.c, with something else in place of a part of it."""
    assert change[0] in SMALL
    text = SMALL.replace(*change) if change[0] else SMALL
    (folder / "hold.bpf.c").write_text(text.replace("SSTHRESH", ssthresh))


def test_a_name_holds_for_the_run(network: NetnsNetwork, tmp_path: Path) -> None:
    """Also of an algorithm that not all users may take."""
    before, allowed = used(network), ALLOWED.read_text()
    for name in AVAILABLE.read_text().split():
        with tcp_control(network.hosts, name, tmp_path, tmp_path, one_kernel=True):
            assert used(network) == [name, name]
            assert ALLOWED.read_text() == allowed
        assert used(network) == before


def test_what_the_kernel_lacks_is_named(network: NetnsNetwork, tmp_path: Path) -> None:
    before = used(network)
    with (
        pytest.raises(
            CapabilityError, match="host0 has no TCP congestion control nosuch"
        ) as caught,
        tcp_control(network.hosts, "nosuch", tmp_path, tmp_path, one_kernel=True),
    ):
        pass
    assert "cubic" in caught.value.hint
    assert str(caught.value).endswith("nosuch")  # and no words of a shell
    assert used(network) == before


@pytest.mark.parametrize("name", ["dp_copa", "./hold.bpf.c"])
def test_an_algorithm_in_c(network: NetnsNetwork, tmp_path: Path, name: str) -> None:
    written(tmp_path, "return ((struct tcp_sock *)sk)->snd_cwnd;")
    known = "dp_copa" if name == "dp_copa" else "dp_test_hold"
    before = used(network)
    with tcp_control(network.hosts, name, tmp_path, tmp_path, one_kernel=True):
        done = network.hosts[1].run(["python3", "-c", TRANSFER])
        assert done.stdout.split() == [known, "done"], done.stderr
    assert used(network) == before
    assert known not in AVAILABLE.read_text().split()


def test_each_kernel_has_a_name_of_its_own(network: NetnsNetwork, tmp_path: Path) -> None:
    """Hosts that count as kernels of their own may be namespaces, as one of lane vm's is."""
    written(tmp_path, "return 2;")
    before, allowed = used(network), ALLOWED.read_text()
    with tcp_control(network.hosts, "./hold.bpf.c", tmp_path, tmp_path, one_kernel=False):
        assert used(network) == ["dp_test_hold", "dp_test_hold.2"]
        assert ALLOWED.read_text() == allowed
    assert used(network) == before


def test_a_list_that_is_read_only_does_not_hide_the_reason(network: NetnsNetwork) -> None:
    """As in a container with a network namespace of its own."""

    def inside() -> None:
        with pytest.raises(CapabilityError, match="the reason"), _allowed("nosuch"):
            raise CapabilityError("the reason")

    network.hosts[0].namespace.in_network(inside)


SINK = """
import socket
server = socket.create_server(("0.0.0.0", 7001))
print("ready", flush=True)
for _ in range(2):
    peer, _ = server.accept()
    while peer.recv(1 << 16):
        pass
    peer.close()
"""
SOURCE = """
import socket, sys
for _ in range(2):  # the kernel learns of the clamp at the end of the first
    client = socket.create_connection((sys.argv[1], 7001))
    most = 0
    for _ in range(128):
        client.sendall(bytes(1 << 15))
        info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 84)
        most = max(most, int.from_bytes(info[80:], "little"))  # tcpi_snd_cwnd
    client.shutdown(socket.SHUT_WR)
    client.recv(1)
print(most)
"""


def test_slow_start_of_copa_heeds_the_clamp(network: NetnsNetwork, tmp_path: Path) -> None:
    """Which a route may set (ip-route(8), cwnd)."""
    receiver, sender = network.hosts
    address = receiver.endpoint.ipv4
    (route,) = sender.run(["ip", "route", "show", "match", address]).stdout.splitlines()
    with tcp_control(network.hosts, "dp_copa", tmp_path, tmp_path, one_kernel=True):
        clamped = ["ip", "route", "replace", *route.split(), "cwnd", "lock", "12"]
        assert sender.run(clamped).returncode == 0
        sink = receiver.popen(["python3", "-c", SINK], stdout=tmp_path / "sink")
        wait_until(lambda: "ready" in (tmp_path / "sink").read_text(), "the receiver listens")
        done = sender.run(["python3", "-c", SOURCE, address])
        assert sink.wait(timeout=60) == 0
        assert sender.run(["ip", "route", "replace", *route.split()]).returncode == 0
    assert int(done.stdout) <= 12, done.stderr


def test_two_runs_have_it_at_once(tmp_path: Path) -> None:
    """Each has an object of its own; the first to begin ends first."""
    written(tmp_path, "return 2;")
    allowed = ALLOWED.read_text()
    names = ("dp_test_hold", "dp_test_hold.2")
    with contextlib.ExitStack() as later, contextlib.ExitStack() as first:
        networks = [later.enter_context(NetnsNetwork(Topology(mtu=1500))) for _ in names]
        for network, stack, name in zip(networks, (first, later), names, strict=True):
            logs = tmp_path / name
            logs.mkdir()
            stack.enter_context(
                tcp_control(network.hosts, "./hold.bpf.c", tmp_path, logs, one_kernel=True)
            )
        assert [used(network) for network in networks] == [[name, name] for name in names]
        first.close()
        done = networks[1].hosts[0].run(["python3", "-c", TRANSFER])
        assert done.stdout.split() == [names[1], "done"], done.stderr
    assert ALLOWED.read_text() == allowed
    assert not {*names} & {*AVAILABLE.read_text().split()}


def test_a_name_of_the_kernels_own(network: NetnsNetwork, tmp_path: Path) -> None:
    written(tmp_path, "return 2;", ('"dp_test_hold"', '"cubic"'))
    with (
        pytest.raises(LocalError, match="the kernel has an algorithm cubic of its own"),
        tcp_control(network.hosts, "./hold.bpf.c", tmp_path, tmp_path, one_kernel=True),
    ):
        pass


def test_a_section_of_newer_selftests(network: NetnsNetwork, tmp_path: Path) -> None:
    written(tmp_path, "return 2;", ('".struct_ops"', '".struct_ops.link"'))
    with tcp_control(network.hosts, "./hold.bpf.c", tmp_path, tmp_path, one_kernel=True):
        assert used(network) == ["dp_test_hold", "dp_test_hold"]


VARIABLE = SMALL[SMALL.index('SEC(".struct_ops")') : SMALL.index("char _license")]
AVOID = "\t.cong_avoid = (void *)hold_avoid,\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((AVOID, ""), [".cong_avoid or .cong_control", "hold_avoid() in no member"]),
        (
            ("\t.undo_cwnd = (void *)hold_undo,\n", ""),
            ["no .undo_cwnd", "hold_undo() in no member"],
        ),
        (('\t.name = "dp_test_hold",\n', ""), ["no .name"]),
        (("dp_test_hold", "dp_test_hold_012"), ["more than 15 characters", "dp_test_hold_012"]),
        (("dp_test_hold", "dp-test-hold"), ["letters, digits, _ and ."]),
        ((VARIABLE, ""), ["no variable"]),
        ((VARIABLE, VARIABLE + VARIABLE.replace("ops hold", "ops more")), ["(hold, more)"]),
        ((VARIABLE, 'SEC(".struct_ops") struct tcp_sock hold = {};\n'), ["struct tcp_sock"]),
        ((SMALL, "int nothing;\n"), ["no variable"]),
    ],
    ids=["no avoid", "no undo", "no name", "long", "dashes", "none", "two", "other type", "empty"],
)
def test_what_an_object_lacks_is_said(
    network: NetnsNetwork, tmp_path: Path, change: tuple[str, str], words: list[str]
) -> None:
    written(tmp_path, "return 2;", change)
    with (
        pytest.raises(LocalError, match=r"hold\.bpf\.c") as caught,
        tcp_control(network.hosts, "./hold.bpf.c", tmp_path, tmp_path, one_kernel=True),
    ):
        pass
    for each in words:
        assert each in str(caught.value)


def test_it_goes_with_its_program(network: NetnsNetwork, tmp_path: Path) -> None:
    written(tmp_path, "return 2;")
    with pytest.raises(RunFailed, match="tcp-registrar"):
        kill_meanwhile(network, tmp_path)


def kill_meanwhile(network: NetnsNetwork, folder: Path) -> None:
    with tcp_control(network.hosts, "./hold.bpf.c", folder, folder, one_kernel=True):
        assert "dp_test_hold" in AVAILABLE.read_text().split()
        for host in network.hosts:  # nobody uses it any more
            host.run(["sh", "-c", f"echo cubic >{SETTING}"])
        network.hosts[0].run(["sh", "-c", "kill -9 $(pgrep dp-tcp-regis)"])
        wait_until(
            lambda: "dp_test_hold" not in AVAILABLE.read_text().split(), "the kernel has let it go"
        )


@pytest.mark.skipif(bool(sanitizer()), reason="AddressSanitizer has to be loaded first")
def test_a_signal_just_before_it_sleeps_ends_it(tmp_path: Path) -> None:
    """Where it waits for its end; a run would wait for it in vain."""
    written(tmp_path, "return 2;")
    library = tmp_path / "late_signal.so"
    source = Path(__file__).with_name("programs") / "late_signal.c"
    options = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, "-o", library, source], check=True)
    made = bpf.build(tmp_path / "hold.bpf.c", "", lambda _: Path("/sys/kernel/btf/vmlinux"))
    argv = ["env", f"LD_PRELOAD={library}", paths.tcp_registrar(), made]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert '"ready"' in done.stdout
    assert done.stdout.splitlines()[-1] == "{}"


def test_a_header_that_has_changed_is_compiled_again(tmp_path: Path) -> None:
    """Also one in another folder, which a header includes."""
    first = '#include "vmlinux.h"'
    written(tmp_path, "return WINDOW;", (first, f'{first}\n#include "a.h"'))
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.h").write_text('#include "inner/b.h"\n')
    made = []
    for window in (7, 8, 7):
        (tmp_path / "inner" / "b.h").write_text(f"#define WINDOW {window}\n")
        made.append(bpf.build(tmp_path / "hold.bpf.c", "of this kernel", lambda folder: BTF))
    assert made[0] == made[2] != made[1]


def test_a_tool_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "return 2;")
    tool = tmp_path / "bpftool"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bpf, "_TIMEOUT_S", 0.5)
    with pytest.raises(DatapathError, match=r"bpftool has not ended after 0\.5 s") as caught:
        bpf.build(tmp_path / "hold.bpf.c", "", lambda folder: BTF)
    assert "try again" in caught.value.hint


def test_the_compiler_names_the_line(network: NetnsNetwork, tmp_path: Path) -> None:
    written(tmp_path, "return nothing;")
    with (
        pytest.raises(LocalError, match=r"hold\.bpf\.c:9:\d+: error: .*nothing"),
        tcp_control(network.hosts, "./hold.bpf.c", tmp_path, tmp_path, one_kernel=True),
    ):
        pass


def test_the_verifier_names_the_line(network: NetnsNetwork, tmp_path: Path) -> None:
    """The kernel lets an algorithm write few members of a socket."""
    written(tmp_path, "((struct tcp_sock *)sk)->srtt_us = 1; return 2;")
    with (
        pytest.raises(LocalError, match=r"refuses .*hold\.bpf\.c") as caught,
        tcp_control(network.hosts, "./hold.bpf.c", tmp_path, tmp_path, one_kernel=True),
    ):
        pass
    assert "srtt_us = 1" in str(caught.value)


def test_those_of_the_toolkit_describe_themselves() -> None:
    for algorithm in bpf.own():
        assert algorithm.summary
        assert algorithm.source
        assert f'.name = "{algorithm.name}"' in algorithm.file.read_text()
