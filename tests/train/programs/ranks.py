# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starts ranks quickly: forks them from a process that has imported PyTorch.

A line of JSON on stdin is a rank: program, words, environment, folder, and the file for its
output.  The answer is a line with its process id.  A rank that has ended stays a zombie until the
next request, so that its id is no other process's when the test opens it.
"""

import gc
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest  # noqa: F401  (collectives.py uses it)
import torch.nn.parallel  # noqa: F401


def serve() -> dict[str, Any] | None:
    """Answer requests until stdin ends; in each child, returns what it has to be."""
    for line in sys.stdin:
        running.difference_update([pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]])
        pid = os.fork()
        if pid == 0:
            return dict(json.loads(line))
        running.add(pid)
        print(pid, flush=True)
    for pid in running:
        os.waitpid(pid, 0)
    return None


def become(rank: dict[str, Any]) -> None:
    with Path(os.devnull).open() as nothing, Path(rank["out"]).open("w") as out:
        for stream, file in enumerate((nothing, out, out)):
            os.dup2(file.fileno(), stream)
    os.chdir(rank["folder"])
    os.environ.clear()
    os.environ.update(rank["environment"])
    sys.argv = [rank["program"], *rank["words"]]


running: set[int] = set()
gc.freeze()
if (rank := serve()) is not None:
    become(rank)
    runpy.run_path(rank["program"], run_name="__main__")
