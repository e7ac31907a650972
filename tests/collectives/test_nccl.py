# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The plug-in for NCCL meets its check, and the check finds planted faults."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from datapath.collectives.nccl.abi import VERSIONS
from datapath.collectives.nccl.cases import CASES
from datapath.collectives.nccl.check import Sides, Verdict, check, local, versions_of
from datapath.errors import LocalError
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path as NetworkPath
from datapath.lanes.spec import Topology
from datapath.native import paths
from datapath.verbs import sysfs
from datapath.verbs.launch import device_environment
from tests.verbs.devices import sanitizer

pytestmark = pytest.mark.san

PATIENCE_S = 60
HANG_S = 5
"""For faults that are calls which never return."""

NEWEST = max(VERSIONS)
_ETH_P_IP = 0x0800
UNDER_LOSS = ["many_messages", "bulk", "groups", "receiver_closes_first"]

Session = Callable[[str, int], Verdict]


def built(name: str) -> Path:
    return paths.ROOT / paths.build_name() / "tests" / name


def environments(base: Mapping[str, str]) -> list[dict[str, str]]:
    """Of two sides on loopback."""
    net = 100 + os.getpid() % 100
    specs = [f"udp:127.0.{net}.{side}" for side in (1, 2)]
    return [{**base, **device_environment("dp0", spec, base=base)} for spec in specs]


@contextmanager
def session(
    plugin: Path, base: Mapping[str, str], patience_s: float = PATIENCE_S
) -> Iterator[Session]:
    """Runs cases by name and version; after a failure the two processes are as good as before."""
    with Sides(plugin, local(environments(base)), patience_s) as sides:
        yield lambda name, version: sides.run(CASES[name], version)


@pytest.fixture(scope="module")
def ours() -> Iterator[Session]:
    with session(paths.nccl_plugin(), sanitizer()) as run:
        yield run


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_our_plugin_does_what_it_has_to(ours: Session, case: str, version: int) -> None:
    assert ours(case, version).wrong == ""


def test_our_plugin_has_all_versions() -> None:
    assert versions_of(paths.nccl_plugin()) == list(VERSIONS)


@pytest.mark.parametrize("loss", ["1%", "5%"])
def test_our_plugin_under_loss(root: None, loss: str) -> None:
    base = sanitizer()
    with NetnsNetwork(Topology(), "bpf") as network:
        network.set_path(NetworkPath.model_validate({"loss": loss}), seed=5)

        def start(rank: int, argv: Sequence[str]) -> Any:
            host = network.hosts[rank]
            spec = f"udp:{host.endpoint.ipv4}"
            return host.popen(argv, env={**base, **device_environment("dp0", spec, base=base)})

        verdicts = check(paths.nccl_plugin(), start, versions=[NEWEST], names=UNDER_LOSS)
        assert [verdict.wrong for verdict in verdicts] == [""] * len(UNDER_LOSS)
        assert sum(network.path_counters().dropped.values()) > 0


sanitized = pytest.mark.skipif(
    paths.build_name() != "build-san", reason="needs the sanitized build: dpctl selftest makes it"
)


def leaks(plugin: Path, folder: Path, **more: str) -> list[str]:
    """Reports of LeakSanitizer that name a file of the plug-in, after a case."""
    options = f"detect_leaks=1:log_path={folder}/report"
    with session(plugin, {**sanitizer(), "ASAN_OPTIONS": options, **more}) as run:
        run("listen_again", NEWEST)  # Python's own leaks make processes end with an error
    texts = [path.read_text() for path in folder.iterdir()]
    assert texts, "LeakSanitizer has not looked"
    return [text for text in texts if "collectives/nccl/" in text]


@sanitized
def test_our_plugin_leaks_nothing(tmp_path: Path) -> None:
    assert leaks(paths.nccl_plugin(), tmp_path) == []


@sanitized
def test_a_leak_is_seen(tmp_path: Path) -> None:
    more = {"NCCL_FAULT": "nothing-closed", "NCCL_SOUND": str(paths.nccl_plugin())}
    assert leaks(built("faulty_nccl.so"), tmp_path, **more)


