# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program of ours on a host, beside those of a run: started before them, asked to end after them.

It says `{"ready": PID, ...}` when it has begun, and its results when it gets SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datapath.errors import CapabilityError, DatapathError, RunFailed
from datapath.lanes.base import Host, Process

_READY_S = 60.0
_END_S = 30.0
_POLL_S = 0.1


class Beside:
    """The started program; `out` and `err` in the logs of the run have what it says."""

    def __init__(self, host: Host, argv: Sequence[str], logs: Path, name: str) -> None:
        self.host, self._name = host, name
        self.out = logs / f"{name}-{host.name}.out"
        self.err = logs / f"{name}-{host.name}.err"
        for file in (self.out, self.err):
            file.unlink(missing_ok=True)
        self._process: Process = host.popen(argv, stdout=self.out, stderr=self.err)

    def ready(self, refused: Callable[[str], DatapathError] = CapabilityError) -> dict[str, Any]:
        """The first line that it prints.

        refused: makes the error of all that it wrote to standard error when it ends at once.
        """
        limit = time.monotonic() + _READY_S
        while not (answers := self._answers()):
            if self._process.poll() is not None and not self._answers():
                raise refused(self._words())
            if time.monotonic() > limit:
                raise RunFailed(f"{self._name} on {self.host.name} does not begin")
            time.sleep(_POLL_S)
        return answers[0]

    def finish(self) -> dict[str, Any]:
        """Have it end; its results."""
        self.host.run(["kill", str(self._answers()[0]["ready"])])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        answers = self._answers()
        if len(answers) < 2:
            raise RunFailed(f"{self._name} on {self.host.name} failed: {self._words()}")
        return answers[-1]

    def close(self) -> None:
        """End it in any case; safe to call twice."""
        with contextlib.suppress(DatapathError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(_END_S)

    def _answers(self) -> list[dict[str, Any]]:
        """The whole lines that it has said."""
        if not self.out.exists():
            return []
        lines = self.out.read_text(errors="replace").split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def _words(self) -> str:
        text = self.err.read_text(errors="replace") if self.err.exists() else ""
        return text.strip() or f"exit status {self._process.returncode}"
