# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl selftest` itself: choice of stages, counting."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from datapath.cli import selftest
from datapath.cli.tally import Tally
from datapath.errors import LocalError
from tests.conftest import HERE, certain_marks_of, marks_of, pytest_ignore_collect

USUAL = ["lint", "c", "san", "pytest", "guests", "compute", "alone", "suite"]


@pytest.fixture
def one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage starts as few processes as it can: each needs half a second of CPU time."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})


@pytest.mark.parametrize(
    ("arguments", "stages", "left"),
    [
        ([], USUAL, []),
        (
            ["tests/wire", "-k", "bth"],
            ["san", "pytest", "compute", "alone"],
            ["tests/wire", "-k", "bth"],
        ),
        (["--stage", "pytest,lint"], ["lint", "pytest"], []),
        (["--stage=san", "-x"], ["san"], ["-x"]),
        (["--stage", "guests", "-k", "siw"], ["guests"], ["-k", "siw"]),
        (
            ["--all"],
            [*USUAL, "soak", "fresh", "suites"],
            [],
        ),
        (
            ["-x", "--all"],
            [*USUAL, "soak", "fresh", "suites"],
            ["-x"],
        ),
        (["--stage", "fresh,c"], ["c", "fresh"], []),
        (["--stage", "san", "-x", "--stage=c"], ["c", "san"], ["-x"]),
        *(
            ([path, "-x"], ["san", "pytest", "guests", "compute", "alone"], [path, "-x"])
            for path in (
                "tests/guests",
                "tests/guests/test_rdmacm.py",
                "tests/guests/test_rdmacm.py::test_it[dp/rxe]",
                "./tests/interop/test_matrix.py",
            )
        ),
        (["--stage", "san", "tests/guests"], ["san"], ["tests/guests"]),
        (["-k", "guests"], ["san", "pytest", "compute", "alone"], ["-k", "guests"]),
        (["tests/guests/none"], ["san", "pytest", "compute", "alone"], ["tests/guests/none"]),
    ],
)
def test_stages(arguments: list[str], stages: list[str], left: list[str]) -> None:
    assert selftest.choose_stages(arguments) == (stages, left)


@pytest.mark.parametrize(
    "arguments",
    [["--stage", "all"], ["--stage"], ["--stage="], ["--stage", "c", "--stage", "all"]],
)
def test_unknown_stage(arguments: list[str]) -> None:
    with pytest.raises(LocalError, match="no such stage") as caught:
        selftest.choose_stages(arguments)
    assert (
        "lint, c, san, pytest, guests, compute, alone, suite, soak, fresh, suites"
        in caught.value.hint
    )


def test_all_and_some_is_a_contradiction() -> None:
    with pytest.raises(LocalError, match="both choose stages"):
        selftest.choose_stages(["--all", "--stage", "c"])


def test_a_soak_asks_for_more_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sanitized searches, others, and what takes minutes; a number that is set already is kept."""
    seen: list[tuple[str, str, str]] = []

    def run(arguments: Sequence[str], env: dict[str, str], **_: Any) -> Tally:
        mark = arguments[list(arguments).index("-m") + 1]
        seen.append((mark, env["DATAPATH_HUNT"], env["DATAPATH_HOSTILE"]))
        return Tally(passed=1)

    monkeypatch.setattr(selftest, "run_pytest", run)
    monkeypatch.setattr(selftest, "sanitizer_environment", lambda reports: {})
    monkeypatch.delenv("DATAPATH_HUNT", raising=False)
    monkeypatch.setenv("DATAPATH_HOSTILE", "7")
    assert selftest.soak([]).passed == 4
    assert {(hunts, hostile) for _, hunts, hostile in seen} == {("1000", "7")}
    marks = [mark for mark, _, _ in seen]
    searches = ["san and not alone and soak", "san and alone and soak", "soak and not san"]
    assert marks == [*searches, "minutes"]


@pytest.mark.parametrize("name", ["engine/test_hostile_machine.py", "cli/test_hostile.py"])
def test_searches_are_what_a_soak_runs(name: str) -> None:
    assert "soak" in marks_of(HERE / name)
    assert "soak" not in marks_of(Path(__file__))


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("wire/test_parse.py", {"san", "compute"}),
        ("cc/test_vpc_loss.py", set()),  # a test of it makes a network
        ("collectives/test_nccl.py", {"san"}),
        ("cli/test_selftest.py", set()),  # one of its tests has the mark `san`
        ("lanes/test_accuracy.py", {"alone"}),
    ],
)
def test_a_file_without_a_test_for_a_stage_is_not_imported(name: str, marks: set[str]) -> None:
    path = HERE / name
    assert certain_marks_of(path) & {"san", "compute", "guests", "alone", "soak"} == marks

    def left_out(expression: str) -> bool:
        config: Any = SimpleNamespace(getoption={"markexpr": expression}.get)
        return pytest_ignore_collect(path, config) is True

    for mark in ("san", "compute", "alone"):
        assert left_out(f"not soak and not {mark}") == (mark in marks)
        assert left_out(f"not soak and {mark}") == (mark not in marks_of(path))


def test_python_looks_for_no_garbage_in_the_tests_themselves() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000


def test_every_stage_is_told() -> None:
    """By the module's docstring, in their order."""
    told = re.findall(r"(?m)^  (\w+)  ", selftest.__doc__ or "")
    assert told == [*selftest.STAGES, *selftest.LONG_STAGES]


