# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""No name from outside leads out of the folder that it is meant for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datapath.errors import RemoteError
from datapath.experiment.parallel import Answer, write_logs
from datapath.lanes.remote.files import local_target
from datapath.names import plain_name, plain_path

HOSTILE = (
    *("", ".", "..", "/", "../x", "../../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/."),
    *("a\nb", "a\0b", "\x1b[2J", "a\x7f", "a\x85b", "a\u202eb", "\ud800", "x" * 256, "a/"),
)
NAMES = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.sampled_from("./a\n\0"), max_size=12),
    st.text(max_size=300),
)


def _logs(folder: Path, name: str) -> Path:
    write_logs(folder, Answer(logs={name: b"x"}), "a worker")
    return folder / name


# Every function that makes a path of a name from outside.  What it returns has been written,
# or will be.
DOORS: dict[str, Callable[[Path, str], Path]] = {
    "plain_name": lambda folder, name: folder / plain_name(name, "a host"),
    "plain_path": lambda folder, name: folder / plain_path(name, "a host"),
    "files of a host": lambda folder, name: local_target(folder, name, "host0"),
    "logs of a worker": _logs,
}


@pytest.mark.parametrize("door", DOORS)
@given(name=NAMES)
@example("../../x")
@example("a/b")
def test_a_name_stays_in_its_folder_or_is_refused(door: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer) / "inner" / "folder"
        folder.mkdir(parents=True)
        try:
            path = DOORS[door](folder, name)
        except RemoteError:
            return
        assert path != folder
        assert path.resolve().is_relative_to(folder.resolve())
        assert path.name.isprintable()
        assert [entry.name for entry in Path(outer).iterdir()] == ["inner"]
        assert [entry.name for entry in folder.parent.iterdir()] == ["folder"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused_by_name(name: str) -> None:
    with pytest.raises(RemoteError, match="host7 names a file") as caught:
        plain_name(name, "host7")
    assert repr(name) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["a", "a b", ".hidden", "stats-host0.12.json", "größe", "..."])
def test_ordinary_names_pass(name: str) -> None:
    assert plain_name(name, "host0") == name
