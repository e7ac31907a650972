#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs cases on a verbs device.

    cases.py --kind rxe --device rxe0 --address 198.18.0.1 send write
    cases.py --kind dp --device dp0 --serve

With --serve the names come on stdin, a line each, and each is answered by a
line of JSON on stdout.  A case runs in a process of its own, forked from this
one: what it leaves behind is gone, a crash is a failure of that case, and
Python and pyverbs are loaded once.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable

import completions
import data
import datagrams
import device_memory
import faults
import front
import memory
import shared
import states
from pair import TARGET

MODULES = (data, datagrams, completions, faults, memory, shared, states, device_memory, front)


def find(name: str) -> Callable[[], None]:
    for module in MODULES:
        case = getattr(module, f"case_{name}", None)
        if case is not None:
            return case
    raise SystemExit(f"no case {name}")


def in_child(name: str, output: int, seconds: int) -> int:
    """Fork.  Returns the child's process id in the parent and 0 in the child, which is set up."""
    child = os.fork()
    if child:
        return child
    null = os.open(os.devnull, os.O_RDONLY)
    for ours, theirs in ((null, 0), (output, 1), (output, 2)):
        os.dup2(ours, theirs)
    # Late: tell where, then die of it.
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(seconds)
    return 0


def serve(seconds: int) -> str | None:
    """Answer requests until stdin ends: None.  In a child: the name of its case."""
    # A child's collector would write to every object, and so copy every page.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        name = line.strip()
        with tempfile.TemporaryFile() as output:
            child = in_child(name, output.fileno(), seconds)
            if child == 0:
                return name
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            text = output.read().decode(errors="replace")
        print(json.dumps({"case": name, "status": status, "output": text}), flush=True)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="dp", help="dp, rxe or siw")
    parser.add_argument("--device", default="dp0")
    parser.add_argument("--address", help="of the device: connect through RDMA-CM")
    parser.add_argument("--serve", action="store_true", help="take names of cases from stdin")
    parser.add_argument("--seconds", type=int, default=60, help="a served case may take (60)")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    TARGET.kind, TARGET.device, TARGET.address = args.kind, args.device, args.address
    cases = args.case
    if args.serve:
        name = serve(args.seconds)
        if name is None:
            return
        cases = [name]
    for name in cases:
        find(name)()
    if args.serve and args.kind != "dp":
        # To take all of Python apart copies every page too.  The kernel has its device back
        # without that; ours is in this process, and has to end well.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
