# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Kernels come whole or not at all: the real apt and dpkg on a small archive of our own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from datapath.errors import CapabilityError
from datapath.lanes import kernels
from datapath.lanes.kernels import cache
from datapath.native.paths import ROOT
from tests.lanes.aptrepo import ARCHITECTURE, Archive

NOBODY = 65534
OLDER = f"6.12.9+deb99-{ARCHITECTURE}"
OWN = f"6.12.10+deb99-{ARCHITECTURE}"
OTHER = f"6.1.0-7-{ARCHITECTURE}"
NEW = f"7.2.1+deb13-{ARCHITECTURE}"
BACKPORTS = "trixie-backports"


def quiet(_: str) -> None:
    """Progress that nobody reads."""


def add_old(archive: Archive, release: str, version: str) -> Path:
    """An image as Debian built it up to 6.19: one package."""
    return archive.add(
        "stable",
        f"linux-image-{release}",
        version,
        {
            f"boot/vmlinuz-{release}": f"image of {release}",
            f"boot/System.map-{release}": "map",
            f"lib/modules/{release}/kernel/note": "a module would be here",
            f"lib/modules/{release}/modules.order": "",
            f"lib/modules/{release}/modules.builtin": "kernel/fs/ext4/ext4.ko\n",
            "usr/share/doc/linux/copyright": "text",
        },
        depends="kmod, linux-initramfs-tool | initramfs-tools (>= 0.120)",
    )


def add_new(archive: Archive, release: str, version: str) -> list[Path]:
    """An image as Debian builds it since 7.0: an empty package with three others."""
    modules = f"usr/lib/modules/{release}"
    base = f"linux-base-{release} (= {version})"
    files = {
        "binary": {f"{modules}/vmlinuz": f"image of {release}"},
        "modules": {f"{modules}/kernel/note": "a module would be here"},
        "base": {f"{modules}/modules.order": "", f"{modules}/modules.builtin": ""},
    }
    parts = ", ".join(f"linux-{part}-{release} (= {version})" for part in files)
    debs = [archive.add(BACKPORTS, f"linux-image-{release}", version, depends=f"kmod, {parts}")]
    for part, content in files.items():
        depends = "" if part == "base" else f"{base}, kmod"
        name = f"linux-{part}-{release}"
        debs.append(archive.add(BACKPORTS, name, version, content, depends=depends))
    return debs


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path)
    add_old(made, OLDER, "6.12.9-1")
    add_old(made, OWN, "6.12.10-1")
    add_old(made, OTHER, "6.1.7-1")
    for flavour in ("cloud", "rt"):
        made.add("stable", f"linux-image-6.12.11+deb99-{flavour}-{ARCHITECTURE}", "6.12.11-1")
    made.add("stable", f"linux-image-6.12-{ARCHITECTURE}", "6.12.10-1")
    made.add("stable", f"linux-image-6.12.10+deb99-{ARCHITECTURE}-dbg", "6.12.10-1")
    add_new(made, NEW, "7.2.1-1")
    made.publish("stable", "trixie", BACKPORTS)
    return made


