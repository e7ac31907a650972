# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs many command lines of dpctl quickly, each in a process of its own.

    python -m tests.cli.server

A line of JSON on stdin is a request: arguments, folder, environment, bytes of memory.  The
process, which has everything imported, forks; the child runs dpctl.  The answer is a line of JSON
on stdout: {code, out, err, cpu_s}.  `Dpctl` is the other end, `dpctl` what most tests call.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.cli.server"]
MEMORY_BYTES = 768 * 2**20
CPU_S = 120
"""What a command line may use: an endless loop ends, a busy machine matters not."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Done:
    """What one command line came to; a negative code is the signal that ended it."""

    code: int
    out: str
    err: str


class Dpctl:
    """A server, to be called like a function; process: a server that runs somewhere else."""

    def __init__(self, process: subprocess.Popen[str] | None = None) -> None:
        pipe = subprocess.PIPE
        self.process = process or subprocess.Popen(
            COMMAND, cwd=ROOT, stdin=pipe, stdout=pipe, text=True
        )
        self.cpu_s = 0.0
        """What all command lines have used."""

    def __call__(
        self,
        *arguments: object,
        cwd: Path = ROOT,
        memory_bytes: int | None = MEMORY_BYTES,
        env: Mapping[str, str] | None = None,
        streams: Mapping[int, str] | None = None,
    ) -> Done:
        """memory_bytes: so much more than the server has; None: no bounds at all.

        streams: files that are stdin (0), stdout (1) or stderr (2), as a terminal is.
        """
        request = {
            "argv": list(map(str, arguments)),
            "cwd": str(cwd),
            "memory": memory_bytes,
            "env": dict(os.environ if env is None else env),
            "streams": {str(stream): file for stream, file in (streams or {}).items()},
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
        except BaseException:
            self.process.kill()  # the answer that is still to come would be taken for another's
            raise
        self.cpu_s += answer.pop("cpu_s")
        return Done(**answer)

    def close(self) -> None:
        self.process.communicate()


class _Shared:
    """The server of this process's tests; it starts when it is needed."""

    server: Dpctl | None = None
    ended_cpu_s = 0.0


def shared() -> Dpctl:
    if _Shared.server is not None and _Shared.server.process.poll() is not None:
        close_shared()
    if _Shared.server is None:
        _Shared.server = Dpctl()
    return _Shared.server


def close_shared() -> None:
    if _Shared.server is not None:
        _Shared.ended_cpu_s += _Shared.server.cpu_s
        _Shared.server.close()
        _Shared.server = None


def cpu_s() -> float:
    """What the command lines of the shared server have used."""
    return _Shared.ended_cpu_s + (_Shared.server.cpu_s if _Shared.server is not None else 0)


def dpctl(
    *arguments: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command line without bounds, as subprocess.run() tells it; env: all of it."""
    done = shared()(*arguments, cwd=cwd, memory_bytes=None, env=env)
    return subprocess.CompletedProcess(arguments, done.code, done.out, done.err)


def serve() -> None:
    """Answer requests until stdin ends."""
    import asyncssh
    import jinja2
    import matplotlib.backends.backend_svg
    import matplotlib.figure
    import pandas
    import pyarrow.parquet

    import datapath.cli.app
    import datapath.experiment.runner
    import datapath.lanes.netns
    import datapath.lanes.sim
    import datapath.report.page
    from datapath.experiment.load import load

    del asyncssh, jinja2, matplotlib, pandas, pyarrow, datapath
    load(ROOT / "experiments" / "quickstart.yaml")  # the format's schema, and all algorithms
    # A child's collector would write to every object, and so copy every page.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _run(request, server, out.fileno(), err.fileno())
        _, status, usage = os.wait4(pid, 0)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "surrogateescape"))
    return {
        "code": os.waitstatus_to_exitcode(status),
        "out": texts[0],
        "err": texts[1],
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }


def _run(request: dict[str, Any], server: int, out: int, err: int) -> None:
    """In the child: become dpctl, with so much more memory than there is now."""
    from datapath.cli import main

    code = 70
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it ended before this process asked to be told
            return
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for stream, file in request["streams"].items():
            os.dup2(os.open(file, os.O_RDWR | os.O_NOCTTY), int(stream))
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        if request["memory"] is not None:
            _bound(request["memory"])
        sys.argv = ["dpctl", *request["argv"]]
        code = main()
        _end_as_python_does()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _bound(memory_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def _end_as_python_does() -> None:
    """Wait for threads; call what is registered for the end."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()


if __name__ == "__main__":
    serve()
