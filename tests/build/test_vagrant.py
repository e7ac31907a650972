# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Vagrantfile as Vagrant reads it, and setup/provision.sh as far as it needs no machine."""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from datapath.experiment.load import load
from datapath.native.paths import ROOT
from tests.lanes.aptrepo import ARCHITECTURE, Archive

READER = Path(__file__).parent / "programs" / "vagrantfile.rb"
PROVISION = ROOT / "setup" / "provision.sh"
PROVIDERS = ("libvirt", "virtualbox")
Command = Callable[..., subprocess.CompletedProcess[str]]

providers = pytest.mark.parametrize("provider", PROVIDERS)
needs_vagrant = pytest.mark.skipif(
    shutil.which("vagrant") is None, reason="needs Debian's vagrant and vagrant-libvirt"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has our Vagrantfile alone."""
    folder = tmp_path_factory.mktemp("vagrant")
    shutil.copy(ROOT / "Vagrantfile", folder)
    return folder


@pytest.fixture(scope="module")
def vagrant(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs a program of Vagrant's with options, in that folder."""
    home = tmp_path_factory.mktemp("home")

    def run(*argv: str, **options: str) -> subprocess.CompletedProcess[str]:
        # Options of the caller's own shell would change what is read.
        own = {k: v for k, v in os.environ.items() if not k.startswith(("DATAPATH_", "VAGRANT_"))}
        given = {f"DATAPATH_VAGRANT_{name}": value for name, value in options.items()}
        return subprocess.run(
            argv,
            env=own | given | {"HOME": str(home), "VAGRANT_NO_COLOR": "1"},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def machines(vagrant: Command, folder: Path) -> Callable[..., list[dict[str, Any]]]:
    """What Vagrant makes of the file, for a provider and options; read once for all tests."""

    @functools.cache
    def read(provider: str, *, folder: Path = folder, **options: str) -> list[dict[str, Any]]:
        ruby = ("/usr/bin/ruby", "-rvagrant", str(READER))  # that of Debian's vagrant
        result = vagrant(*ruby, str(folder), provider, **options)
        assert result.returncode == 0, result.stderr
        found: list[dict[str, Any]] = json.loads(result.stdout)
        return found

    return read


@needs_vagrant
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"KERNEL": "backports", "SIW": "1"},
        {"KERNEL": "box", "MTU": "1500", "CPUS": "4", "MEMORY": "4096", "DRIVER": "qemu"},
    ],
)
def test_vagrant_finds_no_mistake(vagrant: Command, options: dict[str, str]) -> None:
    """In the keys of libvirt's provider; of others' only where they are installed."""
    result = vagrant("vagrant", "validate", **options)
    assert (result.returncode, result.stdout) == (0, "Vagrantfile validated successfully.\n"), (
        result.stderr
    )


@needs_vagrant
def test_libvirt_comes_first(vagrant: Command) -> None:
    result = vagrant("vagrant", "status", "--machine-readable")
    assert re.findall(r",(host\d),provider-name,(\w+)", result.stdout) == [
        ("host0", "libvirt"),
        ("host1", "libvirt"),
    ]


@needs_vagrant
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KERNEL", "newest"),
        ("KERNEL", "6.12; reboot"),
        ("SIW", "yes"),
        ("MTU", "9k"),
        ("CPUS", "x"),
    ],
)
def test_a_wrong_option_is_named(vagrant: Command, name: str, value: str) -> None:
    result = vagrant("vagrant", "validate", **{name: value})
    assert result.returncode != 0
    assert f"Vagrantfile: DATAPATH_VAGRANT_{name}={value} should match" in result.stderr


@needs_vagrant
@providers
def test_two_machines_on_one_private_network(
    machines: Callable[..., list[dict[str, Any]]], provider: str
) -> None:
    found = machines(provider)
    assert [(m["name"], m["hostname"]) for m in found] == [("host0", "host0"), ("host1", "host1")]
    networks = [network for m in found for network in m["networks"]]
    assert len(networks) == 2
    first, second = (ip_address(network["ip"]) for network in networks)
    assert first != second
    names = {"libvirt": "libvirt__network_name", "virtualbox": "virtualbox__intnet"}
    assert len({network[names[provider]] for network in networks}) == 1


@needs_vagrant
@providers
def test_two_clones_are_two_networks(
    machines: Callable[..., list[dict[str, Any]]], provider: str, tmp_path: Path
) -> None:
    """Their machines have the same addresses."""
    name = {"libvirt": "libvirt__network_name", "virtualbox": "virtualbox__intnet"}[provider]
    (first, _) = machines(provider)
    clone = tmp_path / "clone"
    clone.mkdir()
    shutil.copy(ROOT / "Vagrantfile", clone)
    (second, _) = machines(provider, folder=clone)
    assert first["networks"][0]["ip"] == second["networks"][0]["ip"]
    assert first["networks"][0][name] != second["networks"][0][name]


