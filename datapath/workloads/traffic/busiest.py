# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The share of its rate that the busiest link of a network carried.

What a flow delivered counts on each link of its path, with the headers of packets that were sent
once.  So the share tells how well the transport used the link.  Where flows have a choice of paths
only the simulator knows what a link carried: there all of it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from datapath.fabric.flows import Flows
    from datapath.fabric.topology import Graph
    from datapath.workloads.traffic.ideal import Framing


@dataclass(frozen=True)
class BusiestLink:
    """The busiest link of a run.

    rate_bps: of each link, in place of what the graph says.  reads: flows go from `dst` to `src`.
    carried_bytes: of each link, retransmissions and acknowledgements as well; None: not known.
    """

    graph: Graph
    framing: Framing
    rate_bps: float | None = None
    reads: bool = False
    carried_bytes: Any = None

    def utilisation(self, flows: Flows, rows: Any, seconds: float) -> float | None:
        """None: it is not known which link was the busiest, or how fast one is."""
        from datapath.fabric.ways import Ways

        ways = Ways(self.graph)
        carried = self._useful_bytes(ways, flows, rows)
        if carried is None:
            carried = self.carried_bytes
        if carried is None:
            return None
        links = ways.links
        if any(carried[number] > 0 and link.trace_ms for number, link in enumerate(links)):
            return None
        rates = np.array([self.rate_bps or float(link.rate_bps) for link in links])
        limited = rates > 0
        if not limited.any():
            return None
        return float((np.asarray(carried)[limited] * 8 / rates[limited]).max() / seconds)

    def _useful_bytes(self, ways: Any, flows: Flows, rows: Any) -> Any:
        """By link; None when a flow has a choice of paths."""
        delivered = rows["delivered_bytes"].astype(np.float64)
        wire = self.framing.wire_bytes(delivered, flows["message_bytes"])
        hosts = self.graph.hosts
        source, target = ("dst", "src") if self.reads else ("src", "dst")
        pairs, pair = np.unique(
            flows[source].astype(np.int64) * hosts + flows[target], return_inverse=True
        )
        carried = np.zeros(len(ways.links))
        for number, sent in zip(pairs, np.bincount(pair, wire), strict=True):
            route = ways.route(int(number) // hosts, int(number) % hosts)
            if route is None:
                return None
            carried[route] += sent
        return carried
