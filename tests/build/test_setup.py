# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The wrapper `dpctl` and setup/lib.sh, on small trees of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datapath.native import paths
from tests.lanes.aptrepo import Archive

NOBODY = 65534
Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tree() -> Iterator[Path]:
    """The files that set-up reads, and nothing else; pytest's own folders are for root only.

    Its folder is called as one of the tree's own is.
    """
    with tempfile.TemporaryDirectory(prefix="datapath-setup-") as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "setup"
        folder.mkdir()
        shutil.copytree(paths.ROOT / "setup", folder / "setup")
        shutil.copy(paths.ROOT / "dpctl", folder)
        (folder / "datapath").mkdir()
        shutil.copy(paths.PACKAGE / "packages.txt", folder / "datapath")
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def shell(tree: Path) -> Shell:
    """Runs a line of bash with setup/lib.sh loaded, as root or as nobody."""

    def run(line: str, *, user: int | None = None) -> subprocess.CompletedProcess[str]:
        script = f"ROOT={tree} BUILDS=build; . {tree}/setup/lib.sh; {line}"
        if user is not None:
            for path in [tree, *tree.rglob("*")]:
                os.chown(path, user, user)
        return subprocess.run(
            ["/bin/bash", "-uc", script],
            user=user,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )

    return run


def packages(tree: Path, text: str) -> None:
    (tree / "datapath" / "packages.txt").write_text(text)


def test_missing_packages_by_class(tree: Path, shell: Shell) -> None:
    packages(tree, "# note\nno-such-package-a build x\nbash build x\nno-such-b-@arch@ run x\n")
    machine = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert shell("missing_packages build").stdout == "no-such-package-a "
    assert shell("missing_packages run").stdout == f"no-such-b-{machine} "


def test_outdated_packages(tree: Path, shell: Shell) -> None:
    """What is missing is not outdated; a version without an epoch is older than one with."""
    lines = ("no-such-a>=1 build x", "bash>=9:1 build x", "dpkg>=0.1 run x", "grep run x")
    packages(tree, "".join(f"{line}\n" for line in lines))
    assert shell("outdated_packages").stdout == "bash "
    assert shell("missing_packages build").stdout == "no-such-a "


def with_apt(archive: Archive, line: str) -> str:
    """Shell: the line, on a machine whose Debian is called stable and is this archive's."""
    here = archive.config.parent
    (here / "os-release").write_text("VERSION_CODENAME=stable\n")
    settings = [f"{key}={value}" for key, value in archive.isolate().items()]
    settings += [f"OS_RELEASE={here}/os-release", f"BACKPORTS_FILE={here}/parts/backports.sources"]
    return f"export {' '.join(settings)}; {line}"


