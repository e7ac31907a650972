# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The workloads: REGISTRY has each by its name.

A workload is one file in the folder kinds/.  Its class says which programs it starts, which
devices and QP attributes it can use, and which metrics it has that no other has.

base.py is what all of them implement, and the context of a run; programs.py runs their programs;
job.py runs ranks of collectives, torch_collective.py those under torch (torch_ranks.py: how these
meet), and collective_times.py makes metrics of their times.  traffic/ has the workloads of traffic
tables in common.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from datapath.workloads import kinds
from datapath.workloads.base import Workload


def _found() -> Iterator[type[Workload]]:
    """The classes of the modules in kinds/ that have a name."""
    for module in pkgutil.iter_modules(kinds.__path__):
        loaded = importlib.import_module(f"{kinds.__name__}.{module.name}")
        for member in vars(loaded).values():
            own = isinstance(member, type) and member.__module__ == loaded.__name__
            if own and hasattr(member, "name") and hasattr(member, "tools"):
                yield member


REGISTRY: Mapping[str, type[Workload]] = {workload.name: workload for workload in _found()}

__all__ = ["REGISTRY"]
