# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where a run happens: a lane builds hosts and the network between them.

with open_network(topology, path) as network:
    network.set_path(path, seed=1)
    network.hosts[0].run(["ping", "-c1", network.hosts[1].endpoint.ipv4])
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datapath.lanes.base import Network
    from datapath.lanes.spec import Path, Topology

__all__ = ["open_network"]


def open_network(
    topology: Topology,
    path: Path,
    logs: FilePath | None = None,
    folder: FilePath | None = None,
) -> Network:
    """The network of an experiment, not yet built: enter it, then set_path().

    logs: folder for what hosts themselves say (the consoles of guests).
    folder: where relative file names of the topology begin.
    """
    return topology.of_lane.open(topology, path, logs, folder)
