# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl`: data to stdout, progress and errors to stderr, exit codes as in datapath.errors.

    app.py          the commands put together, and how errors are told
    experiments.py  run
    checking.py     validate, schema
    results.py      list, show, report, series
    examining.py    doctor, compare
    completion.py   completion, man
    clean.py        clean
    programs.py     exec, xdp, selftest
    algorithms.py   cc list, show, compile, check
    running.py      cc of, cc set
    visits.py       ps, shell, capture
    top.py          top
    metrics.py      metrics, and those of exec
    hunting.py      cc hunt
    kernels.py      kernel
    collectives.py  collective
    nccl.py         nccl check, cases, path
    vnic.py         vnic
    fabric.py       fabric
    interop.py      interop, trace
    progress.py     what a run shows while it goes on; intervals.py: a single run each second
    output.py       --format table | json | ndjson (documents/); screen.py: shown again and again
    values.py       how help names the values of options; layout.py: how it is laid out
    selftest.py     stages of tests, with aside.py, bytecode.py, never_ran.py and tally.py

Everything heavy is imported by the command that needs it: `dpctl --help` must be quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from datapath import search_path
from datapath.interrupts import ending_signals
from datapath.terminal import guarded

INTERRUPTED = 130
"""Exit code after SIGINT, SIGTERM or SIGHUP."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run dpctl with the given or the process's arguments; returns the exit code.

    With those of the process, the process is about to end: signals do not disturb that.
    """
    search_path.complete()
    try:
        with ending_signals(to_the_end=argv is None), guarded():
            return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return INTERRUPTED  # the signal came when all was done


def _run(arguments: list[str]) -> int:
    try:
        from datapath.cli.app import run
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return INTERRUPTED
    return run(arguments)
