# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Counts of tests, and what a JUnit log says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

CPU_PROPERTY = "cpu_s"
"""A property of each test in a JUnit log: the CPU seconds that it used."""


class Failure(NamedTuple):
    """A test that failed, and why, on one line."""

    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


@dataclass
class Tally:
    """Counts of tests.

    never_ran: tests that were collected, and left when pytest stopped early.
    skip_reasons, details: lines for the summary.  times: (seconds, name) of tests.
    cpu_s: (CPU seconds, file) of tests.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    never_ran: int = 0
    failures: list[Failure] = field(default_factory=list)
    skip_reasons: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    times: list[tuple[float, str]] = field(default_factory=list)
    cpu_s: list[tuple[float, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.never_ran += other.never_ran
        self.failures += other.failures
        self.skip_reasons += other.skip_reasons
        self.details += other.details
        self.times += other.times
        self.cpu_s += other.cpu_s

    @property
    def good(self) -> bool:
        """No test failed or was left, and one passed."""
        return self.failed == 0 and self.never_ran == 0 and self.passed > 0

    def slowest(self, count: int) -> list[tuple[float, str]]:
        """The tests that took longest, the longest first."""
        return sorted(self.times, reverse=True)[:count]

    def hungriest(self, count: int) -> list[tuple[float, str]]:
        """The files of tests that used most CPU time, the most first."""
        sums: dict[str, float] = {}
        for cpu_s, name in self.cpu_s:
            sums[name] = sums.get(name, 0) + cpu_s
        return sorted(((cpu_s, name) for name, cpu_s in sums.items()), reverse=True)[:count]

    def __str__(self) -> str:
        told = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return told + (f", {self.never_ran} never ran" if self.never_ran else "")


def after_second_try(first: Tally, second: Tally) -> Tally:
    """The tally of a stage whose failed tests, and only they, ran once more.

    A test that passed the second time counts as passed and is told as unsteady, with the
    message of its failure.
    """
    ran = second.passed + second.failed + second.skipped
    if ran != first.failed or len(second.failures) != second.failed or second.never_ran:
        return first  # other tests ran than those that had failed, or pytest died
    repeated = {failure.name for failure in second.failures}
    unsteady = [failure for failure in first.failures if failure.name not in repeated]
    return Tally(
        passed=first.passed + second.passed,
        failed=second.failed,
        skipped=first.skipped + second.skipped,
        failures=second.failures,
        skip_reasons=first.skip_reasons + second.skip_reasons,
        details=first.details + [f"unsteady, passed when run again: {one}" for one in unsteady],
        times=first.times + second.times,
        cpu_s=first.cpu_s + second.cpu_s,
    )


def read_junit(path: Path, wanted: str = "") -> Tally:
    """Counts of a JUnit log; nothing when whoever was to write it died before.

    wanted: only the tests whose names begin so.
    """
    tally = Tally()
    for case in elements(path, "testcase"):
        if not case.get("name", "").startswith(wanted):
            continue
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        tally.times.append((float(case.get("time", 0)), name))
        for entry in case.iter("property"):
            if entry.get("name") == CPU_PROPERTY:
                tally.cpu_s.append((float(entry.get("value", 0)), file_of(name)))
        failures = [*case.iter("failure"), *case.iter("error")]
        if failures:
            tally.failed += 1
            tally.failures.append(Failure(name, in_short(failures[0].get("message", ""))))
        elif (skip := case.find("skipped")) is not None:
            tally.skipped += 1
            tally.skip_reasons.append(f"{name}: {skip.get('message', '')}")
        else:
            tally.passed += 1
    return tally


def file_of(name: str) -> str:
    """The module of a test: its name without parameters, class and function."""
    parts = name.partition("[")[0].split(".")[:-1]
    return ".".join(part for part in parts if not part.startswith("Test"))


def elements(path: Path, tag: str) -> list[ElementTree.Element]:
    """The elements of a JUnit log that have this tag; none when the log is not whole."""
    try:
        return list(ElementTree.parse(path).iter(tag))
    except (FileNotFoundError, ElementTree.ParseError):
        return []


def in_short(message: str) -> str:
    """A message on one line; of a long one its beginning and, as that says why, more of its end."""
    line = " ".join(message.split())
    return line if len(line) <= 400 else f"{line[:100]} ... {line[-300:]}"