@needs_vagrant
@providers
def test_options_reach_the_machine(
    machines: Callable[..., list[dict[str, Any]]], provider: str
) -> None:
    options = {"KERNEL": "6.1", "SIW": "1", "MTU": "4000", "CPUS": "3", "MEMORY": "1024"}
    for machine in machines(provider, BOX="some/box", **options):
        address = machine["networks"][0]["ip"]
        wanted = f"6.1 1 {address} 4000"
        assert [(p["name"], p["inline"], p["reboot"]) for p in machine["provisioners"]] == [
            ("set-up", f"/vagrant/setup/provision.sh set-up {wanted}", True),
            ("check", f"/vagrant/setup/provision.sh check {wanted}", False),
        ]
        assert machine["box"] == "some/box"
        assert sizes(machine["provider"]) == (3, 1024)


def sizes(settings: dict[str, Any]) -> tuple[int, int]:
    """CPUs and MiB; VirtualBox's provider keeps them as arguments of VBoxManage."""
    if "customizations" not in settings:
        return settings["cpus"], settings["memory"]
    given = {command[2]: command[3] for _, command in settings["customizations"]}
    return int(given["--cpus"]), int(given["--memory"])


@needs_vagrant
def test_devices_are_virtio(machines: Callable[..., list[dict[str, Any]]]) -> None:
    assert {m["provider"]["nic_model_type"] for m in machines("libvirt")} == {"virtio"}
    assert {m["provider"]["default_nic_type"] for m in machines("virtualbox")} == {"virtio"}


@needs_vagrant
def test_backports_get_what_zero_copy_needs(
    machines: Callable[..., list[dict[str, Any]]],
) -> None:
    (plain, _), (zero_copy, _) = machines("libvirt"), machines("libvirt", KERNEL="backports")
    assert not plain["networks"][0]["libvirt__driver_iommu"]
    assert plain["networks"][0]["libvirt__mtu"] == 9000
    assert zero_copy["networks"][0]["libvirt__driver_iommu"]
    assert zero_copy["networks"][0]["libvirt__mtu"] == 3500
    assert zero_copy["provider"]["machine_type"] == "q35"
    assert (plain["box"], zero_copy["box"]) == ("debian/bookworm64", "debian/trixie64")


@needs_vagrant
def test_what_a_machine_makes_is_not_overwritten(
    machines: Callable[..., list[dict[str, Any]]],
) -> None:
    """Environment and builds are the machine's own, so they are left out of the copy."""
    (machine, _) = machines("libvirt")
    folder = machine["folders"]["/vagrant"]
    assert folder["type"] == "rsync"
    patterns = [pattern.rstrip("/") for pattern in folder["rsync__exclude"]]
    ignored = [
        line.rstrip("/")
        for line in (ROOT / ".gitignore").read_text().splitlines()
        if line.startswith("/")
    ]
    assert len(ignored) > 3
    assert [i for i in ignored if not any(fnmatch.fnmatch(i, p) for p in patterns)] == []
    assert "/tests" not in " ".join(patterns)
    assert all(p.startswith("/") for p in patterns if "pycache" not in p)  # tests/build is copied


def test_the_experiment_of_the_page_is_valid(tmp_path: Path) -> None:
    """docs/vagrant.md's, with the names of the machines that the Vagrantfile makes."""
    (text,) = re.findall(
        r"^```yaml\n(.*?)^```", (ROOT / "docs" / "vagrant.md").read_text(), re.DOTALL | re.MULTILINE
    )
    path = tmp_path / "vagrant.yaml"
    path.write_text(text)
    (tmp_path / "ssh-config").touch()
    machines = load(path).spec.topology.machines
    assert [machine.ssh for machine in machines] == ["host0", "host1"]


# ---- setup/provision.sh ---------------------------------------------------------------


def bash(line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A line of bash with provision.sh's functions."""
    return subprocess.run(
        ["/bin/bash", "-c", f". {PROVISION}; {line}"],
        env={**os.environ, "LC_ALL": "C", **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [[], ["reboot"], ["set-up", "6.12", "1"], ["check"]])
def test_a_wrong_call_is_refused(arguments: list[str]) -> None:
    result = subprocess.run([PROVISION, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert "dpctl: next: see the Vagrantfile" in result.stderr


@pytest.fixture
def apt(tmp_path: Path) -> tuple[Archive, dict[str, str]]:
    """An archive, and the environment in which the real apt knows it and nothing else."""
    archive = Archive(tmp_path)
    return archive, archive.isolate()


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("6.12", f"6.12.117+deb12-{ARCHITECTURE}"),
        ("6.1", f"6.1.0-50-{ARCHITECTURE}"),
        ("6.12.99", f"6.12.99+deb12-{ARCHITECTURE}"),
        ("[0-9]+", f"7.2.12+deb13-{ARCHITECTURE}"),
        ("6.2", ""),
    ],
)
def test_newest_release_of_a_version(
    apt: tuple[Archive, dict[str, str]], version: str, release: str
) -> None:
    archive, environment = apt
    for name in (
        *("6.1.0-9", "6.1.0-50", "6.12", "6.12.99+deb12", "6.12.117+deb12", "7.2.12+deb13"),
        *("6.12.200+deb12-cloud", "6.12.200+deb12-rt", "6.12.200+deb12-dbg"),
    ):
        archive.add("stable", f"linux-image-{name}-{ARCHITECTURE}", "1")
    archive.publish("stable")
    result = bash(f"apt-get update -q >/dev/null && newest_release '{version}'", **environment)
    assert (result.returncode, result.stdout.strip()) == (0, release), result.stderr
