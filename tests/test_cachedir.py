# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Nothing that runs is taken from a cache that another user can change."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from datapath import cachedir
from datapath.cc import cache as objects
from datapath.cc import compile_algorithm
from datapath.errors import CapabilityError
from datapath.lanes.kernels import cache as kernels
from datapath.native import paths
from datapath.xdp import user as xdp_user

STRANGER = 4711
PACKAGE = paths.PACKAGE


@pytest.fixture
def place(root: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """XDG_CACHE_HOME of the test: a folder of this user's."""
    place = tmp_path / "upper" / "cache"
    place.mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    return place


def _kernel() -> None:
    folder = cachedir.root() / "kernels" / "6.12.1-amd64"
    folder.mkdir(parents=True, exist_ok=True)
    kernels.load("6.12.1-amd64")


def _kernel_change() -> None:
    with kernels.changing(lambda _text: None):
        pass


def _headers() -> None:
    common, build = cachedir.root().parent / "common", cachedir.root().parent / "build"
    for folder in (common / "include", build / "include", build / "arch"):
        folder.mkdir(parents=True, exist_ok=True)
    xdp_user._merged_headers(common, build)


def _links() -> None:
    paths.installed_compat_dir()


# All that takes from the cache what will run, or puts it there.
USERS: dict[str, Callable[[], object]] = {
    "an algorithm": lambda: compile_algorithm("fixed", {}),
    "a kernel": _kernel,
    "a change of the kernels": _kernel_change,
    "the links of an installed front": _links,
    "headers for XDP": _headers,
}


def _belongs_to_a_stranger(part: Path) -> None:
    os.chown(part, STRANGER, STRANGER)


def _is_open_to_all(part: Path) -> None:
    part.chmod(0o777)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("kind", ["closed", "read-only"])
def test_a_home_that_cannot_be_written(tmp_path: Path, kind: str) -> None:
    """It is told what the folder is for, and doctor goes on."""
    home = tmp_path if kind == "closed" else Path("/usr")
    may = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    if subprocess.run([*may, "test", "-x", sys.executable], check=False).returncode:
        pytest.skip("the tree cannot be read by other users, so nobody else can run dpctl")
    env = {key: value for key, value in os.environ.items() if key != "XDG_CACHE_HOME"}

    def dpctl(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [*may, sys.executable, "-P", "-m", "datapath.cli", *words]
        whole = env | {"HOME": str(home), "PYTHONPATH": str(paths.ROOT)}
        return subprocess.run(argv, env=whole, capture_output=True, text=True, check=False, cwd="/")

    done = dpctl("cc", "compile", "fixed")
    assert done.returncode == 3
    assert "(compiled algorithms, guest kernels) cannot be used: " in done.stderr
    assert "XDG_CACHE_HOME" in done.stderr
    done = dpctl("doctor", "--format", "json")
    assert done.returncode == 3, done.stderr
    found = {row["about"]: row for row in json.loads(done.stdout)["rows"]}
    assert f"{home}/.cache/datapath (compiled" in found["cache"]["found"]
    assert "XDG_CACHE_HOME" in found["cache"]["mend"]
    assert found["lane sim"]["state"] == "good"


@pytest.mark.parametrize("spoil", [_belongs_to_a_stranger, _is_open_to_all])
@pytest.mark.parametrize("part", [".", "..", "datapath"])
@pytest.mark.parametrize("user", USERS)
def test_a_folder_that_others_can_change_is_refused(
    place: Path, user: str, part: str, spoil: Callable[[Path], None]
) -> None:
    USERS[user]()
    spoil(place / part)
    with pytest.raises(CapabilityError, match=r"the cache .* is not used") as caught:
        USERS[user]()
    assert str((place / part).resolve()) in str(caught.value).replace("cache/..", "")
    assert "XDG_CACHE_HOME" in caught.value.hint


@pytest.mark.parametrize("spoil", [_belongs_to_a_stranger, _is_open_to_all])
def test_an_object_that_others_can_change_is_refused(
    place: Path, spoil: Callable[[Path], None]
) -> None:
    planted = compile_algorithm("fixed", {}).path
    spoil(planted)
    with pytest.raises(CapabilityError, match=re.escape(str(planted))):
        compile_algorithm("fixed", {})


def test_a_link_of_a_stranger_is_refused(place: Path) -> None:
    compile_algorithm("fixed", {})
    (place / "datapath").rename(place / "elsewhere")
    (place / "datapath").symlink_to("elsewhere")
    assert compile_algorithm("fixed", {}).from_cache
    os.lchown(place / "datapath", STRANGER, STRANGER)
    with pytest.raises(CapabilityError, match=f"belongs to user {STRANGER}"):
        compile_algorithm("fixed", {})


def test_a_planted_link_is_not_written_through(place: Path) -> None:
    """Whoever could once write to the folder may have left a link in it."""
    victim = place / "victim"
    victim.write_text("mine")
    path = cachedir.make(objects.folder()) / "object"
    path.symlink_to(victim)
    assert objects.load(path) is None
    objects.store(path, b"code")
    assert victim.read_text() == "mine"
    assert objects.load(path) == b"code"


def test_what_is_made_is_this_users_alone(place: Path) -> None:
    before = os.umask(0)
    try:
        path = compile_algorithm("fixed", {}).path
    finally:
        os.umask(before)
    for folder in (path.parent, path.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o022 == 0


def test_a_sticky_folder_above_is_no_matter(place: Path) -> None:
    place.chmod(0o1777)
    compile_algorithm("fixed", {})
    shutil.rmtree(place / "datapath")


def test_who_uses_the_cache_has_it_checked() -> None:
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text()
        if "cachedir.root()" in text:
            assert re.search(r"cachedir\.(make|check)\(", text), f"{file} does not check"
