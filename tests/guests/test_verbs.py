# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The verbs cases inside a guest: on ours, on soft-RoCE and on soft-iWARP."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.guests.conftest import REPORTS, Guests
from tests.verbs.devices import VARIANTS, applicable

CASES_S = 900


@pytest.mark.timeout(CASES_S + 60)
@pytest.mark.parametrize("kind", sorted(VARIANTS))
def test_cases(guests: Guests, kind: str, tmp_path: Path) -> None:
    guests.has_device(kind)
    host = guests.network.hosts[0]
    folder = tmp_path / "out"
    folder.mkdir()
    log = f"{host.outputs(folder)}/{kind}.xml"
    status, said = guests.shell(
        host,
        f"exec '{sys.executable}' -m pytest -q -p no:cacheprovider tests/verbs/test_cases.py "
        f"--verbs-device {kind} --junitxml={log}",
        CASES_S,
    )
    host.fetch(folder)
    report = folder / f"{kind}.xml"
    assert report.exists(), said
    if REPORTS in os.environ:
        shutil.copy(report, os.environ[REPORTS])
    tests = list(ElementTree.parse(report).iter("testcase"))
    cases = [test for test in tests if test.get("name", "").startswith("test_case[")]
    assert len(cases) == len(VARIANTS[kind]) * len(applicable(kind)), said
    assert [test for test in tests if test.find("skipped") is not None] == []
    assert status == 0, said
