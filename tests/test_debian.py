# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which Debian package brings a program."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from datapath.debian import install_hint, measured_with, packages
from datapath.native import paths

pytestmark = pytest.mark.compute


def test_a_hint_names_each_package_once() -> None:
    assert install_hint("ip") == "apt-get install iproute2"
    names = ("libxdp.so.1", "libbpf.so.1", "libxdp.so.1")
    assert install_hint(*names, where="there") == "apt-get install libxdp1 libbpf1, there"
    assert install_hint("my_program") == "install it, or put it on PATH"


def test_each_row_names_its_class_and_what_it_brings() -> None:
    lines = (paths.PACKAGE / "packages.txt").read_text().splitlines()
    rows = [line for line in lines if line and line[0] != "#"]
    row = re.compile(r"[a-z0-9.@+-]+(>=[\w.:]+)? +(build|run|ssh) +(-|[\w.,-]+) +\S.*")
    assert [line for line in rows if not row.fullmatch(line)] == []
    counts = Counter(line.split()[0] for line in rows)
    assert set(counts.values()) == {1}
    assert {"perftest", "rdma-core"} <= set(measured_with())


def test_no_other_file_names_the_package_of_a_program() -> None:
    """A message asks install_hint()."""
    command = re.compile(r"apt(-get)? install")
    found = [path for path in paths.PACKAGE.rglob("*.py") if command.search(path.read_text())]
    kernel_headers = Path("xdp/user.py")  # any version of them does, which is not a program
    assert {path.relative_to(paths.PACKAGE) for path in found} == {
        Path("debian.py"),
        kernel_headers,
    }
    assert packages()["bcc"] == "python3-bpfcc"
