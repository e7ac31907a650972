# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is made of a guest's console, and what of this machine guests see; none is booted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from datapath.errors import CapabilityError
from datapath.lanes.accel import Accelerator
from datapath.lanes.guest import Guest, GuestConfig, check_seen
from datapath.lanes.kernels import Kernel
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from datapath.lanes.vm import VmNetwork
from tests.waiting import wait_for_words

KERNEL = Kernel("6.12.1-amd64", Path("/none"), Path("/none"), None, "")
EARLIER = "[    5.0] Kernel panic - not syncing: of an earlier boot\n"


class Script(GuestConfig):
    """A guest that is a shell."""

    def argv(self, public_key: str) -> list[str]:
        return ["sh", "-c", "echo booting; exec sleep 1000"]


@pytest.fixture
def network(root: None) -> Iterator[NetnsNetwork]:
    with NetnsNetwork(Topology(), "none") as network:
        yield network


@contextmanager
def started(network: NetnsNetwork, logs: Path) -> Iterator[Guest]:
    accelerator = Accelerator(1, (), (), "", emulated=True)
    config = Script("host0", KERNEL, 1, 2**30, accelerator, (), "")
    guest = Guest(config, network.hosts[0].namespace, "", logs, logs)
    try:
        wait_for_words(logs / "host0.console", "booting")
        yield guest
    finally:
        guest.kill()
        guest.wait()


def test_a_console_of_an_earlier_run_says_nothing_of_this_one(
    network: NetnsNetwork, tmp_path: Path
) -> None:
    """Neither its words nor its time count; nor does a clock that is set."""
    console = tmp_path / "host0.console"
    console.write_text(EARLIER)
    with started(network, tmp_path) as guest:
        os.utime(console, (0, 0))
        assert guest.stuck(100) == ""
        assert guest.last_words() == "booting"


def test_a_boot_that_did_not_end_well_says_nothing_of_the_next(
    network: NetnsNetwork, tmp_path: Path
) -> None:
    with started(network, tmp_path) as guest:
        os.write(guest.console.fileno(), EARLIER.encode())
        assert "an earlier boot" in guest.last_words()
        guest.restart("it has ended")
        wait_for_words(tmp_path / "host0.console", "started again\nbooting")
        assert guest.last_words() == "booting"


def test_silence_is_noticed(network: NetnsNetwork, tmp_path: Path) -> None:
    with started(network, tmp_path) as guest:
        guest.stuck(0)
        assert guest.stuck(0) == "it said nothing for 0 s"
        os.write(guest.console.fileno(), b"words\n")
        assert guest.stuck(100) == ""


@pytest.mark.parametrize("path", ["/dev/shm/r", "/var/tmp/clone", "/var/cache", "/run/x/y"])
def test_folders_that_guests_do_not_see(path: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    for folder in (Path(path), link):
        with pytest.raises(CapabilityError, match=f"do not see results in {folder}") as caught:
            check_seen("results in", folder, "another")
        assert caught.value.hint == "another"
    for seen in (tmp_path, Path("/var/lib/x"), Path("/var/tmpx")):
        check_seen("results in", seen, "another")


def test_a_network_of_guests_asks_for_folders_that_they_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = Topology(lane="vm", kernel="6.12")
    with pytest.raises(CapabilityError, match="results in /dev/shm/r") as caught:
        VmNetwork(topology, logs=Path("/dev/shm/r/logs"))
    assert "--out" in caught.value.hint
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    with pytest.raises(CapabilityError, match="the cache /var/cache/me/datapath") as caught:
        VmNetwork(topology, logs=tmp_path)
    assert "XDG_CACHE_HOME" in caught.value.hint
