#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs programs of tools/ one after another.

    in_turn.py '[["pingpong.py", "-d", "rxe0"], ["bandwidth.py", "-d", "rxe0"]]' [SERVER]

In an emulated guest Python and pyverbs take seconds to load.  So this process loads them
once, and each program runs in a child forked from it.  A line of JSON tells how each
ended: its status, its output, and its errors.  After one that fails nothing more is run, since the
other side is no longer at the same program.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO

TOOLS = Path(__file__).resolve().parents[3] / "tools"
PROGRAM_S = 60


def in_child(words: list[str], output: int, errors: int) -> int:
    """Run a program with its arguments in a child; its exit status, -N for signal N."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.dup2(output, 1)
    os.dup2(errors, 2)
    signal.alarm(PROGRAM_S)
    sys.argv = words
    runpy.run_path(str(TOOLS / words[0]), run_name="__main__")
    sys.stdout.flush()
    os._exit(0)


def text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def main() -> None:
    commands, server = json.loads(sys.argv[1]), sys.argv[2:]
    sys.path.insert(0, str(TOOLS))
    import rc  # noqa: F401  for the children

    if any("--cm" in command for command in commands):
        import cm  # noqa: F401

    for command in commands:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            status = in_child([*command, *server], output.fileno(), errors.fileno())
            told = {"status": status, "output": text(output), "errors": text(errors)}
        print(json.dumps(told), flush=True)
        if status:
            break


if __name__ == "__main__":
    main()
