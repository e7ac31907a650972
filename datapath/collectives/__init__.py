# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collective operations: algorithms as data, their checker, and what runs them.

An algorithm is a short Python function over chunks (`trace.py`). `make.py` calls it for a number
of ranks and lays it out over bytes, channels and slices; the result is a plan, a table of steps
(`plan.py`). `loading.py` finds an algorithm by its name, `choose.py` the quickest for a size.
`check.py` proves a plan before it runs (`order.py`, `contents.py`). `execute.py` runs it on arrays
in this process, `simulate.py` in virtual time over the real engine, and live/ (C, libdpcoll.so)
over any verbs device; `communicator.py` is that library for Python, and `doctor.py` says what
holds a live collective up. docs/collectives.md tells how to write an algorithm.
"""

from datapath.collectives.check import check
from datapath.collectives.loading import load, registry
from datapath.collectives.make import make
from datapath.collectives.plan import Plan
from datapath.collectives.trace import Algorithm, Chunk, Trace, algorithm

__all__ = [
    "Algorithm",
    "Chunk",
    "Plan",
    "Trace",
    "algorithm",
    "check",
    "load",
    "make",
    "registry",
]