@pytest.fixture
def races(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs cases with a plug-in built with ThreadSanitizer, which looks at the plug-in alone."""

    def run(plugin: Path, *cases: str, **more: str) -> list[str]:
        monkeypatch.setenv("DATAPATH_BUILD", "release")  # no two sanitizers in a process
        library = subprocess.run(
            ["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        options = "ignore_noninstrumented_modules=1:report_thread_leaks=0"
        base = {"LD_PRELOAD": library, "TSAN_OPTIONS": f"{options}:log_path={tmp_path}/report"}
        more.setdefault("NCCL_SOUND", str(paths.nccl_plugin()))
        with session(plugin, {**base, **more}) as run_case:
            wrong = [run_case(case, NEWEST).wrong for case in cases]
        reports = [path.read_text() for path in tmp_path.iterdir()]
        return reports or [text for text in wrong if text]

    return run


@sanitized
def test_threads_of_our_plugin_do_not_race(races: Callable[..., list[str]]) -> None:
    cases = ("threads", "several_communicators_of_nccl", "closed_in_flight")
    assert races(built("nccl_threads.so"), *cases) == []


@sanitized
def test_a_race_is_seen(races: Callable[..., list[str]]) -> None:
    reports = races(built("faulty_nccl_threads.so"), "threads", NCCL_FAULT="data-race")
    assert any("data race" in text for text in reports), reports


@pytest.mark.parametrize(
    ("fault", "case", "message"),
    [
        ("no-devices", "properties", r"devices\(\) tells 0 devices"),
        ("many-devices", "properties", r"devices\(\) tells 1,000,000,000 devices"),
        ("devices-unset", "properties", r"devices\(\) leaves the number of devices unset"),
        ("properties-unset", "properties", r"getProperties\(\) .* speed_mbps is 0 \(unset"),
        ("properties-unset", "groups", r"getProperties\(\) tells 0 receives in a group"),
        ("listener-unset", "sizes", r"listen\(\) gave no listener"),
        ("init-exits", "properties", r"the plug-in ended the process with status 0 in init\(\)"),
        ("send-exits", "sizes", r"^sender: the plug-in ended .* status 0 in isend\(\)"),
        ("close-exits", "sizes", r"^sender: the plug-in ended .* status 0 in close_send\(\)$"),
        ("room-told", "short_sends", r"size that test\(\) tells .*\[1048576\] in place of \[0\]"),
        ("one-told-as-none", "sizes", r"\(1 bytes sent.*\[0\] in place of \[1\]"),
        ("data-spoilt", "sizes", "receiver: data of 1 bytes"),
        ("needs-sizes", "no_size_asked", r"(ended .*with status|was killed by) .* in test\(\)"),
        ("request-leaked", "many_messages", "gave no request"),
        ("tags-ignored", "groups", "a group of 2"),
        ("handle-too-long", "accept_and_connect_do_not_block", "behind the handle"),
        ("nothing-closed", "listen_again", r"close leaves \d+ file descriptors"),
        ("accept-blocks", "accept_and_connect_do_not_block", r"accept\(\) did not return"),
        ("connect-blocks", "accept_and_connect_do_not_block", r"connect\(\) did not return"),
        ("send-blocks", "send_before_receive", r"isend\(\) did not return"),
        ("send-refused", "send_before_receive", r"isend\(\) gave internal error"),
        ("errors-hidden", "sender_killed", "no call failed, though the peer has died"),
    ],
)
def test_planted_faults_are_found(fault: str, case: str, message: str) -> None:
    base = {
        **sanitizer(),
        "NCCL_FAULT": fault,
        "NCCL_SOUND": str(paths.nccl_plugin()),
    }
    patience_s = HANG_S if "block" in fault or fault in ("errors-hidden", "request-leaked") else 60
    with session(built("faulty_nccl.so"), base, patience_s) as run:
        wrong = run(case, NEWEST).wrong
    assert re.search(message, wrong), wrong
    assert "the check itself fails" not in wrong


def test_the_faulty_plugin_without_a_fault_is_sound() -> None:
    base = {**sanitizer(), "NCCL_FAULT": "none", "NCCL_SOUND": str(paths.nccl_plugin())}
    with session(built("faulty_nccl.so"), base) as run:
        assert run("groups", NEWEST).wrong == ""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("no library\n"), "Magic number"),
        (lambda path: path.symlink_to(paths.core_library()), "exports none of ncclNetPlugin_v8"),
    ],
)
def test_what_is_no_plugin(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    file = tmp_path / "libnccl-net-none.so"
    make(file)
    with pytest.raises(LocalError, match=message):
        next(check(file, local([{}, {}])))


def test_cases_and_versions_that_are_none() -> None:
    plugin = paths.nccl_plugin()
    with pytest.raises(LocalError, match="there is no case 'size'"):
        next(check(plugin, local([{}, {}]), names=["size"]))
    with pytest.raises(LocalError, match="exports no ncclNetPlugin_v7"):
        next(check(plugin, local([{}, {}]), versions=[7]))


def address_here(last: int) -> str:
    return f"127.0.{100 + os.getpid() % 100}.{last}"


def run_here(argv: Sequence[object], address: int, **more: str) -> subprocess.CompletedProcess[str]:
    """A program with a device at address_here() on loopback; more: of its environment."""
    base = sanitizer()
    spec = f"udp:{address_here(address)}"
    return subprocess.run(
        [str(word) for word in argv],
        env={**os.environ, **base, **device_environment("dp0", spec, base=base), **more},
        capture_output=True,
        text=True,
        check=False,
    )


def test_strangers_are_not_let_in() -> None:
    """Those who do not know the handle's secret neither get in nor keep the peer out."""
    script = Path(__file__).parent / "nccl_strangers.py"
    done = run_here([sys.executable, "-P", script, paths.nccl_plugin(), NEWEST], 4)
    assert done.stdout == "the peer was let in\n", done.stderr


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("forked", r"isend\(\) gave .*: the peer's process has ended"),
        ("held", r"isend\(\) gave .*: the peer has closed its end"),
        ("full", r"accept\(\) gave system error: .* accepting a connection: Too many open files"),
    ],
)
def test_an_end_is_told(case: str, message: str) -> None:
    """A child keeps no connection of its parent's open, and a listener says what it lacks."""
    script = Path(__file__).parent / "nccl_ends.py"
    done = run_here([sys.executable, "-P", script, paths.nccl_plugin(), NEWEST, case], 6)
    assert re.search(message, done.stdout), done


