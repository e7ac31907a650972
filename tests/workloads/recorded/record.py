# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Records what the programs of this machine print, for test_recorded.py.

    .venv/bin/python -m tests.workloads.recorded.record [perftest|iperf3|ucx ...]

runs every case below between two hosts, as an experiment would, and puts the client's output
into a folder named after program and version.  Do so when Debian has a new version of one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datapath.cc import compile_algorithm
from datapath.cc.spec import HostCc
from datapath.errors import DatapathError
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Path as PathSpec
from datapath.lanes.spec import Topology
from datapath.verbs.launch import device_environment
from datapath.verbs.spec import Transport
from datapath.workloads import REGISTRY
from datapath.workloads.base import RunContext

FOLDER = Path(__file__).parent

OPERATIONS = ("write", "read", "send", "atomic")
PERFTEST: dict[str, dict[str, Any]] = {
    **{f"{op}_bw": {"test": f"{op}_bw", "iterations": 100} for op in OPERATIONS},
    **{f"{op}_lat": {"test": f"{op}_lat", "iterations": 20} for op in OPERATIONS},
    **{
        f"{op}_bw-1MiB": {"test": f"{op}_bw", "iterations": 20, "size": "1MiB"}
        for op in OPERATIONS
        if op != "atomic"
    },
    **{
        f"{op}_bw-bidirectional": {"test": f"{op}_bw", "iterations": 100, "bidirectional": True}
        for op in OPERATIONS
    },
    "write_bw-duration": {"test": "write_bw", "duration": "1s", "size": "64KiB"},
    "write_bw-qps": {"test": "write_bw", "iterations": 100, "size": 64, "qps": 3},
    "write_bw-peak": {"test": "write_bw", "iterations": 100, "extra": ["--perform_warm_up"]},
    "write_bw-gbits": {"test": "write_bw", "iterations": 100, "extra": ["--report_gbits"]},
    "write_bw-all": {"test": "write_bw", "iterations": 10, "extra": ["--all"]},
    "send_bw-events": {"test": "send_bw", "iterations": 100, "use_event": True},
    "send_lat-events": {"test": "send_lat", "iterations": 20, "use_event": True},
}
IPERF3: dict[str, dict[str, Any]] = {
    "tcp": {},
    "tcp-streams": {"streams": 2, "reverse": True},
    "udp": {"protocol": "udp", "rate": "10mbit", "length": "1000B"},
}
UCX: dict[str, dict[str, Any]] = {
    test: {"test": test, "iterations": 100, "warmup": 10}
    for test in ("tag_lat", "tag_bw", "put_lat", "put_bw")
}
CASES: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "perftest": PERFTEST,
    "iperf3": {name: {"duration": "1s", **case} for name, case in IPERF3.items()},
    "ucx": UCX,
}
PACKAGES = {"perftest": "perftest", "iperf3": "iperf3", "ucx": "ucx-utils"}
"""Debian's; perftest itself calls each of its versions 6.06."""


def version(kind: str) -> str:
    """Version of the program, without Debian's own part."""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${source:Upstream-Version}", PACKAGES[kind]],
        capture_output=True,
        text=True,
        check=True,
    )
    return re.split(r"[+~]", done.stdout)[0]


def run(network: NetnsNetwork, kind: str, section: dict[str, Any], logs: Path) -> None:
    """One run of the workload; its logs are left in the folder, whatever becomes of it."""
    device = REGISTRY[kind].devices[0]
    algorithm = compile_algorithm("fixed", {})
    environment = {
        host.name: device_environment("dp0", f"udp:{host.endpoint.ipv4}", cc=algorithm.path)
        for host in network.hosts
    }
    context = RunContext(
        network=network,
        transport=Transport.model_validate({"device": device}),
        cc=HostCc(),
        device_env=[environment[h.name] if device == "dp" else {} for h in network.hosts],
        logs=logs,
        seed=1,
        timeout_s=60,
        path=PathSpec(),
        folder=logs,
    )
    workload = REGISTRY[kind]
    workload(workload.Params.model_validate(section)).run(context)


def anonymous(text: str) -> str:
    """Without the name of the machine that it was recorded on."""
    return re.sub(r'("system_info":\s*)"[^"]*"', r'\1"Linux"', text)


def record(network: NetnsNetwork, kind: str) -> None:
    folder = FOLDER / f"{kind}-{version(kind)}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, section in CASES[kind].items():
        with tempfile.TemporaryDirectory() as logs:
            try:
                run(network, kind, section, Path(logs))
                said = "good"
            except DatapathError as error:
                said = str(error)
            for output in Path(logs).glob("*-client*.out"):
                (folder / f"{name}.out").write_text(anonymous(output.read_text()))
        print(f"{folder.name}/{name}: {said}", flush=True)


def main() -> None:
    with NetnsNetwork(Topology()) as network:
        for kind in sys.argv[1:] or CASES:
            record(network, kind)


if __name__ == "__main__":
    main()
