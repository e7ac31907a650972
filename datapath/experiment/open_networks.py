# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The networks of a sweep that are up.

Points whose topologies differ at most in settings that virtual cards take at any time share one
network, which is built when the first of them comes up and kept to the end; per run these settings
and the path are set.  A network in which a run failed is taken down, since programs of that run
may still be in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from datapath import lanes
from datapath.experiment.store import to_json
from datapath.lanes.entrance import Entrance

if TYPE_CHECKING:
    from datapath.experiment.load import LoadedExperiment
    from datapath.experiment.spec import PointSpec
    from datapath.experiment.store import ResultStore
    from datapath.experiment.sweep import Run
    from datapath.lanes.base import Network


class OpenNetworks:
    """A context: they are all down behind it.  tell: takes what the user should read, once."""

    def __init__(
        self, experiment: LoadedExperiment, store: ResultStore, tell: Callable[[str], None]
    ) -> None:
        self._experiment = experiment
        self._store = store
        self._tell = tell
        self._told: set[str] = set()
        self._networks: dict[str, Network] = {}
        self._described: set[str] = set()
        self._opened = 0
        self._entrance: Entrance | None = None

    def __enter__(self) -> OpenNetworks:
        return self

    def __exit__(self, *exc: object) -> None:
        for key in list(self._networks):
            self._close(key)
        if self._entrance is not None:
            self._entrance.close()

    def network(self, spec: PointSpec) -> Network:
        """The network of a point, which comes up if it is not yet."""
        key = _network_key(spec)
        if key not in self._networks:
            self._opened += 1
            logs = self._store.path / "logs" / f"network-{self._opened}"
            network = lanes.open_network(spec.topology, spec.path, logs, self._experiment.folder)
            self._networks[key] = network.__enter__()
        (network := self._networks[key]).set_cards(spec.topology)
        if (whole := spec.topology.model_dump_json() + key) not in self._described:
            self._described.add(whole)
            self._describe(spec, network)
        return network

    def entered(self, run: Run, done: int) -> Network:
        """The network of a live run, which other processes may visit from now on.

        done: the runs before it.
        """
        spec = run.point.spec
        network = self.network(spec)
        if self._entrance is None:
            about = {"experiment": self._experiment.spec.name, "folder": str(self._store.path)}
            self._entrance = Entrance(about)
        told = {"run": run.name, "point": run.point.label, "done": done}
        lane, afxdp = spec.topology.lane, spec.transport.uses_afxdp
        self._entrance.now(network, **told, lane=lane, afxdp=afxdp)
        return network

    def of(self, spec: PointSpec) -> Network | None:
        """The network of a point if it is up."""
        return self._networks.get(_network_key(spec))

    def recover(self, spec: PointSpec) -> None:
        """Remove the remains of a failed run before the next one."""
        network = self.of(spec)
        if network is not None and not network.recover():
            self._close(_network_key(spec))

    def _describe(self, spec: PointSpec, network: Network) -> None:
        """Add a network to the manifest, once for each topology."""
        data = self._store.read_manifest()
        entry = {"topology": spec.topology.model_dump(mode="json"), **network.describe()}
        if entry not in data["networks"]:
            data["networks"].append(entry)
            self._store.write("manifest.json", to_json(data))
        self._store.event("network up", topology=entry["topology"])
        cpu = cast(Mapping[str, Any], entry.get("cpu", {}))
        for trouble in cpu.get("trouble", []):
            if trouble not in self._told:
                self._told.add(trouble)
                self._tell(trouble)

    def _close(self, key: str) -> None:
        network = self._networks.pop(key)
        try:
            if self._entrance is not None:
                self._entrance.leave(network)
        finally:
            network.__exit__(None, None, None)
        self._store.event("network down")


def _network_key(spec: PointSpec) -> str:
    """Points with the same key can share a network."""
    return f"{spec.topology.network.model_dump_json()} {spec.path.carrier}"