def test_sources_of_a_suite(shell: Shell, tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.add("stable", "some-package", "1")
    archive.publish("stable")
    lines = "apt_sources stable; echo end; apt_sources stable-backports"
    done = shell(with_apt(archive, f"apt-get update -q >/dev/null && {{ {lines}; }}"))
    stable, none = done.stdout.split("end\n")
    address, key = stable.split()
    assert address.rstrip("/") == f"file:{archive.folder}"
    assert key == "$(SIGNED_BY)"  # which add_backports takes for none
    assert none == ""


def test_backports_come_from_where_the_machines_own_packages_do(
    shell: Shell, tmp_path: Path
) -> None:
    archive = Archive(tmp_path)
    archive.add("stable", "some-package", "1")
    archive.publish("stable")
    line = "add_backports >/dev/null && cat $BACKPORTS_FILE && echo $BACKPORTS"
    done = shell(with_apt(archive, line))
    assert done.returncode == 0, done.stderr
    _, address, *rest = done.stdout.splitlines()
    assert address.rstrip("/") == f"URIs: file:{archive.folder}"
    assert rest == ["Suites: stable-backports", "Components: main", "stable-backports"]


def test_without_backports_no_source_of_them_stays(shell: Shell, tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.add("stable", "some-package", "1")
    archive.publish("stable")
    line = "renew_packages some-package; echo $?; ls $(dirname $BACKPORTS_FILE)"
    done = shell(with_apt(archive, line))
    assert "stable-backports" in done.stdout + done.stderr  # apt has looked for it
    assert done.stdout.splitlines()[-1] == "1", done.stdout


@pytest.mark.usefixtures("root")
def test_without_root_the_command_for_root_is_told(tree: Path, shell: Shell) -> None:
    packages(tree, "no-such-package-a build x\nno-such-package-b run x\n")
    result = shell("setup", user=NOBODY)
    assert result.returncode == 3
    assert "apt-get install --no-install-recommends no-such-package-a no-such-package-b" in (
        result.stderr
    )


@pytest.mark.usefixtures("root")
def test_without_root_workloads_may_be_missing(tree: Path, shell: Shell) -> None:
    """It is told once; the rest of the set-up goes on."""
    packages(tree, "bash build x\nno-such-package-b run x\n")
    line = "mkdir -p $ROOT/build; setup_packages; packages_ready && echo ready"
    result = shell(line, user=NOBODY)
    assert "apt-get install --no-install-recommends no-such-package-b" in result.stderr
    assert result.stdout == "ready\n"
    assert shell("packages_ready || echo no").stdout == "no\n"  # root can do better


def test_a_failure_names_step_log_and_fix(tree: Path, shell: Shell) -> None:
    packages(tree, "bash build x\n")
    line = "SYSTEM_PYTHON=/nonexistent; LOGGING=1; mkdir $ROOT/build; step title cat /missing"
    result = shell(f"{line} || fail 'the step' 'the fix'")
    assert result.returncode == 3
    assert "cat: /missing: No such file or directory" in result.stderr
    assert result.stderr.splitlines()[-3:] == [
        "dpctl: set-up failed: the step",
        f"dpctl: log: {tree}/build/setup.log",
        "dpctl: next: the fix",
    ]


def test_an_old_python_is_told(tree: Path, shell: Shell) -> None:
    packages(tree, "bash build x\n")
    result = shell("SYSTEM_PYTHON=/bin/false; setup")
    assert result.returncode == 3
    assert "set-up failed: /bin/false is missing or older than 3.11" in result.stderr


@pytest.mark.usefixtures("root")
def test_a_tree_of_somebody_else(tree: Path) -> None:
    result = subprocess.run(
        [tree / "dpctl", "--version"], user=NOBODY, capture_output=True, text=True, check=False
    )
    assert result.returncode == 3
    assert "run dpctl as the owner of the source tree" in result.stderr


def test_stamps(tree: Path, shell: Shell) -> None:
    """A build is repeated for a younger source, an environment for another lock file."""
    make = (
        "mkdir -p $ROOT/build $VENV $ROOT/datapath $ROOT/tests; venv_key >$VENV/.stamp;"
        "touch $ROOT/meson.build $ROOT/datapath/a.c; touch -d '-1 hour' $VENV/.stamp;"
        "touch -d '+1 minute' $ROOT/build/.stamp;"
    )
    check = "venv_ready && build_ready build && echo ready"
    assert shell(make + check).stdout == "ready\n"
    assert shell(f"touch -d '+1 hour' $ROOT/datapath/a.c; {check}").stdout == ""
    assert shell(make + f"touch -d '+1 hour' $ROOT/datapath/a.py; {check}").stdout == "ready\n"
    assert shell(make + f"echo x >>$LOCK; {check}").stdout == ""


def test_an_environment_is_of_one_interpreter(shell: Shell, tmp_path: Path) -> None:
    """The system's Python is a link, which an update of the system sets anew."""
    make = "mkdir -p $VENV; SYSTEM_PYTHON={0}; ln -sf {1} {0}; "
    link = tmp_path / "python3"
    assert shell(make.format(link, "python3.11") + "venv_key >$VENV/.stamp").returncode == 0
    assert shell(make.format(link, "python3.11") + "venv_ready && echo ready").stdout == "ready\n"
    assert shell(make.format(link, "python3.13") + "venv_ready && echo ready").stdout == ""


def test_what_is_copied_here_is_built(tree: Path, shell: Shell) -> None:
    """With the time of its last change elsewhere, which is before the last build; once."""
    (tree / "meson.build").write_text("project('p', 'c')\nexecutable('prog', 'datapath/a.c')\n")
    (tree / "tests").mkdir()
    source = tree / "datapath" / "a.c"
    source.write_text("int main(void) { return 1; }\n")
    line = "mkdir -p $ROOT/build $VENV/bin; LOGGING=1; : >>$VENV/.stamp;"
    line += "build_ready build || { echo builds; setup_build build; }; $ROOT/build/prog; echo $?"
    assert shell(line).stdout == "builds\n1\n"
    assert shell(line).stdout == "1\n"
    source.write_text("int main(void) { return 2; }\n")
    os.utime(source, (0, 0))
    assert shell(line).stdout == "builds\n2\n"
    assert shell(line).stdout == "2\n"


def test_a_system_with_one_of_debians_tools_is_not_debian(shell: Shell) -> None:
    for tool in ("dpkg-query", "apt-get"):
        place = f"mkdir -p $ROOT/build $ROOT/{tool}; ln -s $(command -v {tool}) $ROOT/{tool}"
        done = shell(f"{place}; PATH=$ROOT/{tool}; setup_packages")
        assert "not a Debian system" in done.stderr


@pytest.mark.parametrize(
    ("words", "build"),
    [
        ("validate a.yaml b.yaml", False),
        ("show results/a --format json", False),
        ("completion fish", False),
        ("run --help", False),
        ("cc hunt -h", False),
        ("run a.yaml", True),
        ("exec -- prog --help", True),
        ("exec --metrics 9400 -- validate", True),
    ],
)
def test_what_needs_no_build_starts_none(tree: Path, shell: Shell, words: str, build: bool) -> None:
    """With an environment and nothing built, only what needs a build comes to the set-up."""
    (tree / "setup" / "lib.sh").open("a").write("setup() { echo builds; }\n")
    python = "mkdir -p $VENV/bin $ROOT/datapath $ROOT/tests; touch $ROOT/meson.build;"
    python += "printf '#!/bin/sh\\necho python\\n' >$VENV/bin/python; chmod +x $VENV/bin/python;"
    shell(python + "venv_key >$VENV/.stamp")
    done = subprocess.run(
        [tree / "dpctl", *words.split()], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == (["builds", "python"] if build else ["python"])


def test_sshd_for_guests_serves_nobody_else(tree: Path, shell: Shell) -> None:
    """Debian's ssh.service and ssh.socket start nothing while the file is there."""
    done = shell("echo $SSHD_OFF; SSHD_OFF=$ROOT/etc/ssh/off; keep_sshd_off && cat $SSHD_OFF")
    name, text = done.stdout.splitlines()
    assert "remove this file" in text
    for unit in ("ssh.service", "ssh.socket"):
        lines = Path("/lib/systemd/system", unit).read_text().splitlines()
        assert f"ConditionPathExists=!{name}" in lines
    (tree / "etc/ssh/off").write_text("mine")
    assert shell("SSHD_OFF=$ROOT/etc/ssh/off; keep_sshd_off").returncode == 0
    assert (tree / "etc/ssh/off").read_text() == "mine"
