# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where a result comes from: machine, network, devices, revision, command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from datapath.report import display
from datapath.report.folder import ResultFolder, axis_text, mapping, sequence
from datapath.report.network import drawing

Row = dict[str, Any]

_MAP_ENTRIES_SHOWN = 64


def machine(result: ResultFolder) -> list[Row]:
    """Title and value of the facts that decide speed most: kernel, CPU, cores, memory."""
    host = mapping(result.manifest.get("machine"))
    kernel = [str(host[k]) for k in ("kernel", "architecture", "distribution") if host.get(k)]
    virtual = "virtual machine" if host.get("virtual") else ""
    entries = {
        "Kernel": ", ".join(kernel),
        "CPU": ", ".join(str(v) for v in (host.get("cpu_model"), virtual) if v),
        "Cores": _cores(host),
        "Memory": _memory(host.get("memory_bytes")),
        "Frequency governor": host.get("governor"),
    }
    return [{"title": k, "value": str(v)} for k, v in entries.items() if v]


def _cores(host: Mapping[str, Any]) -> str:
    cores, usable = host.get("cores"), host.get("cores_usable")
    if not cores:
        return ""
    return f"{cores}, of which {usable} usable" if usable not in (None, cores) else str(cores)


def _memory(size: object) -> str:
    return f"{size / 2**30:.1f} GiB" if isinstance(size, (int, float)) and size > 0 else ""


def networks(result: ResultFolder) -> list[Row]:
    """The networks under test: back end, drawing, and devices with MTU, XDP mode, offloads."""
    shown = []
    for network in map(mapping, sequence(result.manifest.get("networks"))):
        devices = [
            _netdev(str(place), str(name), mapping(device))
            for place, inside in mapping(network.get("devices")).items()
            for name, device in mapping(inside).items()
        ]
        layout = [str(network[k]) for k in ("lane", "preset") if network.get(k)]
        shown.append(
            {
                "layout": ", ".join(layout),
                "backend": str(network.get("backend") or ""),
                "reason": str(network.get("backend_reason") or ""),
                "drawing": drawing(mapping(network.get("graph"))),
                "devices": devices,
            }
        )
    return shown


def _netdev(place: str, name: str, device: Mapping[str, Any]) -> Row:
    offloads = mapping(device.get("offloads"))
    on = [str(key) for key, value in offloads.items() if value is True]
    off = [str(key) for key, value in offloads.items() if value is False]
    parts = [f"{' '.join(names)} {word}" for word, names in (("on", on), ("off", off)) if names]
    return {
        "place": place,
        "name": name,
        "kind": str(device.get("kind") or ""),
        "mtu": str(device.get("mtu") or display.DASH),
        "xdp": str(device.get("xdp") or display.DASH),
        "offloads": "; ".join(parts) or display.DASH,
    }


def ports(result: ResultFolder) -> list[Row]:
    """How our verbs devices ran, one row for each way that occurred, with its points."""
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for record in result.records:
        for device in map(mapping, sequence(record.get("device"))):
            found.setdefault(_port(device), {}).setdefault(point_text(record))
    keys = ("kind", "mode", "mode_reason", "path_mtu", "path_mtu_reason", "protocol")
    return [
        {**dict(zip(keys, port, strict=True)), "points": list(points)}
        for port, points in found.items()
    ]


def _port(device: Mapping[str, Any]) -> tuple[str, ...]:
    """Kind, mode and why, path MTU and why, protocol: of the QPs where they know better."""
    port = mapping(device.get("port"))
    qps = [mapping(qp) for qp in sequence(device.get("qps"))]
    mtus = _distinct(qp.get("path_mtu") for qp in qps)
    modes = {True: "extended", False: "standard"}
    spoken = _distinct(modes[bool(qp["extended"])] for qp in qps if "extended" in qp)
    return (
        str(port.get("kind") or display.DASH),
        str(port.get("mode") or display.DASH),
        str(port.get("mode_reason") or ""),
        mtus or str(port.get("path_mtu") or display.DASH),
        str(port.get("path_mtu_reason") or ""),
        spoken or display.DASH,
    )


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value))


