# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is wrong with a file of virtual cards is told before anything runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from datapath.cli.app import run
from datapath.native.paths import ROOT
from datapath.vnic.spec import GUESTS_MAX, HOSTS_MAX, LOCAL_MAX, RATE_MAX, CardFile
from tests.vnic.bench import write_file


def card_file() -> dict[str, Any]:
    guest = {"host": "a", "device": "tap0", "mac": "02:00:00:00:00:01", "ipv4": "10.0.0.1"}
    return {
        "version": 1,
        "key": "0f" * 32,
        "hosts": {"a": {"address": "127.0.0.1"}, "b": {"address": "203.0.113.9"}},
        "tenants": {"blue": {"vni": 7, "guests": [guest]}},
    }


def test_the_largest_rate_is_the_cards() -> None:
    text = (ROOT / "datapath" / "vnic" / "control.c").read_text()
    (most,) = re.findall(r"#define RATE_MAX (\d+)ull", text)
    assert int(most) == RATE_MAX


@pytest.mark.parametrize(
    ("name", "most"),
    [("HOSTS_MAX", HOSTS_MAX), ("GUESTS_MAX", GUESTS_MAX), ("LOCAL_MAX", LOCAL_MAX)],
)
def test_the_most_hosts_and_guests_are_the_cards(name: str, most: int) -> None:
    text = (ROOT / "datapath" / "vnic" / "card.h").read_text()
    assert re.findall(rf"\b{name} = (\d+),", text) == [str(most)]


def large_file(guests: int) -> dict[str, Any]:
    """Of so many guests on 256 hosts, with all that a guest has."""
    data = card_file()
    data["hosts"] = {f"host{i}": {"address": f"203.0.{i}.9"} for i in range(HOSTS_MAX)}
    data["tenants"]["blue"]["guests"] = [
        {
            "host": f"host{i % HOSTS_MAX}",
            "device": f"tap{i // HOSTS_MAX}",
            "mac": f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}",
            "ipv4": f"10.0.{i >> 8}.{i & 255 or 200}" if i & 255 != 200 else None,
            "ipv6": f"fd00::{i + 1:x}",
        }
        for i in range(guests)
    ]
    return data


def test_more_guests_than_all_cards_know_are_told_with_their_place() -> None:
    CardFile.model_validate(large_file(GUESTS_MAX))
    with pytest.raises(ValidationError) as caught:
        CardFile.model_validate(large_file(GUESTS_MAX + 1))
    (error,) = caught.value.errors()
    assert error["msg"] == f"with this one, there are more than {GUESTS_MAX} guests"
    assert error["ctx"]["place"] == ("tenants", "blue", "guests", GUESTS_MAX)


def test_a_file_may_have_more_values_than_an_experiment(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    error = refused(capfd, tmp_path, large_file(1000))
    assert "has no host nobody" in error


def test_more_guests_than_a_card_takes_are_told_with_their_place(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = card_file()
    guests = [
        {"host": host, "mac": f"02:00:00:00:{i:02x}:{number:02x}", "device": f"tap{number}"}
        for number in range(LOCAL_MAX)
        for i, host in enumerate("ab")
    ]
    data["tenants"]["blue"]["guests"] = guests
    CardFile.model_validate(data)
    guests.append({"host": "b", "mac": "02:00:00:00:02:00"})
    error = refused(capfd, tmp_path, data)
    assert f"tenants.blue.guests[{2 * LOCAL_MAX}].host: b has more than {LOCAL_MAX} guests" in error


def refused(capfd: pytest.CaptureFixture[str], folder: Path, data: dict[str, Any]) -> str:
    # A file that is taken by mistake begins no card.
    assert run(["vnic", "run", str(write_file(folder, data)), "--host", "nobody"]) == 2
    return capfd.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ({"key": "secret"}, "64 hexadecimal digits in quotes, and has 6 characters, 3 of them no"),
        ({"kye": "0f"}, "did you mean key"),
        ({"mtu": "20KiB"}, "at most 9000B"),
        ({"hosts": {"b": {"address": "203.0.113.9"}}}, "guests[0].host: no host 'a'"),
        ({"classes": {"a": {"weight": 2}}}, "classes.a: every class but other has ports"),
        ({"classes": {"other": {"udp": [7]}}}, "classes.other: every class but other has ports"),
        ({"recover": {"udp": [70000]}}, "recover.udp[0]"),
        ({"rate": "99999999tbit"}, "rate: '99999999tbit': it should be at most 10tbit"),
        ({"classes": {"other": {"max_rate": "11tbit"}}}, "classes.other.max_rate"),
        ({"hosts": {"a": {"address": "0.0.0.0"}}}, "hosts.a.address"),
        ({"hosts": {"a": {"address": "fe80::5%n0"}}}, "fe80::5%n0 names a device"),
    ],
)
def test_a_wrong_file_is_told_with_its_place(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, spoil: dict[str, Any], told: str
) -> None:
    error = refused(capfd, tmp_path, card_file() | spoil)
    assert told in error
    assert "cards.yaml" in error


def _tenant(number: int, device: str, **changes: Any) -> dict[str, Any]:
    guest = {"host": "a", "device": device, "mac": f"02:00:00:00:00:0{number}"}
    return {"vni": number, "min_rate": "600mbit", "guests": [guest], **changes}


def _link_local_twice() -> dict[str, Any]:
    """An address of the second guest is the one that the first one's MAC makes, as is its own."""
    own = {"host": "a", "device": "t1", "mac": "02:00:00:00:00:01", "ipv6": "fe80::ff:fe00:1"}
    return {"vni": 1, "guests": [own, own | {"device": "t2", "mac": "02:00:00:00:00:02"}]}


