# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tests/fresh/run.sh, with a Debian of a dozen programs in place of what debootstrap makes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datapath.cli import selftest
from datapath.native import paths
from tests.lanes.aptrepo import Archive

RUN = paths.ROOT / "tests" / "fresh" / "run.sh"
PROGRAMS = ("bash", "cat", "chmod", "env", "ls", "mkdir", "rmdir", "sleep", "touch", "umount")
Fresh = Callable[..., "subprocess.Popen[str]"]


def make_small_root(folder: Path) -> None:
    """The programs and the libraries that they name."""
    for name in ("dev", "etc/apt/apt.conf.d", "etc/apt/sources.list.d", "proc", "sys", "usr/bin"):
        (folder / name).mkdir(parents=True)
    (folder / "bin").symlink_to("usr/bin")
    found = [Path(shutil.which(name) or name).resolve() for name in PROGRAMS]
    for path, name in zip(found, PROGRAMS, strict=True):
        shutil.copy(path, folder / "usr/bin" / name)
    told = subprocess.run(["ldd", *found], capture_output=True, text=True, check=True).stdout
    for library in sorted(set(re.findall(r"(/\S+\.so\S*) \(", told))):
        target = folder / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    certificates = folder / "usr/bin/update-ca-certificates"
    certificates.write_text("#!/bin/bash\n")
    certificates.chmod(0o755)


@pytest.fixture
def fresh(root: None, tmp_path: Path) -> Iterator[Fresh]:
    """fresh(ARGUMENT...) starts run.sh with folders in tmp_path, where base-trixie is made."""
    if not (paths.ROOT / ".git").exists():
        pytest.skip("needs a clone: what is not tracked by git cannot be cloned")
    make_small_root(tmp_path / "base-trixie")
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            # A shell cannot trap SIGINT that whoever started the tests had ignored.
            ["env", "--default-signal", RUN, *arguments],
            env={**os.environ, "FRESH_FOLDER": str(tmp_path), "PIP_FOR_TEST": "1", "OTHER": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
        program.communicate()
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def processes(word: str) -> list[int]:
    """Of those that have this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in path.read_text().split("\0"):
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def wait_for(condition: Callable[[], object]) -> None:
    """Without a limit of its own: the test has one."""
    while not condition():
        time.sleep(0.02)


LOOK = """
    ignored() { while read -r name value; do [ "$name" != SigIgn: ] || echo "$value"; done; }
    [ -e README.md ] && [ -e dpctl ] && echo cloned
    [ -e build ] || echo unbuilt
    while read -r _ _ _ _ place _; do [ "$place" != / ] || echo mount; done </proc/self/mountinfo
    cat /proc/self/status | ignored
    echo "$HOME $PIP_FOR_TEST${OTHER-}"
    cat /etc/resolv.conf
"""


def test_lines_run_on_a_machine_of_their_own(fresh: Fresh, tmp_path: Path) -> None:
    """Which is gone afterwards; a line that fails is told, and the next one runs."""
    later = "echo $PWD; read -r line </proc/1/cmdline; mkdir results; touch results/one; exit 7"
    program = fresh("--command", LOOK, "--command", later, "--command", "ls results", "trixie")
    out, told = program.communicate()
    lines = out.splitlines()
    assert lines[:3] == ["cloned", "unbuilt", "mount"]
    assert int(lines[3], 16) == 0, "an ignored SIGINT would be ignored by all programs"
    assert lines[4] == "/root 1"
    assert lines[5:-2] == Path("/etc/resolv.conf").read_text().splitlines()
    assert lines[-2:] == ["/root/datapath", "one"]
    assert re.search(r"exit 7: status 7 after \d+ s", told)
    assert re.search(r"ls results: status 0 after \d+ s", told)
    assert program.returncode == 1
    assert (tmp_path / "results-trixie/one").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "base-trixie",
        "lock-trixie",
        "log-trixie",
        "results-trixie",
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_it(fresh: Fresh, tmp_path: Path, number: signal.Signals) -> None:
    mark = f"{os.getpid()}{number:02}99"
    program = fresh("--command", f"sleep {mark} & sleep {mark}; true", "trixie")
    wait_for(lambda: len(processes(mark)) == 2)
    program.send_signal(number)
    program.communicate()
    wait_for(lambda: not processes(mark))
    assert (tmp_path / "machine-trixie").exists() == (number == signal.SIGKILL)
    again = fresh("--command", "ls", "trixie")
    _, told = again.communicate()
    assert again.returncode == 0, told
    assert not (tmp_path / "machine-trixie").exists()


def test_a_kept_machine_goes_on(fresh: Fresh, tmp_path: Path) -> None:
    """With the files that were left there, and one run at a time."""
    first = fresh("--keep", "--command", "touch left; echo there; sleep 1000", "trixie")
    assert first.stdout is not None
    assert first.stdout.readline() == "there\n"
    second = fresh("--keep", "trixie")
    assert "another run has the machine of trixie" in second.communicate()[1]
    assert second.returncode == 3
    first.kill()
    first.communicate()
    wait_for(lambda: (tmp_path / "machine-trixie/root/datapath/left").exists())
    third = fresh("--keep", "--command", "ls left", "trixie")
    assert third.communicate()[0] == "left\n"


def test_mistakes_are_told(fresh: Fresh) -> None:
    for arguments, words in (
        (["--kep"], "no such option: --kep"),
        (["--command"], "--command has no line"),
        (["none"], "no such release: none"),
    ):
        program = fresh(*arguments)
        assert words in program.communicate()[1]
        assert program.returncode == 3


def test_sources_are_those_of_this_machine(tmp_path: Path) -> None:
    """Its own archive, for suites of the other release; no other source of it."""
    archive = Archive(tmp_path)
    archive.add("stable", "some-package", "1")
    archive.publish("stable")
    (tmp_path / "os-release").write_text("VERSION_CODENAME=stable\n")
    settings = {**archive.isolate(), "HOME": "/root", "PATH": os.environ["PATH"]}
    script = f". {RUN}; OS_RELEASE={tmp_path}/os-release; apt-get update -q >/dev/null; "
    done = subprocess.run(
        ["bash", "-uc", script + "sources trixie; apt_settings"],
        env=settings,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert re.sub("/+$", "", lines[1]) == f"URIs: file:{archive.folder}"
    assert lines[2:4] == ["Suites: trixie", "Components: main"]
    assert done.stdout.count("URIs") == 1
    assert all(line.startswith("Acquire::") for line in lines[6:])


@pytest.mark.usefixtures("fresh")
def test_the_stage_counts_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Debian of a dozen programs cannot be set up, and is not told to be good."""
    make_small_root(tmp_path / "base-bookworm")
    monkeypatch.setenv("FRESH_FOLDER", str(tmp_path))
    tally = selftest.fresh_machines([])
    assert str(tally) == "0 passed, 2 failed, 0 skipped"
    assert [failure.name for failure in tally.failures] == ["fresh: bookworm", "fresh: trixie"]
