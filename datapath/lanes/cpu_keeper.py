# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The program dp-cpu-keeper beside the programs of a live run, while they are measured.

It keeps CPUs awake, watches over real-time programs, and counts how long the programs waited
for a CPU.  The program is lanes/keeper/; main.c there tells what it says.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from datapath.dialogue import Dialogue
from datapath.lanes import scheduling
from datapath.lanes.base import CpuUse
from datapath.lanes.namespace import Namespace, spawn
from datapath.native import paths


class CpuKeeper:
    """The running program, as a context manager; it ends with its namespace at the latest.

    awake: CPUs that it keeps awake.  polling: their idle loop polls, in place of a thread that
    is never idle.  trouble: what it cannot do here, in words.
    """

    def __init__(self, namespace: Namespace, *, keep_awake: bool, watch: bool) -> None:
        argv = [str(paths.cpu_keeper())]
        argv += ["--awake"] if keep_awake else []
        argv += ["--watch", str(scheduling.SLICE_NS)] if watch else []
        pipe = subprocess.PIPE
        self._program = Dialogue(spawn(namespace, argv, stdin=pipe, stdout=pipe), "dp-cpu-keeper")
        try:
            ready = self._answer()
        except BaseException:
            self.close()
            raise
        self.awake, self.polling = int(ready["awake"]), bool(ready["polling"])
        self.trouble = [str(text) for text in ready["trouble"]]

    def finish(self, use: CpuUse) -> None:
        """End the keeper, and note the CPU time of the programs since it began."""
        self._program.say_no_more()
        answer = self._answer()
        use.ran_ns, use.waited_ns = answer.get("ran_ns"), answer.get("waited_ns")
        use.demoted = list(answer["demoted"])

    def close(self) -> None:
        """End the program; safe to call twice."""
        self._program.close()

    def __enter__(self) -> CpuKeeper:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        """The next line that the program says."""
        answer: dict[str, Any] = json.loads(self._program.hear())
        return answer