@pytest.fixture
def home(tmp_path: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernels' folder of a cache of this test's own; apt knows `archive` and nothing else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("APT_CONFIG", str(archive.config))
    return tmp_path / "cache/datapath/kernels"


def visible(home: Path) -> list[str]:
    """Names in the kernels' folder, unfinished ones too, without lock and lists."""
    return sorted(path.name for path in home.iterdir() if path.name not in (".apt", ".lock"))


@pytest.mark.usefixtures("home")
def test_newest_generic_release_of_a_prefix() -> None:
    kernel = kernels.install("6.12", quiet)
    assert kernel.release == OWN
    assert kernel.vmlinuz.read_text() == f"image of {OWN}"
    assert kernels.find("6.12") == kernels.find(OWN) == kernel
    assert kernels.installed() == [kernel]


@pytest.mark.usefixtures("home")
def test_ensure_takes_what_is_there_before_it_asks_for_more() -> None:
    said: list[str] = []
    older = kernels.install(OLDER, quiet)
    assert kernels.ensure("6.12", said.append) == older
    assert said == []
    assert kernels.ensure("6.1", said.append).release == OTHER
    assert "no kernel 6.1 is installed" in said[0]


def test_layout(home: Path) -> None:
    """As virtme-ng wants it: modules in lib/modules below a folder above the image."""
    kernel = kernels.install("6.12", quiet)
    tree = home / OWN
    assert kernel.vmlinuz == tree / f"boot/vmlinuz-{OWN}"
    assert kernel.modules == tree / f"lib/modules/{OWN}"
    assert (kernel.modules / "kernel/note").is_file()
    assert (kernel.modules / "modules.dep.bin").is_file()
    assert sorted(path.name for path in tree.iterdir()) == ["boot", "kernel.json", "lib"]
    assert visible(home) == [OWN]
    assert not list(home.rglob("*.deb"))
    record = json.loads((tree / "kernel.json").read_text())
    assert record["packages"] == {f"linux-image-{OWN}": "6.12.10-1"}


def test_image_in_several_packages(home: Path) -> None:
    kernel = kernels.install("backports", quiet)
    assert kernel.release == NEW
    assert kernel.vmlinuz == home / NEW / f"boot/vmlinuz-{NEW}"
    assert kernel.vmlinuz.read_text() == f"image of {NEW}"
    assert (kernel.modules / "kernel/note").is_file()
    assert (kernel.modules / "modules.dep").is_file()
    record = json.loads((home / NEW / "kernel.json").read_text())
    parts = ("base", "binary", "image", "modules")
    assert sorted(record["packages"]) == [f"linux-{part}-{NEW}" for part in parts]
    assert kernels.find("backports") == kernels.find("7.2") == kernel


@pytest.mark.usefixtures("home")
def test_backports_serve_what_the_own_suites_lack() -> None:
    assert kernels.install(NEW, quiet).backport
    assert not kernels.install("6.1", quiet).backport
    with pytest.raises(CapabilityError, match=r"no generic kernel 6\.3"):
        kernels.install("6.3", quiet)


@pytest.mark.usefixtures("home")
def test_what_could_be_installed() -> None:
    assert kernels.available(quiet) == [
        (OTHER, False),
        (OLDER, False),
        (OWN, False),
        (NEW, True),
    ]


@pytest.mark.usefixtures("home")
def test_without_source_there_is_a_kernel_and_a_reason() -> None:
    kernel = kernels.install("6.12", quiet)
    assert kernel.siw is None
    assert f"linux-headers-{OWN}" in kernel.siw_reason
    left_out = kernels.install("6.1", quiet, with_siw=False)
    assert left_out.siw is None
    assert "left out" in left_out.siw_reason


def test_one_that_is_there_is_not_fetched_again(home: Path, archive: Archive) -> None:
    first = kernels.install("6.12", quiet)
    shutil.rmtree(archive.folder / "pool")
    assert kernels.install("6.12", quiet) == first
    with pytest.raises(CapabilityError):
        kernels.install("6.12", quiet, again=True)
    assert kernels.find("6.12") == first
    assert visible(home) == [OWN]


@pytest.mark.usefixtures("home")
def test_one_that_is_installed_again_is_there_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the old one's files are deleted."""
    first = kernels.install("6.12", quiet, with_siw=False)
    seen = []
    real = cache.unfinished

    @contextlib.contextmanager
    def watched(place: Path) -> Iterator[Path]:
        with real(place) as work:
            yield work
            seen.append(cache.load(OWN))

    monkeypatch.setattr(cache, "unfinished", watched)
    assert kernels.install("6.12", quiet, with_siw=False, again=True) == first
    assert seen == [first, first]


def test_damaged_download_leaves_nothing(home: Path, archive: Archive) -> None:
    """Same length, other content: apt sees it by the digest."""
    deb = archive.folder / "pool" / f"linux-image-{OWN}_6.12.10-1.deb"
    data = bytearray(deb.read_bytes())
    data[-1] ^= 1
    deb.write_bytes(data)
    with pytest.raises(CapabilityError) as caught:
        kernels.install("6.12", quiet)
    assert "apt-get" in str(caught.value)
    assert caught.value.hint
    assert visible(home) == []
    with pytest.raises(CapabilityError) as missing:
        kernels.find("6.12")
    assert missing.value.hint == "dpctl kernel install 6.12"


def test_missing_part_leaves_nothing(home: Path, archive: Archive) -> None:
    next((archive.folder / "pool").glob("linux-modules-7*")).unlink()
    with pytest.raises(CapabilityError):
        kernels.install("backports", quiet)
    assert visible(home) == []


def test_package_without_image(home: Path, archive: Archive) -> None:
    release = f"6.20.1+deb99-{ARCHITECTURE}"
    archive.add("stable", f"linux-image-{release}", "1", {"boot/other": "no image"})
    archive.publish("stable")
    with pytest.raises(CapabilityError, match="have no kernel modules"):
        kernels.install("6.20", quiet)
    assert visible(home) == []


@pytest.mark.parametrize("name", ["6.12", "backports"])
def test_archive_without_signature_is_refused(home: Path, archive: Archive, name: str) -> None:
    archive.trust(trusted=False)
    with pytest.raises(CapabilityError, match="not signed"):
        kernels.install(name, quiet)
    assert visible(home) == []


@pytest.mark.usefixtures("root")
def test_full_disk_leaves_nothing(home: Path, archive: Archive) -> None:
    release = f"6.20.1+deb99-{ARCHITECTURE}"
    archive.add(
        "stable",
        f"linux-image-{release}",
        "1",
        {f"boot/vmlinuz-{release}": "image", f"lib/modules/{release}/modules.order": ""},
        size=20 << 20,
    )
    archive.publish("stable")
    home.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(home)], check=True)
    try:
        with pytest.raises(CapabilityError):
            kernels.install("6.20", quiet)
        assert visible(home) == []
        assert kernels.install("6.12", quiet).release == OWN
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_unfinished_work_of_a_killed_dpctl_is_cleared(home: Path) -> None:
    (home / f"{cache._UNFINISHED}dead/tree").mkdir(parents=True)
    kernels.install("6.12", quiet, with_siw=False)
    assert visible(home) == [OWN]


