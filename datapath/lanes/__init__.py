# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where a run happens: a lane builds hosts and the network between them.

with open_network(topology, path) as network:
    network.set_path(path, seed=1)
    network.hosts[0].run(["ping", "-c1", network.hosts[1].endpoint.ipv4])

lane.py        LANES: a row for each lane; base.py: what a lane implements
netns.py, vm.py, ssh.py, sim.py                 the lanes; sim_options.py: simulated engines
spec.py        the sections `topology` and `path` (link_spec.py, loss_spec.py, graph_spec.py,
               class_spec.py, pfc_spec.py, wakeup_spec.py), and `events` (event_spec.py,
               condition_spec.py; as changes: link_events.py; when they happen: happening.py)
shape.py       topology and path as a network of links
local.py       hosts that are namespaces; namespace.py: how to make them and run things there
holder.py      the process that a network lives and dies with; orphans.py: what it should not leave
middle.py      the namespace between the hosts; emulated.py: the links of the emulator there
guest.py       a virtual machine; accel.py: by KVM or TCG; kernels/: its kernel
remote/        hosts reached by ssh; machine_login.py: how lane ssh gets there
cards.py, machine_cards.py                      virtual cards before hosts (card_programs.py)
rdma.py        the kernel's RDMA devices; pacing.py: algorithms that pace rxe's (pacer/, C)
tcp_control.py the TCP algorithm of hosts' kernels (registrar/, C)
scheduling.py  the priority of a run's programs; cpu_keeper.py: keeps CPUs awake (keeper/, C)
beside.py      a program of ours beside those of a run
entrance.py    lets other processes into a run's hosts; visiting.py: the other end
devices.py     network devices, for the manifest
accuracy.py    how exactly the emulator keeps rate and delay
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
