# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Collecting series during a run: who samples, where the samples are, what is missing and why.

Every process with a device of ours samples its own QPs (verbs/series.c); kernel TCP is
sampled by a program of ours on each host (io/tcp_sampler.c); both leave files in the
run's logs, as does the emulator of the path, and the files become one table.  A simulation
gives the table itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath import series, series_metrics
from datapath.errors import RunFailed
from datapath.experiment.metrics import UNITS
from datapath.lanes.base import Host, Network, Process
from datapath.lanes.event_spec import Event
from datapath.native import paths
from datapath.series import Name, Request
from datapath.workloads.base import Metric

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTES = 64 * 2**20
"""Of the file of one process: at 10 ms and 16 QPs, some eight minutes."""

_START_S = 10.0
_FEW_SAMPLES = 10
_QUEUE = "no link of this network tells its queue"
_NO_QPS = "the kernel tells nothing of the QPs of {device}"
_NO_FLOWS = "nothing was sampled: no flow of the run lasted for an interval"
_NO_TCP = "nothing was sampled: no TCP connection of the run carried data"


def environment(request: Request, host: Host, logs: Path) -> dict[str, str]:
    """Environment that makes programs sample their devices; see docs/verbs.md."""
    prefix = f"{host.outputs(logs)}/series-{host.name}"
    interval_us = max(1, request.interval_ns // 1000)
    settings = f"interval_us={interval_us};qps={request.qps};max_bytes={MAX_BYTES}"
    return {"DATAPATH_SERIES": f"{prefix};{settings}"}


@contextlib.contextmanager
def sampling(request: Request | None, network: Network, logs: Path, *, tcp: bool) -> Iterator[None]:
    """Sample the path's queues and cards, and with `tcp` kernel TCP on every host, meanwhile."""
    if request is None:
        yield
        return
    samplers: list[Process] = []
    try:
        if tcp:
            for host in network.hosts:
                samplers.append(_start(request, host, logs))
        with (
            network.sampled_path(logs / "series-path", request.interval_ns, MAX_BYTES),
            network.sampled_cards(logs, request.interval_ns, MAX_BYTES, request.qps),
        ):
            yield
    finally:
        for sampler in samplers:
            sampler.kill()
        for sampler in samplers:
            sampler.wait()


def _start(request: Request, host: Host, logs: Path) -> Process:
    """A running sampler, whose file is there."""
    program = host.provide(paths.tcp_sampler())
    file = f"{host.outputs(logs)}/series-{host.name}.tcp{series.SUFFIX}"
    numbers = map(str, (request.interval_ns, request.qps, MAX_BYTES))
    addresses = [address for address in (host.endpoint.ipv4, host.endpoint.ipv6) if address]
    argv = [program, file, *numbers, *addresses]
    errors = logs / f"tcp-sampler-{host.name}.err"
    process = host.popen(argv, stderr=errors)
    deadline = time.monotonic() + _START_S
    while host.run(["test", "-s", file]).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            said = errors.read_text(errors="replace").split("\n") if errors.exists() else []
            words = next((line for line in reversed(said) if line), "it does not begin")
            raise RunFailed(f"the sampler of TCP on {host.name}: {words}", hint=f"see {errors}")
    return process


def gather(
    request: Request,
    simulated: pd.DataFrame | None,
    device: str,
    logs: Path,
    *,
    events: Sequence[Event] = (),
    zero_ns: int | None = None,
) -> tuple[pd.DataFrame, dict[str, Any], list[Metric]]:
    """The table of a run, with the series asked for; what a record says of it; and metrics.

    Files of samples are taken from the logs; RunFailed when one is damaged.  zero_ns: as
    Outcome has it; None: times count from the first sample.
    """
    files = []
    for path in sorted(logs.glob(f"*{series.SUFFIX}")):
        host = path.name.removeprefix("series-").partition(".")[0]
        files.append(series.read_file(path, host))
        path.unlink()
    frame = series.join([file.frame for file in files], from_zero=zero_ns is None)
    frame["time_ns"] -= zero_ns or 0
    if simulated is not None:
        frame = series.join([simulated, frame])
    derived = series_metrics.derived(
        frame, [event.time for event in events], interval_ns=request.interval_ns
    )
    frame = series.keep(frame, request.names)
    there = series.present(frame)
    about = {
        "rows": len(frame),
        "rows_left_out": sum(file.rows_left_out for file in files),
        "flows_left_out": sum(file.flows_left_out for file in files),
        "absent": {
            name: _why_absent(name, device, nothing=not there)
            for name in request.names
            if name not in there
        },
    }
    if events:
        about["events"] = [[event.time, event.text] for event in events]
    return frame, about, [Metric(name, value, UNITS[name]) for name, value in derived.items()]


def few_samples(frame: pd.DataFrame) -> str:
    """What a run notes if it was too short for its series; "" if it was not."""
    of_each = frame.groupby(["host", "qp", "link", "tunnel"], dropna=False).size()
    most = int(of_each.max()) if len(of_each) else 0
    if not 0 < most < _FEW_SAMPLES:
        return ""
    return f"{most} of each flow and link at most: metrics that follow from series are rough"


def _why_absent(name: Name, device: str, *, nothing: bool) -> str:
    if name == "queue":
        return _QUEUE
    if device in ("rxe", "siw"):
        return _NO_QPS.format(device=device)
    if device == "kernel":
        return _NO_TCP if nothing else "the kernel does not tell it"
    return _NO_FLOWS if nothing else "no flow of the run has it"
