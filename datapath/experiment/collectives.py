# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collectives in virtual time, beside `dpctl run`: the network of a point, simulated.

Which algorithm is best on it at which size, and what deviated in a live run on it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from datapath import foreign, lanes
from datapath.errors import LocalError
from datapath.experiment.load import load
from datapath.experiment.spec import PointSpec
from datapath.names import plain_path
from datapath.workloads.base import RunContext
from datapath.workloads.kinds.collective import AUTO, Collective, CollectiveParams

if TYPE_CHECKING:
    from datapath.collectives.choose import Chooser
    from datapath.collectives.doctor import Diagnosis

_TIMEOUT_S = 600.0
_PLAN = "collective.plan"
_OF_NETWORK = (
    *("preset", "hosts", "mtu", "host_rate", "host_delay", "buffer", "lossless"),
    *("leaves", "spines", "hosts_per_leaf", "k", "servers", "rails"),
)
"""Keys of the topology that are not of live hosts."""
_OF_NODES = ("node", "node_rate")
"""Keys of the workload that tell which ranks share memory."""


def choose(
    source: Path, overrides: Sequence[str], collective: str | None, sizes: Sequence[int]
) -> Chooser:
    """Measure the algorithms on the network of an experiment's first collective.

    collective: unset: that of the experiment's algorithm.
    """
    from datapath.collectives import load as load_algorithm

    experiment = load(source, overrides)
    found = [point.spec for point in experiment.points if point.spec.kind == Collective.name]
    if not found:
        raise LocalError(f"{source}: no point has workload: {{kind: collective}}")
    params = found[0].workload
    assert isinstance(params, CollectiveParams)
    if collective is None and params.algorithm != AUTO:
        collective = load_algorithm(params.algorithm, experiment.folder).collective
    collective = collective or params.collective
    params = params.model_copy(update={"algorithm": AUTO, "params": {}, "collective": collective})
    with _simulated(found[0].model_dump(mode="json"), experiment.folder) as (context, _):
        return Collective(params).choose(context, sizes)


def run_name(record: Mapping[str, Any]) -> str:
    """Of a run's record, as its files have it."""
    return f"{record.get('point')}-{record.get('repetition')}"


def has_plan(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether a run of a result folder was one of live collectives."""
    return foreign.is_file(_logs(folder, record) / _PLAN)


def _logs(folder: Path, record: Mapping[str, Any]) -> Path:
    return folder / "logs" / plain_path(run_name(record), str(folder))


def examine(folder: Path, record: Mapping[str, Any]) -> Diagnosis:
    """What deviated in a live run of a result folder; record: the run's, from runs/*.json.

    Runs no code that the folder names.
    """
    from datapath.collectives import check
    from datapath.collectives.doctor import diagnose, read_steps
    from datapath.collectives.plan import read

    name, logs = run_name(record), _logs(folder, record)
    if not has_plan(folder, record):
        raise LocalError(f"{logs}: there is no {_PLAN}", hint="name a folder of live collectives")
    plan = check(read(logs / _PLAN))
    measured = read_steps([logs / f"collective-{r}.steps" for r in range(plan.ranks)], plan)
    spec = record.get("spec")
    if not isinstance(spec, dict):
        raise LocalError(f"{folder}: the record of run {name} has no settings")
    with _simulated(spec, folder) as (context, params):
        if len(context.network.hosts) != plan.ranks:
            raise LocalError(
                f"run {name} had {plan.ranks} ranks on {len(context.network.hosts)} hosts, which "
                "the simulator does not have",
                hint="use workload: {ranks_per_host: 1}",
            )
        simulated_ns = Collective(params).transfers_ns(context, plan)
    return diagnose(plan, measured, simulated_ns, params.node or 1)


@contextmanager
def _simulated(
    settings: Mapping[str, Any], folder: Path
) -> Iterator[tuple[RunContext, CollectiveParams]]:
    """The network of a point in lane sim, and the nodes of its ranks.

    settings: the point as JSON has it.
    """
    algorithm = str(dict(settings.get("cc") or {}).get("algo", ""))
    if ".py" in algorithm:
        raise LocalError(
            f"the run's congestion control is a file, {algorithm}, and no code is run for this",
            hint="use an algorithm of dpctl cc list",
        )
    nodes = {
        key: value
        for key, value in dict(settings.get("workload") or {}).items()
        if key in _OF_NODES
    }
    topology = {
        key: value
        for key, value in dict(settings.get("topology") or {}).items()
        if key in _OF_NETWORK
    }
    try:
        spec = PointSpec.model_validate(
            {
                "topology": {**topology, "lane": "sim"},
                **{key: settings[key] for key in ("path", "transport", "cc") if key in settings},
                "workload": {"kind": Collective.name, **nodes},
            }
        )
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise LocalError(
            f"the settings have no simulated twin: {where}: {problem['msg']}"
        ) from None
    with (
        tempfile.TemporaryDirectory(prefix="datapath-collective-") as logs,
        lanes.open_network(spec.topology, spec.path, folder=folder) as network,
    ):
        network.set_path(spec.path, 1)
        assert isinstance(spec.workload, CollectiveParams)
        context = RunContext(
            network=network,
            transport=spec.transport,
            cc=spec.cc,
            device_env=[{} for _ in network.hosts],
            logs=Path(logs),
            seed=1,
            timeout_s=_TIMEOUT_S,
            path=spec.path,
            folder=folder,
        )
        yield context, spec.workload