@pytest.mark.parametrize(
    ("spoil", "second", "text", "first"),
    [
        (
            {"hosts": {"a": {"address": "203.0.113.9"}, "b": {"address": "203.0.113.9"}}},
            "hosts.b.address",
            "address 203.0.113.9 is there twice",
            "hosts.a.address",
        ),
        (
            {"hosts": {"a": {"address": "203.0.113.9"}, "b": {"address": "fd00::9"}}},
            "hosts.b.address",
            "all hosts have addresses of one family, and the first one's is IPv4",
            "hosts.a.address",
        ),
        (
            {"tenants": {"blue": _link_local_twice()}},
            "tenants.blue.guests[1].ipv6",
            "address fe80::ff:fe00:1 is there twice",
            "tenants.blue.guests[0].mac",
        ),
        (
            {"classes": {"x": {"udp": [4, 5]}, "y": {"udp": [6, 5]}}},
            "classes.y.udp[1]",
            "port udp 5 is there twice",
            "classes.x.udp[1]",
        ),
        (
            {"tenants": {"blue": _tenant(1, "t1"), "red": _tenant(2, "t2", vni=1)}},
            "tenants.red.vni",
            "vni 1 is there twice",
            "tenants.blue.vni",
        ),
        (
            {"tenants": {"blue": _tenant(1, "t1"), "red": _tenant(2, "t1")}},
            "tenants.red.guests[0].device",
            "device t1 of a is there twice",
            "tenants.blue.guests[0].device",
        ),
        (
            {"rate": "1gbit", "tenants": {"blue": _tenant(1, "t1"), "red": _tenant(2, "t2")}},
            "tenants.red.min_rate",
            "with this one, the min_rate of all tenants together is more than rate",
            "rate",
        ),
    ],
)
def test_an_error_about_two_places_has_the_second_and_names_the_first(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    spoil: dict[str, Any],
    second: str,
    text: str,
    first: str,
) -> None:
    error = refused(capfd, tmp_path, card_file() | spoil)
    found = re.search(r"cards\.yaml:(\d+):\d+: (.*); see (.*) in line (\d+)", error)
    assert found, error
    assert found[2] == f"{second}: {text}"
    assert found[3] == first
    numbers = {int(found[1]), int(found[4])}
    assert len(numbers) == 2
    assert min(numbers) > 1


def test_an_unknown_algorithm_is_named(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write_file(tmp_path, card_file() | {"cc": {"algo": "no-such"}})
    assert run(["vnic", "run", str(file)]) == 2
    assert "no-such" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ({"mac": "00:00:00:00:00:00"}, "no guest's link address"),
        ({"mac": "01:00:5e:00:00:01"}, "a multicast address"),
        ({"ipv4": "224.0.0.5"}, "224.0.0.5 is not the address of one host"),
        ({"ipv4": "0.0.0.0"}, "0.0.0.0 is not"),
        ({"ipv4": "255.255.255.255"}, "255.255.255.255 is not"),
        ({"ipv6": "ff02::1"}, "ff02::1 is not"),
        ({"ipv6": "::"}, ":: is not"),
        ({"ipv6": "::ffff:10.0.0.9"}, "is the IPv4 address 10.0.0.9"),
        ({"ipv6": "fe80::1%eth0"}, "fe80::1%eth0 names a device: leave out %eth0"),
        ({"device": "lo"}, "lo is no guest's device"),
    ],
)
def test_a_guest_that_cannot_be_is_told_with_its_place(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, spoil: dict[str, str], told: str
) -> None:
    data = card_file()
    data["tenants"]["blue"]["guests"][0] |= spoil
    error = refused(capfd, tmp_path, data)
    assert told in error
    assert f"tenants.blue.guests[0].{next(iter(spoil))}" in error


@pytest.mark.parametrize("key", ["94fc" * 15, "94fc" * 17, "94fcx" * 13, 94_949_494, ["94fc94fc"]])
def test_no_error_shows_the_key(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, key: object
) -> None:
    error = refused(capfd, tmp_path, card_file() | {"key": key})
    assert "key: it should be 64 hexadecimal digits in quotes" in error
    assert "94" not in error.replace(str(tmp_path), "")


def test_addresses_of_a_tenant_are_its_guests_own(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = card_file()
    twin = data["tenants"]["blue"]["guests"][0] | {"mac": "02:00:00:00:00:02", "device": "tap1"}
    data["tenants"]["blue"]["guests"].append(twin)
    assert "10.0.0.1 is there twice" in refused(capfd, tmp_path, data)


def test_a_key_that_others_can_read_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write_file(tmp_path, card_file())
    path.chmod(0o644)
    assert run(["vnic", "run", str(path)]) == 2
    assert f"chmod 600 {path}" in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a card does")
def test_a_device_that_is_not_there_is_named(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["vnic", "run", str(write_file(tmp_path, card_file()))]) == 3
    assert "tap0" in capfd.readouterr().err


def test_what_is_no_file_of_cards_is_told_as_such(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    empty, large = tmp_path / "empty.cards", tmp_path / "large.cards"
    empty.touch()
    large.write_text("x" * (2**20 + 1))
    told = {}
    for path in (empty, large, tmp_path / "none", tmp_path):
        assert run(["vnic", "run", str(path)]) == 2
        told[path] = capfd.readouterr().err.replace("\n", " ")
        assert "experiment" not in told[path]
    assert "not a file of virtual cards: the file is not a mapping" in told[empty]
    assert "`version: 1` and `key: ...`" in told[empty]
    assert "no such file hint: name a file of virtual cards" in told[tmp_path / "none"]
    assert "is a folder hint: name a file of virtual cards in it" in told[tmp_path]
