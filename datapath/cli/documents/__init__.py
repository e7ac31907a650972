# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `--format json` prints, command by command; `dpctl schema COMMAND` makes JSON Schema of it.

A document is an object with `version` (datapath.cli.output.VERSION).  Commands that print one thing
print its members beside it; commands that print a list have it as `rows`.  With `--format ndjson`
each row is an object of one line, with a `version` of its own.

Members are in base units (bits and bytes, seconds or what the name ends in); null: not known.

    members.py       the vocabulary
    experiments.py   doctor, list, validate, run, show, compare, report, series, clean
    programs.py      ps, top, cc of
    algorithms.py    cc, collective, nccl
    devices.py       fabric, kernel, vnic, interop, trace, flows, xdp
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from datapath.cli.documents import algorithms, devices, experiments, programs
from datapath.cli.output import VERSION
from datapath.errors import LocalError
from datapath.spelling import did_you_mean


@dataclass(frozen=True)
class Document:
    """members: of the one object or of each row; many: whether there are rows."""

    members: Any
    many: bool = True


DOCUMENTS: Mapping[str, Document] = {
    "cc check": Document(algorithms.Checked, many=False),
    "cc compile": Document(algorithms.Compiled, many=False),
    "cc hunt": Document(algorithms.HuntFinding | algorithms.Dimension),
    "cc list": Document(algorithms.Algorithm),
    "cc of": Document(programs.Qp),
    "cc set": Document(algorithms.Changed, many=False),
    "cc show": Document(algorithms.AlgorithmDetail, many=False),
    "clean": Document(experiments.Cleaned),
    "collective check": Document(algorithms.Proved, many=False),
    "collective choose": Document(algorithms.Choice),
    "collective doctor": Document(algorithms.SlowLink),
    "collective list": Document(algorithms.Collective),
    "collective plan": Document(algorithms.Step),
    "compare": Document(experiments.Comparison, many=False),
    "doctor": Document(experiments.Finding),
    "fabric accuracy": Document(devices.Accuracy, many=False),
    "fabric wakeup": Document(devices.Wakeup, many=False),
    "flows": Document(devices.CapturedHost),
    "interop": Document(devices.Cell),
    "kernel install": Document(devices.Kernel),
    "kernel list": Document(devices.Kernel),
    "list": Document(experiments.Listed),
    "nccl cases": Document(algorithms.NcclCase),
    "nccl check": Document(algorithms.NcclVerdict),
    "ps": Document(programs.Running, many=False),
    "report": Document(experiments.Made, many=False),
    "run": Document(experiments.Ran, many=False),
    "run --dry-run": Document(experiments.Planned),
    "series": Document(experiments.Series),
    "series RUN": Document(experiments.Sampled),
    "show": Document(experiments.Shown, many=False),
    "top": Document(programs.Top, many=False),
    "trace": Document(devices.Violation),
    "validate": Document(experiments.Problem),
    "vnic show": Document(devices.Card),
    "xdp inspect": Document(devices.BpfObject, many=False),
}
"""Words of the command behind `dpctl` -> what it prints."""


def schema(command: str) -> dict[str, Any]:
    """JSON Schema of what a command prints with --format json; LocalError for other commands."""
    if command not in DOCUMENTS:
        raise LocalError(
            f"dpctl {command} prints no JSON", hint=did_you_mean(command, list(DOCUMENTS), "known")
        )
    document = DOCUMENTS[command]
    members = TypeAdapter(document.members).json_schema()
    kinds = members.pop("$defs", {})
    version = {"const": VERSION, "description": "changes when a name or a meaning does"}
    head: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"dpctl {command} --format json",
        **({"$defs": kinds} if kinds else {}),
    }
    if document.many:
        rows = {"type": "array", "items": members}
        properties = {"version": version, "rows": rows}
        return {
            **head,
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    members["properties"] = {"version": version, **members["properties"]}
    members["required"] = ["version", *members.get("required", [])]
    return {**head, **members, "title": head["title"]}
