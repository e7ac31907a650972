# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl selftest`: lint, C tests under sanitizers, pytest here and in guests, in one go.

Stages; each runs, even when another one failed:

  lint     ruff check, ruff format, mypy, import-linter
  c        meson test in build-san/ (AddressSanitizer and UBSan; ThreadSanitizer)
  san      pytest -m san: C inside Python, with the sanitized library
  pytest   the tests that drive programs on this machine itself: several files at once,
           two more than there are CPUs, since these tests often wait
  guests   pytest -m guests: boots virtual machines, installing their kernels
           first; the verbs tests run inside, on ours, soft-RoCE and soft-iWARP
  compute  tests that need nothing of the machine but time, several at once
  alone    pytest -m alone: the tests that measure time, one by one
  suite    tests/rdma_core/run.sh: rdma-core's own tests over the UDP port

The stages run in this order, with one exception: `guests`, and after it `compute`, run
beside the stages before them, so that no CPU waits.  Their output follows when their turn comes.

`--all` adds the long ones:

  soak     pytest -m soak: the searches for what breaks engine, connection manager and
           dpctl, with 1000 and 300 examples in place of some 60; pytest -m minutes: tests
           that take minutes, such as those of the claims of ten experiment files
  fresh    tests/fresh/run.sh: the quickstart on fresh machines of Debian 12 and
           13, from no package to its report; needs the network and 3 GB of disk
  suites   rdma-core's own tests over both ports, and with 1 % loss

Arguments go to pytest (paths, -k EXPRESSION, -x ...): then only the stages san,
pytest, compute and alone run, and guests if a path is that of tests inside guests.
`--stage NAME[,NAME]` chooses stages by name, also several times.  Tests inside
guests count like all others, and have a line of their own for each device.

In the stages pytest, guests and alone, tests that fail run once more, unless more than
ten of a stage did or pytest stopped early: they share the cores with programs and virtual
machines.  A test that passes then counts as passed, and the summary names it as unsteady, with
its failure.

The summary ends with the slowest ten tests, the ten files whose tests used most CPU time, what was
skipped and what failed, and `N passed, N failed, N skipped`; a lint tool counts as one test.
`N never ran` follows where pytest stopped early; then the selftest has failed.  Beside the seconds
of each stage stand the CPU seconds of its programs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from datapath.cli import never_ran
from datapath.cli.aside import Aside, Stage, StageDone, timed
from datapath.cli.bytecode import bytecode_kept
from datapath.cli.tally import (
    CPU_PROPERTY,
    Failure,
    Tally,
    after_second_try,
    elements,
    read_junit,
)
from datapath.errors import CapabilityError, LocalError
from datapath.native.paths import ROOT, in_source_tree

NO_TESTS_COLLECTED = 5  # exit code of pytest
AGAIN_MOST = 10  # failed tests of a stage that run once more; more than that are no coincidence
SLOWEST = 10  # tests, and files of tests, that the summary names
SOURCES_NOT_TO_BE_HAD = 69  # exit code of tests/rdma_core/run.sh
SOAK_EXAMPLES = {"DATAPATH_HUNT": 1000, "DATAPATH_HOSTILE": 300}
FRESH_RELEASES = ("bookworm", "trixie")


def run_tool(command: Sequence[str], env: dict[str, str] | None = None) -> int:
    """Runs command in the root of the tree, output to ours; returns its exit code."""
    print(f"$ {' '.join(command)}", flush=True)
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def python_tool(name: str) -> str:
    """A program of the virtual environment that this Python belongs to."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise CapabilityError(f"{path} is missing", hint=f"run {ROOT}/dpctl, which installs it")
    return str(path)


def lint(_: Sequence[str]) -> Tally:
    tools = [
        [python_tool("ruff"), "check", "."],
        [python_tool("ruff"), "format", "--check", "."],
        [python_tool("mypy")],
        [python_tool("lint-imports"), "--no-cache"],
    ]
    failed = sum(run_tool(tool) != 0 for tool in tools)
    return Tally(passed=len(tools) - failed, failed=failed)


def meson_tests(_: Sequence[str]) -> Tally:
    """C test programs.  Counts what meson's JUnit log says."""
    status = run_tool(
        [python_tool("meson"), "test", "-C", "build-san", "--no-rebuild", "--print-errorlogs"]
    )
    log = ROOT / "build-san" / "meson-logs" / "testlog.junit.xml"
    tally = read_junit(log)
    if status and not tally.failed:
        tally.failed = 1
    return tally