def test_guests_and_what_computes_run_beside_the_stages_before_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One after the other; nothing of them is left when `alone` runs."""
    here, gone = tmp_path / "here", tmp_path / "gone"

    def guests(_: Sequence[str]) -> Tally:
        here.touch()
        wait_for(tmp_path / "lint ran")
        return Tally(passed=2)

    def compute(_: Sequence[str]) -> Tally:
        wait_for(tmp_path / "c ran")
        gone.touch()
        return Tally(passed=3)

    def lint(_: Sequence[str]) -> Tally:
        wait_for(here)
        (tmp_path / "lint ran").touch()
        return Tally(passed=1)

    def c(_: Sequence[str]) -> Tally:
        (tmp_path / "c ran").touch()
        return Tally(passed=1)

    def alone(_: Sequence[str]) -> Tally:
        return Tally(passed=1 if gone.exists() else 0)

    stages = {"lint": lint, "c": c, "guests": guests, "compute": compute, "alone": alone}
    monkeypatch.setattr(selftest, "STAGES", stages)
    done = selftest.run_stages(list(stages), [])
    passed = [(name, outcome.tally.passed) for name, outcome in done.items()]
    assert passed == [("lint", 1), ("c", 1), ("guests", 2), ("compute", 3), ("alone", 1)]


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


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


def test_pytest_that_dies_is_a_failure(one_cpu: None, tmp_path: Path) -> None:
    """An abort under the sanitizer leaves no log of results."""
    (tmp_path / "test_abort.py").write_text("import os\ndef test_it():\n    os.abort()\n")
    tally = selftest.plain_pytest([str(tmp_path), "-q"])
    assert str(tally) == "0 passed, 1 failed, 0 skipped"


UNSTEADY = """
from pathlib import Path

MARK = Path(__file__).with_suffix(".mark")

def test_good():
    pass

def test_unsteady():
    seen = MARK.exists()
    MARK.touch()
    assert seen, "the first time"
"""


def test_what_fails_by_chance_is_told_as_unsteady(one_cpu: None, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNSTEADY)
    tally = selftest.plain_pytest([str(tmp_path), "-q"])
    assert str(tally) == "2 passed, 0 failed, 0 skipped"
    [told] = tally.details
    assert told.startswith("unsteady, passed when run again: ")
    assert "test_it.test_unsteady: AssertionError: the first time" in told


def test_what_fails_again_has_failed(one_cpu: None, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNSTEADY + "\ndef test_bad():\n    assert False\n")
    tally = selftest.plain_pytest([str(tmp_path), "-q"])
    assert str(tally) == "2 passed, 1 failed, 0 skipped"
    assert [failure.name.rpartition(".")[2] for failure in tally.failures] == ["test_bad"]
    assert len(tally.details) == 1


def test_many_failures_are_no_chance(one_cpu: None, tmp_path: Path) -> None:
    """Then the whole stage would take its time again, to no avail."""
    bad = "\n".join(f"def test_bad{n}():\n    assert False\n" for n in range(10))
    (tmp_path / "test_it.py").write_text(UNSTEADY + bad)
    tally = selftest.plain_pytest([str(tmp_path), "-q"])
    assert str(tally) == "1 passed, 11 failed, 0 skipped"


MORE = """
def test_later():
    assert False

def test_at_last():
    pass
"""


@pytest.mark.parametrize(
    ("early", "spread"), [("-vx", ""), ("--stepwise", ""), ("--maxfail=1", "loadfile")]
)
def test_what_pytest_left_is_told_and_nothing_runs_again(
    one_cpu: None, tmp_path: Path, early: str, spread: str
) -> None:
    """In one process, and in one of xdist: a second try of what failed would pass."""
    (tmp_path / "test_it.py").write_text(UNSTEADY + MORE)
    tally = selftest.pytest_with_second_try([str(tmp_path), early], spread=spread)
    assert str(tally) == "1 passed, 1 failed, 0 skipped, 2 never ran"
    assert tally.details == []


def test_what_a_process_that_died_has_left_is_told(one_cpu: None, tmp_path: Path) -> None:
    """The test that ended it would pass when it runs again, alone."""
    died = UNSTEADY.replace('assert seen, "the first time"', "seen or os._exit(1)")
    (tmp_path / "test_it.py").write_text(f"import os\n{died}\ndef test_later():\n    pass\n")
    tally = selftest.plain_pytest([str(tmp_path), "-q"])
    assert str(tally) == "1 passed, 1 failed, 0 skipped, 1 never ran"


def test_the_sanitizer_finds_a_wrong_access(
    one_cpu: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
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
    tally = selftest.sanitized_pytest([str(tmp_path), "-q"])
    assert tally.failed == 1
    told = capfd.readouterr().out
    assert "ERROR: AddressSanitizer" in told
    assert "dp_icrc" in told
