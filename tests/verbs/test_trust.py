# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the front loads and writes where other users have a hand in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from datapath.cc import compile_algorithm
from tests.verbs.devices import environment

NOBODY = 65534


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """An algorithm in outer/inner/algo.so that nobody else can touch; its path."""
    path = tmp_path / "outer" / "inner" / "algo.so"
    path.parent.mkdir(parents=True)
    shutil.copyfile(compile_algorithm("fixed").path, path)
    for part in (path, path.parent, path.parent.parent):
        part.chmod(0o755)
    return path


def load(path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Opens a device with that algorithm."""
    return subprocess.run(
        ["ibv_devinfo", "-d", "dp0"],
        env={**os.environ, **environment("udp:127.0.0.1", cc=path), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def leave(_: Path) -> None:
    pass


def link_to(path: Path) -> None:
    path.rename(path.with_name("real.so"))
    path.symlink_to("real.so")


TRUSTED: dict[str, Callable[[Path], None]] = {
    "nothing special": leave,
    "a sticky folder": lambda path: path.parent.chmod(0o1777),
    "a sticky folder above": lambda path: path.parent.parent.chmod(0o1777),
    "the user's own group": lambda path: path.chmod(0o775),
    "a link": link_to,
}


@pytest.mark.parametrize("what", TRUSTED)
def test_loaded(folders: Path, what: str) -> None:
    TRUSTED[what](folders)
    done = load(folders)
    assert (done.returncode, done.stderr) == (0, "")


def give_away(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)


def open_to_a_group(path: Path) -> None:
    os.chown(path, -1, NOBODY)
    path.chmod(0o775)


def link_to_open_folder(path: Path) -> None:
    link_to(path)
    other = path.parents[2] / "open"
    other.mkdir()
    shutil.move(path.with_name("real.so"), other / "real.so")
    path.unlink()
    path.symlink_to(other / "real.so")
    other.chmod(0o777)


UNTRUSTED: dict[str, Callable[[Path], None]] = {
    "another user's file": give_away,
    "another user's folder": lambda path: give_away(path.parent),
    "another user's folder above": lambda path: give_away(path.parent.parent),
    "a file that all write": lambda path: path.chmod(0o777),
    "a folder that all write": lambda path: path.parent.chmod(0o777),
    "a folder above that all write": lambda path: path.parent.parent.chmod(0o777),
    "a file that a group writes": open_to_a_group,
    "a folder that a group writes": lambda path: open_to_a_group(path.parent),
    "a link to a folder that all write": link_to_open_folder,
}


@pytest.mark.parametrize("what", UNTRUSTED)
def test_not_loaded(root: None, folders: Path, what: str) -> None:
    UNTRUSTED[what](folders)
    done = load(folders)
    assert done.returncode != 0
    (line,) = (line for line in done.stderr.splitlines() if "libdpverbs" in line)
    assert f"cc={folders} is not loaded: " in line
    assert "belongs to user 65534" in line or "chmod go-w" in line


def test_who_became_root_by_sudo_is_trusted(root: None, folders: Path) -> None:
    for path in (folders, folders.parent):
        give_away(path)
    assert load(folders, SUDO_UID=str(NOBODY)).returncode == 0
    assert load(folders, SUDO_UID="1").returncode != 0


@pytest.mark.parametrize("suffix", [".dp0.json.new", ".dp0.json", ".dp0-0.series"])
def test_no_planted_link_is_followed(tmp_path: Path, suffix: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    script = f"ln -s {victim} {tmp_path}/s.$${suffix} && exec ibv_devinfo -d dp0"
    settings = {"DATAPATH_STATS": f"{tmp_path}/s", "DATAPATH_SERIES": f"{tmp_path}/s"}
    done = subprocess.run(
        ["sh", "-c", script],
        env={**os.environ, **environment("udp:127.0.0.1"), **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "precious"
    (stats,) = tmp_path.glob("s.*.json")
    assert not stats.is_symlink()
