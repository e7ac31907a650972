# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs many command lines of dpctl quickly, each in a process of its own with bounded memory.

    python -m tests.cli.server

A line of JSON on stdin is a request: arguments, folder, bytes of memory.  The process, which has
everything imported, forks; the child runs dpctl.  The answer is a line of JSON on stdout:
{code, out, err}.  `Dpctl` is the other end.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MEMORY_BYTES = 768 * 2**20
CPU_S = 120
"""What a command line may use: an endless loop ends, a busy machine matters not."""


@dataclass(frozen=True)
class Done:
    """What one command line came to; a negative code is the signal that ended it."""

    code: int
    out: str
    err: str


class Dpctl:
    """A server, to be called like a function."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, *arguments: object, cwd: Path = ROOT, memory_bytes: int = MEMORY_BYTES
    ) -> Done:
        request = {"argv": list(map(str, arguments)), "cwd": str(cwd), "memory": memory_bytes}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return Done(**json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        self.process.communicate()


def serve() -> None:
    """Answer requests until stdin ends."""
    import jinja2
    import matplotlib.backends.backend_svg
    import matplotlib.figure
    import pandas
    import pyarrow.parquet

    import datapath.cli.app
    import datapath.experiment.runner
    import datapath.report.page
    from datapath.experiment.load import load

    del jinja2, matplotlib, pandas, pyarrow, datapath
    load(ROOT / "experiments" / "quickstart.yaml")  # the format's schema, and all algorithms
    # A child's collector would write to every object, and so copy every page.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            _run(request, out.fileno(), err.fileno())
        _, status = os.waitpid(pid, 0)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "surrogateescape"))
    return {"code": os.waitstatus_to_exitcode(status), "out": texts[0], "err": texts[1]}


def _run(request: dict[str, Any], out: int, err: int) -> None:
    """In the child: become dpctl, with so much more memory than there is now."""
    from datapath.cli import main

    code = 70
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(request["cwd"])
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + request["memory"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        sys.argv = ["dpctl", *request["argv"]]
        code = main()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
