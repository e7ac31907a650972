# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs a simulation that failed once more, from the folder that it left.

    python -m datapath.fabric.replay FOLDER/case.json

The case has everything that decides a run: topology, transport, seed, traffic table,
algorithms with their parameters, changes, and the commit it was run at.  Its QPs' last events
go to FOLDER/trace.tsv.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

import datapath
from datapath import foreign
from datapath.errors import DatapathError, LocalError
from datapath.fabric import flows as traffic
from datapath.fabric import links, topology
from datapath.fabric import wakeup as programs
from datapath.native import paths

if TYPE_CHECKING:
    from datapath.fabric.changes import Algorithm, Change
    from datapath.fabric.simulator import Simulation

TRACE_EVENTS = 256

_KINDS = ("post", "tx", "rx", "drop", "corrupt", "complete", "receive")
_COLUMNS = ("flow", "at_ns", "event", "node", "opcode", "psn", "bytes", "detail")


def write(
    folder: Path,
    simulation: Simulation,
    flows: traffic.Flows,
    algorithms: Algorithm | Sequence[Algorithm],
    changes: Sequence[Change],
    until_ns: int | None,
) -> Path:
    """Write case.json and flows.bin; returns the former's path."""
    folder.mkdir(parents=True, exist_ok=True)
    traffic.write(folder / "flows.bin", flows, simulation.graph.hosts, seed=simulation.seed)
    each = list(algorithms) if isinstance(algorithms, Sequence) else [algorithms]
    known: list[dict[str, Any] | None] = []
    rows = [_index(known, _algorithm(one)) for one in each]
    case = {
        "version": datapath.__version__,
        "commit": commit(),
        "seed": simulation.seed,
        "topology": _plain(_known(simulation)),
        "transport": _plain(simulation.transport),
        "wakeup": _plain(simulation.wakeup),
        "algorithms": known,
        "algorithm_of_flow": rows,
        "changes": [_change(change) for change in changes],
        "until_ns": until_ns,
    }
    path = folder / "case.json"
    path.write_text(json.dumps(case, indent=1, default=_number) + "\n", encoding="utf-8")
    return path


def write_trace(path: Path, run: Any, flows: traffic.Flows, most: int) -> None:
    """The last events of each flow's QP, one QP after the other, as tab-separated columns."""
    seen = set()
    with path.open("w", encoding="utf-8") as out:
        print(*_COLUMNS, sep="\t", file=out)
        for row, flow in enumerate(flows):
            qp = (int(flow["src"]), int(flow["dst"]), int(flow["qp"]))
            if qp in seen:
                continue
            seen.add(qp)
            for event in run.trace(row, most):
                kind = _KINDS[event["kind"] - 1]
                rest = (event[name] for name in ("node", "opcode", "psn", "bytes", "detail"))
                print(row, event["at_ns"], kind, *rest, sep="\t", file=out)


def read(path: Path) -> tuple[Simulation, dict[str, Any]]:
    """(simulation, arguments of its run()); LocalError when it is no case."""
    from datapath.fabric.engine_options import EngineOptions
    from datapath.fabric.simulator import Simulation

    try:
        case = foreign.read_json(path)
        made = _object(topology, case["topology"])
        transport = EngineOptions(**case["transport"]["values"])
        wakeup = _object(programs, case["wakeup"])
        flows, _ = traffic.read(path.parent / "flows.bin")
        compiled = [_compiled(one) for one in case["algorithms"]]
        each = [compiled[index] for index in case["algorithm_of_flow"]]
        changes = [_changed(change) for change in case["changes"]]
        until_ns = case["until_ns"]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise LocalError(f"{path} is not the case of a simulation: {error}") from None
    simulation = Simulation(made, seed=case["seed"], transport=transport, wakeup=wakeup)
    single = len(each) == 1 and len(flows) != 1
    return simulation, {
        "flows": flows,
        "algorithms": each[0] if single else each,
        "changes": changes,
        "until_ns": until_ns,
    }


def commit() -> str:
    """Commit of the source tree; "" when the package is installed or git is not there."""
    if not paths.in_source_tree():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(paths.ROOT), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip()


# --- plain data of dataclasses and back ---------------------------------------------------------


def _known(simulation: Simulation) -> Any:
    """The topology; one of a class that is not topology.py's is told by its graph."""
    made, graph = simulation.topology, simulation.graph
    if getattr(topology, type(made).__name__, None) is type(made):
        return made
    return graph


def _plain(value: Any) -> Any:
    """Dataclasses as {"kind": class, "values": fields}; tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, "values": values}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _number(value: Any) -> Any:
    """Python's own number in place of numpy's, for json."""
    if not isinstance(value, np.generic):
        raise TypeError(f"a case cannot hold {value!r}")
    return value.item()


def _object(module: Any, value: Any) -> Any:
    """The inverse of _plain(); classes are those of `module` or of datapath.fabric.links."""
    if isinstance(value, list):
        return tuple(_object(module, item) for item in value)
    if not isinstance(value, dict):
        return value
    kind = getattr(module, value["kind"], None) or getattr(links, value["kind"])
    return kind(**{name: _object(module, item) for name, item in value["values"].items()})


def _algorithm(algorithm: Algorithm) -> dict[str, Any] | None:
    if algorithm is None:
        return None
    source = algorithm.algorithm
    registered = Path(source.file).is_relative_to(paths.PACKAGE)
    name = algorithm.name if registered else f"{source.file}:{source.class_name}"
    params = {field.name: field.given(algorithm.params[field.name]) for field in source.params}
    return {"name": name, "params": params}


def _compiled(value: dict[str, Any] | None) -> Algorithm:
    if value is None:
        return None
    from datapath.cc import compile_algorithm

    return compile_algorithm(value["name"], value["params"])


def _index(known: list[dict[str, Any] | None], value: dict[str, Any] | None) -> int:
    if value not in known:
        known.append(value)
    return known.index(value)


def _change(change: Change) -> Any:
    from datapath.fabric.changes import SetAlgorithm

    if not isinstance(change, SetAlgorithm):
        return _plain(change)
    rows = None if change.flows is None else [int(row) for row in change.flows]
    values = {"at_ns": change.at_ns, "algorithm": _algorithm(change.algorithm), "flows": rows}
    return {"kind": "SetAlgorithm", "values": values}


def _changed(value: dict[str, Any]) -> Change:
    from datapath.fabric import changes

    kinds = {kind.__name__: kind for kind in get_args(changes.Change)}
    values = dict(value["values"])
    if value["kind"] == "SetAlgorithm":
        values["algorithm"] = _compiled(values["algorithm"])
    values = {name: _object(changes, item) for name, item in values.items()}
    made: Change = kinds[value["kind"]](**values)
    return made


def main(argv: Sequence[str]) -> int:
    """Replay one case; returns the exit code."""
    if len(argv) != 1:
        print("usage: python -m datapath.fabric.replay FOLDER/case.json", file=sys.stderr)
        return 2
    path = Path(argv[0])
    try:
        simulation, arguments = read(path)
        result = simulation.run(**arguments, trace_events=TRACE_EVENTS, keep=path.parent)
    except DatapathError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    print(f"no failure; digest {result.digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
