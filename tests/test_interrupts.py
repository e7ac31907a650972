# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The first ending signal ends a program wherever it stands, and only once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# `signal me` stands where the signal meets the program.  It sleeps for longer than it may take.
PROGRAM = """
import gc, os, signal, sys, time, weakref
from datapath.interrupts import Interrupted, ending_signals

def signal_me(*_):
    os.kill(os.getpid(), signal.<signal>)
    time.sleep(0.01)

class Destructed:
    def __del__(self):
        signal_me()

class Plain:
    pass

try:
    with ending_signals(to_the_end=True):
        <where>
        time.sleep(100)
except Interrupted as error:
    for _ in range(3):
        signal_me()
    print("interrupted by", error)
else:
    signal_me()
    print("done")
"""
PLACES = {
    "code": "signal_me()",
    "destructor": "Destructed()",
    "weak reference": "it = Plain(); ref = weakref.ref(it, signal_me); del it",
    "garbage": "it = Destructed(); it.me = it; del it; gc.collect()",
    "many destructors": "several = [Destructed() for _ in range(9)]; del several",
    "handler": "signal.signal(signal.SIGALRM, signal_me); signal.setitimer(0, 0.01)",
}


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_never_lost(where: str, signum: signal.Signals) -> None:
    done = run(PROGRAM.replace("<where>", PLACES[where]).replace("<signal>", signum.name))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"interrupted by {signum.name}\n"


def test_a_signal_that_comes_when_all_is_done_changes_nothing() -> None:
    program = PROGRAM.replace("<where>", "pass").replace("<signal>", "SIGINT")
    done = run(program.replace("time.sleep(100)", "pass"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_signal_that_a_library_makes_an_error_of() -> None:
    """pydantic does, in a function of ours that it calls to serialize a value."""
    program = PROGRAM.replace("<signal>", "SIGINT")
    program = program.replace("time.sleep(100)", "interrupts.check()")
    program = program.replace("<where>", "dump()").replace("try:", SERIALIZED + "try:", 1)
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "interrupted by SIGINT\n"


SERIALIZED = """
from typing import Annotated
from pydantic import BaseModel, PlainSerializer
from datapath import interrupts

class Model(BaseModel):
    size: Annotated[int, PlainSerializer(lambda _: signal_me())] = 1

def dump():
    try:
        Model().model_dump_json()
    except ValueError as error:
        assert "Interrupted" in str(error), error
    else:
        raise AssertionError("pydantic hands the exception on")

"""


def test_other_exceptions_that_python_drops_are_told() -> None:
    done = run(DROPPED)
    assert done.returncode == 0
    assert "ZeroDivisionError" in done.stderr


DROPPED = """
from datapath.interrupts import ending_signals

class Destructed:
    def __del__(self):
        0 / 0

with ending_signals():
    Destructed()
"""