ADDRESS = f"""
import socket, sys
from datapath.collectives.nccl.network import Network

net = Network(sys.argv[1], {NEWEST}, lambda _name: None)
net.init()
print(socket.inet_ntoa(net.listen()[0].data[8:12]))
"""


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ("lo", "127.0.0.1"),
        ("l", "127.0.0.1"),
        ("=lo", "127.0.0.1"),
        ("ib0,,lo:4000", "127.0.0.1"),
        ("^nothing,=lo", "127.0.0.1"),
        ("=l", "the GID's"),
        ("nothing", "the GID's"),
        ("^nothing,l", "the GID's"),
        ("^=lo", "the GID's"),
        ("", "the GID's"),
    ],
)
def test_listeners_listen_where_nccl_says(root: None, listed: str, wanted: str) -> None:
    """NCCL_SOCKET_IFNAME is NCCL's own.  Here the host has no network device but `lo`."""
    argv = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    argv += [sys.executable, "-P", "-c", ADDRESS, str(paths.nccl_plugin())]
    done = run_here(argv, 7, NCCL_SOCKET_IFNAME=listed)
    assert done.stdout.strip() == (address_here(7) if wanted == "the GID's" else wanted), done


@pytest.mark.parametrize("version", [10, NEWEST])
def test_the_packets_of_both_ends_have_the_traffic_class(root: None, version: int) -> None:
    script, traffic_class = Path(__file__).parent / "nccl_class.py", 104
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP)) as seen:
        seen.bind(("lo", _ETH_P_IP))
        words = [sys.executable, "-P", script, paths.nccl_plugin(), version, traffic_class]
        done = run_here(words, 5)
        assert done.stdout == "the data came\n", done.stderr
        seen.setblocking(False)
        packets = []
        with contextlib.suppress(BlockingIOError):
            while True:
                packets.append(seen.recv(96))
    address = socket.inet_aton(address_here(5))
    ours = [ip for ip in packets if ip[9] == socket.IPPROTO_UDP and ip[12:16] == address]
    assert len({ip[33:36] for ip in ours}) == 2  # QPs that are sent to, in the transport header
    assert {ip[1] for ip in ours} == {traffic_class}


def test_the_transport_of_nccl_finds_the_device(root: None) -> None:
    """What it opens, which symbols it takes, and what it reads in sysfs; as a program here does."""
    done = run_here(sysfs.program([str(built("ib_transport"))]), 3)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^device dp0 port 1 speed (\d+) gid (\d+) pci (\S+)$", done.stdout, re.M)
    assert found, done.stdout
    assert int(found[1]) > 0
    assert found[3].startswith("/sys/")