def versions(result: ResultFolder) -> list[Row]:
    """Packages and programs with their versions."""
    return [
        {"title": str(name), "value": axis_text(version)}
        for part in ("packages", "programs")
        for name, version in mapping(result.manifest.get(part)).items()
    ]


def notes(result: ResultFolder) -> list[Row]:
    """Short facts that workloads noted of their runs, each with the points it is true of."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    points: dict[str, None] = {}
    for record in result.records:
        point = point_text(record)
        points.setdefault(point)
        for name, value in mapping(record.get("notes")).items():
            found.setdefault((str(name), axis_text(value)), {}).setdefault(point)
    return [
        {
            "name": name,
            "value": value,
            "points": ["all points"] if len(holders) == len(points) > 1 else list(holders),
        }
        for (name, value), holders in sorted(found.items())
    ]


def point_text(record: Mapping[str, Any]) -> str:
    """`stack = tcp, path.loss = 1%`, or the point's hash when nothing varies."""
    axes = mapping(record.get("axes"))
    text = ", ".join(f"{axis} = {axis_text(value)}" for axis, value in axes.items())
    return text or str(record.get("point", ""))


def xdp_maps(result: ResultFolder) -> list[Row]:
    """Final values of the maps of the user's own XDP program, run by run."""
    return [
        {
            "where": point_text(record),
            "repetition": record.get("repetition", 0),
            "map": str(name),
            "entries": (entries := _map_entries(content))[:_MAP_ENTRIES_SHOWN],
            "more": max(0, len(entries) - _MAP_ENTRIES_SHOWN),
        }
        for record in result.records
        for name, content in mapping(record.get("xdp_maps")).items()
    ]


def _map_entries(content: object) -> list[tuple[str, str]]:
    """Entries of a map: {key: value}, [value, ...] or [{key, value}, ...]."""
    if isinstance(content, Mapping):
        return [(str(key), axis_text(value)) for key, value in content.items()]
    entries = []
    for index, item in enumerate(sequence(content)):
        pair = mapping(item)
        if set(pair) == {"key", "value"}:
            entries.append((axis_text(pair["key"]), axis_text(pair["value"])))
        else:
            entries.append((str(index), axis_text(item)))
    return entries


def repeat(result: ResultFolder) -> Row:
    """Command line, revision and seed, as far as the manifest has them."""
    manifest = result.manifest
    argv = [str(part) for part in sequence(manifest.get("argv"))]
    if argv and PurePath(argv[0]).name in ("dpctl", "__main__.py"):
        argv[0] = "./dpctl"
    tree = mapping(manifest.get("git"))
    return {
        "command": shlex.join(argv),
        "fallback": shlex.join(["./dpctl", "run", f"{result.path.resolve().name}/experiment.yaml"]),
        "revision": str(tree.get("commit") or ""),
        "version": str(tree.get("version") or ""),
        "cwd": str(manifest.get("cwd") or ""),
        "dirty": bool(tree.get("dirty")),
        "seed": str(result.seed) if "seed" in result.resolved else "",
    }


def files(result: ResultFolder) -> list[Row]:
    """The files of the result folder."""
    wanted = {
        "runs.parquet": "every number: one row per run and metric, base units",
        "claims.json": "the claims, as judged",
        "experiment.yaml": "the experiment as it was written",
        "resolved.yaml": "with every default filled in",
        "manifest.json": "machine, versions, command line",
        "events.ndjson": "what happened when",
        "runs": "one file for each run",
        "samples": "single samples",
        "series": "samples over time",
        "logs": "output of every program",
    }
    return [
        {"name": name, "what": what}
        for name, what in wanted.items()
        if (result.path / name).exists()
    ]
