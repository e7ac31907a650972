# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl selftest` itself: choice of stages, counting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from datapath.cli import selftest
from datapath.errors import LocalError


@pytest.mark.parametrize(
    ("arguments", "stages", "left"),
    [
        ([], ["lint", "c", "san", "compute", "pytest", "guests"], []),
        (["tests/wire", "-k", "bth"], ["san", "compute", "pytest"], ["tests/wire", "-k", "bth"]),
        (["--stage", "pytest,lint"], ["lint", "pytest"], []),
        (["--stage=san", "-x"], ["san"], ["-x"]),
        (["--stage", "guests", "-k", "siw"], ["guests"], ["-k", "siw"]),
        (["--all"], ["lint", "c", "san", "compute", "pytest", "guests", "fresh"], []),
        (["-x", "--all"], ["lint", "c", "san", "compute", "pytest", "guests", "fresh"], ["-x"]),
        (["--stage", "fresh,c"], ["c", "fresh"], []),
    ],
)
def test_stages(arguments: list[str], stages: list[str], left: list[str]) -> None:
    assert selftest.choose_stages(arguments) == (stages, left)


@pytest.mark.parametrize("arguments", [["--stage", "all"], ["--stage"], ["--stage="]])
def test_unknown_stage(arguments: list[str]) -> None:
    with pytest.raises(LocalError, match="no such stage") as caught:
        selftest.choose_stages(arguments)
    assert "lint, c, san, compute, pytest, guests, fresh" in caught.value.hint


def test_all_and_some_is_a_contradiction() -> None:
    with pytest.raises(LocalError, match="both choose stages"):
        selftest.choose_stages(["--all", "--stage", "c"])


def test_every_stage_is_told() -> None:
    """By the module's docstring, in their order."""
    told = re.findall(r"(?m)^  (\w+)  ", selftest.__doc__ or "")
    assert told == [*selftest.STAGES, *selftest.LONG_STAGES]


def test_counts(tmp_path: Path) -> None:
    log = tmp_path / "log.xml"
    log.write_text(
        "<testsuites><testsuite><testcase name='a'/>"
        "<testcase classname='m' name='b'><failure message='one&#10; two'/></testcase>"
        "<testcase name='c'><error/></testcase>"
        "<testcase classname='m' name='d'><skipped message='needs a moon'/></testcase>"
        "</testsuite></testsuites>"
    )
    tally = selftest.read_junit(log)
    assert str(tally) == "1 passed, 2 failed, 1 skipped"
    assert tally.failures == ["m.b: one two", ".c: "]
    assert tally.skip_reasons == ["m.d: needs a moon"]


def test_a_long_message_keeps_its_end() -> None:
    line = selftest.in_short(
        "AssertionError: results: x\n" + 100 * "progress\n" + "error: no such device"
    )
    assert line.startswith("AssertionError: results: x progress")
    assert line.endswith(" progress error: no such device")
    assert len(line) < 410


def test_what_a_device_cannot_do_is_told_apart(tmp_path: Path) -> None:
    log = tmp_path / "log.xml"
    log.write_text(
        "<testsuites><testsuite><properties>"
        "<property name='not applicable: siw' value='atomics: add, swap'/>"
        "<property name='not applicable: siw' value='immediate: note'/>"
        "<property name='not applicable: rxe' value='drain event: drain'/>"
        "</properties><testcase name='test_case[siw-rdma-cm-send]'/>"
        "<testcase name='test_case[dp-auto-send]'><failure/></testcase>"
        "<testcase name='test_perftest[siw]'/></testsuite></testsuites>"
    )
    assert selftest.guest_details(log) == [
        "verbs on dp: 0 passed, 1 failed, 0 skipped; 0 not applicable",
        "verbs on siw: 1 passed, 0 failed, 0 skipped; 3 not applicable",
        "  no atomics: add, swap",
        "  no immediate: note",
    ]


def test_pytest_that_dies_is_a_failure(tmp_path: Path) -> None:
    """An abort under the sanitizer leaves no log of results."""
    (tmp_path / "test_abort.py").write_text("import os\ndef test_it():\n    os.abort()\n")
    tally = selftest.plain_pytest([str(tmp_path), "-q", "-p", "no:cacheprovider"])
    assert str(tally) == "0 passed, 1 failed, 0 skipped"


def test_the_sanitizer_finds_a_wrong_access(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stage does what it is for: C that reads behind its buffer fails, and is told."""
    (tmp_path / "test_overrun.py").write_text(
        "import pytest\n"
        "pytestmark = pytest.mark.san\n"
        "def test_it():\n"
        "    from datapath.native import ffi, lib\n"
        "    packet = ffi.new('struct dp_packet *')\n"
        "    data = ffi.new('uint8_t[]', 8)\n"
        "    packet.data = data\n"
        "    packet.len = packet.cap = 64\n"
        "    lib.dp_icrc_check(packet)\n"
    )
    tally = selftest.sanitized_pytest([str(tmp_path), "-q", "-p", "no:cacheprovider"])
    assert tally.failed == 1
    told = capfd.readouterr().out
    assert "ERROR: AddressSanitizer" in told
    assert "dp_icrc" in told