def run_pytest(
    arguments: Sequence[str],
    env: dict[str, str],
    details: Callable[[Path], list[str]] = lambda log: [],
    *,
    spread: str = "",
    waiting: int = 0,
) -> Tally:
    """details: what the summary says of a JUnit log beside its counts.

    spread: how tests are spread over as many processes as there are CPUs (--dist of
    pytest-xdist); "": one process.  waiting: further processes, for tests that often wait.
    """
    if spread:
        jobs = len(os.sched_getaffinity(0)) + waiting
        # A test that ends its process would end every one that took its place.
        arguments = ["-n", str(jobs), "--dist", spread, "--max-worker-restart=0", *arguments]
    with tempfile.TemporaryDirectory(prefix="dpctl-selftest-") as folder:
        log, left = Path(folder) / "junit.xml", Path(folder) / "never-ran"
        plugin = ["-p", never_ran.__name__, f"{never_ran.OPTION}={left}"]
        status = run_tool(
            [sys.executable, "-m", "pytest", f"--junitxml={log}", *plugin, *arguments], env={**env}
        )
        tally = read_junit(log)
        tally.never_ran = int(left.read_text(encoding="ascii")) if left.exists() else 0
        tally.details = details(log)
    if status not in (0, NO_TESTS_COLLECTED) and not tally.failed:
        print(f"pytest ended with {status}, before it had counted its tests", flush=True)
        tally.failed = 1
    return tally


