# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl`: data to stdout, progress and errors to stderr, exit codes as in datapath.errors.

    app.py          the commands put together, and how errors are told
    experiments.py  run, validate, schema
    results.py      list, report, clean
    programs.py     exec, xdp, selftest
    running.py      cc of, cc set
    progress.py     what a run shows while it goes on
    output.py       --format table | json | ndjson

Everything heavy is imported by the command that needs it: `dpctl --help` must be quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run dpctl with the given or the process's arguments; returns the exit code."""
    from datapath.cli.app import run

    return run(list(sys.argv[1:] if argv is None else argv))
