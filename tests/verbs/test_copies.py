# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A payload is copied once on each side, between registered memory and the port's buffers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.verbs.conftest import Pair
from tests.verbs.devices import PROGRAMS, sanitizer

COUNT = 200
SIZE = 2**18


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that counts what memcpy() and memmove() copy."""
    path = tmp_path_factory.mktemp("copies") / "copies.so"
    options = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    source = PROGRAMS / "copies.c"
    subprocess.run(["gcc", *options, "-o", path, source], check=True)
    return path


@pytest.mark.skipif(bool(sanitizer()), reason="needs a build whose copies are calls of libc")
@pytest.mark.parametrize("port", ["afxdp", "udp"])
@pytest.mark.parametrize("mode", ["auto", "standard"])
@pytest.mark.parametrize("operation", ["write", "send", "read"])
def test_one_copy_on_each_side(
    pair: Pair, counter: Path, port: str, mode: str, operation: str
) -> None:
    """Less are the ends of packets, which dp_place() stores itself; more, packets sent again."""
    told = pair.logs / "copied"
    front = pair.environment(0, port).get("LD_PRELOAD", "")
    env = {"LD_PRELOAD": f"{counter} {front}", "COPIES": str(told)}
    words = ["-n", str(COUNT), "-s", str(SIZE), "-d", "dp0", "-F"]
    pair.run([f"ib_{operation}_bw", *words], port, env=env, mode=mode)
    payload = COUNT * SIZE
    sides = [int(line) for line in told.read_text().split()]
    assert len(sides) == 2
    assert all(0.8 < copied / payload < 1.2 for copied in sides), (payload, sides)
