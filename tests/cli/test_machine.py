# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the machine does to dpctl: full disks, folders that go away, ^C nine times."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.server import Dpctl
from tests.experiment.test_runner import (
    PING,
    all_namespaces,
    command,
    events,
    namespaces,
)
from tests.processes import alive, descendants
from tests.report import folders
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
# A small file system, seen by these commands only: a report is made, the disk is filled, and
# a report is made again, in three ways.  Prints exit codes, and what has become of the report.
FULL = """\
mount -t tmpfs -o size=8m none "$PLACE"
cp -r "$RESULT" "$PLACE/r"
"$@" >/dev/null || exit 99
before=$(sha256sum <"$PLACE/r/report.html")
cat /dev/zero >"$PLACE/fill" 2>/dev/null
for more in "" "--plots svg" "--plots pdf"; do
    "$@" $more >/dev/null
    echo "code $?"
    [ "$before" = "$(sha256sum <"$PLACE/r/report.html")" ] && echo "report as before"
    find "$PLACE" -name '*.tmp' -o -empty -type f
done
"""
INTERRUPTS = 9


@pytest.mark.usefixtures("root")
def test_a_full_disk_leaves_the_old_report(tmp_path: Path) -> None:
    place, result = tmp_path / "place", tmp_path / "r"
    folders.write(result, repetitions=1, samples=False)
    place.mkdir()
    argv = [sys.executable, "-m", "datapath.cli", "report", str(place / "r")]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", FULL, "sh", *argv],
        cwd=ROOT,
        env={**os.environ, "PLACE": str(place), "RESULT": str(result)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.stdout.splitlines() == ["code 3", "report as before"] * 3, done.stdout
    assert done.stderr.count(f"error: no space left to write {place}/r/report.html") == 3
    assert done.stderr.count("hint: free some space") == 3


@pytest.mark.parametrize(
    "arguments", ["schema", "--help", "run experiments/quickstart.yaml --dry-run"]
)
def test_output_that_cannot_be_written(arguments: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "datapath.cli", *arguments.split()],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 3
    assert "error: No space left on device" in done.stderr
    assert "Exception" not in done.stderr


OUT = """\
version: 1
name: out
topology: {lane: sim}
path: {delay: 1us, rate: 1gbit, queue: 64KiB}
transport: {port: udp}
workload: {kind: stream, size: 32KiB, depth: 1, duration: 1ms}
sweep: {repetitions: 1}
"""


def test_what_was_measured_is_told_without_a_report(quick_dpctl: Dpctl, tmp_path: Path) -> None:
    """The place of the report is taken, as a disk may be full."""
    path, out = tmp_path / "x.yaml", tmp_path / "r"
    path.write_text(OUT)
    assert quick_dpctl("run", path, "--out", out, memory_bytes=None).code == 0
    (out / "report.html").unlink()
    (out / "report.html").mkdir()
    done = quick_dpctl("run", "--resume", out, memory_bytes=None)
    assert done.code == 2
    assert "Goodput" in done.out
    assert f"report: dpctl report {out}\n" in done.out
    assert f"error: cannot write {out}/report.html: Is a directory" in done.err


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("/proc/x", "cannot write /proc/x: "),
        ("/sys/x", "cannot write /sys/x: "),
        ("/dev/null/x", "cannot write /dev/null/x: Not a directory"),
        ("/tmp/" + "x" * 300, "File name too long"),
        ("<here>/file", "exists and is not an empty folder"),
        ("<here>/loop/x", "Too many levels of symbolic links"),
    ],
)
def test_a_place_that_takes_no_folder(
    quick_dpctl: Dpctl, tmp_path: Path, out: str, said: str
) -> None:
    (tmp_path / "x.yaml").write_text(OUT)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    where = out.replace("<here>", str(tmp_path))
    done = quick_dpctl("run", tmp_path / "x.yaml", "--out", where)
    assert done.code == 2, done.err
    assert said in done.err
    assert "hint: " in done.err


def begun(tmp_path: Path, text: str = PING) -> subprocess.Popen[str]:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    return subprocess.Popen(
        command("run", "--no-report", path, "--out", tmp_path / "out"),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("root")
def test_a_result_folder_that_is_removed_meanwhile(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with begun(tmp_path) as process:
        wait_until(lambda: any((out / "runs").glob("[0-9a-f]*.json")), "no run finished")
        below = descendants(process.pid)
        spaces = namespaces(below)
        while out.exists():
            shutil.rmtree(out, ignore_errors=True)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (2, 3), said
    assert "internal" not in said
    assert "error: " in said
    assert str(out) in said
    assert alive(below) == {}
    assert not spaces & all_namespaces()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("pause_s", [0, 0.002, 0.02, 0.1])
def test_nine_interrupts_are_one(tmp_path: Path, pause_s: float) -> None:
    out = tmp_path / "out"
    with begun(tmp_path) as process:
        wait_until(lambda: any((out / "runs").glob("[0-9a-f]*.json")), "no run finished")
        below = descendants(process.pid)
        spaces = namespaces(below)
        for _ in range(INTERRUPTS):
            process.send_signal(signal.SIGINT)
            time.sleep(pause_s)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.count("error: interrupted") == 1
    assert "Traceback" not in said
    assert alive(below) == {}
    assert not spaces & all_namespaces()
    assert events(out).count("interrupted") == 1


# A library that is interrupted while a record is saved, and makes what `after` says of it.
LOST = """
import os, signal, sys
from datapath.cli import main
from datapath.experiment.store import ResultStore

save = ResultStore.save

def interrupted(*arguments):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        {after}
    return save(*arguments)

ResultStore.save = interrupted
sys.exit(main())
"""


@pytest.mark.parametrize("after", ["pass", "raise ValueError('of the library')"])
def test_an_interrupt_that_a_library_loses(tmp_path: Path, after: str) -> None:
    (tmp_path / "x.yaml").write_text(
        OUT.replace("sweep: {repetitions: 1}", "sweep: {repetitions: 9}")
    )
    out = tmp_path / "out"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            LOST.format(after=after),
            "run",
            "--no-report",
            tmp_path / "x.yaml",
            "--out",
            out,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert "error: interrupted" in done.stderr
    assert len(list((out / "runs").glob("[0-9a-f]*.json"))) <= 1
    assert "finished" not in events(out)
    assert events(out).count("interrupted") == 1


@pytest.mark.parametrize("arguments", ["validate", "run --dry-run"])
def test_interrupts_without_an_end_are_one(arguments: str) -> None:
    """From the moment on at which dpctl sees to signals, whatever it does then."""
    argv = command(*arguments.split(), "experiments/loss-tolerance.yaml")
    for attempt in range(5):
        with subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            status = Path(f"/proc/{process.pid}/status")
            wait_until(lambda status=status: _catches(status, signal.SIGTERM), "no handler")
            time.sleep(attempt * 0.05)
            while process.poll() is None:
                process.send_signal(signal.SIGINT)
                time.sleep(0.001)
            assert process.stderr is not None
            said = process.stderr.read()
        assert process.returncode in (0, 130), said
        assert said in ("", "error: interrupted\n", "\nerror: interrupted\n")


def _catches(status: Path, signum: int) -> bool:
    """Whether a process has a handler for a signal; true as well when it has ended."""
    try:
        lines = dict(line.split(":\t") for line in status.read_text().splitlines())
    except OSError:
        return True
    return bool(int(lines.get("SigCgt", "-1"), 16) >> (signum - 1) & 1)
