# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl kernel`: help, exit codes, data on stdout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli import server
from tests.cli.told import told


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def dpctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return server.dpctl("kernel", *arguments, env={**os.environ, "COLUMNS": "120"})


@pytest.mark.parametrize("command", ["install", "list", "remove"])
def test_help_has_examples(command: str) -> None:
    done = dpctl(command, "--help")
    assert done.returncode == 0, done.stderr
    assert f"  dpctl kernel {command}" in done.stdout


@pytest.mark.parametrize("command", ["install", "remove"])
def test_a_name_that_means_nothing(command: str) -> None:
    done = dpctl(command, "newest")
    assert done.returncode == 2
    assert done.stderr.startswith("error: 'newest' names no kernel\nhint: a version such as 6.12")


def test_nothing_installed() -> None:
    done = dpctl("list", "--installed", "--format", "json")
    assert (done.returncode, told("kernel list", done.stdout)) == (0, [])
    done = dpctl("remove", "6.12")
    assert done.returncode == 3
    assert "hint: dpctl kernel list" in done.stderr


def test_without_apt_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = dpctl("install", "6.12")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-2:] == [
        "error: kernels come as Debian packages, and this system has no apt",
        "hint: use Debian 12 or newer for the vm lane",
    ]
