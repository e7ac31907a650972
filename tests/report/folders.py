# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Result folders for the tests of the report, in the format of docs/results.md.

The numbers are drawn from a seeded generator: they are test data for the code that
reads and draws them, nothing was measured.  Every folder says so in its description.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

NOTICE = "Test data from a random generator; nothing here was measured."
UNITS = {
    "goodput": "bit/s",
    "message_rate": "1/s",
    "latency_p50": "ns",
    "latency_p99": "ns",
    "latency_p999": "ns",
    "latency_mean": "ns",
    "latency_min": "ns",
    "retransmits": "1",
    "timeouts": "1",
    "retransmitted_share": "1",
    "lost_share": "1",
    "fairness": "1",
    "utilisation": "1",
    "queueing_delay_mean": "ns",
    "queueing_delay_p99": "ns",
    "host_delay_mean": "ns",
    "host_delay_p99": "ns",
    "rtt_p50": "ns",
    "rtt_p99": "ns",
    "longest_stall": "ns",
    "spurious_share": "1",
    "fair_share": "1",
    "competing_fair_share": "1",
    "xdp_zero_copy": "1",
    "xdp_copies": "packets",
    "cpu_user": "s",
    "cpu_system": "s",
    "cpu_stolen": "s",
    "cpu_waited": "s",
    "cpu_starved": "1",
    "pacing_late_mean": "ns",
    "pacing_late_max": "ns",
    "pacing_burst_max": "packets",
    "path_dropped": "packets",
    "path_passed": "packets",
    "unfinished_share": "1",
    **{f"{name}_{rank}": "ns" for name in ("fct", "round") for rank in ("p50", "p99", "p999")},
    **{
        f"slowdown_{rank}{size}": "1"
        for rank in ("p50", "p99", "p999")
        for size in ("", "_small", "_medium", "_large")
    },
    "path_overflowed": "packets",
    "path_policed": "packets",
    "path_aqm_dropped": "packets",
    "path_shaped": "packets",
    "path_marked": "packets",
    "path_paused": "ns",
    "path_late_p99": "ns",
    "path_cpu_limited": "1",
}
RATES = {"dp-afxdp": 9.1e9, "dp-udp": 14.2e9, "tcp": 21.5e9}
LATENCIES = {"dp-afxdp": 3_300.0, "dp-udp": 9_800.0, "tcp": 24_000.0}
LOSSES = ("0", "1%")
STACKS = tuple(RATES)


def point_key(axes: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(axes)).encode()).hexdigest()[:12]


def experiment(repetitions: int = 10, **report: Any) -> dict[str, Any]:
    """A resolved experiment of three stacks, two losses and two tests."""
    return {
        "version": 1,
        "name": "synthetic",
        "description": NOTICE,
        "seed": 7,
        "topology": {"lane": "netns", "preset": "p2p", "hosts": 2, "mtu": 9000},
        "sweep": {
            "matrix": {
                "stack": [{"label": stack, "set": {}} for stack in STACKS],
                "path.loss": ["0", "1%"],
                "test": [{"label": name, "set": {}} for name in ("1 MiB write", "64 B send")],
            },
            "repetitions": repetitions,
            "order": "blocked-random",
            "baseline": {"stack": "tcp"},
        },
        "report": report,
    }


def manifest(runs: int) -> dict[str, Any]:
    device = {
        "kind": "veth",
        "mtu": 9000,
        "xdp": "native",
        "offloads": {"tso": True, "gro": False},
    }
    return {
        "manifest_version": 1,
        "argv": ["/home/user/datapath/.venv/bin/dpctl", "run", "experiments/synthetic file.yaml"],
        "started": "2026-01-02T03:04:05+00:00",
        "cwd": "/home/user/datapath",
        "seed": 7,
        "runs_planned": runs,
        "machine": {
            "kernel": "6.1.0-test",
            "cpu_model": "Test CPU",
            "cores": 2,
            "memory_bytes": 2**34,
        },
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "packages": {"python": "3.11.2"},
        "programs": {"iperf3": "iperf 3.12"},
        "networks": [
            {
                "lane": "netns",
                "preset": "p2p",
                "backend": "bpf",
                "backend_reason": "XDP programs in the middle namespace",
                "devices": {"host0": {"eth1": device}, "host1": {"eth1": device}},
            }
        ],
    }


def metrics(
    axes: Mapping[str, str], rng: np.random.Generator, block_noise: float
) -> dict[str, float]:
    """Numbers of one run: a stack, a loss, noise of the block and of the run."""
    lossy = axes.get("path.loss", "0") != "0"
    noise = block_noise * rng.lognormal(0, 0.03)
    penalty = {"dp-afxdp": 0.95, "dp-udp": 0.93, "tcp": 0.14}[axes["stack"]] if lossy else 1.0
    common = {
        "retransmits": float(rng.poisson(900)) if lossy else 0.0,
        "cpu_user": 1.1 * noise,
        "cpu_system": 0.6 * noise,
        "path_dropped": float(rng.poisson(2_100)) if lossy else 0.0,
        "path_passed": 210_000.0,
    }
    if axes.get("test") == "64 B send":
        base = LATENCIES[axes["stack"]] * noise
        tail = 40.0 if lossy else 2.2
        return {
            "latency_p50": base,
            "latency_p99": base * tail,
            "latency_p999": base * tail * 2,
            "latency_mean": base * (1 + 0.02 * tail),
            "latency_min": base * 0.9,
            **common,
        }
    rate = RATES[axes["stack"]] * penalty * noise
    return {"goodput": rate, "message_rate": rate / 8 / 2**20, **common}


