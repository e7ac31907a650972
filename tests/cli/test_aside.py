# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Stages in a process of their own: their output, their counts, their end.

In a program without other threads, as `dpctl selftest` is: a lock that a thread of pytest-xdist
has at the moment of the fork would stay locked in the stage.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from datapath.native import paths

HEAD = """
import json, os, select, signal, subprocess, sys, time
from dataclasses import asdict
from datapath.cli.aside import Aside
from datapath.cli.tally import Tally
"""
OUTPUT = """
def stage(arguments):
    print("one \N{MULTIPLICATION SIGN}" * 50_000, flush=True)
    subprocess.run(["echo", *arguments], check=True)
    return Tally(passed=3, details=["d"])

def second(_):
    print("three", flush=True)
    return Tally(passed=1)

with Aside([stage, second], ["two"]) as aside:
    time.sleep(1)
    done = aside.join()
    print("between", flush=True)
    after = aside.join()
print(json.dumps([asdict(done.tally), done.seconds > 0, after.tally.passed]))
"""
LARGE = """
def stage(_):
    return Tally(passed=1, details=["of this many bytes"] * 100_000)

def second(_):
    os.write(begun, b"!")
    return Tally(passed=1)

begins, begun = os.pipe()
with Aside([stage, second], []) as aside:
    runs = bool(select.select([begins], [], [], 20)[0])
    print(json.dumps([runs, *(len(aside.join().tally.details) for _ in range(2))]))
"""
DEATH = """
def stage(_):
    os.kill(os.getpid(), signal.SIGKILL)

with Aside([stage, stage], []) as aside:
    tallies = [aside.join().tally for _ in range(2)]
print(json.dumps([[tally.failed, str(*tally.failures)] for tally in tallies]))
"""
INTERRUPT = """
def stage(_):
    print(os.getpid(), flush=True)
    os.write(ready, b"!")
    time.sleep(600)

begun, ready = os.pipe()
aside = Aside([stage], [])
try:
    with aside:
        os.read(begun, 1)
        pid = int(os.pread(aside._output.fileno(), 20, 0))
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print(json.dumps([pid, os.path.exists(f"/proc/{pid}")]))
"""


def run(program: str) -> tuple[str, Any]:
    """What it printed before its last line, and the JSON of that line."""
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", HEAD + program],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    *before, last = done.stdout.splitlines(keepends=True)
    return "".join(before), json.loads(last)


def test_output_and_counts() -> None:
    """All of the output, Python's own and that of programs, and none of a stage that follows."""
    printed, (tally, took_time, after) = run(OUTPUT)
    assert (tally["passed"], tally["failed"], tally["details"]) == (3, 0, ["d"])
    assert took_time
    assert after == 1
    assert printed == "one \N{MULTIPLICATION SIGN}" * 50_000 + "\ntwo\nbetween\nthree\n"


def test_a_large_result_holds_up_nothing() -> None:
    """The next stage runs before anybody asks for the result of the one before."""
    assert run(LARGE) == ("", [True, 100_000, 0])


def test_a_stage_that_dies_has_failed_and_those_after_it() -> None:
    assert run(DEATH) == ("", [[1, "stage: its process died"]] * 2)


def test_it_ends_with_the_selftest() -> None:
    """Somebody interrupts the stage before it: nothing runs on."""
    _, (pid, runs_on) = run(INTERRUPT)
    assert not runs_on
    assert not Path("/proc", str(pid)).exists()