def test_tree_without_its_record_does_not_count(home: Path) -> None:
    kernel = kernels.install("6.12", quiet, with_siw=False)
    (home / OWN / "kernel.json").unlink()
    assert kernels.installed() == []
    assert kernels.install("6.12", quiet, with_siw=False) == kernel


def dpctl(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "datapath.cli", "kernel", *arguments]


def test_two_at_once(home: Path) -> None:
    """The second waits, and then finds the work done."""
    home.mkdir(parents=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = [
            subprocess.Popen(
                dpctl("install", "6.12", "--format", "json"),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for process in both:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("waiting for another dpctl")
        assert visible(home) == []
    told = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert told[0][0] == told[1][0]
    assert sum(err.count(f"downloading {OWN}") for _, err in told) == 1
    assert visible(home) == [OWN]


def test_remove(home: Path) -> None:
    for name in (OLDER, OWN, "backports"):
        kernels.install(name, quiet, with_siw=False)
    assert kernels.remove("backports", quiet) == [NEW]
    assert kernels.remove("6.12", quiet) == [OLDER, OWN]
    assert visible(home) == []
    with pytest.raises(CapabilityError, match=r"no kernel 6\.12"):
        kernels.remove("6.12", quiet)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter; pytest's own are for root only."""
    with tempfile.TemporaryDirectory(prefix="datapath-kernels-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.usefixtures("root")
def test_no_root_is_needed(open_folder: Path) -> None:
    archive = Archive(open_folder)
    add_old(archive, OWN, "6.12.10-1")
    archive.publish("stable")
    cache_folder = open_folder / "cache"
    cache_folder.mkdir()
    os.chown(cache_folder, NOBODY, NOBODY)
    environment = {"XDG_CACHE_HOME": str(cache_folder), "APT_CONFIG": str(archive.config)}
    package = open_folder / "datapath"
    shutil.copytree(ROOT / "datapath/lanes/kernels", package / "lanes/kernels")
    for name in ("cachedir.py", "errors.py", "privileges.py"):
        shutil.copy(ROOT / "datapath" / name, package)
    code = (
        f"import sys; sys.path.insert(0, {str(open_folder)!r})\n"
        "from datapath.lanes import kernels\n"
        "print(kernels.install('6.12', lambda text: None, with_siw=False).release)"
    )
    done = subprocess.run(
        ["/usr/bin/python3", "-c", code],
        user=NOBODY,
        cwd="/",
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == OWN, done.stderr


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CapabilityError) as caught:
        kernels.install("6.12", quiet)
    assert "XDG_CACHE_HOME" in caught.value.hint
