# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl vnic run`: cards that meet, end and come back, and what is left of them."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from datapath.cli.app import run
from datapath.lanes.namespace import spawn
from datapath.native.paths import ROOT
from datapath.vnic import devices, watching
from datapath.vnic import service as serving
from datapath.vnic.devices import GuestDevices, claim, trouble
from datapath.vnic.handshake import Caller
from datapath.vnic.peering import CALLS_MAX
from datapath.vnic.spec import CardFile
from datapath.vnic.watching import running
from tests.vnic.bench import Bench, write_file
from tests.waiting import wait_for_words, wait_until

DPCTL = str(ROOT / "dpctl")
CONTROL_PORT, VXLAN_PORT = 4790, 4789
TCP_PORT = 7000


class Services:
    """A Bench whose cards are those of `dpctl vnic run`."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench, self.folder = bench, folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, host: int, **changes: Any) -> subprocess.Popen[bytes]:
        folder = self.folder / f"{host}-{len(self.running)}"
        folder.mkdir()
        file = write_file(folder, {**self.bench.data, **changes})
        with (folder / "log").open("wb") as log:
            service = spawn(
                self.bench.hosts[host].namespace,
                [DPCTL, "vnic", "run", str(file)],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        self.running.append(service)
        return service

    def log(self, number: int) -> str:
        (path,) = self.folder.glob(f"*-{number}/log")
        return path.read_text()

    def show(self, host: int) -> dict[str, Any]:
        """{} when no card answers."""
        cards = self.bench.hosts[host].namespace.in_network(running)
        return cards[0] if cards else {}

    def tunnel(self, host: int) -> str:
        return str(self.show(host).get("tunnels", {}).get(f"host{1 - host}", ""))

    def wait_up(self) -> None:
        for host in range(2):
            wait_until(lambda: self.tunnel(host) == "up", f"host {host} has a tunnel")  # noqa: B023

    def end(self) -> None:
        for service in self.running:
            service.kill()
            service.wait()


@pytest.fixture
def services(root: None, tmp_path: Path) -> Iterator[Services]:
    with contextlib.ExitStack() as stack:
        made = Services(Bench(stack), tmp_path)
        stack.callback(made.end)
        yield made


def test_cards_meet_and_come_back(services: Services) -> None:
    blue0, blue1 = services.bench.guests["blue0"], services.bench.guests["blue1"]
    first, _ = services.start(0), services.start(1)
    services.wait_up()
    assert blue0.ping(blue1.ipv4)
    show = [DPCTL, "vnic", "show", "host1"]
    shown = spawn(services.bench.hosts[1].namespace, show, stdout=subprocess.PIPE).communicate()[0]
    assert b"host0   up" in shown
    assert b"wait us" in shown
    assert b"blue1" in shown
    assert b"red1" in shown

    # The card alone is killed, of the calling host and of the called one: its owner makes another
    # one, and the peer learns of it without a frame to send.
    for host in range(2):
        card = services.show(host)["pid"]
        _kill(services.bench, card)
        wait_until(lambda: services.show(host).get("pid") not in (None, card), "there is another")  # noqa: B023
        services.wait_up()
        why = "the virtual card was killed by signal 9 (SIGKILL); another one takes its place"
        assert why in services.log(host)
    assert blue0.ping(blue1.ipv4)

    # The owner is killed: everything goes, and the devices are free for the next one.
    first.kill()
    first.wait()
    wait_until(lambda: services.tunnel(1) == "down", "the peer has noticed")
    wait_until(lambda: not _has_xdp(services.bench, "blue0"), "no XDP program is left")
    services.start(0)
    services.wait_up()
    assert blue0.ping(blue1.ipv4)

    # An interrupt ends it in order.
    services.running[-1].send_signal(signal.SIGINT)
    assert services.running[-1].wait(20) == 130
    assert not _has_xdp(services.bench, "blue0")


def test_a_card_is_tried_again_while_the_kernel_holds_its_queues(services: Services) -> None:
    services.start(0)
    services.start(1)
    services.wait_up()
    card = services.show(0)["pid"]
    with _held_sockets(services.bench, card):
        _kill(services.bench, card)
        wait_for_words(services.folder / "0-0" / "log", "tried again", services.running[0])
        with pytest.raises(subprocess.TimeoutExpired):
            services.running[0].wait(2)
        assert services.log(0).count("resource busy") == 1
        now = services.show(0)
        assert (now["host"], now["state"]) == ("host0", "no card")
        assert "cannot bind AF_XDP to" in now["reason"]
    wait_until(lambda: services.show(0).get("pid") not in (None, card), "there is another card")
    services.wait_up()
    assert services.bench.guests["blue0"].ping(services.bench.guests["blue1"].ipv4)


def test_a_device_that_another_card_has_is_told_as_such(services: Services) -> None:
    services.start(0)
    wait_until(lambda: services.tunnel(0) == "down", "there is a card")
    with _held_sockets(services.bench, services.show(0)["pid"]):
        services.running[0].kill()
        services.running[0].wait()
        second = services.start(0)
        assert second.wait(60) == 3
    assert "cannot bind AF_XDP to blue0" in services.log(1)
    assert "another card or AF_XDP program has that device" in services.log(1)


@contextlib.contextmanager
def _held_sockets(bench: Bench, card: int) -> Iterator[None]:
    """The card's AF_XDP sockets outlive it for as long as the body runs."""
    holder = spawn(
        bench.hosts[0].namespace,
        [sys.executable, str(Path(__file__).with_name("holder.py")), str(card)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout
        assert int(holder.stdout.readline()) == 2
        yield
        holder.communicate()


def _kill(bench: Bench, card: int, how: str = "-KILL") -> None:
    assert spawn(bench.hosts[0].namespace, ["kill", how, str(card)]).wait() == 0


def test_a_stream_outlives_a_card_that_is_killed(root: None, tmp_path: Path) -> None:
    """In the middle of its data, which TCP sends again: none is lost, doubled or changed."""
    with contextlib.ExitStack() as stack:
        rough = {"loss": "1%"}
        services = Services(Bench(stack, path=rough, recover={"tcp": [TCP_PORT]}), tmp_path)
        stack.callback(services.end)
        services.start(0)
        services.start(1)
        services.wait_up()
        blue0, blue1 = services.bench.guests["blue0"], services.bench.guests["blue1"]
        make = functools.partial(socket.create_server, (blue1.ipv4, TCP_PORT))
        listener = stack.enter_context(blue1.space.in_network(make))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        call = functools.partial(socket.create_connection, (blue1.ipv4, TCP_PORT), 20)
        client = stack.enter_context(blue0.space.in_network(call))
        server = stack.enter_context(listener.accept()[0])
        server.settimeout(60)
        data = bytes(i * 31 % 251 for i in range(1 << 20))
        sender = threading.Thread(target=client.sendall, args=(data,))
        got = bytearray()
        sender.start()
        while len(got) < len(data) // 4:
            got += server.recv(4096)
        card = services.show(0)["pid"]
        _kill(services.bench, card)
        while len(got) < len(data):
            got += server.recv(65536)
        sender.join()
        assert got == data
        assert services.show(0)["pid"] != card


def test_a_guest_goes_and_comes_back(services: Services) -> None:
    """The card sleeps meanwhile: with its priority it would stand in everybody's way."""
    bench = services.bench
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    services.start(0)
    services.start(1)
    services.wait_up()
    bench.hosts[0].namespace.check_output(["ip", "link", "delete", "blue0"])
    assert not blue1.ping(blue0.ipv4, "-W", "1")
    assert bench.guests["red0"].ping(bench.guests["red1"].ipv4), "other guests go on"
    card = services.show(0)["pid"]
    before = _cpu_ticks(bench, card)
    with pytest.raises(subprocess.TimeoutExpired):
        services.running[0].wait(1)
    assert _cpu_ticks(bench, card) - before < 30, "the card spins"

    bench.join("blue0")
    wait_until(lambda: services.show(0).get("pid") not in (None, card), "there is another card")
    services.wait_up()
    assert blue0.ping(blue1.ipv4)


def test_a_guest_that_is_not_ready_costs_the_others_nothing(services: Services) -> None:
    bench = services.bench
    blue0, blue1 = bench.guests["blue0"], bench.guests["blue1"]
    red0, red1 = bench.guests["red0"], bench.guests["red1"]
    host = bench.hosts[0].namespace
    services.start(0)
    services.start(1)
    services.wait_up()
    card = services.show(0)["pid"]
    host.check_output(["ip", "link", "delete", "blue0"])
    bench.join("blue0", "down")
    wait_for_words(services.folder / "0-0" / "log", "blue0 is down", services.running[0])
    assert red0.ping(red1.ipv4)
    assert services.show(0)["pid"] == card

    # Another card does without that guest as well.
    _kill(bench, card)
    wait_until(lambda: services.show(0).get("pid") not in (None, card), "there is another card")
    services.wait_up()
    assert red0.ping(red1.ipv4)
    assert set(services.show(0)["guests"]) == {"red0"}
    assert services.show(0)["waiting"] == {"blue0": "blue0 is down"}
    assert services.log(0).count("blue0 is down") == 1

    host.check_output(["ip", "link", "set", "blue0", "up"])
    wait_until(lambda: "blue0" in services.show(0).get("guests", {}), "the guest has a card again")
    services.wait_up()
    assert blue0.ping(blue1.ipv4)
    assert red0.ping(red1.ipv4)
    assert services.show(0)["waiting"] == {}


def test_a_host_whose_only_guest_is_not_ready_has_a_card(services: Services) -> None:
    """It has nothing to do, and takes the guest up again."""
    bench = services.bench
    services.start(0)
    services.start(1)
    services.wait_up()
    card = services.show(0)["pid"]
    for name in ("blue0", "red0"):
        bench.hosts[0].namespace.check_output(["ip", "link", "delete", name])
    _kill(bench, card)
    wait_until(lambda: services.show(0).get("guests") == {}, "there is a card without guests")
    services.wait_up()
    bench.join("red0")
    wait_until(lambda: "red0" in services.show(0).get("guests", {}), "the guest is back")
    services.wait_up()
    assert bench.guests["red0"].ping(bench.guests["red1"].ipv4)


def test_what_keeps_a_card_from_a_device_is_told(services: Services) -> None:
    host = services.bench.hosts[0].namespace
    commands = (
        "link add one numrxqueues 1 type veth peer name down numrxqueues 1",
        "link add many mtu 1400 numrxqueues 2 type veth peer name rest",
        "link set one up",
        "link set many up",
    )
    host.check_output(["ip", "-batch", "-"], stdin="\n".join(commands))
    told = host.in_network(lambda: [trouble(name, 1500) for name in ("one", "down", "none")])
    assert told == ["", "down is down", "there is no device none"]
    told = host.in_network(lambda: [trouble("many", mtu) for mtu in (1400, 1500)])
    assert told == [
        "many has 2 receive queues in place of one",
        "MTU 1400 of many is less than the guests' of 1500",
    ]


def test_a_device_that_the_host_needs_is_no_guests(services: Services) -> None:
    """The place in the file is told, and no card has the device for a moment."""
    bench = services.bench
    netdev = bench.hosts[0].endpoint.netdev
    bench.data["tenants"]["red"]["guests"][0]["device"] = netdev
    assert services.start(0).wait(60) == 2
    address = bench.hosts[0].endpoint.ipv4
    place = f"tenants.red.guests[0].device: {netdev} has this host's address {address}"
    assert re.search(rf"cards\.yaml:\d+:\d+: {re.escape(place)}", services.log(0))
    assert "name the other end of its veth, or its tap" in services.log(0)
    assert not _has_xdp(bench, netdev)


def test_a_device_that_the_host_needs_later_is_waited_for(services: Services) -> None:
    """Such as one with the name of a guest's that has gone."""
    bench = services.bench
    told: list[str] = []
    host, endpoint = bench.hosts[0].namespace, bench.hosts[0].endpoint
    file = CardFile.model_validate(bench.data)
    guests = GuestDevices(file.settings("host0", file.compiled_cc(Path())), told.append)
    assert host.in_network(guests.available).devices == ["blue0", "red0"]
    host.check_output(["ip", "address", "add", f"{endpoint.ipv4}/32", "dev", "blue0"])
    assert host.in_network(guests.available).devices == ["red0"]
    why = f"blue0 has this host's address {endpoint.ipv4}: name the other end of its veth"
    assert why in guests.waiting["blue0"]
    assert why in told[0]


def test_what_the_host_needs_a_device_for(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = services.bench.hosts[0].namespace
    commands = (
        "link add four type veth peer name four-peer",
        "link add six type veth peer name six-peer",
        "link add part type veth peer name part-peer",
        "link add whole type bridge",
        "link set part master whole",
        "link property add dev four altname another",
        *(f"link set {name} up" for name in ("four", "four-peer", "six", "six-peer", "whole")),
        "address add 203.0.113.1/24 dev four",
        "address add 203.0.114.1/24 dev whole",
        "route replace default via 203.0.113.2 dev four",
        "route replace ::/0 dev six",
    )
    host.check_output(["ip", "-batch", "-"], stdin="\n".join(commands))

    def told(name: str, address: str = "192.0.2.1", port: str = "udp") -> str:
        return host.in_network(lambda: claim(name, address, port))

    assert told("four") == told("another").replace("another", "four")
    assert told("four") == "four has this host's default route"
    assert told("six") == "six has this host's default route"
    assert told("four", "203.0.113.1") == "four has this host's address 203.0.113.1"
    for port in ("afxdp:part", "afxdp:part,ip=192.0.2.1"):
        assert told("part", port=port) == "part is the device of this host's own port"
    assert told("whole") == told("part") == told("none") == ""

    # A network card, as sysfs has it.
    for path in ("part/device", "part/upper_whole", "whole"):
        (tmp_path / path).mkdir(parents=True)
    monkeypatch.setattr(devices, "_NETDEVS", tmp_path)
    assert told("part") == "part is a network card of this host, with its address 203.0.114.1"


def _cpu_ticks(bench: Bench, pid: int) -> int:
    """CPU time of a process, in hundredths of a second."""
    stat = bench.hosts[0].run(["cat", f"/proc/{pid}/stat"]).stdout.rpartition(")")[2].split()
    return int(stat[11]) + int(stat[12])


def _has_xdp(bench: Bench, device: str) -> bool:
    shown = bench.hosts[0].namespace.check_output(["ip", "-json", "link", "show", "dev", device])
    return "xdp" in json.loads(shown)[0]


def test_strangers_and_other_keys_open_no_tunnel(services: Services) -> None:
    services.start(0)
    services.start(1, key=secrets.token_hex(32))
    wait_until(lambda: "not proven" in services.log(0) + services.log(1), "the keys differ")
    assert services.tunnel(0) == services.tunnel(1) == "down"

    # Host 1 answers, since host 0 calls: strangers have to call host 1.
    address = services.bench.hosts[1].endpoint.ipv4
    call = services.bench.hosts[0].namespace.in_network
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"[" * 5000, b'{"vnic": 1}\n', b"\xff\xfe\n", b""):
        with call(lambda: socket.create_connection((address, CONTROL_PORT), 10)) as stranger:
            stranger.sendall(junk)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(10)
            assert stranger.recv(4096) == b""
    wait_until(lambda: sum(services.show(1)["handshakes"].values()) >= 5, "strangers are counted")
    assert services.tunnel(1) == "down"
    assert services.running[1].poll() is None


def test_strangers_keep_no_host_from_calling(root: None, tmp_path: Path) -> None:
    """Neither many connections from elsewhere, nor those from the address of another host."""
    with contextlib.ExitStack() as stack:
        bench = Bench(stack, topology={"preset": "dumbbell", "hosts": 4})
        address = bench.hosts[1].endpoint.ipv4
        third = {"another": {"address": bench.hosts[2].endpoint.ipv4}}
        bench.data["hosts"] = {**third, **bench.data["hosts"]}
        services = Services(bench, tmp_path)
        stack.callback(services.end)
        services.start(1)
        wait_until(lambda: services.tunnel(1) == "down", "the called host has a card")

        def silent(host: int) -> socket.socket:
            call = functools.partial(socket.create_connection, (address, CONTROL_PORT), 10)
            return stack.enter_context(bench.hosts[host].namespace.in_network(call))

        for stranger in [silent(3) for _ in range(70)]:
            assert stranger.recv(1) == b"", "hung up on at once"
        assert services.show(1)["handshakes"] == {"strangers": 70}
        assert services.log(0).count("of no host that calls this one") == 1

        def is_crowded() -> bool:
            silent(2)
            return "too_many" in services.show(1)["handshakes"]

        wait_until(is_crowded, "one address has a number of places")
        services.start(0)
        services.wait_up()


def test_silent_connections_of_a_host_keep_its_card_from_nothing(services: Services) -> None:
    """Any process there may make them.  The oldest one makes room for the card's."""
    bench = services.bench
    services.start(1)
    wait_until(lambda: services.tunnel(1) == "down", "the called host has a card")
    address = (bench.hosts[1].endpoint.ipv4, CONTROL_PORT)
    connect = functools.partial(socket.create_connection, address, 10)
    with contextlib.ExitStack() as stack:
        silent, card = (
            [
                stack.enter_context(bench.hosts[0].namespace.in_network(connect))
                for _ in range(number)
            ]
            for number in (CALLS_MAX, 1)
        )
        card[0].sendall(Caller(bytes(32), "host0", "host1").hello())
        assert b"nonce" in card[0].recv(4096)
        assert silent[0].recv(1) == b""
        wait_until(lambda: "said nothing for 5 s" in services.log(0), "the others are told of")
        assert "hung up" not in services.log(0)
    counts = services.show(1)["handshakes"]
    assert counts["too_many"] == 1


@pytest.mark.parametrize(
    ("changes", "caller", "called"),
    [
        (
            {"pipes": 2},
            "an mtu of 1500 and 2 pipes, this host 1500 and 4",
            "an mtu of 1500 and 4 pipes, this host 1500 and 2",
        ),
        ({"control_port": 4791}, "TCP port 4790: Connection refused", ""),
        ({"key": "0f" * 32}, "do the hosts have the same key?", "do the hosts have the same key?"),
    ],
)
def test_hosts_of_different_files_both_tell_it_once(
    services: Services, changes: dict[str, Any], caller: str, called: str
) -> None:
    services.start(1, **changes)
    wait_until(lambda: services.tunnel(1) == "down", "the called host has a card")
    services.start(0)
    wait_until(lambda: caller in services.log(1), "the calling host tells it")
    wait_until(lambda: called in services.log(0), "the called host tells it")
    wait_until(
        lambda: (
            sum(services.show(0)["handshakes"].get(name, 0) for name in ("no_answer", "refused"))
            >= 3
        ),
        "there were several calls",
    )
    assert caller in services.show(0)["reasons"]["host1"]
    assert (called or "it has not called, TCP port 4791") in services.show(1)["reasons"]["host0"]
    assert services.log(1).count(caller) == 1
    assert not called or services.log(0).count(called) == 1
    assert services.tunnel(0) == "down"
    show = [DPCTL, "vnic", "show", "host0"]
    shown = spawn(services.bench.hosts[0].namespace, show, stdout=subprocess.PIPE).communicate()[0]
    assert caller.split(",")[0] in shown.decode()


def test_a_card_that_stands_still_is_told(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.start(0)
    wait_until(lambda: services.tunnel(0) == "down", "there is a card")
    card = services.show(0)["pid"]
    with monkeypatch.context() as hasty:
        hasty.setattr(watching, "_ANSWER_S", 0.5)
        _kill(services.bench, card, "-STOP")
        assert services.show(0) == {
            "host": "host0",
            "state": "no answer",
            "reason": "the card does not answer within 0.5 s",
        }
        _kill(services.bench, card, "-CONT")
    assert services.show(0)["pid"] == card


def test_no_card_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["vnic", "show", "nobody"]) == 2
    assert "no card runs here for host nobody" in capfd.readouterr().err


def test_what_keeps_a_later_card_from_its_devices_is_told_and_tried_again(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first card on: what kept it from starting would have ended the service."""
    bench = services.bench
    file = CardFile.model_validate(bench.data)
    told: list[str] = []

    class Enough(Exception):
        pass

    def tell(line: str) -> None:
        told.append(line)
        if sum("card of host0" in each for each in told) == 2:
            raise Enough

    def better(*_: object) -> str:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(serving, "_start", bench.starter(0))
    monkeypatch.setattr(GuestDevices, "better", better)
    serve = functools.partial(serving.serve, file, "host0", Path(), tell)
    with pytest.raises(Enough):
        bench.hosts[0].namespace.in_network(serve)
    why = f"{os.strerror(errno.ENOMEM)}; it is tried again until it succeeds"
    assert [line for line in told if line.endswith(why)] == [told[-2]]


def test_what_keeps_the_first_card_from_being_called_is_told(services: Services) -> None:
    address = services.bench.hosts[0].endpoint.ipv4
    listen = functools.partial(socket.create_server, (address, CONTROL_PORT))
    with services.bench.hosts[0].namespace.in_network(listen):
        assert services.start(0).wait(60) == 3
    assert f"cannot listen on {address}, TCP port {CONTROL_PORT}: Address al" in services.log(0)
    assert "control_port" in services.log(0)


def test_a_port_that_another_has_is_told_as_such(services: Services) -> None:
    """Such as Linux's vxlan device, which has the same."""
    host, address = services.bench.hosts[0].namespace, services.bench.hosts[0].endpoint.ipv4
    with host.in_network(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as other:
        other.bind((address, VXLAN_PORT))
        assert services.start(0).wait(60) == 3
    assert f"cannot have UDP port {VXLAN_PORT}: Address already in use" in services.log(0)
    assert "ip -d link show type vxlan" in services.log(0)
