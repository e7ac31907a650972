# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What all tests share."""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from datapath.cli.tally import CPU_PROPERTY
from tests.cli import server

# The machine is shared with the programs under test: how long an example takes says nothing.
# A selftest tries the same examples each time; a hunt tries others.
HUNTS = ("DATAPATH_HUNT", "DATAPATH_HOSTILE")
settings.register_profile(
    "datapath",
    deadline=None,
    print_blob=True,
    derandomize=not any(name in os.environ for name in HUNTS),
)
settings.load_profile("datapath")

HERE = Path(__file__).parent
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
COMPUTING = ("cc", "docs", "engine", "fabric", "hunt", "link", "report", "wire")
"""Folders with tests that compute, beside those that run on the machine's network."""

MEASURING = (
    "lanes/test_accuracy.py",
    "lanes/test_scheduling.py",
)
"""Files with tests of what time, rates or CPUs come to; single tests elsewhere have the mark."""

LONG = (
    "cli/test_tutorial.py",
    "train/test_backend.py",
    "experiment/test_runner.py",
    "lanes/test_ssh.py",
    "cli/test_machine.py",
    "fresh/test_fresh.py",
    "cli/test_offline.py",
    "verbs/test_programs.py",
    "verbs/test_rdmacm.py",
    "fuzz/test_corpus.py",
    "experiment/test_revisions.py",
    "workloads/test_perftest.py",
    "workloads/test_training.py",
)
"""Files whose tests drive programs for long: the processes of a stage take them first."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether no test of a file can be meant by -m.  Such a file is not imported: that takes long.

    Only for an expression that joins marks, and negations of marks, by `and`.
    """
    words = config.getoption("markexpr").split(" and ")
    if collection_path.suffix != ".py" or any(" or " in word or "(" in word for word in words):
        return None
    wanted = {word for word in words if word and not word.startswith("not ")}
    unwanted = {word.removeprefix("not ") for word in words if word.startswith("not ")}
    if wanted <= marks_of(collection_path) and not unwanted & certain_marks_of(collection_path):
        return None
    return True


def marks_of(path: Path) -> set[str]:
    """The marks that a test of a file may have."""
    place, text = path.relative_to(HERE), path.read_text(encoding="utf-8")
    found = set(re.findall(r"\bmark\.(\w+)", text))
    if place.parts[0] in COMPUTING:
        found.add("compute")
    if searches(text):
        found.add("soak")
    if place.parts[0] == "guests":
        found.add("guests")
    if str(place) in MEASURING:
        found.add("alone")
    return found


@functools.cache
def certain_marks_of(path: Path) -> set[str]:
    """The marks that every test of a file has.

    pytest_collection_modifyitems compares them with the tests' own, where the file is collected.
    """
    place, text = path.relative_to(HERE), path.read_text(encoding="utf-8")
    whole_file = re.findall(r"^pytestmark = (\[[^\]]*\]|.*$)", text, re.MULTILINE)
    found = set(re.findall(r"\bmark\.(\w+)", " ".join(whole_file)))
    if place.parts[0] in COMPUTING:
        if not any(wants_root(file) for file in (path, *fixtures_above(path))):
            found.add("compute")
    elif str(place) in MEASURING:
        found.add("alone")
    if searches(text):
        found.add("soak")
    if place.parts[0] == "guests":
        found.add("guests")
    return found


def fixtures_above(path: Path) -> Iterator[Path]:
    """The files of fixtures for a folder and those above it, but for this one."""
    for folder in path.parents:
        if folder == HERE:
            return
        if (file := folder / "conftest.py").exists():
            yield file


@functools.cache
def wants_root(path: Path) -> bool:
    """Whether a file may ask for the fixture `root`."""
    return re.search(r"\broot\b", path.read_text(encoding="utf-8")) is not None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are made, and stay until the end: Python looks for no garbage in them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


CPU_BEFORE = pytest.StashKey[float]()
"""What this process and its children had used when a test began."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[CPU_BEFORE] = cpu_s()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """The log of the tests tells what each of them used, with its fixtures and programs."""
    if call.when == "teardown":
        item.user_properties.append((CPU_PROPERTY, f"{cpu_s() - item.stash[CPU_BEFORE]:.2f}"))


def cpu_s() -> float:
    """CPU seconds of this process, and of its children as soon as they have been waited for."""
    return sum(os.times()[:4]) + server.cpu_s()


def pytest_configure() -> None:
    """Programs that tests start end at ^C, also where a shell ran the tests with `&`.

    Such a shell has SIGINT ignored, and programs inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    server.close_shared()


def searches(text: str) -> bool:
    """Whether the number of examples of a file's tests is asked for in the environment."""
    return any(f'environ.get("{name}"' in text for name in HUNTS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that only compute do not mind what runs beside them; those that measure do.

    Of the others, those of a file run one after another, also where xdist spreads tests.
    """
    soaked = {path for path in {item.path for item in items} if searches(path.read_text())}
    items.sort(key=lambda item: place_in_line(item.path))  # sort() keeps the order of equal ones
    for item in items:
        if item.path in soaked:
            item.add_marker(pytest.mark.soak)
        place = item.path.relative_to(HERE)
        if place.parts[0] in COMPUTING and "root" not in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.compute)
        elif str(place) in MEASURING:
            item.add_marker(pytest.mark.alone)
        marks = {mark.name for mark in item.iter_markers()}
        certain = certain_marks_of(item.path) - {"guests"}  # tests/guests/conftest.py adds it
        if not certain <= marks:
            missing = ", ".join(sorted(certain - marks))
            raise pytest.UsageError(f"{item.nodeid} has not its file's mark: {missing}")
        if item.get_closest_marker("compute") is None:
            item.add_marker(pytest.mark.xdist_group(str(place)))


def place_in_line(path: Path) -> int:
    """Where a file stands among those that start before others."""
    place = str(path.relative_to(HERE))
    return LONG.index(place) if place in LONG else len(LONG)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A signal that a test leaves ignored would be ignored by every program started later."""
    before = {signum: signal.getsignal(signum) for signum in ENDING}
    yield
    after = {signum: signal.getsignal(signum) for signum in ENDING}
    assert after == before, "the test leaves another handler of a signal"


@pytest.fixture
def root() -> None:
    """For tests that make namespaces, links or load BPF programs."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces and loads BPF programs")