def all_axes() -> list[dict[str, str]]:
    return [
        {"stack": stack, "path.loss": loss, "test": test}
        for stack in STACKS
        for loss in LOSSES
        for test in ("1 MiB write", "64 B send")
    ]


def write(
    folder: Path,
    *,
    repetitions: int = 10,
    report: Mapping[str, Any] | None = None,
    failed: Iterable[tuple[int, int]] = (),
    claims: list[dict[str, Any]] | None = None,
    samples: bool = True,
    keep: int | None = None,
) -> Path:
    """Write a result folder.

    failed: (index of the point, repetition) of runs that failed.
    keep: only so many runs have finished, and the sweep was broken off.
    """
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)
    resolved = experiment(repetitions, **(report or {}))
    points = all_axes()
    lost = set(failed)
    records = []
    for block in range(repetitions):
        block_noise = float(rng.lognormal(0, 0.1))
        for index, axes in enumerate(points):
            numbers = metrics(axes, rng, block_noise)
            records.append(record(axes, block, None if (index, block) in lost else numbers))
    records = records[:keep]
    for name in ("experiment.yaml", "resolved.yaml"):
        with (folder / name).open("w") as stream:
            YAML(typ="safe", pure=True).dump(resolved, stream)
    dump(folder / "manifest.json", manifest(len(points) * repetitions))
    for entry in records:
        dump(folder / "runs" / f"{entry['point']}-{entry['repetition']}.json", entry)
        (folder / "logs" / f"{entry['point']}-{entry['repetition']}").mkdir(parents=True)
        if samples and entry["status"] == "ok" and entry["axes"]["test"] == "64 B send":
            write_samples(folder, entry, rng)
    if keep is None:
        frame(records).to_parquet(folder / "runs.parquet")
        dump(folder / "claims.json", CLAIMS if claims is None else claims)
    return folder


def record(
    axes: Mapping[str, str], block: int, numbers: Mapping[str, float] | None
) -> dict[str, Any]:
    """runs/<point>-<repetition>.json; a failed run has no numbers."""
    entry: dict[str, Any] = {
        "point": point_key(axes),
        "block": block,
        "repetition": block,
        "axes": dict(axes),
        "status": "ok" if numbers is not None else "failed",
        "started": "2026-01-02T03:04:05Z",
        "seconds": 1.5,
        "notes": {"tool": "none, these are test data"},
        "xdp_maps": {},
        "device": [device()] if axes["stack"] == "dp-afxdp" else [],
    }
    if numbers is None:
        return entry | {"metrics": [], "error": {"message": "no reply", "hint": "look at the log"}}
    rows = [{"name": k, "value": v, "unit": UNITS[k]} for k, v in numbers.items()]
    return entry | {"metrics": rows}


def device() -> dict[str, Any]:
    """What the verbs front leaves of a device."""
    port = {
        "kind": "afxdp",
        "netdev": "eth1",
        "path_mtu": 2048,
        "path_mtu_reason": "the driver takes no multi-buffer frames",
        "mode": "copy",
        "mode_reason": "veth has no zero-copy",
    }
    return {"device": "dp0", "port": port, "qps": [{"qpn": 17, "extended": 1, "path_mtu": 2048}]}


def frame(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The tidy table of these records, as runs.parquet has it."""
    rows = []
    for entry in records:
        common = {k: entry[k] for k in ("point", "block", "repetition", "status", "seconds")}
        common |= {"started": pd.Timestamp(entry["started"]), **entry["axes"]}
        for metric in entry["metrics"] or [{"name": None, "value": np.nan, "unit": None}]:
            rows.append(
                common
                | {"metric": metric["name"], "value": metric["value"], "unit": metric["unit"]}
            )
    return pd.DataFrame(rows)


def write_samples(folder: Path, entry: Mapping[str, Any], rng: np.random.Generator) -> None:
    median = next(m["value"] for m in entry["metrics"] if m["name"] == "latency_p50")
    values = median * rng.lognormal(0, 0.15, 2_000)
    values[rng.random(2_000) < 0.02] *= 8
    target = folder / "samples" / f"{entry['point']}-{entry['repetition']}.parquet"
    target.parent.mkdir(exist_ok=True)
    pd.DataFrame({"latency_ns": values}).to_parquet(target)


def dump(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=2))


def change_record(folder: Path, change: Mapping[str, Any]) -> None:
    """Write something else into the first of the folder's runs."""
    file = min((folder / "runs").glob("*.json"))
    dump(file, json.loads(file.read_text()) | dict(change))


CLAIMS: list[dict[str, Any]] = [
    {
        "title": "1 % loss costs AF_XDP at most a tenth of its goodput",
        "metric": "goodput",
        "where": {"stack": "dp-afxdp", "path.loss": "1%"},
        "ratio_to": {"path.loss": "0"},
        "measured": 0.951,
        "interval": [0.93, 0.968],
        "bound": {"min": 0.9},
        "pass": True,
        "reason": "",
    },
    {
        "title": "64 B send within 2 us",
        "metric": "latency_p50",
        "where": {"stack": "dp-afxdp", "path.loss": "0", "test": "64 B send"},
        "measured": 3310.0,
        "interval": [3200.0, 3405.0],
        "bound": {"max": 2000.0},
        "pass": False,
        "reason": "measured 3.31 us, above the bound",
    },
]
