# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where a run happens: a lane builds hosts and the network between them.

with open_network(topology, path) as network:
    network.set_path(path, seed=1)
    network.hosts[0].run(["ping", "-c1", network.hosts[1].endpoint.ipv4])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from datapath.errors import CapabilityError

if TYPE_CHECKING:
    from datapath.lanes.base import Network
    from datapath.lanes.spec import Path, Topology

__all__ = ["open_network"]


def open_network(topology: Topology, path: Path) -> Network:
    """The network of an experiment, not yet built: enter it, then set_path()."""
    if topology.lane != "netns":
        raise CapabilityError(
            f"lane {topology.lane} is not in this version", hint="use topology: {lane: netns}"
        )
    from datapath.lanes.netns import NetnsNetwork, choose_backend

    return NetnsNetwork(topology, choose_backend(path))
