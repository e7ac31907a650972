# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The verbs cases inside guests: on ours, on soft-RoCE and on soft-iWARP.

Two guests run them at the same time, each on devices of its own.  pytest stays out here: to start
in an emulated guest takes it longer than all cases of a device.  On `dp` they run in one mode of
our engine: the other makes no use of what is different in here, the kernel and the slow processor.
Nor does a case that fills the engine's table of QPs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datapath.lanes import rdma
from datapath.lanes.base import Host, Process
from datapath.lanes.vm import VmNetwork
from datapath.verbs.launch import device_environment
from tests.verbs.devices import CASE_S, PROGRAMS, PYTHON, applicable, not_applicable

DEVICE = "several"
PLACES = (
    (("rxe", "out-of-band"), ("rxe", "rdma-cm")),
    (("siw", "rdma-cm"), ("dp", "auto")),
)
"""(kind of device, variant) of the cases that each guest runs, in this order."""
CASES = [
    (place, kind, variant, case)
    for place, runs in enumerate(PLACES)
    for kind, variant in runs
    for case in applicable(kind)
    if case != "as_many_queue_pairs_as_the_device_says"
]
PATIENCE_S = CASE_S + 90
"""Until a case has ended, and its device has been made before it."""

RecordProperty = Callable[[str, object], None]


class CasesInside:
    """Runs cases on one guest, one after another; call for what became of one."""

    def __init__(self, host: Host, wanted: dict[tuple[str, str], list[str]], logs: Path) -> None:
        self._host, self._logs = host, logs
        self._errors = logs / f"{host.name}-errors"
        self._left = list(wanted.items())
        self._process: Process | None = None
        self._device = ""
        self._results: dict[tuple[str, str, str], tuple[int, str]] = {}
        self._next()

    def _next(self) -> None:
        """Start the cases of the next kind and variant, on its device."""
        if not self._left:
            self._process = None
            return
        (kind, variant), names = self._left.pop(0)
        self._running = kind, variant
        self._log = self._logs / f"{self._host.name}-{kind}-{variant}"
        self._have(kind if kind in rdma.KERNEL_DEVICES else "")
        env = {"PYTHONDONTWRITEBYTECODE": "1"}
        if kind == "dp":
            env |= device_environment("dp0", "udp:127.0.0.1", options={"mode": variant}, base={})
        words = f"--kind {kind} --device {kind}0 --serve --seconds {CASE_S}"
        if variant == "rdma-cm":
            words += f" --address {self._host.endpoint.ipv4}"
        script = f"printf '%s\\n' {' '.join(names)} | {PYTHON} {PROGRAMS}/cases.py {words}"
        self._process = self._host.popen(
            ["sh", "-c", script], env=env, stdout=self._log, stderr=self._errors
        )

    def _have(self, device: str) -> None:
        if device != self._device and self._device:
            rdma.remove(self._host, self._device, unload=True)
        if device != self._device and device:
            rdma.add(self._host, device)
        self._device = device

    def look(self) -> None:
        """Take note of the cases that have ended; start the next ones after the last."""
        if self._process is None:
            return
        ended = self._process.poll() is not None
        for line in self._log.read_text().splitlines(keepends=True) if self._log.exists() else []:
            if line.endswith("\n"):
                answer = json.loads(line)
                result = answer["status"], answer["output"]
                self._results[(*self._running, answer["case"])] = result
        if ended:
            self._next()

    def result(self, kind: str, variant: str, case: str) -> tuple[int, str] | None:
        """Exit status and output of a case; None before it has ended."""
        return self._results.get((kind, variant, case))

    @property
    def ended(self) -> bool:
        return self._process is None

    @property
    def errors(self) -> str:
        """What the programs that run the cases said of themselves."""
        return self._errors.read_text() if self._errors.exists() else ""

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=20)
        self._have("")


@pytest.fixture(scope="module")
def inside(
    request: pytest.FixtureRequest,
    network: VmNetwork,
    tmp_path_factory: pytest.TempPathFactory,
    record_testsuite_property: RecordProperty,
) -> Iterator[list[CasesInside]]:
    """Those of the tests that were asked for, begun on both guests."""
    wanted: list[dict[tuple[str, str], list[str]]] = [{} for _ in PLACES]
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.function is test_case:
            given = item.callspec.params
            key = str(given["kind"]), str(given["variant"])
            for runs, chosen in zip(PLACES, wanted, strict=True):
                if key in runs:
                    chosen.setdefault(key, []).append(str(given["case"]))
    for kind in sorted({kind for runs in wanted for kind, _ in runs}):
        for need, names in not_applicable(kind).items():
            record_testsuite_property(f"not applicable: {kind}", f"{need}: {', '.join(names)}")
    network.prepare("dp")
    logs = tmp_path_factory.mktemp("cases")
    running = [
        CasesInside(host, runs, logs) for host, runs in zip(network.hosts, wanted, strict=True)
    ]
    yield running
    for cases in running:
        cases.close()
    network.recover()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("place", "kind", "variant", "case"),
    [pytest.param(*values, id="-".join(values[1:])) for values in CASES],
)
def test_case(inside: list[CasesInside], place: int, kind: str, variant: str, case: str) -> None:
    limit = time.monotonic() + PATIENCE_S
    while (found := inside[place].result(kind, variant, case)) is None:
        assert time.monotonic() < limit, f"no answer in {PATIENCE_S} s"
        last_look = inside[place].ended
        for cases in inside:
            cases.look()
        assert not last_look, f"the cases ended without an answer: {inside[place].errors}"
        time.sleep(0.1)
    status, said = found
    assert status == 0, said