def sanitizer_environment(reports: Path) -> dict[str, str]:
    """Environment in which an unsanitized Python can load sanitized libraries.

    reports: start of the names of the files that findings are written to; on
    stderr they would be lost with what pytest captures when the process dies.
    """
    runtimes = []
    for name in ("libasan.so", "libubsan.so"):
        path = subprocess.run(
            ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        if not Path(path).is_absolute():
            raise CapabilityError(f"{name} is missing", hint="install gcc with its sanitizers")
        runtimes.append(path)
    return {
        **os.environ,
        "DATAPATH_BUILD": "san",
        "LD_PRELOAD": ":".join(runtimes),
        # Python itself never frees some memory; a leak of ours is told by the C tests.
        "ASAN_OPTIONS": f"detect_leaks=0:detect_stack_use_after_return=1:log_path={reports}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:log_path={reports}",
    }


def sanitized_pytest(
    arguments: Sequence[str], *, only: str = "", env: Mapping[str, str] | None = None
) -> Tally:
    """only: what else must be marked, as in " and soak".  env: beside the sanitizers' own."""
    with tempfile.TemporaryDirectory(prefix="dpctl-selftest-") as folder:
        reports = Path(folder) / "report"
        environment = {**sanitizer_environment(reports), **(env or {})}
        tally = Tally()
        for mark, spread in (("san and not alone", "loadgroup"), ("san and alone", "")):
            # -p no:faulthandler: the sanitizer's own report of a signal is the better one.
            words = ["-m", mark + only, "-p", "no:faulthandler", *arguments]
            tally.add(run_pytest(words, env=environment, spread=spread))
        for report in sorted(reports.parent.iterdir()):
            print(report.read_text(errors="replace"), flush=True)
    return tally


def soak(_: Sequence[str]) -> Tally:
    """Searches with many more examples than usual, and with others each time; long tests."""
    env = {name: os.environ.get(name, str(number)) for name, number in SOAK_EXAMPLES.items()}
    arguments = ["--timeout", "0"]
    tally = sanitized_pytest(arguments, only=" and soak", env=env)
    for mark in ("soak and not san", "minutes"):
        words = ["-m", mark, *arguments]
        tally.add(run_pytest(words, env={**os.environ, **env}, spread="loadgroup"))
    return tally


def compute_pytest(arguments: Sequence[str]) -> Tally:
    """Tests that do not mind what runs beside them."""
    mark = "compute and not san and not guests and not minutes"
    return run_pytest(["-m", mark, *arguments], env=dict(os.environ), spread="worksteal")


def pytest_with_second_try(
    arguments: Sequence[str],
    details: Callable[[Path], list[str]] = lambda log: [],
    *,
    spread: str = "",
    waiting: int = 0,
) -> Tally:
    """Tests that drive programs on cores that others use as well.

    A few that fail run once more: what then passes is told as unsteady.  Not where others never
    ran: a stage would pass of which only a part has been tried.
    """
    with tempfile.TemporaryDirectory(prefix="dpctl-selftest-") as folder:
        # The list of failed tests is this stage's own: another one may run beside it.
        arguments = ["-o", f"cache_dir={folder}", *arguments]
        tally = run_pytest(
            arguments, env=dict(os.environ), details=details, spread=spread, waiting=waiting
        )
        if 0 < len(tally.failures) <= AGAIN_MOST and not tally.never_ran:
            again = ["--last-failed", "--last-failed-no-failures", "none"]
            tally = after_second_try(tally, run_pytest([*arguments, *again], env=dict(os.environ)))
    return tally


def plain_pytest(arguments: Sequence[str]) -> Tally:
    """Tests that drive programs.

    Three processes, with no other stage beside them, leave two CPUs idle for a fifth of the time.

    Files start in the order of tests/conftest.py: xdist's own would leave to the end, and to one
    process, those with few tests that take long.
    """
    mark = "not compute and not san and not guests and not alone and not minutes"
    words = ["-m", mark, "--no-loadscope-reorder", *arguments]
    return pytest_with_second_try(words, spread="loadfile", waiting=2)


def guest_pytest(arguments: Sequence[str]) -> Tally:
    """Tests with virtual machines."""
    return pytest_with_second_try(["-m", "guests and not minutes", *arguments], guest_details)


def lone_pytest(arguments: Sequence[str]) -> Tally:
    """Tests that measure time: nothing runs beside them."""
    return pytest_with_second_try(["-m", "alone", *arguments])


def guest_details(log: Path) -> list[str]:
    """Lines for the summary: the verbs cases of each kind of device."""
    lines = []
    for kind in ("dp", "rxe", "siw"):
        tally = read_junit(log, f"test_case[{kind}-")
        if tally.passed + tally.failed + tally.skipped == 0:
            continue
        left_out = read_left_out(log, kind)
        count = sum(len(names) for names in left_out.values())
        lines.append(f"verbs on {kind}: {tally}; {count} not applicable")
        lines += [f"  no {need}: {', '.join(names)}" for need, names in left_out.items()]
    return lines


def read_left_out(log: Path, kind: str) -> dict[str, list[str]]:
    """The verbs cases left out on a kind of device, by what it lacks."""
    found = {}
    for entry in elements(log, "property"):
        if entry.get("name") == f"not applicable: {kind}":
            need, _, names = entry.get("value", "").partition(": ")
            found[need] = names.split(", ")
    return found


def fresh_machines(_: Sequence[str]) -> Tally:
    """The README's quickstart on fresh machines: a test for each release."""
    if os.geteuid() != 0:
        reason = "fresh: needs root: makes the root folder of a Debian and enters it"
        return Tally(skipped=len(FRESH_RELEASES), skip_reasons=[reason])
    tally = Tally()
    for release in FRESH_RELEASES:
        if run_tool([str(ROOT / "tests" / "fresh" / "run.sh"), release]) == 0:
            tally.passed += 1
        else:
            tally.failed += 1
            told = f"see above, or make fresh FRESH={release}"
            tally.failures.append(Failure(f"fresh: {release}", told))
    return tally


def rdma_core_suite(*arguments: str) -> Tally:
    """Runs of rdma-core's own test suite; arguments are those of run.sh."""
    with tempfile.TemporaryDirectory(prefix="dpctl-selftest-") as folder:
        log = Path(folder) / "junit.xml"
        script = str(ROOT / "tests" / "rdma_core" / "run.sh")
        status = run_tool([script, f"--junitxml={log}", *arguments])
        tally = read_junit(log)
        tally.details = [
            f"{entry.get('name')}: {line.strip()}"
            for entry in elements(log, "property")
            if entry.get("name") != CPU_PROPERTY
            for line in (entry.get("value") or "").splitlines()
        ]
    if status == SOURCES_NOT_TO_BE_HAD:
        reason = "suite: the sources of rdma-core cannot be had: set RDMA_CORE_REPOSITORY"
        return Tally(skipped=1, skip_reasons=[reason])
    if status and not tally.failed:
        tally.failed = 1
    return tally


def suite(_: Sequence[str]) -> Tally:
    return rdma_core_suite("-k", "udp")


def suites(_: Sequence[str]) -> Tally:
    tally = rdma_core_suite()
    tally.add(rdma_core_suite("-k", "udp", "--loss", "1"))
    return tally


STAGES: dict[str, Stage] = {
    "lint": lint,
    "c": meson_tests,
    "san": sanitized_pytest,
    "pytest": plain_pytest,
    "guests": guest_pytest,
    "compute": compute_pytest,
    "alone": lone_pytest,
    "suite": suite,
}
BESIDE = ("guests", "compute")
"""The stages that run, one after another, beside those before them."""

OF_ARGUMENTS = ("san", "pytest", "compute", "alone")
"""The stages that take arguments for pytest, where no stage is named."""

LONG_STAGES: dict[str, Stage] = {
    "soak": soak,
    "fresh": fresh_machines,
    "suites": suites,
}
"""Stages that run with --all, or when --stage names them."""


def choose_stages(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(stages to run, what is left for pytest)."""
    every = [*STAGES, *LONG_STAGES]
    named: list[str] = []
    left: list[str] = []
    words = iter(arguments)
    for word in words:
        if match := re.fullmatch(r"--stage(?:=(.*))?", word):
            named += (next(words, "") if match[1] is None else match[1]).split(",")
        elif word != "--all":
            left.append(word)
    if unknown := set(named) - set(every):
        raise LocalError(
            f"no such stage: {', '.join(sorted(unknown)) or '(none given)'}",
            hint=f"stages are {', '.join(every)}",
        )
    if "--all" in arguments:
        if named:
            raise LocalError("--all and --stage both choose stages", hint="leave one of them out")
        return every, left
    if left and not named:
        named = [*OF_ARGUMENTS, *(["guests"] if any(map(is_of_guests, left)) else [])]
    return [name for name in every if name in (named or STAGES)], left


def is_of_guests(argument: str) -> bool:
    """Whether an argument is the path of tests inside guests: a folder of them, or a file."""
    path = (ROOT / argument.partition("::")[0]).resolve()
    if path.is_relative_to(ROOT / "tests" / "guests"):
        return path.exists()
    return path.is_file() and b"mark.guests" in path.read_bytes()


def run_stages(stages: Sequence[str], arguments: Sequence[str]) -> dict[str, StageDone]:
    """In the order of stages, but for those that run beside them."""
    run = STAGES | LONG_STAGES
    beside = [] if stages[0] in BESIDE else [stage for stage in stages if stage in BESIDE]
    done = {}
    with Aside([run[stage] for stage in beside], arguments) as aside:
        for stage in stages:
            print(f"\n==== {stage} ====", flush=True)
            done[stage] = aside.join() if stage in beside else timed(run[stage], arguments)
    return done


def selftest(args: list[str]) -> int:
    """Runs the tests; returns 0 when none failed, none was left and one passed, else 1."""
    if not in_source_tree():
        raise CapabilityError(
            "the tests are not part of an installed package",
            hint="run ./dpctl selftest in a source tree",
        )
    stages, pytest_arguments = choose_stages(args)
    # Each process that imports numpy would start a thread for each CPU: 0.1 s of CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    total = Tally()
    summary = []
    with bytecode_kept():
        done = run_stages(stages, pytest_arguments)
    for stage, outcome in done.items():
        total.add(outcome.tally)
        summary.append(f"{stage:8} {outcome}")
        summary += [f"{'':8} {line}" for line in outcome.tally.details]
    print("\n==== summary ====")
    print("\n".join(summary))
    for seconds, name in total.slowest(SLOWEST):
        print(f"{seconds:7.1f} s  {name}")
    for cpu_s, name in total.hungriest(SLOWEST):
        print(f"{cpu_s:7.1f} s of CPU  {name}")
    for reason in total.skip_reasons:
        print(f"skipped  {reason}")
    for failure in total.failures:  # near the end, where a reader looks first
        print(f"failed   {failure}")
    print(total, flush=True)
    return 0 if total.good else 1
