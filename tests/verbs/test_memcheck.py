# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A verbs program over UDP under valgrind: it sees what system calls are given, too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from datapath.native import paths
from tests.verbs.devices import environment

SUPPRESSIONS = Path(__file__).with_name("libbpf.supp")
MEMCHECK = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full"]
MEMCHECK += [f"--suppressions={SUPPRESSIONS}"]


@pytest.mark.parametrize("what", ["cases", "1", "2"])
@pytest.mark.parametrize("mode", ["auto", "standard"])
def test_memcheck_finds_nothing(monkeypatch: pytest.MonkeyPatch, what: str, mode: str) -> None:
    """tests/verbs/contexts.c: nothing uninitialised is used or sent, nothing is lost."""
    monkeypatch.setenv(
        "DATAPATH_BUILD", "release"
    )  # AddressSanitizer and valgrind exclude each other
    program = paths.ROOT / "build" / "tests" / "test_contexts"
    done = subprocess.run(
        [*MEMCHECK, str(program), what],
        env={**os.environ, **environment("udp:127.0.0.1", mode=mode)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = [line for line in done.stderr.splitlines() if line.startswith("==")]
    assert (done.returncode, found) == (0, []), done.stderr
